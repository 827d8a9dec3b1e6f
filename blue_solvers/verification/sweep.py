"""One pass of sums from the leaves of a spine to its root: no list of counts, any part of the spine by itself.

Whatever a residual says of a coarse cell it says of every fine cell within, so it may be moved there; and what the
residuals of the parts of a cell have in common may be moved to that cell. Neither changes what the residuals say of
the counts. What is left after moving is the bound, wherever it lies; at the best estimate nothing is. What is left in a
cell that was not measured, or worse than all cells below it together, is moved back to these.

Sums of the leaves' figures come up with it, in extended precision, and are compared with the figures above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from blue_solvers.verification.family_sums import RUN, family_sums
from blue_solvers.verification.layers import Below, Layer, Sheet
from blue_solvers.verification.sums import Sum
from blue_solvers.verification.tally import Tally
from blue_solvers.verification.ties import added
from blue_solvers.verification.time_limit import require_time
from blue_solvers.verification.weighed_noise import ROUNDING, NotCertifiedError
from constraint_builders.arrays import Float, Index, Long

WIDE = 256  # cells of a geounit from which families are worth a loop
CHUNK, LARGEST_CHUNK = 2**17, 2**19  # cells worked on at a time: more where there are many, which costs fewer calls
MANY = 128  # of such pieces from which they grow: what they take is little beside the cells themselves
MOST_CAREFUL = 3_000_000  # cells of a geolevel up to which what tightens the bound is worth its time
UNIT = 0.501 * float(np.finfo(np.longdouble).eps)  # by which a sum is rounded at most; the rest is for sums of such
Place = slice | NDArray[np.intp]


def sweep(layers: Sequence[Layer], finish: bool = True) -> Tally:
    """What is left, and what disagrees, of all layers; without `finish` the first one's residuals stay to be moved on.

    Then `layers[0].below` holds all that is to be known of it above.
    """
    tally = Tally()
    for level in reversed(range(len(layers))):
        layer, above = layers[level], layers[level - 1] if level else None
        tally.has_empty |= layer.dead is not None
        for sheet in layer.sheets:
            tally.note(sheet.key, (sheet.variance if sheet.least is None else sheet.least)[~layer.elsewhere])
        onward: tuple[Sum, Below] | None = None
        if above is not None and layer.upward is not None:
            above.below = above.below or nothing(above)
            onward = layer.upward, above.below
        for here in _families(layer):
            require_time()
            residuals, g, size = _collected(layer, here, tally)
            true, norms, error = _sums(layer, here, tally)
            if onward is not None:
                size += _give(layer, *onward, here, g)
                _add_up(layer, *onward, here, true, norms, error)
            elif not finish:
                _hand_over(layer, here, g, true, error)
                continue
            _leave(layer, here, residuals, g, size, tally)
        if level or finish:
            layer.below = None
    return tally


def nothing(layer: Layer) -> Below:
    """Room for what comes up from below."""
    shape = layer.rows, layer.sheets[0].table.size
    return Below(np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.longdouble), np.zeros((layer.rows, 2)))


def _families(layer: Layer) -> Iterator[Place]:
    """Geounits of the same parents, together; a view where they follow one another."""
    order = np.argsort(layer.parent, kind="stable")
    starts = np.flatnonzero(np.diff(layer.parent[order], prepend=-2))
    stops = np.append(starts[1:], order.size)
    width = layer.sheets[0].table.size
    most, first = max(1, max(CHUNK, min(LARGEST_CHUNK, order.size * width // MANY)) // width), 0
    while first < starts.size:
        last = max(first + 1, int(np.searchsorted(stops, starts[first] + most, side="right")))
        chosen = order[starts[first] : stops[last - 1]]
        together = chosen[-1] - chosen[0] + 1 == chosen.size and bool((np.diff(chosen) == 1).all())
        yield slice(int(chosen[0]), int(chosen[-1]) + 1) if together else chosen
        first = last


def _variance(layer: Layer, here: Place) -> Float:
    """Of the finest table, or of what is below where that is less; 0 where it is known in all parts, or empty."""
    variance = _cost(layer.sheets[0], here)
    if layer.dead is not None:
        variance = np.where(layer.dead[here] & ~layer.has_below[here, None], 0.0, variance)
    if layer.below is not None:
        variance = np.where(layer.has_below[here, None], np.minimum(variance, layer.below.variance[here]), variance)
    return variance


def _collected(layer: Layer, here: Place, tally: Tally) -> tuple[list[Float | None], Float, Float]:
    """Residuals of all tables, all in the finest now; that; and the size of what was added up in every geounit."""
    read = np.where(layer.elsewhere[here], 0.0, 1.0)[:, None]
    found: dict[int, Float | None] = {}

    def own(j: int) -> Float | None:  # read when it is needed, and let go when it is moved
        if j not in found:
            found[j] = _residuals(layer.sheets[j], here, read, tally)
        return found[j]

    size = np.zeros(len(read))
    for j in reversed(range(1, len(layer.sheets))):
        part, (i, s) = own(j), layer.sums[j - 1]
        found[j] = None
        if part is None or not part.any():
            continue
        size += np.sqrt(layer.sheets[0].table.size / layer.sheets[j].table.size) * _norms(part)
        into = own(i)
        if into is None:
            into = found[i] = np.zeros((len(part), layer.sheets[i].table.size))
        shaped = into.reshape(len(into), *s.fine)
        shaped += s.up(part)
    finest = own(0)
    if finest is None:
        finest = found[0] = np.zeros((len(read), layer.sheets[0].table.size))
    if layer.below is not None:
        finest += layer.below.share[here]
        size += _norms(layer.below.share[here])
    return [found.get(j) for j in range(len(layer.sheets))], finest, size + _norms(finest)


def _residuals(sheet: Sheet, here: Place, read: Float, tally: Tally) -> Float | None:
    """(y - x) / variance of a table, a new array; None where nothing was measured."""
    if sheet.rho is not None:
        return np.array(sheet.rho[here])
    if sheet.y is None or sheet.x is None:
        return None
    variance = sheet.variance[here]
    measured = np.isfinite(variance) & (variance > 0)
    if not measured.any():
        return None
    precision = np.divide(read, variance, out=np.zeros_like(variance), where=measured)
    q = sheet.y[here] - sheet.x[here]
    if not np.isfinite(variance).all():
        np.copyto(q, 0.0, where=~measured)
    if precision.shape[1] == 1:
        tally.weighted += float(np.einsum("ij,ij->i", q, q) @ precision[:, 0]) * (6 * ROUNDING) ** 2
    else:
        tally.weighted += float(np.einsum("ij,ij,ij->", q, q, precision)) * (6 * ROUNDING) ** 2
    q *= precision
    if sheet.tied is not None:
        tally.weighted += sheet.tied.pull(q, variance, here)
    return q


def _sums(layer: Layer, here: Place, tally: Tally) -> tuple[Float | Long, Float, Float]:
    """Sums of the leaves' figures in the finest table, their sizes and roundings; others are compared."""
    sheet, below, rows = layer.sheets[0], layer.below, ~layer.elsewhere[here]
    claimed = None if sheet.x is None else sheet.x[here]
    error = np.zeros((rows.size, 2))
    if below is None:
        if claimed is None:
            raise NotCertifiedError(f"no table at {layer.name} holds all others")
        true: Float | Long = claimed
        if layer.dead is not None:
            true = np.where(layer.dead[here], 0.0, claimed)
    else:
        error = below.error[here]
        true = below.total[here]
        inside = layer.has_below[here]
        if not inside.all():
            outside = np.nan if claimed is None else claimed[~inside]
            true[~inside] = outside if layer.dead is None else np.where(layer.dead[here][~inside], 0.0, outside)
        if claimed is not None and np.isnan(true).any():
            true = np.where(np.isnan(true), claimed, true)
    if claimed is not None and (true is not claimed or (sheet.variance[here] == 0).any()):
        _compare(layer, 0, here, rows, true, error[:, 0], tally)
    elif claimed is not None:
        tally.look_at(claimed)
        if sheet.tied is not None:
            tally.tied = added(tally.tied, sheet.tied.sums(here, claimed, None))
    careful = _is_small(layer) or below is not None or layer.dead is not None  # figures may be known exactly
    norms, precision = _norms(true), np.longdouble if careful else np.float64
    unit = UNIT if precision is np.longdouble else ROUNDING / 2
    sums, adds, sources = {0: true}, [0], {i for i, _ in layer.sums}
    for j, (i, s) in enumerate(layer.sums, 1):
        total = s.down(sums[i], precision)
        if j in sources:
            sums[j] = total
        adds.append(adds[i] + s.adds + 1)
        ratio = sheet.table.size / layer.sheets[j].table.size
        lost = unit * adds[j] * np.sqrt(ratio) * norms
        _compare(layer, j, here, rows, total, np.minimum(ratio * error[:, 0], error[:, 1]) + lost, tally)
    return true, norms, error


