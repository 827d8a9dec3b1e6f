"""Areas that cross as a tree, to be cut down to the areas of one layer: all that these hold lies right below them.

Layers above that one nest and hold whole areas of it; every other area lies in one area of it. What crosses between
parts is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from blue_solvers.components.assumptions import groupings_in_use
from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.crossing_areas.area_form import MOST_COMPONENTS, areas_refusal
from blue_solvers.normal_equations.noisy_equations import variance_spread
from blue_solvers.streaming.cutting import CutSpine, cut_with_siblings, names_not_in
from blue_solvers.streaming.part_data import Design
from blue_solvers.streaming.part_files import BUFFERS
from blue_solvers.streaming.subtrees import part_bytes
from constraint_builders import Areas, Problem, Spine
from constraint_builders.arrays import Index
from constraint_builders.description.areas import LEAF

EVERYTHING = "Everything"  # the layer above all others, where they have no area that holds all leaves
COPIES = 2  # of measurements and estimates inside a part, beside those that a part takes that is a tree
WIDEST_SPREAD = 1e14  # of variances, up to which parts of areas keep seven digits of a standard error
IN_MEMORY = "estimate it in memory"


@dataclass(frozen=True)
class AreaTree:
    """Areas as a tree.

    Attributes
    ----------
    spine : Spine
        The areas of all layers in use, and one that holds all leaves.
    leaves : csr_array, (areas, leaves)
        With which weight every leaf counts in each.
    above : list of str
        The layers that nest, from the top to the one whose areas hold all others.
    """

    spine: Spine
    leaves: sparse.csr_array
    above: list[str]

    @classmethod
    def down_to(cls, areas: Areas, used: Sequence[str], name: str) -> AreaTree:
        """With all that lies in the areas of a layer right below them; `UnsupportedProblemError` names what crosses."""
        own = _partition_of(areas, name)
        if own is None:
            raise UnsupportedProblemError(
                f"this problem cannot be cut at {name!r}, whose areas do not hold every leaf once: cut at a layer that "
                "does"
            )
        chain, inside = {name: own}, dict[str, Index]()
        for other in used:
            if other == name:
                continue
            owner, crossing = _owners(areas, other, own)
            labels = _partition_of(areas, other)
            if crossing is None:
                inside[other] = owner
            elif labels is not None and _owners(areas, name, labels)[1] is None:
                chain[other] = labels
            else:
                raise UnsupportedProblemError(
                    f"this problem cannot be cut at {name!r}: {other} {areas.names(other)[crossing]!r} crosses its "
                    f"areas without being made of whole ones: cut at a layer that holds it, or {IN_MEMORY}"
                )
        above = sorted(chain, key=lambda layer: areas.layer(layer).size)
        everything = next(names_not_in(areas.levels, EVERYTHING))
        layers: list[tuple[str, tuple[str, ...], sparse.csr_array]]
        layers = [(everything, ("all",), sparse.csr_array(np.ones((1, own.size))))]
        layers += [(layer, areas.names(layer), areas.layer(layer).incidence) for layer in (*above, *inside)]
        firsts = np.cumsum([0, *(len(codes) for _, codes, _ in layers)])
        parents = [np.array([-1])]
        chain[everything] = np.zeros_like(own)
        for first, (upper, lower) in zip(firsts, pairwise([everything, *above]), strict=False):
            owner, crossing = _owners(areas, lower, chain[upper])
            if crossing is not None:
                raise UnsupportedProblemError(
                    f"this problem cannot be cut at {name!r}: {upper!r} and {lower!r} cross above it: cut at a layer "
                    f"that holds the areas of one of them, or {IN_MEMORY}"
                )
            parents.append(first + owner)
        parents += [firsts[len(above)] + owner for owner in inside.values()]
        spare = int(areas.layer(above[0]).size == 1)  # an area of all leaves is there already
        levels, codes = zip(*((level, code) for level, names, _ in layers[spare:] for code in names), strict=True)
        leaves = sparse.csr_array(sparse.vstack([own for _, _, own in layers[spare:]], format="csr"))
        return cls(Spine(np.concatenate(parents)[spare:] - spare, levels, codes), leaves, above)


def cut_areas(problem: Problem, memory: float | None, at: str | None) -> tuple[Design, CutSpine, sparse.csr_array]:
    """The design of a problem of areas that is not refused, where it is cut, and the leaves of all that is cut.

    Raises
    ------
    UnsupportedProblemError
        If areas cross between parts, wherever they are cut.
    MemoryError
        If an area, or all above a cut, need more than a limit.
    ValueError
        If there is no such layer to cut at.
    """
    areas = problem.domain.areas
    levels = {*problem.observed_levels, *problem.desired_levels}
    used = [name for i, name in enumerate(areas.levels) if i in levels]
    refusal: UnsupportedProblemError | None = None
    short: MemoryError | None = None
    for name in _candidates(areas, used, at) if memory is not None or at is None else [at]:
        try:
            tree = AreaTree.down_to(areas, used, name)
        except UnsupportedProblemError as error:
            refusal = refusal or error
            continue
        spine, design = tree.spine, Design.of(problem, tree.spine.levels)
        own = part_bytes(design, spine.level_of, spine.child_counts > 0)
        for level, table in (*design.observed, *design.estimated):
            own[spine.members[level]] += 8 * COPIES * table.size
        first = at if at is None or at in tree.above else name
        try:
            cut = cut_with_siblings(spine, own, memory, first, BUFFERS, deepest=name)
        except MemoryError as error:
            short = error
            continue
        members = np.concatenate([np.zeros(0, dtype=np.intp), *cut.together])
        ends = np.cumsum([0, *(lot.size for lot in cut.together)])
        chosen = sparse.csr_array((np.ones(members.size), members, ends), shape=(len(cut.together), spine.size))
        return design, cut, sparse.csr_array(sparse.vstack([tree.leaves, chosen @ tree.leaves], format="csr"))
    none = f"this problem cannot be cut: no layer has areas that hold every leaf once and several of them: {IN_MEMORY}"
    raise short or refusal or UnsupportedProblemError(none)


def refusal_of_areas(problem: Problem) -> str | None:
    """Why areas cannot be streamed, wherever they are cut, or None."""
    if problem.zeros is not None:
        return f"it has structural zeros, over areas: {IN_MEMORY}"
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


def _candidates(areas: Areas, used: Sequence[str], at: str | None) -> list[str]:
    """Layers to cut at, from those of few areas; one that is given and those that are finer."""
    sizes = {name: areas.layer(name).size for name in areas.levels}
    least = 0 if at is None else areas.layer(at).size
    others = [name for name in used if name not in (LEAF, at) and sizes[name] > least]
    others = [name for name in others if _partition_of(areas, name) is not None]
    return [*([] if at is None else [at]), *sorted(others, key=lambda name: sizes[name])]


def _partition_of(areas: Areas, name: str) -> Index | None:
    """The area of every leaf, if a layer's areas hold every leaf once, and none is empty."""
    labels = areas.layer(name).area_of_leaf
    if labels is None or labels.min() < 0 or not np.bincount(labels, minlength=areas.layer(name).size).all():
        return None
    return labels.astype(np.intp)


def _owners(areas: Areas, name: str, own: Index) -> tuple[Index, int | None]:
    """The part of each area of a layer, by those of leaves, (leaves,); the first in several; an empty one is in any."""
    matrix = areas.layer(name).incidence.copy()
    matrix.eliminate_zeros()
    owner = np.zeros(matrix.shape[0], dtype=np.intp)
    lengths = np.diff(matrix.indptr)
    owner[lengths > 0] = own[matrix.indices[matrix.indptr[:-1][lengths > 0]]]
    rows = np.repeat(np.arange(lengths.size), lengths)
    strange = rows[owner[rows] != own[matrix.indices]]
    return owner, int(strange[0]) if strange.size else None
