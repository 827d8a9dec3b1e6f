"""What is known exactly, where sums over leaves do not follow it: multipliers, and directions that change none of it.

For any direction z of counts that changes nothing that is known exactly, a figure's variance is at least
z_i^2 / (z' M' Sigma^-1 M z), z_i what z makes of it: random ones say so, less what of them changes what is known.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from blue_solvers.verification.common_margins import CommonMargins
from blue_solvers.verification.free_cells import FreeCells
from blue_solvers.verification.placed_tables import PlacedTables, by_cells, taken_by
from blue_solvers.verification.reaches import Cells, finite, spread
from blue_solvers.verification.sums_of_cells import Picked, cells_in_sums, level_sums, matrix_of
from blue_solvers.verification.weighed_noise import (
    PIECE,
    ROUNDING,
    NotCertifiedError,
    WeighedNoise,
    least_squares,
    reciprocal,
    refined,
    require_time,
)
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float
from constraint_builders.diagonals import scaled

MOST_KNOWN = 2_000_000  # cells of leaves, where what is known exactly takes iterations
MOST_SHARES = 50_000_000  # of these in what is known exactly
MOST_FACTORED = 500  # rows of what is known exactly, whose products are factored; more take iterations
DIRECTIONS = 4
FIXED = 1e-9  # of what a direction moves: less is rounding, the figure is known exactly
MARGIN = 0.9
GONE = 16 * ROUNDING  # of the largest of a leaf's shares: less is rounding of what was moved to other tables
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
    are_counts : bool
        Whether figures are sums of cells once each.
    """

    def __init__(self, places: PlacedTables, observed: int) -> None:
        self._places = places
        self.figures = max([observed, *(placed.place.stop for placed in places.level_tables)])
        self.cuts, self.size = places.cuts, places.cuts[-1][0].stop
        empty = zip(places.leaves, self.cuts, strict=True)
        self.free: Flags = ~np.concatenate([np.resize(some.empty, shape).ravel() for some, (_, shape) in empty])
        reaches = (reach for some in places.leaves for reach in some.reach.values())
        self.are_counts = all((reach.weights == 1).all() for reach in reaches)
        self.are_counts &= all(some.margins is None for some in places.leaves)

    def variances(self) -> Float:
        """Of what was measured of the cells themselves, or of what takes a unit of the others, (N,)."""
        found, free = list[Float](), FreeCells.of(self._places)
        for number, ((_, shape), some) in enumerate(zip(self.cuts, self._places.leaves, strict=True)):
            own = finite(free.filled(number, self._places.levels[some.level].variances(some.here)))
            found.append(np.broadcast_to(own, shape).ravel())
        return np.concatenate(found)

    def figures_of(self, cells: Float, power: int | None = None) -> Float:
        """(N,) to (figures,); with powers of the weights' sizes instead of these."""
        each, found = [cells[cut].reshape(shape) for cut, shape in self.cuts], np.zeros(self.figures)
        for number, some in enumerate(self._places.leaves):
            if power is None and some.margins is not None and each[number].any():
                each[number] = some.margins.agreeing(each[number][None])[0]
        for level, vector in level_sums(self._places, each, power):
            for placed in level.level_tables:
                found[placed.place].reshape(level.rows, -1)[:] = level.of(placed, vector, level.rows)[0]
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

    def shares_of_all(self, rows: sparse.csr_array) -> sparse.csr_array:
        """The same of many, (k, figures), that speak of few figures, or of ones that few cells are in, (k, N).

        Raises
        ------
        NotCertifiedError
            If too many cells have a share.
        """
        by_figure, found, picks = sparse.csc_array(rows), list[sparse.coo_array](), list[Picked]()
        for placed in self._places.level_tables:
            own = by_figure[:, placed.place].tocoo()
            picks.append((placed, *own.coords, own.data))
        for number, (some, (cut, _)) in enumerate(zip(self._places.leaves, self.cuts, strict=True)):
            require_time()
            whole = matrix_of(list(cells_in_sums(self._places, number, picks)), (rows.shape[0], cut.stop - cut.start))
            found.append(whole.tocoo() if some.margins is None else _moved(some.margins, whole))
            if sum(own.nnz for own in found) > MOST_SHARES:
                raise NotCertifiedError(f"what is known exactly is of more than {MOST_SHARES:,} cells of leaves")
        return sparse.csr_array(sparse.hstack(found, format="csr"))

    def with_others(self, amounts: Float) -> Float:
        """For every cell, (N,), its own amount and the most in every other table that a count in it may have."""
        found = amounts.copy()
        for (cut, shape), some in zip(self.cuts, self._places.leaves, strict=True):
            if some.margins is not None:
                found[cut] = some.margins.with_others(amounts[cut].reshape(shape)).ravel()
        return found


