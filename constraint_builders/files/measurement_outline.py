"""What a folder of noisy measurements says, read file by file; the measured values are handed on as they come.

Files are read twice: first the geocodes, which make the spine, then everything, some rows at a time where memory is
limited.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.files.exact_totals import ExactTotal, totals_by_geounit
from constraint_builders.files.measurement_constraints import ExactCounts, Zeros, read_constraints
from constraint_builders.files.measurement_files import (
    CONSTRAINTS,
    LEVEL_SUFFIX,
    MEASUREMENT_SUFFIX,
    MEASUREMENTS,
    Leftovers,
    MeasuredRows,
    Unused,
    files_of,
    level_folders,
    read_keys,
    read_measurements,
    require_free_names,
)
from constraint_builders.files.missing_partitions import refuse_missing_children
from constraint_builders.files.naming import naming
from constraint_builders.files.settings import Settings
from constraint_builders.memory import format_bytes

Progress: TypeAlias = Callable[[str, int, int], None]
Arrays: TypeAlias = dict[str, dict[str, Float]]  # by geolevel and table
Keep: TypeAlias = Callable[[str, str, Index, NDArray], None]

ROOT, TOTAL = "Root", "total"
BYTES_A_GEOUNIT = 1_000  # of a spine while it is made: codes, parents, and the tables that find them
BATCH_SHARE = 1 / 16  # of the memory: rows are held as lists, as an array, and once more in order
LARGEST_BATCH = 64 << 20


@dataclass(frozen=True)
class Outline:
    """All that a folder of noisy measurements says, but for the measured values.

    Attributes
    ----------
    spine : Spine
    observed : dict of geolevel to dict of table to ndarray (geounits of the level,)
        Variances of what was measured, under canonical names; 0 exact, infinite where not measured.
    zeros : dict of (geolevel, table) to ndarray of bool
        Cells that are zero whatever was measured, (geounits, *table's shape).
    unused : tuple of Unused
        Rows that are not used, by name, with the reason.
    bytes : float
        What it took of the memory.
    """

    spine: Spine
    observed: dict[str, dict[str, Float]]
    zeros: dict[tuple[str, str], Flags]
    unused: tuple[Unused, ...]
    bytes: float


def read_outline(
    folder: str | os.PathLike[str],
    settings: Settings,
    keep: Keep,
    *,
    within: Sequence[str] | None = None,
    totals: Sequence[ExactTotal] = (),
    memory: float | None = None,
    progress: Progress | None = None,
) -> Outline:
    """Read a folder of noisy measurements, and hand on the values.

    Parameters
    ----------
    folder, settings, within, totals, progress
        As in `read_noisy_measurements`.
    keep : callable
        Called with a geolevel, the canonical name of a table, numbers of geounits within their level (G,) and their
        values (G, cells), for some rows of a file after others.
    memory : float, optional
        Bytes that reading may take; by default there is no limit, and files are read whole.

    Returns
    -------
    Outline

    Raises
    ------
    ValueError, OSError
        As `read_noisy_measurements`.
    MemoryError
        If the spine, the variances and the zeros alone need more than `memory`.
    """
    require_free_names(settings.schema)
    if within is not None and not all(within):
        raise ValueError("within '' names no geounits: give the first characters of their geocodes, or leave it out")
    leftovers, ledger = Leftovers(), _Ledger(memory)
    levels = _read_levels(folder, settings, within, leftovers, ledger)
    _require_prefixes(folder, levels, within or ())
    if not any(level.geocodes.len() for level in levels.values()):
        raise _nothing_measured(folder, leftovers, within)
    _require_levels(folder, levels, settings)
    ledger.claim(BYTES_A_GEOUNIT * sum(level.geocodes.len() for level in levels.values()))
    with naming(folder):
        spine = _spine({name: level.geocodes.to_list() for name, level in levels.items()}, settings.geolevels)
    for number, (name, level) in enumerate(levels.items()):
        if progress is not None:
            progress(name, number, len(levels))
        level.read(keep)
    if not any(level.is_measured for level in levels.values()):
        raise _nothing_measured(folder, leftovers, within)
    observed = {name: level.variances for name, level in levels.items() if level.variances}
    sums = {name: level.totals for name, level in levels.items() if level.variances}
    for position, known in totals_by_geounit(totals, spine).items():
        _add_total(known, position, spine, observed, sums, keep, leftovers)
    with naming(folder):
        refuse_missing_children(settings.schema, spine, observed, sums)
    zeros = {(name, table): cells for name, level in levels.items() for table, cells in level.zeros.items()}
    return Outline(spine, observed, zeros, leftovers.listed(), ledger.claimed)


def _add_total(
    known: ExactTotal, position: int, spine: Spine, observed: Arrays, sums: Arrays, keep: Keep, leftovers: Leftovers
) -> None:
    """Put an exact total in place of what was measured of it."""
    number = int(spine.level_of[position])
    level, rank, count = spine.levels[number], spine.rank_in_level[position], spine.members[number].size
    variances = observed.setdefault(level, {}).setdefault(TOTAL, np.full(count, np.inf))
    totals = sums.setdefault(level, {}).setdefault(TOTAL, np.zeros(count))
    if variances[rank] == 0 and totals[rank] != known.total:
        raise ValueError(f"{known.place}: the total is {known.total:,.0f}, a constraint says {totals[rank]:,.0f}")
    if 0 < variances[rank] < np.inf:
        leftovers.add(level, f"{TOTAL}{MEASUREMENT_SUFFIX}", f"{known.place.rpartition(',')[0]} says it exactly", 1)
    variances[rank], totals[rank] = 0, known.total
    keep(level, TOTAL, np.array([rank]), np.array([[known.total]]))


@dataclass
class _Ledger:
    """Adds up the memory that is taken, and refuses more than a limit."""

    limit: float | None
    claimed: float = 0.0

    def claim(self, needed: float) -> None:
        self.claimed += needed
        if self.limit is not None and self.claimed > self.limit:
            raise MemoryError(
                f"the spine, the variances and the zeros need {format_bytes(self.claimed)} or more and the limit is "
                f"{format_bytes(self.limit)}: raise it, or take less with within="
            )

    def rows_at_once(self, cells: int) -> int | None:
        """How many rows of so many cells may be held."""
        if self.limit is None:
            return None
        return max(1, int(min(LARGEST_BATCH, BATCH_SHARE * self.limit) // (8 * cells)))


def _read_levels(
    folder: str | os.PathLike[str],
    settings: Settings,
    within: Sequence[str] | None,
    leftovers: Leftovers,
    ledger: _Ledger,
) -> dict[str, _Level]:
    """All geolevels, with their geocodes only."""
    levels = {}
    for name, place in level_folders(folder, settings.geolevels).items():
        files, geocodes = [], pl.Series("geocode", [], dtype=pl.String)
        for kind in (MEASUREMENTS, CONSTRAINTS):
            for path in files_of(place, kind):
                own, widest = read_keys(path, settings.schema, within)
                geocodes = pl.concat([geocodes, own]).unique()
                files.append((kind, path, ledger.rows_at_once(widest)))
        levels[name] = _Level(name, files, geocodes.sort(), settings, within, leftovers, ledger)
    return levels


def _require_prefixes(folder: str | os.PathLike[str], levels: Mapping[str, _Level], within: Sequence[str]) -> None:
    """Refuse a prefix with which no geocode begins."""
    for prefix in within:
        if not any(level.geocodes.str.starts_with(prefix).any() for level in levels.values()):
            found = [str(level.geocodes[0]) for level in levels.values() if level.geocodes.len()]
            seen = f", such as {found[0]!r}" if found else ""
            raise ValueError(
                f"{os.fspath(folder)}: nothing was measured within {prefix}: no geocode begins so; write the first "
                f"characters of codes as its files have them{seen}"
            )


def _require_levels(folder: str | os.PathLike[str], levels: Mapping[str, _Level], settings: Settings) -> None:
    """Refuse a folder without files of a geolevel that the settings measure, below others of which it has files."""
    found = [settings.geolevels.index(name) for name, level in levels.items() if level.geocodes.len()]
    for name in settings.geolevels[found[0] :]:
        tables = settings.budget.losses.get(name, {})
        if tables and settings.geolevels.index(name) not in found:
            what = f"{', '.join(tables)!r:.60} at {name!r}, and there is nothing in {name}{LEVEL_SUFFIX}"
            raise ValueError(
                f"{os.fspath(folder)}: the settings measure {what}: copy that folder, or give settings without {name!r}"
            )


def _nothing_measured(folder: str | os.PathLike[str], leftovers: Leftovers, within: Sequence[str] | None) -> ValueError:
    return ValueError(f"{os.fspath(folder)}: nothing was measured{_explained(leftovers, within)}")


def _explained(leftovers: Leftovers, within: Sequence[str] | None) -> str:
    if leftovers.counts:
        geolevel, name, reason = next(iter(leftovers.counts))
        return f" that can be used; {name!r} at {geolevel}: {reason}"
    return f" within {', '.join(within)}" if within else ""


def _spine(geocodes: Mapping[str, list[str]], geolevels: Sequence[str]) -> Spine:
    """The tree of the geocodes, under a root of its own if there are several at the top."""
    by_level = {name: codes for name, codes in geocodes.items() if codes}
    names = list(by_level)
    if len(by_level[names[0]]) > 1:
        above = geolevels.index(names[0]) - 1
        by_level = {geolevels[above] if above >= 0 else ROOT: [""], **by_level}
    spine = Spine.from_geocodes(by_level)
    lowest = spine.level_index(names[-1])
    childless = np.flatnonzero((spine.child_counts == 0) & (spine.level_of < lowest))
    if childless.size:
        level, code = spine.levels[spine.level_of[childless[0]]], spine.geocodes[childless[0]]
        raise ValueError(
            f"{level} {code!r} has no geounits below it, as {childless.size:,} in all: a partition is missing, or "
            "within= should leave it out"
        )
    return spine


class _Level:
    """What was measured, and is known exactly, at one geolevel.

    Attributes
    ----------
    geocodes : polars.Series of str
        Sorted: a geounit's number is its place.
    variances, totals : dict of str to ndarray, (geounits,)
        By table the variance of every cell, infinite where it was not measured, and the sum of all cells.
    zeros : dict of str to ndarray of bool, (geounits, *shape)
        By table.
    is_measured : bool
        Whether anything was, not only known exactly.
    """

    def __init__(
        self,
        name: str,
        files: Sequence[tuple[str, Path, int | None]],
        geocodes: pl.Series,
        settings: Settings,
        within: Sequence[str] | None,
        leftovers: Leftovers,
        ledger: _Ledger,
    ) -> None:
        self._name, self._files, self.geocodes = name, files, geocodes
        self._settings, self._within = settings, within
        self._leftovers, self._ledger = leftovers, ledger
        self.variances: dict[str, Float] = {}
        self.totals: dict[str, Float] = {}
        self.zeros: dict[str, Flags] = {}
        self.is_measured = False

    def read(self, keep: Keep) -> None:
        """Read all files, measurements before constraints, and hand on the values."""
        for kind, path, rows_at_once in self._files:
            if kind == MEASUREMENTS:
                schema = self._settings.schema
                for rows in read_measurements(path, self._name, schema, self._within, self._leftovers, rows_at_once):
                    self._add_measurements(rows, keep)
            else:
                for known in read_constraints(
                    path, self._name, self._settings, self._within, self._leftovers, rows_at_once
                ):
                    if isinstance(known, Zeros):
                        self._add_zeros(known)
                    else:
                        self._add_exact(known, keep)

    def _numbers(self, geocodes: pl.Series) -> Index:
        return self.geocodes.search_sorted(geocodes).cast(pl.Int64).to_numpy()

    def _of(self, table: Table) -> tuple[Float, Float]:
        if table.name not in self.variances:
            self._ledger.claim(16.0 * self.geocodes.len())
            self.variances[table.name] = np.full(self.geocodes.len(), np.inf)
            self.totals[table.name] = np.zeros(self.geocodes.len())
        return self.variances[table.name], self.totals[table.name]

    def _add_measurements(self, rows: MeasuredRows, keep: Keep) -> None:
        geounits = self._numbers(rows.geocodes)
        variances, totals = self._of(rows.table)
        _, own, counts = np.unique(geounits, return_inverse=True, return_counts=True)
        repeated = counts[own] + np.isfinite(variances[geounits]) > 1
        if repeated.any():
            code = rows.geocodes[int(repeated.argmax())]
            raise ValueError(
                f"{rows.path}: table {rows.table.name!r} of {self._name} {code!r} is given twice: once is enough"
            )
        variances[geounits] = rows.variances
        totals[geounits] = rows.values.sum(axis=1, dtype=np.float64)
        self.is_measured = True
        keep(self._name, rows.table.name, geounits, rows.values)

    def _add_exact(self, counts: ExactCounts, keep: Keep) -> None:
        """Exact counts, also in place of what was measured: that would only test them."""
        geounits, table = self._numbers(counts.geocodes), counts.table
        variances, totals = self._of(table)
        sums = counts.values.sum(axis=1, dtype=np.float64)
        twice = variances[geounits] == 0
        wrong = twice & (totals[geounits] != sums)
        if wrong.any():
            code = counts.geocodes[int(wrong.argmax())]
            raise ValueError(f"{counts.name} of {self._name} {code!r}: another constraint says another {table.name!r}")
        self._leftovers.add(self._name, counts.name, f"table {table.name!r} is already given there", int(twice.sum()))
        measured = int((np.isfinite(variances[geounits]) & ~twice).sum())
        self._leftovers.add(self._name, f"{table.name}{MEASUREMENT_SUFFIX}", f"{counts.name} says it exactly", measured)
        geounits, sums = geounits[~twice], sums[~twice]
        variances[geounits], totals[geounits] = 0, sums
        keep(self._name, table.name, geounits, counts.values[~twice])

    def _add_zeros(self, rows: Zeros) -> None:
        if rows.table.name not in self.zeros:
            shape = (self.geocodes.len(), *rows.table.shape)
            self._ledger.claim(np.prod(shape, dtype=float))
            self.zeros[rows.table.name] = np.zeros(shape, dtype=bool)
        flat = self.zeros[rows.table.name].reshape(self.geocodes.len(), -1)
        np.logical_or.at(flat, self._numbers(rows.geocodes), rows.cells)
