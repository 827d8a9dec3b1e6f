"""Which solver for my problem: what does how much accuracy cost?
=================================================================

One problem in which every cell has a variance of its own, by every solver that takes it. Direct ones are
exact at one price; iterative ones are stopped where one likes; a heuristic has one price too and is not exact.
``blue(problem)`` chooses among the exact ones and says why.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Cholesky, ConjugateGradient, Dense, Multigrid, SeaBlue, blue
from constraint_builders import gallery

plt.style.use("blue_solvers.pictures.clear")

rng = np.random.default_rng(1)
equal = gallery.cube(4, 4)
problem = equal.with_variances(rng.uniform(1, 3, equal.observed.size))
y = rng.normal(size=problem.observed.size)
reference = blue(problem, Dense())
x, errors = reference @ y, np.sqrt(reference.variances())
tolerances = 10.0 ** -np.arange(1, 12, 2)
solvers = {
    "sea_blue, a heuristic here": [SeaBlue()],
    "cholesky": [Cholesky()],
    "dense": [Dense()],
    "cg": [ConjugateGradient(rtol=rtol) for rtol in tolerances],
    "cg around the closed form": [ConjugateGradient(rtol=rtol, preconditioner="two_pass") for rtol in tolerances],
    "multigrid": [Multigrid(rtol=rtol) for rtol in tolerances],
}

# %%
# Time is that of a further estimate, once the solver is prepared.


def cost_and_error(solver):
    """Least milliseconds of three estimates, and the largest error in standard errors."""
    P = blue(problem, solver)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        answer = P @ y
        seconds.append(time.perf_counter() - start)
    return 1000 * min(seconds), max((abs(answer - x) / errors).max(), 1e-16)


figure, ax = plt.subplots(figsize=(8, 4.6))
for (name, settings), marker, colour in zip(solvers.items(), "X^voDs", ["0.13", "C2", "C3", "C1", "C0", "C4"]):
    ax.plot(*zip(*map(cost_and_error, settings)), marker=marker, color=colour, label=name)
ax.axhline(1, color="0.46", linewidth=1, linestyle=":", zorder=0)
ax.set(xscale="log", yscale="log", xlabel="milliseconds for an estimate", ylabel="largest error, in standard errors")
ax.set_title("What accuracy costs, when every cell has its own variance")
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
plt.show()

print(blue(problem).info.reason)
