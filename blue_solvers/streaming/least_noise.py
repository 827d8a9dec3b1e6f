"""Linear combinations of measured cells, written so that the measurements of them have little noise.

What is known of consistent tables may be said of the tables themselves or of what they add up to: of all blocks, or of
the state. Any multiple of (cell of a coarse table - its cells in a fine one) may be added to a combination. Which is
added matters where a sum was measured far more precisely than its parts: nearly all of the parts' noise cancels in the
combination then, and with it the digits of whatever is worked out from there.

Weights go up first, from the fine cells of every sum to the coarse one, as much as leaves least noise below: in the
sum of |weight| x variance over cells that is a median of their weights, and of equal weights exactly nothing is left
(Tukey's median polish, with variances). Tables that were not measured take part, since others may lie above them.
Then weights go down again, from cells that were measured worse than their parts, or not at all. Where sums are hardly
known better than their parts, what is above may gain somewhat more noise than is lost below, which costs no digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from scipy import sparse

from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import kronecker, margin_matrix, refines

TableAtLevel: TypeAlias = tuple[int, Table]

EVEN = 1e-9  # share of the noise of a sum's parts that rounding may put on the wrong side of their median


def with_little_noise(problem: Problem) -> sparse.csr_array:
    """The combinations of a problem on a spine, (k, n), that say the same of consistent tables.

    Those that say nothing of them stay as they are.
    """
    E, spine = problem.equality_rows[0], problem.domain.spine
    if not E.shape[0]:
        return E
    concerned = _concerned(problem, E)
    members = [own[concerned[own]] for own in spine.members]
    measured = list(zip(problem.observed_levels, problem.observed_tables, strict=True))
    every = [(level, own) for level in range(len(spine.levels)) for own in dict.fromkeys(problem.observed_tables)]
    every.sort(key=lambda own: (-own[0], -own[1].size))
    noise = {own: np.full(members[own[0]].size * own[1].size, np.inf) for own in every}
    weights = {own: sparse.csr_array((E.shape[0], noise[own].size)) for own in every}
    places = dict[TableAtLevel, Index]()
    for i, own in enumerate(measured):
        rows, size, cut = spine.rank_in_level[members[own[0]]], own[1].size, problem.observed.block(i)
        cells = (rows[:, None] * size + np.arange(size)).ravel()
        places[own], weights[own] = cut.start + cells, sparse.csr_array(E[:, cut][:, cells])
        noise[own] = _noise(problem, own, members[own[0]], places[own])
    pairs, least = list(_pairs(problem, every)), noise.copy()
    for fine, coarse in pairs:
        sums = _sums(problem, fine, coarse, members)
        least[coarse] = np.minimum(least[coarse], _summed(sums, least[fine]))
        if weights[fine].nnz:
            _move(weights, fine, coarse, sums, _medians(weights[fine], sums, least[fine]))
    for fine, coarse in reversed(pairs):
        if weights[coarse].nnz:
            sums = _sums(problem, fine, coarse, members)
            better = (least[coarse] < noise[coarse]) & (_summed(sums, least[fine]) == least[coarse])
            back = sparse.csr_array(weights[coarse] @ sparse.diags_array(better.astype(float)))
            _move(weights, fine, coarse, sums, -back)
    moved = _laid_out([(weights[own].tocoo(), places[own]) for own in measured], E.shape)
    says_nothing = np.diff(moved.indptr) == 0
    return sparse.csr_array(moved + sparse.diags_array(says_nothing.astype(float)) @ E)


def _laid_out(parts: Sequence[tuple[sparse.coo_array, Index]], shape: tuple[int, int]) -> sparse.csr_array:
    """Weights of tables, (k, cells), at the places of their cells, (cells,), in one matrix."""
    rows, columns = (np.concatenate(own) for own in zip(*((w.row, at[w.col]) for w, at in parts), strict=True))
    return sparse.csr_array((np.concatenate([w.data for w, _ in parts]), (rows, columns)), shape=shape)


def _concerned(problem: Problem, E: sparse.csr_array) -> Flags:
    """Which geounits combinations, (k, n), speak of or may be moved to, (geounits,).

    What is above these and its children; and theirs, where some table was not measured, or worse than in these.
    """
    spine, schema, tables = problem.domain.spine, problem.domain.schema, set(problem.observed_tables)
    (spoken_of, lacks), below = np.zeros((2, spine.size), dtype=bool), np.zeros(spine.size)
    total = np.full(spine.size, np.inf)  # variance of all of a geounit by the table that says most of it
    is_used = np.zeros(E.shape[1], dtype=bool)
    is_used[E.indices] = True
    for level, members in enumerate(spine.members):
        own = [i for i, other in enumerate(problem.observed_levels) if other == level]
        there = [problem.observed_tables[i] for i in own]
        lacks[members] = not all(any(refines(schema, fine, table) for fine in there) for table in tables)
        for i, table in zip(own, there, strict=True):
            cut = problem.observed.block(i)
            spoken_of[members] |= is_used[cut].reshape(-1, table.size).any(axis=1)
            lacks[members] |= problem.unmeasured[cut].reshape(-1, table.size).any(axis=1)
            total[members] = np.minimum(total[members], problem.variances[cut].reshape(-1, table.size).sum(axis=1))
    for members in reversed(spine.members[1:]):
        parents = spine.parent[members]
        spoken_of[parents[spoken_of[members]]] = True
        is_inner = spine.child_counts[members] > 0
        best = np.where(is_inner, np.minimum(total[members], below[members]), total[members])
        below += np.bincount(parents, best, spine.size)
    lacks |= below < total
    goes_on, found = spoken_of, spoken_of.copy()
    for members in spine.members[1:]:
        found[members] |= goes_on[spine.parent[members]]
        goes_on[members] |= found[members] & lacks[members]
    return found


def _noise(problem: Problem, own: TableAtLevel, members: Index, places: Index) -> Float:
    """Variances of measured cells at places, (n,), of some geounits; structural zeros have none, as they are known."""
    variances = problem.variances[places]
    empty = problem.known_empty.cells(own[1], members).ravel()
    return np.where(empty & np.isfinite(variances), 0.0, variances)


def _pairs(problem: Problem, every: list[TableAtLevel]) -> Iterator[tuple[TableAtLevel, TableAtLevel]]:
    """Tables and what they add up to at once, at their level or above it; each after all that add up to it."""
    for i, (level, table) in enumerate(every):
        for above, coarse in every[i + 1 :]:
            within = above == level and refines(problem.domain.schema, table, coarse)
            if within or (above < level and coarse == table):
                yield (level, table), (above, coarse)


def _sums(problem: Problem, fine: TableAtLevel, coarse: TableAtLevel, members: Sequence[Index]) -> sparse.csr_array:
    """The cells of a coarse table, as sums of those of a fine one, (m, n), of members of the levels, (geounits,) each.

    With nothing in rows of geounits whose children are not all at the fine table's level.
    """
    spine, children, above = problem.domain.spine, members[fine[0]], members[coarse[0]]
    if coarse[0] == fine[0]:
        own = margin_matrix(problem.domain.schema, fine[1], coarse[1])
        return kronecker(sparse.eye_array(children.size, format="csr"), own)
    counts = np.bincount(spine.parent[children] + 1, minlength=spine.size + 1)[above + 1]
    place = np.full(spine.size + 1, -1)  # the last one of no parent
    place[above] = np.where(counts == spine.child_counts[above], np.arange(above.size), -1)
    parents = place[spine.parent[children]]
    added = np.flatnonzero(parents >= 0)
    by_place = sparse.csr_array((np.ones(added.size), (parents[added], added)), shape=(above.size, children.size))
    return kronecker(by_place, sparse.eye_array(fine[1].size, format="csr"))


def _summed(sums: sparse.csr_array, noise: Float) -> Float:
    """The noise of what cells with noise, (n,), add up to, (m,); without bound where nothing is known to."""
    return np.where(np.diff(sums.indptr) > 0, sums @ noise, np.inf)


def _move(
    weights: dict[TableAtLevel, sparse.csr_array],
    fine: TableAtLevel,
    coarse: TableAtLevel,
    sums: sparse.csr_array,
    moved: sparse.csr_array,
) -> None:
    """Move weights, (k, m), to the cells of a coarse table from those of a fine one, (n,), that they are sums of."""
    weights[fine] = sparse.csr_array(weights[fine] - moved @ sums)
    weights[coarse] = sparse.csr_array(weights[coarse] + moved)
    for own in (fine, coarse):
        weights[own].eliminate_zeros()


def _medians(weights: sparse.csr_array, sums: sparse.csr_array, noise: Float) -> sparse.csr_array:
    """Medians of the weights, (k, n), of all that sums, (m, n), add up, of which noise counts, (n,): (k, m)."""
    into = np.full(noise.size, -1)
    into[sums.indices] = np.repeat(np.arange(sums.shape[0]), np.diff(sums.indptr))
    own = weights.tocoo()
    inside = into[own.col] >= 0
    row, cell, values = own.row[inside], own.col[inside], own.data[inside]
    groups, group = np.unique(row * sums.shape[0] + into[cell], return_inverse=True)
    rows, above = np.divmod(groups, sums.shape[0])
    without = (sums @ noise)[above] - np.bincount(group, noise[cell], minlength=groups.size)
    median = _weighted_medians(
        np.concatenate([group, np.arange(groups.size)]),
        np.concatenate([values, np.zeros(groups.size)]),
        np.concatenate([noise[cell], np.maximum(without, 0.0)]),
    )
    found = sparse.csr_array((median, (rows, above)), shape=(weights.shape[0], sums.shape[0]))
    found.eliminate_zeros()
    return found


def _weighted_medians(group: Index, values: Float, masses: Float) -> Float:
    """The median of every group, (groups,), of values with masses; 0 where that is one, or a mass is infinite."""
    whole = np.bincount(group, masses)
    usable = np.isfinite(whole) & (whole > 0)
    shares = np.divide(masses, whole[group], out=np.zeros(masses.size), where=usable[group])
    order = np.lexsort((values, group))
    reached = np.cumsum(shares[order]) - np.append(0.0, np.cumsum(usable))[group[order]]
    first = np.flatnonzero(reached >= 0.5 - EVEN)
    medians = np.zeros(whole.size)
    own, position = np.unique(group[order][first], return_index=True)
    medians[own] = values[order][first[position]]
    below, above = (np.bincount(group, np.where(side, shares, 0.0)) for side in (values < 0, values > 0))
    return np.where(usable & (np.maximum(below, above) > 0.5 + EVEN), medians, 0.0)