def _is_small(layer: Layer) -> bool:
    return layer.rows * layer.sheets[0].table.size <= MOST_CAREFUL


def _compare(
    layer: Layer, j: int, here: Place, rows: NDArray[np.bool_], true: Float | Long, error: Float, tally: Tally
) -> None:
    """Judge the claimed figures of a table."""
    sheet = layer.sheets[j]
    if sheet.x is None:
        return
    x, every = sheet.x[here], bool(rows.all())
    off = x - true
    if j and np.isnan(off).any() and not np.isnan(x[np.isnan(off)]).all():
        raise NotCertifiedError(f"table {sheet.table.name!r} at {layer.name} has cells below that nothing is said of")
    if sheet.tied is not None:
        tally.tied = added(tally.tied, sheet.tied.sums(here, x, abs(off).astype(float) + error[:, None]))
    variance = sheet.variance[here]
    least = variance if sheet.least is None else sheet.least[here]
    y = None if sheet.y is None else sheet.y[here]
    if j == 0 and layer.dead is not None:
        empty = layer.dead[here] & ~layer.has_below[here, None]
        variance, least = np.where(empty, 0.0, variance), np.where(empty, 0.0, least)
        y = None if y is None else np.where(empty & (sheet.variance[here] > 0), 0.0, y)
    if not every:
        off, error, x, variance, least = off[rows], error[rows], x[rows], variance[rows], least[rows]
        y = None if y is None else y[rows]
    tally.judge(sheet.key, layer.alone[here][rows], variance, least, off, error, x, y)


