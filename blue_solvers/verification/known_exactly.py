"""What is known exactly, where sums over leaves do not follow it: multipliers, and directions that change none of it.

For any direction z of counts that changes nothing that is known exactly, a figure's variance is at least
z_i^2 / (z' M' Sigma^-1 M z), z_i what z makes of it: random ones say so, less what of them changes what is known.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers.verification.compensated_sums import add, spread
from blue_solvers.verification.placed_tables import PlacedTables
from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise, least_squares, reciprocal
from constraint_builders.arrays import Flags, Float

DIRECTIONS = 8
FIXED = 1e-9  # of what a direction moves: less is rounding, the figure is known exactly
MARGIN = 0.9
CLEAN = 1e-10  # of what a direction moves: what it may change of what is known exactly
CLEANINGS = 3


class LeafSums:
    """Figures as sums of the leaves' cells, and the transpose, in doubles.

    Cells are those of all leaves one after another, (N,). Where several tables hold all others, they stand for those
    that agree and are nearest, and shares for what is left of them once what tables have in common is moved together.

    Parameters
    ----------
    places : PlacedTables
    observed : int
        Number of observed figures, which come first; of some of their tables nothing may be said.

    Attributes
    ----------
    figures, size : int
        Number of figures, and of cells.
    free : ndarray of bool, (N,)
        Cells that are not known to be empty.
    cuts : list of (slice, (int, int))
        Of all groups of leaves where their cells are, and their shape.
    """

    def __init__(self, places: PlacedTables, observed: int) -> None:
        self._places = places
        self.figures = max([observed, *(sheet.place.stop for sheet in places.sheets)])
        shapes = [(some.rows.size, places.levels[some.level].width) for some in places.leaves]
        ends = np.cumsum([0, *(rows * width for rows, width in shapes)]).tolist()
        self.cuts, self.size = [(slice(a, b), s) for (a, b), s in zip(pairwise(ends), shapes, strict=True)], ends[-1]
        self.free: Flags = np.ones(self.size, dtype=bool)
        for (cut, _), some in zip(self.cuts, places.leaves, strict=True):
            if some.empty is not None:
                self.free[cut] = ~some.empty.ravel()

    def of_holders(self, figures: Float) -> Float:
        """Of figures, (n,), those of the leaves' own cells, (N,)."""
        found = np.empty(self.size)
        for (cut, shape), some in zip(self.cuts, self._places.leaves, strict=True):
            level, rows = self._places.levels[some.level], np.empty(shape)
            for holder, columns in enumerate(level.columns):
                sheet = level.own(holder)
                if sheet is None:
                    raise NotCertifiedError(f"no table at {level.name} holds all others")
                rows[:, columns] = figures[sheet.place].reshape(level.rows, -1)[some.rows]
            found[cut] = rows.ravel()
        return found

    def figures_of(self, cells: Float, power: int | None = None) -> Float:
        """(N,) to (figures,); with powers of the weights' sizes instead of these."""
        total = [level.room() for level in self._places.levels]
        for (cut, shape), some in zip(self.cuts, self._places.leaves, strict=True):
            own = cells[cut].reshape(1, *shape)
            if power is None and some.margins is not None:
                own = some.margins.agreeing(own)
            total[some.level][0][some.rows] = own[0]
            for above, reach in some.reach.items():
                add(own, reach if power is None else reach.to_power(power), total[above])
        found = np.zeros(self.figures)
        for level, whole in zip(self._places.levels, total, strict=True):
            for sheet in level.sheets:
                found[sheet.place] = level.sums_of(sheet, whole[:1])[0].ravel()
        return found

    def shares_of(self, figures: Float, power: int | None = None) -> Float:
        """(figures,), or the first of them, to (N,)."""
        said = [level.room() for level in self._places.levels]
        for level, own in zip(self._places.levels, said, strict=True):
            for sheet in level.sheets:
                if sheet.place.stop <= figures.size:
                    level.spread(sheet, figures[sheet.place].reshape(1, level.rows, -1), own)
        found = np.empty(self.size)
        for (cut, _), some in zip(self.cuts, self._places.leaves, strict=True):
            rows = said[some.level][:, some.rows]
            for above, reach in some.reach.items():
                spread(said[above][:1], reach if power is None else reach.to_power(power), rows)
            if power is None and some.margins is not None:
                rows, _ = some.margins.moved(rows[:1])
            found[cut] = rows[0].ravel()
        return found

    def with_others(self, amounts: Float) -> Float:
        """For every cell its own amount and the most in every other table that a count in it may have."""
        found = amounts.copy()
        for (cut, shape), some in zip(self.cuts, self._places.leaves, strict=True):
            if some.margins is not None:
                found[cut] = some.margins.with_others(amounts[cut].reshape(shape)).ravel()
        return found


