"""How far tables are from the sums of the finest ones below them, and what that is in standard errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from blue_solvers.verification.noise import Noise, NotCertified
from constraint_builders import Problem
from constraint_builders.marginals import refines

if TYPE_CHECKING:
    from blue_solvers.verification.finest import Level

Float = NDArray[np.float64]
CHUNK = 2**18
EXTENDED = float(np.finfo(np.longdouble).eps)
EXACT_TO = 1e-13  # of the largest figure: how far figures that are known exactly may be off, rounding of their sums


def off_the_sums(problem: Problem, level: Level, x: Float, v: Float) -> None:
    """Fill `v` for a level, levels coming from the leaves up: x less the sums of the finest tables of the leaves."""
    rows, cut = level.members.size, problem.observed.block
    finest = x[cut(level.finest)].reshape(rows, -1)
    if level.summed is not None:
        parts = np.flatnonzero(np.bincount(level.has_parts, minlength=rows)) if level.has_parts.size else []
        level.off = np.zeros(finest.shape, dtype=np.longdouble)
        level.off[parts] = finest[parts] - level.summed[parts]
        v[cut(level.finest)] = level.off.ravel()
        level.summed = None
    step = max(1, CHUNK // finest.shape[1])
    if level.others or level.above or level.holder is not None:
        _prepare(level)
        between = [np.zeros((x[cut(j)].size // s_size(s), s_size(s)), dtype=np.longdouble) for j, s, _ in level.above]
        for start in range(0, rows, step):
            here = slice(start, start + step)
            true = finest[here].astype(np.longdouble)
            if level.off is not None:
                true -= level.off[here]
            for j, s in level.others:
                v[cut(j)].reshape(rows, -1)[here] = x[cut(j)].reshape(rows, -1)[here] - s.down(true)
            for total, (_, s, inside) in zip(between, level.above, strict=True):
                below = inside[here] >= 0
                np.add.at(total, inside[here][below], s.down(true[below]))
            if level.holder is not None and level.to_holder is not None and level.holder.summed is not None:
                _add_up(level, true, here)
        for total, (j, _, inside) in zip(between, level.above, strict=True):
            places = np.unique(inside[inside >= 0])
            v[cut(j)].reshape(total.shape)[places] = x[cut(j)].reshape(total.shape)[places] - total[places]


def s_size(s: object) -> int:
    """Cells of a sum's coarse table."""
    return int(np.prod(s.coarse))  # type: ignore[attr-defined]


def _prepare(level: Level) -> None:
    if level.holder is not None and level.to_holder is not None:
        level.holder.summed = np.zeros((level.holder.members.size, s_size(level.to_holder)), dtype=np.longdouble)
        level.holder.has_parts = level.parent[level.parent >= 0]


def _add_up(level: Level, true: NDArray[np.longdouble], here: slice) -> None:
    """Add rows to their holders, runs of siblings at once."""
    assert level.holder is not None
    assert level.holder.summed is not None
    assert level.to_holder is not None
    parent = level.parent[here]
    starts = np.flatnonzero(np.diff(parent, prepend=parent[0] - 1))
    runs = level.to_holder.down(np.add.reduceat(true, starts, axis=0))
    kept = parent[starts] >= 0
    np.add.at(level.holder.summed, parent[starts][kept], runs[kept])


def judged(problem: Problem, noise: Noise, y: Float, x: Float, v: Float, bound: float) -> tuple[float, float]:
    """The bound with the disagreement `v` of every cell, and the largest disagreement, both in standard errors.

    Of one count alone, or of two where a nested family of tables is known exactly, the information says from below
    what a figure's standard error can be.
    """
    v = np.where(np.isnan(v), 0.0, abs(v))
    scale = float(np.nanmax(abs(x), initial=0.0))
    v += 64 * EXTENDED * scale
    exact = problem.exact
    wrong = max(float(abs(x - y)[exact].max(initial=0.0)), float(v[exact].max(initial=0.0)))
    if wrong > EXACT_TO * scale:
        raise NotCertified(f"x contradicts what is known exactly by {wrong:.3g}")
    information = 0.0
    for i in range(len(problem.observed_tables)):
        least = noise.least[problem.observed.block(i)]
        lowest = float(least.min(where=least > 0, initial=np.inf))
        information += 1 / lowest**2
    nested = _nested(problem)
    direction = np.sqrt(information) * (2 if exact.any() else 1)
    if not nested:
        raise NotCertified("tables are known exactly that do not nest: the least standard errors are not known")
    corrected = float(v[exact].sum() + abs(x - y)[exact].sum()) * direction
    size = noise.inverse_size(v)
    violation = float(np.divide(v, noise.sd, out=np.zeros_like(v), where=noise.noisy).max(initial=0.0))
    figures = float(v[~exact].max(initial=0.0)) * direction
    return bound + size + corrected + figures, violation


def _nested(problem: Problem) -> bool:
    """Whether of any two tables with exactly known cells one contains the other, the same way as their levels do."""
    assert problem.schema is not None
    tables = problem.observed_tables
    levels = problem.observed_levels or (0,) * len(tables)
    known = [i for i in range(len(tables)) if problem.exact[problem.observed.block(i)].any()]
    known.sort(key=lambda i: (levels[i], tables[i].size))
    return all(refines(problem.schema, tables[b], tables[a]) for a, b in zip(known, known[1:], strict=False))
