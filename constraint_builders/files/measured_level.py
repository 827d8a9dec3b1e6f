"""One geolevel of a folder of noisy measurements, as its files are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.expected_rows import AveragedTables, ExpectedRows
from constraint_builders.files.kept_variables import (
    TENURE,
    TENURES,
    UNITS,
    VACANCIES,
    KeptVariables,
    added,
    vacant_units,
)
from constraint_builders.files.measurement_files import CONSTRAINTS, MEASUREMENT_SUFFIX, MEASUREMENTS
from constraint_builders.files.measurement_rows import RowReader, TableRows
from constraint_builders.files.reading_report import FacilityBounds, ImpliedTotal, Remark
from constraint_builders.memory import format_bytes

Keep: TypeAlias = Callable[[str, str, Index, NDArray, Float | None], Float | None]

TOTAL = "total"
HOUSING_UNITS = "housing_units"
SUMMED_ZEROS = "its zeros are of variables that are summed out"
KNOWN_TOTALS = "State"  # the geolevel whose totals the mechanism knew
BATCH_SHARE = 1 / 16  # of the memory: rows are held as lists, as an array, and once more in order
LARGEST_BATCH = 64 << 20


@dataclass
class Ledger:
    """Adds up the memory that is taken, and refuses more than a limit."""

    limit: float | None
    claimed: float = 0.0

    def claim(self, needed: float) -> None:
        """Take so many bytes."""
        self.claimed += needed
        if self.limit is not None and self.claimed > self.limit:
            raise MemoryError(
                f"the spine, the variances and the zeros need {format_bytes(self.claimed)} or more and the limit is "
                f"{format_bytes(self.limit)}: raise it, or take less with within="
            )

    def at_once(self) -> int:
        """How many cells of a file may be in memory."""
        return int(min(LARGEST_BATCH, np.inf if self.limit is None else BATCH_SHARE * self.limit) // 8)


class MeasuredLevel:
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
    has_measurements : bool
        Whether there are rows of measurements, even if none can be used.
    bounds : FacilityBounds
    types : tuple of str
        Of facilities, by number, the first being housing units.
    told_apart : set of str
        Variables that structural zeros tell apart.
    """

    def __init__(
        self,
        files: Mapping[str, Sequence[Path]],
        geocodes: pl.Series,
        kept: KeptVariables,
        reader: RowReader,
        ledger: Ledger,
        averaged: AveragedTables,
    ) -> None:
        self._files, self.geocodes, self._kept, self._reader = files, geocodes, kept, reader
        self._name, self._settings, self._accounts = reader.geolevel, reader.settings, reader.accounts
        self._ledger, self._averaged = ledger, averaged
        self.variances: dict[str, Float] = {}
        self.totals: dict[str, Float] = {}
        self.zeros: dict[str, Flags] = {}
        self.is_measured = False
        self.has_measurements = bool(files[MEASUREMENTS])
        self.types: tuple[str, ...] = ()
        self._given: dict[str, Flags] = {}
        self._said: dict[str, Flags] = {}
        self._of_units: dict[str, Flags] = {}
        size = 0 if kept.units is None else geocodes.len()
        self._housing_units, self._vacant, self._variance_of_vacant = (
            np.full(size, nothing) for nothing in (np.nan, 0.0, np.inf)
        )
        self._types_table: Table | None = None
        self.told_apart: set[str] = set()
        levels = self._settings.geolevels
        self.bounds = FacilityBounds(has_totals=KNOWN_TOTALS not in levels[: levels.index(self._name)])

    def read(self, keep: Keep, spine: Spine, only_children: Index) -> Iterator[Remark]:
        """Read all files, measurements first, hand on the values, and tell what is noticed; `only_children` is (N,)."""
        place = self._name, self.geocodes, spine, only_children
        settings = [own for own in (self._settings, self._kept.units) if own is not None]
        self._expected = [ExpectedRows(own, *place) for own in settings]
        for path in self._files[MEASUREMENTS]:
            for rows in self._reader.measurements(path):
                (self._add_units if rows.are_of_units else self._add_measurements)(rows, keep)
        for path in self._files[CONSTRAINTS]:
            for known in self._reader.constraints(path):
                (self._add_known_units if known.are_of_units else self._add_known)(known, keep)
        self._require_agreeing_bounds()
        self._add_households(keep)
        for expected in self._expected:
            yield from expected.remarks()

    def _add_units(self, rows: TableRows, keep: Keep) -> None:
        """What the histogram of units says of the tenure of households; of its vacant units note is taken."""
        schema, own = self._kept.target.schema, rows.variances
        geounits = self._only(self._of_units, rows, f"table {rows.table.name!r} of units")
        self._expected[1].add(rows.table.name, geounits, own, rows.values)
        by_tenure = rows.values[:, :TENURES]
        if TENURE in schema.names:
            self._blend(parse_table(schema, TENURE), geounits, by_tenure, own, keep)
        else:
            self._blend(parse_table(schema, TOTAL), geounits, added(by_tenure), own * TENURES, keep)
        self._vacant[geounits], self._variance_of_vacant[geounits] = vacant_units(rows.values), own * VACANCIES

    def _add_known_units(self, known: TableRows, _: Keep) -> None:
        """The exact number of housing units, and of facilities."""
        units = self._kept.units
        if units is not None and known.kind == "exact":
            geounits = self._only(self._of_units, known, known.name)
            self._housing_units[geounits] = known.values[:, 0]
            self.types = (HOUSING_UNITS, *units.schema.labels_of(UNITS)[TENURES + VACANCIES :])
            self.bounds.add_exact(geounits, known.values)

    def _add_households(self, keep: Keep) -> None:
        """Households altogether: the exact number of housing units less the vacant ones; none where there are none."""
        none = self._housing_units == 0
        if none.any():
            self.zeros[TOTAL] = self.zeros.get(TOTAL, np.zeros(none.size, dtype=bool)) | none
        known = np.flatnonzero(np.isfinite(self._housing_units) & np.isfinite(self._variance_of_vacant))
        if known.size:
            households = (self._housing_units - self._vacant)[known, None]
            total = parse_table(self._kept.target.schema, TOTAL)
            self._blend(total, known, households, self._variance_of_vacant[known], keep)

    def _numbers(self, geocodes: pl.Series) -> Index:
        return self.geocodes.search_sorted(geocodes).cast(pl.Int64).to_numpy()

    def _of(self, table: Table) -> tuple[Float, Float]:
        if table.name not in self.variances:
            self._ledger.claim(16.0 * self.geocodes.len())
            self.variances[table.name] = np.full(self.geocodes.len(), np.inf)
            self.totals[table.name] = np.zeros(self.geocodes.len())
        return self.variances[table.name], self.totals[table.name]

    def _add_measurements(self, rows: TableRows, keep: Keep) -> None:
        """Measurements of one table; where variables are summed out, of several that become one the weighted mean."""
        geounits = self._only(self._given, rows, f"table {rows.table.name!r}")
        self._expected[0].add(rows.table.name, geounits, rows.variances, rows.values)
        own = rows.variances * self._kept.cells_summed(rows.table)
        self._blend(self._kept.table(rows.table), geounits, self._kept.sums(rows.table, rows.values), own, keep)

    def _add_known(self, known: TableRows, keep: Keep) -> None:
        """What a constraint says."""
        if known.kind.endswith("zeros"):
            self._add_zeros(known)
            return
        geounits = self._only(self._said, known, known.name)
        if known.kind in ("lower", "upper"):
            self.types = (HOUSING_UNITS, *self._settings.schema.labels_of(known.table.factors[0])[1:])
            self._types_table = known.table
            self.bounds.add(known.kind == "upper", geounits, known.values)
        else:
            self._add_exact(known, geounits, keep)

    def _only(self, given: dict[str, Flags], rows: TableRows, what: str) -> Index:
        """The numbers of the geounits of rows, (k,), noted as given, (G,); `ValueError` if one is given already."""
        key = rows.table.name if rows.kind == "measured" else rows.name
        own, geounits = given.setdefault(key, np.zeros(self.geocodes.len(), dtype=bool)), self._numbers(rows.geocodes)
        repeated = own[geounits] | (np.bincount(geounits, minlength=own.size)[geounits] > 1)
        if repeated.any():
            code = rows.geocodes[int(repeated.argmax())]
            raise ValueError(f"{rows.path}: {what} of {self._name} {code!r} is given twice: once is enough")
        own[geounits] = True
        return geounits

    def _require_agreeing_bounds(self) -> None:
        """Raise `ValueError` if there are facilities of a type of which there are at most 0 persons."""
        table = self._types_table
        empty = None if table is None else self.zeros.get(self._kept.table(table).name)
        if table is None or empty is None or empty.shape[1:] != table.shape:
            return
        found = self.bounds.facilities()
        geounits, types = found["geounit"].to_numpy(), found["type"].to_numpy()
        wrong = empty[geounits, types] & (types > 0)
        if wrong.any():
            geounit, kind, count = found.row(int(wrong.argmax()))
            raise ValueError(
                f"{self._name} {self.geocodes[geounit]!r}: constraints say that it has {count:,} of "
                f"{self.types[kind]!r} and nobody there: one of them is of other files"
            )

    def _blend(self, table: Table, geounits: Index, values: NDArray, own: Float, keep: Keep) -> None:
        """Numbers with their variances, weighted by precision beside others of the same table; what is exact alone."""
        variances, totals = self._of(table)
        before = variances[geounits]
        share = None if np.isinf(before).all() else _shares(own, before)
        variances[geounits] = own if share is None else own * share
        sums = values.sum(axis=1, dtype=np.float64)
        totals[geounits] = sums if share is None else share * sums + (1 - share) * totals[geounits]
        self.is_measured |= bool(own.any())
        apart = keep(self._name, table.name, geounits, values, share)
        if apart is not None:
            both = np.isfinite(own + before) & (own + before > 0)
            self._averaged.add(self._name, table.name, apart[both], (own + before)[both], table.size)

    def _add_exact(self, counts: TableRows, geounits: Index, keep: Keep) -> None:
        """Exact counts of geounits, (k,), also in place of what was measured: that would only test them."""
        table = self._kept.table(counts.table)
        variances, totals = self._of(table)
        values = self._kept.sums(counts.table, counts.values)
        sums = values.sum(axis=1, dtype=np.float64)
        twice = variances[geounits] == 0
        wrong = twice & (totals[geounits] != sums)
        if wrong.any():
            code = counts.geocodes[int(wrong.argmax())]
            raise ValueError(f"{counts.name} of {self._name} {code!r}: another constraint says another {table.name!r}")
        known = f"table {table.name!r} is already given there"
        self._accounts.replace(self._name, CONSTRAINTS, counts.name, known, int(twice.sum()))
        self.leave_measured(geounits[~twice], table.name, counts.name)
        self._expected[0].add_known(counts.table.name, geounits)
        geounits = geounits[~twice]
        self._blend(table, geounits, values[~twice], np.zeros(geounits.size), keep)

    def leave_measured(self, geounits: Index, table: str, known: str) -> None:
        """Count measurements as not used, of geounits (k,), of which all is known exactly; `known` says by what."""
        for name, given in self._given.items():
            if self._kept.table(parse_table(self._settings.schema, name)).name == table:
                measured = int(given[geounits].sum())
                reason = f"{known} says it exactly"
                self._accounts.replace(self._name, MEASUREMENTS, f"{name}{MEASUREMENT_SUFFIX}", reason, measured)

    def implied(self) -> Iterator[ImpliedTotal]:
        """The totals of persons that bounds imply, beside what is known of them."""
        unknown = np.full(self.geocodes.len(), np.inf)
        variances, totals = (own.get(TOTAL, unknown) for own in (self.variances, self.totals))
        for unit, total in self.bounds.implied().items():
            known = float(totals[unit]) if np.isfinite(variances[unit]) else None
            deviation = 0.0 if known is None else float(np.sqrt(variances[unit]))
            yield ImpliedTotal(self._name, self.geocodes[unit], total, known, deviation)

    def facilities(self) -> pl.DataFrame:
        """Columns ``geolevel``, ``geocode``, ``type`` and ``facilities``, where bounds say that there are any."""
        found = self.bounds.facilities()
        return pl.DataFrame(
            [
                pl.repeat(self._name, found.height, eager=True, dtype=pl.String).alias("geolevel"),
                self.geocodes.gather(found["geounit"]),
                pl.Series("type", [self.types[number] for number in found["type"].to_list()], dtype=pl.String),
                found["facilities"],
            ]
        )

    def _add_zeros(self, rows: TableRows) -> None:
        schema, table = self._settings.schema, self._kept.table(rows.table)
        self.told_apart |= {schema.names[axis] for axis in rows.table.axes}
        cells = self._kept.empty(rows.table, rows.values)
        lost = int((rows.values.any(axis=1) & ~cells.any(axis=1)).sum())
        if rows.kind == "only zeros":
            self._accounts.replace(self._name, CONSTRAINTS, rows.name, SUMMED_ZEROS, lost)
        if not cells.any():
            return
        if table.name not in self.zeros:
            shape = (self.geocodes.len(), *table.shape)
            self._ledger.claim(np.prod(shape, dtype=float))
            self.zeros[table.name] = np.zeros(shape, dtype=bool)
        flat = self.zeros[table.name].reshape(self.geocodes.len(), -1)
        np.logical_or.at(flat, self._numbers(rows.geocodes), cells)


def _shares(own: Float, before: Float) -> Float:
    """The weight of new measurements beside those before, by precision, (k,); what is exact, or alone, has all."""
    both = own + before
    mixed = np.divide(before, both, out=np.ones_like(both), where=np.isfinite(both) & (both > 0))
    return np.where(own == 0, 1.0, np.where(before == 0, 0.0, mixed))


def blended(new: NDArray, before: Float, share: Float) -> tuple[NDArray, Float]:
    """Values of some geounits, (G, cells), of which the new ones have a share, (G,); squares of what they differ by."""
    weight, apart = share[:, None], new - before
    mean = np.where(weight == 1, new, weight * new + (1 - weight) * before)
    return mean, np.einsum("gc,gc->g", apart, apart, dtype=np.float64)
