"""Results rounded to what their standard errors make of them."""

from __future__ import annotations

import numpy as np
import polars as pl

from constraint_builders.arrays import Flags, Float
from constraint_builders.files.columns import without_source

ROUNDED = ("estimate", "std_error", "lower", "upper", "nonnegative", "adjustment")
RATIOS = ("adjustment_z",)
OF_EXACT = 15  # significant digits of a number without a standard error: the last bits are rounding
MOST_DIGITS = 17  # of a floating-point number
EPSILON = np.finfo(np.float64).eps
LARGEST = 2.0**53  # beyond, every floating-point number is whole


def rounded(frame: pl.DataFrame, digits: int) -> pl.DataFrame:
    """Round a frame of estimates, row by row, so that the standard error has a number of significant digits.

    Estimates, bounds and adjustments of a row are rounded to the same decimal place; what was measured stays as it is.

    Parameters
    ----------
    frame : polars.DataFrame
        With a column ``std_error``.
    digits : int
        Significant digits of the standard error, at least 1.

    Returns
    -------
    polars.DataFrame

    Examples
    --------
    >>> frame = pl.DataFrame({"estimate": [1545.2034, 77.0], "std_error": [0.98765, 0.0]})
    >>> rounded(frame, 2).rows()
    [(1545.2, 0.99), (77.0, 0.0)]
    """
    places = digits - 1 - _exponents(frame["std_error"].to_numpy())
    columns = []
    for name in frame.columns:
        what, _ = without_source(name)
        if what in ROUNDED:
            values = frame[name].to_numpy()
            own = np.where(np.isnan(places), OF_EXACT - 1 - _exponents(values), places)
            columns.append(_at(frame[name], values, own))
        elif what in RATIOS:
            columns.append(_at(frame[name], frame[name].to_numpy(), np.full(frame.height, digits - 1.0)))
    return frame.with_columns(columns)


def digits_of(estimate: Float, std_error: Float) -> int:
    """The significant digits of standard errors to which results are rounded; `MOST_DIGITS` where they are not.

    Parameters
    ----------
    estimate, std_error : ndarray, (rows,)

    Examples
    --------
    >>> digits_of(np.array([1545.2, 0.0]), np.array([0.99, 1.0])), digits_of(np.array([1545.2034]), np.array([0.99]))
    (2, 4)
    """
    for digits in range(1, MOST_DIGITS):
        unit = 2 * half_units(std_error, digits)
        unit[std_error == 10.0 ** _exponents(std_error)] /= 10  # they may have been rounded up to one digit more
        if all(_whole(own, unit).all() for own in (estimate, std_error)):
            return digits
    return MOST_DIGITS


def half_units(std_error: Float, digits: int) -> Float:
    """Half a unit of the last decimal place that `rounded` leaves in a row, (rows,); 0 without a standard error."""
    with np.errstate(over="ignore", under="ignore"):
        return np.nan_to_num(0.5 * 10.0 ** (_exponents(std_error) - digits + 1))


def _whole(values: Float, unit: Float) -> Flags:
    """Whether values are multiples of units, to their own rounding; where there is no unit there is nothing to say."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        times = np.divide(values, unit, out=np.zeros_like(values), where=unit > 0)
        return ~np.isfinite(times) | (abs(times - np.round(times)) <= 4 * EPSILON * abs(times))


def _exponents(values: Float) -> Float:
    """The power of ten of the first significant digit, NaN where there is none."""
    sizes = np.where(np.isfinite(values) & (values != 0), abs(values), np.nan)
    return np.floor(np.log10(sizes))


def _at(column: pl.Series, values: Float, places: Float) -> pl.Series:
    """A column rounded to decimal places, negative ones too; as it is where that would leave floating point."""
    with np.errstate(over="ignore", invalid="ignore"):
        up, down = 10.0 ** np.clip(places, 0, None), 10.0 ** np.clip(-places, 0, None)
        scaled = values * up / down
        nearest = np.where(abs(scaled) < LARGEST, np.round(scaled) / up * down, values)
    whole = pl.Series(column.name, np.where(np.isfinite(nearest), nearest, values) + 0.0)
    return whole.zip_with(column.is_not_null(), pl.Series([None], dtype=pl.Float64).new_from_index(0, len(whole)))
