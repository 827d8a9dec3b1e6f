"""Can I write a solver of my own in twenty lines?
==================================================

A solver says which problems it can take, and prepares a linear map for one. This one is the textbook's
formula with a pseudoinverse. ``check_solver`` puts it through the laws that every solver of the package
obeys, on small problems of every kind that it takes.
"""

from dataclasses import dataclass
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Info, Prepared, Solver, blue, check_solver
from constraint_builders import gallery

plt.style.use("blue_solvers.pictures.clear")


class Projection(Prepared):
    """x = y - Sigma A' (A Sigma A')^+ (A y - b), formed once."""

    def __init__(self, problem):
        A, b = problem.equations()
        A = A.toarray()
        K = problem.noise_covariance @ A.T
        K = K @ np.linalg.pinv(A @ K, hermitian=True)
        self.problem, self.offset = problem, K @ b
        self.matrix = np.eye(A.shape[1]) - K @ A
        self.info = Info("pseudoinverse", exact=True, reason="chosen by name")

    def apply(self, Y):
        return self.matrix @ Y, self.info

    def adjoint(self, V):
        return self.matrix.T @ V


@dataclass(frozen=True)
class Pseudoinverse(Solver):
    """The textbook's formula."""

    name: ClassVar[str] = "pseudoinverse"

    def refusal(self, problem):
        plain = problem.desired is problem.observed and not problem.unmeasured.any() and not problem.exact.any()
        return None if plain else "it makes the observed tables, of noisy cells only: use another"

    def plan(self, problem):
        return Projection(problem)


print(check_solver(Pseudoinverse()))

# %%
# What it is then used like: here the weights that every measured cell has in every estimate.

problem = gallery.delinquent_children()
P = blue(problem, Pseudoinverse())
weights = P @ np.eye(problem.observed.size)

figure, ax = plt.subplots(figsize=(6.4, 5.2))
shown = ax.imshow(weights, cmap="RdBu_r", vmin=-1, vmax=1)
borders = problem.observed.offsets
for border in borders[1:-1]:
    ax.axvline(border - 0.5, color="0.3", linewidth=0.6)
    ax.axhline(border - 0.5, color="0.3", linewidth=0.6)
middles = (borders[:-1] + borders[1:] - 1) / 2
names = ["total", "county", "education", "county * education"]
ax.set_xticks(middles, names, rotation=30, ha="right")
ax.set_yticks(middles, names)
ax.set(xlabel="measured", ylabel="estimated", title="Every estimate leans on every table")
figure.colorbar(shown, label="weight")
plt.show()
