"""Counting invariants, the lattice of whole-number noise that leaves them as they are, and exact bases of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from constraint_builders.arrays import Integers
from constraint_builders.description.linear import read_matrix
from constraint_builders.description.reals import whole_array, whole_number
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table
from constraint_builders.relations.marginals import marginal_matrix
from noise_mechanisms.unimodular import Column, column_echelon, columns_of, unimodular_null_basis

_SMITH_LIMIT = 20_000  # entries of A: beyond, intermediate entries and time explode


@dataclass(frozen=True)
class Margins:
    """Full marginals of one contingency table: its shape, and for each kept margin the set of its axes."""

    shape: tuple[int, ...]
    faces: tuple[frozenset[int], ...]

    def holds(self, axes: Iterable[int]) -> bool:
        """Whether the margin over these axes is among, or follows from, the invariants."""
        return any(frozenset(axes) <= face for face in self.faces)


class Invariants:
    """Sets of records whose sums are the same in the confidential and in the released table.

    Use one of the constructors `from_subsets`, `from_margins`, `from_spine`.

    Parameters
    ----------
    matrix : sparse array or array_like, (m, d)
        The incidence matrix A: entry (i, j) is 1 when record j belongs to set i, 0 otherwise.
    margins : Margins, optional
        Says that the sets are exactly these margins, in any order and possibly repeated.

    Attributes
    ----------
    matrix : csr_array of int64, (m, d)
    margins : Margins or None

    Raises
    ------
    ValueError
        If it is no matrix, an entry is neither 0 nor 1, a set is empty, or there is no record.

    Notes
    -----
    Definition 1 and equation (3) of the paper (Dharangutte, Gao, Gong and Yu, "Integer subspace differential
    privacy", AAAI 2023). Two tables are *equivalent* when all their invariants agree.
    """

    def __init__(self, matrix: Any, margins: Margins | None = None) -> None:
        read = read_matrix(matrix, "the incidence matrix")
        if not np.all(read.data == 1):
            wrong = read.data[read.data != 1][0]
            raise ValueError(f"the incidence matrix of counting invariants holds 0 and 1 only: got {wrong:g}")
        self.matrix = read.astype(np.int64)
        self.margins = margins
        if (self.set_sizes == 0).any():
            raise ValueError(f"invariant {int(np.argmin(self.set_sizes))} contains no record: leave it out")

    @classmethod
    def from_subsets(cls, subsets: Sequence[Iterable[int]], records: int) -> Invariants:
        """Fix the sum over each subset of the records 0, ..., records - 1.

        Raises
        ------
        ValueError
            If a subset is empty, names a record twice, or by no whole number, or one that does not exist.

        Examples
        --------
        >>> Invariants.from_subsets([[0, 1, 2], [2, 3]], records=4).matrix.toarray()
        array([[1, 1, 1, 0],
               [0, 0, 1, 1]])
        """
        members = [[whole_number(record, "a record", 0) for record in subset] for subset in subsets]
        for number, subset in enumerate(members):
            if any(record >= records for record in subset):
                wrong = next(record for record in subset if record >= records)
                raise ValueError(f"subset {number} names record {wrong}: records are 0 to {records - 1}")
            if len(set(subset)) < len(subset):
                raise ValueError(f"subset {number} names a record twice: a subset is a set")
        rows = np.repeat(np.arange(len(members)), [len(subset) for subset in members])
        columns = np.array([record for subset in members for record in subset], dtype=np.int64)
        ones = np.ones(columns.size, dtype=np.int64)
        return cls(sparse.csr_array((ones, (rows, columns)), shape=(len(members), records)))

    @classmethod
    def from_margins(cls, schema: Schema, tables: Sequence[str]) -> Invariants:
        """Fix every cell of these tables; the records are the cells of the schema's detailed table.

        Parameters
        ----------
        schema : Schema
            Describes the detailed table.
        tables : sequence of str
            Names such as ``"total"``, ``"sex"``, ``"sex * age"``; recodes are allowed.

        Raises
        ------
        ValueError
            If a name is no table of the schema.

        Examples
        --------
        >>> Invariants.from_margins(Schema({"county": 2, "education": 2}), ["county", "education"]).matrix.toarray()
        array([[1, 1, 0, 0],
               [0, 0, 1, 1],
               [1, 0, 1, 0],
               [0, 1, 0, 1]])
        """
        parsed = tuple(parse_table(schema, name) for name in tables)
        plain = all(factor in schema.names for table in parsed for factor in table.factors)
        margins = Margins(schema.shape, tuple(frozenset(table.axes) for table in parsed)) if plain else None
        if not parsed:
            return cls(sparse.csr_array((0, int(np.prod(schema.shape)))), margins)
        return cls(marginal_matrix(schema, parsed), margins)

    @classmethod
    def from_spine(cls, spine: Spine, levels: Sequence[str]) -> Invariants:
        """Fix the total of every geounit of these geolevels; the records are the spine's leaves, in its order.

        Parameters
        ----------
        spine : Spine
            The tree of geounits.
        levels : sequence of str
            Geolevels whose totals stay as they are.

        Raises
        ------
        ValueError
            If the spine has no such geolevel.

        Examples
        --------
        A country of two states with two and one counties, the states' totals fixed:

        >>> spine = Spine([-1, 0, 0, 1, 1, 2], ["US", "State", "State", "County", "County", "County"])
        >>> Invariants.from_spine(spine, ["State"]).matrix.toarray()
        array([[1, 1, 0],
               [0, 0, 1]])
        """
        fixed = sorted({spine.level_index(level) for level in levels})
        none = sparse.csr_array((0, np.count_nonzero(spine.child_counts == 0)))
        return cls(sparse.vstack([none, *(spine.leaves_of(level) for level in fixed)]))

    @property
    def records(self) -> int:
        """Number of records d."""
        return int(self.matrix.shape[1])

    @property
    def set_sizes(self) -> Integers:
        """Number of records in every set, (m,)."""
        return np.diff(self.matrix.indptr).astype(np.int64)

    def apply(self, table: ArrayLike) -> Integers:
        """Return the invariants (m,) of a table (d,), or (m, K) of (d, K), in whole numbers.

        Raises
        ------
        ValueError
            If the table has the wrong length or holds anything but whole numbers.
        """
        return np.asarray(self.matrix @ self.read_table(table), dtype=np.int64)

    def read_table(self, table: ArrayLike) -> Integers:
        """Check that a table holds one whole number for every record, and return it as int64."""
        values = whole_array(table, "a table")
        if values.shape[:1] != (self.records,):
            raise ValueError(f"a table must hold {self.records} records along its first axis: got {values.shape}")
        return values

    def equivalent(self, first: ArrayLike, second: ArrayLike) -> bool:
        """Whether two tables (d,) have the same invariants."""
        return bool(np.array_equal(self.apply(first), self.apply(second)))

    def both(self, other: Invariants) -> Invariants:
        """The invariants of one and the other: tables are equivalent when they are so under each.

        This is the relation on which Proposition 6 composes two mechanisms.

        Raises
        ------
        ValueError
            If the two speak of different numbers of records.
        """
        if other.records != self.records:
            raise ValueError(f"invariants of {self.records} and of {other.records} records cannot be held together")
        margins = None
        if self.margins and other.margins and self.margins.shape == other.margins.shape:
            margins = Margins(self.margins.shape, self.margins.faces + other.margins.faces)
        return Invariants(sparse.vstack([self.matrix, other.matrix]), margins)

    @cached_property
    def blocks(self) -> Integers | None:
        """For nested sets, the block of every record, (d,); None when some two sets overlap without being nested.

        Subtracting from every set the sets inside it leaves disjoint blocks, each with a fixed sum. A record is in
        block i when i is the smallest set around it (of equal sets one), and in block -1 when nothing holds it.
        """
        A, sizes = self.matrix, self.set_sizes
        overlap = sparse.coo_array(A @ A.T)
        rows, columns = overlap.coords
        if not np.array_equal(overlap.data, np.minimum(sizes[rows], sizes[columns])):
            return None
        block = np.full(self.records, -1, dtype=np.int64)
        for row in np.argsort(-sizes, kind="stable"):
            block[A.indices[A.indptr[row] : A.indptr[row + 1]]] = row
        return block

    def __repr__(self) -> str:
        return f"Invariants({self.matrix.shape[0]} sets of {self.records} records)"


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
        by_record = sparse.csc_array(self.invariants.matrix)
        memberships = [tuple(sorted(part)) for part in np.split(by_record.indices, by_record.indptr[1:-1])]
        if () in memberships:
            return 1
        return 2 if len(set(memberships)) < len(memberships) else 3


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
    strides = _strides(margins.shape)
    indices, data, lengths = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.zeros(1, np.int64)]
    for axes in free_axes(margins):
        counts = [margins.shape[axis] - 1 for axis in axes]
        levels = np.indices(counts).reshape(len(axes), prod(counts)) + 1
        corners = np.array(list(product((0, 1), repeat=len(axes))), dtype=np.int64).reshape(2 ** len(axes), len(axes))
        cells = (corners * strides[list(axes)]) @ levels
        signs = (-1) ** (len(axes) - corners.sum(axis=1))
        indices.append(cells.T.ravel())
        data.append(np.tile(signs, cells.shape[1]))
        lengths.append(np.full(cells.shape[1], signs.size))
    return sparse.csc_array(
        (np.concatenate(data), np.concatenate(indices), np.cumsum(np.concatenate(lengths))),
        shape=(prod(margins.shape), sum(part.size for part in lengths) - 1),
    )


def _strides(shape: tuple[int, ...]) -> NDArray[np.int64]:
    return np.append(np.cumprod(shape[:0:-1], dtype=np.int64)[::-1], 1)


def block_members(blocks: Integers) -> list[Integers]:
    """The records of every block with a fixed sum, in increasing order; free records (block -1) are left out."""
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
    members = block_members(blocks)
    free = np.flatnonzero(blocks < 0)
    later = np.concatenate([np.empty(0, np.int64), *(part[1:] for part in members)])
    first = np.concatenate([np.empty(0, np.int64), *(np.full(part.size - 1, part[0]) for part in members)])
    rows = np.concatenate([later, free, first])
    columns = np.concatenate([np.arange(later.size + free.size), np.arange(first.size)])
    data = np.where(np.arange(rows.size) < later.size + free.size, 1, -1)
    return sparse.csc_array((data, (rows, columns)), shape=(blocks.size, later.size + free.size))


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
    """The matrix in column echelon form, pivots first, and the same column operations on another one."""
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
