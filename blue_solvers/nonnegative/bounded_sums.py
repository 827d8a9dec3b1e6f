"""Bounds of any sign on any cells and sums: the same program as of counts that are not negative.

A bound on a cell is one of the program. A sum s = m'x with bounds becomes a cell of its own, which an exact row ties to
its parts, and takes along what measured it. Where cells have units of their own, as in any weighted sums, rows are in
standard deviations and cells in units of what they change these by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from blue_solvers.nonnegative.block_pivoting import Together, solve_together
from blue_solvers.nonnegative.cell_bounds import Ranges
from blue_solvers.nonnegative.duality_gap import Certified
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram, beside, csc
from blue_solvers.nonnegative.solving import solve
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.layout import Layout

MEETS = 1e-9  # relative: by which rounding may put an exact value outside of its bounds


def read_bounds(layout: Layout, bounds: Any) -> Ranges:
    """Bounds on all cells of a layout, (n,) each, infinite where there are none.

    Parameters
    ----------
    layout : Layout
    bounds : (lower, upper)
        Each a number, an array (n,), by its labels where it has some, or a mapping of all tables by name.

    Raises
    ------
    ValueError
        If they are no pair, a shape does not fit, one is NaN, or a lower one exceeds its upper one.
    """
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise ValueError("bounds are a pair (lower, upper), -inf and inf where there are none")
    lower, upper = (_over(layout, own, f"{word} bounds") for own, word in zip(bounds, ("lower", "upper"), strict=True))
    for own, word, wrong in ((lower, "lower", np.inf), (upper, "upper", -np.inf)):
        why = f"the {word} bound of {{}} is {{}}: give a number, or {-wrong} for none"
        layout.refuse(np.isnan(own) | (own == wrong), why, own)
    why = "{} is to be {:.6g} at least and {:.6g} at most: give a lower bound below the upper one"
    layout.refuse(lower > upper, why, lower, upper)
    return Ranges(lower, upper)


def has_leaves(problem: Problem) -> bool:
    """Whether it is of rows whose leaves are what is wanted."""
    return problem.summing is not None and problem.desired is not problem.observed


def read_bounds_of_leaves(problem: Problem, bounds: Any) -> list[Ranges]:
    """Bounds on leaves, (k,), and on rows, (n,).

    Parameters
    ----------
    problem : Problem
        Of rows and leaves.
    bounds : (lower, upper) or mapping
        On the leaves, or ``{"leaves": (lower, upper), "rows": (lower, upper)}``, of either or both.

    Raises
    ------
    ValueError
        As `read_bounds`.
    """
    given = bounds if isinstance(bounds, dict) else {"leaves": bounds}
    if not given or not set(given) <= {"leaves", "rows"}:
        raise ValueError(f"bounds of 'leaves' and 'rows' may be given: got {', '.join(map(repr, given)) or 'none'}")
    layouts = {"leaves": problem.desired, "rows": problem.observed}
    return [read_bounds(layout, given.get(name, (-np.inf, np.inf))) for name, layout in layouts.items()]


def _over(layout: Layout, values: Any, what: str) -> Float:
    if isinstance(values, dict) and set(values) <= set(layout.names):
        return layout.vector(values)
    given = layout.flat(values, what)
    if given.shape not in ((), (layout.size,)):
        raise ValueError(f"{what} must be a number or have shape ({layout.size},): got {given.shape}")
    return np.array(np.broadcast_to(given, (layout.size,)))


def fitted(model: FittingModel, columns: Float, bounds: Ranges) -> Iterator[Certified]:
    """The least squares of many measurements, (K, n), within bounds on observed cells, (n,).

    Those that are the same where they are exact share what is worked out of their matrix.

    Raises
    ------
    ValueError
        If an exact value is outside of its bounds.
    NotConvergedError
        If no cells meet all of them, or none are proved to be near the optimum.
    """
    exact, in_counts = columns[:, model.problem.exact], model.problem.is_tabular
    if len(columns) == 1 or in_counts or (exact != exact[0]).any():
        programs = (program_within(model, y, bounds) for y in columns)
    else:
        p = program_within(model, columns, bounds)
        programs = (p.one(number) for number in range(len(columns)))
    return (solved(own, in_counts) for own in programs)


def program_within(model: FittingModel, y: Float, bounds: Ranges, *, signed: bool = True) -> QuadraticProgram:
    """The model's program of measurements, (n,), with bounds on observed cells, (n,) each; sums follow the cells.

    The cells are of any sign (`signed`) or not negative.

    Of many measurements, (K, n), that are the same where they are exact, all programs together.

    Raises
    ------
    ValueError
        If an exact value is outside of its bounds.
    """
    refuse_exact_outside(model.problem, y.reshape(-1, y.shape[-1])[0], bounds)
    nothing = (np.diff(model.M.indptr) == 0) & ~model.problem.exact & ((bounds.low > 0) | (bounds.high < 0))
    why = "{} is a sum of no cells that may be other than 0, outside of its bounds: correct these"
    model.problem.observed.refuse(nothing, why)
    p, exact, weight = model.program(y, signed), model.problem.exact, np.zeros(y.shape[-1])
    bounds = Ranges(np.where(exact, -np.inf, bounds.low), np.where(exact, np.inf, bounds.high))
    sums = np.flatnonzero(bounds.finite & model.measured & (np.diff(model.M.indptr) > 1))
    if sums.size:
        p = without_rows(p, np.searchsorted(model.sum_rows, sums))
        weight[sums] = 1 / model.problem.variances[sums]
    return with_bounds_on(p, model.M, bounds, y, weight)


def program_of_leaves(model: FittingModel, y: Float, leaves: Ranges, rows: Ranges) -> QuadraticProgram:
    """The program of measurements, (n,) or (K, n), within bounds on leaves, (k,), and rows, (n,).

    Raises
    ------
    NotConvergedError
        If bounds on one leaf leave it nothing.
    """
    p, nothing = program_within(model, y, rows), np.zeros(leaves.low.size)
    return with_bounds_on(p, sparse.eye_array(nothing.size, p.weight.size, format="csr"), leaves, nothing, nothing)


def solved(p: QuadraticProgram, in_counts: bool) -> Certified:
    """Solve a program in counts, or in units of its own.

    Of tables whose variances span decades gaps in counts are ten times smaller and more.

    Raises
    ------
    NotConvergedError
        As `solving.solve`.
    """
    return solve(p) if in_counts else solved_in_own_units(p)


def without_rows(p: QuadraticProgram, rows: Index) -> QuadraticProgram:
    """The same program without some of its rows, (k,)."""
    kept = np.setdiff1d(np.arange(p.variance.size), rows)
    own = {name: getattr(p, name)[..., kept] for name in ("answer", "variance")}
    return replace(p, M=csc(p.M.tocsr()[kept]), tables=None, shared={}, **own)


def with_bounds_on(
    p: QuadraticProgram, rows: sparse.csr_array, bounds: Ranges, target: Float, weight: Float
) -> QuadraticProgram:
    """The same program with bounds on combinations of cells.

    Parameters
    ----------
    p : QuadraticProgram
    rows : csr_array, (k, d)
    bounds : Ranges
        Of each, (k,), infinite where there are none; of empty ones they say nothing.
    target, weight : ndarray, (k,) or (K, k), and (k,)
        What measured each that has several cells, and its precision; 0 of what nothing did.

    Raises
    ------
    NotConvergedError
        If bounds on one cell leave it nothing.
    """
    counts, finite = np.diff(rows.indptr), bounds.finite
    alone, sums = np.flatnonzero(finite & (counts == 1)), np.flatnonzero(finite & (counts > 1))
    weights, cells = rows.data[rows.indptr[alone]], rows.indices[rows.indptr[alone]]
    ends = np.sort([bounds.low[alone] / weights, bounds.high[alone] / weights], axis=0)
    lower, upper = p.lower.copy(), p.upper.copy()
    held = lower == upper  # known exactly, and found within its bounds
    np.maximum.at(lower, cells, ends[0])
    np.minimum.at(upper, cells, ends[1])
    room = MEETS * abs(p.lower)
    if ((p.lower < lower - room) | (p.lower > upper + room))[held].any():
        raise NotConvergedError("no cells meet all bounds: exact values determine one outside of its own")
    lower[held], upper[held] = p.lower[held], p.upper[held]
    crossed = lower > upper
    if (lower - upper > MEETS * np.maximum(abs(lower), abs(upper)))[crossed].any():
        raise NotConvergedError("no cells meet all bounds: those on one cell, in several rows, contradict one another")
    lower[crossed] = upper[crossed] = (lower[crossed] + upper[crossed]) / 2
    if not sums.size:
        return replace(p, lower=lower, upper=upper)
    low, high = bounds.low[sums], bounds.high[sums]
    M, own = csc(sparse.vstack([p.M, rows[sums]])), np.arange(1, sums.size + 1)
    columns = np.append(M.data, -np.ones(own.size)), np.append(M.indices, p.variance.size - 1 + own)
    size = M.shape[0], M.shape[1] + own.size
    return QuadraticProgram(
        M=sparse.csc_array((*columns, np.append(M.indptr, M.nnz + own)), shape=size),
        target=beside(p.target, np.where(weight[sums] > 0, target[..., sums], np.clip(0.0, low, high))),
        weight=np.append(p.weight, weight[sums]),
        lower=np.append(lower, low),
        upper=np.append(upper, high),
        answer=beside(p.answer, np.zeros(sums.size)),
        variance=np.append(p.variance, np.zeros(sums.size)),
    )


def solved_in_own_units(p: QuadraticProgram) -> Certified:
    """Solve a program whose cells and rows may be in any units; its residuals are in those of rows' noise.

    Raises
    ------
    NotConvergedError
        As `solving.solve`.
    """
    scaled, units = _standardised(p)
    with np.errstate(over="ignore", invalid="ignore"):  # of steps that are shortened then
        found = solve(scaled)
    return replace(found, cells=np.clip(found.cells * units, p.lower, p.upper))


def solved_together(p: QuadraticProgram) -> Together:
    """Programs that stand together, each in units of its own, as far as they can be solved so; see `block_pivoting`."""
    scaled, units = _standardised(p)
    found = solve_together(scaled)
    return found._replace(cells=np.clip(found.cells * units, p.lower, p.upper))


def _standardised(p: QuadraticProgram) -> tuple[QuadraticProgram, Float]:
    """The same program in units of rows' noise and of what cells change, and the unit of every cell, (d,)."""
    ends = () if (p.weight > 0).all() else (p.lower, p.upper)  # of cells that nothing measures these are the units
    units, rows, M, weight, variance, shared = p.once("scaled", lambda: _scaling(p), p.weight, p.variance, *ends)
    scaled = replace(
        p,
        M=M,
        target=p.target / units,
        weight=weight,
        lower=p.lower / units,
        upper=p.upper / units,
        answer=p.answer * rows,
        variance=variance,
        shared=shared,
        tables=None,
    )
    return scaled, units


