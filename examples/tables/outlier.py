"""Which cell is the outlier?
=============================

Somebody typed 371 for 317: two digits of one cell of one table changed places. Tables that overlap check one
another, and the cell that none of the others believes is the one.
"""

import matplotlib.pyplot as plt

from blue_solvers import fit_test
from blue_solvers.pictures import normal_quantiles
from constraint_builders import gallery, measurements_frame
from noise_mechanisms import add_noise

plt.style.use("blue_solvers.pictures.clear")

problem = gallery.berkeley(variance=9.0)
y = add_noise(problem, problem.truth, rng=2)
cell = problem.observed.slice("detailed").stop - 1  # rejected women, department F
y[cell] += 371 - 317

fit = fit_test(problem, y)
print(f"chi-square {fit.statistic:.0f} with {fit.degrees_of_freedom} degrees of freedom: p = {fit.p_value:.1e}")
for outlier in fit.outliers(3):
    print(f"{outlier.table} {outlier.labels}: measured {outlier.value:.0f}, expected {outlier.expected:.0f}")

# %%
# Residuals of sound measurements lie in the band. The wrong cell is far outside; those around it are drawn
# along by it.

cells = measurements_frame(problem, y).select(problem.schema.names).rows()
names = [", ".join(level for level in cell if level != "*") for cell in cells]
figure, ax = plt.subplots()
normal_quantiles(ax, fit.residuals, names, named=2)
ax.set_title("One cell disagrees with all that overlap it")
ax.legend(loc="upper left")
plt.show()
