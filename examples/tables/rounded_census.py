"""Why do these rounded tables not add up, and what is the count?
================================================================

New Zealand rounds every figure of its census randomly to a multiple of 3, each by itself, totals too. So women and men
do not add up to all, and the same people stand in several tables with several numbers. All of that is noise of a
known law, and the count can be told better than any one table tells it. Residents of Auckland Central by age, 2013:
Stats NZ, CC BY 4.0, from the package nzcensus2013.
"""

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from blue_solvers import read_tables
from blue_solvers.examples import AUCKLAND_2013
from blue_solvers.pictures import dots_and_intervals
from blue_solvers.rounded import audit, estimate_rounded, possible_counts, repeated_figures
from noise_mechanisms.laws import RandomRounding

plt.style.use("blue_solvers.pictures.clear")

law = RandomRounding(3)
frame = pl.read_csv(AUCKLAND_2013)
one, y_of_one = read_tables(frame.filter(pl.col("source") == "age*sex").drop("source"), noise=law, total=["*"])
problem, y = read_tables(frame, noise=law, total=["*"])

# %%
# Seven tables have the same figures, and seven in ten are the same number: that is what rounding each by itself gives.
# Copies of one measurement would always agree.

print(repeated_figures(problem, y))
print(audit(one.replace(desired=one.observed), copies=7, rng=0))

# %%
# One table says little more than that a count is within 2 of what it says. All seven, and that women and men are all,
# nearly always leave one or two counts that are possible.

first, all_seven = estimate_rounded(one, y_of_one), estimate_rounded(problem, y)
for table, own in all_seven.goodness_of_fit(draws=0).by_table.items():
    print(f"{table}: chi-square {own.statistic:.1f} where {own.expectation:.1f} is expected, {own.z:+.1f}")
chosen = ["0-4", "20-24", "40-44", "60-64", "80-84"]
labels = problem.schema.labels_of("age")
rows = [problem.observed.slice("age").start + labels.index(age) for age in chosen]
lower, upper = possible_counts(problem, y, rows)
center = np.zeros(len(rows))
published = y_of_one[[one.observed.slice("age").start + one.schema.labels_of("age").index(age) for age in chosen]]


def beside(est, places):
    """Estimates and 95 % intervals, less what the first table published."""
    low, high = est.interval(0.95)
    return tuple(own[places] - published for own in (est.values, low, high))


readings = {
    "published in one table": (center, center - 2, center + 2),
    "estimate from that table": beside(first, rows),
    "estimate from seven tables": beside(all_seven, rows),
    "possible counts": ((lower + upper) / 2 - published, lower - published, upper - published),
}
figure, ax = plt.subplots(figsize=(7.4, 5.2))
dots_and_intervals(ax, [f"{age}: {figure:,.0f}" for age, figure in zip(chosen, published)], readings)
ax.set(xlabel="people beside the published figure", title="Rounded seven times, nearly known")
figure.legend(loc="outside lower left", ncols=2)
plt.show()