def _scaling(p: QuadraticProgram) -> tuple[Float, Float, sparse.csc_array, Float, Float, dict[str, tuple]]:
    """Units of cells, (d,), what rows are multiplied by, (m,), and M, weights, variances and what these share."""
    noisy, units = p.variance > 0, units_of(p)
    entries = p.M.data * np.repeat(units, np.diff(p.M.indptr))
    lengths = np.sqrt(np.bincount(p.M.indices, entries**2, minlength=p.variance.size))
    rows = np.where(noisy, 1 / np.sqrt(np.where(noisy, p.variance, 1.0)), 1 / np.where(lengths > 0, lengths, 1.0))
    M = sparse.csc_array((entries * rows[p.M.indices], p.M.indices, p.M.indptr), shape=p.M.shape)
    return units, rows, M, p.weight * units**2, noisy.astype(float), {}


def units_of(p: QuadraticProgram) -> Float:
    """What a cell changes by, (d,): where the objective says nothing of it, as much as what exact rows tie it to.

    Where they tie it to nothing that has a unit, the largest of its bounds.
    """
    curved = p.curvature > 0
    ends = np.maximum(*(np.where(np.isfinite(own), abs(own), 0.0) for own in (p.lower, p.upper)))
    units = np.divide(1.0, np.sqrt(p.curvature), out=np.zeros(curved.size), where=curved)
    entries, cells = abs(p.M.data), np.repeat(np.arange(units.size), np.diff(p.M.indptr))
    for start in (units, ends, np.ones_like(units)):
        units = np.where(units > 0, units, start)
        while not (units > 0).all():
            rows, found = np.zeros(p.variance.size), np.full(units.size, np.inf)
            np.maximum.at(rows, p.M.indices, entries * units[cells])
            tied = (entries > 0) & (rows[p.M.indices] > 0)
            np.minimum.at(found, cells[tied], rows[p.M.indices][tied] / entries[tied])
            new = (units == 0) & np.isfinite(found)
            if not new.any():
                break
            units[new] = found[new]
    return units


def refuse_exact_outside(problem: Problem, y: Float, bounds: Ranges) -> None:
    """Refuse exact values of y, (n,), that are outside of their bounds."""
    room = MEETS * abs(y)
    outside: Flags = problem.exact & ((y < bounds.low - room) | (y > bounds.high + room))
    why = "{} is known exactly as {:.6g}, outside of its bounds {:.6g} and {:.6g}: correct either"
    problem.observed.refuse(outside, why, y, bounds.low, bounds.high)
