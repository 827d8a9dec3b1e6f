"""Text from data does not become a formula in a spreadsheet, and comes back as it was."""

import csv
import io
import re
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema
from constraint_builders.files import measurements_frame, read_long_table, write_frame
from constraint_builders.files.text_table import named_columns, with_formulas, without_formulas

hostile = st.text(st.sampled_from("=+-@'1.e;|,\tab\uff1d"), min_size=1, max_size=8)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@given(cells=st.lists(hostile | st.text(min_size=1, max_size=20), min_size=1, max_size=6, unique=True))
def test_no_cell_begins_a_formula_whatever_the_delimiter_and_all_come_back(cells: list[str]) -> None:
    frame = pl.DataFrame({name: [name, None] for name in cells}, schema=dict.fromkeys(cells, pl.String))
    written = without_formulas(frame)
    for cell in [*written.columns, *written.row(0)]:
        if NUMBER.fullmatch(cell) is None:
            assert not any(
                re.match(r"[=+\-@\uff1d\uff0b\uff0d\uff20]", part) for part in re.split(r"[,;|\t\r\n]", cell)
            )
    assert with_formulas(written).row(0) == frame.row(0)
    assert with_formulas(pl.DataFrame([written.columns], orient="row")).row(0) == tuple(cells)


@pytest.mark.parametrize(
    "label", ["=cmd|' /C calc'!A0", "@SUM(1)", "+x", "-a", "'=x", "x;=1+1", "-5", "+7.5", "O'Brien"]
)
def test_labels_of_strangers_make_a_round_trip_and_run_nowhere(label: str, tmp_path: Path) -> None:
    schema = Schema({"=name": [label, "other"]}, {})
    problem = Problem(schema, {"total": 1.0, "detailed": 2.0})
    write_frame(measurements_frame(problem, [3.0, -1.0, 4.0]), tmp_path / "noisy.csv")
    text = (tmp_path / "noisy.csv").read_text()
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            assert not re.match(r"[=+\-@]", cell) or NUMBER.fullmatch(cell)
    for known in (None, schema):
        again, y = read_long_table(tmp_path / "noisy.csv", known)
        assert set(again.schema.labels_of("=name")) == {label, "other"}
        cells = dict(zip(again.schema.labels_of("=name"), y[1:], strict=True))
        assert (y[0], cells) == (3.0, {label: -1.0, "other": 4.0})


def test_no_rows_are_refused() -> None:
    for empty in (pl.DataFrame(), pl.DataFrame(schema={"a": pl.String})):
        with pytest.raises(ValueError, match="holds no rows"):
            named_columns(empty, 0, "")


def test_nothing_but_empty_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing but empty cells"):
        named_columns(pl.DataFrame({"a": [" ", None, ""]}), 0, "")
