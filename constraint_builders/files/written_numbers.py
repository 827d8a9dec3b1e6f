"""Numbers as publishers write them: ``100 ± 2`` in one cell, signs of percent, marks of notes behind them."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from constraint_builders.files.columns import CV_PERCENT, SPREADS, VALUES, VARIANCE, plain_name, read_spread
from constraint_builders.files.naming import shown
from constraint_builders.files.source import Source

BETWEEN = r"\s*(?:±|\+/?-)\s*"
NUMBER = r"^[-+−]?[0-9]"
NOTED = r"^(.*[0-9]%?)\s*((?:\([0-9]{1,2}\)|[*†‡¹²³⁴-⁹])+)$"  # with marks of notes behind the number
MARKS = r"[(*†‡±¹²³⁴-⁹]|\+/?-"
SIGNED = r"^(?:±|\+/?-)\s*"
PERCENT = r"[0-9]\s*%$"
DOTTED, WHOLE = r"^[-+−]?[1-9][0-9]{0,2}\.[0-9]{3}$", r"^[0-9]+$"  # which may be a thousand, beside a whole number
DECIMALS = r"\.([0-9]{1,2}|[0-9]{4,})$"
POWER = r"^[-+−]?10\s*[¹²³⁴-⁹]+$"  # which may be one of ten


def plainly_written(table: Source, plus_minus: str | None) -> Source:
    """The same numbers in columns of their own, without signs and without marks of notes.

    Parameters
    ----------
    table : Source
    plus_minus : str or None
        What stands behind ``±``: a name of a column such as ``std_error`` or ``moe_90``.

    Raises
    ------
    ValueError
        If it is not said what stands behind ``±``, or some numbers alone are in percent.
    """
    frame, noted = _without_notes(_without_plus_minus(table.frame, plus_minus))
    return replace(table, frame=_without_percent(frame), left_out=table.left_out + noted)


def _texts(frame: pl.DataFrame, pattern: str) -> dict[str, pl.Series]:
    """Columns of text of which some is as a pattern says, without outer spaces, null where empty."""
    texts = [frame[name] for name, dtype in frame.schema.items() if dtype == pl.String]
    return {text.name: text.str.strip_chars().replace("", None) for text in texts if text.str.contains(pattern).any()}


def _without_plus_minus(frame: pl.DataFrame, kind: str | None) -> pl.DataFrame:
    split = False
    for name, text in _texts(frame, BETWEEN).items():
        parts = text.str.replace(BETWEEN, "±").str.splitn("±", 2)
        numbers = text.filter(parts.struct.field("field_1").is_not_null())
        if not numbers.len() or not numbers.str.contains(NUMBER).all():
            continue
        if kind is None:
            raise ValueError(
                f"column {name!r}: what stands behind ± in {shown(numbers[0])}? say plus_minus= 'std_error', or "
                "'moe_90' of a margin of error of 90 %"
            )
        called = kind if plain_name(name) in VALUES else f"{name}_{kind}"
        if called in frame.columns:
            raise ValueError(f"columns {name!r}, behind ±, and {called!r} both say how precise values are: keep one")
        before, behind = (parts.struct.field(field) for field in ("field_0", "field_1"))
        _refuse_thousands(name, text, before, behind)
        frame, split = frame.with_columns(before.alias(name), behind.alias(called)), True
    if kind is not None and not split:
        raise ValueError(f"plus_minus={kind!r} is of numbers such as '100 ± 2', and there are none: leave it out")
    return frame


def _refuse_thousands(name: str, text: pl.Series, before: pl.Series, behind: pl.Series) -> None:
    """Refuse ``1.234 ± 2``, which hardly anybody writes of 1.2, where no other number says what the point means."""
    doubtful = text.filter((before.str.contains(DOTTED) & behind.str.contains(WHOLE)).fill_null(False))
    if doubtful.len() and not any(part.str.contains(DECIMALS).any() for part in (before, behind)):
        number = before.filter(text == doubtful[0])[0]
        raise ValueError(
            f"column {name!r}: {shown(doubtful[0])} may be of {number.replace('.', '')} or {number}, which has more "
            "digits than its error: write thousands without a point, or the error with as many digits"
        )


def _without_percent(frame: pl.DataFrame) -> pl.DataFrame:
    """Shares and their precisions, all in percent, as numbers; of coefficients of variation the name says the unit."""
    texts = {name: text.drop_nulls() for name, text in _texts(frame, "%").items()}
    signed = [name for name, text in texts.items() if text.len() and text.str.contains(PERCENT).all()]
    frame = frame.rename({name: f"{name} (%)" for name in signed if plain_name(name) in SPREADS[CV_PERCENT]})
    values = [name for name in signed if plain_name(name) in VALUES]
    if not values:
        return frame
    found = {name: own.kind for name in frame.columns if (own := read_spread(name)) and own.kind != CV_PERCENT}
    spreads = list(found)
    squared = next((name for name in spreads if name in signed and found[name] == VARIANCE), None)
    if squared is not None:
        raise ValueError(f"column {squared!r} is in percent, which may be of a square: give std_error")
    plain = next((name for name in spreads if name not in signed), None)
    if plain is not None:
        raise ValueError(f"column {values[0]!r} is in percent, and {plain!r} has no sign of it: give both in one unit")
    return frame.with_columns(pl.col(name).str.strip_chars().str.strip_suffix("%") for name in (*values, *spreads))


def _without_notes(frame: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Values, and what says how precise they are, without marks of notes, ``(2)``; the latter without ``±`` too."""
    said: tuple[str, ...] = ()
    spreads = [name for name in frame.columns if _says_spread(name)]
    values = [name for name in frame.columns if plain_name(name) in VALUES]
    for name, text in _texts(frame.select(values + spreads), MARKS).items() if spreads else ():
        noted = text.str.contains(NOTED) & ~text.str.contains(POWER)
        marks = text.filter(noted).str.extract(NOTED, 2)
        if marks.len():
            said += (f"marks of notes in column {name!r}: {', '.join(marks.unique().sort())}",)
        plain = text.str.replace(NOTED, "$1").zip_with(noted.fill_null(False), text) if marks.len() else text
        frame = frame.with_columns(plain.str.replace(SIGNED, "") if name in spreads else plain)
    return frame, said


def _says_spread(name: str) -> bool:
    """Whether a column says how precise values are; of a coefficient of variation also where its unit is to be seen."""
    return plain_name(name) in SPREADS[CV_PERCENT] or read_spread(name) is not None
