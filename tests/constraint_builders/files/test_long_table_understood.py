"""What people write in long tables: understood where one thing can be meant, or refused with what to write."""

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from blue_solvers.cli import main
from constraint_builders import Problem, Schema, read_tables
from constraint_builders.files import frame_like, measurements_frame, read_long_table
from constraint_builders.files.numbers import decimal_mark, read_numbers
from tests.helpers.effort import examples
from tests.helpers.every import cases, every
from tests.helpers.refused import refuses

SCHEMA = Schema({"sex": ["female", "male"], "age": 3}, {"age": {"adult": ["minor", "adult", "adult"]}})
PROBLEM = Problem(SCHEMA, {"total": 4.0, "adult * sex": [[1.0, 2.25], [3.0, 16.0]], "sex": np.inf, "detailed": 9.0})
Y = np.array([1310.5, 200.25, 310, 400, 399, np.nan, np.nan, *range(101, 107)])
FRAME = measurements_frame(PROBLEM, Y)


def agrees(source: Any, schema: Schema | None = SCHEMA) -> None:
    problem, y = read_long_table(source, schema)
    values, variances = problem.observed.tables(y), problem.observed.tables(problem.variances)
    for name, cells in PROBLEM.observed.tables(Y).items():
        assert np.array_equal(values[name], cells, equal_nan=True)
        assert np.allclose(variances[name], PROBLEM.observed.tables(PROBLEM.variances)[name], rtol=1e-12)


