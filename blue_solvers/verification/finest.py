"""Certificates where one measured table contains all others, at every place: no list of counts, one pass of sums.

Whatever a residual says of a coarse cell it says of every fine cell within, so it may be moved there; and what the
residuals of the parts of a cell have in common may be moved to that cell. Neither changes what the residuals say of
the counts. What is left after moving is the bound, wherever it lies; at the best estimate nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from blue_solvers.verification.agreement import Below, judged, off_the_sums
from blue_solvers.verification.sums import Sum
from blue_solvers.verification.weighed_noise import ROUNDING, WeighedNoise
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.relations.marginals import refines

CHUNK = 2**18  # cells worked on at a time
MOST_KEPT = 3_000_000  # cells of a geolevel up to which its coarser tables take their share, which tightens the bound

_Given = tuple[Float, Sum]  # what a holder is given, and how its table is summed from that of its parts


@dataclass
class Level:
    """A geolevel whose finest table holds what is moved there.

    Attributes
    ----------
    members : ndarray of int, (G,)
    finest : int
        Its position among the observed tables.
    others : list of (int, Sum)
        The level's other tables, coarsest first.
    above : list of (int, Sum, ndarray)
        Tables of levels that hold nothing, between this one and its holder: which of their geounits each member is in.
    holder : Level or None
        The next level above that holds; its geounit is `parent` of each member, -1 at the root.
    """

    members: NDArray[np.intp]
    finest: int
    others: list[tuple[int, Sum]]
    above: list[tuple[int, Sum, NDArray[np.intp]]] = field(default_factory=list)
    holder: Level | None = None
    parent: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    to_holder: Sum | None = None
    given: Float | None = None  # what its parts have in common, moved here
    below: Below | None = None


def levels_of(problem: Problem) -> list[Level] | None:
    """The levels from the leaves up; None where no table contains all others of a level, and all above."""
    if not problem.is_tabular or problem.equalities is not None or problem.zeros is not None:
        return None
    schema, spine = problem.domain.schema, problem.domain.spine
    tables, level_of = problem.observed_tables, problem.observed_levels
    holding: dict[int, Level] = {}
    for level, members in enumerate(spine.members):
        own = [i for i, at in enumerate(level_of) if at == level]
        over = [i for i, at in enumerate(level_of) if at <= level]
        for i in own:
            whole = not problem.unmeasured[problem.observed.block(i)].any()
            if whole and all(refines(schema, tables[i], tables[j]) for j in over):
                others = sorted((j for j in own if j != i), key=lambda j: tables[j].size)
                holding[level] = Level(members, i, [(j, Sum(schema, tables[i], tables[j])) for j in others])
                break
    leaves = spine.child_counts == 0
    if any(level not in holding for level in np.unique(spine.level_of[leaves]).tolist()):
        return None
    for level, here in holding.items():
        if not _place(problem, holding, level, here):
            return None
    return [holding[level] for level in sorted(holding, reverse=True)]


def _place(problem: Problem, holding: dict[int, Level], level: int, here: Level) -> bool:
    """Find the holders of a level and what lies between; whether all its members have theirs at one level."""
    schema, spine = problem.domain.schema, problem.domain.spine
    holds = np.isin(spine.level_of, list(holding))
    tables = problem.observed_tables
    at = spine.parent[here.members]
    while ((at >= 0) & ~holds[at]).any():
        open_ = (at >= 0) & ~holds[at]
        for between in np.unique(spine.level_of[at[open_]]).tolist():
            inside = np.where(open_ & (spine.level_of[at] == between), spine.rank_in_level[at], -1)
            for j in (j for j, own in enumerate(problem.observed_levels) if own == between):
                here.above.append((j, Sum(schema, tables[here.finest], tables[j]), inside))
        at = np.where(open_, spine.parent[at], at)
    found = np.unique(spine.level_of[at[at >= 0]])
    if found.size > 1:
        return False
    if found.size:
        here.holder = holding[int(found[0])]
        here.to_holder = Sum(schema, tables[here.finest], tables[here.holder.finest])
        if any(other.holder is here.holder and other is not here for other in holding.values()):
            return False
    here.parent = np.where(at >= 0, spine.rank_in_level[at], -1)
    return True


def certify_by_finest(
    problem: Problem, noise: WeighedNoise, levels: list[Level], y: Float, x: Float
) -> tuple[float, float]:
    """Bound and violation, both in standard errors. Works in the residuals' own memory."""
    rho, off = noise.weighted(np.subtract(y, x))
    bound = off + _moved(problem, noise, levels, rho)
    v = np.zeros(x.size)
    for level in levels:
        off_the_sums(problem, level, x, v)
    return judged(problem, noise, y, x, v, bound)


def _moved(problem: Problem, noise: WeighedNoise, levels: list[Level], rho: Float) -> float:
    """What is left of the residuals, in the norm of the noise, with the rounding of moving them."""
    left = None if noise.correlated is None else np.zeros(rho.size)
    square, rounding = 0.0, 0.0
    for level in levels:
        own, error = _move_level(problem, noise, level, rho, left)
        square, rounding = square + own, rounding + error
    kept = np.sqrt(square) * (1 + rho.size * ROUNDING) if left is None else noise.size(left)
    return float(kept + (rounding if left is None else rounding * np.sqrt(rho.size)))


