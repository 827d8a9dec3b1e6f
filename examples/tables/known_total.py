"""The total is known exactly: what does that help?
===================================================

A variance of 0 says that a figure is known exactly. All tables are then made to add up to it; what that is
worth falls with the number of cells that share it.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Problem, Schema, blue

plt.style.use("blue_solvers.pictures.clear")

cells = np.array([2, 3, 4, 6, 8, 12, 16, 24, 32])
ways = {"not measured": np.inf, "as noisy as a cell": 1.0, "known exactly": 0.0}
figure, ax = plt.subplots()
for how, variance in ways.items():
    errors = []
    for count in cells:
        P = blue(Problem(Schema({"district": int(count)}), {"total": variance, "district": 1.0}))
        errors.append(np.sqrt(P.variances()[-1]))
    ax.plot(cells, errors, label=f"total {how}")
ax.set(xscale="log", xlabel="cells that add up to the total", ylabel="standard error of a cell", ylim=(0.65, 1.05))
ax.set_xticks(cells, cells)
ax.minorticks_off()
ax.legend()
ax.set_title("An exact total helps where few cells share it")
plt.show()
