"""Files of estimates: read again as they were given, in groups of few cells, repeats listed where there are some."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from blue_solvers.results.estimate_rows import GROUP_CELLS, ROW_GROUP, rows_of, write_estimates
from constraint_builders import Schema
from constraint_builders.description.table import parse_table

SCHEMA = Schema({"a": 40, "b": 200, "c": 2})


def test_all_rows_in_row_groups_of_few_cells(tmp_path: Path) -> None:
    """Large and small tables: a writer holds no more of either."""
    rng, path = np.random.default_rng(0), tmp_path / "rows.parquet"
    tables = [parse_table(SCHEMA, name) for name in ("total", "c", "a", "a * b")]
    sizes, codes = [1, 2, 40, 8000], [f"{i:06}" for i in range(2500)]
    cells = [rng.normal(size=(len(codes) if size < 100 else 30, size)) for size in sizes]
    for table, own in zip(tables, cells, strict=True):
        rows = np.arange(len(own))
        write_estimates(path, codes[: len(own)], [(table, rows_of(own, rows), rows_of(own**2, rows, np.sqrt))])
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        assert sum(group.num_rows for group in groups) == len(own)
        assert all(group.num_rows <= ROW_GROUP and group.num_rows * table.size <= GROUP_CELLS for group in groups)
        assert len(groups) <= -(-len(own) // min(ROW_GROUP, GROUP_CELLS // table.size))
        found = pl.read_parquet(path)
        assert found["geocode"].to_list() == codes[: len(own)]
        assert found["table"].unique().to_list() == [table.name]
        assert np.array_equal(found["estimate"].explode().to_numpy(), own.ravel())
        assert np.array_equal(found["std_error"].explode().to_numpy(), abs(own).ravel())


def test_small_tables_are_written_together(tmp_path: Path) -> None:
    """Rows follow one another table by table, in as many groups as there are without a table's end between them."""
    rng, path = np.random.default_rng(0), tmp_path / "rows.parquet"
    tables, codes = [parse_table(SCHEMA, name) for name in ("total", "c", "a", "a * b", "b * c")], ["v", "x", "y", "z"]
    cells, rows = [rng.normal(size=(4, table.size)) for table in tables], np.arange(4)
    write_estimates(path, codes, [(table, rows_of(own, rows), None) for table, own in zip(tables, cells, strict=True)])
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert groups == [16, 4]  # 32,172 cells, and 1,600 that would be too many with these
    found = pl.read_parquet(path)
    assert found.columns == ["table", "geocode", "estimate"]
    assert found["table"].to_list() == [table.name for table in tables for _ in codes]
    assert found["geocode"].to_list() == codes * len(tables)
    assert np.array_equal(found["estimate"].explode().to_numpy(), np.concatenate([own.ravel() for own in cells]))


def test_only_what_repeats_is_listed(tmp_path: Path) -> None:
    """Estimates are not looked up, which takes tens of MB; standard errors that are few are, and take a byte each."""
    rng, path, rows = np.random.default_rng(0), tmp_path / "rows.parquet", np.arange(30)
    estimates, errors = rng.normal(size=(30, 8000)), rng.choice(rng.uniform(1, 2, 50), (30, 8000))
    tables = [(parse_table(SCHEMA, "a * b"), rows_of(estimates, rows), rows_of(errors, rows))]
    write_estimates(path, [str(i) for i in rows], tables)
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        columns = {group.column(i).path_in_schema.split(".")[0]: group.column(i) for i in range(4)}
        listed = {name for name, own in columns.items() if own.has_dictionary_page}
    assert listed == {"table", "geocode", "std_error"}
    assert columns["std_error"].total_uncompressed_size < columns["estimate"].total_uncompressed_size / 4
