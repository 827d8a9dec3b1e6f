"""Which parts a run splits by table, and which it estimates together, in a given memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from blue_solvers.streaming.cutting import shared_out
from blue_solvers.streaming.part_files import BUFFERS, Partitions
from blue_solvers.streaming.subtrees import require_within, table_bytes

TOGETHER = 16 << 20  # bytes of parts that are estimated together where areas cross, beside the buffers


def parts_to_split(parts: Partitions, memory: float) -> set[str]:
    """Those of a single geounit that need more than a limit; raises `MemoryError` if another part does."""
    split = set()
    for entry in parts.parts.values():
        if entry.bytes > memory:
            whole = entry.geounits > 1 or parts.design.equal_to
            level = parts.design.levels.index(entry.geolevel)
            require_within(memory, entry.bytes if whole else table_bytes(parts.design, level) + BUFFERS, str(entry))
            split.add(entry.name)
    return split


def parts_together(parts: Partitions, memory: float) -> list[tuple[str, ...]]:
    """Parts that are estimated together: each alone in a tree; where areas cross as many as share what each costs.

    How sums round depends on that, so it is the same in any memory that is not very little.
    """
    lots = []
    for _, same in groupby(parts.parts.values(), lambda entry: entry.geolevel):
        entries = list(same)
        found = [[i] for i in range(len(entries))]
        if entries[0].leaves and memory >= TOGETHER + BUFFERS:
            needed = np.array([max(1.0, entry.bytes - BUFFERS) for entry in entries])
            found = [lot.tolist() for lot in shared_out(np.arange(needed.size), needed, TOGETHER)]
        lots += [tuple(entries[i].name for i in lot) for lot in found]
    return lots


def bytes_together(parts: Partitions, names: Sequence[str]) -> int:
    """Memory that both passes over some parts take."""
    return BUFFERS + sum(parts.parts[name].bytes - BUFFERS for name in names)
