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
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from blue_solvers.components import Components
from blue_solvers.components.assumptions import flat_refusal, tree_refusal
from blue_solvers.components.conditioning import conditioned
from blue_solvers.components.size import group_count
from blue_solvers.contract import Refusal
from blue_solvers.crossing_areas.area_form import areas_refusal, exact_form_of_areas
from blue_solvers.structured.kept_tables import KeptTables, kept_tables
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index

FEW_GROUPS = 300  # of recodes, whose matrices then cost less than the iterations
MOST_EXACT_CELLS = 500  # in tables that are not wholly exact: their products make an estimate take five times as long
MOST_EXACT_ENTRIES = 30_000_000  # of their covariance columns, held half a dozen times while they are worked out
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
    for index, table in enumerate(problem.observed_tables):
        cells = variances[problem.observed.block(index)].reshape(-1, table.size)
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
    found = np.zeros(problem.observed.size, dtype=bool)
    for index, table in enumerate(problem.observed_tables):
        place = problem.observed.block(index)
        exact = problem.exact[place].reshape(-1, table.size)
        found[place] = (exact & ~exact.all(axis=1, keepdims=True)).ravel()
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
    for index, table in enumerate(problem.observed_tables):
        cells = problem.variances[problem.observed.block(index)].reshape(-1, table.size)
        least, greatest = np.where(cells > 0, cells, np.inf).min(axis=1), cells.max(axis=1)
        noisy = (greatest > 0) & np.isfinite(least)
        largest = max(largest, float((greatest[noisy] / least[noisy]).max(initial=1.0)))
    return largest


def why_no_structure(problem: Problem) -> str | None:
    """Why there is no nearest structured problem that can be solved exactly, or None."""
    if not problem.is_tabular:
        return Refusal("it has no tables, only a matrix", OTHERWISE)
    if not problem.noise.can_solve:
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
    kept = _kept(problem)
    return () if isinstance(kept, str) else kept.names


def _kept(problem: Problem) -> KeptTables | str:
    """Nothing is left out where the recodes permit it; otherwise enough to make their matrices small."""
    structured, known = nearest_structured(problem), exact_in_part(problem)
    everything = KeptTables(structured, structured, np.arange(structured.observed.size))
    if problem.has_areas:
        return areas_refusal(structured) or everything
    refusal = flat_refusal if problem.has_only_tables and not known.size else tree_refusal
    reason = refusal(structured)
    if reason is None:
        return everything
    few = kept_tables(structured, known, lambda p: group_count(p) <= FEW_GROUPS and refusal(p) is None)
    return few or kept_tables(structured, known, lambda p: refusal(p) is None) or reason


class Sums(NamedTuple):
    """Desired cells as sums of consistent observed ones, (n, K) to (m, K), and the transpose."""

    apply: Callable[[Float], Float]
    adjoint: Callable[[Float], Float]


class Structure(NamedTuple):
    """The exact estimate of the nearest structured problem, which keeps all that is exact.

    Attributes
    ----------
    observed : Components
        Of the observed cells of its tables.
    desired : Components or Sums
        Of the desired cells, from the same.
    variances : ndarray, (n,)
        The one variance of every observed cell of the problem, 0 in exact cells.
    kept : KeptTables
        Which tables it has.
    """

    observed: Components
    desired: Components | Sums
    variances: Float
    kept: KeptTables


def structure_of(problem: Problem) -> Structure:
    """The structure to iterate around, of a problem for which `why_no_structure` is None."""
    kept = _kept(problem)
    assert not isinstance(kept, str)
    known = np.searchsorted(kept.cells, exact_in_part(problem))
    variances = np.where(problem.exact, 0.0, nearest_structured(problem).variances)
    form_of = exact_form_of_areas if problem.has_areas else conditioned
    observed = form_of(kept.kept.observing(), known)
    desired: Components | Sums = observed
    if kept.desired is not kept.kept:
        desired = Sums(kept.desired.tabulate, kept.desired.tabulate_transpose)
    elif problem.desired.names != problem.observed.names:
        desired = form_of(kept.kept, known)
    return Structure(observed, desired, variances, kept)
