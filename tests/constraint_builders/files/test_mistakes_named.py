"""Mistakes are named where they are: a misspelt level, not a cell that it made missing; no list is cut in its midst."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from blue_solvers.cli import LONGEST
from constraint_builders import Schema, read_tables
from constraint_builders.files import read_schema_file
from noise_mechanisms.laws import RandomRounding
from tests.helpers.every import every
from tests.helpers.refused import refuses
from tests.helpers.refused_commands import refusal

CELLS = {(sex, age): 10.0 for sex in ("female", "male") for age in ("0-4", "5-9", "10-14", "15-19")}


def table(**wrong: str) -> pl.DataFrame:
    """Counts by sex and age, some label of the last row of females another."""
    rows = [(sex, age, value, 1.0) for (sex, age), value in CELLS.items()]
    sex, age, *numbers = rows[3]
    rows[3] = (wrong.get("sex", sex), wrong.get("age", age), *numbers)
    return pl.DataFrame(rows, schema=["sex", "age", "value", "variance"], orient="row")


def test_a_misspelt_level_is_named() -> None:
    said = r"'femal' in column 'sex', first in row 4, occurs once: is it 'female'\?"
    refuses(said, read_tables, table(sex="femal"))


def test_a_misspelt_level_of_rounded_figures_is_asked_about() -> None:
    """Rows of cells that were not published may be absent there: nothing else would tell that it is none of its own."""
    law = RandomRounding(2)
    asked = read_tables(table(sex="femal").drop("variance"), noise=law)[0].understood.notes
    assert asked == ("'femal' in column 'sex', first in row 4, occurs once: is it 'female'?",)
    for frame in (table(), table(sex="x"), table()[:-1], table()[:5]):
        assert not read_tables(frame.drop("variance"), noise=law)[0].understood.notes


def test_what_pandas_says_of_values_that_are_not_there_is_empty_where_a_law_says_how_precise_they_are() -> None:
    """The error that asked for the variance inf had no column to put it into."""
    frame = pd.DataFrame({"sex": ["total", "f", "m"], "value": [9.0, 3.0, np.nan]})
    problem, y = read_tables(frame, noise=RandomRounding(3))
    assert problem.unmeasured.tolist() == np.isnan(y).tolist() == [False, False, True]


def test_a_level_alone_beside_totals_is_read_once_the_others_have_rows_without_a_value() -> None:
    """As the refusal says, beside precisions as beside a law, where no variance may be given."""
    given = pl.DataFrame({"sex": ["total", "female", "male"], "value": [9, 3, None], "std_error": [1.0, 1, None]})
    said = "all others rows too, without a value where nothing was published"
    for frame, noise in ((given, "gaussian"), (given.drop("std_error"), RandomRounding(3))):
        refuses(said, read_tables, frame[:2], noise=noise)
        problem, y = read_tables(frame, noise=noise)
        np.testing.assert_array_equal(problem.observed.tables(y)["sex"], [3, np.nan])


def test_a_level_that_has_rows_of_the_same_cells_as_another_is_not_that_misspelt() -> None:
    """Its cells would be given twice."""
    regions = ["North West", "North East", "North East", "South", "South"]
    for ages, asks in ((["a", "a", "b", "a", "b"], False), (["c", "a", "b", "a", "b"], True)):
        frame = pl.DataFrame({"region": regions, "age": ages, "value": 3})
        notes = read_tables(frame, noise=RandomRounding(3))[0].understood.notes
        said = "'North West' in column 'region', first in row 1, occurs once: is it 'North East'?"
        assert notes == ((said,) if asks else ())


@every("name", ["year", "Area code", "id"])
def test_a_column_of_years_or_codes_is_no_cell_of_rounded_figures(name: str) -> None:
    """They may well be multiples of 3."""
    frame = pl.DataFrame({"region": ["N", "S"], name: [2019, 2019], "female": [3, 6], "male": [9, 12]})
    refuses(f"column '{name}' holds numbers: is it a cell", read_tables, frame, noise=RandomRounding(3), names_to="sex")
    problem, y = read_tables(frame, noise=RandomRounding(3), names_to="sex", cells=["female", "male"])
    assert y.tolist() == [3, 9, 6, 12]
    assert set(problem.schema.names) == {name, "region", "sex"}
    answers = pl.DataFrame({"region": ["N", "S"], "no": [3, 6], "full time": [9, 12], "2nd year": [0, 3]})
    assert read_tables(answers, noise=RandomRounding(3), names_to="answer")[1].size == 6


def test_what_is_only_missing_is_not_taken_for_misspelt() -> None:
    """A level that a schema has, one that is like no other, or that is another number, and a row that is not there."""
    schema = Schema({"sex": ["female", "male", "femal"], "age": ["0-4", "5-9", "10-14", "15-19"]})
    for frame, own in ((table(sex="femal"), schema), (table(sex="x"), None), (table(age="20-24"), None)):
        refuses(r"is missing: .*; give each a row, of variance inf where it was not pub", read_tables, frame, own)
    refuses("; give each a row, of variance inf where it was not published", read_tables, table()[:-1])


def test_long_lists_are_cut_between_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"column_number_{number}" for number in range(60)]
    path = tmp_path / "wide.csv"
    for head in ([], ["estimate"]):
        path.write_text("\n".join([",".join([*head, *names]), ",".join("1" for _ in (*head, *names))]))
        said = refusal(capsys, "estimate", str(path), "--out", str(tmp_path / "out.csv"))
        assert f"and {52 + len(head)} more; " in said
        assert len(said.removeprefix(f"blue-solvers: {path}")) < LONGEST


@pytest.mark.parametrize("text", ["", "sex: f, m\n", 'sex = ["f"]\n', '[variables]\nsex = "f"\n'])
def test_what_is_no_schema_is_told_by_an_example(text: str, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises(
        ValueError, match=r'schema.toml: .*; a schema is TOML, .*\[variables\] and sex = \["female", "male"\]'
    ):
        read_schema_file(tmp_path / "schema.toml")
