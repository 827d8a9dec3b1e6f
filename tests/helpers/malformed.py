"""Malformed files of every kind that the command reads: made from good ones, by rule and by chance."""

import gzip
import io
from collections.abc import Iterator

import numpy as np
import polars as pl

TABLE = """table,sex,age,value,variance
total,*,*,21,0
sex,female,*,9.5,1
sex,male,*,11,1
detailed,female,0,1,2
detailed,female,1,,inf
detailed,female,2,3,2
detailed,male,0,4,2
detailed,male,1,5,2
detailed,male,2,6,2
"""
SCHEMA = """
[variables]
sex = ["female", "male"]
age = 3
[recodes.age]
adult = ["minor", "adult", "adult"]
[problem]
desired = ["sex", "adult"]
noise = "gaussian"
"""
SETTINGS = """
geolevels = ["County", "Block"]
noise = "discrete_gaussian"
[variables]
sex = ["female", "male"]
age = 3
[recodes]
age.adult = "0 | 1-2"
[selections]
age.old = [2]
[constraints]
untrue = ["published"]
[budget]
measure = "zcdp"
total = "1/5"
[budget.geolevels]
County = "1/2"
Block = "1/2"
[budget.tables]
total = [1, "1/4"]
detailed = [0, "3/4"]
"""
BLOCKS = """geoid,sex,age,count
440010001001000,female,0,3
440010001001000,male,2,5
440010001001001,female,1,4
440010001001001,male,1,2
"""
GEOGRAPHY = """table,sex,geolevel,geocode,source,value,std_error
total,*,State,44,one,100,1
sex,f,County,44001,one,31,2
sex,m,County,44001,one,29,2
sex,f,County,44003,one,20,2
sex,m,County,44003,one,20,2
total,*,State,44,two,101,1
"""
TOTALS = """geocode,total
44001,15
"""
SPINE_BLOCKS = """geoid,place,county
440010001001000,A,1
440010001001001,B,1
440010001002000,A,1
440010002001000,,1
"""
GEOUNITS = "440010001001000\n440010001001001\n"

HUGE = "x" * 200_000
VALUES = [
    "", "3", "-3", "0", "1.5", "true", '""', '"x"', "[]", "{}", "[1]", '["a"]', "[[1]]", '[1, "a"]', "{ a = 1 }",
    "1e9", "1000000000", "99999999999999999999999", "nan", "inf", "-inf", "2020-01-01", "07:32:00", '"1e99999999"',
    '"1/0"', '"-1/2"', '"0/5"', '["0", "0"]', '["1e99999999", 1]', "[0, 99999999999, 1]", "[-1, 0, 1]", '["", "", ""]',
    '["*", "b"]', "'''a\nb'''", f'"{HUGE}"', f'["{HUGE}", "b"]', "[" * 3000 + "]" * 3000,
    "{a=" * 3000 + "1" + "}" * 3000,
    "9" * 5000, '["a", "a"]', '"\\u0000"', '"0-99999999999"', '"0-1 | 1-2"', '"|"', '["Block"]',
]  # fmt: skip
CELLS = [
    "", " ", "*", "x", "-1", "1e999", "1e-999", "nan", "inf", "-inf", "1,5", "1_0", "0x1", "1;2", "true", "2020-01-01",
    "\ufeff", "\u202e", "\x1b[31m", "=cmd|' /C calc'!A0", "'", '"', '""', "a\tb", "\u2028", HUGE, "9" * 400, "٣",
    "1 e5",
    "nan()", "1/2", "50%", "total", "detailed", "sex * sex", "*" * 50, " * ".join(["sex"] * 3000), "None", "../x", "é",
]  # fmt: skip
LINES = [
    "=", "[", "[[a]]", "]", "a", "a =", "= 1", ".".join(["a"] * 50_000) + " = 1", "[" + ".".join(["a"] * 50_000) + "]",
    'x = "', "'''", "\x00", "\\", "a.b = 1", "[variables]", "variables = 3", "[problem]", "[budget]", "x = 1\nx = 2",
]  # fmt: skip
BYTES = [
    b"", b"\n", b"\x00", b"\x00" * 5000, b"\xff\xfe", b"\xff\xfea\x00", b"\xef\xbb\xbf", b"PAR1", b"PAR1" * 100,
    b"\x1f\x8b",
    b"\x1f\x8b\x08\x00", b"{}", b"[]", b"null", b"[" * 100_000, b"a" * 1_000_000, b",," * 100_000, b"\n" * 100_000,
    b'"' * 99_999, b"\r", b"a\rb\rc", bytes(range(256)), b"%PDF-1.4", b"PK\x03\x04", b"a,b\n" + b"1,2,3\n" * 5,
    b"\xe9\n",
]  # fmt: skip


def of_bytes() -> Iterator[tuple[str, bytes]]:
    """Files of no kind at all."""
    for number, data in enumerate(BYTES):
        yield f"bytes {number}", data


