"""Tables of SDMX-CSV and of Eurostat's TSV: invented ones, read back as the plain tables that they are."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers.cli import main
from constraint_builders import Problem, read_tables
from noise_mechanisms.laws import Gaussian, RandomRounding
from tests.helpers.effort import examples

LAW = RandomRounding(3)


def invented(seed: int) -> tuple[list[str], list[tuple[tuple[str, ...], str]]]:
    """Names of dimensions, and for all combinations of codes, totals too, the value; empty where not published."""
    rng = np.random.default_rng(seed)
    codes = {
        "sex": ["T", "F", "M"],
        "age": ["TOTAL", *(f"Y{i}" for i in range(2 + seed % 3))],
        "geo": ["_T", "AT", "BE"],
    }
    names = list(codes)[: int(rng.integers(1, 4))]
    values = [str(3 * int(n)) if n else "" for n in rng.integers(0, 90, int(np.prod([len(codes[n]) for n in names])))]
    return names, list(zip(product(*(codes[name] for name in names)), values, strict=True))


def plain(names: list[str], rows: list[tuple[tuple[str, ...], str]]) -> pl.DataFrame:
    called = {
        name: ["*" if row[i] in ("T", "TOTAL", "_T") else row[i] for row, _ in rows] for i, name in enumerate(names)
    }
    return pl.DataFrame({**called, "value": [float(own) if own else None for _, own in rows]})


def sdmx(names: list[str], rows: list[tuple[tuple[str, ...], str]], rng: np.random.Generator) -> pl.DataFrame:
    """With columns of the file, dimensions that are constant, and attributes; a third with names beside the codes."""
    named = rng.random() < 0.3
    table = {"DATAFLOW": ["X:Y(1.0)"] * len(rows), "freq": ["A"] * len(rows)}
    for i, name in enumerate(names):
        table[f"{name}: {name.title()}" if named else name] = [
            f"{row[i]}: of all" if named else row[i] for row, _ in rows
        ]
    table["TIME_PERIOD"] = ["2021"] * len(rows)
    table["OBS_VALUE"] = [own or str(rng.choice(["", "NaN", ":"])) for _, own in rows]
    table["OBS_FLAG"] = [str(rng.choice(["", "p", "e"])) for _ in rows]
    return pl.DataFrame(table)


def eurostat(names: list[str], rows: list[tuple[tuple[str, ...], str]], rng: np.random.Generator) -> str:
    """The last dimension across, with flags behind values."""
    across = list(dict.fromkeys(row[-1] for row, _ in rows))
    lines = ["\t".join([f"{','.join(['freq', *names[:-1]])}\\{names[-1]}", *(f"{code} " for code in across)])]
    value = dict(rows)
    for key in dict.fromkeys(row[:-1] for row, _ in rows):
        own = [value[(*key, code)] for code in across]
        cells = [f"{v or ':'} {rng.choice(['', 'p', 'b', 'bd'])}" for v in own]
        lines.append("\t".join([",".join(["A", *key]), *cells]))
    return "\n".join(lines) + "\n"


@examples(40, 5)
@given(seed=st.integers(0, 999), shuffled=st.booleans())
def test_either_form_is_the_plain_table_that_it_is(
    seed: int, shuffled: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    names, rows = invented(seed)
    expected = read_tables(plain(names, rows), noise=LAW, total="*")
    order = rng.permutation(len(rows)) if shuffled else range(len(rows))
    path = tmp_path_factory.mktemp("sdmx") / "table.csv"
    path.write_text(eurostat(names, rows, rng))
    for source in (sdmx(names, [rows[i] for i in order], rng), path):
        problem, y = read_tables(source, style="sdmx", noise=LAW, total="*")
        assert set(problem.observed.names) == set(expected[0].observed.names)
        for name in expected[0].observed.names:
            own, other = by_labels(problem, y, name), by_labels(*expected, name)
            assert own.keys() == other.keys()
            np.testing.assert_array_equal([own[key] for key in other], list(other.values()))


def by_labels(problem: Problem, y: np.ndarray, name: Any) -> dict[str, float]:
    block = problem.observed.block(problem.observed.index(name))
    return {problem.observed.describe(i): y[i] for i in range(block.start, block.stop)}


def test_powers_of_ten_are_multiplied_out(tmp_path: Path) -> None:
    frame = pl.DataFrame({"SEX": ["_T", "F", "M"], "OBS_VALUE": ["1.2", "600", "0.6"], "UNIT_MULT": ["3", "0", "3.0"]})
    frame.write_csv(tmp_path / "table.csv")
    problem, y = read_tables(tmp_path / "table.csv", style="sdmx", noise=RandomRounding(5))
    np.testing.assert_array_equal(y, [1200, 600, 600])
    assert problem.schema.names == ("SEX",)


REFUSED: dict[str, tuple[dict[str, list[str]], str]] = {
    "no value": ({"SEX": ["F"], "value": ["3"]}, "neither a column 'OBS_VALUE' nor a first one"),
    "a number": ({"SEX": ["F", "M"], "OBS_VALUE": ["3", "about 6"]}, "row 2: 'about 6' is neither a number nor a mark"),
    "a power": ({"SEX": ["F", "M"], "OBS_VALUE": ["3", "6"], "UNIT_MULT": ["x", "3"]}, "row 1: UNIT_MULT is a power"),
    "a word": ({"SEX": ["F", "M"], "OBS_VALUE": ["3", "inf"]}, "row 2: 'inf' is neither a number nor a mark"),
    "a large power": ({"SEX": ["F"], "OBS_VALUE": ["3"], "UNIT_MULT": ["1000"]}, "row 1: UNIT_MULT is a power"),
    "units": ({"SEX": ["F", "F"], "UNIT": ["NR", "PC"], "OBS_VALUE": ["3", "6"]}, "'UNIT' has 'NR' and 'PC', which"),
    "units behind": (
        {"SEX": ["F", "M"], "OBS_VALUE": ["3", "6"], "UNIT_MEASURE: Unit": ["PS: Persons", "PC: Per cent"]},
        "'UNIT_MEASURE' has 'PS: Persons' and",
    ),
    "units across": ({"unit,sex\\time": ["NR,F", "PC,F"], "2020": ["3", "6"]}, "'UNIT' has 'NR' and 'PC'"),
    "frequencies": (
        {"FREQ": ["A", "Q"], "TIME": ["2020", "2020-Q1"], "OBS_VALUE": ["3", "6"]},
        "'FREQ' has 'A' and 'Q'",
    ),
    "flows": ({"DATAFLOW": ["A", "B"], "SEX": ["F", "M"], "OBS_VALUE": ["3", "6"]}, "'DATAFLOW' has 'A' and 'B'"),
    "deleted": (
        {"STRUCTURE[;]": ["dataflow"] * 2, "ACTION": ["I", "D"], "SEX": ["F", "M"], "OBS_VALUE": ["3", "6"]},
        "'ACTION' has rows to be deleted",
    ),
    "a code alone": ({"AGE": ["TOTAL", "Y15-64"], "OBS_VALUE": ["9", "6"]}, "'AGE' has 'Y15-64' alone beside a total"),
    "a status": (
        {"SEX": ["F", "M"], "OBS_VALUE": ["3", "0"], "OBS_STATUS": ["A", "Q"]},
        "row 2: 0 has the OBS_STATUS 'Q'",
    ),
    "an activity": ({"NACE": ["S", "T", "U"], "OBS_VALUE": ["3", "6", "3"]}, "'NACE': does 'T' count everybody"),
    "codes": ({"freq,sex\\time": ["A,F", "A"], "2020": ["3", "6"]}, "row 2: 'A' has not 2 codes"),
    "figures": ({"SEX": ["F", "M"], "OBS_VALUE": ["3", "4"]}, "is 4, which no count is published as"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_such_table_is_refused(case: str) -> None:
    columns, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        read_tables(pl.DataFrame(columns), style="sdmx", noise=LAW)


def test_columns_of_names_keys_and_attributes_are_no_dimensions() -> None:
    codes = [(sex, age) for age in ("Y0", "Y1") for sex in ("F", "M", "_T")]
    table = {
        "STRUCTURE": ["DATAFLOW"] * 6,
        "STRUCTURE_NAME": ["People"] * 6,
        "SERIES_KEY": [".".join(code) for code in codes],
        "SEX": [sex for sex, _ in codes],
        "Sex": [{"F": "Female", "M": "Male", "_T": "Total"}[sex] for sex, _ in codes],
        "AGE": [age for _, age in codes],
        "Age": ["aged " + age for _, age in codes],
        "UNIT_MULT": ["0: Units", "3: Thousands"] * 3,
        "OBS_STATUS": ["A", "E"] * 3,
        "OBS_VALUE": ["3", "6", "9", "0.003", "6", "0.009"],
        "Observation value": [""] * 6,
    }
    problem, y = read_tables(pl.DataFrame(table), style="sdmx", noise=LAW)
    assert problem.schema.names == ("SEX", "AGE")
    tables = problem.observed.tables(y)
    np.testing.assert_array_equal(tables["AGE"], [9, 9])
    np.testing.assert_array_equal(tables["SEX * AGE"], [[3, 3], [6000, 6]])


AGES = "{0}AGE,OBS_VALUE{1}\n{2}_T,9{3}\n{2}Y0,3{3}\n{2}Y1,6{3}\n"
OF_ALL = AGES.format("SEX,", "", "T,", "")
TOGETHER = {
    "one of several": (AGES.format("SEX,", "", "F,", ""), OF_ALL + "F,_T,3\nM,_T,6\n", "'SEX' has 'F' alone in a and"),
    "years": (AGES.format("TIME,", "", "2020,", ""), AGES.format("TIME,", "", "2021,", ""), "'2020' alone in a and"),
    "units": (AGES.format("", ",UNIT", "", ",NR"), AGES.format("", ",UNIT", "", ",TH"), "'NR' alone in a and 'TH'"),
    "all and by sex": (OF_ALL, OF_ALL + "F,_T,3\nM,_T,6\n", None),
}  # fmt: skip


@pytest.mark.parametrize("case", TOGETHER)
def test_tables_of_other_codes_are_not_estimated_together(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *tables, message = TOGETHER[case]
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, text in zip(paths, tables, strict=True):
        path.write_text(text)
    code = main(["estimate", *map(str, paths), "--sdmx", "--rounded", "3", "--out", str(tmp_path / "out.csv")])
    assert code == (0 if message is None else 2)
    assert message is None or message in capsys.readouterr().err


def test_how_precise_tables_are_must_be_said_and_by_the_law_alone() -> None:
    frame = pl.DataFrame({"SEX": ["_T", "F", "M"], "OBS_VALUE": ["9", "3", "6"]})
    with pytest.raises(ValueError, match="do not say how precise they are: give the law"):
        read_tables(frame, style="sdmx")
    with pytest.raises(ValueError, match="exact= is a mark of precisions, which the law"):
        read_tables(frame, style="sdmx", noise=Gaussian(4.0), exact=4)
