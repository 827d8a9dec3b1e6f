"""How far tables are from the sums of the finest ones below them, and what that is in standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from blue_solvers.verification.sums import Sum
from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise, pieces, reciprocal
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.relations.marginals import refines

if TYPE_CHECKING:
    from blue_solvers.verification.finest import Level

CHUNK = 2**18
EXTENDED = float(np.finfo(np.longdouble).eps)
EXACT_TO = 1e-13  # of the largest figure: how far figures that are known exactly may be off, rounding of their sums


def off_the_sums(problem: Problem, level: Level, x: Float, v: Float) -> None:
    """Fill `v` for a level, levels coming from the leaves up: x less the sums of the finest tables of the leaves.

    Sums are in extended precision; what that may lose is added.
    """
    rows, cut = level.members.size, problem.observed.block
    finest = x[cut(level.finest)].reshape(rows, -1)
    below, off = level.below, None
    if below is not None:
        off = np.where(below.met[:, None], finest - below.total, 0)
        v[cut(level.finest)] = (abs(off) + below.error).ravel()
    holder, to_holder = level.holder, level.to_holder
    sums = [(Below.nothing(s, v[cut(j)].size), s, inside) for j, s, inside in level.above]
    if holder is not None and to_holder is not None:
        holder.below = Below.nothing(to_holder, v[cut(holder.finest)].size)
        sums.append((holder.below, to_holder, level.parent))
    for here in _chunks(finest):
        true = finest[here].astype(np.longdouble)
        if off is not None:
            true -= off[here]
        sizes = abs(finest[here])
        error = sizes * EXTENDED if below is None else sizes * EXTENDED + below.error[here]
        for j, s in level.others:
            rounding = s.most(error) + s.adds * EXTENDED * s.most(sizes)
            v[cut(j)].reshape(rows, -1)[here] = abs(x[cut(j)].reshape(rows, -1)[here] - s.down(true)) + rounding
        for total, s, inside in sums:
            total.add(s, true, sizes, None if below is None else error, inside[here])
    for (total, _, _), (j, _, _) in zip(sums, level.above, strict=False):
        apart = abs(x[cut(j)].reshape(total.total.shape) - total.total) + total.error
        v[cut(j)].reshape(total.total.shape)[total.met] = apart[total.met]


@dataclass
class Below:
    """Sums over the leaves below geounits, how far rounding may have moved them, and which geounits have any."""

    total: NDArray[np.longdouble]
    error: Float
    met: NDArray[np.bool_]

    @classmethod
    def nothing(cls, to: Sum, size: int) -> Below:
        """Zeros for all geounits of a table of so many cells."""
        cells = int(np.prod(to.coarse))
        shape = (size // cells, cells)
        return cls(np.zeros(shape, dtype=np.longdouble), np.zeros(shape), np.zeros(shape[0], dtype=bool))

    def add(
        self, s: Sum, true: NDArray[np.longdouble], sizes: Float, error: Float | None, into: NDArray[np.intp]
    ) -> None:
        """Add rows to their geounits, runs of one geounit at once."""
        starts = np.flatnonzero(np.diff(into, prepend=into[0] - 1))
        kept = into[starts] >= 0
        adds = np.diff(np.append(starts, into.size))[:, None] + s.adds + 2
        lost = EXTENDED * adds * s.down(np.add.reduceat(sizes, starts, axis=0))
        if error is not None:
            lost += s.down(np.add.reduceat(error, starts, axis=0))
        np.add.at(self.error, into[starts][kept], lost[kept])
        np.add.at(self.total, into[starts][kept], s.down(np.add.reduceat(true, starts, axis=0))[kept])
        self.met[into[starts][kept]] = True


def _chunks(finest: Float) -> list[slice]:
    step = CHUNK // finest.shape[1] + 1
    return [slice(start, start + step) for start in range(0, finest.shape[0], step)]


def judged(problem: Problem, noise: WeighedNoise, y: Float, x: Float, v: Float, bound: float) -> tuple[float, float]:
    """The bound with the disagreement `v` of every cell, and the largest disagreement, both in standard errors.

    Of one count alone, or of two where a nested family of tables is known exactly, the information says from below
    what a figure's standard error can be.
    """
    scale = max((float(np.nanmax(abs(x[here]), initial=0.0)) for here in pieces(x.size)), default=0.0)
    wrong = corrected = figures = violation = 0.0
    for here in pieces(v.size):
        part = np.nan_to_num(np.abs(v[here], out=v[here]), copy=False)
        violation = max(violation, float((part * reciprocal(noise.sd[here])).max()))
        fixed = problem.exact[here]
        if fixed.any():
            against = abs(x[here] - y[here])[fixed]
            wrong = max(wrong, float(against.max()), float(part[fixed].max()))
            corrected += float(part[fixed].sum() + against.sum())
        figures = max(figures, float(part[~fixed].max(initial=0.0)))
    if wrong > EXACT_TO * scale:
        raise NotCertifiedError(f"x contradicts what is known exactly by {wrong:.3g}")
    information = 0.0
    for i in range(len(problem.observed_tables)):
        least = noise.least[problem.observed.block(i)]
        lowest = float(least.min() or least.min(where=least > 0, initial=np.inf))
        information += 1 / lowest**2
    known_exactly = bool(problem.exact.any())
    if known_exactly and not _nested(problem):
        raise NotCertifiedError("tables are known exactly that do not nest: the least standard errors are not known")
    direction = np.sqrt(information) * (2 if known_exactly else 1)
    return bound + noise.inverse_size(v) + (corrected + figures) * direction, violation


def _nested(problem: Problem) -> bool:
    """Whether of any two tables with exactly known cells one contains the other, the same way as their levels do."""
    tables, levels = problem.observed_tables, problem.observed_levels
    known = [i for i in range(len(tables)) if problem.exact[problem.observed.block(i)].any()]
    known.sort(key=lambda i: (levels[i], tables[i].size))
    return all(refines(problem.domain.schema, tables[b], tables[a]) for a, b in pairwise(known))
