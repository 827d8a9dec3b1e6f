"""A file of estimates as it lies: which columns are keys, what was estimated, and what was measured of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl

from blue_solvers.reporting.for_readers import told_apart
from blue_solvers.reporting.page_parts import BY_ERROR, STD_ERROR
from constraint_builders.arrays import Float
from constraint_builders.files.columns import BOUNDS, GEOLEVEL, SOURCE, TABLE, plain_name, without_source
from constraint_builders.files.long_table import digits_of, half_units
from constraint_builders.files.numbers import decimal_mark, read_labels, read_numbers
from constraint_builders.files.source import Source

ESTIMATE, ERROR, VALUE, VARIANCE = "estimate", "std_error", "value", "variance"
RESULTS = (ESTIMATE, ERROR, *BOUNDS, "note", "nonnegative", VALUE, VARIANCE, "adjustment", "adjustment_z")
NAMELESS = "others"  # what one of several sources is called that has no name
LOST = "* could not be estimated"  # a column, as no variable is called
AGREES = 1e-6  # of half a unit of the last digit: rounding of the sums behind it
LISTED = {
    ESTIMATE: "estimate", ERROR: STD_ERROR, BOUNDS[0]: "lower", BOUNDS[1]: "upper", "nonnegative": "nonnegative",
    VALUE: "measured",
}  # fmt: skip


class Difference(NamedTuple):
    """How far estimates of a file, and their standard errors, are from the best ones.

    Attributes
    ----------
    largest : float
        In their standard errors.
    unexplained : float
        The same without figures that are the best ones to the digits that the file has.
    digits : int
        Significant digits of standard errors to which the file is rounded, or more than anybody rounds to.
    """

    largest: float
    unexplained: float
    digits: int


@dataclass(frozen=True)
class ResultFile:
    """Estimates that were written.

    Attributes
    ----------
    keys : polars.DataFrame
        What names every row: the table, labels of the variables, a geography.
    numbers : mapping of str to ndarray, (rows,)
        By the names of `RESULTS`; NaN where empty.
    sources : mapping of str to (ndarray, ndarray)
        Values and variances of what each of several sources measured, where the file tells them apart; those without a
        name are in `numbers`.
    """

    keys: pl.DataFrame
    numbers: dict[str, Float]
    sources: dict[str, tuple[Float, Float]] = field(default_factory=dict)

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
        beside = {name: without_source(name) for name in frame.columns if without_source(name)[1]}
        found = {role: name for name, role in roles.items() if role in RESULTS and role != "note"}
        mark = decimal_mark([frame[name] for name in (*found.values(), *beside)], source.delimiter)
        keys = [read_labels(frame[name]) for name, role in roles.items() if role not in RESULTS and name not in beside]
        numbers = {role: read_numbers(frame[name], mark) for role, name in found.items()}
        said = {own: read_numbers(frame[name], mark) for name, own in beside.items()}
        pairs = {(VALUE, name): (VARIANCE, name) for what, name in said if what == VALUE and (VARIANCE, name) in said}
        return cls(pl.DataFrame(keys), numbers, {own[1]: (said[own], said[pair]) for own, pair in pairs.items()})

    @property
    def tables(self) -> list[str] | dict[str, list[str]]:
        """Names of the tables in order of first appearance, with a geography by geolevel."""
        if GEOLEVEL not in self.keys.columns:
            return self.keys[TABLE].unique(maintain_order=True).to_list()
        pairs = self.keys.select(GEOLEVEL, TABLE).unique(maintain_order=True)
        return {str(level): own[TABLE].to_list() for (level,), own in pairs.group_by(GEOLEVEL, maintain_order=True)}

    def measurements(self) -> pl.DataFrame | None:
        """A long table of what was measured of these cells, None where the file does not say.

        Tables of which nothing was measured are left out, unless some of their cells could not be estimated, or a
        geolevel has no other: geounits lie in those above.
        """
        measured = self._measured
        if not measured:
            return None
        frames, keys = [], self.keys.with_columns(pl.Series(LOST, np.isnan(self.numbers[ESTIMATE])))
        for source, (value, variance) in measured.items():
            spread = np.where(np.isnan(variance), np.inf, variance)
            frame = keys.with_columns(pl.Series(VALUE, value, nan_to_null=True), pl.Series(VARIANCE, spread))
            frames.append(frame.with_columns(pl.lit(source).alias(SOURCE)) if self.sources else frame)
        whole, said = pl.concat(frames), pl.col(VARIANCE).is_finite().any()
        tables = [name for name in (TABLE, GEOLEVEL) if name in whole.columns]
        known = said.over([*tables, SOURCE] if self.sources else tables) | (~said & pl.col(LOST).any()).over(tables)
        return whole.filter(known | ~said.over(GEOLEVEL) if GEOLEVEL in whole.columns else known).drop(LOST)

    @property
    def _measured(self) -> dict[str, tuple[Float, Float]]:
        """Values and variances by source; of one that has no name where the file tells none apart."""
        plain = VALUE in self.numbers and VARIANCE in self.numbers
        alone = {NAMELESS: (self.numbers[VALUE], self.numbers[VARIANCE])} if plain else {}
        return {**self.sources, **alone}

    def listed(self, most: int) -> tuple[pl.DataFrame, dict[str, str]]:
        """The first rows as they are shown, and the formats of their numbers."""
        columns = {shown: self.numbers[role][:most] for role, shown in LISTED.items() if role in self.numbers}
        frame = (
            self.keys.head(most)
            .rename(told_apart(self.keys.columns))
            .with_columns(pl.Series(shown, column, nan_to_null=True) for shown, column in columns.items())
        )
        return frame, dict.fromkeys(columns, BY_ERROR)

    def cells(self) -> pl.LazyFrame:
        """Standard errors by cell, as `precision_rows` takes them, of a file that does not say what was measured."""
        return self.keys.lazy().with_columns(
            pl.Series(STD_ERROR, self.numbers[ERROR], nan_to_null=True),
            pl.lit(None, pl.Float64).alias("measured std error"),
        )

    def difference(self, other: pl.DataFrame) -> Difference:
        """How far the file is from other estimates of the same cells.

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
        digits, errors = digits_of(self.numbers[ESTIMATE], self.numbers[ERROR]), own[ERROR].to_numpy()
        rounding = half_units(self.numbers[ERROR], digits) * (1 + AGREES)
        largest = unexplained = 0.0
        for figures, best in ((own["own"].to_numpy(), own[ESTIMATE].to_numpy()), (self.numbers[ERROR], errors)):
            nearer = np.where(abs(figures - best) <= rounding, best, figures)
            largest = max(largest, _distance(figures, best, errors))
            unexplained = max(unexplained, _distance(nearer, best, errors))
        return Difference(largest, unexplained, digits)


def _distance(own: Float, other: Float, errors: Float) -> float:
    """The largest distance, of (rows,), in standard errors; what is known exactly may differ by its rounding only."""
    both_nothing = np.isnan(own) & np.isnan(other)
    apart = np.where(both_nothing, 0.0, abs(own - other))
    exact = ~(errors > 0) & ~both_nothing
    size = np.nan_to_num(abs(other))
    apart[exact & (apart <= np.maximum(1e-9 * size, 1e-12 * size.max(initial=0.0)))] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = np.where(apart == 0, 0.0, apart / errors)
    return float(np.where(np.isnan(distances), np.inf, distances).max(initial=0.0))
