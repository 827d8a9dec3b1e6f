"""The lattice of whole-number noise that leaves invariants as they are, exact bases of it, and the Smith form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from constraint_builders.arrays import Integers, kinds_of_rows
from constraint_builders.description.reals import whole_array
from noise_mechanisms.integer_subspace.invariants import Invariants, Margins
from noise_mechanisms.table_moves import Vectors, tensor_products
from noise_mechanisms.unimodular import Column, column_echelon, columns_of, unimodular_null_basis

_SMITH_LIMIT = 20_000  # entries of A: beyond, intermediate entries and time explode


@dataclass(frozen=True)
class Lattice:
    """All z of whole numbers with A z = 0.

    Parameters
    ----------
    invariants : Invariants

    Notes
    -----
    Proposition 8 of the paper. The basis has a closed form for margins and for nested sets; other sets go through
    sparse unimodular elimination. A basis of the rational null space will not do: it may generate a sublattice only,
    and noise drawn from it would miss points that the privacy proof needs.
    """

    invariants: Invariants

    @property
    def records(self) -> int:
        """Number of records d."""
        return self.invariants.records

    @property
    def dimension(self) -> int:
        """Rank of the lattice, d - rank(A)."""
        return int(self.basis.shape[1])

    @cached_property
    def basis(self) -> sparse.csc_array:
        """Basis C of the lattice, (d, d - rank(A)), int64: every lattice point is C k for one k of whole numbers."""
        if self.invariants.margins is not None:
            return margin_basis(self.invariants.margins)
        if self.invariants.blocks is not None:
            return block_basis(self.invariants.blocks)
        basis = unimodular_null_basis(self.invariants.matrix)
        check_basis(self.invariants, basis)
        return basis

    @property
    def basis_method(self) -> str:
        """How the basis is found: "margins", "blocks" (both closed forms) or "elimination"."""
        if self.invariants.margins is not None:
            return "margins"
        return "elimination" if self.invariants.blocks is None else "blocks"

    def contains(self, z: ArrayLike) -> bool:
        """Whether noise z, (d,), leaves every invariant as it is."""
        return not self.invariants.apply(z).any()

    @cached_property
    def smallest_distance(self) -> int:
        """L1 distance below which no two different equivalent tables are; 0 when there is only one.

        Attained for margins and for nested sets: 2^s, where s is the size of the smallest set of axes whose margin is
        free. A nonzero table whose (s - 1)-way margins all vanish has along some axis two nonzero slices, whose
        (s - 2)-way margins vanish; so its L1 norm doubles with s. For other sets it is 1 if a record is in none, 2 if
        two records are in the same ones, otherwise the bound 3, which need not be attained.
        """
        if self.dimension == 0:
            return 0
        if self.invariants.margins is not None:
            return int(2 ** min(len(axes) for axes in free_axes(self.invariants.margins)))
        by_record = self.invariants.matrix.tocsc()
        if (np.diff(by_record.indptr) == 0).any():
            return 1
        return 2 if kinds_of_rows(by_record).max() + 1 < self.records else 3


def free_axes(margins: Margins) -> Iterator[tuple[int, ...]]:
    """The sets of axes, each of two levels or more, whose margin the invariants leave free; largest sets first."""
    wide = [axis for axis, length in enumerate(margins.shape) if length > 1]
    for count in range(len(wide), -1, -1):
        yield from (axes for axes in combinations(wide, count) if not margins.holds(axes))


def margin_basis(margins: Margins) -> sparse.csc_array:
    """Closed form for any set of full margins, decomposable or not.

    With e_0, e_1 - e_0, e_2 - e_0, ... as the basis of the whole numbers along each axis, the lattice is the direct
    sum, over the sets S of axes that no margin contains, of the tensor products of e_j - e_0 (j > 0) along S and e_0
    elsewhere. Entries are -1, 0, 1, with 2^|S| nonzeros in a column. Columns come with large S first and, within S, in
    C order of their levels.

    Parameters
    ----------
    margins : Margins
        The table's shape and the margins that are held.

    Returns
    -------
    csc_array of int64, (d, d - rank(A))
    """
    vectors = []
    for axes in free_axes(margins):
        ends = [_steps_from_first(n) if axis in axes else np.zeros((1, 1), int) for axis, n in enumerate(margins.shape)]
        vectors.append(tensor_products(margins.shape, ends))
    return _as_columns(vectors, prod(margins.shape))


def _steps_from_first(length: int) -> Integers:
    """The pairs of the first of so many levels and each other one."""
    return np.stack([np.zeros(length - 1, dtype=np.int64), np.arange(1, length)], axis=1)


def _as_columns(vectors: list[Vectors], records: int) -> sparse.csc_array:
    indices = np.concatenate([np.empty(0, np.int64), *(cells.ravel() for cells, _ in vectors)])
    data = np.concatenate([np.empty(0, np.int64), *(np.tile(steps, len(cells)) for cells, steps in vectors)])
    lengths = np.concatenate([np.zeros(1, np.int64), *(np.full(len(cells), steps.size) for cells, steps in vectors)])
    return sparse.csc_array((data, indices, np.cumsum(lengths)), shape=(records, lengths.size - 1))


def block_members(blocks: Integers) -> list[Integers]:
    """The records of every block, (d,), with a fixed sum, in increasing order; free records (block -1) are left out."""
    order = np.argsort(blocks, kind="stable")
    starts = np.flatnonzero(np.diff(blocks[order], prepend=-2))
    return [part for part in np.split(order, starts[1:]) if blocks[part[0]] >= 0]


def block_basis(blocks: Integers) -> sparse.csc_array:
    """Closed form for nested sets: e_j - e_i within each block, i its first record; e_j for records that nothing holds.

    Parameters
    ----------
    blocks : ndarray of int, (d,)
        `Invariants.blocks`.

    Returns
    -------
    csc_array of int64, (d, number of records - number of blocks)
    """
    pairs = [block[_steps_from_first(block.size)] for block in block_members(blocks)]
    free = np.flatnonzero(blocks < 0)[:, None]
    vectors = [(np.concatenate([np.empty((0, 2), np.int64), *pairs]), np.array([-1, 1])), (free, np.array([1]))]
    return _as_columns(vectors, blocks.size)


def check_basis(invariants: Invariants, basis: sparse.csc_array) -> None:
    """Refuse a matrix that is not a basis of the lattice.

    Parameters
    ----------
    invariants : Invariants
        What the columns must leave as it is.
    basis : csc_array of int64, (d, n)
        The candidate.

    Raises
    ------
    ValueError
        If a column breaks an invariant; if the columns are too few, dependent, or miss lattice points.
    """
    if abs(invariants.matrix @ basis).sum():
        raise ValueError("the basis leaves the lattice: a column breaks an invariant")
    size, dimension = basis.shape[1], invariants.records - len(column_echelon(columns_of(invariants.matrix))[1])
    if size != dimension:
        raise ValueError(f"the basis has {size} columns, the lattice has dimension {dimension}")
    rows = columns_of(basis.T)
    _, pivots = column_echelon(rows)
    # The columns generate a sublattice of all whole points of their span, whose index is the product of the pivots.
    index = prod(abs(rows[pivot][min(rows[pivot])]) for pivot in pivots)
    if len(pivots) < size:
        raise ValueError("the columns are dependent: they miss lattice points")
    if index > 1:
        raise ValueError(f"the columns miss lattice points, all but one in {index} (no saturated basis)")


@dataclass(frozen=True)
class SmithForm:
    """U A V = D with U and V unimodular, D diagonal, every diagonal entry dividing the next (equation 4).

    Attributes
    ----------
    U, D, V : ndarray of Python integers, (m, m), (m, d), (d, d)
    rank : int
        The last d - rank columns of V are a basis of the lattice {z : A z = 0}.
    """

    U: NDArray[np.object_]
    D: NDArray[np.object_]
    V: NDArray[np.object_]

    @property
    def rank(self) -> int:
        """Number of nonzero diagonal entries."""
        return int(np.count_nonzero(np.diagonal(self.D)))

    @property
    def null_basis(self) -> NDArray[np.object_]:
        """The last d - rank columns of V, (d, d - rank)."""
        return self.V[:, self.rank :]


def smith_form(A: Any) -> SmithForm:
    """The Smith normal form of a small integer matrix, with its transformations, in exact integers.

    Parameters
    ----------
    A : sparse array or array_like, (m, d)
        Whole numbers, at most 20,000 entries.

    Raises
    ------
    ValueError
        If an entry is not whole or the matrix larger; a lattice basis does not need the form, see `Lattice`.
    """
    given = whole_array(A.toarray() if sparse.issparse(A) else A, "the matrix")
    if given.size > _SMITH_LIMIT:
        raise ValueError(
            f"the Smith form of a {given.shape[0]} x {given.shape[1]} matrix is out of reach (at most {_SMITH_LIMIT:,} "
            "entries): use Lattice(invariants).basis, which needs no Smith form"
        )
    D = given.astype(object)  # Python's integers
    U, V = (_dense([{i: 1} for i in range(size)], size) for size in D.shape)
    while True:
        D, V = _echelon(D, V)
        transposed, U = _echelon(D.T, U.T)
        D, U = transposed.T, U.T
        diagonal = np.diagonal(D)
        if np.count_nonzero(D) > np.count_nonzero(diagonal):
            continue
        wrong = [i for i, d in enumerate(diagonal[:-1]) if d and diagonal[i + 1] % d]
        if not wrong:
            signs = np.where(diagonal < 0, -1, 1).astype(object)
            D[: signs.size], U[: signs.size] = D[: signs.size] * signs[:, None], U[: signs.size] * signs[:, None]
            return SmithForm(U, D, V)
        for matrix in (D, V):
            matrix[:, wrong[0]] += matrix[:, wrong[0] + 1]


def _echelon(matrix: NDArray[np.object_], applied: NDArray[np.object_]) -> tuple[NDArray, NDArray]:
    """The matrix, (m, d), in column echelon form, pivots first, and the same column operations on another, (k, d)."""
    columns = columns_of(matrix)
    transformation, pivots = column_echelon(columns)
    order = [*pivots, *sorted(set(range(len(columns))) - set(pivots))]
    combined = np.zeros_like(applied)
    for place, j in enumerate(order):
        for i, factor in transformation[j].items():
            combined[:, place] += factor * applied[:, i]
    return _dense([columns[j] for j in order], matrix.shape[0]), combined


def _dense(columns: list[Column], rows: int) -> NDArray[np.object_]:
    matrix = np.zeros((rows, len(columns)), dtype=object)
    for j, column in enumerate(columns):
        for i, value in column.items():
            matrix[i, j] = value
    return matrix
