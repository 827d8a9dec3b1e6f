"""Which sums take what is said of cells: each cell is eliminated by one, or some together where these go in circles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from blue_solvers.verification.reaches import ranges
from blue_solvers.verification.weighed_noise import require_time, tied_together
from constraint_builders.arrays import Flags, Float, Index, kinds_of_rows

MOST_TOGETHER = 400  # cells that are solved for together
CLEAR, ZERO = 1e-8, 1e-12  # of the largest singular value: larger ones count, and smaller ones are none
MOST_SUMS = 2_000  # of these, of which it is asked what costs least


class Step(NamedTuple):
    """Cells that sums take at one time, by (sums, cells), and what these sums contain, (sums, all cells)."""

    cells: Index
    rows: Index
    takes: sparse.csr_array
    holds: sparse.csr_array


class ChosenSums:
    """Sums by which cells are eliminated, each of those before it free of the cells after.

    Parameters
    ----------
    holds : csr_array, (sums, cells)
        Weights of the cells in sums.
    besides : ndarray, (sums,)
        Variances of sums, with those of what else is in them.
    ranks : ndarray of int, (sums,)
        Those of the lowest are taken first.
    at_root : ndarray of bool, (sums,)
        Which are of the root of a part, so that the tree above takes what they do.
    alone : ndarray of bool, (cells,)
        Of which anything may be said, not only what sums say of them.

    Attributes
    ----------
    steps : list of Step
        In the order in which cells follow from sums; the last take what is said of them first.
    follows : ndarray of bool, (cells,)
        Cells that sums hold the same shares of as of one before: what is said of them follows.
    depends : bool
        Whether sums say the same of some cells as of others together: nothing else may be said of these.
    variance, cost, to_root : ndarray, (cells,)
        About the variance of what takes a unit; by how many standard errors it is at most, and how much of it the
        tree above takes; infinite where nothing does.
    """

    def __init__(self, holds: sparse.csr_array, besides: Float, ranks: Index, at_root: Flags, alone: Flags) -> None:
        within, self._alone = sparse.csc_array(holds), alone
        first = first_alike(within, alone)
        self.follows: Flags = first != np.arange(first.size)
        self.variance, self.cost, self.to_root = np.where(self.follows, 0.0, np.full((3, first.size), np.inf))
        self.steps, self.depends = list[Step](), bool(self.follows.any())
        self._within = sparse.csc_array(within @ sparse.diags_array((~self.follows).astype(float)))
        self._within.eliminate_zeros()
        self._holds = sparse.csr_array(self._within)
        self._squares, self._sizes, self._at_root = besides.copy(), np.sqrt(besides), at_root.astype(float)
        self._choose(ranks)

    def amounts(self, said: Float) -> Float:
        """What sums take, (sums,), of what is said of cells, (cells,), if sums of them say it."""
        left, found = said.copy(), np.zeros(self._within.shape[0])
        for step in reversed(self.steps):
            amount = step.takes @ left[step.cells]
            found[step.rows] += amount
            left -= step.holds.T @ amount
        return found

    @property
    def in_use(self) -> Flags:
        """Which sums take anything, (sums,)."""
        found = np.zeros(self._within.shape[0], dtype=bool)
        for step in self.steps:
            found[step.rows] = True
        return found

    def solved(self, sums: Float) -> Float:
        """Cells, (cells,), of which these are the sums, (sums,); NaN of those that they do not tell."""
        found, left = np.where(self.follows, 0.0, np.nan), sums.copy()
        for step in self.steps:
            found[step.cells] = step.takes.T @ left[step.rows]
            left -= self._within[:, step.cells] @ found[step.cells]
        return found

    def _choose(self, ranks: Index) -> None:
        """Eliminate cells while there are sums for any, those of the lowest ranks, (sums,), first."""
        holds, within, open_ = self._holds, self._within, ~self.follows
        count = np.diff(holds.indptr).astype(np.intp)
        rows = np.repeat(np.arange(count.size), count)
        last = np.bincount(rows, weights=holds.indices, minlength=count.size).astype(np.intp)
        pending = np.flatnonzero(count == 1)
        while open_.any():
            require_time()
            if pending.size:
                own = pending[ranks[pending] == ranks[pending].min()]
                step = self._one_by_one(own, last[own])
            else:
                own = np.flatnonzero(count > 1)
                together = self._together(own, np.flatnonzero(open_))
                if together is None:
                    break
                step = together
            self.steps.append(step)
            open_[step.cells] = False
            counts = np.diff(within.indptr)[step.cells]
            entry = ranges(within.indptr[step.cells], counts)
            row, cell, weight = within.indices[entry], np.repeat(step.cells, counts), abs(within.data[entry])
            np.subtract.at(count, row, 1)
            np.subtract.at(last, row, cell)
            np.add.at(self._squares, row, weight**2 * self.variance[cell])
            np.add.at(self._sizes, row, weight * self.cost[cell])
            np.add.at(self._at_root, row, weight * self.to_root[cell])
            pending = np.concatenate([pending, row])
            pending = np.unique(pending[count[pending] == 1])

    def _one_by_one(self, rows: Index, cells: Index) -> Step:
        """Cells by sums in which nothing else is open, each by the cheapest of its own, (k,) and (k,)."""
        weight = np.asarray(self._holds[rows, cells]).ravel()
        order = np.lexsort((self._squares[rows] / weight**2, cells))
        chosen, first = np.unique(cells[order], return_index=True)
        row, weight = rows[order][first], weight[order][first]
        self.variance[chosen], self.cost[chosen] = self._squares[row] / weight**2, self._sizes[row] / abs(weight)
        self.to_root[chosen] = self._at_root[row] / abs(weight)
        takes = sparse.csr_array((1 / weight, (np.arange(row.size),) * 2), shape=(row.size,) * 2)
        return Step(chosen, row, takes, self._holds[row])

    def _together(self, rows: Index, cells: Index) -> Step | None:
        """Cells, (k,), that sums, (s,), determine together, as far as they are few; None where there are none."""
        inside, found = self._holds[rows][:, cells], list[tuple[Index, Index, Float]]()
        for group in tied_together(sparse.block_array([[None, inside], [inside.T, None]])):
            row, cell = group[group < rows.size], group[group >= rows.size] - rows.size
            if not row.size or not 0 < cell.size <= MOST_TOGETHER:
                continue
            require_time()
            takes, apart, rank = _inverse(inside[row][:, cell].toarray(), self._squares[rows[row]])
            if apart > CLEAR or (rank < cell.size and self._alone[cells[cell]].any()):
                continue
            self.depends |= rank < cell.size
            own, row = cells[cell], rows[row]
            self.variance[own] = self._squares[row] @ takes**2
            for values, sizes in ((self.cost, self._sizes), (self.to_root, self._at_root)):
                most = sizes[row] @ abs(takes)
                values[own] = most + 2 * apart * most.max()
            found.append((own, row, takes))
        if not found:
            return None
        row = np.concatenate([own for _, own, _ in found])
        takes = sparse.csr_array(sparse.block_diag([own for *_, own in found], format="csr"))
        return Step(np.concatenate([own for own, *_ in found]), row, takes, self._holds[row])


def _inverse(A: Float, squares: Float) -> tuple[Float, float, int]:
    """What sums take of what is said of cells, (sums, cells), for little in their variances, how far off, and the rank.

    From the weights, (sums, cells), and (sums,). What is said of cells is what sums of them say.
    """
    U, values, V = np.linalg.svd(A, full_matrices=len(A) <= MOST_SUMS)
    rank = int(np.count_nonzero(values > CLEAR * values[0]))
    if rank < values.size and values[rank] > ZERO * values[0]:  # it is not clear what they determine
        return A, np.inf, rank
    takes, nothing = (U[:, :rank] / values[:rank]) @ V[:rank], U[:, rank:]
    root = np.sqrt(squares / squares.max(initial=np.finfo(float).tiny))[:, None]
    takes -= nothing @ np.linalg.lstsq(root * nothing, root * takes, rcond=CLEAR)[0]
    return takes, float(abs(A.T @ takes - V[:rank].T @ V[:rank]).sum(axis=0).max()), rank


def first_alike(within: sparse.csc_array, alone: Flags) -> Index:
    """For every cell the first of which sums hold the same share: what residuals say of it follows, (cells,).

    Cells in no sum, and those that are `alone`, are each their own.
    """
    counts, cells = np.diff(within.indptr), np.arange(within.shape[1])
    units = np.repeat(within.data[within.indptr[:-1][counts > 0]], counts[counts > 0])
    shares = sparse.csc_array((within.data / units, within.indices, within.indptr), shape=within.shape)
    kinds = np.where(alone | (counts == 0), cells.size + cells, kinds_of_rows(shares))
    _, first, of_cell = np.unique(kinds, return_index=True, return_inverse=True)
    return first[of_cell]
