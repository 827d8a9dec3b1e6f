"""Tables that the nearest structured problem does without, since their recodes would couple too many cells.

The structured estimate is then that of the tables that it keeps. All else follows from these by sums: the cells of the
tables left out, whose measurements still count in the iterations, and the desired tables.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.some_tables import of_tables


def _as_it_is(X: Float) -> Float:
    return X


@dataclass(frozen=True)
class KeptTables:
    """Which observed tables the structured problem has, and how the others follow from them.

    Attributes
    ----------
    kept : Problem
        The tables that it has, observed; desired are these too, or, where nothing is left out, what was.
    desired : Problem
        From the kept tables to the desired ones; `kept` itself where nothing is left out.
    cells : ndarray of int
        The cells of the kept tables in the observed layout.
    names : tuple
        Of the tables left out.
    spread, gather : callable
        All observed cells, (n, K), from consistent values of the kept ones; the transpose.
    """

    kept: Problem
    desired: Problem
    cells: Index
    names: tuple = ()
    spread: Callable[[Float], Float] = _as_it_is
    gather: Callable[[Float], Float] = _as_it_is


def kept_tables(problem: Problem, known: Index, suits: Callable[[Problem], bool]) -> KeptTables | None:
    """Leave out tables with recodes, the largest first, until what is left suits; those that need not be come back.

    A large table sums few cells of what is kept into each of its own, so that its measurements change the iterations
    least; small ones would change few directions much.

    Parameters
    ----------
    problem : Problem
        The structured one with all tables; see `nearest_structured`.
    known : ndarray of int
        Observed cells that count as exact whatever their variance: their tables are kept.
    suits : callable
        Whether a problem can be solved exactly at little cost.

    Returns
    -------
    KeptTables or None
        None if leaving out does not help.
    """
    tables, small = list(range(len(problem.observed_tables))), lambda i: problem.observed_tables[i].size
    kept = tables
    for index in sorted(_candidates(problem, known), key=small, reverse=True):
        if _suffice(problem, fewer := [i for i in kept if i != index]):
            kept = fewer
    if not suits(of_tables(problem, kept, kept)):
        return None
    for index in sorted(set(tables) - set(kept), key=small):
        if suits(of_tables(problem, more := sorted([*kept, index]), more)):
            kept = more
    everything = of_tables(problem, kept, tables)
    return KeptTables(
        of_tables(problem, kept, kept),
        of_tables(problem, kept),
        problem.observed.cells(kept),
        tuple(problem.observed.names[i] for i in tables if i not in kept),
        everything.tabulate,
        everything.tabulate_transpose,
    )


def _candidates(problem: Problem, known: Index) -> list[int]:
    """Tables with recodes in which nothing is exact."""
    exact = problem.exact.copy()
    exact[known] = True
    plain = set(problem.domain.schema.names)
    recoded = [i for i, table in enumerate(problem.observed_tables) if not plain.issuperset(table.factors)]
    return [i for i in recoded if not exact[problem.observed.block(i)].any()]


def _suffice(problem: Problem, kept: list[int]) -> bool:
    """Whether the other tables and the desired ones follow from some, and no equality speaks of others."""
    with suppress(ValueError):
        of_tables(problem, kept, range(len(problem.observed_tables)))
        of_tables(problem, kept)
        return True
    return False
