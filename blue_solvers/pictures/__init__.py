"""Pictures for people: intervals, quantiles, hierarchies and maps, drawn with matplotlib (extra ``plots``).

Every function draws on the Axes that it is given and returns it. The style of the documentation, in colours that the
colour-blind tell apart, legible on light and dark grounds, is ``plt.style.use("blue_solvers.pictures.clear")``.
"""

from blue_solvers.pictures.dot_intervals import dots_and_intervals
from blue_solvers.pictures.hierarchy_drawing import hierarchy
from blue_solvers.pictures.quantile_plot import normal_quantiles
from blue_solvers.pictures.region_map import region_map

__all__ = ["dots_and_intervals", "hierarchy", "normal_quantiles", "region_map"]
