"""Building spines: the algorithms of the 2020 Disclosure Avoidance System.

References
----------
Cumings-Menon, Abowd, Ashmead, Kifer, Leclerc, Ocker, Ratcliffe and Zhuravlev, "Geographic Spines in the 2020 Census
Disclosure Avoidance System": "the paper" in this package.
"""

from constraint_builders.geography.bypass import bypass as bypass  # at once: its module has its name
from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)
