"""The measured tables of the leaves that together hold all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from blue_solvers.verification.claims import Claim
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import refines


@dataclass(frozen=True)
class PlacedTable:
    """A table of a layer, observed or claimed.

    Attributes
    ----------
    level : int
    table : Table
    place : slice
        Of its figures among all: the observed ones, then those that are claimed besides.
    holder : int
        Which of the tables that hold all others it is summed from.
    """

    level: int
    table: Table
    place: slice
    holder: int


@dataclass(frozen=True)
class Holders:
    """Observed tables of all leaves, measured everywhere, of which one holds every other table.

    Attributes
    ----------
    tables : tuple of Table
        None holds another; those that say most of what they share come first.
    places : tuple of slice
        Where they are among the observed cells.
    columns : tuple of slice
        Where their cells are in a row for each leaf.
    held : tuple of PlacedTable
        All tables of which there are figures, they themselves too.
    figures : int
    """

    tables: tuple[Table, ...]
    places: tuple[slice, ...]
    columns: tuple[slice, ...]
    held: tuple[PlacedTable, ...]
    figures: int

    @classmethod
    def of(cls, problem: Problem, x: Float, made: Sequence[Claim] = ()) -> Holders:
        """Of a problem with areas, for figures x of its observed cells and others.

        Raises
        ------
        NotCertifiedError
            If a table is held by none that was measured in all leaves; it is named.
        """
        schema, areas = problem.domain.schema, problem.domain.areas
        chosen = _chosen(problem)
        tables = tuple(problem.observed_tables[i] for i in chosen)
        blocks = [problem.observed.block(i) for i in range(len(problem.observed_tables))]
        observed = zip(problem.observed_levels, problem.observed_tables, blocks, strict=True)
        parts, start, spoken = [], problem.observed.size, _spoken_of(problem, x)
        for level, table, place in observed:
            if spoken[place].any():
                parts.append((level, table, place))
        for claim in made:
            parts.append((claim.level, claim.table, slice(start, start + claim.figures.size)))
            start += claim.figures.size
        held = []
        for level, table, place in parts:
            holder = next((i for i, own in enumerate(tables) if refines(schema, own, table)), None)
            if holder is None:
                raise NotCertifiedError(
                    "its counts are too many to list, and no table that was measured in all leaves holds "
                    f"{table.name!r} of {areas.levels[level]!r}"
                )
            held.append(PlacedTable(level, table, place, holder))
        bounds = np.cumsum([0, *(table.size for table in tables)]).tolist()
        columns = tuple(slice(a, b) for a, b in pairwise(bounds))
        return cls(tables, tuple(blocks[i] for i in chosen), columns, tuple(held), start)

    @property
    def width(self) -> int:
        """Cells of all of them, in each leaf."""
        return self.columns[-1].stop if self.columns else 0


def _spoken_of(problem: Problem, x: Float) -> Flags:
    """Observed cells of which measurements, x or equalities say anything."""
    spoken = ~(problem.unmeasured & np.isnan(x))
    if problem.equalities is not None:
        spoken |= abs(problem.equalities[0]).sum(axis=0) > 0
    return spoken


def _chosen(problem: Problem) -> list[int]:
    """The numbers of observed tables of all leaves that no other such table holds."""
    schema, areas = problem.domain.schema, problem.domain.areas
    candidates = [
        i
        for i, level in enumerate(problem.observed_levels)
        if areas.layer(areas.levels[level]).is_of_leaves and not problem.unmeasured[problem.observed.block(i)].any()
    ]
    tables, found = problem.observed_tables, list[int]()
    for i in candidates:
        others = [j for j in candidates if j != i and refines(schema, tables[j], tables[i])]
        if all(j > i and refines(schema, tables[i], tables[j]) for j in others):
            found.append(i)
    return sorted(found, key=lambda i: tables[i].size * float(problem.variances[problem.observed.block(i)].mean()))
