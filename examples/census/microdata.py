"""Can I have records rather than tables?
=========================================

Whole records, one a person, whose tables are near the unbiased estimates: non-negative counts first, then
rounded so that chosen tables are rounded as well. They are a product to hand out beside the estimates, not in
their place.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import controlled_rounding, estimate, nnls, unit_records
from constraint_builders import gallery
from noise_mechanisms import add_noise

plt.style.use("blue_solvers.pictures.clear")

problem = gallery.berkeley(variance=8.0**2)
y = add_noise(problem, problem.truth, rng=6)
unbiased = estimate(problem, y).tables["detailed"].ravel()
fit = nnls(problem, y)
counts = controlled_rounding(problem, fit.detail, keep=["total", "sex"])
print(unit_records(problem, counts).sample(5, seed=1))

truth = problem.observed.tables(problem.truth)["detailed"].ravel()
figure, ax = plt.subplots(figsize=(7.6, 4.2))
places = np.arange(truth.size)
ax.vlines(places, unbiased - truth, counts.ravel() - truth, color="0.6", linewidth=1)
ax.plot(places, unbiased - truth, "o", color="C0", label="unbiased estimate")
ax.plot(places, counts.ravel() - truth, "s", color="C1", label="whole records")
ax.axhline(0, color="0.46", linewidth=1, zorder=0)
labels = [f"{out[:3]}. {sex} {dep}" for out in ("admitted", "rejected") for sex in ("men", "women") for dep in "ABCDEF"]
ax.set_xticks(places, labels, rotation=90, fontsize=8.5)
ax.set(ylabel="error, applicants", title="Records stay near the estimates, and are whole")
ax.legend()
plt.show()
