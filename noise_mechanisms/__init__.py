"""The noise of privacy mechanisms: its laws, drawing it, accounting for it.

`add_noise` and `draw_noise` are for simulation only: they draw from seeded generators in floating point, and protect
nobody. Release grade are `release_counts`, `release` of the laws in `laws`, and `release` of the mechanisms in
`integer_subspace`.
"""

from constraint_builders.version import __version__
from noise_mechanisms.add_noise import add_noise, draw_noise, release_counts
from noise_mechanisms.laws.named_laws import add_law, variance_of

__all__ = ["__version__", "add_law", "add_noise", "draw_noise", "release_counts", "variance_of"]
