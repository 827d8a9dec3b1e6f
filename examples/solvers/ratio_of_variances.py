"""Do iterations grow with my problem?
======================================

Around the nearest closed form they level off as the problem grows: what they depend on is the ratio between the
variances within a table. On the constraints they grow with both.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import ConjugateGradient, blue
from constraint_builders import gallery

plt.style.use("blue_solvers.pictures.clear")


def iterations(k, ratio, preconditioner):
    """Iterations to 1e-8 on k variables of k levels."""
    rng = np.random.default_rng(k)
    equal = gallery.cube(k, k)
    problem = equal.with_variances(ratio ** rng.random(equal.observed.size))
    P = blue(problem, ConjugateGradient(rtol=1e-8, preconditioner=preconditioner))
    return P.apply(rng.normal(size=problem.observed.size))[1].iterations


sizes, ratios = [2, 3, 4, 5], [1.5, 3, 10, 100, 1000]
ways = {"two_pass": "around the nearest closed form", "jacobi": "on the constraints"}
figure, (left, right) = plt.subplots(1, 2, sharey=True, figsize=(8.6, 4))
for preconditioner, name in ways.items():
    left.plot(sizes, [iterations(k, 3.0, preconditioner) for k in sizes], label=name)
    right.plot(ratios, [iterations(4, ratio, preconditioner) for ratio in ratios])
left.set_xticks(sizes, [f"{k} x {k}\n{(k + 1) ** k:,} cells" for k in sizes])
left.set(ylabel="iterations to 1e-8", title="variances in ratio 3", ylim=(0, None))
right.set(xscale="log", xlabel="ratio of variances within a table", title="4 x 4 variables and levels")
left.legend()
plt.show()
