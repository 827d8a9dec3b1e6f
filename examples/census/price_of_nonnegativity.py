"""What does it cost that no count may be negative?
===================================================

Microdata cannot have a record of weight -1. Fits without negative counts are closer in empty cells, but too
large on average: every small positive error stays and every negative one is cut off. Either their sum is too
large, or, held at the unbiased sum, the full cells pay for the empty ones. An estimate that may be negative has
no bias.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Problem, Schema, anchored_fit, nnls, ols
from noise_mechanisms import draw_noise

plt.style.use("blue_solvers.pictures.clear")

methods = {"best linear unbiased": ols, "non-negative squares": nnls, "anchored at the unbiased sum": anchored_fit}
sizes, draws = [4, 10, 25, 60, 150], 100
bias, full_cell = {name: [] for name in methods}, {}
for cells in sizes:
    problem = Problem(Schema({"cell": cells}), {"total": 4.0, "cell": 4.0})
    truth = np.zeros(1 + cells)
    truth[:2] = 100.0  # everybody is in one cell, the others are empty
    noise = draw_noise(problem, columns=draws, rng=7)
    y = truth[:, None] + np.hstack([noise, -noise])  # mirrored: what is left on average is bias, not luck
    for name, method in methods.items():
        errors = method(problem, y).observed[:2].mean(axis=1) - 100
        bias[name].append(errors[0])
        full_cell[name] = errors[1]
print(f"error of the full cell among {cells}, on average:")
print(*(f"  {name}: {error:+.1f}" for name, error in full_cell.items()), sep="\n")

figure, ax = plt.subplots()
for name in methods:
    (line,) = ax.plot(sizes, bias[name], label=name)
ax.axhline(0, color="0.46", linewidth=1, zorder=0)
ax.set(xscale="log", xlabel="cells, all but one empty", ylabel="error of the total, on average", ylim=(-2, None))
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.set_title("Cutting off at zero makes totals too large")
ax.legend()
plt.show()
