"""Moves between tables of whole counts that leave everything known exactly as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import comb, prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.nonnegative.model import FittingModel
from constraint_builders.arrays import Float, Integers
from constraint_builders.memory import require_memory
from noise_mechanisms.table_moves import count_moves_along, moves_along
from noise_mechanisms.unimodular import unimodular_null_basis

_MOST_OF_A_KIND = 200_000  # pairs of levels: beyond, neighbouring levels only, which generate all
_MOST_AXES = 5
_MOST_SUMS = 2000  # of moves of a lattice basis
_ALWAYS = 2  # axes along which moves are listed even where fewer do: they mix better


@dataclass(frozen=True)
class CountMoves:
    """A list of moves, in kinds.

    Attributes
    ----------
    cells : csc_array of int64, (d, moves)
        What a step along each move adds to the possible cells.
    sums : csc_array, (rows, moves)
        What it adds to the measured rows.
    starts : ndarray of int64, (kinds + 1,)
        Where each kind begins: moves of one cell, along one axis, along two, ..., and of a lattice basis.
    """

    cells: sparse.csc_array
    sums: sparse.csc_array
    starts: Integers

    @cached_property
    def has_all_cells(self) -> bool:
        """Whether the first moves are the cells', one after the other."""
        d = self.cells.shape[0]
        return self.cells.shape[1] >= d and not (self.cells[:, :d] != sparse.eye_array(d, format="csc")).nnz

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Integers:
        """Moves drawn with every kind equally likely."""
        kinds = rng.integers(0, self.starts.size - 1, shape)
        lengths = np.diff(self.starts)[kinds]
        return np.asarray(self.starts[kinds] + np.floor(rng.random(shape) * lengths).astype(np.int64))


def count_moves(model: FittingModel, rows: Integers) -> CountMoves:
    """List moves between the cells of a problem.

    For tables these are +1 and -1 on the corners of boxes: single cells, pairs along an axis, 2 x 2 along two axes and
    so on, as far as what is known exactly leaves them; the first of these kinds that it leaves generate the lattice of
    full margins. Where there are equations besides tables, or areas known exactly, a lattice basis and sums of its
    moves are added.

    Parameters
    ----------
    model : FittingModel
    rows : ndarray of int, (rows,)
        The rows with noise.

    Raises
    ------
    ValueError
        If what is known exactly has other than whole coefficients.
    MemoryError
        If the list would not fit.
    """
    kinds = [kind for kind in _kinds(model, _whole(model.exact_rows)) if kind.shape[1]]
    if not kinds:  # everything is known
        kinds = [sparse.csc_array((model.possible.size, 0), dtype=np.int64)]
    cells = sparse.csc_array(sparse.hstack(kinds, format="csc", dtype=np.int64))
    noisy = sparse.csr_array(model.M[rows])
    require_memory(
        24.0 * cells.nnz * max(1.0, noisy.nnz / max(1, noisy.shape[1])),
        f"the list of {cells.shape[1]:,} moves",
        "give fewer levels or tables",
    )
    sums = sparse.csc_array(noisy @ cells)
    sums.eliminate_zeros()
    return CountMoves(cells, sums, np.cumsum([0, *(kind.shape[1] for kind in kinds)]))


def _whole(matrix: sparse.csr_array) -> sparse.csr_array:
    """The matrix, of the same shape, in whole numbers; refused if it has others."""
    rounded = np.rint(matrix.data)
    if not np.array_equal(rounded, matrix.data):
        raise ValueError(
            "whole counts need equalities, and areas known exactly, of whole weights: multiply them and their values "
            "until they are"
        )
    return sparse.csr_array((rounded.astype(np.int64), matrix.indices, matrix.indptr), shape=matrix.shape)


def _kinds(model: FittingModel, exact: sparse.csr_array) -> Iterator[sparse.csc_array]:
    """Moves of every kind, (d, moves) each, that leave the rows known exactly, (k, d), as they are."""
    if model.problem.is_tabular:
        yield from _boxes(model, exact)
    weighed = model.problem.areas is not None and exact.shape[0]  # areas cross, or have weights, as tables do not
    if not model.problem.is_tabular or model.equations[0].shape[0] or weighed:
        yield from _lattice_moves(exact)