def _moved(margins: CommonMargins, shares: sparse.csr_array) -> sparse.coo_array:
    """Shares of leaves' cells, (k, leaves * cells), with what tables have in common moved together."""
    by_leaf = sparse.csr_array(shares.reshape(-1, margins.free.size))
    used, step = np.flatnonzero(np.diff(by_leaf.indptr)), PIECE // margins.free.size + 1
    moved, count = [sparse.csr_array((0, margins.free.size))], 0
    for here in (used[start : start + step] for start in range(0, used.size, step)):
        own = margins.moved(by_leaf[here].toarray()[None])[0][0]
        own[abs(own) < GONE * abs(own).max(axis=1, keepdims=True)] = 0.0
        moved.append(sparse.csr_array(own))
        count += moved[-1].nnz
        if count > MOST_SHARES:
            break
    rows = sparse.coo_array(sparse.vstack(moved))
    place = used[rows.coords[0]]
    return sparse.coo_array((rows.data, (place, rows.coords[1])), shape=by_leaf.shape).reshape(shares.shape)


class LeastMoves:
    """Least squares of rows, (k, N), over cells in units of `root`, (N,): each as near as one step comes."""

    def __init__(self, rows: sparse.csr_array, root: Float) -> None:
        weighted = scaled(rows, columns=root)
        self._scale = reciprocal(np.sqrt(weighted.power(2).sum(axis=1)))
        self._rows, self.root, self._inverse = scaled(weighted, self._scale), root, np.zeros((0, 0))
        if 0 < rows.shape[0] <= MOST_FACTORED:
            products = (self._rows @ self._rows.T).toarray()
            self._inverse = np.linalg.pinv(products, rcond=len(products) * ROUNDING, hermitian=True)

    def moves(self, change: Float) -> Float:
        """The least move of cells, (N,), that changes rows by so much, (k,)."""
        change = self._scale * change
        if self._inverse.size:
            return self.root * (self._rows.T @ (self._inverse @ change))
        return self.root * least_squares(aslinearoperator(self._rows), change)

    def multipliers(self, shares: Float) -> Float:
        """Multipliers of rows, (k,), that leave the least of shares of cells, (N,)."""
        shares = self.root * shares
        if self._inverse.size:
            return self._scale * (self._inverse @ (self._rows @ shares))
        return self._scale * least_squares(aslinearoperator(self._rows).T, shares)


