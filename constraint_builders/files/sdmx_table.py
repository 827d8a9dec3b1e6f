"""Tables of SDMX, as statistical offices give them in CSV, and Eurostat's in TSV, made plain.

In SDMX-CSV dimensions have a column each, then follow ``OBS_VALUE`` and attributes of it; codes ``_T`` and ``TOTAL``
count everybody, and so does ``T`` of a sex. In Eurostat's TSV the first column joins all dimensions but the last, whose
codes are columns, and flags stand behind values: ``12.5 p``, ``: c``.

Rows in several units, of several frequencies or dataflows are refused: no sum of such numbers says anything.

References
----------
SDMX, "SDMX-CSV field guide", versions 1.0 and 2.0; Eurostat, "Bulk download: file formats".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from constraint_builders.files.columns import SUMMED_OUT
from constraint_builders.files.naming import shown
from constraint_builders.files.source import Source

SDMX = "sdmx"  # what the style is called
VALUE, MULTIPLIER = "OBS_VALUE", "UNIT_MULT"
STATUS, ACTION = "OBS_STATUS", "ACTION"
FLOWS = ("DATAFLOW", "STRUCTURE_ID")
OF_THE_FILE = {*FLOWS, ACTION, "STRUCTURE", "STRUCTURE_NAME", "LAST UPDATE", "DATAFLOW_NAME", "SERIES_KEY", "OBS_KEY"}
ATTRIBUTES = {MULTIPLIER, STATUS, "OBS_FLAG", "OBS_CONF", "CONF_STATUS", "DECIMALS"}
FREQUENCIES, TIME = ("FREQ", "FREQUENCY"), "TIME"
UNITS = ("UNIT", "UNIT_MEASURE", "CURRENCY", *FREQUENCIES)
NAME_OF_VALUE = "OBSERVATION VALUE"  # a column of names beside that of codes, as beside all others then
NO_VALUES = ("H", "K", "L", "M", "O", "Q", "W")  # of OBS_STATUS: missing, or counted in another cell
MOST_POWER = 15
TOTALS = ("_T", "TOTAL")
MAY_BE_TOTAL, OF_SEX = "T", ("sex", "gender")  # elsewhere it may be a code, as of activities
ACROSS = "\\"  # before the dimension whose codes are columns
JOINED = ","
NUMBER = r"^([+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?:\s+[a-z]+)?$"  # with flags
NO_VALUE = r"^(?:|NaN|NA|:\s*[a-zA-Z]*)$"


def plain_sdmx(table: Source, frequencies: bool = False) -> Source:
    """The dimensions of a table that tell its values apart, and a column ``value``, empty where there is none.

    Parameters
    ----------
    table : Source
    frequencies : bool
        Whether rows may be of several frequencies, of which periods are told to be sums of one another.

    Returns
    -------
    Source

    Raises
    ------
    ValueError
        If the table is neither form, a value is no number, or said to be none, or rows are in several units.
    """
    table = _read(table, FREQUENCIES if frequencies else ())
    *names, _ = table.frame.columns
    if frequencies:  # each has empty cells for periods of the others: a cell without values is kept once, no period is
        value, cell = pl.col(VALUE), pl.struct(names)
        alone = cell.is_first_distinct() & value.is_null().all().over(names)
        for name in names:
            if TIME in name.upper():
                alone &= value.is_not_null().any().over(name)
        table = table.kept(table.frame.select(value.is_not_null() | alone).to_series())
    kept = [table.frame[name] for name in names if table.frame[name].n_unique() > 1]
    plain = pl.DataFrame([*map(_with_total, kept), table.frame[VALUE].alias("value")])
    for name in plain.columns[:-1]:
        codes = plain[name].drop_nulls().unique().to_list()
        if SUMMED_OUT in codes and len(codes) == 2:
            alone = next(code for code in codes if code != SUMMED_OUT)
            raise ValueError(
                f"column {name!r} has {shown(alone)} alone beside a total, as if both counted the same: give the "
                "others rows, with an empty value where there is none, or leave out those of one"
            )
    return replace(table, frame=plain)


def constant_codes(table: Source) -> dict[str, str | None]:
    """The code of every dimension or unit, in capitals, that has one alone, not of all; None of those with several."""
    *said, _ = _read(table).frame
    units = [own.alias(_id(own.name)) for own in table.frame if _id(own.name).upper() in UNITS]
    found = {own.name.upper(): own for own in map(_with_total, [*said, *map(_without_names, units)]) if own.len()}
    codes = {name: str(own[0]) if own.n_unique() == 1 else None for name, own in found.items()}
    return {name: code for name, code in codes.items() if code != SUMMED_OUT}


def refuse_apart(tables: Mapping[str, Source]) -> None:
    """Refuse tables, by what they are called, that are estimated together and are about different codes."""
    first: dict[str, tuple[str, str | None]] = {}
    for called, table in tables.items():
        for name, code in constant_codes(table).items():
            other, own = first.setdefault(name, (called, code))
            if own != code:
                both = (f"{shown(one)} alone" if one else "several codes" for one in (own, code))
                raise ValueError(
                    f"{name!r} has {' in {} and '.join(both).format(other)} in {called}: these do not count the same"
                )


def _read(table: Source, without: Sequence[str] = ()) -> Source:
    """The dimensions, all of them but some, and behind them ``OBS_VALUE``, (cells,) each."""
    table = replace(table, frame=table.frame.with_columns(pl.all().cast(pl.String).str.strip_chars()), delimiter="")
    frame, powers = table.frame, None
    header = {_id(name): name for name in frame.columns}
    if VALUE in header:
        before = frame.columns[: frame.columns.index(header[VALUE])]
        dimensions = [name for name in before if _id(name).upper() not in OF_THE_FILE | ATTRIBUTES]
        if {"STRUCTURE_NAME", NAME_OF_VALUE} & {name.upper() for name in header}:
            dimensions = _without_columns_of_names(frame, dimensions)
        powers = _without_names(frame[header[MULTIPLIER]]) if MULTIPLIER in header else None
        _refuse_mixed({own: frame[name] for name in frame.columns if (own := _id(name).upper()) not in without})
        if STATUS in header:
            _refuse_no_values(table, frame[header[VALUE]], _without_names(frame[header[STATUS]]))
        table = table.stacked([[pl.col(name).alias(_id(name)) for name in (*dimensions, header[VALUE])]])
    elif frame.columns and ACROSS in frame.columns[0]:
        table = _across(table)
        _refuse_mixed({own.name.upper(): own for own in table.frame if own.name.upper() not in without})
    else:
        raise ValueError(
            f"no table of SDMX: there is neither a column {VALUE!r} nor a first one such as "
            f"'freq,sex,geo{ACROSS}TIME_PERIOD'"
        )
    *said, values = (own for own in table.frame if own.name.upper() not in without)
    return replace(table, frame=pl.DataFrame([*map(_without_names, said), _numbers(table, values, powers)]))


def _refuse_mixed(columns: Mapping[str, pl.Series]) -> None:
    """Refuse rows of several units, dataflows and the like, by columns, (rows,) each; and rows to be deleted."""
    for name in (*UNITS, *FLOWS):
        found = columns[name].drop_nulls().unique(maintain_order=True).to_list() if name in columns else []
        if len(found) > 1:
            both = " and ".join(map(shown, found[:2]))
            raise ValueError(f"column {name!r} has {both}, which nobody adds up: keep the rows of one")
    if ACTION in columns and columns[ACTION].str.to_uppercase().str.contains(r"^D($|:|ELETE)").any():
        raise ValueError(f"column {ACTION!r} has rows to be deleted: leave them out, with those that they delete")


def _refuse_no_values(table: Source, values: pl.Series, status: pl.Series) -> None:
    """Refuse values, (rows,), where their status says that there is none, or that others are in it."""
    wrong = (status.is_in(NO_VALUES) & values.str.contains(r"^[+-]?[0-9]")).fill_null(False)
    if wrong.any():
        number, mark = values.filter(wrong)[0], status.filter(wrong)[0]
        raise ValueError(
            f"row {table.row_of(wrong)}: {number} has the {STATUS} {mark!r}, missing or counted elsewhere: empty it, "
            "or the status"
        )


def _without_columns_of_names(frame: pl.DataFrame, dimensions: Sequence[str]) -> list[str]:
    """Dimensions without the columns that say the names of the codes in the one before, ``Sex`` after ``SEX``."""
    kept: list[str] = []
    for name in dimensions:
        named = bool(kept) and name not in (name.upper(), name.lower())
        if not (named and frame.select(kept[-1], name).unique().height == frame[kept[-1]].n_unique()):
            kept.append(name)
    return kept


def _id(name: str) -> str:
    """The identifier in a header that may say a name too, ``SEX: Sex``, in capitals but for dimensions."""
    own = re.sub(r"\[.*\]$", "", name.split(":")[0].strip())
    return own.upper() if own.upper() in {VALUE} | ATTRIBUTES | OF_THE_FILE else own


def _without_names(codes: pl.Series) -> pl.Series:
    """Codes, (rows,), where all say names too: ``F: Female``."""
    named = codes.drop_nulls().str.contains(r"^[^:]+: ").all()
    return codes.str.extract(r"^([^:]+): ", 1) if named else codes


def _with_total(codes: pl.Series) -> pl.Series:
    """Codes, (rows,), with ``*`` for those that count everybody."""
    own = set(codes.unique().to_list())
    of_sex = any(word in codes.name.lower() for word in OF_SEX)
    totals = [code for code in TOTALS if code in own] or [MAY_BE_TOTAL] * (of_sex and MAY_BE_TOTAL in own)
    return codes.replace(dict.fromkeys(totals, SUMMED_OUT))


def _across(table: Source) -> Source:
    """The dimensions and values of a table of Eurostat, (cells,) each, whose last dimension lies across."""
    first, *codes = table.frame.columns
    joined, _, last = first.partition(ACROSS)
    names = [name.strip() for name in joined.split(JOINED)]
    parts = table.frame[first].str.split(JOINED)
    table.refuse(parts.list.len() != len(names), table.frame[first], f"has not {len(names)} codes")
    said = [parts.list.get(i).str.strip_chars().alias(name) for i, name in enumerate(names)]
    return table.stacked([*said, pl.lit(code.strip()).alias(last.strip()), pl.col(code).alias(VALUE)] for code in codes)


def _numbers(table: Source, values: pl.Series, powers: pl.Series | None) -> pl.Series:
    """Values, (cells,), without flags, in units; null where there is none."""
    texts = values.fill_null("")
    numbers = texts.str.extract(NUMBER, 1).cast(pl.Float64)
    wrong = numbers.is_null() & ~texts.str.contains(NO_VALUE)
    table.refuse(wrong, texts, "is neither a number nor a mark of one that is missing")
    if powers is None:
        return numbers
    exponent = powers.fill_null("0").replace("", "0").cast(pl.Float64, strict=False)
    wrong = ~(exponent.is_between(-MOST_POWER, MOST_POWER) & (exponent == exponent.round())).fill_null(False)
    if wrong.any():
        raise ValueError(f"row {table.row_of(wrong)}: {MULTIPLIER} is a power of ten, such as 3 for thousands")
    return numbers * 10.0**exponent
