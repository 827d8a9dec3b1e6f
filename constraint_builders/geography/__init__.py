"""Building spines: the algorithms of the 2020 Disclosure Avoidance System.

References
----------
Cumings-Menon, Abowd, Ashmead, Kifer, Leclerc, Ocker, Ratcliffe and Zhuravlev, "Geographic Spines in the 2020 Census
Disclosure Avoidance System": "the paper" in this package.
"""

from constraint_builders.geography.bypass import (
    Advice,
    bypass,
    bypass_chosen,
    bypassing_improves,
    fewest_children,
    nodes_to_bypass,
)
from constraint_builders.geography.entities import Entities, from_partitions, leaves, partitions
from constraint_builders.geography.geoids import Geoids, by_tabulation
from constraint_builders.geography.off_spine import NotComposableError, OsedSummary, compositions, osed, summarise_osed
from constraint_builders.geography.presets import aian_spine, on_spine_areas
from constraint_builders.geography.spine_groups import group_tracts, most_members, regroup_blocks
from constraint_builders.geography.strategy import Strategy

__all__ = [
    "Advice",
    "Entities",
    "Geoids",
    "NotComposableError",
    "OsedSummary",
    "Strategy",
    "aian_spine",
    "by_tabulation",
    "bypass",
    "bypass_chosen",
    "bypassing_improves",
    "compositions",
    "fewest_children",
    "from_partitions",
    "group_tracts",
    "leaves",
    "most_members",
    "nodes_to_bypass",
    "on_spine_areas",
    "osed",
    "partitions",
    "regroup_blocks",
    "summarise_osed",
]
