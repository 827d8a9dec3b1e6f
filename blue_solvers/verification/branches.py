"""Certificates and fits of a spine that is never whole in memory: part by part, and what is put together of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from blue_solvers.verification.certificate import Certificate, judged
from blue_solvers.verification.known_tables import LevelTable
from blue_solvers.verification.layers import Below, Sheet, layers_of, mark_empty, spread_knowledge
from blue_solvers.verification.sweep import nothing, sweep
from blue_solvers.verification.tally import Tally
from blue_solvers.verification.ties import Ties
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Index
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table, parse_table


@dataclass(frozen=True)
class Branch:
    """A subtree of a spine, or a tree whose lower branches were cut off.

    Attributes
    ----------
    schema : Schema
    levels : tuple of str
        All geolevels of the spine, from the root down.
    finest : sequence of Table
        For every geolevel a table that holds all of it and above; see `finest_tables`.
    parent, level_of : ndarray of int, (G,)
        As `LevelledTree` takes them; geounits by level, the root first.
    sheets : sequence of sequence of Sheet
        For every geolevel its tables.
    empty : (axes, ndarray of bool (G, cells)), optional
        Structural zeros, over the variables that tell them apart.
    one_by_one : bool
        Whether no two tables beside the finest are to be held at once.
    """

    schema: Schema
    levels: tuple[str, ...]
    finest: Sequence[Table]
    parent: Index
    level_of: Index
    sheets: Sequence[Sequence[Sheet]]
    empty: tuple[Sequence[int], Flags] | None = None
    one_by_one: bool = False

    def sweep(self, handed: Mapping[int, Below], finish: bool) -> tuple[Tally, Below | None]:
        """What is left, and what disagrees; without `finish` also what a tree above has to know of the root.

        Parameters
        ----------
        handed : mapping of int to Below
            What branches that were cut off told, by the position of their roots, which stand in this tree again.
        finish : bool
            Whether there is nothing above.
        """
        first = int(self.level_of[0])
        tree = LevelledTree(self.parent, self.level_of - first, self.levels[first:])
        layers = layers_of(self.schema, tree, self.finest[first:], self.sheets[first:])
        for layer, members in zip(layers, tree.members, strict=True):
            if self.one_by_one:
                layer.sums = [(0, own) for _, own in layer.direct]
            own = np.flatnonzero(np.isin(members, list(handed)))
            if own.size:
                layer.below = room = nothing(layer)
                layer.has_below[own] = layer.elsewhere[own] = True
                for row in own.tolist():
                    room.put(row, handed[int(members[row])])
                    for name in handed[int(members[row])].known.tolist():
                        layer.know(self.schema, parse_table(self.schema, name), np.arange(layer.rows) == row)
            if self.empty is not None:
                mark_empty(self.schema, layer, self.empty[0], self.empty[1][members])
        spread_knowledge(self.schema, layers)
        tally = sweep(layers, finish)
        below = layers[0].below
        if finish or below is None:
            return tally, None
        known = [own.table.name for own in layers[0].sheets if own.known is not None and own.known[0]]
        return tally, replace(below.row(0), known=np.array(known, dtype=str))


def certificate_of(
    tally: Tally, schema: Schema, tables: Mapping[str, LevelTable], ties: Ties | None = None
) -> Certificate:
    """What is proved of all parts together."""
    try:
        left = float(np.sqrt(tally.left)) + tally.moved()
        return judged(tally.bound(tables, schema, left, ties), tally.violation)
    except NotCertifiedError as refusal:
        return Certificate(None, str(refusal))
