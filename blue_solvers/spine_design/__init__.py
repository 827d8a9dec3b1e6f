"""Which spine, and which budget on it, makes what is wanted most precise.

References
----------
Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System": "the paper" in this package.
"""

from blue_solvers.spine_design.allocation import allocate_budget
from blue_solvers.spine_design.block_functionals import BlockFunctionals
from blue_solvers.spine_design.bypasses import optimise_bypasses
from blue_solvers.spine_design.measured_entities import MeasuredEntities, measuring_entities
from blue_solvers.spine_design.regrouping import OptimisedSpine, optimise_spine
from blue_solvers.spine_design.report import compare_spines, entity_variances, entity_workload
from blue_solvers.spine_design.starts import BestSpine, best_spine

__all__ = [
    "BestSpine",
    "BlockFunctionals",
    "MeasuredEntities",
    "OptimisedSpine",
    "allocate_budget",
    "best_spine",
    "compare_spines",
    "entity_variances",
    "entity_workload",
    "measuring_entities",
    "optimise_bypasses",
    "optimise_spine",
]
