"""A problem of some of its observed tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scipy import sparse

from constraint_builders.estimability import refuse_unestimable
from constraint_builders.problem import Problem
from constraint_builders.record import NOTHING_ASSUMED


def of_tables(problem: Problem, kept: Sequence[int], wanted: Sequence[int] | None = None) -> Problem:
    """The same problem with some of the observed tables only.

    Parameters
    ----------
    problem : Problem
    kept : sequence of int
        Positions of the tables that count as observed. Equalities may speak of no other.
    wanted : sequence of int, optional
        Positions of the observed tables that are desired; None leaves the desired tables as they are.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError
        If noise is correlated, an equality speaks of another table, or a desired table is not estimable.
    """
    if problem.covariance is not None:
        raise ValueError("the noise is correlated: it belongs to all tables together")
    cells = problem.observed.cells(kept)
    changes: dict[str, Any] = {**NOTHING_ASSUMED, "noise": problem.noise.at(cells), "truth": None, "sources": None}
    if problem.equalities is not None:
        E, b = problem.equalities
        changes["equalities"] = sparse.csr_array(E[:, cells]), b
        if changes["equalities"][0].nnz < E.nnz:
            raise ValueError("an equality speaks of a table that is left out")
    if wanted is not None:
        changes |= _tables(problem, "desired", wanted)
    smaller = problem.replace(**changes, **_tables(problem, "observed", kept))
    refuse_unestimable(smaller)
    return smaller


def _tables(problem: Problem, what: str, chosen: Sequence[int]) -> dict[str, Any]:
    """Some of the observed tables, as fields of what is observed or desired."""
    levels = tuple(problem.observed_levels[i] for i in chosen)
    tables = tuple(problem.observed_tables[i] for i in chosen)
    return {what: problem.observed.chosen(chosen), f"{what}_tables": tables, f"{what}_levels": levels}
