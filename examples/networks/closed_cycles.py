"""Which free energy cannot be right, and what should be computed next?
=======================================================================

How much better one molecule binds to a protein than another is computed for pairs of them, each with an error. Around a
closed cycle such differences must add up to 0, so that they check one another. Ligands of p38 in kcal/mol: Open Free
Energy, IndustryBenchmarks2024, MIT.
"""

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from blue_solvers.examples import FREE_ENERGIES
from blue_solvers.least_squares import eliminate_outliers, greedy_set, least_squares
from blue_solvers.pictures import dots_and_intervals, normal_quantiles

plt.style.use("blue_solvers.pictures.clear")

pairs = pl.read_csv(FREE_ENERGIES, schema_overrides={"from": pl.String, "to": pl.String})
ligands = sorted({*pairs["from"], *pairs["to"]})
number = {name: place for place, name in enumerate(ligands)}


def differences(starts, ends):
    """A row for each pair: the free energy of the end less that of the start."""
    rows = np.zeros((len(starts), len(ligands)))
    for row, start, end in zip(rows, starts, ends):
        row[number[start]], row[number[end]] = -1, 1
    return rows


names = [f"{start} to {end}" for start, end in zip(pairs["from"], pairs["to"])]
S = differences(pairs["from"], pairs["to"])
est = least_squares(S, pairs["value"].to_numpy(), pairs["sd"].to_numpy() ** 2, names=ligands, row_names=names)
print(est.rank)

# %%
# Differences alone say nothing of any single energy: all could be higher by the same. That is said, and differences are
# estimated all the same. But the cycles do not close as well as the errors promise: one pair is off by several errors.
# It lies in a chain of two pairs, and nothing tells which of both is wrong.

fit = est.goodness_of_fit()
print(fit)
found = eliminate_outliers(est, level=0.01)
print(found)

figure, ax = plt.subplots()
normal_quantiles(ax, fit.residuals, names, named=1)
ax.set_title("One pair is far from what all cycles through it say")
ax.legend(loc="upper left")
plt.show()

# %%
# Without that pair the others agree a little less than their errors promise, as errors of one method often do. Energies
# relative to the mean of all ligands, before and after: only those around the wrong pair move.

to_mean = np.eye(len(ligands)) - 1 / len(ligands)
readings, order = {}, None
for label, own in (("all pairs", est), ("without it", found.estimate)):
    told = own.functionals(to_mean)
    order = np.argsort(told.estimate)[:12] if order is None else order
    center, half = told.estimate[order], 1.96 * told.std_errors[order]
    readings[label] = center, center - half, center + half
figure, ax = plt.subplots(figsize=(7.0, 6.0))
dots_and_intervals(ax, [ligands[place] for place in order], readings)
ax.set(xlabel="kcal/mol beside the mean of all, with 95 % intervals", title="The twelve that bind best")
figure.legend(loc="outside lower left", ncols=2)
plt.show()

# %%
# Which of the best two binds better? Of all pairs that were not computed yet, these three would tell most of it, if
# each had the middle one of the errors; each is the best when those before it are there.

best, second = order[:2]
target = np.zeros(len(ligands))
target[best], target[second] = 1, -1
done = {frozenset(pair) for pair in zip(pairs["from"], pairs["to"])}
others = [(a, b) for i, a in enumerate(ligands) for b in ligands[i + 1 :] if frozenset((a, b)) not in done]
typical = float(np.median(pairs["sd"])) ** 2
chosen, gains = greedy_set(found.estimate, target, differences(*zip(*others)), typical, 3)
variance = found.estimate.functionals(target).variances[0]
print(f"{ligands[best]} against {ligands[second]}: standard error {variance**0.5:.2f}")
for place, gain in zip(chosen, gains):
    variance -= gain
    print(f"with {others[place][0]} to {others[place][1]}: {variance**0.5:.2f}")
