"""What holds between tables at places: up and down a spine, or between areas that may nest, overlap or cross.

On a spine the nearest measured geounits below a measured one give an equation where these cover it without a gap: the
parts add up to the whole. What holds between the areas where a component was measured is what holds between the sums of
leaves that they are: the rows of a summing matrix (`summing`), as few entries in each as can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.areas import Areas, Places
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.relations.constraints import SelfConsistency
from constraint_builders.relations.elimination import eliminate
from constraint_builders.relations.node_tree import TreeSums, layers_cross, sets_of_layers
from constraint_builders.relations.summing import SummingMatrix

KEPT = 32  # sets of measured areas whose equations are kept as long as the areas are
_RELATIONS: WeakKeyDictionary[Areas, dict[bytes, sparse.csr_array]] = WeakKeyDictionary()


class SpineConsistency(SelfConsistency):
    """The equations between tables of all geounits of a spine."""

    _places: Spine

    @cached_property
    def _sums(self) -> TreeSums:
        return TreeSums.whole(self._places)

    def _determined_by(self, has: Flags) -> Flags:
        """At which geounits measurements at some, (N,), determine what is measured."""
        return self._sums.determined(has)

    def _count_between(self, has: Flags) -> int:
        """How many measured geounits, (N,), their measured descendants cover."""
        return int((has & self._sums.covered(has)).sum())

    def _between(self, has: Flags) -> sparse.csr_array:
        """A geounit that its measured descendants, of (N,), cover is the sum of the nearest of them, (rows, N)."""
        return self._sums.between(has)


def relations_between(areas: Areas, has: Flags) -> sparse.csr_array:
    """Independent equations A x = 0 between the values of some areas, (rows, areas)."""
    chosen = np.flatnonzero(has)
    if not chosen.size:
        return sparse.csr_array((0, areas.size))
    known, key = _RELATIONS.setdefault(areas, {}), np.packbits(has).tobytes()
    if key not in known:
        while len(known) >= KEPT:
            known.pop(next(iter(known)))
        incidence = areas.incidence if has.all() else sparse.csr_array(areas.incidence[chosen])
        found = SummingMatrix.of_areas(incidence, _surely_cross(areas, has)).relations.tocoo()
        entries = found.data, (found.row, chosen[found.col])
        known[key] = sparse.csr_array(entries, shape=(found.shape[0], areas.size))
    return known[key]


def _surely_cross(areas: Areas, has: Flags) -> bool:
    """Whether two layers, all of whose areas are among some, (N,), cross: by far most others need more to tell."""
    sets = sets_of_layers(areas, (level for level, own in enumerate(areas.members) if has[own].all()))
    return layers_cross(list(sets.values()), [areas.members[level].size for level in sets])


class AreaConsistency(SelfConsistency):
    """The equations between tables of all areas."""

    _places: Areas

    def _determined_by(self, has: Flags) -> Flags:
        """By elimination of the areas that were not measured, of (N,), unless areas of each single leaf were."""
        areas = self._places
        leaves, rows = areas.members[-1], areas.incidence
        alone = rows.indptr[:-1][has & (np.diff(rows.indptr) == 1)]
        if np.bincount(rows.indices[alone], weights=rows.data[alone] != 0, minlength=leaves.size).all():
            return np.ones(areas.size, dtype=bool)
        others = np.arange(areas.size - leaves.size)
        below = sparse.csr_array(areas.incidence[others])
        sums = sparse.csr_array(sparse.hstack([sparse.eye_array(others.size), -below], format="csr"))
        found = eliminate(sums, np.flatnonzero(~has))
        free = np.zeros(areas.size)
        free[found.free_columns] = 1
        determined = has.copy()
        determined[found.solved_columns] = ~((found.solved != 0) @ free > 0)
        return determined

    def _count_between(self, has: Flags) -> int:
        """How many equations there are between the measured areas, (N,)."""
        return self._between(has).shape[0]

    def _between(self, has: Flags) -> sparse.csr_array:
        """The equations between the measured areas, (rows, N), of flags (N,)."""
        return relations_between(self._places, has)


def consistency_of(
    schema: Schema,
    places: Places,
    levels: Sequence[int],
    tables: Sequence[Table],
    variances: Sequence[Float],
    other_factors: Iterable[str] = (),
) -> SelfConsistency:
    """The equations between tables, of variances (places,), of all geounits, or of all areas; see `SelfConsistency`."""
    kind = AreaConsistency if isinstance(places, Areas) else SpineConsistency
    return kind(schema, places, levels, tables, variances, other_factors)
