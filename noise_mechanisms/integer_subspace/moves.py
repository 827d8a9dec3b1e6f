"""Basic moves: short lattice vectors along which Markov chains step, and which together generate the lattice."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Integers
from constraint_builders.memory import require_memory
from noise_mechanisms.integer_subspace.invariants import Invariants
from noise_mechanisms.integer_subspace.lattice import Lattice, block_members, free_axes
from noise_mechanisms.table_moves import count_moves_along, moves_along

Table: TypeAlias = tuple[Integers, tuple[int, ...], frozenset[int]]  # its records, its shape, axes to move along


@dataclass(frozen=True)
class Moves:
    """A list of lattice vectors.

    Attributes
    ----------
    cells : ndarray of int64, (moves, width)
        The cells that a move changes; shorter moves are filled up with cell 0 and step 0.
    steps : ndarray of int64, (moves, width)
        By how much.
    """

    cells: Integers
    steps: Integers

    @property
    def count(self) -> int:
        """Number of moves."""
        return int(self.cells.shape[0])

    @property
    def unit(self) -> bool:
        """Whether every move changes every one of its cells by 1 or -1."""
        return bool((abs(self.steps) == 1).all())


def basic_moves(lattice: Lattice) -> Moves:
    """All basic moves, each in one of its two directions.

    Margins: for every smallest set of axes whose margin is free, every pair of levels on each of these axes and every
    combination of levels of the other axes; for both margins of a two-way table these are all 2 x 2 moves. Nested sets:
    every pair of records of a block, and every free record by itself. Other sets: every pair of records that are in the
    same sets, and the lattice basis.

    Raises
    ------
    ValueError
        If the lattice holds nothing but zero.
    MemoryError
        If the list would not fit.
    """
    if lattice.dimension == 0:
        raise ValueError(f"{lattice.invariants} determine every record: there is no noise to draw and no move")
    margins, basis = lattice.invariants.margins, lattice.basis
    if margins is not None:
        free = [frozenset(axes) for axes in free_axes(margins)]
        smallest = [axes for axes in free if not any(other < axes for other in free)]
        return _list_moves([(np.arange(lattice.records), margins.shape, axes) for axes in smallest], basis[:, :0])
    pairs: list[Table] = [
        (group, (group.size,), frozenset({0})) for group in _alike(lattice.invariants) if group.size > 1
    ]
    is_pair = (np.diff(basis.indptr) == 2) & (basis.sum(axis=0) == 0)
    return _list_moves(pairs, basis[:, ~is_pair])


def _alike(invariants: Invariants) -> list[Integers]:
    """The blocks of nested sets; under others the records that are in the same sets."""
    if invariants.blocks is not None:
        return block_members(invariants.blocks)
    return block_members(np.unique(invariants.matrix.toarray(), axis=1, return_inverse=True)[1].ravel())


def _list_moves(tables: list[Table], others: sparse.csc_array) -> Moves:
    """The moves of tables, and other vectors, (d, k), filled up to one width; the first step of each is positive."""
    lengths, counts = np.diff(others.indptr), [count_moves_along(shape, axes) for _, shape, axes in tables]
    first = sum(counts)  # of the others
    size = (first + lengths.size, max([2 ** len(axes) for *_, axes in tables] + [int(lengths.max(initial=0))]))
    require_memory(
        32.0 * prod(size),
        f"the list of {size[0]:,} basic moves",
        "use Gaussian noise or the L2 norm, whose samplers need no moves",
    )
    cells, steps = np.zeros(size, dtype=np.intp), np.zeros(size, dtype=np.int64)
    along = {(shape, axes): moves_along(shape, axes) for shape, axes in {table[1:] for table in tables}}
    for (records, shape, axes), start, count in zip(tables, np.cumsum([0, *counts]), counts, strict=False):
        moved, by = along[shape, axes]
        block = slice(start, start + count), slice(by.size)
        np.take(records, moved, out=cells[block], mode="clip")
        steps[block] = by
    places = (
        np.repeat(first + np.arange(lengths.size), lengths),
        np.arange(others.nnz) - np.repeat(others.indptr[:-1], lengths),
    )
    cells[places], steps[places] = others.indices, others.data
    steps[first:] *= np.sign(steps[first:, :1])
    return Moves(cells, steps)
