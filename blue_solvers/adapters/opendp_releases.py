"""Marginals released by OpenDP, with the noise that it says it added, as a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float
from noise_mechanisms.laws import LAWS, variance_of

KINDS = {"Integer": "discrete_", "Float": ""}  # of numbers, and how the name of a law on them begins
WHOLE = ("i8", "i16", "i32", "i64", "i128", "u8", "u16", "u32", "u64", "u128")
Release = tuple[Any, Any]


def problem_from_releases(
    releases: Sequence[Release], schema: Schema | None = None, *, noise: str | None = None
) -> tuple[Problem, Float]:
    """A problem from what OpenDP's Context released; needs the extra ``frames``.

    Parameters
    ----------
    releases : sequence of (frame, summary)
        Of every ``query``: ``query.release().collect()``, a row for each group, and ``query.summarize()``, which says
        the law and the scale. Counts alone, ``dp.len(signed=True)``: others were cut at zero, and are refused.
    schema : Schema, optional
        By default the one that the groups imply.
    noise : str, optional
        The law for intervals by replicates, where releases have several.

    Returns
    -------
    problem : Problem
        Its variances those of the laws, no squared scales.
    y : ndarray, (n,)

    Raises
    ------
    ValueError
        If a summary is not of one count, counts are unsigned, a group or a count is null, a group is called ``*``, laws
        differ, or as `constraint_builders.read_tables`.
    """
    import polars

    from constraint_builders import read_tables
    from constraint_builders.files.columns import SUMMED_OUT
    from constraint_builders.files.source import open_source

    parts, laws = [], []
    for number, (frame, summary) in enumerate(releases, 1):
        law, scale, column = _noise_of(open_source(summary).frame, number)
        counts = open_source(frame).frame
        if column not in counts.columns:
            raise ValueError(f"release {number} has no column {column!r}: there are {', '.join(counts.columns)}")
        if counts[column].dtype.is_unsigned_integer():
            raise ValueError(
                f"release {number}: counts in {column!r} were cut at zero, which is no noise of mean zero: release "
                "dp.len(signed=True)"
            )
        taken = {"value", "variance", "source"} & {*counts.columns} - {column}
        if taken:
            raise ValueError(
                f"release {number} groups by {min(taken)!r}, which names what was measured: rename the column"
            )
        groups = [polars.col(name).cast(polars.String) for name in counts.columns if name != column]
        for own in counts.select(*groups, column):
            if own.null_count() or (own.name != column and (own.str.strip_chars() == SUMMED_OUT).any()):
                raise ValueError(
                    f"release {number}: column {own.name!r} holds nulls or {SUMMED_OUT!r}, which stands for the sum "
                    "over all groups: name that group, with fill_null or replace, before or after the release"
                )
        value = polars.col(column).cast(polars.Float64).alias("value")
        variance = polars.lit(variance_of(law, scale)).alias("variance")
        parts.append(counts.select(*groups, value, variance, polars.lit(f"release {number}").alias("source")))
        laws.append(law)
    if not parts:
        raise ValueError("there are no releases: give (frame, summary) of each")
    if noise is None and len(set(laws)) > 1:
        raise ValueError(f"releases have the laws {', '.join(sorted(set(laws)))}: say which intervals take, noise=...")
    whole = polars.concat(parts, how="diagonal")
    keys = [name for name in whole.columns if name not in ("value", "variance", "source")]
    filled = whole.with_columns(polars.col(keys).fill_null(SUMMED_OUT))  # where a release does not group by it
    return read_tables(filled, schema, total=SUMMED_OUT, noise=noise or laws[0])


def noise_of(measurement: Any, sensitivity: float = 1.0) -> tuple[str, float]:
    """The law of an OpenDP ``Measurement``'s noise and its variance, by its privacy map.

    Parameters
    ----------
    measurement : opendp.Measurement
        Of ``make_gaussian`` or ``make_laplace`` alone.
    sensitivity : float
        The distance that the map is asked at, in its own units: 1 where one person changes one count by one.

    Returns
    -------
    law : str
        A name in `noise_mechanisms.laws.LAWS`, as `Problem` takes it.
    variance : float

    Raises
    ------
    ValueError
        If its measure is neither that of Gaussian nor of Laplace noise, or its map no function of one scale.

    Notes
    -----
    Gaussian noise of scale s loses (d / s)^2 / 2 in zero-concentrated, Laplace noise of scale b loses d / b in pure
    differential privacy, at a distance d.
    """
    measure = str(measurement.output_measure)
    whole = str(measurement.input_domain.carrier_type).removeprefix("Vec<").removesuffix(">") in WHOLE
    loss = float(measurement.map(_distance(measurement, sensitivity)))
    if not 0 < loss < np.inf:
        raise ValueError(f"the measurement loses {loss} at a distance of {sensitivity}: that says no scale")
    if "ZeroConcentrated" in measure:
        law, scale = "gaussian", sensitivity / np.sqrt(2 * loss)
    elif "MaxDivergence" in measure:
        law, scale = "laplace", sensitivity / loss
    else:
        raise ValueError(f"the measure {measure} is not that of Gaussian or Laplace noise: give the variance yourself")
    law = f"discrete_{law}" if whole else law
    return law, variance_of(law, float(scale))


def _distance(measurement: Any, sensitivity: float) -> Any:
    """A distance in the type that the map takes."""
    kind = str(getattr(measurement.input_metric, "distance_type", "f64"))
    return int(sensitivity) if kind in WHOLE and float(sensitivity).is_integer() else float(sensitivity)


def _noise_of(summary: Any, number: int) -> tuple[str, float, str]:
    """The law, the scale and the column of the one count that was released."""
    if summary.height != 1:
        raise ValueError(f"release {number} holds {summary.height} statistics: give counts alone, one in each")
    (said,) = summary.iter_rows(named=True)
    kind, _, shape = str(said["distribution"]).partition(" ")
    law = KINDS.get(kind, "") + shape.lower()
    if kind not in KINDS or law not in LAWS:
        raise ValueError(f"release {number}: no law {said['distribution']!r} is known here")
    return law, float(said["scale"]), str(said["column"])