def _lattice_moves(exact: sparse.csr_array) -> Iterator[sparse.csc_array]:
    """A basis of the moves that keep what is known, (k, d), and sums of two of it, of three, ..., while they are few.

    Short moves, and detours through several, join counts that moves along the basis alone do not: those would turn
    some cell negative on the way.
    """
    basis = unimodular_null_basis(exact)
    size = basis.shape[1]
    if size < 2 or 2 * comb(size, 2) > _MOST_SUMS:
        yield basis
        return
    short = sparse.csc_array(_shortened(basis.toarray()))
    yield short
    most, count = _MOST_SUMS, 2
    while count <= size and comb(size, count) * 2 ** (count - 1) <= most:
        signs = [(1, *rest) for rest in product((1, -1), repeat=count - 1)]
        chosen = np.array(list(product(combinations(range(size), count), signs)))
        most -= len(chosen)
        starts = np.arange(0, len(chosen) * count + 1, count)
        sums = (chosen[:, 1].ravel(), chosen[:, 0].ravel(), starts)
        yield sparse.csc_array(short @ sparse.csc_array(sums, shape=(size, len(chosen))))
        count += 1


def _shortened(basis: Integers) -> Integers:
    """A basis of the same lattice whose columns are no shorter less any multiple of another (d, k)."""
    found = basis.T.copy()
    changed = True
    while changed:
        changed = False
        for i, j in product(range(len(found)), repeat=2):
            own, other = found[[i, j]].astype(float)  # whose squares do not overflow
            multiple = round(float(own @ other / (other @ other))) if i != j else 0
            shorter = own - multiple * other
            if multiple and shorter @ shorter < own @ own:
                found[i] -= multiple * found[j]
                changed = True
    return found.T


def _boxes(model: FittingModel, exact: sparse.csr_array) -> Iterator[sparse.csc_array]:
    """All boxes, (cells, moves), along so many axes that what is known exactly allows, by the number of axes."""
    shape = model.cells.shape
    wide = [axis for axis, length in enumerate(shape) if length > 1]
    places = np.full(prod(shape), -1, dtype=np.int64)
    places[model.possible] = np.arange(model.possible.size)
    whole: list[frozenset[int]] = []  # sets of axes all of whose boxes are allowed
    for count in range(min(_MOST_AXES, len(wide)) + 1):
        waiting = [frozenset(axes) for axes in combinations(wide, count)]
        if count > _ALWAYS:
            waiting = [axes for axes in waiting if not any(other <= axes for other in whole)]
        found = []
        for axes in waiting:
            boxes = _along(shape, axes, places)
            allowed = _columns_that_keep(exact, boxes)
            if allowed.size in (count_moves_along(shape, axes, True), count_moves_along(shape, axes)):
                whole.append(axes)
            found.append(boxes[:, allowed])
        if found:
            yield sparse.csc_array(sparse.hstack(found, format="csc", dtype=np.int64))


def _along(shape: tuple[int, ...], axes: frozenset[int], places: Integers) -> sparse.csc_array:
    """Boxes, (cells, moves), along these axes whose corners are all possible cells."""
    neighbours = count_moves_along(shape, axes) > _MOST_OF_A_KIND
    count = count_moves_along(shape, axes, neighbours)
    require_memory(32.0 * count * 2 ** len(axes), f"the list of {count:,} moves", "give fewer levels or tables")
    cells, signs = moves_along(shape, axes, neighbours)
    corners = places[cells]
    corners = corners[(corners >= 0).all(axis=1)]
    starts = np.arange(0, corners.size + 1, signs.size)
    size = int((places >= 0).sum())
    boxes = sparse.csc_array(
        (np.tile(signs, corners.shape[0]), corners.ravel(), starts), shape=(size, corners.shape[0])
    )
    boxes.sort_indices()
    return boxes


def _columns_that_keep(exact: sparse.csr_array, moves: sparse.csc_array) -> NDArray[np.intp]:
    """Which moves, the columns of (cells, moves), change nothing that is known exactly."""
    changes = sparse.csc_array(exact @ moves)
    changes.eliminate_zeros()
    return np.flatnonzero(np.diff(changes.indptr) == 0)


def step_sizes(moves: CountMoves, information: Float) -> Float:
    """About how many steps of each move are a standard deviation of the noise, at least one, (moves,)."""
    squares = sparse.csc_array(moves.sums.multiply(moves.sums))
    return np.maximum(1.0, 1.5 / np.sqrt(np.maximum(squares.T @ information, 1e-300)))