def write(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "noisy.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_the_example_is_what_it_says() -> None:
    agrees(FRAME)


@cases(
    ("std_error", 1.0),
    ("SE", 1.0),
    ("Standard Error", 1.0),
    ("moe_90", norm.ppf(0.95)),
    ("MOE 90%", norm.ppf(0.95)),
    ("Margin of error (95 %)", norm.ppf(0.975)),
    ("moe_99_5", norm.ppf(0.9975)),
)
def test_precision_may_be_given_by_standard_errors_and_margins(name: str, factor: float) -> None:
    agrees(FRAME.with_columns((pl.col("variance").sqrt() * factor).alias(name)).drop("variance"))


@every("name", ["cv_percent", "CV (%)", "Coefficient of variation, %"])
def test_precision_may_be_given_by_coefficients_of_variation(name: str) -> None:
    cv = 100 * pl.col("variance").sqrt() / pl.col("value").fill_null(1)
    agrees(FRAME.with_columns(cv.alias(name)).drop("variance"))
    as_text = FRAME.with_columns(pl.format("{} %", cv.cast(pl.String)).alias(name)).drop("variance")
    agrees(as_text.with_columns(pl.col(name).replace("inf %", "inf")))


@cases(
    ({"moe": 1.0}, "column 'moe' does not say its level: name it moe_90 if it is of 90 %, as the ACS's are"),
    ({"Margin of Error": 1.0}, "column 'Margin of Error' does not say its level"),
    ({"cv": 1.0}, "column 'cv' does not say its unit: name it cv_percent where 12 means 12 %"),
    ({"std_error": 1.0, "variance": 1.0}, "columns 'variance' and 'std_error' both say how precise"),
    ({"error": 1.0}, r"column 'variance' is missing: .*; give variance, std_error, moe_90 .* or cv_percent"),
    ({"std_error": -1.0}, r"table 'total': std_error is negative: give a number of 0 or more \(row 1\)"),
    ({"std_error": 1e-200}, "table 'total': std_error is too small for a variance: write 0 for exact"),
    ({"std_error": 1e200}, "table 'total': std_error has a variance beyond floating point"),
    ({"std_error": None}, "table 'total': std_error is missing: give a number, 0 for exact, or inf"),
    ({"moe_90": "*****"}, r"table 'total': moe_90 '\*\*\*\*\*' is not a number \(row 1\)"),
    ({"std_error": 1.0, "lower": 1.0, "upper": 1.0}, "it holds estimates, whose errors are correlated"),
)
def test_precision_that_could_be_two_things_is_refused(change: dict[str, Any], message: str) -> None:
    frame = FRAME if "variance" in change else FRAME.drop("variance")
    with pytest.raises(ValueError, match=message):
        read_long_table(frame.with_columns(pl.lit(value).alias(name) for name, value in change.items()), SCHEMA)


def test_a_coefficient_of_variation_says_nothing_about_zero() -> None:
    frame = FRAME.drop("variance").with_columns(value=pl.lit(0.0), cv_percent=pl.lit(10.0))
    refuses("cv_percent says nothing about a value of 0: give variances or std_error", read_long_table, frame, SCHEMA)


def test_capitals_and_spaces_in_headers_labels_and_table_names_make_no_difference(tmp_path: Path) -> None:
    text = FRAME.write_csv().replace("table,sex,age,value,variance", " Table ,SEX, Age,Value, Variance ")
    text = text.replace("adult * sex", "Adult*SEX").replace(",female,", ", Female ,").replace(",male,", ",MALE,")
    agrees(write(tmp_path, text.replace("detailed", " Detailed")))


def test_total_and_all_say_that_a_variable_is_summed_out() -> None:
    said = [
        pl.when(pl.col(name) == "*").then(pl.lit(word)).otherwise(name).alias(name)
        for name, word in (("sex", "Total"), ("age", " all "))
    ]
    agrees(FRAME.with_columns(said))
    known = Schema({"sex": ["female", "male"], "age": ["all", "1", "2"]})
    with pytest.raises(ValueError, match=r"table 'total', row 1: column 'age' must be '\*', .*: got ' all '"):
        read_long_table(FRAME.with_columns(said).filter(table="total"), known)


def test_the_very_label_is_meant_before_one_like_it() -> None:
    schema = Schema({"sex": ["f", "F", " f"]})
    frame = pl.DataFrame({"table": "sex", "sex": ["F", " f", "f"], "value": [1, 2, 3], "variance": 1})
    assert read_long_table(frame, schema)[1].tolist() == [3, 1, 2]
    with pytest.raises(ValueError, match="unknown level 'F ' in column 'sex': there are 'f', 'F', ' f'"):
        read_long_table(frame.with_columns(sex=pl.Series(["F ", " f", "f"])), schema)


def test_names_of_ones_own_are_answered_with_what_the_rows_count() -> None:
    frame = FRAME.with_columns(table=pl.col("table").replace("adult * sex", "B23001"))
    refuses(r"table 'B23001': .* named by what it counts, by its rows 'sex \* age'", read_long_table, frame, SCHEMA)


def test_notes_are_ignored_by_name(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    agrees(FRAME.with_columns(Notes=pl.lit("suppressed"), comment=pl.lit(None)))
    path = write(tmp_path, "table,sex,value,variance,notes\ntotal,*,2,1,hello\nsex,f,1,1,\nsex,m,1,1,\n")
    assert main(["estimate", str(path), "--out", str(tmp_path / "out.csv")]) == 0
    assert "ignored    column 'notes', of notes" in capsys.readouterr().out


def test_a_wide_table_is_answered_with_how_to_lay_it_out() -> None:
    frame = pl.DataFrame({"table": "detailed", "age": ["young", "old"], "female": [1, 2], "male": ["3", "4"]})
    refuses("give each number of 'female', 'male' a row of its own", read_long_table, frame)


STYLES = [(",", ".", ""), (",", ".", ","), (",", ".", " "), (";", ",", ""), (";", ",", "."), (";", ",", "\u202f"),
          (";", ".", "'"), ("\t", ",", "."), ("\t", ".", ","), ("|", ".", "")]  # fmt: skip


def styled(value: float, mark: str, group: str) -> str:
    """A number as a country writes it."""
    whole, _, rest = f"{abs(value):.{2 if value % 1 else 0}f}".partition(".")
    parts = [whole[max(0, i - 3) : i] for i in range(len(whole), 0, -3)][::-1]
    return ("-" if value < 0 else "") + group.join(parts) + (mark + rest if rest else "")


@pytest.mark.parametrize(("delimiter", "mark", "group"), STYLES)
@examples(25, 2)
@given(values=st.lists(st.integers(-(10**9), 10**9), min_size=3, max_size=3))
def test_numbers_are_read_as_their_country_writes_them(
    delimiter: str, mark: str, group: str, values: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    numbers = [value / 100 for value in values]
    cells = [styled(number, mark, group) for number in [*numbers, 0.25]]  # the last tells the marks apart
    quoted = [f'"{cell}"' if delimiter in cell else cell for cell in cells]
    labels = ["a", "b", "c", "d"]
    rows = [["table", "x", "value", "variance"], *(["x", x, cell, "1"] for x, cell in zip(labels, quoted, strict=True))]
    path = tmp_path_factory.mktemp("styles") / "noisy.csv"
    path.write_text("\n".join(delimiter.join(row) for row in rows), encoding="utf-8")
    schema = Schema({"x": labels})  # or a level that is as much as all others would be asked about
    assert read_long_table(path, schema)[1].tolist() == [*numbers, 0.25]


def test_what_groups_thousands_is_told_by_another_column_or_by_the_file() -> None:
    frame = pl.DataFrame({"sex": ["f", "m"], "value": ["1.234", "2.000"], "std_error": ["1,5", "2,5"]})
    assert read_tables(frame)[1].tolist() == [1234, 2000]
    assert decimal_mark([pl.Series(["1,234", "5,678"])], ",") == "."
    for delimiter, texts in (("", ["1,234", "5,678"]), (",", ["1,234", "5678"])):
        refuses(r"'1,234' may mean 1234 or 1\.234", decimal_mark, [pl.Series(texts)], delimiter)
    assert decimal_mark([pl.Series(["1.004", "60000"])], ",") == "."  # whose digits are not grouped
    for texts in (["1.004", "600"], ["1.200", "60000"]):
        advice = f"write {texts[0].replace('.', '')}, or {texts[0]}0"
        refuses(advice, decimal_mark, [pl.Series(texts), pl.Series(["60000"])], ",")


@every("delimiter", [",", ";", "\t"])
@every("advice", [("12345", 12345.0), ("12.3450", 12.345)])
def test_decimals_of_three_digits_beside_whole_numbers_are_read_once_written_as_the_error_says(
    delimiter: str, advice: tuple[str, float], tmp_path: Path
) -> None:
    rows = ["table,sex,value,std_error", "sex,f,12.345,2", "sex,m,0,2", "total,*,{},2"]
    text = "\n".join(rows).replace(",", delimiter)
    with pytest.raises(ValueError, match=r"'12\.345' may mean 12345 or 12\.345: write 12345, or 12\.3450$"):
        read_tables(write(tmp_path, text.format("7")))
    problem, y = read_tables(write(tmp_path, text.replace("12.345", advice[0]).format("7")))
    assert problem.observed.tables(y)["sex"].tolist() == [advice[1], 0.0]


@cases(
    (["1,234", "5"], "'1,234' may mean 1234 or 1.234: write 1234, or 1.2340"),
    (["1.234", "5"], "'1.234' may mean 1234 or 1.234: write 1234, or 1.2340"),
    (["1,5", "2.5"], "'2.5' has a decimal point and '1,5' a decimal comma: write all with a point"),
)
def test_numbers_that_could_be_two_are_refused(cells: list[str], message: str, tmp_path: Path) -> None:
    rows = "".join(f"x;{label};{cell};1\n" for label, cell in zip("ab", cells, strict=True))
    refuses(message, read_long_table, write(tmp_path, f"table;x;value;variance\n{rows}"))


@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_what_programs_write_is_read_to_the_last_bit(numbers: list[float]) -> None:
    column = pl.Series("value", [repr(number) for number in numbers])
    assert decimal_mark([column], ",") == "."
    assert read_numbers(column).tolist() == numbers


def test_comments_empty_rows_and_empty_columns_are_skipped_and_rows_counted_as_they_stand(tmp_path: Path) -> None:
    lines = FRAME.write_csv().splitlines()
    text = "\n".join(["# noisy tables, of 1973", "", ",,,,", *(f"{line},," for line in lines[:4]), ",,,,,,",
                      "# later rows,,,,,,", *(f"{line},," for line in lines[4:]), "", ",,,,,,", ""])  # fmt: skip
    agrees(write(tmp_path, text))
    broken = text.replace("detailed,male,2,106.0,9.0", "detailed,male,2,x,9.0")
    row = 1 + broken.splitlines().index("detailed,male,2,x,9.0,,")
    refuses(rf"value 'x' is not a number \(row {row}\)", read_long_table, write(tmp_path, broken), SCHEMA)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_encodings_are_told_apart_or_refused(encoding: str, tmp_path: Path) -> None:
    text = "table,city,value,variance\r\ncity,Montréal,1,1\r\ncity,Orléans,2,1\r\n"
    path = write(tmp_path, text, encoding)
    if encoding in ("utf-8-sig", "utf-16"):
        assert read_long_table(path)[0].schema == Schema({"city": ["Montréal", "Orléans"]})
        return
    message = "row 2 is not UTF-8 .*Latin-1 it reads .*Montréal" if encoding == "latin-1" else "holds a NUL byte"
    refuses(message, read_long_table, path)


def test_what_excel_says_about_delimiters_is_heard(tmp_path: Path) -> None:
    agrees(write(tmp_path, "sep=;\r\n" + FRAME.write_csv(separator=";").replace("\n", "\r\n").replace(".0", "")))


def workbook(path: Path, rows: dict[int, Sequence[Any]], sheets: Sequence[str] = ("Data",)) -> Path:
    """A file with some rows, by number from 0, in the first of its sheets."""
    pytest.importorskip("fastexcel")
    with pytest.importorskip("xlsxwriter").Workbook(path) as book:
        sheet, *_ = [book.add_worksheet(name) for name in sheets]
        for number, row in rows.items():
            sheet.write_row(number, 0, ["inf" if cell == np.inf else cell for cell in row])
    return path


def test_a_sheet_of_excel_is_read(tmp_path: Path) -> None:
    cells = {i: [None, *row] for i, row in enumerate([FRAME.columns, *FRAME.rows()], 2)}
    path = workbook(tmp_path / "noisy.xlsx", {0: [None, "# from 1973"], **cells}, ["Data", "Empty"])
    agrees(path)
    assert main(["estimate", str(path), "--out", str(tmp_path / "out.csv")]) == 2  # of recodes
    with pytest.importorskip("xlsxwriter").Workbook(tmp_path / "two.xlsx") as book:
        for name in ("One", "Two"):
            book.add_worksheet(name).write(0, 0, "table")
    refuses(r"two\.xlsx: one sheet must hold a table: 'One', 'Two' do", read_long_table, tmp_path / "two.xlsx")


def test_a_header_and_labels_of_a_sheet_may_begin_with_a_hash(tmp_path: Path) -> None:
    rows = [["# ranks"], ["#table", "rank", "value", "variance"], ["rank", "#1", 5, 1], ["rank", "#2", 6, 1]]
    problem, y = read_long_table(workbook(tmp_path / "noisy.xlsx", dict(enumerate(rows))))
    assert (problem.schema, y.tolist()) == (Schema({"rank": ["#1", "#2"]}), [5, 6])


def test_rows_of_a_sheet_are_counted_as_it_shows_them(tmp_path: Path) -> None:
    rows = {2: ["table", "value", "variance", "sex"], 4: ["sex", 1, 1, "f"], 5: ["sex", True, 1, "m"]}
    refuses(r"value 'true' is not a number \(row 6\)", read_long_table, workbook(tmp_path / "noisy.xlsx", rows))


@pytest.mark.parametrize("prefix", ["", "x:"])
def test_formulas_that_nobody_worked_out_are_no_zeros(prefix: str, tmp_path: Path) -> None:
    """A program that writes them leaves 0 for their values, and says that a spreadsheet has to work them out."""
    rows = (["sex", "value", "variance"], ["total", "=B3+B4", 1], ["f", 5, 1], ["m", 7, 1])
    path = workbook(tmp_path / "noisy.xlsx", dict(enumerate(rows)))
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    written = parts["xl/worksheets/sheet1.xml"]
    parts["xl/worksheets/sheet1.xml"] = written.replace(b"<f>", f"<{prefix}f>".encode())
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    refuses(r"noisy\.xlsx: cell B2 is a formula that nobody worked out", read_tables, path)
    parts["xl/worksheets/sheet1.xml"] = written.replace(b"</f><v>0</v>", b"</f><v>12</v>")  # as a spreadsheet saves it
    parts["xl/workbook.xml"] = parts["xl/workbook.xml"].replace(b' fullCalcOnLoad="1"', b"")
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    assert read_tables(path)[1].tolist() == [12, 5, 7]


def test_without_fastexcel_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "noisy.xlsx").write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(ImportError, match=r"Excel files need fastexcel: pip install 'blue-solvers\[excel\]', or save"):
        read_long_table(tmp_path / "noisy.xlsx")


def in_pandas() -> pd.DataFrame:
    return pd.DataFrame({name: FRAME[name].to_list() for name in FRAME.columns})


def test_pandas_works_in_and_out_without_pyarrow() -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import pandas as pd\n"
        "from constraint_builders.files import frame_like, measurements_frame, read_long_table\n"
        "frame = pd.DataFrame({'table': ['total', 'sex', 'sex'], 'sex': ['*', 'f', 'm'], 'n': [None, 1, 2],"
        " 'value': [3, 1.5, None], 'variance': [1, 1, float('inf')]}).drop(columns='n')\n"
        "problem, y = read_long_table(frame)\n"
        "back = frame_like(frame, measurements_frame(problem, y))\n"
        "assert list(back['value'])[:2] == [3, 1.5], back\n"
        "assert back['value'].isna().tolist() == [False, False, True]\n"
        "assert type(back).__module__.startswith('pandas')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_frames_of_pandas_are_read_whatever_their_types_and_index(tmp_path: Path) -> None:
    agrees(in_pandas())
    some = in_pandas().sort_values("value")  # whose index a file keeps, though it has no name
    some.to_parquet(tmp_path / "some.parquet")
    agrees(tmp_path / "some.parquet")
    agrees(pa.Table.from_pandas(some))
    agrees(in_pandas().astype({"table": "category", "sex": "category", "value": "Float64"}))
    agrees(in_pandas().set_index(["table", "sex", "age"]))
    whole = pd.DataFrame({"table": "age", "age": [0, 1, 2], "value": [1, 2, 3], "variance": 1})
    assert read_long_table(whole)[1].tolist() == [1, 2, 3]
    mixed = pd.DataFrame({"table": ["total", "age", "age"], "age": ["*", 0, 1], "value": [1, 2, 3], "variance": 1})
    assert read_long_table(mixed)[0].schema == Schema({"age": ["0", "1"]})
    for other in (FRAME, FRAME.to_arrow(), in_pandas()):
        assert type(frame_like(other, FRAME)) is type(other)


@cases(
    (lambda f: f.assign(value=pd.Timestamp("2020-01-01")), "column 'value' holds dates and times: give numbers"),
    (lambda f: f.assign(value=True), "column 'value' holds true and false: give numbers"),
    (lambda f: f.assign(value=[True, *range(1, len(f))]), "column 'value' mixes bool and int: give one kind of value"),
    (lambda f: f.assign(value=[object()] * len(f)), "column 'value'"),
    (lambda f: pd.concat([f, f["value"]], axis=1), "column 'value' is given twice, as columns 4 and 6"),
    (lambda f: f.assign(age=1.5), "column 'age' holds decimal numbers: labels are text or whole numbers"),
)
def test_frames_of_pandas_are_refused_like_others(change: Any, message: str) -> None:
    refuses(f"data frame: .*{message}", read_long_table, change(in_pandas()), SCHEMA)