def _weighted(sums: LeafSums, known: sparse.csr_array, weights: Float) -> tuple[LinearOperator, Float]:
    """What cells, in units of the roots of weights, change of what is known exactly, (k, N), and its rows' scale."""
    squares, root = abs(known).power(2) @ sums.figures_of(weights, power=2)[: known.shape[1]], np.sqrt(weights)
    scale = 1 / np.sqrt(np.where(squares > 0, squares, 1.0))

    def change(cells: Float) -> Float:
        return scale * (known @ sums.figures_of(root * cells.ravel())[: known.shape[1]])

    def share(multipliers: Float) -> Float:
        return root * sums.shares_of(known.T @ (scale * multipliers.ravel()))

    return LinearOperator((known.shape[0], sums.size), change, share, dtype=float), scale


def least_multipliers(sums: LeafSums, known: sparse.csr_array, weights: Float, left: Float) -> Float:
    """For which left - M' known' multipliers is least, cells weighted by `weights`, (N,).

    As near as iterations come: a certificate holds with any.
    """
    weighted, scale = _weighted(sums, known, weights)
    return scale * least_squares(weighted.T, np.sqrt(weights) * left)


def _least_move(sums: LeafSums, known: sparse.csr_array, weights: Float, amounts: Float) -> Float:
    """The least move of cells, beside `weights`, that changes what is known exactly by these amounts, (k,)."""
    weighted, scale = _weighted(sums, known, weights)
    return np.sqrt(weights) * least_squares(weighted, scale * amounts)


def moved_to_known(sums: LeafSums, noise: WeighedNoise, free: Flags, known: sparse.csr_array, off: Float) -> Float:
    """By how much figures move, (figures,), where cells are moved so that what is known, off by (k,), holds."""
    moved, spread, left = np.zeros(sums.figures), _spread(sums, noise, free), off
    for _ in range(CLEANINGS):
        tried = moved + sums.figures_of(_least_move(sums, known, spread, left))
        closer = off - known @ tried[: known.shape[1]]
        if np.linalg.norm(closer) >= np.linalg.norm(left):
            break
        moved, left = tried, closer
    return abs(moved)


def _spread(sums: LeafSums, noise: WeighedNoise, free: Flags) -> Float:
    """Of every free cell its variance, were all others known, (N,)."""
    information = sums.with_others(sums.shares_of(reciprocal(noise.least) ** 2, power=2))
    return np.divide(1.0, information, out=np.zeros_like(information), where=free & (information > 0))


def least_standard_errors(sums: LeafSums, noise: WeighedNoise, free: Flags, known: sparse.csr_array) -> Float:
    """Of every figure, (figures,); 0 where it may be known exactly."""
    precision, spread = reciprocal(noise.least) ** 2, _spread(sums, noise, free)
    if not known.shape[0]:  # a cell is such a direction for every figure that it is in, and so is their mean
        squares = sums.figures_of(spread, power=2)
        return MARGIN * np.sqrt(squares / np.maximum(sums.figures_of(free.astype(float), power=0), 1))
    rng, found = np.random.default_rng(0), np.zeros(sums.figures)
    for _ in range(DIRECTIONS):
        drawn = np.sqrt(spread) * rng.standard_normal(sums.size)
        moved, whole = sums.figures_of(_keeping(sums, known, spread, drawn)), sums.figures_of(abs(drawn), power=1)
        own = moved[: precision.size]
        if (abs(known @ own) > CLEAN * (abs(known) @ whole[: own.size])).any():
            raise NotCertifiedError("no directions were found that leave what is known exactly as it is")
        size = float(np.sqrt(precision @ own**2))
        if size > 0:
            found = np.maximum(found, np.where(abs(moved) > FIXED * whole, MARGIN * abs(moved) / size, 0.0))
    return found


def _keeping(sums: LeafSums, known: sparse.csr_array, spread: Float, z: Float) -> Float:
    """A direction less what of it changes what is known exactly."""
    found, least = z, np.inf
    clean = CLEAN / 100 * float(np.linalg.norm(abs(known) @ sums.figures_of(abs(z), power=1)[: known.shape[1]]))
    for _ in range(CLEANINGS + 1):
        changed = known @ sums.figures_of(z)[: known.shape[1]]
        size = float(np.linalg.norm(changed))
        if size >= least:
            break
        found, least = z, size
        if size <= clean:
            break
        z = z - _least_move(sums, known, spread, changed)
    return found
