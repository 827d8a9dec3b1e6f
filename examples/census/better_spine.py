"""How well does a spine serve places that are not on it?
=========================================================

Two towns and a stretch of country cut across tracts and block groups. The Census Bureau regroups blocks so
that fewer geounits compose such places; going by exact variances, before any noise is drawn, shows what that
is worth.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Schema, Spine, compare_spines, optimise_spine
from constraint_builders import Entities, Strategy, regroup_blocks

plt.style.use("blue_solvers.pictures.clear")

geoids = [f"4400{c}00{t}100{g}0{b:02d}" for c in "13" for t in "12" for g in "12" for b in range(30)]
places = ["A" if i % 60 < 25 else "B" if i % 60 < 47 else "" for i in range(len(geoids))]
spine = Spine.from_geoids(geoids)
towns = Entities.from_labels({"town": places})
schema = Schema({"sex": 2})
shares = dict.fromkeys(spine.levels, "1/5")
tables = {level: {"total": "1/2", "detailed": "1/2"} for level in spine.levels}

regrouped = Strategy.from_levels(regroup_blocks(spine, towns), 2, shares, tables, "zcdp")
strategies = {
    "census block groups": Strategy.from_levels(spine, 2, shares, tables, "zcdp"),
    "regrouped, Algorithm 2": regrouped,
    "optimised for the mean": optimise_spine(regrouped, schema, towns, "mean").strategy,
}
report = compare_spines(strategies, schema, towns)

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.8), sharey=True)
rows = np.arange(len(towns.names))
for step, (name, marker) in enumerate(zip(strategies, "sDo")):
    height = rows + 0.18 * (step - 1)
    left.plot(report.distances[name], height, marker, color=f"C{step}", label=name)
    right.plot(np.sqrt(report.variances[name]), height, marker, color=f"C{step}")
left.set_yticks(rows, ["country" if "outside" in name else name for name in towns.names])
left.invert_yaxis()
left.set(xlabel="geounits that compose it", title="Distance from the spine", xlim=(0, None))
right.set(xlabel="standard error of its total", title="What it comes to", xlim=(0, None))
figure.legend(loc="outside lower left", ncols=3)
plt.show()
