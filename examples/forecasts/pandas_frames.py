"""My forecasts are a pandas frame: must I mind the order of its rows?
======================================================================

No: a frame whose index names the nodes is laid out by it. A label that is missing or unknown is refused by
name, rather than a number put in the wrong place.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from blue_solvers import Problem, estimate
from blue_solvers.pictures import dots_and_intervals

plt.style.use("blue_solvers.pictures.clear")

nodes = ["all", "north", "south", "north, web", "north, shop", "south, web", "south, shop"]
leaves = nodes[3:]
S = pd.DataFrame(0, index=nodes, columns=leaves)
S.loc["all"] = 1
for leaf in leaves:
    S.loc[[leaf, leaf.split(",")[0]], leaf] = 1

# %%
# Forecasts and variances come in any order.

forecast = pd.Series(
    {"south, web": 31.0, "south, shop": 18, "north, web": 41, "north, shop": 23, "south": 57, "north": 60, "all": 125}
)
variance = pd.Series({"all": 25.0, "north": 9, "south": 9} | dict.fromkeys(leaves, 16.0))
est = estimate(Problem.from_summing_matrix(S, variance), forecast)
lower, upper = est.interval(0.9)

figure, ax = plt.subplots(figsize=(7.2, 4))
given, error = forecast[nodes].to_numpy(), 1.645 * np.sqrt(variance[nodes].to_numpy())
readings = {"forecast": (given, given - error, given + error), "reconciled": (est.values, lower, upper)}
dots_and_intervals(ax, nodes, readings)
ax.set(xlabel="sales, with intervals of 90 %", title="Every node moves to where all agree")
ax.legend()
plt.show()
