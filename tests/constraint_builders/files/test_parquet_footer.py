"""Files are read alike wherever their row groups are cut and in whatever order rows come, and each group once."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.files import (
    measured_level,
    measurement_files,
    read_noisy_measurements,
    write_noisy_measurements,
)
from constraint_builders.files.kept_variables import keep_variables
from constraint_builders.files.measurement_outline import read_outline
from constraint_builders.files.parquet_footer import read_footer
from constraint_builders.files.row_windows import AtOnce, cuts, read_windows
from tests.helpers.state_files import SETTINGS, STATE, noisy, part, read, small_problem

CELLS = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state that was measured everywhere."""
    problem = small_problem(STATE)
    write_noisy_measurements(tmp_path / "state", problem, noisy(problem))
    return tmp_path / "state"


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.sampled_from(["zstd", "uncompressed"]))
def test_heights_are_those_that_the_writer_was_given(heights: list[int], compression: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    file = io.BytesIO()
    schema = pyarrow.schema([("name", pyarrow.string()), ("value", pyarrow.list_(pyarrow.int32()))])
    with pq.ParquetWriter(file, schema, compression=None if compression == "uncompressed" else compression) as writer:
        for height in heights:
            rows = {"name": ["a"] * height, "value": [[1, 2]] * height}
            writer.write_table(pyarrow.table(rows, schema=schema), row_group_size=height)
    with tempfile.NamedTemporaryFile() as place:
        place.write(file.getvalue())
        place.flush()
        assert read_footer(place.name).heights == tuple(heights)


def test_many_columns_and_groups_of_polars(tmp_path: Path) -> None:
    frame = pl.DataFrame({f"column {i}": np.arange(1_000) for i in range(40)} | {"text": ["x"] * 1_000})
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=300)
    heights = read_footer(tmp_path / "a.parquet").heights
    assert sum(heights) == 1_000
    assert len(heights) > 1


@pytest.mark.parametrize("cut", [0, 5, 30, -1, -9])
def test_files_that_were_cut_short_are_refused(cut: int, tmp_path: Path) -> None:
    pl.DataFrame({"a": [1, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:cut])
    with pytest.raises(ValueError, match="does not end as a Parquet file does"):
        read_footer(tmp_path / "a.parquet")


@given(st.binary(max_size=60))
def test_descriptions_that_are_noise_are_refused_or_read(noise: bytes) -> None:
    with tempfile.NamedTemporaryFile() as place:
        place.write(b"PAR1" + noise + len(noise).to_bytes(4, "little") + b"PAR1")
        place.flush()
        told = ""
        try:
            heights = read_footer(place.name).heights
        except ValueError as error:
            heights, told = [], str(error)
        assert not told or "description is damaged" in told
        assert all(isinstance(height, int) for height in heights)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=8),
    st.integers(1, 40),
    st.integers(1, 80),
    st.integers(0, 20),
    st.data(),
)
def test_windows_and_cuts_hold_every_row_once(
    heights: list[int], worked: int, held: int, start: int, data: st.DataObject
) -> None:
    start = min(start, sum(heights) - 1)
    count = sum(heights) - start
    widths = np.array(data.draw(st.lists(st.integers(1, 30), min_size=count, max_size=count)))
    windows = list(read_windows(heights, widths, start, AtOnce(worked, max(held, worked))))
    assert [first for first, _ in windows] == [start, *(end for _, end in windows[:-1])]
    assert windows[-1][1] == sum(heights)
    ends = np.cumsum(heights)
    begins = ends - heights
    for first, end in windows:
        own = widths[first - start : end - start]
        groups = [i for i in range(len(heights)) if begins[i] < end and ends[i] > first]
        assert own.size
        if len(groups) > 1:  # several groups, each whole
            assert own.sum() <= worked
            assert first in (start, begins[groups[0]])
            assert end == ends[groups[-1]]
        elif end - first < min(heights[groups[0]], ends[groups[0]] - start):  # a slice, of a group that is too large
            assert own.sum() <= max(held, worked) or own.size == 1
            inside = widths[max(begins[groups[0]], start) - start : ends[groups[0]] - start]
            assert inside.sum() > max(held, worked)
        pieces = list(cuts(own, worked))
        assert [a for a, _ in pieces] == [0, *(b for _, b in pieces[:-1])]
        assert pieces[-1][1] == own.size
        assert all(own[a:b].sum() <= worked or b - a == 1 for a, b in pieces)


