"""The nearest problem that is solved in closed form or in two passes: one variance for every table of every geounit.

At one place it is the geometric mean of the table's noisy cells: with variances that are uniform or log-uniform in
ratio 100 the preconditioned iterations take as many steps as around the best average, within a fifth. Of two sizes the
mean variance takes fewer where a twentieth of the cells are known well, 0.4 to 0.8 times in ratio 10,000, and more
where as few are known badly, 1.1 to 5 times.

Over a spine it is the geometric mid-range, sqrt(least * greatest), which makes the largest ratio of precisions to the
structured ones, over the least, equal to the largest ratio of variances within a table: around the geometric mean Rhode
Island takes 1.7 to 2.2 times the steps in ratio 100, around the mean variance 1.4 to 2.

Of correlated noise the variances count, the diagonal of Sigma. That of its inverse, the variances of every cell's noise
given all the others', takes as many iterations within a tenth: equicorrelated, autoregressive and random blocks within
the tables of 4^4, correlations up to 0.9.

Cells that are known exactly in a table that is not become equalities, x = y there: each costs one covariance column,
and a product with it in every estimate.

Where recodes would couple too many cells it does without some tables. The structured estimate is then that of the
tables that it keeps. All else follows from these by sums: the cells of the tables left out, whose measurements still
count in the iterations, and the desired tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components import Components
from blue_solvers.components.assumptions import flat_refusal, group_count, tree_refusal
from blue_solvers.components.conditioning import conditioned
from blue_solvers.contract import Refusal
from blue_solvers.crossing_areas.alike_leaves import exact_form_of_areas
from blue_solvers.crossing_areas.area_form import areas_refusal
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.some_tables import of_tables

FEW_GROUPS = 300  # of recodes, whose matrices then cost less than the iterations
MOST_EXACT_CELLS = 500  # in tables that are not wholly exact: their products make an estimate take five times as long
MOST_EXACT_ENTRIES = 30_000_000  # of their covariance columns, held half a dozen times while they are worked out
Number = TypeVar("Number", bound=np.generic)
OTHERWISE = "use preconditioner='jacobi' or solver='cholesky'"


def nearest_structured(problem: Problem) -> Problem:
    """The same problem with an average of the variances of every table in every geounit; see the module.

    Parameters
    ----------
    problem : Problem
        With tables; see `why_no_structure`.

    Returns
    -------
    Problem
        Tables measured in part count as measured whole, and tables known exactly in part as not exact.
    """
    variances = problem.variances.copy()
    for cells in _by_geounit(problem, variances):
        noisy = (cells > 0) & np.isfinite(cells)
        mixed = noisy.any(axis=1)
        logarithms, noisy = np.log(np.where(noisy, cells, 1.0)[mixed]), noisy[mixed]
        if not problem.is_placed:
            one = logarithms.sum(axis=1) / noisy.sum(axis=1)
        else:
            least, greatest = np.where(noisy, logarithms, np.inf), np.where(noisy, logarithms, -np.inf)
            one = (least.min(axis=1) + greatest.max(axis=1)) / 2
        cells[mixed] = np.exp(one)[:, None]
        cells[~mixed & (cells == 0).any(axis=1) & (cells > 0).any(axis=1)] = 1.0  # exact or not measured: any will do
    return problem.with_variances(variances)


def exact_in_part(problem: Problem) -> Index:
    """Observed cells that are known exactly where their table, in their geounit, is not."""
    found = problem.exact.copy()
    for own in _by_geounit(problem, found):
        own[own.all(axis=1)] = False
    return np.flatnonzero(found)


def variance_ratio(problem: Problem) -> float:
    """Largest ratio of the variances within a table of a geounit, which bounds the iterations; infinite if unbounded.

    Parameters
    ----------
    problem : Problem
        With tables and uncorrelated noise.

    Returns
    -------
    float
        At least 1; infinite where a table was measured in part. Cells known exactly do not count.
    """
    largest = 1.0
    for cells in _by_geounit(problem, problem.variances):
        least, greatest = np.where(cells > 0, cells, np.inf).min(axis=1), cells.max(axis=1)
        noisy = (greatest > 0) & np.isfinite(least)
        largest = max(largest, float((greatest[noisy] / least[noisy]).max(initial=1.0)))
    return largest


def _by_geounit(problem: Problem, values: NDArray[Number]) -> Iterator[NDArray[Number]]:
    """Of a vector over the observed layout every table's part, (geounits, cells), in its place."""
    for index, table in enumerate(problem.observed_tables):
        yield values[problem.observed.block(index)].reshape(-1, table.size)


