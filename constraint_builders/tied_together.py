"""What ties the numbers of a problem together, in one line: equations, places, sources, totals, and what is loose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from constraint_builders.arrays import Index
from constraint_builders.description.areas import Areas, Places
from constraint_builders.description.source_values import Understood
from constraint_builders.printable import counted
from constraint_builders.problem import Problem
from constraint_builders.relations.equations import TableRelations

MOST_ELIMINATED = 20_000  # cells up to which equations are counted by eliminating those that were not measured
MOST_NAMED = 3  # tables, sources or labels
NOTHING = "NOTHING TIES THESE NUMBERS TOGETHER: 0 equations, so that nothing checks any of them"


@dataclass(frozen=True)
class TiedTogether:
    """What ties numbers together; as text it is one line.

    Attributes
    ----------
    equations : int or None
        Independent equations between measured cells, or degrees of freedom; None where nobody counted them.
    tables : int
        That were measured.
    repeated : int
        Measurements of cells that another source had measured already.
    places : str
        The geography, empty without one.
    unchecked : tuple of str
        Tables with cells that nothing checks, such as ``"2 of 6 cells of table 'age'"``.
    understood : Understood
    """

    equations: int | None
    tables: int
    repeated: int = 0
    places: str = ""
    unchecked: tuple[str, ...] = ()
    understood: Understood = field(default_factory=Understood)

    @property
    def is_loose(self) -> bool:
        """Whether nothing ties them together."""
        return self.equations == 0 and not self.repeated

    def __str__(self) -> str:
        return "; ".join([self._equations(), *filter(None, (self.places, *self._said()))])

    def _equations(self) -> str:
        if self.is_loose:
            return NOTHING
        tables = counted(self.tables, "table")
        if self.equations is None:
            return f"{tables}, whose equations were not counted"
        said = f"{counted(self.equations, 'equation')} between {tables}"
        return said + (f" and {counted(self.repeated, 'repeated measurement')}" if self.repeated else "")

    def _said(self) -> list[str]:
        known = self.understood
        lists = (
            ("sources", list(map(repr, known.sources))),
            ("taken for totals", known.totals),
            ("left out", known.left_out),
            ("nothing checks", () if self.is_loose else self.unchecked),
        )
        return [f"{what} {_first(own)}" for what, own in lists if own] + list(known.notes)


def tied_together(problem: Problem) -> TiedTogether:
    """What ties the numbers of a problem together.

    Those of large problems over areas, or with zeros, equalities or tables that were measured in part, are not counted:
    that may take longer than the estimate.
    """
    closed = problem.areas is None and problem.relations.is_structural
    counted = closed or problem.observed.size <= MOST_ELIMINATED
    often = None if problem.sources is None else np.bincount(problem.sources.cell, minlength=problem.observed.size)
    loose = _loose_by_table(problem, often) if counted else []
    return TiedTogether(
        problem.rank if counted else None,
        int(problem.measured_tables.sum()) if problem.is_tabular else 1,
        0 if often is None else int(np.maximum(often - 1, 0).sum()),
        places=_places(problem),
        unchecked=tuple(
            said_of_cells(own, of, f"table {name!r}")
            for name, (own, of) in zip(problem.observed.names, loose, strict=counted)
            if own
        ),
        understood=problem.understood,
    )


def _loose_by_table(problem: Problem, often: Index | None) -> list[tuple[int, int]]:
    """For every table how many of its noisy cells nothing checks, and how many are noisy.

    `often` says how many sources measured every cell, (n,).
    """
    relations, by_place = problem.relations, problem.geounit_variances
    if often is None and by_place is not None and isinstance(relations, TableRelations) and relations.is_structural:
        found = []
        places = zip(by_place, relations.structure.tied_places(), problem.observed_tables, strict=True)
        for variances, tied, table in places:
            noisy = (variances > 0) & np.isfinite(variances)
            found.append((table.size * int((noisy & ~tied).sum()), table.size * int(noisy.sum())))
        return found
    noisy, tied = ~problem.exact & ~problem.unmeasured, relations.tied
    loose = noisy & ~(tied if often is None else tied | (often > 1))
    counts = (np.add.reduceat(own.astype(np.int64), problem.observed.offsets[:-1]).tolist() for own in (loose, noisy))
    return list(zip(*counts, strict=True))


def _places(problem: Problem) -> str:
    if problem.understood.places:
        return f"{'spine' if problem.areas is None else 'areas'} {problem.understood.places}"
    return "" if problem.places is None else said_of_places(problem.places)


def said_of_cells(number: int, of: int, table: str) -> str:
    """How many cells of a table are meant."""
    return table if number == of else f"{number:,} of {counted(of, 'cell')} of {table}"


def said_of_places(places: Places) -> str:
    """Levels of a geography from above, with their sizes."""
    kind, between = ("areas", ", ") if isinstance(places, Areas) else ("spine", " > ")
    levels = zip(places.levels, places.members, strict=True)
    return f"{kind} {between.join(f'{members.size:,} {level}' for level, members in levels)}"


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
