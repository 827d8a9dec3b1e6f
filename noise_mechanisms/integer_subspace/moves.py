"""Basic moves: short lattice vectors along which Markov chains step, and which together generate the lattice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from math import comb, prod

import numpy as np

from constraint_builders.arrays import Integers
from constraint_builders.memory import require_memory
from noise_mechanisms.integer_subspace.invariants import Margins
from noise_mechanisms.integer_subspace.lattice import Lattice, block_members, free_axes
from noise_mechanisms.unimodular import columns_of


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
    if lattice.invariants.margins is not None:
        return _margin_moves(lattice.invariants.margins)
    if lattice.invariants.blocks is not None:
        blocks = lattice.invariants.blocks
        return _list_moves(_pairs(block_members(blocks)), [{int(cell): 1} for cell in np.flatnonzero(blocks < 0)])
    _, twins = np.unique(lattice.invariants.matrix.toarray(), axis=1, return_inverse=True)
    return _list_moves(_pairs(block_members(np.ravel(twins))), columns_of(lattice.basis))


def _margin_moves(margins: Margins) -> Moves:
    free = [set(axes) for axes in free_axes(margins)]
    smallest = [axes for axes in free if not any(other < axes for other in free)]
    counts = [_count_moves(margins.shape, axes) for axes in smallest]
    width = 2 ** max(len(axes) for axes in smallest)
    require_memory(
        32.0 * sum(counts) * width,
        f"the list of {sum(counts):,} basic moves",
        "use Gaussian noise or the L2 norm, whose samplers need no moves",
    )
    cells = np.zeros((sum(counts), width), dtype=np.int64)
    steps = np.zeros_like(cells)
    start = 0
    for axes, count in zip(smallest, counts, strict=True):
        block = slice(start, start + count)
        corners = 2 ** len(axes)
        cells[block, :corners] = _tensor_cells(margins.shape, axes)
        steps[block, :corners] = [(-1) ** sum(corner) for corner in product((0, 1), repeat=len(axes))]
        start += count
    return Moves(cells, steps)


def _count_moves(shape: tuple[int, ...], axes: set[int]) -> int:
    return prod(comb(length, 2) if axis in axes else length for axis, length in enumerate(shape))


def _tensor_cells(shape: tuple[int, ...], axes: set[int]) -> Integers:
    """Cells (moves, 2^|axes|) of all moves along these axes, the first axis' corner varying slowest."""
    cells = np.zeros((1, 1), dtype=np.int64)
    for axis, length in enumerate(shape):
        ends = np.column_stack(np.triu_indices(length, 1)) if axis in axes else np.arange(length)[:, None]
        joined = cells[:, None, :, None] * length + ends[None, :, None, :]
        cells = joined.reshape(cells.shape[0] * ends.shape[0], cells.shape[1] * ends.shape[1])
    return cells


def _pairs(groups: list[Integers]) -> Iterator[dict[int, int]]:
    for group in groups:
        for first, second in combinations(group.tolist(), 2):
            yield {first: 1, second: -1}


def _list_moves(*parts: Iterator[dict[int, int]] | list[dict[int, int]]) -> Moves:
    """Pad to one width, each move once: up to sign they are the keys of a dictionary."""
    distinct: dict[tuple[tuple[int, int], ...], None] = {}
    for part in parts:
        for move in part:
            items = sorted(move.items())
            sign = 1 if items[0][1] > 0 else -1
            distinct[tuple((cell, sign * step) for cell, step in items)] = None
    width = max(len(move) for move in distinct)
    padded = np.array([[*move, *[(0, 0)] * (width - len(move))] for move in distinct], dtype=np.int64)
    return Moves(np.ascontiguousarray(padded[:, :, 0]), np.ascontiguousarray(padded[:, :, 1]))
