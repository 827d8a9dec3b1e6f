"""My tables are in a file: what do I do?
=========================================

One row per published cell, in a CSV file, with how precise it is. This one is as such files come: margins of
error of 90 %, thousands with commas, three tables of different precision, and a cell that was suppressed.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from blue_solvers import estimate, read_tables
from blue_solvers.pictures import dots_and_intervals

plt.style.use("blue_solvers.pictures.clear")

published = """\
table,sex,region,estimate,moe_90
sex,female,*,"10,480",150
sex,male,*,"9,870",150
sex * region,female,north,"6,510",400
sex * region,female,south,"4,350",400
sex * region,male,north,"5,870",400
sex * region,male,south,,inf
region,*,north,"12,310",200
region,*,south,"8,030",200
"""
path = Path(tempfile.mkdtemp()) / "published.csv"
path.write_text(published)

# %%
# Two lines of Python. The command does the same: ``blue-solvers estimate published.csv --out estimates.csv``.

problem, y = read_tables(path)
est = estimate(problem, y)
print(est.to_frame(confidence_level=0.9))

# %%
# The suppressed cell has an estimate too, since the others determine it.

place = problem.desired.slice("sex * region")
labels = ["female, north", "female, south", "male, north", "male, south: suppressed"]
lower, upper = (bound[place] for bound in est.interval(0.9))
margin = 1.645 * problem.variances[place] ** 0.5
margin[-1], y[place][-1] = 0, float("nan")

figure, ax = plt.subplots(figsize=(7.2, 3.4))
readings = {
    "published": (y[place], y[place] - margin, y[place] + margin),
    "estimate": (est.values[place], lower, upper),
}
dots_and_intervals(ax, labels, readings)
ax.set(xlabel="people, with margins of error of 90 %", title="What was suppressed is estimated; the rest is sharper")
ax.legend()
plt.show()
