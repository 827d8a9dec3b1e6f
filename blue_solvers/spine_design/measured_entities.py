"""What measuring off-spine entities themselves would give, before any noise is drawn.

Entities enter as a layer of areas that cross the spine. What is spent on them is taken from all geounits alike, so that
everything together costs no more than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from blue_solvers.contract import Solver
from blue_solvers.operator import blue
from blue_solvers.solvers import SolverName
from constraint_builders import Areas
from constraint_builders.arrays import Float
from constraint_builders.budget import split
from constraint_builders.description.reals import Rational, exact_number, in_digits
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import parse_table
from constraint_builders.geography import Entities, Strategy, leaves
from constraint_builders.geography.entities import check_blocks
from constraint_builders.problem import Problem

LAYER = "off-spine entity"
LEAST_SHARE = Fraction(1, 10**12)  # below it rounding would decide what measuring with it gives


@dataclass(frozen=True)
class MeasuredEntities:
    """A strategy on a spine, and entities that are measured beside its geounits.

    Attributes
    ----------
    strategy : Strategy
        With what is left for the geounits.
    entities : Entities
    share : Fraction
        Of the budget, for every entity.
    query_shares : mapping of str to Fraction
        Share of every table within an entity.
    """

    strategy: Strategy
    entities: Entities
    share: Fraction
    query_shares: Mapping[str, Fraction]

    @property
    def loss(self) -> Fraction:
        """The privacy loss of releasing every measurement, exact, at most: that of the worst path and block."""
        spent = self.share * sum(self.query_shares.values(), Fraction(0))
        return self.strategy.loss + self.strategy.total * spent * _most(self.entities)

    def problem(self, schema: Schema, table: str = "total") -> Problem:
        """The estimation problem, desiring a table of every entity."""
        spine = self.strategy.spine
        areas = Areas.from_spine(spine).with_layer(LAYER, self.entities.contains, names=self.entities.names)
        tables = {name: self.strategy.variance(self.share * alpha) for name, alpha in self.query_shares.items()}
        observed = {**self.strategy.observed(), LAYER: tables}
        return Problem(schema, observed, {LAYER: [table]}, areas=areas, noise=self.strategy.noise)

    def variances(self, schema: Schema, table: str = "total", solver: SolverName | Solver = "auto") -> Float:
        """Exact variance of every cell of a table for every entity, (K, *table's shape), in squared counts.

        Parameters
        ----------
        schema : Schema
        table : str
        solver : str or Solver
            As for `blue`.

        Raises
        ------
        ValueError
            If the table cannot be estimated from what is measured.
        """
        found = blue(self.problem(schema, table), solver).variances()
        return found.reshape(self.entities.size, *parse_table(schema, table).shape)


def measuring_entities(
    strategy: Strategy, entities: Entities, share: Rational, query_shares: Mapping[str, Rational] | None = None
) -> MeasuredEntities:
    """The same strategy, were off-spine entities measured too, for no greater privacy loss.

    Parameters
    ----------
    strategy : Strategy
    entities : Entities
        Of the blocks of its spine.
    share : Fraction, int or str
        Of the budget, for every entity. A block pays for each that it lies in; so much as the block in most of them
        pays is taken from all geounits, in proportion to their shares.
    query_shares : mapping of str to share, optional
        Of the tables within an entity; they sum to 1. By default all for the total.

    Returns
    -------
    MeasuredEntities

    Raises
    ------
    ValueError
        If the entities are of another number of blocks, the share is below `LEAST_SHARE`, or nothing would be left for
        the geounits.
    """
    check_blocks(leaves(strategy.spine).size, entities.blocks)
    tables = split(1, query_shares or {"total": 1}, "tables of entities")
    most, own = _most(entities), exact_number(share, "the share of entities")
    left = 1 - own * most
    if not (own > 0 and left > 0):
        raise ValueError(
            f"entities get a share of {in_digits(own)} each, and a block may lie in {most} of them: give a positive "
            f"share below {Fraction(1, most)}"
        )
    if own < LEAST_SHARE:
        raise ValueError(
            f"entities get a share of {in_digits(own)} each, whose noise would tell nothing beside that of the "
            f"geounits: give {in_digits(LEAST_SHARE)} or more"
        )
    less = replace(strategy, shares=tuple(left * before for before in strategy.shares))
    return MeasuredEntities(less, entities, own, tables)


def _most(entities: Entities) -> int:
    """Of how many entities the block in most of them is."""
    return int(np.asarray(entities.contains.sum(axis=0)).max(initial=0))
