"""What is known exactly, where sums over leaves do not follow it: multipliers, and directions that change none of it.

For any direction z of counts that changes nothing that is known exactly, a figure's variance is at least
z_i^2 / (z' M' Sigma^-1 M z), z_i what z makes of it: random ones say so, less what of them changes what is known.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers.verification.free_cells import FreeCells
from blue_solvers.verification.placed_tables import PlacedTables
from blue_solvers.verification.reaches import Cells, add, finite, spread
from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise, least_squares, reciprocal, refined
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float

MOST_KNOWN = 2_000_000  # cells of leaves, where what is known exactly takes iterations
DIRECTIONS = 8
FIXED = 1e-9  # of what a direction moves: less is rounding, the figure is known exactly
MARGIN = 0.9
CLEAN = 1e-10  # of what a direction moves: what it may change of what is known exactly


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
        Cells that are no structural zeros.
    cuts : list of (slice, (int, int))
        Of all groups of leaves where their cells are, and their shape.
    """

    def __init__(self, places: PlacedTables, observed: int) -> None:
        self._places = places
        self.figures = max([observed, *(placed.place.stop for placed in places.level_tables)])
        shapes = [(some.rows.size, places.levels[some.level].width) for some in places.leaves]
        ends = np.cumsum([0, *(rows * width for rows, width in shapes)]).tolist()
        self.cuts, self.size = [(slice(a, b), s) for (a, b), s in zip(pairwise(ends), shapes, strict=True)], ends[-1]
        self.free: Flags = np.ones(self.size, dtype=bool)
        for (cut, _), some in zip(self.cuts, places.leaves, strict=True):
            if some.empty.size:
                self.free[cut] = ~some.empty.ravel()

    def variances(self) -> Float:
        """Of what was measured of the cells themselves, or of what takes a unit of the others, (N,)."""
        found, free = np.empty(self.size), FreeCells.of(self._places)
        for number, ((cut, shape), some) in enumerate(zip(self.cuts, self._places.leaves, strict=True)):
            own = finite(free.filled(number, self._places.levels[some.level].variances(some.here)))
            found[cut] = np.broadcast_to(own, shape).ravel()
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
            vector = level.vector(level.rows)
            level.held(vector, level.rows)[0] = whole[0]
            level.sum_up(vector, level.rows)
            for placed in level.level_tables:
                found[placed.place] = level.of(placed, vector, level.rows)[0].ravel()
        return found

    def shares_of(self, figures: Float, power: int | None = None) -> Float:
        """(figures,), or the first of them, to (N,)."""
        said = list[Cells]()
        for level in self._places.levels:
            vector = level.vector(level.rows)
            for placed in level.level_tables:
                if placed.place.stop <= figures.size:
                    level.of(placed, vector, level.rows)[0] += figures[placed.place].reshape(level.rows, -1)
            level.spread_out(vector, level.rows)
            said.append(level.held(vector, level.rows))
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
        """For every cell, (N,), its own amount and the most in every other table that a count in it may have."""
        found = amounts.copy()
        for (cut, shape), some in zip(self.cuts, self._places.leaves, strict=True):
            if some.margins is not None:
                found[cut] = some.margins.with_others(amounts[cut].reshape(shape)).ravel()
        return found