class KnownExactly:
    """What is known exactly of a problem, but cells of leaves that say themselves what they are: of one table alone.

    Parameters
    ----------
    problem : Problem
    noise : WeighedNoise
    places : PlacedTables
        Of the problem.

    Attributes
    ----------
    sums : LeafSums
    rows : csr_array, (k, n)
        Over the observed cells, equalities last.
    shares : csr_array, (k, N)
        The same over the leaves' cells.
    equal, equal_to : csr_array, (equalities, N), and ndarray, (equalities,)
        Of these those of equalities, and what they are.
    free : ndarray of bool, (N,)
        Cells of leaves that are neither structural zeros nor say themselves what they are.

    Raises
    ------
    NotCertifiedError
        If no tables hold all others, or leaves have too many cells.
    """

    def __init__(self, problem: Problem, noise: WeighedNoise, places: PlacedTables) -> None:
        size = problem.observed.size
        self._noise, self._places, self.sums = noise, places, LeafSums(places, size)
        if self.sums.size > MOST_KNOWN:
            raise NotCertifiedError(
                f"its leaves have {self.sums.size:,} cells, some of them known exactly in sums, and proofs by sums "
                f"take {MOST_KNOWN:,} at most"
            )
        told, self.free = np.zeros(size, dtype=bool), self.sums.free.copy()
        for (cut, shape), some in zip(self.sums.cuts, places.leaves, strict=True):
            level = places.levels[some.level]
            placed = level.own[0]
            if len(level.tables) == 1 and placed.key:
                told[placed.place].reshape(level.rows, -1)[some.rows] = True
                self.free[cut] &= np.broadcast_to(placed.variance[some.rows] > 0, shape).ravel()
        self._cells = np.flatnonzero(problem.exact & ~told)
        entries = np.ones(self._cells.size), self._cells, np.arange(self._cells.size + 1)
        equalities, self.equal_to = problem.equality_rows
        own = sparse.csr_array(entries, shape=(self._cells.size, size))
        self.rows = sparse.csr_array(sparse.vstack([own, equalities], format="csr"))
        self.shares = self.sums.shares_of_all(self.rows)
        self.equal, places.known = sparse.csr_array(self.shares[self._cells.size :]), self

    def values(self, y: Float) -> Float:
        """What is known, (k,), of measurements, (n,)."""
        return np.concatenate([y[self._cells], self.equal_to])

    def pulled(self, rho: Float, unmeasured: Flags) -> tuple[Cells, float, Float | None]:
        """What is taken of weighted residuals, (2, n), how far off, in standard errors, and in leaves' cells, (N,).

        By multipliers that leave the least, as near as steps come: a certificate holds with any. The latter is of cells
        that were not measured; None where nothing is said of these.
        """
        (taken, off), slack = taken_by(self._by_cells, self._multipliers(rho)), None
        if off.any(where=unmeasured):
            slack = self.sums.shares_of(np.where(unmeasured, off, 0.0), power=1)
            for (cut, shape), some in zip(self.sums.cuts, self._places.leaves, strict=True):  # tables share it
                most = slack[cut].reshape(shape).max(axis=1, initial=0.0)
                slack[cut] = np.repeat(8 * len(self._places.levels[some.level].tables) * most, shape[1])
        return taken, self._noise.size(np.zeros(off.size), off), slack

    def _multipliers(self, rho: Float) -> Float:
        """Of what is known exactly, (k,)."""
        shares, pulls, start = self.sums.shares_of(rho), self._pulls, np.zeros(self.rows.shape[0])

        def size(rest: Float) -> float:
            """Of what is left of shares, (N,)."""
            return float(np.linalg.norm(pulls.root * rest))

        return refined(start, pulls.multipliers, lambda found: shares - self.shares.T @ found, size)[0]

    @cached_property
    def _by_cells(self) -> sparse.csr_array:
        return by_cells(self.rows)

    @cached_property
    def _pulls(self) -> LeastMoves:
        return LeastMoves(self.shares, np.sqrt(np.where(self.sums.free, self.sums.variances(), 0.0)))

    @cached_property
    def _moves(self) -> LeastMoves:
        return LeastMoves(self.shares, np.sqrt(self._spread))

    def move(self, amounts: Float, clean: float = 0.0) -> Float:
        """The least move of free cells, beside their variances, (N,), that changes what is known exactly by so much."""
        step, start = self._moves.moves, np.zeros(self.sums.size)
        return refined(start, step, lambda cells: amounts - self.shares @ cells, np.linalg.norm, clean)[0]

    @cached_property
    def _spread(self) -> Float:
        """Of every free cell its variance, were all others known, (N,)."""
        information = self.sums.with_others(self.sums.shares_of(reciprocal(self._noise.least) ** 2, power=2))
        return np.divide(1.0, information, out=np.zeros_like(information), where=self.free & (information > 0))

    @cached_property
    def least_standard_errors(self) -> Float:
        """Of every figure, (figures,); 0 where it may be known exactly."""
        sums, precision = self.sums, reciprocal(self._noise.least) ** 2
        if not self.rows.shape[0]:  # a cell is such a direction for every figure that it is in, and so is their mean
            squares = sums.figures_of(self._spread, power=2)
            return MARGIN * np.sqrt(squares / np.maximum(sums.figures_of(self.free.astype(float), power=0), 1))
        rng = np.random.default_rng(0)
        found, root = self._by_pairs(rng)
        if not root.any():
            return found
        whole = sums.figures_of(np.sqrt(self._spread), power=1)
        most = abs(self.rows) @ whole[: precision.size]
        for _ in range(DIRECTIONS):
            drawn = root * rng.standard_normal(sums.size)
            moved = self.move(self.shares @ drawn, CLEAN / 100 * float(np.linalg.norm(most)))
            moved = sums.figures_of(drawn - moved)
            own = moved[: precision.size]
            if (abs(self.rows @ own) > CLEAN * most).any():
                raise NotCertifiedError("no directions were found that leave what is known exactly as it is")
            size = float(np.sqrt(precision @ own**2))
            if size > 0:
                found = np.maximum(found, np.where(abs(moved) > FIXED * whole, MARGIN * abs(moved) / size, 0.0))
        return found

    def _by_pairs(self, rng: np.random.Generator) -> tuple[Float, Float]:
        """The same by cells that are in nothing that is known, and pairs that are alike there; and the others' roots.

        All that are alike follow one another: a figure that holds some of them, not all, parts two that do. It is 0 of
        figures that part none; of cells of no pair the root of what they may vary by is given, (N,).
        """
        found, root = np.zeros(self.sums.figures), np.sqrt(self._spread)
        if not self.sums.are_counts:
            return found, root
        each = reciprocal(abs(self.shares).max(axis=1).toarray().reshape(-1, 1))  # row counts, whatever its units
        keys = self.shares.T @ (each * rng.uniform(1, 2, (self.rows.shape[0], 2)))  # those alike have the same
        alone = (root > 0) & ~keys.any(axis=1)
        cells = rng.permutation(np.flatnonzero((root > 0) & ~alone))
        cells = cells[np.argsort(keys[cells, 0])]
        alike = np.flatnonzero((keys[cells[1:]] == keys[cells[:-1]]).all(axis=1))
        one, two = cells[alike], cells[alike + 1]
        amounts = rng.uniform(1, 2, self.sums.size)
        moved = np.where(alone, amounts, 0.0)
        moved[one] += amounts[one]
        moved[two] -= amounts[one]
        most = max(1 / root.min(initial=np.inf, where=alone), 2 / np.minimum(root[one], root[two]).min(initial=np.inf))
        parted = abs(self.sums.figures_of(moved)) > 16 * ROUNDING * self.sums.size
        found[parted] = MARGIN / most if most else 0.0
        root[moved != 0] = 0.0
        return found, root
