"""My published tables contradict one another: how do I make them agree?
========================================================================

Every table of the admissions to Berkeley in 1973 is published with its own noise, of standard deviation 15.
The number of applicants to a department can then be read in four places, and is different in each.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import estimate
from blue_solvers.pictures import dots_and_intervals
from constraint_builders import gallery
from noise_mechanisms import add_noise

plt.style.use("blue_solvers.pictures.clear")

problem = gallery.berkeley(variance=15.0**2)
y = add_noise(problem, problem.truth, rng=4)  # simulation only: yours is problem.vector({"total": ..., ...})
est = estimate(problem, y)

# %%
# Four ways to count the applicants to each department, with their 95 % intervals: as published, and by adding
# up the cells of three larger tables. One estimate is behind them all, so that afterwards there is nothing to
# choose between.

noisy, agreed = problem.observed.tables(y), est.tables
ways = {
    "its own table": ("department", ()),
    "sum over sexes": ("sex * department", (0,)),
    "sum over outcomes": ("admitted * department", (0,)),
    "sum over both": ("detailed", (0, 1)),
}
readings = {}
for way, (table, axes) in ways.items():
    centre = noisy[table].sum(axes)
    half_width = 1.96 * 15 * np.sqrt(noisy[table].size / centre.size)
    readings[way] = (centre, centre - half_width, centre + half_width)

departments = list("ABCDEF")
place = problem.desired.slice("department")
lower, upper = (bound[place] for bound in est.interval(0.95))
truth = problem.desired.tables(problem.truth)["department"]

figure, (before, after) = plt.subplots(1, 2, sharex=True, sharey=True, figsize=(5.4, 5.2))  # read on a phone too
dots_and_intervals(before, departments, readings, truth)
after.set_prop_cycle(color=["#222222"])
dots_and_intervals(after, departments, {"best linear unbiased estimate": (agreed["department"], lower, upper)}, truth)
before.set(title="Published: 4 answers", xlabel="applicants", ylabel="department", xticks=[500, 750, 1000])
after.set(title="Estimated: one", xlabel="applicants")
figure.legend(*before.get_legend_handles_labels(), ncols=2, loc="outside lower left", markerscale=0.6)
plt.show()

# %%
# The estimate is exact, and so is its standard error; both are proved without the solver that made them.

print(f"largest disagreement: {abs(problem.constraint_matrix() @ y).max():.0f} before, {est.info.violation:.0e} after")
print(est.certificate())

# sphinx_gallery_thumbnail_number = 1
