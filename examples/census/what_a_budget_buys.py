"""What does a privacy budget buy?
==================================

A budget (rho of zero-concentrated differential privacy) is spent on tables; each gets noise of the variance
that its share pays for. How precise the estimates will be is known before a single count is read.
"""

from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Problem, Schema, blue
from constraint_builders import gaussian_variance

plt.style.use("blue_solvers.pictures.clear")

schema = Schema({"sex": 2, "age": 10, "race": 7})
plans = {
    "all on the detailed table": {"detailed": Fraction(1)},
    "half on the margins": {name: Fraction(1, 6) for name in ("sex", "age", "race")} | {"detailed": Fraction(1, 2)},
}
budgets = [Fraction(1, 100) * 2**k for k in range(8)]

figure, axes = plt.subplots(1, 2, figsize=(8.6, 4), sharey=True)
for ax, wanted in zip(axes, ("race", "detailed")):
    last = []
    for plan, shares in plans.items():
        errors = []
        for rho in budgets:
            observed = {name: float(gaussian_variance(rho * share)) for name, share in shares.items()}
            P = blue(Problem(schema, observed, desired=[wanted]))
            errors.append(np.sqrt(P.variances().mean()))
        last.append(errors[-1])
        ax.plot([float(rho) for rho in budgets], errors, label=plan)
    print(f"{wanted}: with half on the margins errors are {last[1] / last[0]:.2f} of what they are without")
    ax.set(xscale="log", yscale="log", xlabel="budget, rho", title=f"cells of {wanted}")
axes[0].set_ylabel("standard error")
axes[0].legend()
plt.show()

# %%
# Every doubling divides errors by the root of two. Half the budget by itself would make the detailed cells'
# errors 1.41 times as large; they are less, since what is spent on the margins is not lost to the cells.
