"""Can a cluster do it?
=======================

The spine is cut into parts; a worker reads a part, tells its parent what it knows, and later hears the
answer. Nothing but names goes through Dask, the answers have the same bytes as without it, and what is done
is on disk if a worker dies. This cluster is two threads of one process; give the address of yours to
``Client``.
"""

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from distributed import Client

from blue_solvers import Problem, Schema, Spine, cluster, estimate, partition

plt.style.use("blue_solvers.pictures.clear")

geoids = [f"44{county:03}{tract:02}{block:02}" for county in range(6) for tract in range(4) for block in range(10)]
spine = Spine.from_geoids(geoids, {"State": 2, "County": 5, "Tract": 7, "Block": 9})
schema = Schema({"sex": 2, "age": 5})
problem = Problem(schema, {level: {"total": 1.0, "detailed": 3.0} for level in spine.levels}, spine=spine)
y = np.random.default_rng(0).normal(20, 2, problem.observed.size)

folder = Path(tempfile.mkdtemp())
partition(folder / "measurements", problem, y, at="County")

steps = []
start = time.perf_counter()
with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
    cluster.estimate(
        client,
        folder / "measurements",
        folder / "estimates",
        progress=lambda step, done, of: steps.append((time.perf_counter() - start, step, done, of)),
    )

# %%
# The same as in memory:

blocks = pl.read_parquet(folder / "estimates" / "Block.parquet" / "*.parquet").filter(pl.col("table") == "total")
there = dict(zip(blocks["geocode"], blocks["estimate"].list.first()))
here = estimate(problem, y).tables["Block", "total"]
codes = [spine.geocodes[k] for k in spine.members[-1]]
print("largest difference:", max(abs(there[code] - value) for code, value in zip(codes, here)))

figure, ax = plt.subplots(figsize=(7.2, 3.4))
for step in dict.fromkeys(step for _, step, _, _ in steps):
    when, done = zip(*[(at, done) for at, name, done, _ in steps if name == step])
    ax.plot(when, done, drawstyle="steps-post", label=step)
ax.set(xlabel="seconds", ylabel="parts done", title="Up with what each part knows, down with the answer")
ax.legend(loc="upper left")
plt.show()