def _starts(parents: Index) -> Index:
    return np.flatnonzero(np.diff(parents, prepend=-2))


def _give(layer: Layer, s: Sum, room: Below, here: Place, g: Float) -> Float:
    """Move what siblings have in common to their parent; its size in every geounit."""
    parents = layer.parent[here]
    starts = _starts(parents)
    counts = np.diff(np.append(starts, parents.size))
    variance = _variance(layer, here)
    total = whole = s.weights(np.add.reduceat(variance, starts, axis=0))
    fixed = [_cost(sheet, here).min(axis=1) == 0 for sheet in layer.sheets[1:]]
    if any(own.any() for own in fixed):
        bound = np.any(fixed, axis=0)
        others = np.repeat(np.add.reduceat(~bound, starts), counts) > 0
        uncertain = np.broadcast_to((variance > 0) & np.isfinite(variance), g.shape)
        common = np.repeat(np.logical_and.reduceat(uncertain, starts, axis=0), counts, axis=0).astype(float)
        for (i, own), rows in zip(layer.direct, fixed, strict=True):
            _drop(own, g, common, _cost(layer.sheets[i], here), rows & ~others)
        unseen = (bound & others)[:, None] & np.isfinite(variance)  # what these share with others
        variance = np.where(unseen, 0.0, variance)
        total = s.weights(np.add.reduceat(variance, starts, axis=0))
    families = [slice(a, b) for a, b in pairwise([*starts.tolist(), parents.size])]
    known = np.isfinite(variance)
    if g.shape[1] >= WIDE and variance.shape[1] == 1 and known.all():
        weighed = np.stack([variance[family, 0] @ g[family] for family in families])
    else:
        of_each = g * variance if known.all() else np.where(known, g, 0.0) * np.where(known, variance, 0.0)
        weighed = np.add.reduceat(of_each, starts, axis=0)
    share = s.down(weighed)
    share *= np.divide(1.0, total, out=np.zeros_like(total), where=(total > 0) & np.isfinite(total))
    room.share[parents[starts]] = share
    room.variance[parents[starts]] = whole
    spread = np.broadcast_to(s.up(share), (starts.size, *s.fine)).reshape(starts.size, -1)
    if g.shape[1] >= WIDE:
        for family, row in zip(families, spread, strict=True):
            g[family] -= row
    else:
        g -= np.repeat(spread, counts, axis=0)
    return np.repeat(_norms(share), counts) * np.sqrt(s.ratio)


def _drop(s: Sum, g: Float, weight: Float, cost: Float, rows: NDArray[np.bool_]) -> None:
    """Move to a table that is known exactly what it takes at no cost: a weighted mean."""
    if not rows.any():
        return
    total = s.down(weight[rows])
    share = s.down(g[rows] * weight[rows]) * np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    share = np.where(cost[rows] == 0, share, 0.0)
    g[rows] -= np.broadcast_to(s.up(share), (len(share), *s.fine)).reshape(len(share), -1)


