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
from dataclasses import replace

import polars as pl

from constraint_builders.description.schema import Schema
from constraint_builders.files.columns import GEOCODE, GEOLEVEL, SUMMED_OUT, TABLE
from constraint_builders.files.source import Source

ACS = "acs"  # what the style is called
ESTIMATE, MARGIN, BETWEEN = "Estimate", "Margin of Error", "!!"
CODE_OF_PLACE, NAME_OF_PLACE, LABEL = "GEO_ID", "NAME", "Label"
TOTAL = "Total"
PLACE, NATION = "place", "United States"
VALUE, OF_90_PERCENT = "value", "moe_90"
CONTROLLED = ("*****", "-555555555")  # margins of what has no sampling error
MARKS = ("-", "**", "***", "N", "(X)", "null", *(str(-111_111_111 * digit) for digit in (2, 3, 6, 8, 9)))
NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?$"
CODE = re.compile(r"[0-9]{3}[0-9A-Z]{4}US[0-9A-Z]*")
GEOLEVELS = {
    "010": "nation", "020": "region", "030": "division", "040": "state", "050": "county", "060": "county subdivision",
    "140": "tract", "150": "block group", "160": "place", "310": "metropolitan area", "860": "ZIP area",
}  # fmt: skip
Path = tuple[str, ...]
# Of every line its table, and its labels of all variables, ``*`` where one is summed out.
Cells = dict[Path, tuple[str, Path]]


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
        With columns as `constraint_builders.files.read_long_table` takes them, but for `MARKS` and those of what is
        `CONTROLLED`, and without the rows of groups that are one level.
    schema : Schema

    Raises
    ------
    ValueError
        If the table is none of these, or its lines are not parts of a total.
    """
    paths, lines = _lines(table)
    if lines.frame.is_empty():
        raise ValueError("there are no rows: give one for every place, or line")
    plain, cells = _cells_of(dict.fromkeys(paths), names)
    number, place = lines.frame["line"], lines.frame["place"]
    places = place.unique(maintain_order=True).to_list()
    geolevels = {place: GEOLEVELS.get(place[:3], "") if CODE.fullmatch(place) else "" for place in places}
    is_tree = len(set(geolevels.values())) > 1 and all(geolevels.values())
    called = _names_of_places(table.frame, places)
    prefix = PLACE if len(places) > 1 and not is_tree else ""
    levels = {PLACE: list(called.values())} | {own.name: own.levels for own in plain.variables}
    schema = Schema(levels).with_recodes_of(plain) if prefix else plain
    texts = _texts(lines)
    tables, labels = zip(*(cells[path] for path in paths), strict=True)
    columns = {TABLE: pl.Series([_table(prefix, name) for name in tables]).gather(number)}
    if prefix:
        columns[PLACE] = place.replace_strict(called)
    if is_tree:
        columns |= {GEOLEVEL: place.replace_strict(geolevels), GEOCODE: place}
    for variable, own in zip(plain.names, zip(*labels, strict=True), strict=True):
        columns[variable] = pl.Series(own).gather(number)
    found = [*table.doubts, *_doubts(plain, paths, texts), *(_doubts_of_places(called) if prefix else [])]
    frame = pl.DataFrame({**columns, VALUE: texts[ESTIMATE], OF_90_PERCENT: texts[MARGIN]})
    return replace(lines, frame=frame, doubts=tuple(found)), schema


def _doubts(schema: Schema, paths: Sequence[Path], texts: pl.DataFrame) -> Iterator[str]:
    unused = texts.filter(~pl.col(ESTIMATE).is_in(MARKS) & pl.col(MARGIN).is_in(MARKS)).height
    if unused:
        yield f"{unused:,} estimates without a margin of error are not used"
    labels = (schema.labels_of(name) for name in schema.names)
    alone = next((own[0] for own in labels if len(own) == 1 and len(paths) > 1), None)
    if alone is not None:
        yield f"line {alone!r} is taken for all that it is a part of: were other lines left out?"


def _doubts_of_places(called: Mapping[str, str]) -> Iterator[str]:
    if len({own[:7] for own in called if CODE.fullmatch(own)}) > 1 or NATION in called.values():
        yield "places of several kinds are not tied: where some lie in others a sum of places counts people twice"


def _table(prefix: str, name: str) -> str:
    return " * ".join(part for part in (prefix, name) if part) if name != "total" or not prefix else prefix


def _texts(lines: Source) -> pl.DataFrame:
    """Estimates and margins as other tables have them; what is neither a count nor a mark is refused."""
    texts = {}
    for name, marks in ((ESTIMATE, MARKS), (MARGIN, (*MARKS, *CONTROLLED))):
        text = (
            lines.frame[name].str.strip_chars().str.strip_chars_start("\u00b1").str.replace_all(",", "", literal=True)
        )
        texts[name] = text = text.str.strip_suffix(".0").replace("", MARKS[0])
        other = ~text.is_in(marks)
        lines.refuse(other & ~text.str.contains(NUMBER), text, "is neither a number nor a mark of the survey")
        lines.refuse(other & text.str.starts_with("-"), text, "is below 0, as no count nor margin is: correct it")
    return pl.DataFrame(texts)


def _lines(table: Source) -> tuple[list[Path], Source]:
    """The paths of lines, and of all places their number, estimate and margin as text; of either form.

    The table has (lines times places,) rows.
    """
    table = replace(table, frame=table.frame.with_columns(pl.all().cast(pl.String).fill_null("")))
    names = table.frame.columns
    if names and names[0].startswith(LABEL):
        return _lines_in_rows(table)
    labels = {name: name for name in names}
    if table.frame.height and any(text.startswith(ESTIMATE + BETWEEN) for text in table.frame.row(0)):
        labels = dict(zip(names, table.frame.row(0), strict=True))
        table = replace(table, frame=table.frame[1:], rows=table.rows[1:])
    of_path = {kind: _paths(labels, kind) for kind in (ESTIMATE, MARGIN)}
    if not of_path[ESTIMATE]:
        raise ValueError(
            f"no table of the American Community Survey: there is neither a column {LABEL!r} nor a second row of "
            f"labels such as '{ESTIMATE}{BETWEEN}{TOTAL}:'"
        )
    missing = next((path for path in of_path[ESTIMATE] if path not in of_path[MARGIN]), None)
    if missing is not None:
        raise ValueError(f"line {' > '.join((TOTAL, *missing))!r} has no column {MARGIN!r}")
    place = pl.col(CODE_OF_PLACE if CODE_OF_PLACE in names else names[0])
    columns = enumerate(of_path[ESTIMATE].items())
    blocks = [_block(place, pl.lit(line), column, of_path[MARGIN][path]) for line, (path, column) in columns]
    return list(of_path[ESTIMATE]), table.stacked(blocks)


def _block(place: pl.Expr, line: pl.Expr, estimate: str, margin: str) -> list[pl.Expr]:
    """A line at places or a place of lines: what names these, and the columns of estimates and margins."""
    columns = pl.col(estimate).alias(ESTIMATE), pl.col(margin).alias(MARGIN)
    return [place.alias("place"), line.cast(pl.Int64).alias("line"), *columns]


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


def _lines_in_rows(table: Source) -> tuple[list[Path], Source]:
    """Lines of a table as it is shown, (rows,): their labels are indented below what they are a part of."""
    above: list[tuple[int, str]] = []
    paths: list[Path] = []
    for text in table.frame.to_series():
        label = text.replace("\u00a0", " ")
        depth = len(label) - len(label.lstrip())
        while above and above[-1][0] >= depth:
            above.pop()
        above.append((depth, label.strip()))
        paths.append(_below_total([own for _, own in above], label.strip()))
    numbers = {path: line for line, path in enumerate(dict.fromkeys(paths))}
    line = pl.lit(pl.Series([numbers[path] for path in paths], dtype=pl.Int64))
    blocks = []
    for column in table.frame.columns:
        place, _, kind = column.rpartition(BETWEEN)
        if kind != ESTIMATE:
            continue
        beside = f"{column.removesuffix(ESTIMATE)}{MARGIN}"
        if beside not in table.frame.columns:
            raise ValueError(f"column {column!r} has no other beside it, {beside!r}")
        if BETWEEN in place:
            raise ValueError(
                f"column {column!r} is one of several of a place, perhaps of shares: keep counts alone, and "
                f"call them '{place.split(BETWEEN)[0]}{BETWEEN}{ESTIMATE}'"
            )
        blocks.append(_block(pl.lit(place), line, column, beside))
    if not blocks:
        raise ValueError(f"no column is one of estimates, such as 'Rhode Island{BETWEEN}{ESTIMATE}'")
    return list(numbers), table.stacked(blocks)


def _below_total(path: Sequence[str], label: str) -> Path:
    """The parts of a path below the total of all, without their colons."""
    total, *parts = (part.strip().removesuffix(":") for part in path)
    if total != TOTAL:
        raise ValueError(
            f"line {label!r} is no part of a total: medians, means and shares do not add up; leave their table out"
        )
    return tuple(parts)


def _cells_of(paths: Mapping[Path, None], names: Sequence[str]) -> tuple[Schema, Cells]:
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


def _as_variables(
    levels: Sequence[Sequence[str]], paths: Mapping[Path, None], names: Sequence[str]
) -> tuple[Schema, Cells]:
    if names and len(names) != len(levels):
        raise ValueError(f"lines lie {len(levels)} deep below {TOTAL!r}: name as many variables, not {list(names)}")
    called = list(names) or ["line", *(f"line_{own}" for own in range(2, len(levels) + 1))]
    cells = {
        path: (" * ".join(called[: len(path)]) or "total", path + (SUMMED_OUT,) * (len(levels) - len(path)))
        for path in paths
    }
    return Schema(dict(zip(called, levels, strict=True))), cells


def _as_tree(
    parts: Mapping[Path, list[str]], paths: Mapping[Path, None], depth: int, name: str
) -> tuple[Schema, Cells]:
    alone = next((path for path in paths if len(parts.get(path, [])) == 1), None)
    if alone is not None:
        raise ValueError(f"line {' > '.join((TOTAL, *alone))!r} has one part alone, which is itself: leave that out")
    times = Counter(path[-1] for path in paths if path)
    label = {path: path[-1] if times[path[-1]] == 1 else " > ".join(path) for path in paths if path}
    leaves = [path for path in paths if path and path not in parts]
    recodes = {f"{name}_{own}": [label[path[:own]] for path in leaves] for own in range(1, depth)}
    cells: Cells = {(): ("total", (SUMMED_OUT,))}
    for path in label:
        cells[path] = (f"{name}_{len(path)}" if path in parts else name, (label[path],))
    return Schema({name: [label[path] for path in leaves]}, {name: recodes}), cells


def _names_of_places(frame: pl.DataFrame, places: Sequence[str]) -> dict[str, str]:
    """What places are called, by their code: by their name where that is their own."""
    if not {CODE_OF_PLACE, NAME_OF_PLACE} <= set(frame.columns):
        return {place: place for place in places}
    found = dict(zip(frame[CODE_OF_PLACE].cast(pl.String), frame[NAME_OF_PLACE].cast(pl.String), strict=True))
    times = Counter(found[place] for place in places)
    return {place: found[place] if times[found[place]] == 1 else place for place in places}