@pytest.fixture(params=[1, 7, 4_096], ids=["rows alone", "seven cells", "all"])
def few_cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Cells that are worked on at once; of a row group twice as many are held."""
    monkeypatch.setattr(measured_level, "LARGEST_BATCH", CELLS * request.param)
    monkeypatch.setattr(measured_level, "LARGEST_GROUP", 2 * CELLS * request.param)
    return int(request.param)


def recut(path: Path, size: int, order: Sequence[int] | None = None) -> pl.DataFrame:
    """Write a file anew with other row groups, and other rows."""
    pq = pytest.importorskip("pyarrow.parquet")
    frame = pl.read_parquet(path, hive_partitioning=False)
    frame = frame if order is None else frame[list(order)]
    pq.write_table(frame.to_arrow(), path, row_group_size=size)
    return frame


@pytest.mark.few(5)
@pytest.mark.parametrize("size", [1, 3, 5, 100])
@pytest.mark.parametrize("shuffled", [False, True])
def test_row_groups_and_orders_change_nothing(size: int, shuffled: bool, few_cells: int, folder: Path) -> None:
    expected = read(folder)
    for level in ("State", "County", "Block"):
        path = part(folder, level)
        height = pl.read_parquet(path, hive_partitioning=False).height
        recut(path, size, np.random.default_rng(size).permutation(height).tolist() if shuffled else None)
    found = read(folder)
    tables, before = found.problem.observed.tables(found.y), expected.problem.observed.tables(expected.y)
    assert tables.keys() == before.keys()
    for name, cells in before.items():  # tables come in the order of rows
        np.testing.assert_array_equal(tables[name], cells)
    assert sorted(found.read.rows, key=str) == sorted(expected.read.rows, key=str)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_within_prefixes_rows_outside_are_counted(size: int, few_cells: int, folder: Path) -> None:
    expected = read(folder, within=["0440033", "0440031", "0440032", "044003"])
    recut(part(folder), size)
    found = read(folder, within=["0440033", "0440031", "0440032", "044003"])
    np.testing.assert_array_equal(found.y, expected.y)
    assert found.read.rows == expected.read.rows


@pytest.mark.parametrize("size", [1, 2, 100])
def test_repeated_and_missing_rows(size: int, few_cells: int, folder: Path) -> None:
    path = part(folder)
    height = pl.read_parquet(path, hive_partitioning=False).height
    whole = recut(path, size, [*range(height), 0])
    name, code = whole["query_name"][0].removesuffix("_dpq"), whole["geocode"][0]
    with pytest.raises(ValueError, match=f"table '{name}' of Block '{code}' is given twice"):
        read(folder)
    recut(path, size, range(1, height))
    found = read(folder)
    blocks = found.problem.observed.tables(found.y)["Block", name]
    missing = np.isnan(blocks).reshape(len(blocks), -1)
    geocodes = sorted(whole["geocode"].unique().to_list())
    assert missing.all(axis=1).tolist() == [own == code for own in geocodes]
    assert missing.sum() == missing[geocodes.index(code)].size


def test_a_row_group_is_read_once_for_all_its_slices(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_level, "LARGEST_BATCH", CELLS * 7)  # a row or seven, of groups of up to 18 rows
    expected = read(folder)
    given_rows: list[int] = []
    decoded: list[int] = []
    inner = measurement_files._batch

    def counted(rows: pl.LazyFrame, within: Sequence[str] | None) -> pl.DataFrame:
        found = inner(rows, within)
        if "value" in found.columns:
            decoded.append(found.height)
        return found

    monkeypatch.setattr(measurement_files, "_batch", counted)
    values: list[np.ndarray] = []

    def keep(level: str, table: str, geounits: np.ndarray, cells: np.ndarray, share: object) -> None:
        given_rows.append(len(cells))
        values.append(cells)

    read_outline(folder, keep_variables(SETTINGS, None), keep)
    files = [part(folder, level) for level in ("State", "County", "Block")]
    assert len(decoded) == sum(len(read_footer(path).heights) for path in files)
    assert len(given_rows) > len(decoded)
    assert sum(decoded) == sum(given_rows)
    assert sum(own.size for own in values) == np.isfinite(expected.y).sum()
    assert read_noisy_measurements(folder, SETTINGS).problem.rank == expected.problem.rank
