"""Writing the files of parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blue_solvers.streaming.cutting import members_of_parts
from blue_solvers.streaming.manifest import TOP, PartEntry, level_file, write_manifest
from blue_solvers.streaming.part_data import Design
from blue_solvers.streaming.part_files import (
    BUFFERS,
    EMPTY,
    Partitions,
    require_file_names,
    variance_column,
    write_level,
    write_matrix,
)
from blue_solvers.streaming.siblings import CutSpine
from constraint_builders.arrays import Float, Index
from constraint_builders.description.variances import LARGEST_VALUE
from constraint_builders.files.new_folder import new_folder

Read: TypeAlias = Callable[[str, str, Index], ArrayLike]
Beside: TypeAlias = Mapping[str, sparse.csr_array]


def write_parts(folder: str | os.PathLike[str], sources: Sources) -> Partitions:
    """Write the parts below the roots of a cut, and the top above them, whole or not at all, in a folder made anew."""
    cut, tree = sources.cut, sources.cut.tree
    sources = replace(sources, design=sources.design.with_levels(tree.levels, cut.level_numbers))
    require_file_names(sources.design)
    *members, top = members_of_parts(tree, cut.roots)
    order = np.lexsort((top, tree.level_of[top]))
    leaves = {geounit: position for position, geounit in enumerate(top[order].tolist())}
    with new_folder(folder) as temporary:
        parts = [
            sources.write(temporary, f"{number:05d}", geounits, geounits, leaves[root])
            for number, (root, geounits) in enumerate(zip(cut.roots.tolist(), members, strict=True))
        ]
        entry = sources.write(temporary, TOP, top, np.setdiff1d(top, cut.roots), -1)
        write_manifest(temporary, sources.design, parts, entry)
    return Partitions.open(folder)


@dataclass(frozen=True)
class Sources:
    """What the files of parts are written from.

    Attributes
    ----------
    design : Design
        Of what was cut.
    cut : CutSpine
    variances : list of ndarray, (geounits of its level,)
        Of every observed table of the design.
    read : callable
        Called with a level, the name of an observed table and the numbers of geounits in that level.
    empty : ndarray of bool, (geounits, cells), or None
        Structural zeros, of all that the cut has.
    beside : callable
        Called with the design of the parts, the name of one, its geounits in order and those that are in no other part:
        matrices by their path, which are written beside its tables.
    """

    design: Design
    cut: CutSpine
    variances: Sequence[Float]
    read: Read
    empty: NDArray[np.bool_] | None
    beside: Callable[[Design, str, Index, Index], Beside]

    def write(self, folder: Path, name: str, geounits: Index, own: Index, leaf: int) -> PartEntry:
        """Write one part; `geounits` are positions in the spine, of which `own` are in no other part."""
        tree, geocodes = self.cut.tree, self.cut.geocodes
        ordered = geounits[np.lexsort((geounits, tree.level_of[geounits]))]
        by_number = np.argsort(ordered)
        files = {}
        for level in np.unique(tree.level_of[ordered]).tolist():
            here = ordered[tree.level_of[ordered] == level]
            columns: dict[str, NDArray] = {"parent": _positions(ordered, by_number, tree.parent[here])}
            if self.empty is not None:
                columns[EMPTY] = self.empty[here]
            for i, (where, table) in enumerate(self.design.observed):
                if where == level:
                    columns[variance_column(table.name)] = self.variances[i][tree.rank_in_level[here]]
                    columns[table.name] = self._measured(i, here)
            path = level_file(tree.levels[level], name)
            files[path] = write_level(folder / path, [geocodes[i] for i in here.tolist()], columns)
        for path, matrix in self.beside(self.design, name, ordered, own).items():
            files[path] = write_matrix(folder / path, matrix)
        root, needed = int(ordered[0]), self.cut.own[geounits].sum() + BUFFERS
        level_name, geocode = tree.levels[tree.level_of[root]], geocodes[root]
        return PartEntry(name, level_name, geocode, leaf, ordered.size, int(needed), files)

    def _measured(self, number: int, geounits: Index) -> NDArray:
        """Values of a table, (G, cells), int32 where they came so; 0 where nothing was measured."""
        level, table = self.design.observed[number]
        name = self.cut.tree.levels[level]
        ranks = self.cut.tree.rank_in_level[geounits]
        values = np.asarray(self.read(name, table.name, ranks)).reshape(ranks.size, -1)
        if values.dtype != np.int32:
            values = values.astype(np.float64, copy=False)
        unmeasured = np.isinf(self.variances[number][ranks])
        if unmeasured.any():
            values = np.where(unmeasured[:, None], 0, values)
        if values.shape[1] != table.size:
            raise ValueError(f"table {table.name!r} of {name} has {table.size} cells: got {values.shape[1]} a geounit")
        if values.dtype != np.int32 and not (usable := (abs(values) <= LARGEST_VALUE).all(axis=1)).all():
            raise ValueError(
                f"table {table.name!r} of {name} {self.cut.geocodes[geounits[~usable][0]]!r} is not finite, or beyond "
                f"{LARGEST_VALUE:g}: give numbers, or an infinite variance"
            )
        return values


def _positions(ordered: Index, by_number: Index, geounits: Index) -> Index:
    """Place among `ordered` of some geounits, -1 for those that are not there; `by_number` sorts it."""
    found = by_number[np.minimum(np.searchsorted(ordered, geounits, sorter=by_number), ordered.size - 1)]
    return np.where(ordered[found] == geounits, found, -1)
