"""The noise of privacy mechanisms: its laws, drawing it, accounting for it.

`add_noise` and `draw_noise` are for simulation only: they draw from seeded generators in floating point, and protect
nobody. Release grade are `release_counts`, `release` of the laws in `laws`, and `release` of the mechanisms in
`integer_subspace`.
"""

from constraint_builders.lazy_names import names_when_asked
from constraint_builders.version import __version__ as __version__
from noise_mechanisms.add_noise import add_noise as add_noise  # at once: its module has its name

__getattr__, __dir__ = names_when_asked(__name__)
