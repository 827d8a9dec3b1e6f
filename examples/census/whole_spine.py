"""Where in the hierarchy am I sure of what?
============================================

Every geounit is measured once, but estimated from all measurements: what a county's estimate gains depends on
what its tracts say, and a tract's on its siblings. A county without measurements of its own is estimated all
the same.
"""

import matplotlib.pyplot as plt
import numpy as np

from blue_solvers import Problem, Schema, Spine, blue
from blue_solvers.pictures import hierarchy

plt.style.use("blue_solvers.pictures.clear")

tracts = {"001": 3, "003": 6, "005": 2, "007": 5}
geoids = [
    f"44{county}{tract}{block}" for county, count in tracts.items() for tract in range(count) for block in range(3)
]
spine = Spine.from_geoids(geoids, {"State": 2, "County": 5, "Tract": 6, "Block": 7})
county_variances = np.array([4.0, 4.0, np.inf, 4.0])  # the third was not measured
observed = {
    "State": {"total": 1.0},
    "County": {"total": county_variances},
    "Tract": {"total": 9.0},
    "Block": {"total": 9.0},
}
P = blue(Problem(Schema({"person": 1}), observed, spine=spine))
errors = np.sqrt(P.variances())  # geounits level by level, as the spine has them

figure, ax = plt.subplots(figsize=(8.6, 4))
hierarchy(ax, spine, errors, "standard error of the total")
ax.set_title("A county that nobody measured is known from its tracts")
plt.show()
