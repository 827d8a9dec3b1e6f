"""Some sums must be published as they are: which noise keeps them?
===================================================================

The margins of a table of delinquent children are known to everybody. Noise is drawn among the whole numbers
that leave both margins as they are, so that only the inside of the table is hidden.
"""

import matplotlib.pyplot as plt
import numpy as np

from constraint_builders import gallery
from noise_mechanisms import GeneralizedLaplace, Invariants

plt.style.use("blue_solvers.pictures.clear")

problem = gallery.delinquent_children()  # county x education of the head of the household
counts = problem.observed.tables(problem.truth)["detailed"].astype(int)
invariants = Invariants.from_margins(problem.schema, ["county", "education"])
mechanism = GeneralizedLaplace(invariants, epsilon=0.25)
noisy = mechanism.add_noise(counts.ravel(), rng=1).table.reshape(counts.shape)  # mechanism.release(...) to publish

assert (noisy.sum(0) == counts.sum(0)).all()
assert (noisy.sum(1) == counts.sum(1)).all()

figure, axes = plt.subplots(1, 2, figsize=(8.6, 4.2), sharey=True)
for ax, title, table in zip(axes, ("confidential", "released"), (counts, noisy)):
    changed = table - counts
    ax.imshow(changed, cmap="RdBu", vmin=-9, vmax=9, alpha=0.6)
    for (row, column), count in np.ndenumerate(table):
        ax.text(column, row, count, ha="center", va="center")
    for row, total in enumerate(table.sum(1)):
        ax.text(4, row, f"= {total}", ha="center", va="center", fontweight="bold")
    for column, total in enumerate(table.sum(0)):
        ax.text(column, 4, f"= {total}", ha="center", va="center", fontweight="bold")
    ax.set(xlim=(-0.5, 4.5), ylim=(4.5, -0.5), title=title)
    ax.set_xticks(range(4), ["low", "medium", "high", "very high"])
    ax.set_yticks(range(4), ["Alpha", "Beta", "Gamma", "Delta"])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
axes[0].set_ylabel("county")
figure.suptitle("Cells move, margins do not", x=0.01, ha="left")
plt.show()