def why_no_structure(problem: Problem) -> str | None:
    """Why there is no nearest structured problem that can be solved exactly, or None."""
    if not problem.is_tabular:
        return Refusal("it has no tables, only a matrix", OTHERWISE)
    if problem.noise.solve is None:
        return Refusal(
            "its covariance is an operator without a method solve(V), its inverse times V",
            "use preconditioner='jacobi'",
        )
    cells = exact_in_part(problem)
    size = problem.observed.size + problem.desired.size
    if cells.size > MOST_EXACT_CELLS or cells.size * size > MOST_EXACT_ENTRIES:
        most = min(MOST_EXACT_CELLS, MOST_EXACT_ENTRIES // size)
        name = problem.observed.locate(int(cells[0]))[0]
        return Refusal(
            f"table {name!r} is known exactly in some cells and not in others; there are {cells.size:,} such cells, "
            f"more than {most:,}",
            OTHERWISE,
        )
    kept = _kept(problem)
    return kept if isinstance(kept, str) else None


def tables_left_out(problem: Problem) -> tuple:
    """Names of observed tables that the nearest structured problem does without, their recodes coupling too much."""
    kept, names = _kept(problem), enumerate(problem.observed.names)
    return () if isinstance(kept, str) else tuple(name for i, name in names if i not in kept)


def _kept(problem: Problem) -> list[int] | str:
    """Numbers of the tables that it has: all where the recodes permit it, otherwise with few groups if that may be."""
    structured, is_flat = nearest_structured(problem), problem.has_only_tables and not exact_in_part(problem).size
    refusal = areas_refusal if problem.has_areas else flat_refusal if is_flat else tree_refusal
    reason = refusal(structured)
    if reason is None:
        return list(range(len(problem.observed_tables)))
    if problem.has_areas:
        return reason
    few = _fewer_tables(structured, problem.exact, lambda p: group_count(p) <= FEW_GROUPS and refusal(p) is None)
    return few or _fewer_tables(structured, problem.exact, lambda p: refusal(p) is None) or reason


def _fewer_tables(problem: Problem, exact: Flags, suits: Callable[[Problem], bool]) -> list[int]:
    """Leave out tables with recodes, the largest first, until what is left suits; those that need not be come back.

    A large table sums few cells of what is kept into each of its own, so that its measurements change the iterations
    least; small ones would change few directions much.

    Parameters
    ----------
    problem : Problem
        The structured one with all tables; see `nearest_structured`.
    exact : ndarray of bool, (n,)
        Observed cells that are known exactly: their tables are kept.
    suits : callable
        Whether a problem can be solved exactly at little cost.

    Returns
    -------
    list of int
        The numbers of the tables that are kept; none if leaving out does not help.
    """
    tables, small = list(range(len(problem.observed_tables))), lambda i: problem.observed_tables[i].size
    kept, plain = tables, set(problem.domain.schema.names)
    recoded = [i for i in tables if not plain.issuperset(problem.observed_tables[i].factors)]
    noisy = [i for i in recoded if not exact[problem.observed.block(i)].any()]
    for index in sorted(noisy, key=small, reverse=True):
        if _suffice(problem, fewer := [i for i in kept if i != index]):
            kept = fewer
    if not suits(of_tables(problem, kept, kept)):
        return []
    for index in sorted(set(tables) - set(kept), key=small):
        if suits(of_tables(problem, more := sorted([*kept, index]), more)):
            kept = more
    return kept


def _suffice(problem: Problem, kept: list[int]) -> bool:
    """Whether the other tables and the desired ones follow from some, and no equality speaks of others."""
    with suppress(ValueError):
        of_tables(problem, kept, range(len(problem.observed_tables)))
        of_tables(problem, kept)
        return True
    return False


def structure_of(problem: Problem) -> tuple[Components, Problem, Problem, Float, Index]:
    """The nearest structured problem, which keeps all that is exact, where `why_no_structure` is None.

    Returns
    -------
    observed : Components
        The exact estimate of the observed cells of its tables.
    desired, everywhere : Problem
        Whose tabulation sums consistent values of these to the desired cells, and to all observed ones.
    variances : ndarray, (n,)
        The one variance of every observed cell of the problem, 0 in exact cells.
    cells : ndarray of int
        The cells of its tables in the observed layout of the problem.
    """
    kept = _kept(problem)
    assert not isinstance(kept, str)
    structured, every = nearest_structured(problem), range(len(problem.observed_tables))
    variances, cells = np.where(problem.exact, 0.0, structured.variances), structured.observed.cells(kept)
    desired, everywhere = structured, structured.observing()
    if len(kept) < len(every):
        desired, everywhere = of_tables(structured, kept), of_tables(structured, kept, every)
    form_of = exact_form_of_areas if problem.has_areas else conditioned
    observed = form_of(desired.observing(), np.searchsorted(cells, exact_in_part(problem)))
    return observed, desired, everywhere, variances, cells
