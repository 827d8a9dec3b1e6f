"""Thirty things that people write in files of tables: understood, with the right numbers, or refused with the remedy.

What is understood is compared with least squares worked out here, from the numbers that are meant.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main

ROWS = [
    ("total", "*", "*", 2500.0, 25.0),
    ("sex", "female", "*", 1234.5, 16.0),
    ("sex", "male", "*", 1290.0, 16.0),
    ("sex * age", "female", "young", 600.25, 9.0),
    ("sex * age", "female", "old", 620.0, 9.0),
    ("sex * age", "male", "young", 700.0, 4.0),
    ("sex * age", "male", "old", 575.0, 4.0),
]
CELLS = [("female", "young"), ("female", "old"), ("male", "young"), ("male", "old")]
GOOD = "table,sex,age,value,variance\n" + "".join(f"{','.join(map(str, row))}\n" for row in ROWS)
SCHEMA = '[variables]\nsex = ["female", "male"]\nage = ["young", "old"]\n'
Z90 = 1.6448536269514722


def least_squares(rows: list[tuple]) -> dict[tuple[str, str], tuple[float, float]]:
    """Estimate and standard error of every cell, by (sex, age), from rows of a table; exact rows weigh without end."""
    design = np.array([[row[1] in ("*", sex) and row[2] in ("*", age) for sex, age in CELLS] for row in rows], float)
    values, variances = (np.array([row[i] for row in rows], float) for i in (3, 4))
    used = np.isfinite(variances)
    exact, noisy = used & (variances == 0), used & (variances > 0)
    W, C = design[noisy].T / variances[noisy], design[exact]
    system = np.block([[W @ design[noisy], C.T], [C, np.zeros((len(C), len(C)))]])
    inverse = np.linalg.inv(system)
    x = (inverse @ np.concatenate([W @ values[noisy], values[exact]]))[:4]
    spread = np.where(exact, 0, np.einsum("ri,ij,rj->r", design, inverse[:4, :4], design))
    found = design @ x, np.sqrt(spread)
    return {row[1:3]: pair for row, pair in zip(rows, zip(*found, strict=True), strict=True)}


def text(rows: list[tuple], header: str = "table,sex,age,value,variance", delimiter: str = ",") -> str:
    lines = [header.replace(",", delimiter), *(delimiter.join(map(str, row)) for row in rows)]
    return "\n".join(lines) + "\n"


def precision(header: str, of: Callable[[float, float], float]) -> str:
    return text([(*row[:4], of(row[3], row[4])) for row in ROWS], f"table,sex,age,value,{header}")


def with_comma(number: float) -> str:
    return f"{number:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")


def workbook(folder: Path) -> None:
    sheet = io.BytesIO()
    pl.read_csv(GOOD.encode()).write_excel(sheet)
    (folder / "noisy.xlsx").write_bytes(sheet.getvalue())


class Understood(NamedTuple):
    what: str
    content: str
    rows: list[tuple] = ROWS


SUPPRESSED = [*ROWS[:-1], ("sex * age", "male", "old", "", "inf")]
TWICE = [*ROWS, ("total", "*", "*", 2520.0, 100.0)]
EXACT = [("total", "*", "*", 2510.0, 0.0), *ROWS[1:]]
UNDERSTOOD = [
    Understood("margins of error of 90 %", precision("MOE 90%", lambda _, variance: Z90 * variance**0.5)),
    Understood("standard errors", precision("Standard Error", lambda _, variance: variance**0.5)),
    Understood("coefficients of variation", precision("CV (%)", lambda value, variance: 100 * variance**0.5 / value)),
    Understood("thousands separators", text([(*row[:3], f'"{row[3]:,.2f}"', row[4]) for row in ROWS])),
    Understood(
        "semicolons with decimal commas",
        text([(*row[:3], with_comma(row[3]), with_comma(row[4])) for row in ROWS], delimiter=";"),
    ),
    Understood(
        "comments and empty rows",
        "# survey of 2024\n\n" + GOOD.replace("sex * age,male,y", "# men\n,,,,\nsex * age,male,y"),
    ),
    Understood(
        "capital and padded headers", GOOD.replace("table,sex,age,value,variance", " Table ,SEX,Age , Value,VARIANCE")
    ),
    Understood(
        "padded and capital labels",
        GOOD.replace("sex,male", "sex, Male ").replace("sex * age,male,o", "sex*AGE,MALE,o"),
    ),
    Understood("a column of notes", text([(*row, "imputed") for row in ROWS], "table,sex,age,value,variance,notes")),
    Understood("the word total for an asterisk", GOOD.replace(",*", ",total")),
    Understood("what a spreadsheet saves", "\ufeff" + GOOD.replace("\n", ",,\r\n")),
    Understood("a suppressed cell", text(SUPPRESSED), [*ROWS[:-1], (*ROWS[-1][:3], np.nan, np.inf)]),
    Understood(
        "two sources of one table",
        text([(*row, "old" if i < 7 else "new") for i, row in enumerate(TWICE)], "table,sex,age,value,variance,source"),
        TWICE,
    ),
    Understood("a total that is known exactly", text(EXACT), EXACT),
]


class Refused(NamedTuple):
    what: str
    content: str | bytes
    names: str
    remedy: str
    schema: str = SCHEMA


REFUSED = [
    Refused(
        "Latin-1",
        GOOD.replace("female", "féminin").encode("latin-1"),
        "row 3 is not UTF-8",
        "save it as 'CSV UTF-8'",
        "",
    ),
    Refused(
        "Female beside female",
        GOOD.replace("sex * age,female", "sex * age,Female"),
        "'female' (row 3) and 'Female' (row 5)",
        "write one",
        "",
    ),
    Refused(
        "a table name of one's own", GOOD.replace("sex * age", "B23001"), "table 'B23001'", "by its rows 'sex * age'"
    ),
    Refused("a row that was left out", text(ROWS[:-1]), "cell (sex=male, age=old) is missing", "of variance inf"),
    Refused("a row given twice", text([*ROWS, ROWS[3]]), "is given twice, in rows 5 and 9", "a column 'source'"),
    Refused(
        "a label that is unknown", GOOD.replace("male,old", "male,elderly"), "unknown level 'elderly'", "'young', 'old'"
    ),
    Refused(
        "a negative variance", GOOD.replace(",16.0", ",-16.0"), "cell (sex=female): variance is negative", "0 or more"
    ),
    Refused("NaN for a variance", GOOD.replace(",16.0", ",NaN"), "cell (sex=female): variance is missing", "or inf"),
    Refused(
        "no column of variances",
        GOOD.replace(",variance", ",weight"),
        "column 'variance' is missing",
        "std_error, moe_90",
    ),
    Refused("a margin without its level", precision("MOE", lambda *_: 2.0), "'MOE' does not say its level", "moe_90"),
    Refused(
        "a wide table",
        "table,age,female,male\nsex * age,young,600,700\nsex * age,old,620,575\n",
        "'female', 'male'",
        "a row of its own",
        "",
    ),
    Refused(
        "a thousand or a decimal",
        text([(*row[:3], "1,234", int(row[4])) for row in ROWS], delimiter=";"),
        "'1,234' may mean 1234 or 1.234",
        "write one or the other",
    ),
    Refused(
        "a mark for suppressed",
        GOOD.replace("575.0,4.0", "(D),4.0"),
        "value '(D)' is not a number (row 8)",
        "leave the value empty, its variance inf",
    ),
    Refused(
        "no value, yet a variance",
        GOOD.replace("575.0,4.0", ",4.0"),
        "value is missing",
        "the variance inf for not measured",
    ),
    Refused(
        "exact counts that contradict one another",
        text([(*row[:4], 0) for row in ROWS[:3]]),
        "contradict one another by 24.5 between 'total' and 'sex'",
        "correct them, or give one a variance above 0",
    ),
    Refused(
        "recodes that overlap",
        GOOD,
        "recode 'grown' gives 3 groups for the 2 levels of 'age'",
        "give one for every level",
        SCHEMA + '[recodes.age]\ngrown = ["no", "yes", "yes"]\n',
    ),
]


def run(folder: Path, schema: str, name: str = "noisy.csv") -> int:
    arguments = ["estimate", name, "--out", "out.csv"]
    if schema:
        (folder / "schema.toml").write_text(schema)
        arguments += ["--schema", "schema.toml"]
    return main(arguments)


def check(folder: Path, rows: list[tuple]) -> None:
    expected = least_squares(rows)
    written = pl.read_csv(folder / "out.csv").rename(str.lower)
    assert written.height == len({row[:3] for row in rows})
    for _, sex, age, estimate, error in written.select("table", "sex", "age", "estimate", "std_error").rows():
        assert (estimate, error) == pytest.approx(
            expected[sex.lower().strip(), age.lower().strip()], rel=1e-9, abs=1e-9
        )


@pytest.mark.parametrize("schema", [SCHEMA, ""], ids=["with a schema", "without"])
@pytest.mark.parametrize("case", UNDERSTOOD, ids=lambda case: case.what)
def test_what_is_meant_is_understood(
    case: Understood, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noisy.csv").write_bytes(case.content.encode())
    code = run(tmp_path, schema)
    said = capsys.readouterr().err
    if not schema and case.what == "padded and capital labels":
        assert (code, said.count("\n")) == (2, 1)  # whether Male is another than male only a schema can say
        assert "write one" in said
        return
    assert (code, said) == (0, "")
    check(tmp_path, case.rows)


def test_a_sheet_of_excel_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastexcel")
    pytest.importorskip("xlsxwriter")
    monkeypatch.chdir(tmp_path)
    workbook(tmp_path)
    assert run(tmp_path, SCHEMA, "noisy.xlsx") == 0
    check(tmp_path, ROWS)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.what)
def test_what_could_be_two_things_or_nothing_is_refused(
    case: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    content = case.content if isinstance(case.content, bytes) else case.content.encode()
    (tmp_path / "noisy.csv").write_bytes(content)
    code = run(tmp_path, case.schema)
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1), said
    assert said.startswith("blue-solvers: ")
    assert ".csv: " in said or ".toml: " in said
    assert case.names in said
    assert case.remedy in said
    assert {path.name for path in tmp_path.iterdir()} <= {"noisy.csv", "schema.toml"}


def test_there_are_thirty() -> None:
    assert len(UNDERSTOOD) + len(REFUSED) == 30
