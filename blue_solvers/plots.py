"""Pictures of a problem and its estimate, drawn with matplotlib (extra ``plots``).

Every function draws on the Axes that it is given and returns it. Tables that are not drawn are named below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.estimates import shared_tables
from blue_solvers.operator import BlueOperator
from blue_solvers.quantiles import takes_confidence_level
from blue_solvers.uncertainty.functionals import estimate
from blue_solvers.uncertainty.intervals import intervals
from blue_solvers.verification import Fit
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.labelled import Nodes
from constraint_builders.description.layout import Name
from constraint_builders.pictures import (
    BLUE,
    COLOURS,
    GREY,
    MARKERS,
    VERMILION,
    WHOLE,
    folded,
    lines_that_fit,
    mentioned,
    name_columns,
    wrapped,
)

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes

MOST_ERROR_BARS = 2_000  # more are a smear, and take seconds to draw
MOST_POINTS = 200  # of a table, drawn one by one
MOST_NAMED_TABLES = 24
MOST_APART = 4  # tables of their own colour among quantiles
EXPECTED = 1.959963984540054  # standard errors within which 95 % of residuals are
GOLDEN = 0.6180339887498949  # multiples of it are spread evenly
TICKS = 2  # lines that the numbers of an axis take


def residuals_by_table(ax: Axes, fit: Fit) -> Axes:
    """Residuals of the measurements, measured less estimated, in their own standard errors, a row for each table.

    Nodes of a hierarchy that have names have a row each. A table of at most 200 cells is drawn point by point, a larger
    one as its quartiles (thick), its 1 and 99 per cent points (thin) and what lies beyond. Residuals that would be
    unlikely, at 5 per cent among all of them, are orange diamonds. Where there is not room for all rows those with the
    largest residuals are drawn.

    Parameters
    ----------
    ax : Axes
    fit : Fit
        From ``est.goodness_of_fit()`` or `blue_solvers.fit_test`.

    Returns
    -------
    Axes
        `ax`.
    """
    from scipy.special import ndtri

    rows = _rows(fit)
    by_table = {name: fit.residuals[cells] for name, cells in rows.items()}
    largest = {name: np.nanmax(abs(own)) for name, own in by_table.items() if np.isfinite(own).any()}
    unchecked = _unchecked(fit, rows)
    drawn = _rows_that_fit(ax, unchecked, by_table, largest)
    limit = float(-ndtri(0.025 / max(fit.checked, 1)))
    ax.axvspan(-EXPECTED, EXPECTED, color="0.92", zorder=0)
    ax.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    for row, name in enumerate(drawn):
        _draw_residuals(ax, row, by_table[name][np.isfinite(by_table[name])], limit)
    ax.set_yticks(np.arange(len(drawn)), folded(ax, drawn, "y"))
    ax.set_ylim(max(len(drawn), 1) - 0.5, -0.5)
    reach = 1.08 * max([3.0, *(largest[name] for name in drawn)])
    ax.set_xlim(-reach, reach)
    ax.set_xlabel(_explained(ax, unchecked, by_table, drawn))
    return ax


def quantiles_by_table(ax: Axes, fit: Fit) -> Axes:
    """Sorted residuals of every table against the quantiles of the normal law: on the line where noise is as declared.

    A slope above that of the line is noise larger than declared, one below it smaller, and single points away from a
    straight row of others are single errors. The tables that are furthest from the line, beside what chance does to as
    many residuals, have colours and marks of their own; the others are grey.

    Parameters
    ----------
    ax : Axes
    fit : Fit
        From ``est.goodness_of_fit()`` or `blue_solvers.fit_test`.

    Returns
    -------
    Axes
        `ax`.
    """
    from scipy.special import betaincinv, ndtri

    by_table = {str(name): fit.of_table(name) for name in fit.problem.observed.names}
    unchecked = _unchecked(fit, by_table)
    residuals = {name: fit.residuals[cells] for name, cells in by_table.items()}
    checked = {name: np.sort(own[np.isfinite(own)]) for name, own in residuals.items() if np.isfinite(own).any()}
    strays: dict[str, float] = {}
    for name, own in checked.items():
        ranks = np.arange(1, own.size + 1)
        low, high = (ndtri(betaincinv(ranks, own.size + 1 - ranks, tail)) for tail in (0.025, 0.975))
        strays[name] = float(np.max(abs(own - (low + high) / 2) / (high - low)))
    apart = sorted(strays, key=lambda name: -strays[name])[:MOST_APART]
    for name in sorted(checked, key=lambda name: name in apart):
        place = apart.index(name) if name in apart else None
        shown = _thinned(checked[name].size)
        expected = ndtri((shown + 0.5) / checked[name].size)
        mark, colour = (".", "0.7") if place is None else (MARKERS[place], COLOURS[place])
        label = None if place is None else folded(ax, [name], "y")[0]
        ax.plot(expected, checked[name][shown], mark, color=colour, label=label, markersize=4, markeredgewidth=0)
    ends = ndtri(0.5 / max((own.size for own in checked.values()), default=2))
    ax.plot([ends, -ends], [ends, -ends], color=GREY, linewidth=1, zorder=0)
    ax.legend(loc="upper left", frameon=False, fontsize="small")
    words = ["quantile of the normal law; line: noise as declared"]
    words += [f"grey: {len(checked) - len(apart):,} other tables, nearer to it"] if len(checked) > len(apart) else []
    ax.set_xlabel(wrapped(ax, "\n".join([*words, *unchecked])))
    ax.set_ylabel(wrapped(ax, "residual, in standard errors"))
    return ax


def _rows(fit: Fit) -> dict[str, Index]:
    """Positions of the measurements of what has a row: of every table, or of every node that has a name."""
    observed = fit.problem.observed
    names = _node_names(fit.problem)
    if names is None:
        return {str(name): fit.of_table(name) for name in observed.names}
    positions = fit.of_table(observed.names[0])
    cells = np.array([fit.cell(i) for i in positions.tolist()])
    order = np.argsort(cells, kind="stable")
    parts = np.split(positions[order], np.searchsorted(cells[order], np.arange(1, len(names))))
    return dict(zip(names, parts, strict=True))


def _node_names(problem: Problem) -> tuple[str, ...] | None:
    """Of a problem that is given by a matrix."""
    naming = problem.observed.naming
    return naming.labels if isinstance(naming, Nodes) else None


def _thinned(size: int) -> Index:
    """Which of so many sorted residuals are drawn: those at both ends, and some of those between."""
    if size <= MOST_POINTS:
        return np.arange(size)
    between = np.linspace(0, size - 1, MOST_POINTS // 2).astype(np.intp)
    return np.unique(np.concatenate([np.arange(MOST_POINTS // 4), between, size - 1 - np.arange(MOST_POINTS // 4)]))


def _rows_that_fit(
    ax: Axes, unchecked: Sequence[str], by_table: Mapping[str, Float], largest: Mapping[str, float]
) -> list[str]:
    """The tables for which there is room above what is said below: those with the largest residuals, (cells,) each."""
    room = int(lines_that_fit(ax, "y") * WHOLE)
    by_size = sorted(largest, key=lambda name: -largest[name])[:room]
    lines = max((label.count("\n") + 1 for label in folded(ax, by_size, "y")), default=1)
    drawn = by_size
    for _ in range(2):
        below = TICKS + _explained(ax, unchecked, by_table, drawn).count("\n") + 1
        drawn = by_size[: max(1, (room - below) // lines)]
    return [name for name in by_table if name in drawn]


def _explained(ax: Axes, unchecked: Sequence[str], by_table: Mapping[str, Float], drawn: Sequence[str]) -> str:
    """What is said below residuals, (cells,) by table."""
    words = [
        "residual, measured less estimated, in standard errors",
        "grey: where 95 % lie if the noise is as declared",
    ]
    smaller = [name for name, own in by_table.items() if np.isfinite(own).any() and name not in drawn]
    words += [f"not drawn, residuals are smaller: {mentioned(smaller)}"] if smaller else []
    return wrapped(ax, "\n".join([*words, *unchecked]), folded(ax, drawn, "y"))


def _draw_residuals(ax: Axes, row: int, residuals: Float, limit: float) -> None:
    """One row of residuals, (cells,): points that would be unlikely apart from the others."""
    single = np.ones(residuals.size, dtype=bool)
    if residuals.size > MOST_POINTS:
        low, first, third, high = np.percentile(residuals, [1, 25, 75, 99])
        ax.hlines(row, low, high, color=BLUE, linewidth=1)
        ax.hlines(row, first, third, color=BLUE, linewidth=5)
        single = (residuals < low) | (residuals > high)
    spread = 0.5 if residuals.size > 1 else 0
    heights = row + spread * ((np.arange(residuals.size) * GOLDEN) % 1 - 0.5)
    for kind, colour, marker in ((abs(residuals) <= limit, BLUE, "o"), (abs(residuals) > limit, VERMILION, "D")):
        shown = single & kind
        ax.plot(residuals[shown], heights[shown], marker, color=colour, markersize=3.5, alpha=0.8, markeredgewidth=0)


def _unchecked(fit: Fit, rows: Mapping[str, Index]) -> list[str]:
    """Which rows, by their positions, (cells,) each, have no residuals, and why."""
    reasons: dict[str, list[str]] = {}
    for name, cells in rows.items():
        if not np.isfinite(fit.residuals[cells]).any():
            statuses = {fit.reason(i) for i in cells.tolist()}
            reasons.setdefault(" or ".join(sorted(statuses)), []).append(name)
    return [f"not drawn, {reason}: {mentioned(names)}" for reason, names in reasons.items()]


@takes_confidence_level
def noisy_against_estimated(
    ax: Axes, P: BlueOperator, y: ArrayLike, confidence_level: float = 0.95, bounds: tuple[Float, Float] | None = None
) -> Axes:
    """Estimates with their intervals over the noisy counts, table by table, and the line where they are equal.

    Parameters
    ----------
    ax : Axes
    P : BlueOperator
    y : array_like, (n,)
        Noisy counts over the observed layout.
    confidence_level : float
        Of the intervals, which are left out where there are more than 2,000 counts.
    bounds : (lower, upper) of ndarray, (m,), optional
        Intervals at hand; by default those of `blue_solvers.uncertainty.intervals`.

    Returns
    -------
    Axes
        `ax`.

    Raises
    ------
    ValueError
        If no table is both observed and desired, y is unreadable, or a lower bound is above its upper one.
    """
    lower, upper = intervals(P, y, confidence_level) if bounds is None else bounds
    if (np.asarray(lower) > upper).any():
        raise ValueError("bounds are (lower, upper): some lower one is above its upper one")
    noisy, centre = P.problem.observed.flat(y, "y"), estimate(P, y)
    shared = _compared(P.problem)
    with_bars = sum(cells.size for _, _, cells in shared) <= MOST_ERROR_BARS
    for i, (name, observed, desired) in enumerate(shared):
        bars = np.maximum([(centre - lower)[desired], (upper - centre)[desired]], 0) if with_bars else None
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i // len(COLOURS) % len(MARKERS)]}
        ax.errorbar(noisy[observed], centre[desired], bars, ls="", markersize=3, elinewidth=0.8, label=name, **style)  # type: ignore[arg-type]
    ax.axline((0, 0), slope=1, color=GREY, linewidth=0.8, zorder=0)
    named = len(shared) <= min(MOST_NAMED_TABLES, lines_that_fit(ax, "y"))
    note = "" if named else f"{len(shared):,} tables, too many to name"
    ax.set_xlabel(_with_absent(ax, "noisy count", note, P.problem))
    ax.set_ylabel(f"estimate with {confidence_level:.4g} interval" if with_bars else "estimate")
    if named:
        ax.legend(fontsize="small")
    return ax


def variance_reduction(ax: Axes, P: BlueOperator) -> Axes:
    """How much smaller the estimate's variance is than the noise's, on average over every table, in per cent.

    Nodes of a hierarchy that have names have a bar each.

    Parameters
    ----------
    ax : Axes
    P : BlueOperator

    Returns
    -------
    Axes
        `ax`.

    Raises
    ------
    ValueError
        If no table is both observed and desired.
    """
    shared = _compared(P.problem)
    nodes = _node_names(P.problem)
    if nodes is not None:  # desired as they are observed
        shared = [(name, slice(i, i + 1), np.array([i])) for i, name in enumerate(nodes)]
    noise, own = P.problem.variances, P.variances()
    room = lines_that_fit(ax, "y")
    names = folded(ax, [name for name, _, _ in shared[:room]], "y")
    drawn = shared[: room // max(name.count("\n") + 1 for name in names)]
    reduction = [_reduction(noise[observed], own[desired]) for _, observed, desired in drawn]
    places = np.arange(len(drawn))
    ax.barh(places, reduction, color=BLUE)
    ax.set_yticks(places, names[: len(drawn)])
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    left_out = [name for name, _, _ in shared[len(drawn) :]]
    note = f"not drawn, no room: {mentioned(left_out)}" if left_out else ""
    ax.set_xlabel(_with_absent(ax, "variance reduction, %", note, P.problem, names))
    return ax


def sparsity(ax: Axes, problem: Problem, rows: str = "independent") -> Axes:
    """The entries of the constraint matrix A that are not zero, with a line between every two tables.

    Parameters
    ----------
    ax : Axes
    problem : Problem
    rows : {"independent", "all"}

    Returns
    -------
    Axes
        `ax`.
    """
    A = problem.constraint_matrix(rows)
    ax.spy(A, markersize=max(0.2, 200 / max(A.shape)), aspect="auto", color=BLUE)
    borders = problem.observed.offsets
    for border in borders[1:-1]:
        ax.axvline(border - 0.5, color=GREY, linewidth=0.6)
    names = folded(ax, [str(name) for name in problem.observed.names], "x")
    lines = len(names) * max(name.count("\n") + 1 for name in names)
    if len(names) <= MOST_NAMED_TABLES and lines <= lines_that_fit(ax, "x"):
        name_columns(ax, (borders[:-1] + borders[1:]) / 2 - 0.5, names)
    else:
        ax.set_xlabel(f"{len(names):,} tables, too many to name")
    ax.set_ylabel(f"{A.shape[0]:,} constraints")
    return ax


def _compared(problem: Problem) -> list[tuple[str, slice, Index]]:
    """Tables that were measured and are desired: name, place among the observed cells, and theirs among the desired."""
    measured = dict(zip(problem.observed.names, problem.measured_tables, strict=True))
    shared = [(str(name), problem.observed.slice(name), own) for name, own in shared_tables(problem) if measured[name]]
    if not shared:
        raise ValueError("no table is both observed and desired: there is nothing to compare")
    return shared


def _with_absent(ax: Axes, label: str, note: str, problem: Problem, beside: Sequence[str] = ()) -> str:
    """A label, with what cannot be drawn below it."""
    measured = zip(problem.observed.names, problem.measured_tables, strict=True)
    shared = [name for name, _ in shared_tables(problem)]
    absent = {
        "not measured": [str(name) for name, own in measured if not own],
        "not desired": [str(name) for name in problem.observed.names if name not in shared],
        "not observed": [str(name) for name in problem.desired.names if not _is_observed(problem, name)],
    }
    lines = [f"not drawn, {why}: {mentioned(names)}" for why, names in absent.items() if names]
    return wrapped(ax, "\n".join(filter(None, [label, note, *lines])), beside)


def _is_observed(problem: Problem, name: Name) -> bool:
    try:
        problem.observed.index(name)
    except ValueError:
        return False
    return True


def _reduction(noise: Float, own: Float) -> float:
    """Per cent by which mean variances, (cells,), fall over cells measured with noise; 0 where there are none."""
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

    Returns
    -------
    Axes
        `ax`.

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
