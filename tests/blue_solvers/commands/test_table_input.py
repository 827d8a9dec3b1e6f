"""The command on the tables that people have, long and wide, in every format: what the library says of them."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from blue_solvers import estimate, read_tables
from blue_solvers.cli import main
from constraint_builders.files import read_schema_file
from tests.helpers.every import every
from tests.helpers.refused_commands import commands, refusal

LONG = pl.DataFrame(
    {
        "sex": ["total", "female", "male", "female", "female", "male", "male"],
        "age": ["total", "total", "total", "young", "old", "young", "old"],
        "estimate": ["4526", "1835", "2688", "813", "1020", "(D)", "1604"],
        "moe": ["*****", "12", "15", "9", "11", "", "20"],
    }
)
WIDE = pl.DataFrame(
    {
        "age": ["young", "old", "total"],
        "female": [118.0, 104, 223],
        "female_moe_90": [10.0, 9, 12],
        "male": [120.0, 95, 214],
        "male_moe_90": [11.0, 9, 12],
    }
)
SAID = {"columns": {"moe": "moe_90"}, "suppressed": ["(D)"], "exact": ["*****"]}
FLAGS = ["--columns", "moe=moe_90", "--suppressed", "(D)", "--exact", "*****"]


def write(frame: pl.DataFrame, path: Path) -> None:
    if path.suffix == ".xlsx":
        with warnings.catch_warnings():  # pandas' of what it will do one day
            warnings.simplefilter("ignore")
            pd.DataFrame(frame.to_dict(as_series=False)).to_excel(path, index=False, engine="xlsxwriter")
    else:
        {".csv": frame.write_csv, ".parquet": frame.write_parquet, ".arrow": frame.write_ipc}[path.suffix](path)


@pytest.mark.few(2)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".xlsx"])
@pytest.mark.parametrize("shape", ["long", "wide"])
def test_every_format_long_and_wide(
    suffix: str, shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame, flags = (LONG, FLAGS) if shape == "long" else (WIDE, ["--names-to", "sex"])
    noisy, out, schema = tmp_path / f"noisy{suffix}", tmp_path / "out.parquet", tmp_path / "schema.toml"
    write(frame, noisy)
    arguments = ["estimate", str(noisy), "--out", str(out), "--write-schema", str(schema), *flags]
    assert main(arguments) == 0, capsys.readouterr().err
    problem, y = read_tables(frame, **(SAID if shape == "long" else {"names_to": "sex"}))
    est = estimate(problem, y)
    written = pl.read_parquet(out)
    np.testing.assert_array_equal(written["estimate"], est.values)
    np.testing.assert_array_equal(written["std_error"], est.std_errors)
    assert read_schema_file(schema).schema == problem.schema
    shown = capsys.readouterr().out
    assert "[variables]" in shown
    assert "chi-square" in shown
    again = ["estimate", str(noisy), "--out", str(tmp_path / "again.parquet"), "--schema", str(schema), *flags]
    assert main(again) == 0
    assert pl.read_parquet(tmp_path / "again.parquet").equals(written)


def test_several_variables_in_the_names_of_cells(tmp_path: Path) -> None:
    frame = pl.DataFrame({"f.0": [1.0], "f.1": [2.0], "m.0": [3.0], "m.1": [4.5], "std_error": [1.0]})
    frame.write_csv(tmp_path / "in.csv")
    flags = ["--names-to", "sex", "--names-to", "age", "--names-sep", "."]
    flags += [word for name in frame.columns[:4] for word in ("--cells", name)]
    assert main(["estimate", str(tmp_path / "in.csv"), "--out", str(tmp_path / "out.csv"), *flags]) == 0
    assert pl.read_csv(tmp_path / "out.csv")["estimate"].to_list() == [1.0, 2.0, 3.0, 4.5]
    assert pl.read_csv(tmp_path / "out.csv")["table"].unique().to_list() == ["sex * age"]


def test_info_shows_and_writes_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(WIDE, tmp_path / "in.csv")
    schema = tmp_path / "schema.toml"
    assert main(["info", str(tmp_path / "in.csv"), "--names-to", "sex", "--write-schema", str(schema)]) == 0
    assert read_schema_file(schema).schema.names == ("age", "sex")
    assert "sex" in capsys.readouterr().out


REFUSED = commands("""
WIDE => call one 'value' in --columns, or give --names-to, the variable of which 'female' is a level
WIDE --cells male => give --names-to too
WIDE --names-sep . => give --names-to too
WIDE --names-to age => --names-to 'age': name the variables, which are no columns yet
WIDE --names-to a --names-to b => give --names-sep, or rename it with --columns 'female'=...
BARE --names-to sex => give --cells female --cells male by name
LONG => column 'moe' does not say its level: name it moe_90
LONG --columns moe=moe_90 => value '(D)' is not a number (row 7)
LONG --columns margin=moe_90 => columns names 'margin', which is none
LONG --columns moe=moe_90 --columns moe=note => --columns says twice what 'moe' is
LONG --columns moe => must be the name of a column and what it is, moe=moe_90: got moe
LONG --write-schema nowhere/schema.toml => nowhere/schema.toml: cannot be written
LONG --write-schema in.csv => --write-schema in.csv would overwrite what is read
""")


@every(("words", "message"), REFUSED)
def test_what_is_ambiguous_is_asked_for_by_flag(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frames = {"WIDE": WIDE, "BARE": WIDE.drop("female_moe_90", "male_moe_90"), "LONG": LONG}
    frames[words[0]].write_csv("in.csv")
    assert message in refusal(capsys, "estimate", "in.csv", "--out", "out.csv", *words[1:])
    assert [own.name for own in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize("flag", ["--columns a=note", "--names-to a", "--suppressed x", "--write-schema s.toml"])
def test_a_folder_says_itself(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{flag.split()[0]} is for one file of tables" in refusal(
        capsys, "estimate", str(tmp_path), "--out", str(tmp_path / "out"), *flag.split()
    )
