"""The laws of the noise: discrete Gaussian, discrete Laplace and their continuous cousins; rounding and cell keys.

A law is a frozen dataclass of its one parameter. The number that the rest of the project calls *variance* is
always the actual variance: ``law("discrete_gaussian", 0.25)`` solves for the parameter that gives variance
0.25. Published sigma^2 of a discrete Gaussian are parameters, ``DiscreteGaussian(sigma2=0.25)``; the two
differ by 2.1e-7 (relative) at sigma^2 = 1 and by less than a rounding error from sigma^2 = 3 on.

Draws come in two grades. `Law.sample` and `draw` are for simulation: vectorised, seeded, exact up to the
rounding of float64, 0.01 to 0.2 microseconds a value, and never to be used to protect anybody.
`Law.release_sample` is release grade: OpenDP's exact samplers, about 10 microseconds a value, without a seed.

References
----------
Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009.
"""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)
