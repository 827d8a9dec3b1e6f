"""The best spine that the searches reach from several starts: the census block groups, and Algorithm 2's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from numpy.typing import ArrayLike

from blue_solvers.spine_design.block_functionals import BlockFunctionals
from blue_solvers.spine_design.bypasses import optimise_bypasses
from blue_solvers.spine_design.objective import Objective
from blue_solvers.spine_design.regrouping import OptimisedSpine, optimise_spine
from blue_solvers.spine_design.report import require_same_blocks
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.geography import Entities, Strategy
from constraint_builders.geography.spine_groups import FANOUT_CUTOFF, Variant


@dataclass(frozen=True)
class BestSpine:
    """The best spine found, and what the starts led to.

    Attributes
    ----------
    strategy : Strategy
        Regrouped and bypassed.
    start : str
        The start that led to it.
    variances : ndarray, (K,)
        Exact variance of every functional.
    objective : float
    starts, found : dict of str to float
        The objective of every start as it was given, and of the best spine found from it.
    groups : dict of str to OptimisedSpine
        Every start regrouped, before any bypass, with the bound for its groups.
    """

    strategy: Strategy
    start: str
    variances: Float
    objective: float
    starts: Mapping[str, float]
    found: Mapping[str, float]
    groups: Mapping[str, OptimisedSpine]


def best_spine(
    starts: Mapping[str, Strategy],
    schema: Schema,
    entities: Entities | BlockFunctionals,
    objective: Objective = "mean",
    *,
    weights: ArrayLike | None = None,
    level: str = "Block_Group",
    fanout_cutoff: int = FANOUT_CUTOFF,
    variant: Variant = "paper",
) -> BestSpine:
    """Regroup and bypass from several starts, and keep the best; it is never worse than any start.

    From every start the geounits are regrouped by `optimise_spine`, and `optimise_bypasses` chooses what to bypass on
    the new groups and, separately, on those of the start.

    Parameters
    ----------
    starts : mapping of str to Strategy
        By name, not bypassed, of the same blocks in the same order; at least one.
    schema, entities, objective, weights, level, fanout_cutoff, variant
        As for `optimise_spine`.

    Returns
    -------
    BestSpine

    Raises
    ------
    ValueError
        If there is no start, their blocks differ, or for what the two searches refuse.
    """
    if not starts:
        raise ValueError("there is no start: give at least one strategy by its name")
    require_same_blocks(starts)
    groups, bypassed = {}, {}
    for name, start in starts.items():
        groups[name] = optimise_spine(
            start, schema, entities, objective,
            weights=weights, level=level, fanout_cutoff=fanout_cutoff, variant=variant,
        )  # fmt: skip
        strategies = (groups[name].strategy, start) if groups[name].changes else (start,)
        candidates = [
            optimise_bypasses(strategy, schema, entities, objective, weights=weights) for strategy in strategies
        ]
        bypassed[name] = min(candidates, key=lambda candidate: candidate.objective)
    best = min(bypassed, key=lambda name: bypassed[name].objective)
    own = bypassed[best]
    return BestSpine(
        own.strategy,
        best,
        own.variances,
        own.objective,
        {name: regrouped.start for name, regrouped in groups.items()},
        {name: found.objective for name, found in bypassed.items()},
        groups,
    )
