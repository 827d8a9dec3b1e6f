"""The laws of the noise: discrete Gaussian, discrete Laplace and their continuous cousins.

A law is a frozen dataclass of its one parameter. The number that the rest of the project calls *variance* is
always the actual variance: ``law("discrete_gaussian", 0.25)`` solves for the parameter that gives variance
0.25. Published sigma^2 of a discrete Gaussian are parameters, ``DiscreteGaussian(sigma2=0.25)``; the two
differ by 2.1e-7 (relative) at sigma^2 = 1 and by less than a rounding error from sigma^2 = 3 on.

Draws come in two grades. `Law.sample` and `draw` are for simulation: vectorised, seeded, exact up to the
rounding of float64, 0.01 to 0.2 microseconds a value, and never to be used to protect anybody.
`Law.release_sample` is release grade: OpenDP's exact samplers, about 10 microseconds a value, without a seed.
"""

from noise_mechanisms.base_law import ContinuousLaw, DiscreteLaw, Law
from noise_mechanisms.laws.discrete_gaussian import DiscreteGaussian
from noise_mechanisms.laws.discrete_laplace import DiscreteLaplace
from noise_mechanisms.laws.gaussian import Gaussian
from noise_mechanisms.laws.laplace import Laplace
from noise_mechanisms.laws.named import LAWS, add_law, draw, kind_of, law, release, variance_of

__all__ = [
    "LAWS",
    "ContinuousLaw",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DiscreteLaw",
    "Gaussian",
    "Laplace",
    "Law",
    "add_law",
    "draw",
    "kind_of",
    "law",
    "release",
    "variance_of",
]
