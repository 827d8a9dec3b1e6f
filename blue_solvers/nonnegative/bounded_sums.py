"""Bounds of any sign on any cells and sums: the same program as of counts that are not negative.

A bound on a cell is one of the program. A sum s = m'x with bounds becomes a cell of its own, which an exact row ties to
its parts, and takes along what measured it. Where cells have units of their own, as in any weighted sums, rows are in
standard deviations and cells in units of what they change these by.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from blue_solvers.nonnegative.cell_bounds import Ranges
from blue_solvers.nonnegative.duality_gap import Certified
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.quadratic_program import QuadraticProgram, csc
from blue_solvers.nonnegative.solving import solve
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float
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
        strange = np.flatnonzero(np.isnan(own) | (own == wrong))
        if strange.size:
            where = layout.describe(int(strange[0]))
            raise ValueError(f"the {word} bound of {where} is {own[strange[0]]}: give a number, or {-wrong} for none")
    crossed = np.flatnonzero(lower > upper)
    if crossed.size:
        cell = int(crossed[0])
        raise ValueError(
            f"{layout.describe(cell)} is to be {lower[cell]:.6g} at least and {upper[cell]:.6g} at most: give a lower "
            "bound below the upper one"
        )
    return Ranges(lower, upper)


def _over(layout: Layout, values: Any, what: str) -> Float:
    if isinstance(values, dict) and set(values) <= set(layout.names):
        return layout.vector(values)
    given = layout.flat(values, what)
    if given.shape not in ((), (layout.size,)):
        raise ValueError(f"{what} must be a number or have shape ({layout.size},): got {given.shape}")
    return np.array(np.broadcast_to(given, (layout.size,)))


def fitted(model: FittingModel, y: Float, bounds: Ranges) -> tuple[Float, Certified]:
    """The least squares of measurements, (n,), within bounds on observed cells, (n,), and its certificate.

    Raises
    ------
    ValueError
        If an exact value is outside of its bounds, or bounds on one cell leave it nothing.
    NotConvergedError
        If no cells meet all of them, or none are proved to be near the optimum.
    """
    _refuse_exact_outside(model.problem, y, bounds)
    p = _with_bounds(model, y, bounds)
    if model.problem.is_tabular:
        found = solve(p)
        return found.cells[: model.possible.size], found
    scaled, units = _standardised(p)
    found = solve(scaled)
    return np.clip(found.cells * units, p.lower, p.upper)[: model.possible.size], found


def _with_bounds(model: FittingModel, y: Float, bounds: Ranges) -> QuadraticProgram:
    """The model's program with bounds on observed cells, (n,) each."""
    p, M = model.program(y, signed=True), model.M
    counts = np.diff(M.indptr)
    limited = np.isfinite(bounds.low) | np.isfinite(bounds.high)
    alone, sums = np.flatnonzero(limited & (counts == 1)), np.flatnonzero(limited & (counts > 1) & ~model.problem.exact)
    weights, cells = M.data[M.indptr[alone]], M.indices[M.indptr[alone]]
    ends = np.sort([bounds.low[alone] / weights, bounds.high[alone] / weights], axis=0)
    lower, upper = p.lower.copy(), p.upper.copy()
    held = lower == upper  # known exactly, and found within its bounds
    np.maximum.at(lower, cells, ends[0])
    np.minimum.at(upper, cells, ends[1])
    lower[held], upper[held] = p.lower[held], p.upper[held]
    crossed = np.flatnonzero(lower > upper)
    if crossed.size:
        rows = alone[cells == crossed[0]][:2]
        told = " and ".join(model.problem.observed.describe(int(row)) for row in rows)
        raise ValueError(f"bounds of {told} leave nothing: they are one cell, with other weights")
    p = replace(p, lower=lower, upper=upper)
    return _with_cells(model, p, y, sums, bounds) if sums.size else p


def _with_cells(model: FittingModel, p: QuadraticProgram, y: Float, sums: Any, bounds: Ranges) -> QuadraticProgram:
    """The same with a cell for each of some observed sums, (k,), which takes its bounds and its measurement."""
    variances, count = model.problem.variances[sums], sums.size
    measured = np.isfinite(variances)
    row_of = np.full(model.problem.observed.size, -1)
    row_of[model.sum_rows] = np.arange(model.sum_rows.size)
    taken = row_of[sums[measured]]
    kept = np.ones(p.answer.size, dtype=bool)
    kept[taken] = False
    rows = np.flatnonzero(kept)
    tied = sparse.hstack([model.M[sums], -sparse.eye_array(count)])
    others = sparse.hstack([p.M.tocsr()[rows], sparse.csr_array((rows.size, count))])
    target = np.where(measured, y[sums], np.clip(0.0, bounds.low[sums], bounds.high[sums]))
    return QuadraticProgram(
        M=csc(sparse.vstack([others, tied])),
        target=np.append(p.target, target),
        weight=np.append(p.weight, np.where(measured, 1 / variances, 0.0)),
        lower=np.append(p.lower, bounds.low[sums]),
        upper=np.append(p.upper, bounds.high[sums]),
        answer=np.append(p.answer[rows], np.zeros(count)),
        variance=np.append(p.variance[rows], np.zeros(count)),
        radius=np.full(rows.size + count, np.inf),
    )


def _standardised(p: QuadraticProgram) -> tuple[QuadraticProgram, Float]:
    """The same program in units of rows' noise and of what cells change, and the unit of every cell, (d,)."""
    noisy = p.variance > 0
    curvature = p.curvature
    units = 1 / np.sqrt(np.where(curvature > 0, curvature, 1.0))
    M = p.M @ sparse.diags_array(units)
    lengths = np.sqrt(np.asarray(M.power(2).sum(axis=1))).ravel()
    rows = np.where(noisy, 1 / np.sqrt(np.where(noisy, p.variance, 1.0)), 1 / np.where(lengths > 0, lengths, 1.0))
    scaled = replace(
        p,
        M=csc(sparse.diags_array(rows) @ M),
        target=p.target / units,
        weight=p.weight * units**2,
        lower=p.lower / units,
        upper=p.upper / units,
        answer=p.answer * rows,
        variance=noisy.astype(float),
        radius=p.radius * rows,
        tables=None,
    )
    return scaled, units


def _refuse_exact_outside(problem: Problem, y: Float, bounds: Ranges) -> None:
    """Refuse exact values of y, (n,), that are outside of their bounds."""
    room = MEETS * np.maximum(1.0, abs(y))
    outside: Flags = problem.exact & ((y < bounds.low - room) | (y > bounds.high + room))
    if outside.any():
        cell = int(outside.argmax())
        raise ValueError(
            f"{problem.observed.describe(cell)} is known exactly as {y[cell]:.6g}, outside of its bounds "
            f"{bounds.low[cell]:.6g} and {bounds.high[cell]:.6g}: correct either"
        )
