"""Tables of SDMX, as statistical offices give them in CSV, and Eurostat's in TSV, made plain.

In SDMX-CSV dimensions have a column each, then follow ``OBS_VALUE`` and attributes of it; codes ``_T`` and ``TOTAL``
count everybody, and so does ``T`` of a dimension that has neither. In Eurostat's TSV the first column joins all
dimensions but the last, whose codes are columns, and flags stand behind values: ``12.5 p``, ``: c``.

References
----------
SDMX, "SDMX-CSV field guide", versions 1.0 and 2.0; Eurostat, "Bulk download: file formats".
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl

from constraint_builders.files.columns import SUMMED_OUT
from constraint_builders.files.naming import shown
from constraint_builders.files.source import Source

SDMX = "sdmx"  # what the style is called
VALUE, MULTIPLIER = "OBS_VALUE", "UNIT_MULT"
OF_THE_FILE = {"DATAFLOW", "STRUCTURE", "STRUCTURE_ID", "STRUCTURE_NAME", "ACTION", "LAST UPDATE", "DATAFLOW_NAME"}
TOTALS = ("_T", "TOTAL")
MAY_BE_TOTAL = "T"
ACROSS = "\\"  # before the dimension whose codes are columns
JOINED = ","
MISSING = ":"
NUMBER = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?:\s+[a-z]+)?")
NO_VALUE = re.compile(r"(?:|:|NaN)\s*[a-zA-Z]*")


def plain_sdmx(table: Source) -> Source:
    """The dimensions of a table that tell its values apart, and a column ``value``, empty where there is none.

    Parameters
    ----------
    table : Source

    Returns
    -------
    Source

    Raises
    ------
    ValueError
        If the table is neither form, or a value is no number.
    """
    frame = table.frame.with_columns(pl.all().cast(pl.String).str.strip_chars())
    header = {_id(name): name for name in frame.columns}
    if VALUE in header:
        before = frame.columns[: frame.columns.index(header[VALUE])]
        dimensions = [name for name in before if _id(name) not in OF_THE_FILE]
        values, rows = frame[header[VALUE]], table.rows
        powers = frame[header[MULTIPLIER]] if MULTIPLIER in header else None
        said = frame.select(pl.col(name).alias(_id(name)) for name in dimensions)
    elif frame.columns and ACROSS in frame.columns[0]:
        said, values, rows, powers = *_across(frame, table.rows), None
    else:
        raise ValueError(
            f"no table of SDMX: there is neither a column {VALUE!r} nor a first one such as "
            f"'freq,sex,geo{ACROSS}TIME_PERIOD'"
        )
    numbers = _numbers(values, powers, rows)
    kept = [_without_names(said[name]) for name in said.columns if said[name].n_unique() > 1]
    plain = pl.DataFrame([*map(_with_total, kept), numbers.alias("value")])
    return replace(table, frame=plain, rows=rows, delimiter="")


def _id(name: str) -> str:
    """The identifier in a header that may say a name too, ``SEX: Sex``, in capitals but for dimensions."""
    own = name.split(":")[0].strip()
    return own.upper() if own.upper() in {VALUE, MULTIPLIER} | OF_THE_FILE else own


def _without_names(codes: pl.Series) -> pl.Series:
    """Codes, (rows,), where all say names too: ``F: Female``."""
    named = codes.drop_nulls().str.contains(r"^[^:]+: ").all()
    return codes.str.extract(r"^([^:]+): ", 1) if named else codes


def _with_total(codes: pl.Series) -> pl.Series:
    """Codes, (rows,), with ``*`` for those that count everybody."""
    own = set(codes.unique().to_list())
    totals = [code for code in TOTALS if code in own] or [code for code in (MAY_BE_TOTAL,) if code in own]
    return codes.replace(dict.fromkeys(totals, SUMMED_OUT))


def _across(frame: pl.DataFrame, rows: np.ndarray) -> tuple[pl.DataFrame, pl.Series, np.ndarray]:
    """The dimensions, values and rows of a table of Eurostat, (cells,) each, whose last dimension lies across."""
    first, *codes = frame.columns
    joined, _, last = first.partition(ACROSS)
    names = [name.strip() for name in joined.split(JOINED)]
    parts = frame[first].str.split(JOINED)
    wrong = np.flatnonzero(parts.list.len().to_numpy() != len(names))
    if wrong.size:
        raise ValueError(f"row {rows[wrong[0]]}: {shown(frame[first][int(wrong[0])])} has not {len(names)} codes")
    said = pl.DataFrame([parts.list.get(i).str.strip_chars().alias(name) for i, name in enumerate(names)])
    blocks = [said.with_columns(pl.lit(code.strip()).alias(last.strip())) for code in codes]
    return pl.concat(blocks), pl.concat([frame[code] for code in codes]), np.tile(rows, len(codes))


def _numbers(values: pl.Series, powers: pl.Series | None, rows: np.ndarray) -> pl.Series:
    """Values, (cells,), without flags, in units; null where there is none."""
    found = []
    for i, text in enumerate(values.fill_null("").to_list()):
        number = NUMBER.fullmatch(text)
        if number is None and NO_VALUE.fullmatch(text) is None:
            raise ValueError(f"row {rows[i]}: {shown(text)} is neither a number nor a mark of one that is missing")
        found.append(None if number is None else float(number[1]))
    numbers = pl.Series("value", found, pl.Float64)
    if powers is None:
        return numbers
    exponent = powers.fill_null("0").replace("", "0").cast(pl.Float64, strict=False)
    if exponent.null_count():
        row = rows[int(exponent.is_null().arg_max() or 0)]
        raise ValueError(f"row {row}: {MULTIPLIER} is a power of ten, such as 3 for thousands")
    return numbers * 10.0**exponent
