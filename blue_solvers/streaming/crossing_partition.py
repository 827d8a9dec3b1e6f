"""Cutting areas that cross into parts: the areas of one layer, each with all that lies in it, and the tree above them.

Layers above the cut nest and hold whole areas of it; every other area lies in one area of the cut. What crosses between
parts is refused by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from blue_solvers.components.assumptions import groupings_in_use
from blue_solvers.components.structured_problem import equal_variances
from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.crossing_areas.area_form import MOST_COMPONENTS, areas_refusal
from blue_solvers.normal_equations.noisy_equations import variance_spread
from blue_solvers.streaming.manifest import TOP, areas_file
from blue_solvers.streaming.part_data import Design
from blue_solvers.streaming.part_files import BUFFERS, Partitions, require_file_names
from blue_solvers.streaming.part_writer import Beside, Sources, write_parts
from blue_solvers.streaming.siblings import names_not_in, shared_out
from blue_solvers.streaming.subtrees import part_bytes
from constraint_builders import Areas, Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.areas import LEAF
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.estimability import lacks
from constraint_builders.memory import format_bytes, read_limit

EVERYTHING = "Everything"  # the layer above all others, where they have no area that holds all leaves
COPIES = 2  # of measurements and estimates inside a part, beside those that a part takes that is a tree
WIDEST_SPREAD = 1e14  # of variances, up to which parts of areas keep seven digits of a standard error
IN_MEMORY = "estimate it in memory"


@dataclass(frozen=True)
class Cut:
    """A layer whose areas are the roots of parts.

    Attributes
    ----------
    levels : tuple of str
        The layers above it, from the top down, itself, and those inside.
    depth : int
        Its own place among them.
    above : list of ndarray of int
        For every layer down to it the area of every leaf.
    owner : list of ndarray of int
        For every layer inside the area of the cut that holds each of its areas.
    together : tuple of str
        Names of the areas of the cut, where that is no layer of the problem: each was put in above siblings that go
        together.
    """

    levels: tuple[str, ...]
    depth: int
    above: list[Index]
    owner: list[Index]
    together: tuple[str, ...] = ()

    @classmethod
    def at(cls, areas: Areas, used: Sequence[str], name: str) -> Cut:
        """Cut at a layer; `UnsupportedProblemError` names what crosses."""
        own = _partition_of(areas, name)
        if own is None:
            raise UnsupportedProblemError(
                f"this problem cannot be cut at {name!r}, whose areas do not hold every leaf once: cut at a layer that "
                "does"
            )
        above: list[tuple[str, Index]] = []
        inside: list[tuple[str, Index]] = []
        for other in used:
            if other == name:
                continue
            owner, crossing = _owners(areas, other, own)
            labels = _partition_of(areas, other)
            if crossing is None:
                inside.append((other, owner))
            elif labels is not None and _nests(own, labels):
                above.append((other, labels))
            else:
                raise UnsupportedProblemError(
                    f"this problem cannot be cut at {name!r}: {other} {areas.names(other)[crossing]!r} crosses its "
                    f"areas without being made of whole ones: cut at a layer that holds it, or {IN_MEMORY}"
                )
        above.sort(key=lambda layer: int(layer[1].max()))
        chain = [*above, (name, own)]
        for (upper, coarse), (lower, fine) in pairwise(chain):
            if not _nests(fine, coarse):
                raise UnsupportedProblemError(
                    f"this problem cannot be cut at {name!r}: {upper!r} and {lower!r} cross above it: cut at a layer "
                    f"that holds the areas of one of them, or {IN_MEMORY}"
                )
        if chain[0][1].any():
            chain.insert(0, (next(names_not_in(areas.levels, EVERYTHING)), np.zeros_like(own)))
        levels = *(level for level, _ in chain), *(level for level, _ in inside)
        return cls(levels, len(chain) - 1, [labels for _, labels in chain], [owner for _, owner in inside])

    def with_siblings(self, names: Sequence[str], lots: Sequence[Index]) -> Cut:
        """Cut above so many lots of the areas of the cut, whose names are given, each in one area above."""
        lot = np.empty(len(names), dtype=np.intp)
        for number, own in enumerate(lots):
            lot[own] = number
        level = next(names_not_in(self.levels))
        return Cut(
            (*self.levels[: self.depth], level, *self.levels[self.depth :]),
            self.depth,
            [*self.above[:-1], lot[self.above[-1]]],
            [lot, *(lot[owner] for owner in self.owner)],
            tuple(names[own[0]] if own.size == 1 else f"{names[own[0]]} to {names[own[-1]]}" for own in lots),
        )


def partition_areas(
    folder: str | os.PathLike[str], problem: Problem, values: Float, memory: float | None, at: str | None
) -> Partitions:
    """As `partition`, of a problem of areas that cross inside the areas of one layer, which is not refused."""
    if memory is None and at is None:
        raise ValueError("nothing says where to cut: give memory= in bytes, or at= a layer")
    cut, design, needed, top_needed = _chosen(problem, memory, at)
    require_file_names(design)
    sources = _sources(problem, design, cut, [values[problem.observed.block(i)] for i in range(len(design.observed))])
    return write_parts(folder, sources, sources.tree.members[cut.depth], [*needed, top_needed])


def refusal_of_areas(problem: Problem) -> str | None:
    """Why areas cannot be streamed, wherever they are cut, or None."""
    if problem.zeros is not None:
        return f"it has cells known to be empty, over areas: {IN_MEMORY}"
    if problem.equalities is not None:
        return f"it has equalities, over areas: {IN_MEMORY}"
    spread = variance_spread(problem)
    if spread > WIDEST_SPREAD:  # a part tells its root by a measurement half way between its best and its worst
        return f"variances, in units of the leaves that are weighed, differ by {spread:.1g}, over areas: {IN_MEMORY}"
    return areas_refusal(problem) or _too_many_components(problem)


def _too_many_components(problem: Problem) -> str | None:
    """Why a part cannot tell all components of its root, or None."""
    count = 2 ** sum(own.has_contrasts for own in groupings_in_use(problem))
    if count <= MOST_COMPONENTS:
        return None
    return f"the table of all variables in use has {count:,} components, more than {MOST_COMPONENTS:,}: {IN_MEMORY}"


def _chosen(problem: Problem, memory: float | None, at: str | None) -> tuple[Cut, Design, Float, float]:
    """Where to cut, the design, and the bytes of every part and of the top."""
    areas = problem.domain.areas
    levels = {*problem.observed_levels, *problem.desired_levels}
    used = [name for i, name in enumerate(areas.levels) if i in levels]
    if at is not None:
        areas.level_index(at)
        if memory is None:
            cut = Cut.at(areas, used, at)
            return cut, *_needs(problem, cut)
    limit = np.inf if memory is None else read_limit(memory)
    refusal: UnsupportedProblemError | None = None
    short: MemoryError | None = None
    for name in _candidates(areas, used, at):
        try:
            cut = Cut.at(areas, used, name)
        except UnsupportedProblemError as error:
            refusal = refusal or error
            continue
        design, needed, top = _needs(problem, cut)
        if needed.max() <= limit and name != at:
            together = _together(problem, cut, needed, limit)
            fewer = _needs(problem, together)
            if max(fewer[1].max(), fewer[2]) <= limit:
                return together, *fewer
        if max(needed.max(), top) <= limit:
            return cut, design, needed, top
        worst = int(needed.argmax())
        what = (
            f"{name} {areas.names(name)[worst]!r} with all inside it" if needed[worst] > limit else f"all above {name}"
        )
        short = MemoryError(
            f"{what} needs {format_bytes(max(needed[worst], top))} and the limit is {format_bytes(limit)}: raise it, "
            "or want fewer tables"
        )
    if short is not None:
        raise short
    if refusal is not None:
        raise refusal
    raise UnsupportedProblemError(
        f"this problem cannot be cut: no layer has areas that hold every leaf once and several of them: {IN_MEMORY}"
    )


def _candidates(areas: Areas, used: Sequence[str], at: str | None) -> Iterator[str]:
    """Layers to cut at, from those of few areas; one that is given and those that are finer."""
    least = 0 if at is None else areas.members[areas.level_index(at)].size
    names = [at] if at is not None else []
    others = [name for name in used if name not in (LEAF, at) and areas.members[areas.level_index(name)].size > least]
    others = [name for name in others if _partition_of(areas, name) is not None]
    return iter([*names, *sorted(others, key=lambda name: areas.members[areas.level_index(name)].size)])


def _needs(problem: Problem, cut: Cut) -> tuple[Design, Float, float]:
    """The design, and the bytes of every part and of the top."""
    areas = problem.domain.areas
    number = {areas.level_index(name): i for i, name in enumerate(cut.levels) if name in areas.levels}
    observed = tuple((number[i], own) for i, own in zip(problem.observed_levels, problem.observed_tables, strict=True))
    desired = tuple((number[i], own) for i, own in zip(problem.desired_levels, problem.desired_tables, strict=True))
    checked = tuple(
        own
        for own, level in zip(observed, problem.observed_levels, strict=True)
        if own not in desired and lacks(problem, level, own[1]) is None
    )
    put_in = (cut.depth,) if cut.together else ()
    design = Design(problem.domain.schema, cut.levels, observed, desired, checked=checked, put_in=put_in)
    each = part_bytes(design, np.arange(len(cut.levels)), np.zeros(len(cut.levels), dtype=bool))
    for level, table in (*observed, *design.estimated):
        each[level] += 8 * COPIES * table.size
    roots = int(cut.above[-1].max()) + 1
    needed = np.full(roots, each[cut.depth] + BUFFERS)
    for level, owner in enumerate(cut.owner, start=cut.depth + 1):
        needed += each[level] * np.bincount(owner, minlength=roots)
    counts = np.array([labels.max() + 1 for labels in cut.above])
    inner = part_bytes(design, np.arange(cut.depth + 1), np.arange(cut.depth + 1) < cut.depth)
    return design, needed, float(counts @ inner) + BUFFERS


def _together(problem: Problem, cut: Cut, needed: Float, limit: float) -> Cut:
    """Areas of a cut in one area above put together as far as memory allows; the cut itself where none are."""
    if not cut.depth:
        return cut
    areas, parent = problem.domain.areas, np.zeros(needed.size, dtype=np.intp)
    parent[cut.above[-1]] = cut.above[-2]
    alone = _needs(problem, cut.with_siblings(areas.names(cut.levels[cut.depth]), [np.arange(needed.size)]))[1].sum()
    room = float(alone - BUFFERS - (needed - BUFFERS).sum())  # of an area that is put in
    lots = []
    for above in np.unique(parent).tolist():
        siblings = np.flatnonzero(parent == above)
        lots += shared_out(siblings, needed[siblings] - BUFFERS, limit - BUFFERS - room)
    if len(lots) == needed.size:
        return cut
    return cut.with_siblings(areas.names(cut.levels[cut.depth]), lots)


def _sources(problem: Problem, design: Design, cut: Cut, blocks: Sequence[Float]) -> Sources:
    """Parts are areas of the cut, with all areas inside them right below."""
    areas = problem.domain.areas
    counts = [*(int(labels.max()) + 1 for labels in cut.above), *(owner.size for owner in cut.owner)]
    firsts = np.cumsum([0, *counts])
    parents = [np.full(counts[0], -1)]
    for first, coarse, fine in zip(firsts, cut.above, cut.above[1:], strict=False):
        parents.append(np.empty(int(fine.max()) + 1, dtype=np.intp))
        parents[-1][fine] = first + coarse
    parents += [firsts[cut.depth] + owner for owner in cut.owner]
    levels = np.repeat(np.arange(len(counts)), counts)
    tree = LevelledTree(np.concatenate(parents), levels, cut.levels)
    names = [areas.names(name) if name in areas.levels else ("all",) for name in cut.levels]
    if cut.together:
        names[cut.depth] = cut.together
    leaves = cut.above[-1]
    of_roots = sparse.csr_array((np.ones(leaves.size), (leaves, np.arange(leaves.size))))
    inside = [areas.layer(name).incidence for name in cut.levels[cut.depth + 1 :]]
    incidence = sparse.csr_array(sparse.vstack([of_roots, *inside], format="csr"))
    cells = {(cut.levels[k], table.name): own for (k, table), own in zip(design.observed, blocks, strict=True)}

    def read(level: str, table: str, ranks: Index) -> Float:
        return cells[level, table].reshape(counts[cut.levels.index(level)], -1)[ranks]

    def weights(name: str, ordered: Index, own: Index) -> Beside:
        if name == TOP:
            return {}
        rows = incidence[ordered - firsts[cut.depth]]
        return {areas_file(name): rows[:, leaves == ordered[0] - firsts[cut.depth]]}

    codes = [name for own in names for name in own]
    return Sources(design, tree, codes, equal_variances(problem), read, None, weights)


def _partition_of(areas: Areas, name: str) -> Index | None:
    """The area of every leaf, if a layer's areas hold every leaf once, and none is empty."""
    labels = areas.layer(name).area_of_leaf
    if labels is None or labels.min() < 0 or not np.bincount(labels, minlength=areas.layer(name).size).all():
        return None
    return labels.astype(np.intp)


def _nests(fine: Index, coarse: Index) -> bool:
    """Whether every area of a partition lies in one of another."""
    of_fine = np.zeros(int(fine.max()) + 1, dtype=np.intp)
    of_fine[fine] = coarse
    return bool((of_fine[fine] == coarse).all())


def _owners(areas: Areas, name: str, own: Index) -> tuple[Index, int | None]:
    """The part that holds each area of a layer, and the first area that several share; one without leaves is in any."""
    matrix = areas.layer(name).incidence.copy()
    matrix.eliminate_zeros()
    owner = np.zeros(matrix.shape[0], dtype=np.intp)
    lengths = np.diff(matrix.indptr)
    owner[lengths > 0] = own[matrix.indices[matrix.indptr[:-1][lengths > 0]]]
    rows = np.repeat(np.arange(lengths.size), lengths)
    strange = rows[owner[rows] != own[matrix.indices]]
    return owner, int(strange[0]) if strange.size else None
