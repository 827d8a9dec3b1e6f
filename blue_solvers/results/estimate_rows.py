"""The files of estimates of a result: a row for every table and geounit, written some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from constraint_builders.arrays import Float, Index
from constraint_builders.description.table import Table
from constraint_builders.files.arrow_files import arrow_library, write_batches

ROW_GROUP, GROUP_CELLS = 1_024, 1 << 15  # read together, at most: a question about few geounits reads few such groups
COMPRESSION: Literal["lz4"] = "lz4"  # digits of estimates hardly compress: others cost several times as much for it
AT_ONCE = 1 << 17  # cells that are made into columns together, so few that they stay in cache
DICTIONARIES = ("table", "geocode", "std_error.list.element")  # listed once where they repeat, as estimates never do
DISTINCT = 1 << 14  # bytes of what is listed: to look for more repeats takes tens of MB

Rows: TypeAlias = Callable[[slice], Float]  # of a table, (rows, cells)
TableRows: TypeAlias = tuple[Table, Rows, Rows | None]


def write_estimates(path: Path, geocodes: Sequence[str], tables: Sequence[TableRows]) -> None:
    """Write tables of some geounits of one geolevel, some rows at a time.

    Parameters
    ----------
    path : Path
    geocodes : sequence of str, (G,)
    tables : sequence of (Table, callable, callable or None)
        Estimates and standard errors, (rows, cells), of the geounits that a slice names; all have standard errors, or
        none has.

    Raises
    ------
    ValueError
        If a number is not finite.
    OSError
        If it cannot be written.
    """
    arrow = arrow_library()
    numbers = ("estimate",) if tables[0][2] is None else ("estimate", "std_error")
    kinds = dict.fromkeys(("table", "geocode"), arrow.large_string())
    kinds |= dict.fromkeys(numbers, arrow.large_list(arrow.field("item", arrow.float64())))
    listed = {"use_dictionary": [*DICTIONARIES], "dictionary_pagesize_limit": DISTINCT}
    batches = ((_batch(pieces, arrow.schema(kinds)), group) for pieces, group in _together(_pieces(geocodes, tables)))
    write_batches(batches, arrow.schema(kinds), path, compression=COMPRESSION, **listed)


class _Piece(NamedTuple):
    """Rows of a table: geocodes, (G,), and estimates and standard errors, (G, cells) each; as many are a row group."""

    table: Table
    geocodes: Sequence[str]
    numbers: list[Float]
    group: int


def _pieces(geocodes: Sequence[str], tables: Sequence[TableRows]) -> Iterator[_Piece]:
    """Rows of all tables, in order, few cells at a time; `ValueError` if one is not finite."""
    for table, *numbers in tables:
        group = max(1, min(ROW_GROUP, GROUP_CELLS // table.size))
        step = group * max(1, AT_ONCE // (group * table.size))
        for start in range(0, len(geocodes), step):
            codes = geocodes[start : start + step]
            found = [cells(slice(start, start + step)) for cells in numbers if cells is not None]
            for what, cells in zip(("estimate", "standard error"), found, strict=False):
                if not (finite := np.isfinite(cells)).all():
                    code = codes[int((~finite).any(axis=1).argmax())]
                    raise ValueError(
                        f"the {what} of table {table.name!r} at {code!r} is not finite: are measurements too large?"
                    )
            yield _Piece(table, codes, found, group)


def _together(pieces: Iterable[_Piece]) -> Iterator[tuple[list[_Piece], int]]:
    """Pieces that are written at once, small ones in one row group; each time with how many rows are one."""
    pending, rows, cells = list[_Piece](), 0, 0
    for own in pieces:
        rows, cells = rows + len(own.geocodes), cells + own.numbers[0].size
        if pending and (rows > ROW_GROUP or cells > GROUP_CELLS):
            yield pending, pending[0].group
            pending, rows, cells = [], len(own.geocodes), own.numbers[0].size
        pending.append(own)
    if pending:
        yield pending, ROW_GROUP if len(pending) > 1 else pending[0].group


def _batch(pieces: Sequence[_Piece], kinds: Any) -> Any:
    """Pieces as a record batch of an Arrow schema: a row for every geocode of each."""
    arrow = arrow_library()
    names = [arrow.repeat(arrow.scalar(own.table.name, kinds.types[0]), len(own.geocodes)) for own in pieces]
    codes = arrow.array([code for own in pieces for code in own.geocodes], kinds.types[1])
    sizes = np.repeat([own.table.size for own in pieces], [len(own.geocodes) for own in pieces])
    columns = [arrow.concat_arrays(names), codes]
    for parts in zip(*(own.numbers for own in pieces), strict=True):
        cells = np.concatenate([part.ravel() for part in parts])
        columns.append(arrow.LargeListArray.from_arrays(np.append(0, sizes.cumsum()), cells))
    return arrow.record_batch(columns, schema=kinds)


def rows_of(array: Float, rows: Index, change: Callable[[Float], Float] = np.asarray) -> Rows:
    """Rows of an array, (G, cells), changed as they are asked for."""
    return lambda some: change(array[some] if rows.size == len(array) else array[rows[some]])
