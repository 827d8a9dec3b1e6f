"""Tables whose figures were each rounded or perturbed: estimates, what counts are possible, and the noise itself."""

from blue_solvers.rounded.audit import Audit as Audit
from blue_solvers.rounded.audit import audit as audit
from blue_solvers.rounded.estimated_noise import EstimatedNoise as EstimatedNoise
from blue_solvers.rounded.estimated_noise import estimated_noise as estimated_noise
from blue_solvers.rounded.possible_counts import possible_counts as possible_counts
from blue_solvers.rounded.refitted import estimate_rounded as estimate_rounded
from blue_solvers.rounded.repeated_figures import RepeatedFigures as RepeatedFigures
from blue_solvers.rounded.repeated_figures import merged_copies as merged_copies
from blue_solvers.rounded.repeated_figures import repeated_figures as repeated_figures
