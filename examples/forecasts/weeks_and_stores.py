"""My forecasts by store and by product do not add up: how do I reconcile them?
===============================================================================

Sales are forecast for each product in each store, for stores, for products and for the company, as in the M5
competition. Each forecast comes with its own error. The matrix that sums the leaves says what must add up;
reconciled forecasts do, and are nearer to what was sold.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Problem, blue

plt.style.use("blue_solvers.pictures.clear")

# %%
# Three products in four stores, 26 weeks, synthetic.

products, stores, weeks = ["food", "hobbies", "household"], ["CA", "TX", "WI", "NY"], 26
leaves = np.eye(len(products) * len(stores))
by_product = np.kron(np.eye(len(products)), np.ones(len(stores)))
by_store = np.kron(np.ones(len(products)), np.eye(len(stores)))
S = np.vstack([leaves.sum(0), by_product, by_store, leaves])

rng = np.random.default_rng(11)
season = 1 + 0.25 * np.sin(np.arange(weeks) * 2 * np.pi / 13 + rng.uniform(0, 6, (leaves.shape[0], 1)))
sold = S @ rng.poisson(rng.uniform(20, 90, (leaves.shape[0], 1)) * season)
errors = np.sqrt(60.0 * np.sqrt(S.sum(1)))  # standard deviations of the forecasts
forecasts = sold + rng.normal(size=sold.shape) * errors[:, None]

P = blue(Problem.from_summing_matrix(S, errors**2))
reconciled = P @ forecasts  # all weeks at once

# %%
# What the stores say, what the products say and what the company says is one number afterwards.

week = np.arange(1, weeks + 1)
figure, (before, after) = plt.subplots(1, 2, sharey=True, figsize=(8.6, 4))
for ax, x, title in ((before, forecasts, "Forecasts: three totals"), (after, reconciled, "Reconciled: one")):
    ax.fill_between(week, sold[0], color="0.5", alpha=0.2, linewidth=0, label="sold")
    for values, name in ((x[0], "company"), (x[1:4].sum(0), "sum of products"), (x[4:8].sum(0), "sum of stores")):
        ax.plot(week, values, markersize=4, linewidth=1.2, label=name)
    ax.set(xlabel="week", title=title, ylim=(0.7 * sold[0].min(), None))
before.set_ylabel("sales of the company")
figure.legend(*before.get_legend_handles_labels(), loc="outside lower left", ncols=4)
plt.show()

# %%
# Standard errors are exact, also of what is shown here: all nodes gain, the largest the most.

print(
    "error of a forecast:", errors[[0, 1, 4, 8]].round(1), "reconciled:", np.sqrt(P.variances())[[0, 1, 4, 8]].round(1)
)
