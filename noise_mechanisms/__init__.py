"""The noise of privacy mechanisms: its laws, drawing it, accounting for it.

`add_noise` and `draw_noise` are for simulation only: they draw from seeded generators in floating point, and protect
nobody. Release grade are `release_counts`, `release` of the laws in `laws`, and `release` of the mechanisms in
`integer_subspace`.
"""

from typing import TYPE_CHECKING

from constraint_builders.lazy_names import names_when_asked
from constraint_builders.version import __version__ as __version__

if TYPE_CHECKING:
    from noise_mechanisms.accounting import compose as compose
    from noise_mechanisms.add_noise import add_noise as add_noise
    from noise_mechanisms.add_noise import draw_noise as draw_noise
    from noise_mechanisms.add_noise import release_counts as release_counts
    from noise_mechanisms.integer_subspace import BoundedMechanism as BoundedMechanism
    from noise_mechanisms.integer_subspace import GeneralizedGaussian as GeneralizedGaussian
    from noise_mechanisms.integer_subspace import GeneralizedLaplace as GeneralizedLaplace
    from noise_mechanisms.integer_subspace import Invariants as Invariants
    from noise_mechanisms.integer_subspace import noise_covariance as noise_covariance
    from noise_mechanisms.integer_subspace import tail_bound as tail_bound
    from noise_mechanisms.laws import ContinuousLaw as ContinuousLaw
    from noise_mechanisms.laws import DiscreteLaw as DiscreteLaw
    from noise_mechanisms.laws import Gaussian as Gaussian
    from noise_mechanisms.laws import Laplace as Laplace
    from noise_mechanisms.laws import add_law as add_law
    from noise_mechanisms.laws import variance_of as variance_of
else:
    from noise_mechanisms.add_noise import add_noise as add_noise  # at once: its module has its name

    __getattr__, __dir__ = names_when_asked(
        __name__,
        {
            "noise_mechanisms.accounting": ("compose",),
            "noise_mechanisms.add_noise": ("add_noise", "draw_noise", "release_counts"),
            "noise_mechanisms.integer_subspace": (
                "BoundedMechanism",
                "GeneralizedGaussian",
                "GeneralizedLaplace",
                "Invariants",
                "noise_covariance",
                "tail_bound",
            ),
            "noise_mechanisms.laws": (
                "ContinuousLaw",
                "DiscreteLaw",
                "Gaussian",
                "Laplace",
                "add_law",
                "variance_of",
            ),
        },
    )