def of_chance(good: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """A good file with a few bytes changed, left out or put in, cut short, or in pieces of another order."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        data = bytearray(good)
        how = ("change", "leave out", "put in", "cut", "swap")[number % 5]
        for _ in range(int(rng.integers(1, 5))):
            place = int(rng.integers(0, max(len(data), 1)))
            if how == "change":
                data[place : place + 1] = rng.bytes(1)
            elif how == "leave out":
                del data[place : place + int(rng.integers(1, 9))]
            elif how == "put in":
                data[place:place] = rng.bytes(int(rng.integers(1, 9)))
            elif how == "cut":
                del data[place:]
            else:
                data = data[place:] + data[:place]
        yield f"{how} {number}", bytes(data)


def of_toml(good: str) -> Iterator[tuple[str, bytes]]:
    """A good TOML file with every value in turn replaced by every other, lines left out, and strange lines put in."""
    lines = good.strip().splitlines()
    keyed = [i for i, line in enumerate(lines) if "=" in line]
    for number, value in enumerate(VALUES):
        for i in keyed:
            key = lines[i].partition("=")[0]
            yield f"{key}= value {number}", "\n".join([*lines[:i], f"{key}= {value}", *lines[i + 1 :]]).encode()
    for i, line in enumerate(lines):
        yield f"without {line}", "\n".join([*lines[:i], *lines[i + 1 :]]).encode()
        yield f"{line} twice", "\n".join([*lines[:i], line, *lines[i:]]).encode()
    for number, line in enumerate(LINES):
        yield f"line {number} at the end", "\n".join([*lines, line]).encode()
        yield f"line {number} at the start", "\n".join([line, *lines]).encode()


def of_text_table(good: str) -> Iterator[tuple[str, bytes]]:
    """A good CSV file with cells, headers, rows, columns, delimiters and encodings gone wrong."""
    rows = [line.split(",") for line in good.strip().splitlines()]
    for number, cell in enumerate(CELLS):
        for column in range(len(rows[0])):
            for row in (0, len(rows) - 1):
                changed = [list(cells) for cells in rows]
                changed[row][column] = '"' + cell.replace('"', '""') + '"' if number % 2 else cell
                yield f"cell {number} at {row}, {column}", _lines(changed)
    for column in range(len(rows[0])):
        yield f"without column {column}", _lines([[*cells[:column], *cells[column + 1 :]] for cells in rows])
        yield f"column {column} twice", _lines([[*cells, cells[column]] for cells in rows])
    for row in range(len(rows)):
        yield f"without row {row}", _lines(rows[:row] + rows[row + 1 :])
        yield f"row {row} twice", _lines([*rows[: row + 1], *rows[row:]])
        yield f"row {row} longer", _lines([[*cells, "1"] if i == row else cells for i, cells in enumerate(rows)])
        yield f"row {row} shorter", _lines([cells[:-1] if i == row else cells for i, cells in enumerate(rows)])
    for delimiter in (";", "\t", "|", " ", ":"):
        yield f"by {delimiter!r}", good.replace(",", delimiter).encode()
    for encoding in ("utf-16", "utf-16-le", "utf-32", "latin-1"):
        yield encoding, good.replace("female", "féminin").encode(encoding)
    yield "compressed", gzip.compress(good.encode())
    yield "cut short", gzip.compress(good.encode() * 50)[:-30]
    yield "damaged", gzip.compress(good.encode() * 50).replace(b"\x00", b"\x01")


def _lines(rows: list[list[str]]) -> bytes:
    return "\n".join(",".join(cells) for cells in rows).encode() + b"\n"


def of_types(good: pl.DataFrame) -> Iterator[tuple[str, bytes]]:
    """A good Parquet file with columns of every other type."""
    height = good.height
    others = {
        "booleans": pl.Series([True] * height),
        "dates": pl.Series([1] * height).cast(pl.Date),
        "datetimes": pl.Series([1] * height).cast(pl.Datetime("us")),
        "times": pl.Series([1] * height).cast(pl.Time),
        "durations": pl.Series([1] * height).cast(pl.Duration("us")),
        "records": pl.DataFrame({"a": [1] * height}).to_struct(),
        "lists": pl.Series([[1]] * height),
        "empty lists": pl.Series([[]] * height, dtype=pl.List(pl.Int64)),
        "lists of lists": pl.Series([[[1]]] * height),
        "bytes": pl.Series([b"1"] * height),
        "text": pl.Series(["x"] * height),
        "numbers": pl.Series([1] * height),
        "NaN": pl.Series([float("nan")] * height),
        "infinities": pl.Series([float("inf")] * height),
        "nothing": pl.Series([None] * height),
        "negative": pl.Series([-1.5] * height),
        "large": pl.Series([2**62] * height),
    }
    for name in good.columns:
        for what, column in others.items():
            yield f"{name} of {what}", parquet(good.with_columns(column.alias(name)))
        yield f"without {name}", parquet(good.drop(name))
    yield "without rows", parquet(good.clear())
    yield "without columns", parquet(good.select())
    yield "rows twice", parquet(pl.concat([good, good]))


def parquet(frame: pl.DataFrame) -> bytes:
    """The bytes of a Parquet file."""
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


def workbook(text: str) -> bytes:
    """A CSV file's cells in a sheet of Excel, as bytes."""
    file = io.BytesIO()
    pl.read_csv(text.encode(), infer_schema=False).write_excel(file)
    return file.getvalue()
