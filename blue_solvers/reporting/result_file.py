"""A file of estimates as it lies: which columns are keys, what was estimated, and what was measured of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from blue_solvers.reporting.page_parts import BY_ERROR, STD_ERROR
from constraint_builders.arrays import Float
from constraint_builders.files.columns import BOUNDS, GEOLEVEL, TABLE, plain_name
from constraint_builders.files.numbers import decimal_mark, read_labels, read_numbers
from constraint_builders.files.source import Source

ESTIMATE, ERROR, VALUE, VARIANCE = "estimate", "std_error", "value", "variance"
RESULTS = (ESTIMATE, ERROR, *BOUNDS, "note", "nonnegative", VALUE, VARIANCE, "adjustment", "adjustment_z")
LISTED = {ESTIMATE: "estimate", ERROR: STD_ERROR, BOUNDS[0]: "lower", BOUNDS[1]: "upper", "nonnegative": "nonnegative"}


@dataclass(frozen=True)
class ResultFile:
    """Estimates that were written.

    Attributes
    ----------
    keys : polars.DataFrame
        What names every row: the table, labels of the variables, a geography.
    numbers : mapping of str to ndarray, (rows,)
        By the names of `RESULTS`; NaN where empty.
    """

    keys: pl.DataFrame
    numbers: dict[str, Float]

    @classmethod
    def of(cls, source: Source) -> ResultFile | None:
        """The estimates in a table; None where it holds none, but measurements, say.

        Raises
        ------
        ValueError
            If it has bounds of estimates and no estimates, or a number is not one.
        """
        frame = source.frame
        roles = {name: plain_name(name) for name in frame.columns}
        if not set(BOUNDS) <= set(roles.values()):
            return None
        missing = [role for role in (TABLE, ESTIMATE, ERROR) if role not in roles.values()]
        if missing:
            raise ValueError(f"column {missing[0]!r} is missing beside 'lower' and 'upper': give what estimate wrote")
        if frame.is_empty():
            raise ValueError("there are no rows: give what estimate wrote")
        found = {role: frame[name] for name, role in roles.items() if role in RESULTS and role != "note"}
        mark = decimal_mark(list(found.values()), source.delimiter)
        keys = [read_labels(frame[name]).alias(name) for name, role in roles.items() if role not in RESULTS]
        return cls(pl.DataFrame(keys), {role: read_numbers(column, mark) for role, column in found.items()})

    @property
    def tables(self) -> list[str] | dict[str, list[str]]:
        """Names of the tables in order of first appearance, with a geography by geolevel."""
        if GEOLEVEL not in self.keys.columns:
            return self.keys[TABLE].unique(maintain_order=True).to_list()
        pairs = self.keys.select(GEOLEVEL, TABLE).unique(maintain_order=True)
        return {str(level): own[TABLE].to_list() for (level,), own in pairs.group_by(GEOLEVEL, maintain_order=True)}

    def measurements(self) -> pl.DataFrame | None:
        """A long table of what was measured of these cells, None where the file does not say.

        Tables of which nothing was measured are left out.
        """
        if VALUE not in self.numbers or VARIANCE not in self.numbers:
            return None
        frame = self.keys.with_columns(
            pl.Series(VALUE, self.numbers[VALUE], nan_to_null=True),
            pl.Series(VARIANCE, np.where(np.isnan(self.numbers[VARIANCE]), np.inf, self.numbers[VARIANCE])),
        )
        own = [name for name in (TABLE, GEOLEVEL) if name in frame.columns]
        return frame.filter(pl.col(VARIANCE).is_finite().any().over(own))

    def listed(self, most: int) -> tuple[pl.DataFrame, dict[str, str]]:
        """The first rows as they are shown, and the formats of their numbers."""
        columns = {shown: self.numbers[role][:most] for role, shown in LISTED.items() if role in self.numbers}
        frame = self.keys.head(most).with_columns(
            pl.Series(shown, column, nan_to_null=True) for shown, column in columns.items()
        )
        return frame, dict.fromkeys(columns, BY_ERROR)

    def cells(self) -> pl.LazyFrame:
        """Standard errors by cell, as `precision_rows` takes them."""
        measured = self.numbers.get(VARIANCE, np.full(len(self.keys), np.nan))
        known = np.where(np.isfinite(measured), np.sqrt(measured), np.nan)
        return self.keys.lazy().with_columns(
            pl.Series(STD_ERROR, self.numbers[ERROR], nan_to_null=True),
            pl.Series("measured std error", known, nan_to_null=True),
        )

    def difference(self, other: pl.DataFrame) -> float:
        """The largest difference from other estimates of the same cells, in their standard errors.

        Parameters
        ----------
        other : polars.DataFrame
            The same keys, ``estimate`` and ``std_error``.

        Raises
        ------
        ValueError
            If a row of the file is not there.
        """
        keys = self.keys.columns
        missing = [name for name in keys if name not in other.columns]
        if missing:
            raise ValueError(f"column {missing[0]!r} is nothing that was measured: it has {', '.join(other.columns)}")
        own = self.keys.with_columns(own=pl.Series(self.numbers[ESTIMATE])).join(
            other.select(*keys, ESTIMATE, ERROR), on=keys, how="left", maintain_order="left", nulls_equal=True
        )
        unknown = own.filter(pl.col(ERROR).is_null())
        if not unknown.is_empty():
            cell = ", ".join(f"{name}={label}" for name, label in unknown.select(keys).row(0, named=True).items())
            raise ValueError(f"the measurements have no cell ({cell}): give those that it was made from")
        return _distance(*(own[name].to_numpy() for name in ("own", ESTIMATE, ERROR)))


def _distance(own: Float, other: Float, errors: Float) -> float:
    """In standard errors; a figure that is known exactly may differ by its rounding only."""
    both_nothing = np.isnan(own) & np.isnan(other)
    apart = np.where(both_nothing, 0.0, abs(own - other))
    exact = ~(errors > 0) & ~both_nothing
    apart[exact & (apart <= 1e-9 * np.maximum(1.0, abs(other)))] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = np.where(apart == 0, 0.0, apart / errors)
    return float(np.where(np.isnan(distances), np.inf, distances).max(initial=0.0))
