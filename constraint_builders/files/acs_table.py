"""Tables of the American Community Survey as data.census.gov gives them, made long.

Two forms are known. In files of data every place has a row, lines of the table are columns, an estimate and its margin
of error for each, and a second row of labels says what they count, ``Estimate!!Total:!!Male:``. In tables as they are
shown every line has a row, indented below what it is a part of, and every place has two columns.

Lines form a tree below ``Total:``. Where all lines of one depth have the same parts, depths are variables: sex, and age
within it. Otherwise the lowest lines are the levels of one variable, and every depth above is a recode of it.

References
----------
U.S. Census Bureau, "Notes on ACS Estimate and Annotation Values"; margins of error are of 90 %.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.files.columns import GEOCODE, GEOLEVEL, SUMMED_OUT, TABLE, VARIANCE
from constraint_builders.files.measured_table import MeasuredTable, measured
from constraint_builders.files.naming import naming, shown
from constraint_builders.files.sdmx_table import SDMX
from constraint_builders.files.source import Source

if TYPE_CHECKING:
    from constraint_builders.description.noise import LawOrName
    from constraint_builders.files.survey_frame import Said

ACS = "acs"  # what the style is called
ESTIMATE, MARGIN, BETWEEN = "Estimate", "Margin of Error", "!!"
CODE_OF_PLACE, NAME_OF_PLACE, LABEL = "GEO_ID", "NAME", "Label"
TOTAL = "Total"
PLACE, NATION = "place", "United States"
OF_90_PERCENT = 1.6448536269514722  # standard errors
CONTROLLED = ("*****", "-555555555")  # margins of what has no sampling error
MARKS = ("-", "**", "***", "N", "(X)", "null", "", *(str(-111_111_111 * digit) for digit in (2, 3, 6, 8, 9)))
NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?$"
CODE = re.compile(r"[0-9]{3}[0-9A-Z]{4}US[0-9A-Z]*")
GEOLEVELS = {
    "010": "nation", "020": "region", "030": "division", "040": "state", "050": "county", "060": "county subdivision",
    "140": "tract", "150": "block group", "160": "place", "310": "metropolitan area", "860": "ZIP area",
}  # fmt: skip
Path = tuple[str, ...]


@dataclass(frozen=True)
class _Cells:
    """What lines are cells of.

    Attributes
    ----------
    schema : Schema
    of_line : dict of path to (str, labels)
        The table of a line, and its labels of all variables, ``*`` where one is summed out.
    others : list of (str, labels)
        Cells of these tables that are no lines: groups of a recode that are one level.
    """

    schema: Schema
    of_line: dict[Path, tuple[str, Path]]
    others: list[tuple[str, Path]]


def measured_in_style(
    table: Source, schema: Schema | None, said: Said, *, noise: LawOrName, **options: Any
) -> MeasuredTable:
    """What a table of a publisher's style says; options are those of `read_long_table`.

    Raises
    ------
    ValueError
        If there is no such style, something is said beside it, or as `read_acs`.
    """
    if said.style != ACS:
        raise ValueError(f"style must be {ACS!r} or {SDMX!r}: got {said.style!r}")
    alone = replace(type(said)(), names_to=said.names_to, style=said.style, sheet=said.sheet, skip_rows=said.skip_rows)
    beside = said.areas is not None or said != alone
    if schema or beside or noise != "gaussian":
        raise ValueError(
            f"style {ACS!r} says what columns, marks, variables and errors are: give nothing beside it but names_to, "
            "the names of the variables"
        )
    with naming(table.what):
        long, schema = read_acs(table, [said.names_to] if isinstance(said.names_to, str) else said.names_to or ())
    return measured(long, schema, **options)


def read_acs(table: Source, names: Sequence[str] = ()) -> tuple[Source, Schema]:
    """A long table with its schema, of one of the American Community Survey.

    Parameters
    ----------
    table : Source
    names : sequence of str
        Of the variables, one for every depth of the lines, or where these are a tree one alone; by default ``line`` and
        ``line_2``, ``line_3``, ...

    Returns
    -------
    table : Source
        With columns as `constraint_builders.files.read_long_table` takes them.
    schema : Schema

    Raises
    ------
    ValueError
        If the table is none of these, or its lines are not parts of a total.
    """
    paths, lines = _lines(table)
    if lines.is_empty():
        raise ValueError("there are no rows: give one for every place, or line")
    cells = _cells_of(dict.fromkeys(paths), names)
    places = lines["place"].unique(maintain_order=True).to_list()
    geolevels = {place: GEOLEVELS.get(place[:3], "") if CODE.fullmatch(place) else "" for place in places}
    is_tree = len(set(geolevels.values())) > 1 and all(geolevels.values())
    called = _names_of_places(table.frame, places)
    prefix = PLACE if len(places) > 1 and not is_tree else ""
    schema = _with_places(cells.schema, list(called.values())) if prefix else cells.schema
    values = _values(lines)
    told = [*(cells.of_line[path] for path in paths), *cells.others]
    number, place, rows = lines["line"], lines["place"], lines["row"].to_numpy()
    if cells.others:  # at all places
        lacking = pl.Series(range(len(paths), len(told)), dtype=number.dtype)
        number = pl.concat([number, pl.concat([lacking] * len(places))])
        place = pl.concat([place, pl.Series(np.repeat(places, len(lacking)), dtype=pl.String)])
        none = {"value": [None] * (number.len() - rows.size), VARIANCE: [np.inf] * (number.len() - rows.size)}
        values = pl.concat([values, pl.DataFrame(none, schema=values.schema)])
    columns = {TABLE: pl.Series([_table(prefix, name) for name, _ in told])[number]}
    if prefix:
        columns[PLACE] = place.replace_strict(called)
    if is_tree:
        columns |= {GEOLEVEL: place.replace_strict(geolevels), GEOCODE: place}
    for axis, variable in enumerate(cells.schema.names):
        columns[variable] = pl.Series([labels[axis] for _, labels in told])[number]
    found = [*table.doubts, *_doubts(cells.schema, paths, values), *(_doubts_of_places(called) if prefix else [])]
    frame = pl.DataFrame({**columns, **values.to_dict()})
    numbers = np.concatenate([rows, np.zeros(frame.height - rows.size, dtype=rows.dtype)])
    return replace(table, frame=frame, rows=numbers, doubts=tuple(found)), schema


def _with_places(schema: Schema, names: list[str]) -> Schema:
    """The same schema behind a variable of places."""
    levels = {PLACE: names} | {own.name: list(schema.labels_of(own.name)) for own in schema.variables}
    recodes: dict[str, dict[str, list[str]]] = {own.name: {} for own in schema.variables}
    for recode in schema.recodes:
        recodes[schema.names[recode.axis]][recode.name] = [recode.labels[group] for group in recode.groups]
    return Schema(levels, recodes)


def _doubts(schema: Schema, paths: Sequence[Path], values: pl.DataFrame) -> Iterator[str]:
    unused = int((values["value"].is_not_null() & values[VARIANCE].is_infinite()).sum())
    if unused:
        yield f"{unused:,} estimates without a margin of error are not used"
    labels = (schema.labels_of(name) for name in schema.names)
    alone = next((own[0] for own in labels if len(own) == 1 and len(paths) > 1), None)
    if alone is not None:
        yield f"line {alone!r} is taken for all that it is a part of: were other lines left out?"


def _doubts_of_places(called: Mapping[str, str]) -> Iterator[str]:
    kinds = {own[:7] for own in called if CODE.fullmatch(own)}
    if len(kinds) > 1 or NATION in called.values():
        yield "places of several kinds are not tied: where some lie in others a sum of places counts people twice"


def _table(prefix: str, name: str) -> str:
    return " * ".join(part for part in (prefix, name) if part) if name != "total" or not prefix else prefix


def _values(lines: pl.DataFrame) -> pl.DataFrame:
    """Of all lines the estimate, null where there is none, and its variance, infinite where nothing says it."""
    texts = {}
    for name, marks in ((ESTIMATE, MARKS), (MARGIN, (*MARKS, *CONTROLLED))):
        text = lines[name].str.strip_chars().str.strip_chars_start("\u00b1").str.replace_all(",", "", literal=True)
        texts[name] = text = text.str.strip_suffix(".0")
        strange = ~(text.str.contains(NUMBER) | text.is_in(marks))
        negative = text.str.starts_with("-") & ~text.is_in(marks)
        for wrong, why in (
            (strange, "is neither a number nor a mark of the survey"),
            (negative, "is below 0, as no count nor margin is: correct it"),
        ):
            if wrong.any():
                place = int(wrong.arg_true()[0])
                raise ValueError(f"row {lines['row'][place]}: {shown(text[place])} {why}")
    value, margin = (pl.when(~pl.col(name).is_in(MARKS)).then(name).cast(pl.Float64, strict=False) for name in texts)
    known = pl.col(MARGIN).is_in(CONTROLLED)
    variance = pl.when(known).then(0.0).otherwise(((margin / OF_90_PERCENT) ** 2).fill_null(np.inf))
    variance = pl.when(value.is_null()).then(np.inf).otherwise(variance)
    return pl.DataFrame(texts).select(value.alias("value"), variance.alias(VARIANCE))


def _lines(table: Source) -> tuple[list[Path], pl.DataFrame]:
    """The paths of lines, and of all places their number, estimate and margin as text, with their row; of either form.

    The frame has (lines times places,) rows.
    """
    frame = table.frame.with_columns(pl.all().cast(pl.String).fill_null(""))
    if frame.columns and frame.columns[0].startswith(LABEL):
        return _lines_in_rows(frame, table.rows)
    rows = table.rows
    labels = {name: name for name in frame.columns}
    if frame.height and any(text.startswith(ESTIMATE + BETWEEN) for text in frame.row(0)):
        labels, frame, rows = dict(zip(frame.columns, frame.row(0), strict=True)), frame[1:], rows[1:]
    of_path = {kind: _paths(labels, kind) for kind in (ESTIMATE, MARGIN)}
    if not of_path[ESTIMATE]:
        raise ValueError(
            f"no table of the American Community Survey: there is neither a column {LABEL!r} nor a second row of "
            f"labels such as '{ESTIMATE}{BETWEEN}{TOTAL}:'"
        )
    missing = next((path for path in of_path[ESTIMATE] if path not in of_path[MARGIN]), None)
    if missing is not None:
        raise ValueError(f"line {' > '.join((TOTAL, *missing))!r} has no column {MARGIN!r}")
    places = frame[CODE_OF_PLACE if CODE_OF_PLACE in frame.columns else frame.columns[0]]
    blocks = [
        _block(places, line, frame[column], frame[of_path[MARGIN][path]], rows)
        for line, (path, column) in enumerate(of_path[ESTIMATE].items())
    ]
    return list(of_path[ESTIMATE]), pl.concat(blocks)


def _block(place: Any, line: Any, estimate: pl.Series, margin: pl.Series, rows: NDArray[np.int64]) -> pl.DataFrame:
    """A line at places or a place of lines, (rows,): one of the first two is the same for all."""
    texts = [estimate.alias(ESTIMATE), margin.alias(MARGIN), pl.Series("row", rows)]
    same = [own if isinstance(own, pl.Series) else pl.lit(own) for own in (place, line)]
    return pl.DataFrame(texts).with_columns(place=same[0], line=same[1].cast(pl.Int64))


def _paths(labels: Mapping[str, str], kind: str) -> dict[Path, str]:
    """The columns of a kind, by the path of their line."""
    found: dict[Path, str] = {}
    for column, label in labels.items():
        first, *path = label.split(BETWEEN)
        if first == kind and path:
            line = _below_total(path, label)
            if line in found:
                raise ValueError(f"line {label!r} has two columns, {found[line]!r} and {column!r}: keep one")
            found[line] = column
    return found


def _lines_in_rows(frame: pl.DataFrame, rows: NDArray[np.int64]) -> tuple[list[Path], pl.DataFrame]:
    """Lines of a table as it is shown, (rows,): their labels are indented below what they are a part of."""
    above: list[tuple[int, str]] = []
    paths: list[Path] = []
    for text in frame.to_series():
        label = text.replace("\u00a0", " ")
        depth = len(label) - len(label.lstrip())
        while above and above[-1][0] >= depth:
            above.pop()
        above.append((depth, label.strip()))
        paths.append(_below_total([own for _, own in above], label.strip()))
    numbers = {path: line for line, path in enumerate(dict.fromkeys(paths))}
    line = pl.Series([numbers[path] for path in paths], dtype=pl.Int64)
    blocks = []
    for column in frame.columns:
        place, _, kind = column.rpartition(BETWEEN)
        if kind != ESTIMATE:
            continue
        beside = f"{column.removesuffix(ESTIMATE)}{MARGIN}"
        if beside not in frame.columns:
            raise ValueError(f"column {column!r} has no other beside it, {beside!r}")
        if BETWEEN in place:
            raise ValueError(
                f"column {column!r} is one of several of a place, perhaps of shares: keep counts alone, and "
                f"call them '{place.split(BETWEEN)[0]}{BETWEEN}{ESTIMATE}'"
            )
        blocks.append(_block(place, line, frame[column], frame[beside], rows))
    if not blocks:
        raise ValueError(f"no column is one of estimates, such as 'Rhode Island{BETWEEN}{ESTIMATE}'")
    return list(numbers), pl.concat(blocks)


def _below_total(path: Sequence[str], label: str) -> Path:
    """The parts of a path below the total of all, without their colons."""
    total, *parts = (part.strip().removesuffix(":") for part in path)
    if total != TOTAL:
        raise ValueError(
            f"line {label!r} is no part of a total: medians, means and shares do not add up; leave their table out"
        )
    return tuple(parts)


def _cells_of(paths: Mapping[Path, None], names: Sequence[str]) -> _Cells:
    """Depths as variables where all lines of one have the same parts, else recodes of the lowest lines."""
    parts: dict[Path, list[str]] = {}
    for path in paths:
        if path and path[:-1] not in paths:
            raise ValueError(
                f"line {' > '.join(path)!r} is a part of {' > '.join(path[:-1]) or TOTAL!r}, which is none"
            )
        if path:
            parts.setdefault(path[:-1], []).append(path[-1])
    depth = max(map(len, paths))
    by_depth = [[parts.get(path, []) for path in paths if len(path) == own] for own in range(depth)]
    if all(own == found[0] for found in by_depth for own in found):
        return _as_variables([found[0] for found in by_depth] or [["all"]], paths, names)
    if len(names) > 1:
        raise ValueError(
            f"lines have other parts at other places of their tree: they are one variable, not {list(names)}"
        )
    return _as_tree(parts, paths, depth, names[0] if names else "line")


def _as_variables(levels: Sequence[Sequence[str]], paths: Mapping[Path, None], names: Sequence[str]) -> _Cells:
    if names and len(names) != len(levels):
        raise ValueError(f"lines lie {len(levels)} deep below {TOTAL!r}: name as many variables, not {list(names)}")
    called = list(names) or ["line", *(f"line_{own}" for own in range(2, len(levels) + 1))]
    cells = {
        path: (" * ".join(called[: len(path)]) or "total", path + (SUMMED_OUT,) * (len(levels) - len(path)))
        for path in paths
    }
    return _Cells(Schema(dict(zip(called, levels, strict=True))), cells, [])


def _as_tree(parts: Mapping[Path, list[str]], paths: Mapping[Path, None], depth: int, name: str) -> _Cells:
    alone = next((path for path in paths if len(parts.get(path, [])) == 1), None)
    if alone is not None:
        raise ValueError(f"line {' > '.join((TOTAL, *alone))!r} has one part alone, which is itself: leave that out")
    times = Counter(path[-1] for path in paths if path)
    label = {path: path[-1] if times[path[-1]] == 1 else " > ".join(path) for path in paths if path}
    leaves = [path for path in paths if path and path not in parts]
    recodes = {f"{name}_{own}": [label[path[:own]] for path in leaves] for own in range(1, depth)}
    cells: dict[Path, tuple[str, Path]] = {(): ("total", (SUMMED_OUT,))}
    for path in label:
        cells[path] = (f"{name}_{len(path)}" if path in parts else name, (label[path],))
    others: list[tuple[str, Path]] = [
        (f"{name}_{own}", (label[path],)) for own in range(1, depth) for path in leaves if len(path) <= own
    ]
    return _Cells(Schema({name: [label[path] for path in leaves]}, {name: recodes}), cells, others)


def _names_of_places(frame: pl.DataFrame, places: Sequence[str]) -> dict[str, str]:
    """What places are called, by their code: by their name where that is their own."""
    if not {CODE_OF_PLACE, NAME_OF_PLACE} <= set(frame.columns):
        return {place: place for place in places}
    found = dict(zip(frame[CODE_OF_PLACE].cast(pl.String), frame[NAME_OF_PLACE].cast(pl.String), strict=True))
    times = Counter(found[place] for place in places)
    return {place: found[place] if times[found[place]] == 1 else place for place in places}
