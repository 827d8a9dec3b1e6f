"""Counting invariants: the sets of records whose sums noise must leave as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from constraint_builders.arrays import Integers
from constraint_builders.description.reals import read_matrix, whole_array, whole_number
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table
from constraint_builders.relations.marginals import marginal_matrix


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

        Parameters
        ----------
        subsets : sequence of iterable of int
        records : int

        Returns
        -------
        Invariants

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

        Returns
        -------
        Invariants

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

        Returns
        -------
        Invariants

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

        Parameters
        ----------
        table : array_like of int, (d,) or (d, K)

        Returns
        -------
        ndarray of int, (m,) or (m, K)

        Raises
        ------
        ValueError
            If the table has the wrong length or holds anything but whole numbers.
        """
        return np.asarray(self.matrix @ self.read_table(table), dtype=np.int64)

    def read_table(self, table: ArrayLike) -> Integers:
        """Check that a table holds one whole number for every record, and return it as int64.

        Parameters
        ----------
        table : array_like, (d,) or (d, K)

        Returns
        -------
        ndarray of int64, (d,) or (d, K)

        Raises
        ------
        ValueError
            If it has another shape, or holds what is no whole number.
        """
        values = whole_array(table, "a table")
        if values.shape[:1] != (self.records,):
            raise ValueError(f"a table must hold {self.records} records along its first axis: got {values.shape}")
        return values

    def read_vector(self, table: ArrayLike) -> Integers:
        """As `read_table`, of one table (d,).

        Parameters
        ----------
        table : array_like, (d,)

        Returns
        -------
        ndarray of int64, (d,)

        Raises
        ------
        ValueError
            As `read_table`, or if it holds several tables.
        """
        values = self.read_table(table)
        if values.ndim != 1:
            raise ValueError(f"a table is a vector of {self.records} records: got shape {values.shape}")
        return values

    def equivalent(self, first: ArrayLike, second: ArrayLike) -> bool:
        """Whether two tables (d,) have the same invariants.

        Parameters
        ----------
        first, second : array_like of int, (d,)

        Returns
        -------
        bool
        """
        return bool(np.array_equal(self.apply(first), self.apply(second)))

    def both(self, other: Invariants) -> Invariants:
        """The invariants of one and the other: tables are equivalent when they are so under each.

        This is the relation on which Proposition 6 composes two mechanisms.

        Parameters
        ----------
        other : Invariants
            Over the same records.

        Returns
        -------
        Invariants

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


def two_way_shape(invariants: Invariants) -> tuple[int, int] | None:
    """The shape of the two-way table whose two margins these are, axes of one level left out; None if they are not."""
    margins = invariants.margins
    if margins is None:
        return None
    wide = [axis for axis, length in enumerate(margins.shape) if length > 1]
    if len(wide) != 2 or margins.holds(wide) or not all(margins.holds([axis]) for axis in wide):
        return None
    return margins.shape[wide[0]], margins.shape[wide[1]]
