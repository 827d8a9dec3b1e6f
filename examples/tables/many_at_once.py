"""May I quote several figures at once?
=======================================

Of ninety-five per cent intervals, one in twenty misses. Whoever quotes a whole table wants all of them right
together: a simultaneous band is as wide as that takes, and no wider, because it knows how the estimates are
correlated.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import blue, cell_weights, functionals, simultaneous_band
from blue_solvers.pictures import dots_and_intervals
from constraint_builders import gallery
from noise_mechanisms import add_noise

plt.style.use("blue_solvers.pictures.clear")

problem = gallery.berkeley(variance=10.0**2)
P = blue(problem)
y = add_noise(problem, problem.truth, rng=3)
place = problem.desired.slice("admitted * department")
W = cell_weights(problem, range(place.start, place.stop))

found = functionals(P, y, W)
band = simultaneous_band(P, y, W, confidence_level=0.95, rng=1)
each = found.estimate - 1.96 * found.std_errors, found.estimate + 1.96 * found.std_errors

labels = [f"{outcome}, {department}" for outcome in ("admitted", "rejected") for department in "ABCDEF"]
figure, ax = plt.subplots(figsize=(7.2, 5.2))
readings = {"each by itself": (found.estimate, *each), "all at once": (found.estimate, *band)}
dots_and_intervals(ax, labels, readings, problem.truth[place])
wider = np.mean((band[1] - band[0]) / (each[1] - each[0]))
ax.set(xlabel="applicants", title=f"All twelve at once take {wider:.2f} times the width")
ax.legend()
plt.show()
