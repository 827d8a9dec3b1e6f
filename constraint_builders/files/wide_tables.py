"""Tables as publishers write them, made long: a row for every cell, and plain numbers.

Numbers may be written ``100 ± 2`` in one cell, with signs of percent, and with marks of notes behind them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from constraint_builders.files.columns import (
    CV_PERCENT,
    SPREADS,
    SUMMED_OUT,
    VALUES,
    VARIANCE,
    holds_numbers,
    is_role,
    plain_name,
    read_spread,
    spreads_by_stem,
    stem_of,
)
from constraint_builders.files.labels import is_total, plain_label
from constraint_builders.files.naming import listed, shown
from constraint_builders.files.numbers import marked
from constraint_builders.files.source import Source

NO_CELL = re.compile(r"(census_|reference_)?year|(.*_)?(code|id|fips|geoid|postcode)")
PERHAPS_A_MARK = re.compile(r"[^\w*]*[^\W\d]{0,3}[^\w*]*")  # a few letters, or none


@dataclass(frozen=True)
class _Cell:
    """A cell's columns: its value, and what says how precise it is, with the name that this has by itself."""

    stem: str
    value: str
    spread: str | None
    kind: str | None


def with_rows_for_cells(
    table: Source,
    names_to: str | Sequence[str],
    names_sep: str = "_",
    cells: str | Sequence[str] | None = None,
    totals: Sequence[str] = (),
) -> Source:
    """Give every cell of a wide table a row of its own.

    Parameters
    ----------
    table : Source
        A column ``female`` and, unless one column says of whole rows how precise they are, a column ``female_se``,
        ``female_moe_90`` and so on beside it.
    names_to : str or sequence of str
        The variables of which names of cells are levels: ``"sex"``, or ``["sex", "age"]`` where ``female_0`` is a cell.
    names_sep : str
        What stands between the levels of several variables.
    cells : sequence of str, optional
        The columns that are cells, by default those that have one of their own for their precision.
    totals : sequence of str
        The names that count everybody, by default those that say so.

    Raises
    ------
    ValueError
        If it is not said which columns are cells, one is missing, a name does not fall into the levels of `names_to`,
        or cells say differently how precise they are.
    """
    variables = [names_to] if isinstance(names_to, str) else list(names_to)
    taken = [name for name in variables if name in table.frame.columns]
    if taken or not variables:
        raise ValueError(
            f"names_to {names_to!r}: name the variables, which are no columns yet, of which cells are levels"
        )
    nameless = next((name for name in table.frame.columns if not plain_name(name)), None)
    if nameless is not None:
        raise ValueError(
            f"column {nameless!r} is called by signs alone: call it 'total' if it counts everybody, else name it or "
            "leave it out"
        )
    found = _cells(table.frame, [cells] if isinstance(cells, str) else cells)
    used = {column for cell in found for column in (cell.value, cell.spread)}
    kept = [name for name in table.frame.columns if name not in used]
    left = next((name for name in kept if is_total(name) or plain_label(name) in map(plain_label, totals)), None)
    if left is not None:
        raise ValueError(
            f"column {left!r} has no other for its precision beside it, as cells have: give one, or leave it out"
        )
    levels = [_levels(cell.stem, variables, names_sep, totals) for cell in found]
    return table.stacked([*kept, *_columns(cell, variables, own)] for cell, own in zip(found, levels, strict=True))


def _cells(frame: pl.DataFrame, wanted: Sequence[str] | None) -> list[_Cell]:
    spreads = spreads_by_stem(frame.columns, "columns")
    found = []
    for name in frame.columns if wanted is None else wanted:
        if name not in frame.columns:
            raise ValueError(f"cell {name!r} is no column: there are {listed(frame.columns)}")
        stem = stem_of(name)
        own = spreads.get(plain_name(stem)) or spreads.get(plain_name(name))
        if own is not None or wanted is not None:
            found.append(_Cell(stem, name, own and own[1].column, own and own[0]))
    found = [cell for cell in found if cell.value not in {other.spread for other in found}]
    if not found:
        raise ValueError(
            "which columns are cells? none has another for its precision beside it, such as 'female_se' beside "
            "'female': give cells=['female', 'male'] by name"
        )
    first: dict[str, _Cell] = {}
    for cell in found:
        if cell.spread is not None and (other := first.setdefault(cell.spread, cell)) is not cell:
            both = f"{other.value!r} and {cell.value!r}"
            raise ValueError(f"{cell.spread!r} may say how precise {both} are: give each its own, of the same name")
    kinds = {cell.kind: cell for cell in found}
    if len(kinds) > 1:
        one, other = list(kinds.values())[:2]
        says = " and ".join(f"{cell.value!r} has {cell.spread!r}" if cell.spread else f"{cell.value!r} has none"
                            for cell in (one, other))  # fmt: skip
        raise ValueError(f"cells must say in one way how precise they are: {says}")
    return found


def _columns(cell: _Cell, variables: Sequence[str], levels: Sequence[str]) -> list[pl.Expr]:
    """The levels of a cell, its value, and how precise that is."""
    said = [pl.lit(level).alias(variable) for variable, level in zip(variables, levels, strict=True)]
    said.append(pl.col(cell.value).alias("value"))
    if cell.spread is not None and cell.kind is not None:
        said.append(pl.col(cell.spread).alias(cell.kind))
    return said


def _levels(stem: str, variables: Sequence[str], names_sep: str, totals: Sequence[str]) -> list[str]:
    if len(variables) == 1:
        return [stem]
    if plain_label(stem) in map(plain_label, totals) or (is_total(stem) and SUMMED_OUT not in totals):
        return [SUMMED_OUT] * len(variables)
    levels = stem.split(names_sep)
    if len(levels) != len(variables):
        raise ValueError(
            f"column {stem!r} falls into {len(levels)} levels at {names_sep!r}, names_to has {len(variables)} "
            f"variables: give names_sep, or rename it with columns={{{stem!r}: ...}}"
        )
    return levels


def columns_of_numbers(frame: pl.DataFrame, marks: Sequence[str | float] = ()) -> list[str] | None:
    """The columns of numbers, and of marks, that are nothing else by name, where none says how precise another is.

    Refused are columns of numbers and of other words that are no labels of numbers, such as ``..C``.
    """
    if spreads_by_stem(frame.columns, "columns"):
        return None
    names = {plain_name(name): name for name in frame.columns}
    if "level" in names and "code" in names:
        both = f"{names['level']!r} and {names['code']!r}"
        raise ValueError(f"columns {both} say where a row counts: give areas=, or call them geolevel and geocode")
    plain = {own.name: own.filter(~marked(own, marks)) for own in frame if not is_role(own.name)}
    found = [name for name, column in plain.items() if holds_numbers(column)]
    for name in found:
        if NO_CELL.fullmatch(plain_name(name)):
            raise ValueError(f"column {name!r} holds numbers: is it a cell? name all by cells=['female', 'male']")
    for name in plain if found else ():
        text = plain[name].cast(pl.String, strict=False).drop_nulls().unique(maintain_order=True).str.strip_chars()
        words = [] if name in found else text.to_list()
        numbers = [word for word in words if word.replace(",", "").isdigit()]
        other = [word for word in words if PERHAPS_A_MARK.fullmatch(word) and not is_total(word)]
        if numbers and other:
            raise ValueError(
                f"column {name!r} holds numbers, and {other[0]!r}: is it a cell? name that mark by suppressed= or else "
                "the cells by cells=['female', 'male']"
            )
    return found or None


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
