"""Small files that would crash what reads them, or fill its memory: a table of them for every format."""

import gzip
import io
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import polars as pl

from tests.helpers.malformed import TABLE, of_chance, workbook

MEBI = 1 << 20
SHEET, TEXTS = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"


def zipped(start: bytes, repeated: bytes, mebibytes: int) -> bytes:
    """Text of so many MiB, of one piece again and again, compressed a thousand times."""
    piece = gzip.compress(repeated * (MEBI // len(repeated)))
    return gzip.compress(start) + piece * mebibytes


def columns(number: int) -> bytes:
    """A header of so many names."""
    return b",".join(b"c%d" % i for i in range(number)) + b"\n"


def changed_sheet(change: Callable[[bytes], bytes], part: str = SHEET, more: str = "") -> bytes:
    """A good workbook with one part changed, and perhaps another put in."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(workbook(TABLE))) as good, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name in good.namelist():
            new.writestr(name, change(good.read(name)) if name == part else good.read(name))
        if more:
            new.writestr(more, b"<a/>")
    return file.getvalue()


def with_row(row: bytes) -> bytes:
    """A good workbook with one more row in its sheet."""
    return changed_sheet(lambda sheet: sheet.replace(b"</sheetData>", row + b"</sheetData>"))


def with_cell(row: str, cell: str) -> bytes:
    """A good workbook with one more cell at some place."""
    return with_row(f'<row r="{row}"><c r="{cell}"><v>1</v></c></row>'.encode())


def nested_parquet(depth: int) -> bytes:
    """Records within one another, below a column as a table has it."""
    import pyarrow
    import pyarrow.parquet

    kind = pyarrow.int64()
    for _ in range(depth):
        kind = pyarrow.struct([("a", kind)])
    file = io.BytesIO()
    table = pyarrow.table({"value": pyarrow.array([1.0]), "n": pyarrow.array([None], type=kind)})
    pyarrow.parquet.write_table(table, file)
    return file.getvalue()


def constant_parquet(rows: int) -> bytes:
    """A column of one and the same value."""
    file = io.BytesIO()
    pl.DataFrame({"value": pl.repeat(True, rows, eager=True)}).write_parquet(file)
    return file.getvalue()


def lying_parquet() -> bytes:
    """Texts of which a page says that there are -64, not 60, in one byte."""
    file = io.BytesIO()
    pl.DataFrame({"sex": ["female", "male"] * 30}).write_parquet(file)
    data = file.getvalue()
    header = b"\x2c\x15\x78"  # of the page: field 5, a structure, whose field 1 is a number, 60
    assert data.count(header) == 1
    return data.replace(header, b"\x2c\x15\x7f")


def nested_arrow(depth: int) -> bytes:
    """A stream without rows whose one column holds lists of lists, by the layout of FlatBuffers."""

    def field(kind: int, children: int, following: int) -> bytes:  # 64 bytes, whatever lies within
        places = struct.pack("<8H", 16, 20, 16, 5, 4, 8, 0, 12) + struct.pack("<iBBHIII", 16, kind, 1, 0, 24, 24, 4)
        return places + struct.pack("<I4sHHiIII", 1, b"a", 4, 4, 4, children, following, 0)

    message = struct.pack("<I6HihBBI", 16, 12, 16, 4, 6, 8, 0, 12, 4, 1, 0, 12)
    schema = struct.pack("<4HiIIII", 8, 8, 0, 4, 8, 4, 1, 24, 0)
    said = message + schema + field(12, 1, 24) * depth + field(1, 0, 0)
    mark = b"\xff" * 4
    return mark + len(said).to_bytes(4, "little") + said + mark + bytes(4)


def empty_arrow(rows: int) -> bytes:
    """A column that says of each of its rows that it is empty, without a byte for any."""
    import pyarrow

    few, file = 1_000_003, io.BytesIO()
    batch = pyarrow.record_batch([pyarrow.nulls(few)], names=["value"])
    with pyarrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return file.getvalue().replace(few.to_bytes(8, "little"), rows.to_bytes(8, "little"))


def _hole(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


TABLES: dict[str, tuple[str, Callable[[], bytes]]] = {  # the ending of its name, and what is in the file
    "a far cell": (".xlsx", lambda: with_cell("1048576", "XFD1048576")),
    "a far row of cells without a place": (
        ".xlsx",
        lambda: with_row(b'<row r="1048576">' + b"<c/>" * 16_000 + b"</row>"),
    ),
    "a huge row": (".xlsx", lambda: with_cell("4294967295", "A4294967295")),
    "a row of 40 digits": (".xlsx", lambda: with_cell("9" * 40, "A" + "9" * 40)),
    "a row by its own number alone": (".xlsx", lambda: with_row(b'<row r="4294967295"><c><v>1</v></c></row>')),
    "a huge column": (".xlsx", lambda: with_cell("9", "ZZZZZZ9")),
    "a column of 40 letters": (".xlsx", lambda: with_cell("9", "Z" * 40 + "9")),
    "texts without end": (
        ".xlsx",
        lambda: changed_sheet(lambda texts: re.sub(b'uniqueCount="[0-9]+"', b'uniqueCount="4294967295"', texts), TEXTS),
    ),
    "a sheet of 300 MiB": (".xlsx", lambda: changed_sheet(lambda sheet: sheet + b" " * (300 * MEBI))),
    "a sheet of OpenDocument too": (".xlsx", lambda: changed_sheet(lambda sheet: sheet, more="content.xml")),
    "500 records within one another": (".parquet", lambda: nested_parquet(500)),
    "64 million times the same": (".parquet", lambda: constant_parquet(64_000_000)),
    "a page of -64 texts": (".parquet", lying_parquet),
    "5,000 lists within one another": (".arrow", lambda: nested_arrow(5_000)),
    "10^12 empty rows": (".arrow", lambda: empty_arrow(1 << 40)),
    "300 MiB of one word": (".csv.gz", lambda: zipped(b"", b"a", 300)),
    "1 GiB of one word": (".csv.gz", lambda: zipped(b"", b"a", 1024)),
    "1 GiB in a cell": (".csv.gz", lambda: zipped(b"table,value\ntotal,", b"1", 1024)),
    "300 MiB of commas": (".csv.gz", lambda: zipped(b"", b",", 300)),
    "1 GiB of empty rows": (".csv.gz", lambda: zipped(b"table,value\n", b"\n", 1024)),
    "1 GiB of quotation marks": (".csv.gz", lambda: zipped(b"", b'"', 1024)),
    "1 GiB of the same row": (".csv.gz", lambda: zipped(b"table,value\n", b"total,1\n", 1024)),
    "1 GiB of nothing": (".csv.gz", lambda: zipped(b"", b"\0", 1024)),
    "5 MiB of one word": (".csv", lambda: b"a" * (5 * MEBI)),
    "100,000 columns": (".csv", lambda: columns(100_000) + b"1," * 99_999 + b"1\n"),
    "16,000 columns, 100,000 rows of none": (".csv", lambda: columns(16_000) + b"1\n" * 100_000),
    "16,000 columns within quotation marks": (".csv", lambda: b'"\n",' + columns(16_000) + b"1\n" * 100_000),
}


def damaged(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Endings of names, and good tables of every format, of which a few bytes were changed, also within archives."""
    frame = pl.read_csv(TABLE.encode(), infer_schema=False).with_columns(pl.col("value", "variance").cast(pl.Float64))
    frame = pl.concat([frame] * 20)
    written: list[tuple[str, Callable[[io.BytesIO], object]]] = [
        (".parquet", frame.write_parquet),
        (".parquet", partial(frame.with_columns(pl.col("value").implode()).write_parquet, compression="snappy")),
        (".arrow", frame.write_ipc),
        (".arrow", partial(frame.write_ipc, compression="lz4")),
        (".arrow", frame.write_ipc_stream),
    ]
    files = []
    for ending, write in written:
        file = io.BytesIO()
        write(file)
        files.append((ending, [data for _, data in of_chance(file.getvalue(), seed, count)]))
    for part in (SHEET, TEXTS, "xl/workbook.xml"):
        with zipfile.ZipFile(io.BytesIO(workbook(TABLE))) as good:
            parts = of_chance(good.read(part), seed, count)
        files.append((".xlsx", [changed_sheet(lambda _, own=own: own, part) for _, own in parts]))
    files.append((".csv.gz", [data for _, data in of_chance(gzip.compress(TABLE.encode() * 50), seed, count)]))
    for number in range(count):
        yield from ((ending, variants[number]) for ending, variants in files)


ENDLESS: dict[str, Callable[[Path], None]] = {  # what may stand where a file should be
    "a link to endless zeros": lambda path: path.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
    "a hole of a TiB": _hole,
}
PLACES = ENDLESS | {
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "nothing": lambda path: None,
}
