"""What do block counts look like before and after?
===================================================

Maps of a synthetic county: 96 blocks in 12 tracts, each block a handful of people, published with noise. A
tract can be read from its own figure or from its blocks; after estimation both say the same, and blocks are
closer too.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Problem, Schema, Spine, estimate
from blue_solvers.pictures import region_map
from noise_mechanisms import add_noise

plt.style.use("blue_solvers.pictures.clear")

# %%
# A map in GeoJSON: a grid of blocks whose corners are moved a little. Yours is read by ``json.load``.

rng = np.random.default_rng(8)
rows, columns = 8, 12
corners = np.stack(np.meshgrid(np.arange(columns + 1.0), np.arange(rows + 1.0)), axis=-1)
corners[1:-1, 1:-1] += rng.uniform(-0.28, 0.28, corners[1:-1, 1:-1].shape)


def geoid(row, column):
    """Tracts of two by four blocks."""
    return f"44001{row // 2 * 3 + column // 4:02}{row % 2 * 4 + column % 4:01}"


features = [
    {
        "type": "Feature",
        "properties": {"geoid": geoid(row, column)},
        "geometry": {
            "type": "Polygon",
            "coordinates": [
                [corners[row + i, column + j].tolist() for i, j in [(0, 0), (0, 1), (1, 1), (1, 0), (0, 0)]]
            ],
        },
    }
    for row in range(rows)
    for column in range(columns)
]
county = {"type": "FeatureCollection", "features": features}

# %%
# People live around two centres; County, Tract and Block are measured, the larger the more precisely.

spine = Spine.from_geoids(sorted(f["properties"]["geoid"] for f in features), {"County": 5, "Tract": 7, "Block": 8})
levels = {"County": 2.0, "Tract": 10.0, "Block": 100.0}
problem = Problem(
    Schema({"person": 1}), {level: {"total": variance} for level, variance in levels.items()}, spine=spine
)
where = {f["properties"]["geoid"]: np.mean(f["geometry"]["coordinates"][0], axis=0) for f in features}
blocks = [spine.geocodes[k] for k in spine.members[-1]]
near = [min(np.hypot(*(where[code] - centre)) for centre in ([3, 5], [9, 2])) for code in blocks]
truth = rng.poisson(60 * np.exp(-0.35 * np.array(near) ** 2))
y = add_noise(problem, problem.marginal_matrix() @ truth, rng=1)
noisy = problem.observed.tables(y)["Block", "total"]
estimated = estimate(problem, y).tables["Block", "total"]


# %%
# The same three maps for tracts, a multipolygon of blocks each: what the published blocks add up to is far off.

outlines = {}
for feature in features:
    tract = feature["properties"]["geoid"][:7]
    outlines.setdefault(tract, []).append(feature["geometry"]["coordinates"])
tract_map = {
    "type": "FeatureCollection",
    "features": [
        {"type": "Feature", "properties": {"geoid": code}, "geometry": {"type": "MultiPolygon", "coordinates": shapes}}
        for code, shapes in outlines.items()
    ],
}


def by_tract(values):
    """Sums over the blocks of every tract."""
    sums = dict.fromkeys(outlines, 0.0)
    for code, value in zip(blocks, values):
        sums[code[:7]] += value
    return sums


columns = {"truth": truth, "published blocks": noisy, "estimates": estimated}
figure, axes = plt.subplots(2, 3, figsize=(9.6, 5.4))
for row, (regions, tabulate) in zip(axes, ((county, lambda v: dict(zip(blocks, v))), (tract_map, by_tract))):
    shown = {name: tabulate(values) for name, values in columns.items()}
    everything = np.array([list(values.values()) for values in shown.values()])
    for ax, (name, values), numbers in zip(row, shown.items(), everything):
        region_map(ax, regions, values, "people", limits=(everything.min(), everything.max()))
        off = np.sqrt(np.mean((numbers - everything[0]) ** 2))
        ax.set_title(name if name == "truth" else f"{name}\noff by {off:.1f} a region", fontsize=10.5)
plt.show()