class KnownExactly:
    """What is known exactly of a problem, but cells of leaves that say themselves what they are: of one table alone.

    Parameters
    ----------
    problem : Problem
    noise : WeighedNoise
    places : PlacedTables
        Of the problem.
    y : ndarray, (n,)

    Attributes
    ----------
    sums : LeafSums
    rows, values : csr_array, (k, n), ndarray, (k,)
        Rows over the observed cells and what they are, equalities last.
    free : ndarray of bool, (N,)
        Cells of leaves that are neither structural zeros nor say themselves what they are.

    Raises
    ------
    NotCertifiedError
        If no tables hold all others, or leaves have too many cells.
    """

    def __init__(self, problem: Problem, noise: WeighedNoise, places: PlacedTables, y: Float) -> None:
        self._noise, self.sums = noise, LeafSums(places, y.size)
        if self.sums.size > MOST_KNOWN:
            raise NotCertifiedError(
                f"its leaves have {self.sums.size:,} cells, some of them known exactly in sums, and proofs by sums "
                f"take {MOST_KNOWN:,} at most"
            )
        told, self.free = np.zeros(y.size, dtype=bool), self.sums.free.copy()
        for (cut, shape), some in zip(self.sums.cuts, places.leaves, strict=True):
            level = places.levels[some.level]
            placed = level.own[0]
            if len(level.tables) == 1 and placed.key:
                told[placed.place].reshape(level.rows, -1)[some.rows] = True
                self.free[cut] &= np.broadcast_to(placed.variance[some.rows] > 0, shape).ravel()
        told &= problem.exact
        cells = np.flatnonzero(problem.exact & ~told)
        own = sparse.csr_array((np.ones(cells.size), (np.arange(cells.size), cells)), shape=(cells.size, y.size))
        equalities, equal_to = problem.equality_rows
        self.rows = sparse.csr_array(sparse.vstack([own, equalities], format="csr"))
        self.values = np.concatenate([y[cells], equal_to])

    def of(self, cells: Float) -> Float:
        """What cells, (N,), make of what is known exactly, (k,)."""
        return self.rows @ self.sums.figures_of(cells)[: self.rows.shape[1]]

    def multipliers(self, rho: Float) -> Float:
        """Of what is known exactly, those that leave the least of weighted residuals, (k,).

        As near as iterations come: a certificate holds with any.
        """
        sums = self.sums
        variances = np.where(sums.free, sums.variances(), 0.0)

        def left(multipliers: Float) -> Float:
            """What multipliers, (k,), leave of the residuals' shares, (N,)."""
            return np.where(sums.free, sums.shares_of(rho - self.rows.T @ multipliers), 0.0)

        (weighted, scale), root = self._weighted(variances), np.sqrt(variances)

        def step(rest: Float) -> Float:
            """Multipliers, (k,), that leave the least of what is left, (N,)."""
            return scale * least_squares(weighted.T, root * rest)

        return refined(np.zeros(self.values.size), step, left, lambda rest: np.linalg.norm(root * rest))[0]

    def _weighted(self, weights: Float) -> tuple[LinearOperator, Float]:
        """What cells, in units of roots of weights, change of what is known exactly, (k, N), and its rows' scale."""
        sums, rows, root = self.sums, self.rows, np.sqrt(weights)
        squares = abs(rows).power(2) @ sums.figures_of(weights, power=2)[: rows.shape[1]]
        scale = 1 / np.sqrt(np.where(squares > 0, squares, 1.0))

        def change(cells: Float) -> Float:
            """What cells, (N,), in units of roots, change of what is known exactly, (k,)."""
            return scale * self.of(root * cells.ravel())

        def share(multipliers: Float) -> Float:
            """The transpose: shares, (N,), from multipliers, (k,)."""
            return root * sums.shares_of(rows.T @ (scale * multipliers.ravel()))

        return LinearOperator((rows.shape[0], sums.size), change, share, dtype=float), scale

    def move(self, amounts: Float, clean: float = 0.0) -> Float:
        """The least move of free cells, beside their variances, (N,), that changes what is known exactly by so much."""
        (weighted, scale), root = self._weighted(self._spread), np.sqrt(self._spread)

        def step(left: Float) -> Float:
            """The least move of cells, (N,), that makes the change that is left, (k,)."""
            return root * least_squares(weighted, scale * left)

        return refined(np.zeros(self.sums.size), step, lambda cells: amounts - self.of(cells), np.linalg.norm, clean)[0]

    @cached_property
    def _spread(self) -> Float:
        """Of every free cell its variance, were all others known, (N,)."""
        information = self.sums.with_others(self.sums.shares_of(reciprocal(self._noise.least) ** 2, power=2))
        return np.divide(1.0, information, out=np.zeros_like(information), where=self.free & (information > 0))

    def least_standard_errors(self) -> Float:
        """Of every figure, (figures,); 0 where it may be known exactly."""
        sums, precision = self.sums, reciprocal(self._noise.least) ** 2
        if not self.values.size:  # a cell is such a direction for every figure that it is in, and so is their mean
            squares = sums.figures_of(self._spread, power=2)
            return MARGIN * np.sqrt(squares / np.maximum(sums.figures_of(self.free.astype(float), power=0), 1))
        rng, found = np.random.default_rng(0), np.zeros(sums.figures)
        for _ in range(DIRECTIONS):
            drawn = np.sqrt(self._spread) * rng.standard_normal(sums.size)
            whole = sums.figures_of(abs(drawn), power=1)
            most = abs(self.rows) @ whole[: precision.size]
            moved = sums.figures_of(drawn - self.move(self.of(drawn), CLEAN / 100 * float(np.linalg.norm(most))))
            own = moved[: precision.size]
            if (abs(self.rows @ own) > CLEAN * most).any():
                raise NotCertifiedError("no directions were found that leave what is known exactly as it is")
            size = float(np.sqrt(precision @ own**2))
            if size > 0:
                found = np.maximum(found, np.where(abs(moved) > FIXED * whole, MARGIN * abs(moved) / size, 0.0))
        return found
