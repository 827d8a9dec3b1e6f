"""Pictures of a problem and its estimate, drawn with matplotlib (extra ``plots``).

Every function draws on the Axes that it is given and returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blue_solvers.operator import BlueOperator
from blue_solvers.uncertainty.functionals import estimate
from blue_solvers.uncertainty.intervals import intervals
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_array

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes

MOST_ERROR_BARS = 2_000  # more are a smear, and take seconds to draw
MOST_NAMED_TABLES = 24


def noisy_against_estimated(
    ax: Axes, P: BlueOperator, y: ArrayLike, level: float = 0.95, bounds: tuple[Float, Float] | None = None
) -> Axes:
    """Estimates with their intervals over the noisy counts, table by table, and the line where they are equal.

    Parameters
    ----------
    ax : Axes
    P : BlueOperator
    y : array_like, (n,)
        Noisy counts over the observed layout.
    level : float
        Of the intervals, which are left out where there are more than 2,000 counts.
    bounds : (lower, upper) of ndarray, (m,), optional
        Intervals at hand; by default those of `blue_solvers.uncertainty.intervals`.

    Raises
    ------
    ValueError
        If no table is both observed and desired, or y is unreadable.
    """
    lower, upper = intervals(P, y, level) if bounds is None else bounds
    noisy, centre = real_array(y, "y"), estimate(P, y)
    shared = _shared_tables(P.problem)
    with_bars = sum(cells.size for _, _, cells in shared) <= MOST_ERROR_BARS
    for name, observed, desired in shared:
        bars = np.maximum([(centre - lower)[desired], (upper - centre)[desired]], 0) if with_bars else None
        ax.errorbar(noisy[observed], centre[desired], bars, fmt="o", markersize=3, elinewidth=0.8, label=name)
    ax.axline((0, 0), slope=1, color="0.6", linewidth=0.8, zorder=0)
    ax.set_xlabel("noisy count")
    ax.set_ylabel(f"estimate with {level:.4g} interval" if with_bars else "estimate")
    if len(shared) <= MOST_NAMED_TABLES:
        ax.legend(fontsize="small")
    return ax


def variance_reduction(ax: Axes, P: BlueOperator) -> Axes:
    """How much smaller the estimate's variance is than the noise's, on average over every table, in per cent.

    Parameters
    ----------
    ax : Axes
    P : BlueOperator

    Raises
    ------
    ValueError
        If no table is both observed and desired.
    """
    shared = _shared_tables(P.problem)
    noise, own = P.problem.variances, P.variances()
    reduction = [_reduction(noise[observed], own[desired]) for _, observed, desired in shared]
    places = np.arange(len(shared))
    ax.barh(places, reduction)
    ax.set_yticks(places, [name for name, _, _ in shared])
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    ax.set_xlabel("variance reduction, %")
    return ax


def sparsity(ax: Axes, problem: Problem, rows: str = "independent") -> Axes:
    """The entries of the constraint matrix A that are not zero, with a line between every two tables.

    Parameters
    ----------
    ax : Axes
    problem : Problem
    rows : {"independent", "all"}
    """
    A = problem.constraint_matrix(rows)
    ax.spy(A, markersize=max(0.2, 200 / max(A.shape)), aspect="auto")
    borders = problem.observed.offsets
    for border in borders[1:-1]:
        ax.axvline(border - 0.5, color="0.6", linewidth=0.6)
    names = problem.observed.names
    if len(names) <= MOST_NAMED_TABLES:
        ax.set_xticks((borders[:-1] + borders[1:]) / 2 - 0.5, [str(name) for name in names], rotation=90)
    ax.set_ylabel(f"{A.shape[0]:,} constraints")
    return ax


def _shared_tables(problem: Problem) -> list[tuple[str, slice, NDArray[np.intp]]]:
    """Tables that were measured and are desired: name, place among the observed cells, and theirs among the desired."""
    shared, desired_cells = [], np.arange(problem.desired.size)
    for name, measured in zip(problem.observed.names, problem.measured_tables, strict=True):
        try:
            desired = problem.desired.turned(desired_cells, name)
        except ValueError:
            continue
        if measured:
            shared.append((str(name), problem.observed.slice(name), desired))
    if not shared:
        raise ValueError("no table is both observed and desired: there is nothing to compare")
    return shared


def _reduction(noise: Float, own: Float) -> float:
    """Per cent by which the mean variance falls over cells measured with noise; 0 where there are none."""
    noisy = np.isfinite(noise) & (noise > 0)
    return float(100 * (1 - own[noisy].mean() / noise[noisy].mean())) if noisy.any() else 0.0


def benchmark_times(ax: Axes, frame: polars.DataFrame, what: str = "apply") -> Axes:
    """Seconds that solvers took over the cells of the problems, both on logarithmic axes, a line for each solver.

    Parameters
    ----------
    ax : Axes
    frame : polars.DataFrame
        Of `blue_solvers.benchmark`.
    what : {"prepare", "apply", "many_columns", "variances", "copy"}

    Raises
    ------
    ValueError
        If no solver was timed at that, or there is no such time.
    """
    times = ("prepare", "apply", "many_columns", "variances", "copy")
    if what not in times:
        raise ValueError(f"what must be one of {', '.join(times)}: got {what!r}")
    timed = frame.filter(frame[what].is_not_null()).sort("cells_in")
    if timed.is_empty():
        raise ValueError(f"no solver was timed at {what!r}: there is nothing to draw")
    for (solver,), own in timed.group_by("solver", maintain_order=True):
        ax.plot(own["cells_in"], own[what], marker="o", markersize=4, linewidth=0.8, label=str(solver))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("measured cells")
    ax.set_ylabel(f"seconds: {what.replace('_', ' ')}")
    ax.legend(fontsize="small")
    return ax
