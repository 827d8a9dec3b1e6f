"""Which tracts' populations by age are known to 5 %?
==================================================

The published tables of 2020 give a number for every line of every tract, without an error. How precise each number
is follows from the measurements, and a stored result tells it. The state here is synthetic, measured as in 2020: 36
tracts of some 1,000 to 10,000 people in 288 blocks, by sex and single year of age, which differ in size and age. With
the Census Bureau's files the first two steps are one `estimate`.
"""

# %%
import tempfile
from fractions import Fraction
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from blue_solvers import Result
from blue_solvers.cli import main
from constraint_builders import Schema, production_settings
from constraint_builders.budget import Budget
from constraint_builders.files import Settings

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(2020)
tracts = [f"99{county:03}{tract:04}00" for county in (1, 3, 5, 7) for tract in range(1, 10)]
people = dict(zip(tracts, rng.lognormal(8.2, 0.5, len(tracts)).round(), strict=True))
ages = np.arange(116)
pyramid = np.where(ages < 70, 1.0, np.exp(-(((ages - 70) / 14) ** 2)))
rows = []
for tract, count in people.items():
    shares = pyramid * np.exp(-rng.normal(0, 0.01) * ages)
    for block in [f"{group}{number:03}" for group in (1, 2) for number in range(4)]:
        counts = rng.poisson(count / 16 * shares / shares.sum(), (2, 116))
        sex, age = np.nonzero(counts)
        cells = {"sex": np.array(["male", "female"])[sex], "age": age, "count": counts[sex, age]}
        rows.append(pl.DataFrame({"geoid": tract + block, **cells}))
truth = pl.concat(rows)
truth.write_csv(folder / "blocks.csv")

# %%
# The tables of the Demographic and Housing Characteristics with sex and age, and their losses at State, County, Tract,
# Block_Group and Block; those of larger tables are divided by the cells that are summed over.
persons = production_settings("dhc_us_persons").schema
groups = {name: persons.groups_of(name) for name in ("age_18_64_116", "age_38_groups")}
schema = Schema({"sex": ["male", "female"], "age": 116}, {"age": groups})
summed = {"age_18_64_116 * sex": 1, "age_38_groups * sex": 1, "sex": 2, "sex * age": 42 * 2 * 63}
rho = {"State": 999, "County": 310, "Tract": 868, "Block_Group": 430, "Block": 11}
losses = {
    level: {name: Fraction(part, 10_000 * cells) for name, cells in summed.items()} for level, part in rho.items()
}
own = Settings("by sex and age", schema, tuple(rho), Budget(losses), "discrete_gaussian")
(folder / "settings.toml").write_text(own.text)
blocks, settings, release, stored = (str(folder / n) for n in ("blocks.csv", "settings.toml", "release", "result"))
assert main(["simulate", blocks, "--settings", settings, "--seed", "7", "--out", release]) == 0
assert main(["estimate", release, "--out", stored, "--desired", "sex * age"]) == 0

# %%
# A line is known to 5 % where its 95 % interval reaches no further than 5 % of the estimate to either side. The total
# is known to 5 % in every tract. Women of 25 to 29 are in 16 of 36, girls under 5 in only 3, though there are about as
# many of them: their five years of age were measured one by one, those at 25 to 29 as one cell.
result = Result(stored)
half_width = pl.col("upper") - pl.col("estimate")
P12 = result.table("P12", geolevel="tract").with_columns(known=half_width <= 0.05 * pl.col("estimate"))
known = P12.group_by("line").agg(pl.col("known").sum()).to_numpy()
assert [dict(known)[line] for line in ("P12_001N", "P12_035N", "P12_027N", "P12_032N")] == [36, 16, 3, 0]

# %%
# One number a line makes a ranking without a doubt. But 3 of 36 ranks are certain at 95 %, and one tract may have any
# of 15. With Fieller intervals, the share of girls under 5 is apart from the state's in 28 tracts. The truth is
# available here, and 34 of the 36 intervals cover it.
women = P12.filter(pl.col("line").str.slice(4, 3).cast(pl.Int64).is_between(27, 49))
size = P12.filter(pl.col("line") == "P12_001N").sort("estimate", descending=True)["geoid"].to_list()
percent = women.with_columns(percent=100 * half_width / pl.col("estimate").clip(1))
percent = percent.pivot("line", index="geoid", values="percent")
order = pl.DataFrame({"geoid": size, "place": range(len(size))})
ranks = result.ranks("P12_027N", geolevel="tract")
certain, widest = (ranks["rank_from"] == ranks["rank_to"]).sum(), (ranks["rank_to"] - ranks["rank_from"] + 1).max()
share, state = (result.ratios("P12_027N", "P12_001N", **place) for place in ({"geolevel": "tract"}, {"geoids": ["99"]}))
apart = share.filter((pl.col("lower") > state["upper"][0]) | (pl.col("upper") < state["lower"][0])).height
girls = truth.filter((pl.col("sex") == "female") & (pl.col("age") < 5)).with_columns(geoid=pl.col("geoid").str.head(11))
held = women.filter(pl.col("line") == "P12_027N").join(girls.group_by("geoid").agg(pl.col("count").sum()), on="geoid")
covered = held.filter(pl.col("count").is_between(pl.col("lower"), pl.col("upper"))).height
assert (certain, widest, apart, covered) == (3, 15, 28, 34)

plt.style.use("blue_solvers.pictures.clear")
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 7), width_ratios=(3, 2), layout="constrained")
shown = percent.join(order, on="geoid").sort("place").drop("geoid", "place").to_numpy()
image = left.imshow(np.minimum(shown, 25), aspect="auto", cmap="viridis_r", vmin=0, vmax=25)
left.plot(*np.argwhere(shown <= 5).T[::-1], "o", color="white", markersize=3)
labels = women["label"].unique(maintain_order=True).to_list()
left.set(xlabel="ages of women", ylabel="tracts, the largest above", yticks=[])
left.set_xticks(range(len(labels)), labels, rotation=90)
left.set_title("Half the 95 % interval; dots: known to 5 %", loc="left")
figure.colorbar(image, ax=left, label="% of the estimate (25: or more)", location="left")
right.hlines(range(36), ranks["rank_from"], ranks["rank_to"], color="0.6", linewidth=4)
right.plot(ranks["rank"], range(36), "o", markersize=4)
right.set(xlabel="rank, and the ranks that it may have at 95 %", ylabel="tracts by their girls under 5", yticks=[])
right.invert_yaxis()
right.set_title("Girls under 5: which tract has most?", loc="left")
plt.show()
