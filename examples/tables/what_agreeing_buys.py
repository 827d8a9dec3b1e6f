"""How much more precise does agreement make my tables?
=======================================================

The variance of every estimate is known before any data are: it is a matter of which tables were measured, and
how well.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import blue
from constraint_builders import gallery

plt.style.use("blue_solvers.pictures.clear")

problem = gallery.pl94()  # redistricting data of a county, with the noise of 2020
P = blue(problem)
variances = problem.desired.tables(P.variances())
measured = dict(zip(problem.observed.names, [v.flat[0] for v in problem.observed.tables(problem.variances).values()]))

# %%
# Some tables were measured, with the noise on the left. Others were only wanted: the estimate makes them from
# the tables that contain them.

names = sorted(variances, key=lambda name: variances[name].mean())
errors = [np.sqrt(variances[name].mean()) for name in names]
noise = [np.sqrt(measured.get(name, np.nan)) for name in names]

figure, ax = plt.subplots(figsize=(7.6, 5.4))
rows = np.arange(len(names))
ax.hlines(rows, errors, np.where(np.isfinite(noise), noise, errors), color="0.6", linewidth=1)
ax.plot(noise, rows, "s", color="C1", label="noise of the table as published")
ax.plot(errors, rows, "o", color="C0", label="estimate")
ax.set_yticks(rows, names)
ax.set(xscale="log", xlabel="standard error of a cell", title="No table loses; those between total and detail gain")
ax.set_xticks([2, 5, 10, 20, 40], [2, 5, 10, 20, 40])
ax.minorticks_off()
ax.legend(loc="lower right")
plt.show()