def _add_up(layer: Layer, s: Sum, below: Below, here: Place, true: Float | Long, norms: Float, error: Float) -> None:
    """Add the leaves' figures to those of the parents."""
    parents = layer.parent[here]
    starts = _starts(parents)
    summed = family_sums(true, starts, compile_it=not _is_small(layer))
    below.total[parents[starts]] = s.down(summed)
    counts = np.diff(np.append(starts, parents.size))
    adds = np.minimum(counts, RUN) + counts // RUN + s.adds + 2
    lost = UNIT * adds * np.add.reduceat(norms, starts)
    each, together = np.add.reduceat(error, starts, axis=0).T
    of_each = np.minimum(s.ratio * each, together) + np.sqrt(s.ratio) * lost
    of_all = together + np.sqrt(true.shape[1]) * lost
    below.error[parents[starts]] = np.stack([of_each, of_all], axis=1)


def _hand_over(layer: Layer, here: Place, g: Float, true: Float | Long, error: Float) -> None:
    """Put everything that is known of geounits where a tree above takes it up."""
    if layer.below is None:
        layer.below = nothing(layer)
    if not layer.has_below[here].all():
        empty = False if layer.dead is None else layer.dead[here]
        cost = np.where(empty, 0.0, np.inf)
        layer.below.variance[here] = np.where(layer.has_below[here, None], layer.below.variance[here], cost)
    layer.below.share[here], layer.below.total[here], layer.below.error[here] = g, true, error


def _leave(layer: Layer, here: Place, residuals: list[Float | None], finest: Float, size: Float, tally: Tally) -> None:
    """Leave residuals where they are, but for what tables known better take."""
    variance = _variance(layer, here)
    small = _is_small(layer)
    for j, own_sum in layer.direct:
        cost = _cost(layer.sheets[j], here)
        if (cost == 0).any():
            weight = np.broadcast_to(np.where(np.isfinite(variance), variance, 0.0), finest.shape)
            _drop(own_sum, finest, weight, cost, cost.min(axis=1) == 0)
    for j, (i, s) in enumerate(layer.sums, 1):
        own, g = _cost(layer.sheets[j], here), residuals[i]
        if g is None or np.isinf(own).all() or not (small or (own == 0).any()):
            continue
        weight = variance if i == 0 else _cost(layer.sheets[i], here)
        weight = np.where(np.isfinite(weight), weight, 0.0)
        total = s.weights(weight) + own
        share = s.down(g * weight)
        share *= np.divide(1.0, total, out=np.zeros_like(total), where=(total > 0) & np.isfinite(total))
        residuals[j] = share
        shaped = g.reshape(len(g), *s.fine)
        shaped -= s.up(share)
        size = size + np.sqrt(s.ratio) * _norms(share)
    measured, is_own = layer.sheets[0].variance[here], layer.below is None and layer.dead is None
    for j, g in enumerate(residuals):
        if g is None:
            continue
        own = variance if j == 0 else _cost(layer.sheets[j], here)
        square = _weighed(g, own)
        left = layer.sheets[j].left
        if j or is_own or not (back := own < measured).any():
            tally.left += float(square.sum())
            if left is not None:
                left[here] = np.where(own == layer.sheets[j].variance[here], g, 0.0)
        else:
            back = np.broadcast_to(back, g.shape)
            returned = float(_weighed(np.where(back, g, 0.0), own).sum())
            tally.returned[layer.name] = tally.returned.get(layer.name, 0.0) + returned
            tally.left += float(_weighed(np.where(back, 0.0, g), own).sum())
            if left is not None:
                left[here] = np.where(back, 0.0, g)
    steepest = variance.max(axis=1)
    adds = 2 * (len(layer.sheets) + 4)
    moved = np.where(size > 0, size, 0.0)
    rounding = np.where(moved > 0, steepest, 0.0) * (adds * ROUNDING * moved) ** 2
    tally.rounding[layer.name] = tally.rounding.get(layer.name, 0.0) + float(rounding.sum())


def _cost(sheet: Sheet, here: Place) -> Float:
    """Variance of a table, 0 where it is known exactly in all parts."""
    variance = sheet.variance[here]
    return variance if sheet.known is None else np.where(sheet.known[here, None], 0.0, variance)


def _weighed(g: Float, variance: Float) -> Float:
    """Squares in variances, by row; nothing is nothing however large a variance is."""
    if not np.isfinite(variance).all():
        with np.errstate(invalid="ignore"):
            return np.where(g == 0, 0.0, g**2 * variance).sum(axis=1)
    if variance.shape[1] == 1:
        return np.einsum("ij,ij->i", g, g) * variance[:, 0]
    return np.einsum("ij,ij,ij->i", g, g, variance)


def _norms(values: Float | Long) -> Float:
    """By row; cells that nothing is said of count as 0."""
    squares = np.einsum("ij,ij->i", values, values).astype(float)
    return (
        np.sqrt(squares) if not np.isnan(squares).any() else np.linalg.norm(np.nan_to_num(values).astype(float), axis=1)
    )
