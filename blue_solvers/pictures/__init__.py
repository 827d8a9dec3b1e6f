"""Pictures for people: intervals, quantiles, hierarchies and maps, drawn with matplotlib (extra ``plots``).

Every function draws on the Axes that it is given and returns it. The style of the documentation, in colours that the
colour-blind tell apart, legible on light and dark grounds, is ``plt.style.use("blue_solvers.pictures.clear")``.
"""

from blue_solvers.pictures.region_map import region_map as region_map  # at once: its module has its name
from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)
