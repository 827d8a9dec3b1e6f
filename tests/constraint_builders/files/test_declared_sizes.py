"""Files declare at least what is in them, whatever wrote them: nothing is read that was not counted before."""

import gzip
import io
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xlsxwriter
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.files import arrow_files, excel
from constraint_builders.files.arrow_files import declared_by_parquet, open_parquet
from constraint_builders.files.source import open_source
from constraint_builders.opening import MOST_COLUMNS, open_file, read_bytes
from tests.helpers import hostile
from tests.helpers.effort import first_of

NUMBERS, TEXTS, LISTS, NOTHING = pl.Float64(), pl.String(), pl.List(pl.Float64), pl.Null()


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    """Columns of the kinds that tables have, some of them empty in places."""
    height, rng = draw(st.integers(0, 40)), np.random.default_rng(draw(st.integers(0, 99)))
    columns = []
    for number, kind in enumerate(
        draw(st.lists(st.sampled_from([NUMBERS, TEXTS, LISTS, NOTHING]), min_size=1, max_size=6))
    ):
        drawn = rng.integers(-1, 4, height).tolist()
        values = {NUMBERS: drawn, TEXTS: [f"label {own}" for own in drawn], LISTS: [[1.5] * own for own in drawn]}
        own = values.get(kind, [None] * height)
        columns.append(
            pl.Series(f"{number}", [None if n < 0 else v for n, v in zip(drawn, own, strict=True)], dtype=kind)
        )
    return pl.DataFrame(columns)


def numbers_in(frame: pl.DataFrame) -> int:
    """Texts, numbers and empty cells; of lists what is in them."""
    lists = sum(int(column.list.len().sum() or 0) for column in frame if column.dtype == LISTS)
    return lists + sum(len(column) for column in frame if column.dtype != LISTS)


@given(frames(), st.sampled_from(["zstd", "snappy", "uncompressed"]), st.integers(1, 50))
def test_parquet_files_declare_what_is_in_them(frame: pl.DataFrame, compression: str, group: int) -> None:
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        frame.write_parquet(file.name, compression=compression, row_group_size=group)
        with open_parquet(file.name) as opened:
            cells = declared_by_parquet(opened).cells
            assert opened.metadata.num_rows == frame.height
        assert numbers_in(frame) <= cells <= numbers_in(frame) + frame.height * frame.width  # and empty lists
        assert open_source(file.name).frame.equals(frame)


@given(frames(), st.sampled_from(["uncompressed", "lz4", "zstd"]), st.booleans(), st.booleans())
def test_arrow_files_declare_what_is_in_them(frame: pl.DataFrame, compression: str, stream: bool, oldest: bool) -> None:
    level = pl.CompatLevel.oldest() if oldest else pl.CompatLevel.newest()
    file = io.BytesIO()
    write = frame.write_ipc_stream if stream else frame.write_ipc
    write(file, compression=compression, compat_level=level)
    found = arrow_files.declared_by_ipc(file.getvalue())
    lists = sum(len(column) for column in frame if column.dtype == LISTS)
    assert found.cells == numbers_in(frame) + lists
    assert found.columns == frame.width + frame.dtypes.count(LISTS)
    assert found.depth == (2 if LISTS in frame.dtypes else 1)
    if frame.dtypes.count(NUMBERS):
        assert found.plain >= 8 * frame.height


@given(st.sets(st.tuples(st.integers(0, 200), st.integers(0, 800)), min_size=1, max_size=9))
def test_workbooks_declare_all_up_to_the_last_cell(places: set[tuple[int, int]]) -> None:
    file = io.BytesIO()
    with xlsxwriter.Workbook(file) as book:
        sheet = book.add_worksheet()
        for row, column in sorted(places):
            sheet.write(row, column, "x")
    found = excel.declared(file.getvalue())
    assert found.cells == (1 + max(row for row, _ in places)) * (1 + max(column for _, column in places))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_cells_without_a_place_follow_one_another(cells: list[int]) -> None:
    rows = b"".join(b"<row>" + b"<c><v>1</v></c>" * number + b"</row>" for number in cells)
    found = excel.declared(hostile.changed_sheet(lambda sheet: b"<sheetData>" + rows + b"</sheetData>"))
    assert found.cells == len(cells) * max(cells)


@given(st.integers(0, 300), st.integers(1, 60), st.booleans())
def test_texts_of_few_cells_are_read(height: int, width: int, compressed: bool) -> None:
    text = hostile.columns(width) + (b"," * (width - 1) + b"7\n") * height
    with tempfile.NamedTemporaryFile(suffix=".csv.gz" if compressed else ".csv") as file:
        file.write(gzip.compress(text) if compressed else text)
        file.flush()
        assert open_source(file.name).frame.shape == (height, width)


@pytest.mark.parametrize("ending", first_of([".csv", ".parquet", ".arrow", ".xlsx"], 1))
def test_as_many_columns_as_a_sheet_has_are_read(ending: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({f"c{i}": ["1"] for i in range(MOST_COLUMNS)})
    path = tmp_path / f"wide{ending}"
    write = {".csv": "write_csv", ".parquet": "write_parquet", ".arrow": "write_ipc", ".xlsx": "write_excel"}[ending]
    getattr(frame, write)(path)
    assert open_source(path).frame.width == MOST_COLUMNS
    if ending != ".xlsx":  # which has no room
        getattr(frame.with_columns(more=pl.lit("1")), write)(path)
        with pytest.raises(ValueError, match=rf"wide\{ending}: .*{MOST_COLUMNS + 1:,} columns"):
            open_source(path)


def test_only_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "linked").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "linked")
    assert read_bytes(tmp_path / "link") == b"text"
    for what, place in hostile.ENDLESS.items():
        path = tmp_path / what
        place(path)
        with pytest.raises((ValueError, MemoryError), match=what):
            read_bytes(path)
    with pytest.raises(IsADirectoryError):
        open_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "nothing")
