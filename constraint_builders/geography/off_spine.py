"""How far entities lie from a spine: Algorithm 1, and the geounits that compose an entity.

The off-spine entity distance (OSED) of an entity is the least number of geounits that must be added and subtracted to
compose it. With c[k, u] that number for the part of entity k inside geounit u, and c[k', u] for the rest of u, a block
has c[k, u] = 1 if it is in k and otherwise c[k', u] = 1, the other being 0, and over the children v of a geounit

    c[k, u]  = min(sum_v c[k, v],  1 + sum_v c[k', v])
    c[k', u] = min(sum_v c[k', v], 1 + sum_v c[k, v])

(paper, equations 20 to 23). A geounit that the entity does not meet has (0, 1), so pairs (c, c' - 1), which are zero
there, are kept in a sparse array, as complex numbers: the work is proportional to the geounits that entities meet, and
a sum over children is one sparse product for all entities.

Where some geounits cannot be used, only the sums over children are left to them, and an unusable block costs more than
all geounits together; whole geounits then cost w instead of 1, and the pairs are (c, c' - w).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Index
from constraint_builders.description.spine import Spine
from constraint_builders.geography.entities import Entities, check_blocks, depths, leaves


class NotComposableError(ValueError):
    """No sum or difference of the usable geounits is an entity; the message names it."""


def osed(spine: Spine, entities: Entities) -> Index:
    """Off-spine entity distance of every entity.

    Parameters
    ----------
    spine : Spine
    entities : Entities
        Of as many blocks as the spine has leaves.

    Returns
    -------
    ndarray of int, (K,)
        Numbers of geounits.

    Raises
    ------
    ValueError
        If the entities are of another number of blocks.

    References
    ----------
    Paper, Algorithm 1.
    """
    return child_sums_and_costs(spine, entities)[1].row(int(np.flatnonzero(spine.parent < 0)[0]))[0]


@dataclass(frozen=True)
class OsedSummary:
    """Mean, maximum and sorted vector of off-spine entity distances.

    Attributes
    ----------
    mean : float
    maximum : int
    descending : ndarray of int, (K,)
    """

    mean: float
    maximum: int
    descending: Index


def summarise_osed(distances: Index) -> OsedSummary:
    """Mean, maximum and the vector, (K,), sorted from the largest down, which Algorithm 2 compares."""
    return OsedSummary(float(np.mean(distances)), int(np.max(distances)), np.sort(distances)[::-1])


class PairCosts:
    """Costs of entities, or sums of costs over children, in the geounits that they meet.

    Stored as c + i (c' - w) with w what c' is where the entity is not met: the cost of the whole geounit, or the sum of
    its children's.
    """

    def __init__(self, matrix: sparse.csr_array, absent: Index) -> None:
        self.matrix = matrix
        self.absent = absent

    def row(self, geounit: int) -> tuple[Index, Index]:
        """Costs of every entity and of its complement in one geounit, (K,) each."""
        dense = self.matrix[[geounit]].toarray()[0]
        return dense.real.astype(np.intp), dense.imag.astype(np.intp) + self.absent[geounit]

    def look_up(self, geounits: Index, entities: Index) -> tuple[Index, Index]:
        """Costs of pairs of a geounit and an entity, (n,) each."""
        width = self.matrix.shape[1]
        stored = np.repeat(np.arange(self.matrix.shape[0]), np.diff(self.matrix.indptr)) * width + self.matrix.indices
        wanted = geounits * width + entities
        place = np.searchsorted(stored, wanted)
        met = np.flatnonzero(place < stored.size)
        met = met[stored[place[met]] == wanted[met]]
        values = np.zeros(wanted.size, dtype=np.complex128)
        values[met] = self.matrix.data[place[met]]
        return values.real.astype(np.intp), values.imag.astype(np.intp) + self.absent[geounits]


def child_sums_and_costs(
    spine: Spine, entities: Entities, usable: NDArray[np.bool_] | None = None
) -> tuple[PairCosts, PairCosts]:
    """Sums over children of the costs c and c', and the costs, (N, K) each (module docstring); `usable` is (N,)."""
    usable = np.ones(spine.size, dtype=bool) if usable is None else usable
    blocks = leaves(spine)
    check_blocks(blocks.size, entities.blocks)
    depth = depths(spine)
    whole, parts = _whole_costs(spine, depth, usable)
    shape = (spine.size, entities.size)
    placed = sparse.coo_array(entities.contains.T)
    met = blocks[placed.row]
    costs = sparse.csr_array((whole[met] * (1 - 1j), (met, placed.col)), shape=shape)
    sums = sparse.csr_array(shape, dtype=np.complex128)
    for level in range(int(depth.max()), 0, -1):
        children = np.flatnonzero(depth == level)
        gather = (np.ones(children.size), (spine.parent[children], children))
        total = sparse.csr_array(sparse.csr_array(gather, shape=(spine.size, spine.size)) @ costs)
        sums = sums + total
        costs = costs + _cheaper(total, parts, whole, usable)
    for matrix in (sums, costs):
        matrix.sort_indices()
    return PairCosts(sums, parts), PairCosts(costs, whole)


def _whole_costs(spine: Spine, depth: Index, usable: NDArray[np.bool_]) -> tuple[Index, Index]:
    """What every whole geounit costs, and the sum of that over its children, (N,) each."""
    whole, parts = np.ones(spine.size, dtype=np.intp), np.zeros(spine.size, dtype=np.intp)
    for level in range(int(depth.max()), -1, -1):
        own = np.flatnonzero(depth == level)
        by_parts = np.where(spine.child_counts[own] > 0, parts[own], spine.size + 1)
        whole[own] = np.where(usable[own], 1, by_parts)
        inner = own[spine.parent[own] >= 0]
        np.add.at(parts, spine.parent[inner], whole[inner])
    return whole, parts


def _cheaper(total: sparse.csr_array, parts: Index, whole: Index, usable: NDArray[np.bool_]) -> sparse.csr_array:
    """Costs, (N, K), from their sums over children, (N, K); `parts`, `whole` and `usable` are (N,)."""
    rows = np.repeat(np.arange(total.shape[0]), np.diff(total.indptr))
    by_parts = total.data.real, total.data.imag + parts[rows]
    inside, outside = np.where(usable[rows], cheaper(*by_parts), by_parts)
    return sparse.csr_array((inside + 1j * (outside - whole[rows]), total.indices, total.indptr), shape=total.shape)


def cheaper(inside: NDArray, outside: NDArray) -> tuple[NDArray, NDArray]:
    """Costs in a geounit from the sums of costs over its children, in their shape (paper, equations 22 and 23)."""
    return np.minimum(inside, 1 + outside), np.minimum(outside, 1 + inside)


def compositions(spine: Spine, entities: Entities, usable: NDArray[np.bool_] | None = None) -> sparse.csr_array:
    """Which geounits to add and subtract to compose every entity with as few as possible.

    Parameters
    ----------
    spine : Spine
    entities : Entities
    usable : ndarray of bool, (N,), optional
        Which geounits may be added and subtracted; by default all.

    Returns
    -------
    csr_array of int, (K, N)
        1 where a geounit is added, -1 where it is subtracted. Without `usable` every row has `osed` entries. Where
        several choices are equally short the larger geounits are taken.

    Raises
    ------
    ValueError
        If the entities are of another number of blocks.
    NotComposableError
        If an entity cannot be composed of usable geounits.
    """
    usable = np.ones(spine.size, dtype=bool) if usable is None else usable
    sums, costs = child_sums_and_costs(spine, entities, usable)
    children = _children(spine)
    root = int(np.flatnonzero(spine.parent < 0)[0])
    impossible = np.flatnonzero(costs.row(root)[0] > spine.size)
    if impossible.size:
        raise NotComposableError(f"entity {entities.names[impossible[0]]!r} cannot be composed of the usable geounits")
    wanted = _Wanted(
        np.full(entities.size, root),
        np.arange(entities.size),
        np.ones(entities.size, int),
        np.ones(entities.size, bool),
    )
    chosen: list[_Wanted] = []
    while wanted.geounit.size:
        cost = np.where(wanted.inside, *costs.look_up(wanted.geounit, wanted.entity))
        wanted = wanted.where(cost > 0)
        inside, outside = sums.look_up(wanted.geounit, wanted.entity)
        by_parts, rest = np.where(wanted.inside, inside, outside), np.where(wanted.inside, outside, inside)
        itself = (spine.child_counts[wanted.geounit] == 0) | (usable[wanted.geounit] & (1 + rest <= by_parts))
        chosen.append(wanted.where(itself))
        wanted = wanted.below(itself, children, spine.child_counts)
    entity, geounit, sign = (
        np.concatenate([getattr(c, part) for c in chosen]) for part in ("entity", "geounit", "sign")
    )
    return sparse.csr_array((sign, (entity, geounit)), shape=(entities.size, spine.size))


@dataclass(frozen=True)
class _Wanted:
    """Parts still to compose: of a geounit the part inside an entity, or the rest, to be added or subtracted."""

    geounit: Index
    entity: Index
    sign: Index
    inside: NDArray[np.bool_]

    def where(self, kept: NDArray[np.bool_]) -> _Wanted:
        """The parts that are flagged, (parts,)."""
        return self._map(lambda array: array[kept])

    def below(self, taken: NDArray[np.bool_], children: Index, child_counts: Index) -> _Wanted:
        """The parts of children, (N - 1,): the same, or what is to be undone where the geounit was taken, (parts,)."""
        turned = _Wanted(
            self.geounit,
            self.entity,
            np.where(taken, -self.sign, self.sign),
            np.where(taken, ~self.inside, self.inside),
        )
        counts = child_counts[self.geounit]
        starts = (np.cumsum(child_counts) - child_counts)[self.geounit]
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        spread = turned._map(lambda array: np.repeat(array, counts))
        return _Wanted(children[np.repeat(starts, counts) + offsets], spread.entity, spread.sign, spread.inside)

    def _map(self, change: Callable[[NDArray], NDArray]) -> _Wanted:
        return _Wanted(change(self.geounit), change(self.entity), change(self.sign), change(self.inside))


def _children(spine: Spine) -> Index:
    """Positions of all geounits but the root, by parent."""
    order = np.argsort(spine.parent, kind="stable")
    return order[spine.parent[order] >= 0]
