"""What did the grid do in that hour?
====================================

Seventy regions say every hour what they used, made and exchanged, and the numbers contradict one another: neighbours
differ about the same line, fuels do not add up to what was made. Some are plainly wrong. Least squares makes them
balance by as little as their weights allow, and keeps what cannot be negative above its bound. An hour of June 2023:
U.S. Energy Information Administration, form EIA-930, with weights and consistent values by gridemissions (MIT).
"""

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from blue_solvers import Problem, estimate
from blue_solvers.examples import POWER_HOUR
from blue_solvers.nonnegative import ols

plt.style.use("blue_solvers.pictures.clear")

hour = pl.read_csv(POWER_HOUR)
names = hour["series"].to_list()
place = {name: number for number, name in enumerate(names)}
region_of, kind_of = zip(*(name[2:].rsplit("_", 1) for name in names))
fuels = sorted(set(kind_of) - {"D", "NG", "TI", "ID"})

# %%
# What must hold: what a region makes it uses or sends away; it sends away what flows to its neighbours; a flow there is
# the flow back with the other sign; fuels add up.

balances = []
for region in sorted({own for own, kind in zip(region_of, kind_of) if kind == "D"}):
    flows = [number for number, own in enumerate(region_of) if own.startswith(f"{region}-")]
    made = [place[f"E_{region}_{fuel}"] for fuel in fuels if f"E_{region}_{fuel}" in place]
    demand, generation, sent = (place[f"E_{region}_{kind}"] for kind in ("D", "NG", "TI"))
    balances.append({demand: 1, sent: 1, generation: -1})
    balances.append({sent: 1, **dict.fromkeys(flows, -1)})
    balances.append({generation: 1, **dict.fromkeys(made, -1)})
for number, (own, kind) in enumerate(zip(region_of, kind_of)):
    there, _, back = own.partition("-")
    if kind == "ID" and there < back:
        balances.append({number: 1, place[f"E_{back}-{there}_ID"]: 1})
A = np.zeros((len(balances), len(names)))
for row, balance in zip(A, balances):
    row[list(balance)] = list(balance.values())
problem = Problem.from_matrix(A, 1 / hour["weight"].to_numpy())
y = hour["value"].to_numpy().astype(float)
print(f"{len(names)} series, {len(balances)} balances")

# %%
# Without bounds some fuels come out negative. With bounds the answer is that of a general solver, and proved: no sum of
# series is further from the best one than a small part of its standard error.

lower = np.where(np.isin(kind_of, ["TI", "ID"]), -np.inf, 1.0)
free, bounded = estimate(problem, y), ols(problem, y, bounds=(lower, np.inf))
x = bounded.observed
print(f"{(free.values < lower).sum()} below their bounds without them, {(x <= lower).sum()} at a bound with them")
print(f"proved to {bounded.error_bound:.0e} standard errors")
print(f"{abs(x - hour['published'].to_numpy()).max():.0e} MW from the published answer")

# %%
# Which series had to give way? Those that the others contradict most, here beside what was reported.

moved = np.argsort(-abs(x - y) * np.sqrt(hour["weight"].to_numpy()))[:12]
words = {"D": "demand", "NG": "generation", "TI": "sent away", "ID": "flow", "COL": "coal", "GAS": "gas", "OIL": "oil"}
words |= {"NUC": "nuclear", "OTH": "other", "SUN": "sun", "WAT": "water", "WND": "wind"}
labels = [f"{region_of[i]}, {words[kind_of[i]]}" for i in moved]
rows = np.arange(len(moved))
figure, ax = plt.subplots(figsize=(7.4, 5.6))
ax.hlines(rows, y[moved], x[moved], color="0.7", zorder=0)
ax.plot(y[moved], rows, "o", label="reported")
ax.plot(x[moved], rows, "s", label="balanced")
ax.set_yticks(rows, labels)
ax.set_xscale("symlog", linthresh=1000)
ticks = [-1000, 0, 1000, 2000, 4000, 8000]
ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
ax.minorticks_off()
ax.invert_yaxis()
ax.set(xlabel="MW", title="What contradicts the others most")
figure.legend(loc="outside lower left", ncols=2)
plt.show()
