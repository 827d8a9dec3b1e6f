"""What is written is read by DuckDB and by Arrow's own reader, as R has them."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pytest

from blue_solvers import estimate
from blue_solvers.cli import main
from constraint_builders import Problem, Schema
from constraint_builders.files import read_long_table, write_frame

duckdb = pytest.importorskip("duckdb")

PROBLEM = Problem(Schema({"sex": ["f", "män"], "age": ["=a", "b"]}), {"total": 0.0, "sex * age": 2.0})
EST = estimate(PROBLEM, [10.0, 1, 2, 3, 5])
KEYS = ["table", "sex", "age"]
COLUMNS = EST.to_frame().columns


@pytest.fixture
def paths(tmp_path: Path) -> Path:
    for suffix in ("csv", "parquet", "arrow", "feather"):
        write_frame(EST.to_frame(), tmp_path / f"result.{suffix}")
    return tmp_path


def test_parquet_by_duckdb(paths: Path) -> None:
    found = duckdb.sql(f"select * from '{paths}/result.parquet'")
    assert found.columns == COLUMNS
    assert COLUMNS[:5] == [*KEYS, "estimate", "std_error"]
    assert [str(kind) for kind in found.types] == ["VARCHAR"] * 3 + ["DOUBLE"] * (len(COLUMNS) - 3)
    rows = found.fetchall()
    assert [row[0] for row in rows] == ["total"] + ["sex * age"] * 4
    np.testing.assert_array_equal([row[3] for row in rows], EST.values)
    ((total,),) = found.filter("\"table\" = 'sex * age'").aggregate("sum(estimate)").fetchall()
    assert total == pytest.approx(10)


@pytest.mark.parametrize("suffix", ["arrow", "feather"])
def test_arrow_by_its_own_reader_and_by_duckdb(paths: Path, suffix: str) -> None:
    path = str(paths / f"result.{suffix}")
    with pa.memory_map(path) as file:
        held = ipc.open_file(file).read_all()
    assert held.column_names == COLUMNS
    assert held.schema.field("table").type in (pa.large_string(), pa.string())  # no views, which older readers lack
    assert held.equals(feather.read_table(path))
    ((count,),) = duckdb.sql("select count(*) from held where std_error > 0 and age = '=a'").fetchall()
    assert count == 2


def test_duckdb_writes_what_is_read(tmp_path: Path) -> None:
    cells = "(values ('total', '*', 9.0, 1.0), ('sex', 'f', 4.0, 2.0), ('sex', 'm', 6.0, 2.0))"
    rows = f'{cells} as t("table", sex, value, variance)'
    duckdb.sql(f"copy (select * from {rows}) to '{tmp_path}/in.parquet' (format parquet)")
    by_file, y = read_long_table(tmp_path / "in.parquet")
    by_frame, z = read_long_table(duckdb.sql(f"select * from {rows}").to_arrow_table())
    np.testing.assert_array_equal(y, [9, 4, 6])
    np.testing.assert_array_equal(z, y)
    assert by_file.observed.names == by_frame.observed.names
    assert main(["estimate", str(tmp_path / "in.parquet"), "--out", str(tmp_path / "out.arrow")]) == 0
    assert pl.read_ipc(tmp_path / "out.arrow")["estimate"][0] == pytest.approx(9 + 1 / 5)


def test_a_stream_of_arrow_is_read_too(tmp_path: Path) -> None:
    table = pa.table({"table": ["sex"], "sex": ["f"], "value": [3.0], "variance": [1.0]})
    with ipc.new_stream(str(tmp_path / "in.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert read_long_table(tmp_path / "in.arrow")[1].tolist() == [3.0]
    (tmp_path / "cut.arrow").write_bytes((tmp_path / "in.arrow").read_bytes()[:40])
    with pytest.raises(ValueError, match=r"cut\.arrow: not readable as an Arrow file"):
        read_long_table(tmp_path / "cut.arrow")
    (tmp_path / "text.feather").write_text("these are words")
    with pytest.raises(ValueError, match=r"text\.feather: not readable as an Arrow file"):
        read_long_table(tmp_path / "text.feather")
