"""Files are read alike wherever their row groups are cut and in whatever order rows come."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.files import measured_level, read_noisy_measurements
from constraint_builders.files.arrow_files import declared_by_parquet, open_parquet, read_parquet
from constraint_builders.files.kept_variables import keep_variables
from constraint_builders.files.noisy_measurements import read_outline
from tests.helpers.state_files import SETTINGS, part, read

CELLS = 8


@pytest.mark.parametrize("cut", [0, 5, 30, -1, -9])
def test_files_that_were_cut_short_are_refused(cut: int, tmp_path: Path) -> None:
    pl.DataFrame({"a": [1, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:cut])
    with pytest.raises(ValueError, match="not readable as a table"), open_parquet(tmp_path / "a.parquet"):
        pass


def test_a_column_without_a_name_is_given_none(tmp_path: Path) -> None:
    frame = pl.DataFrame({"": [1, 2], "a": [3, 4]})
    frame.write_parquet(tmp_path / "a.parquet")
    assert read_parquet(tmp_path / "a.parquet").equals(frame)
    assert read_parquet(tmp_path / "a.parquet").columns == ["", "a"]
    assert read_parquet(tmp_path / "a.parquet", [""]).columns == [""]


@given(st.binary(max_size=60))
def test_descriptions_that_are_noise_are_refused_or_read(noise: bytes) -> None:
    with tempfile.NamedTemporaryFile() as place:
        place.write(b"PAR1" + noise + len(noise).to_bytes(4, "little") + b"PAR1")
        place.flush()
        told = ""
        try:
            with open_parquet(place.name) as file:
                declared_by_parquet(file)
        except ValueError as error:
            told = str(error)
        assert not told or "not readable as a table" in told


@pytest.fixture(params=[1, 7, 4_096], ids=["rows alone", "seven cells", "all"])
def few_cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Cells that are worked on at once."""
    monkeypatch.setattr(measured_level, "LARGEST_BATCH", CELLS * request.param)
    return int(request.param)


def recut(path: Path, size: int, order: Sequence[int] | None = None) -> pl.DataFrame:
    """Write a file anew with other row groups, and other rows."""
    pq = pytest.importorskip("pyarrow.parquet")
    frame = pl.read_parquet(path, hive_partitioning=False)
    frame = frame if order is None else frame[list(order)]
    pq.write_table(frame.to_arrow(), path, row_group_size=size)
    return frame


@pytest.mark.few(3)
@pytest.mark.parametrize("size", [1, 3, 5, 100])
@pytest.mark.parametrize("shuffled", [False, True])
def test_row_groups_and_orders_change_nothing(size: int, shuffled: bool, few_cells: int, folder: Path) -> None:
    """Nor the order of anything, so that the operator of one reading fits the values of another."""
    expected = read(folder)
    for level in ("State", "County", "Block"):
        path = part(folder, level)
        height = pl.read_parquet(path, hive_partitioning=False).height
        recut(path, size, np.random.default_rng(size).permutation(height).tolist() if shuffled else None)
    found = read(folder)
    assert found.problem == expected.problem
    np.testing.assert_array_equal(found.y, expected.y)
    assert sorted(found.read.rows, key=str) == sorted(expected.read.rows, key=str)


@pytest.mark.few(3)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_within_prefixes_rows_outside_are_counted(size: int, few_cells: int, folder: Path) -> None:
    expected = read(folder, within=["0440033", "0440031", "0440032", "044003"])
    recut(part(folder), size)
    found = read(folder, within=["0440033", "0440031", "0440032", "044003"])
    np.testing.assert_array_equal(found.y, expected.y)
    assert found.read.rows == expected.read.rows


@pytest.mark.few(3)
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


def test_pieces_hold_few_cells_and_every_row_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read(folder)
    monkeypatch.setattr(measured_level, "LARGEST_BATCH", CELLS * 7)  # a row or seven, of groups of up to 18 rows
    values: list[np.ndarray] = []

    def keep(level: str, table: str, geounits: np.ndarray, cells: np.ndarray, share: object) -> None:
        values.append(cells)

    read_outline(folder, keep_variables(SETTINGS, None), keep)
    assert sum(own.size for own in values) == np.isfinite(expected.y).sum()
    assert max(own.size for own in values) <= max(7, *(own.size // len(own) for own in values))
    assert read_noisy_measurements(folder, SETTINGS).problem.rank == expected.problem.rank