def _move_level(
    problem: Problem, noise: WeighedNoise, level: Level, rho: Float, left: Float | None
) -> tuple[float, float]:
    """Move residuals into the finest table, what siblings share to their holder; the squared size of the rest."""
    rows, cut = level.members.size, problem.observed.block
    finest = rho[cut(level.finest)].reshape(rows, -1)
    sd = noise.sd[cut(level.finest)].reshape(rows, -1)
    kept = [(j, s, np.zeros((rows, problem.observed_tables[j].size))) for j, s in _takers(noise, level, problem, rows)]
    into: _Given | None = None
    if level.holder is not None and level.to_holder is not None:
        into = np.zeros((level.holder.members.size, int(np.prod(level.to_holder.coarse)))), level.to_holder
        level.holder.given = into[0]
    order = np.argsort(level.parent, kind="stable")
    parents, starts = np.unique(level.parent[order], return_index=True)
    stops = np.append(starts[1:], rows)
    square, terms, first = 0.0, 0.0, 0
    while first < parents.size:
        last = first + 1
        while last < parents.size and (stops[last] - starts[first]) * finest.shape[1] <= CHUNK:
            last += 1
        chosen = order[starts[first] : stops[last - 1]]
        together = chosen[-1] - chosen[0] + 1 == chosen.size and bool((np.diff(chosen) == 1).all())
        here = slice(int(chosen[0]), int(chosen[-1]) + 1) if together else chosen  # a view rather than a copy
        g, size = _gathered(problem, level, rho, finest, sd, here)
        weight = sd[here]
        if parents[first] >= 0 and into is not None:
            size += _give(into, g, weight, parents[first:last], starts[first:last] - starts[first])
        for _, s, found in kept:
            size += _take(s, g, weight, found, here)
        if left is not None:
            left[cut(level.finest)].reshape(rows, -1)[here] = g
        np.multiply(g, weight, out=g)
        square += float(np.vdot(g, g))
        terms += size
        first = last
    for j, _, found in kept:
        if left is not None:
            left[cut(j)] = found.ravel()
        square += float((np.square(noise.sd[cut(j)]) * found.ravel() ** 2).sum())
    adds = 2 * (len(level.others) + len(level.above) + len(kept)) + 8
    return square, adds * ROUNDING * terms


def _takers(noise: WeighedNoise, level: Level, problem: Problem, rows: int) -> list[tuple[int, Sum]]:
    """Tables that take a share: all of a small level, of a large one those that are known exactly."""
    small = rows * problem.observed_tables[level.finest].size <= MOST_KEPT
    measured = [(j, s) for j, s in level.others if not problem.unmeasured[problem.observed.block(j)].any()]
    return [(j, s) for j, s in measured if small or problem.exact[problem.observed.block(j)].all()]


def _gathered(
    problem: Problem, level: Level, rho: Float, finest: Float, sd: Float, here: slice | NDArray[np.intp]
) -> tuple[Float, float]:
    """Residuals of some geounits in their finest table, and the size of what was added up."""
    g = np.array(finest[here])
    steepest = float(sd[here].max(initial=0.0))
    size = _norm(g * sd[here])
    if level.given is not None:
        given = level.given[here]
        g += given
        size += steepest * _norm(given)
    shaped = g.reshape(g.shape[0], *problem.observed_tables[level.finest].shape)
    for j, s in level.others:
        part = rho[problem.observed.block(j)].reshape(level.members.size, -1)[here]
        if part.any():
            shaped += s.up(part)
            size += steepest * np.sqrt(s.ratio) * _norm(part)
    for j, s, inside in level.above:
        table = rho[problem.observed.block(j)].reshape(-1, problem.observed_tables[j].size)
        places = inside[here]
        part = np.where(places[:, None] >= 0, table[places], 0.0)
        shaped += s.up(part)
        size += steepest * np.sqrt(s.ratio) * _norm(part)
    return g, size


def _give(into: _Given, g: Float, sd: Float, parents: NDArray[np.intp], starts: NDArray[np.intp]) -> float:
    """Move what siblings have in common to their holder."""
    given, s = into
    counts = np.diff(np.append(starts, g.shape[0]))
    noisy = sd > 0
    if noisy.all():
        total = np.add.reduceat(g, starts, axis=0)
        share = s.down(total) / (counts[:, None] * s.ratio)
    else:
        total = np.add.reduceat(np.where(noisy, g, 0.0), starts, axis=0)
        many = s.down(np.add.reduceat(noisy.astype(float), starts, axis=0))
        share = s.down(total) / np.maximum(many, 1.0)
    given[parents] = share
    spread = s.up(share)
    shaped = g.reshape(g.shape[0], *s.fine)
    for row, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
        shaped[start : start + count] -= spread[row]
    return float(sd.max(initial=0.0)) * np.sqrt(counts.max() * s.ratio) * _norm(share)


def _take(s: Sum, g: Float, sd: Float, found: Float, here: slice | NDArray[np.intp]) -> float:
    """Move what the cells within each cell of a coarser table have in common to that table."""
    noisy = sd > 0
    share = s.down(np.where(noisy, g, 0.0)) / np.maximum(s.down(noisy.astype(float)), 1.0)
    found[here] = share
    shaped = g.reshape(g.shape[0], *s.fine)
    shaped -= s.up(share)
    return float(sd.max(initial=0.0)) * np.sqrt(s.ratio) * _norm(share)


def _norm(values: Float) -> float:
    return float(np.sqrt(np.vdot(values, values)))
