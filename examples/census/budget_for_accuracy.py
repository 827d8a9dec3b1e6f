"""What is the least budget for the accuracy that I need?
=========================================================

Turn the question round: say how precise chosen figures must be, and find the cheapest way to spend a budget
over geographic levels and tables, with a proof of how far from the best it can be.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Problem, Schema, Spine, allocate_budget, blue

plt.style.use("blue_solvers.pictures.clear")

schema = Schema({"sex": 2, "votingage": 2})
geoids = [f"44{county}{tract}{block}" for county in "13" for tract in "1234" for block in range(6)]
spine = Spine.from_geoids(geoids, {"State": 2, "County": 3, "Tract": 4, "Block": 5})
tables = {level: ["total", "detailed"] for level in spine.levels}
desired = {"County": ["votingage"], "Block": ["total"]}

# %%
# Wanted: adults and minors of every county to within a standard error of 3, the people of every block to within
# 5.

wanted = Problem(schema, {level: dict.fromkeys(names, 1.0) for level, names in tables.items()}, desired, spine=spine)
counties = wanted.desired.slice(("County", "votingage"))
targets = np.full(wanted.desired.size, 5.0**2)
targets[counties] = 3.0**2
best = allocate_budget(schema, spine, tables, desired, np.eye(wanted.desired.size), targets)

# %%
# The same accuracy by spending alike on everything: noise of variance 1 costs rho = 1 a table, and variances
# are in inverse proportion to it.

alike = (blue(wanted).variances() / targets).max()
total = alike * len(best.losses)
print(
    f"rho {best.total:.3f}, at most {best.total / best.bound - 1:.1%} above the least, proved; spent alike {total:.3f}"
)

names = [f"{level.lower()}: {table}" for level, table in best.losses]
figure, ax = plt.subplots(figsize=(7.2, 4))
rows = np.arange(len(names))
ax.barh(rows, list(best.losses.values()), color="C0", height=0.6, label=f"cheapest plan, rho {best.total:.2f}")
ax.plot(np.full(len(names), alike), rows, "s", color="C1", label=f"alike, rho {total:.2f}")
ax.set_yticks(rows, names)
ax.invert_yaxis()
ax.set(
    xlabel="privacy loss rho spent on the table", title=f"The same accuracy for {best.total / total:.0%} of the budget"
)
ax.legend()
plt.show()
