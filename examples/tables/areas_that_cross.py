"""Why do districts and regions not add up, and what is the count?
================================================================

The district of Waitaki lies in two regions of New Zealand, so that no tree holds both. Every figure of the census is
rounded randomly to a multiple of 3, totals too, and small areas where few people live have none. Small areas, districts
and the region say several numbers of the same households, and the estimate takes all of them. Households of Otago by
motor vehicles, 2018: Stats NZ, CC BY 4.0, from db-censusnz.
"""

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from blue_solvers import estimate, read_tables
from blue_solvers.examples import OTAGO_2018, OTAGO_AREAS
from blue_solvers.pictures import dots_and_intervals
from blue_solvers.rounded import possible_counts
from noise_mechanisms.laws import RandomRounding

plt.style.use("blue_solvers.pictures.clear")

# %%
# One file has the figures, a row for an area and a column for a category, and another says where every small area (SA2)
# lies. A row of its own asks for what nobody published: the part of Waitaki that is in Otago, and no more than that.
# The command does the same:
# ``blue-solvers estimate otago_2018.csv --areas otago_areas.csv --names-to vehicles --rounded 3 --out estimates.csv``.

law = RandomRounding(3)
frame = pl.read_csv(OTAGO_2018, schema_overrides={"code": pl.String})
asked = pl.DataFrame({"level": ["district * region"], "code": ["068 * 14"]})
problem, y = read_tables(pl.concat([frame, asked], how="diagonal"), areas=OTAGO_AREAS, names_to="vehicles", noise=law)
est = estimate(problem, y)
fit = est.goodness_of_fit(draws=0)
print(fit, est.certificate(), sep="\n")
for part, own in (*fit.by_geolevel.items(), *fit.by_table.items()):
    print(f"{part}: chi-square {own.statistic:.1f} where {own.expectation:.1f} is expected, {own.z:+.1f}")

# %%
# What was published beside what follows from it, the sum of categories and that of small areas; then the estimate.

names = {
    "14": "Otago",
    "068": "Waitaki",
    "069": "Central Otago",
    "070": "Queenstown-Lakes",
    "071": "Dunedin",
    "072": "Clutha",
}
tables, areas = problem.observed.tables(y), problem.areas
rows = []
for level in ("region", "district"):
    parts = areas.leaves_of(areas.level_index(level)) @ tables["SA2", "total"]
    ways = tables[level, "total"], tables[level, "vehicles"].sum(1), parts, est.tables[level, "total"]
    sizes = areas.leaves_of(areas.level_index(level)).sum(1)
    rows += zip(areas.names(level), *ways, sizes, strict=True)
for code, published, categories, small, best, size in rows:
    print(f"{names[code]:17} {published:8,.0f} {categories:8,.0f} {small:8,.0f} of {size:3.0f} areas {best:10,.1f}")
part = areas.names("district * region").index("068 * 14")
place = problem.desired.slice(("district * region", "total")).start + part
print(f"Waitaki in Otago: {est.values[place]:,.1f} +- {est.std_errors[place]:.1f}")
print(f"of its 14 small areas alone: +- {(14 * law.variance) ** 0.5:.1f}")

# %%
# Sums of many rounded figures are far less sure than one figure, and one figure less than the estimate, which no count
# that the figures leave possible is far from.

first = [problem.desired.slice((level, "total")).start for level in ("region", "district")]
cells = [first[0], *range(first[1], first[1] + 5)]
low, high = (end[cells] for end in est.interval(0.95))
least, most = possible_counts(problem, y, cells)
codes, published, categories, small, best, sizes = (np.array(own) for own in zip(*rows, strict=True))


def beside(values, figures):
    """Values less the estimate, with 95 % of the noise of a sum of figures."""
    width = 1.96 * np.sqrt(figures * law.variance)
    return values - best, values - best - width, values - best + width


readings = {
    "published": beside(published, 1),
    "sum of categories": beside(categories, 7),
    "sum of small areas": beside(small, sizes),
    "estimate": (0 * best, low - best, high - best),
    "possible counts": ((least + most) / 2 - best, least - best, most - best),
}
figure, ax = plt.subplots(figsize=(7.4, 5.6))
dots_and_intervals(ax, [f"{names[code]}: {value:,.1f}" for code, value in zip(codes, best)], readings)
ax.set(xlabel="households beside the estimate", title="Otago's households, counted five ways")
figure.legend(loc="outside lower left", ncols=3)
plt.show()
