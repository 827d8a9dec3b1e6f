"""Tables as publishers lay them out: titles, notes, sheets, periods of time, numbers with signs."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from blue_solvers import estimate
from blue_solvers.cli import main
from constraint_builders import Problem, read_tables
from constraint_builders.files.exact_totals import read_totals
from constraint_builders.files.leaf_table import LeafTable
from constraint_builders.files.periods import Period, read_period, recoded_periods
from noise_mechanisms.laws import RandomRounding
from tests.helpers.every import cases, every
from tests.helpers.refused import refused, refuses
from tests.helpers.refused_commands import refusal

HEADER, ROWS = "sex,value,std_error", ["female,100,2", "male,90,3", "total,191,1"]
PLAIN = "\n".join([HEADER, *ROWS])
READ = {"total": 191.0, "female": 100.0, "male": 90.0}, [1.0, 4.0, 9.0]


def cells_of(problem: Problem, y: np.ndarray) -> tuple[dict[str, float], list[float]]:
    labels = ["total", *problem.domain.schema.labels_of("sex")]
    return dict(zip(labels, y.tolist(), strict=True)), problem.variances.tolist()


def written(folder: Path, text: str, name: str = "in.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@every(
    "above", ["", "Table 3. Persons\n", '"Persons, by sex, 2020"\n\n', "Table 3,,\n(thousands)\n\n", "Persons, 2020\n"]
)
@every(
    "below", ["", "Source: Office\n", "\nProvisional figures\n(1) by age\n", "\n,,\n* of usual residence,,\n", "1) a,,"]
)
def test_titles_and_notes_are_left_out(above: str, below: str, tmp_path: Path) -> None:
    assert cells_of(*read_tables(written(tmp_path, f"{above}{PLAIN}\n{below}"))) == READ


def test_what_may_be_part_of_a_table_is_kept(tmp_path: Path) -> None:
    """A level that was not published is no note, and what a marked row says is no title."""
    problem, y = read_tables(written(tmp_path, f"{PLAIN}\nother,,\n"), suppressed="")
    assert problem.domain.schema.labels_of("sex") == ("female", "male", "other")
    assert np.isnan(y).sum() == 1
    kinds = written(tmp_path, "kind,value,variance\n1) farms,3,1\n2) mines,4,1\n3) others,,\n")
    assert read_tables(kinds, suppressed="")[0].domain.schema.shape == (3,)
    first = written(tmp_path, "measure,sex,n\nEstimate,female,99\nvalue,male,90\n")
    problem, _ = read_tables(first, columns={"n": "value"}, noise=RandomRounding(3))
    assert problem.domain.schema.names == ("measure", "sex")
    spaced = written(tmp_path, "sex, n\nfemale,99\nmale,90\n")
    assert read_tables(spaced, columns={"n": "value"}, noise=RandomRounding(3))[1].tolist() == [99, 90]
    with pytest.raises(
        ValueError, match="column 3 has no name in row 1: name it, or empty it; say skip_rows=1 if that"
    ):
        read_tables(written(tmp_path, "Table 1,2020,\nsex,1,2\nfemale,1,2\n"))


def test_a_name_of_two_lines_is_no_title(tmp_path: Path) -> None:
    path = written(tmp_path, PLAIN.replace("sex,", '"sex\nat birth",', 1))
    problem, y = read_tables(path)
    assert problem.domain.schema.names == ("sex\nat birth",)
    assert y.tolist() == [191, 100, 90]


def test_how_many_rows_to_skip_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, f"a,b,value\n1,2,3\n{PLAIN}\n")
    assert cells_of(*read_tables(path, skip_rows=2)) == READ
    out = str(tmp_path / "out.csv")
    assert main(["estimate", str(path), "--skip-rows", "2", "--out", out]) == 0
    assert "--sheet is not of CSV files" in refusal(capsys, "estimate", str(path), "--sheet", "a", "--out", out)
    title = written(tmp_path, f"Persons, by sex, 2020\n{PLAIN}\nSource: Office\n")
    assert main(["estimate", str(title), "--skip-rows", "1", "--out", out]) == 0
    assert "ignored    row 6 below the table: 'Source: Office'" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["in.tsv", "in.tsv.gz"])
def test_tsv_is_read_under_its_own_name(name: str, tmp_path: Path) -> None:
    plain, across = (
        PLAIN.replace(",", "\t").encode(),
        b"sex,geo\\TIME_PERIOD\t2020 \t2021 \nF,A\t12 \t15 p\nM,A\t9 \t: \n",
    )
    (tmp_path / name).write_bytes(gzip.compress(plain) if name.endswith("gz") else plain)
    assert cells_of(*read_tables(tmp_path / name)) == READ
    (tmp_path / name).write_bytes(gzip.compress(across) if name.endswith("gz") else across)
    problem, y = read_tables(tmp_path / name, style="sdmx", noise=RandomRounding(3))
    assert problem.domain.schema.names == ("sex", "TIME_PERIOD")
    np.testing.assert_array_equal(y, [12, 15, 9, np.nan])


BOOK: dict[str, list[list[Any]]] = {
    "Contents": [["Persons"], [], ["Table 1", "by sex"]],
    "By sex": [["Table 1. Persons"], [], ["sex", "Estimate", "SE"], ["f", 9, 1], ["m", 7, 1], ["total", 17, 2]],
    "By age": [["age", "Estimate", "SE"], ["0-17", 4, 1], ["18+", 13, 1], ["total", 17, 2], ["Source: Office"]],
}  # fmt: skip


def workbook(path: Path, names: Sequence[str], hidden: str = "", **others: Sequence[Sequence[Any]]) -> Path:
    xlsxwriter = pytest.importorskip("xlsxwriter")
    with xlsxwriter.Workbook(path) as book:
        for name, rows in {**{name: BOOK[name] for name in names}, **others}.items():
            page = book.add_worksheet(name)
            for number, row in enumerate(rows):
                page.write_row(number, 0, row)
            if name == hidden:
                page.hide()
    return path


def test_sheets_that_may_mislead_are_said_or_refused(tmp_path: Path) -> None:
    """A column is no other for its capitals, a row that is there twice is none that sheets share, hidden is said."""
    again: list[list[Any]] = [["Sex ", "estimate", "SE"], ["f", 19, 1], ["m", 17, 1]]
    path = workbook(tmp_path / "again.xlsx", ["By sex"], again=again)
    refuses(r"cell \(sex=f\) is given twice", read_tables, path, sheet=["By sex", "again"])
    path = workbook(tmp_path / "twice.xlsx", ["By sex"], twice=[*BOOK["By age"], ["0-17", 4, 1]])
    refuses("row 2 is there twice in one sheet", read_tables, path, sheet=["By sex", "twice"])
    hidden = workbook(tmp_path / "hidden.xlsx", ["Contents", "By sex"], hidden="By sex")
    problem, y = read_tables(hidden)
    assert "sheet 'By sex' is hidden, and is read" in problem.understood.notes
    assert "left out sheet 'Contents', row 1 above the table: 'Table 1. Persons'" in repr(estimate(problem, y))


def test_files_that_have_no_notes_lose_no_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "code,region\nr1,A\nr2,A\nr3,B\n\nr4,\n")
    refuses("row 6 below the table: 'r4' would be left out", LeafTable.read, path, {})
    path = written(tmp_path, "state,total\nRI,100\n\nVT,\n")
    refuses("row 4 below the table: 'VT' would be left out", read_totals, path, "state")


def test_sheets_are_found_or_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, all_of_it = (workbook(tmp_path / f"{n}.xlsx", list(BOOK)[:n]) for n in (2, 3))
    problem, y = read_tables(one)
    assert (problem.observed.names, y.tolist()) == (("total", "sex"), [17, 9, 7])
    refuses("one sheet must hold a table: 'Contents', 'By sex', 'By age' do; say sheet=", read_tables, all_of_it)
    problem, y = read_tables(all_of_it, sheet=["By sex", "By age"])
    assert (problem.observed.names, y.tolist()) == (("total", "sex", "age"), [17, 9, 7, 4, 13])
    assert read_tables(all_of_it, sheet="By age")[1].tolist() == [17, 4, 13]
    with pytest.raises(ValueError, match="sheet='By race' is none that holds something: there are 'Contents'"):
        read_tables(all_of_it, sheet="By race")
    refuses("one sheet must hold a table", read_tables, one, skip_rows=100)
    refuses("skip_rows must be a whole number of 0 or more: got -1", read_tables, one, skip_rows=-1)
    refuses("sheet say where a table lies in a file", read_tables, pl.DataFrame({"a": [1]}), sheet="a", error=TypeError)
    out = str(tmp_path / "out.csv")
    assert main(["estimate", str(all_of_it), "--sheet", "By sex", "--sheet", "By age", "--out", out]) == 0
    assert main(["report", str(one), "--out", str(tmp_path / "page.html")]) == 0
    assert "ignored    sheet 'Contents'" in capsys.readouterr().out


@cases(
("2020", (2020, 1, 1)), ("2020-Q1", (2020, 1, 4)), ("2020Q2", (2020, 2, 4)), ("2020K3", (2020, 3, 4)),
        ("Q4 2020", (2020, 4, 4)), ("1Q2020", (2020, 1, 4)), ("2020-01", (2020, 1, 12)), ("2020M12", (2020, 12, 12)),
        ("12/2020", (2020, 12, 12)), ("Mar 2020", (2020, 3, 12)), ("2020 September", (2020, 9, 12)),
        ("2020-S2", (2020, 2, 2)), ("2020-Q5", None), ("2020-13", None), ("2020-T1", None), ("20", None),
        ("Foo 2020", None), ("65-2020", None), ("2020-0", None), ("Marine 2020", None), ("Sept. 2020", (2020, 9, 12)),
)  # fmt: skip
def test_periods_are_read(label: str, period: tuple[int, int, int] | None) -> None:
    assert read_period(label) == (None if period is None else Period(*period))


def test_periods_that_are_no_sums_are_refused() -> None:
    months = [f"2020-{month:02}" for month in range(1, 13)]
    levels, recodes = recoded_periods("month", ["2020", "2020-Q2", *reversed(months)], ["year", "quarter"])
    assert levels == months
    assert recodes["year"] == ["2020"] * 12
    assert recodes["quarter"] == [f"2020-Q{1 + month // 3}" for month in range(12)]
    begun = ["2020-Q1", "2020-Q2", "2020-Q3", "2020 (3 of 4)"]
    assert recoded_periods("time", begun, ["year"])[1] == {"year": ["2020 (3 of 4)"] * 3}
    for labels, into, why in (
        (["2020", *months[1:]], "year", "'2020' has rows, and 11 of the 12 periods in it have"),
        (["2021", *months], "year", "nothing is in '2021'"),
        (["2020", "2021"], "year", "'2020' is not shorter than any 'year'"),
        (["2020-Q1", "2020 (2 of 4)"], "year", "'2020 \\(2 of 4\\)' has rows, and 1 of the 4"),
        (["2020-Q1", "2020Q1"], "year", "'2020-Q1' and '2020Q1' are one period"),
        (["2020-S1", "2020-S2"], "quarter", "not shorter than any 'quarter'"),
        (["2020-Q1", "spring"], "year", "'spring' is no period of a year"),
    ):
        refuses(why, recoded_periods, "time", labels, [into])


def test_years_are_sums_of_their_quarters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quarters = [f"{year}K{quarter}" for year in (2020, 2021) for quarter in (1, 2, 3, 4)]
    rows = [f"{label},{sex},{1000 + number},4" for number, label in enumerate(quarters) for sex in "fm"]
    rows += [f"{year},{sex},{value},1" for year, value in ((2020, 4007), (2021, 4023)) for sex in "fm"]
    path = written(tmp_path, "\n".join(["time,sex,value,variance", *rows]))
    problem, y = read_tables(path, sums={"time": "year"})
    assert problem.observed.names == ("time * sex", "year * sex")
    assert y.tolist() == [*(1000 + number for number in range(8) for _ in "fm"), 4007, 4007, 4023, 4023]
    assert problem.constraint_matrix().shape[0] == 4
    out = str(tmp_path / "out.csv")
    assert "say --sum VARIABLE=year" in refusal(capsys, "estimate", str(path), "--out", out)
    assert main(["estimate", str(path), "--sum", "time=year", "--out", out]) == 0
    assert "tied by    4 equations" in capsys.readouterr().out
    assert "--sum names 'quarter'" in refusal(capsys, "estimate", str(path), "--sum", "quarter=year", "--out", out)
    rounded = written(tmp_path, "f,value\n2020K1,3\n2020K2,6\n2020K4,0\n2020K3,\n2020,12\n2021K1,3\n2021,12\n2022,12\n")
    with pytest.raises(ValueError, match="'2021' has rows, and 1 of the 4 periods in it have"):
        read_tables(rounded, noise=RandomRounding(3), sums={"f": "year"})
    rounded.write_text(rounded.read_text().replace("2021,12\n2022,12\n", ""))
    problem, y = read_tables(rounded, noise=RandomRounding(3), sums={"f": "year"})
    assert problem.observed.names == ("f", "year")
    np.testing.assert_array_equal(y, [3, 6, np.nan, 0, 3, 12, np.nan])  # the rows of 2021 were not published
    assert problem.domain.schema.labels_of("year") == ("2020", "2021 (1 of 4)")  # nobody takes a quarter for a year


def test_levels_that_differ_by_capitals_alone_are_refused_beside_sums_too(tmp_path: Path) -> None:
    """Of rounded figures no row need be there: `F` was a level of its own, of which all else was not published."""
    rows = [f"2020K{quarter},{sex},{3 * quarter}" for quarter in (1, 2, 3, 4) for sex in "fm"]
    path = written(tmp_path, "\n".join(["time,sex,value", *rows]).replace("K4,f", "K4,F"))
    with pytest.raises(ValueError, match=r"column 'sex' has both 'f' \(row 2\) and 'F' \(row 8\): write one of them"):
        read_tables(path, noise=RandomRounding(3), sums={"time": "year"})


def test_months_are_summed_to_quarters_and_years() -> None:
    rows = [(f"{year}-{month:02}", 3.0) for year in (2020, 2021) for month in range(1, 13)]
    rows += [(f"{year}-Q{quarter}", 9.0) for year in (2020, 2021) for quarter in (1, 2, 3, 4)]
    frame = pl.DataFrame([*rows, ("2020", 36.0), ("2021", 36.0)], schema=["month", "value"], orient="row")
    problem, _ = read_tables(frame, noise=RandomRounding(3), sums={"month": ["quarter", "year"]})
    assert {name: problem.observed.shape(name) for name in problem.observed.names} == {
        "month": (24,),
        "quarter": (8,),
        "year": (2,),
    }


def test_frequencies_of_sdmx_are_told_by_their_periods(tmp_path: Path) -> None:
    """In its CSV and in Eurostat's TSV; without sums rows of two frequencies are refused."""
    rows = [f"Q,{sex},2020-Q{quarter},{3 * quarter}" for sex in "FM" for quarter in (1, 2, 3, 4)]
    rows += [f"A,{sex},2020,30" for sex in "FM"]
    csv = written(tmp_path, "\n".join(["FREQ,SEX,TIME_PERIOD,OBS_VALUE", *rows]))
    periods = ["2020", *(f"2020-Q{quarter}" for quarter in (1, 2, 3, 4))]
    lines = [
        f"{freq},{sex}\t{across}" for sex in "FM" for freq, across in (("A", "30\t:\t:\t:\t:"), ("Q", ":\t3\t6\t9\t12"))
    ]
    tsv = written(tmp_path, "\n".join(["\t".join(["freq,SEX\\TIME_PERIOD", *periods]), *lines]), "in.tsv")
    for path in (csv, tsv):
        with pytest.raises(ValueError, match=r"has '[AQ]' and '[AQ]', which nobody adds up"):
            read_tables(path, style="sdmx", noise=RandomRounding(3))
        problem, y = read_tables(path, style="sdmx", noise=RandomRounding(3), sums={"TIME_PERIOD": "year"})
        assert problem.observed.names == ("SEX", "SEX * TIME_PERIOD")  # the year is all that there is
        assert y.tolist() == [30, 30, *[3, 6, 9, 12] * 2]
    rows += [f"Q,X,2020-Q{quarter}," for quarter in (1, 2, 3, 4)] + ["A,X,2020,", "A,X,2019,", "A,_T,2020,90"]
    csv.write_text("\n".join(["FREQ,SEX,TIME_PERIOD,OBS_VALUE", *rows]))  # of X nothing was published, and it is there
    problem, y = read_tables(csv, style="sdmx", noise=RandomRounding(3), sums={"TIME_PERIOD": "year"})
    assert problem.domain.schema.labels_of("SEX") == ("F", "M", "X")


@cases(
    (["sex,value", "female,100 ± 2", "male,90±3", "total,191 +/- 1"], {"plus_minus": "std_error"}),
    (["sex,value,std_error", "female,100 (2),2", "male,90(1)(3),3", "total,191,1"], {}),
    (["sex,value,std_error", "female,100%,2%", "male,90 %,3%", "total,191%,1%"], {}),
    (["sex,value,std_error", "female,100*,±2", "male,90†,+/-3", "Total (2),191,1(1)"], {}),
    (["sex,value,CV", "female,100,2%", "male,90,3.3333333333333335%", "total,191,0.5235602094240838%"], {}),
)
def test_numbers_are_read_as_publishers_write_them(rows: list[str], said: dict[str, str], tmp_path: Path) -> None:
    values, variances = cells_of(*read_tables(written(tmp_path, "\n".join(rows)), **said))  # type: ignore[arg-type]
    assert values == READ[0]
    np.testing.assert_allclose(variances, READ[1])


def test_each_cell_of_a_wide_table_has_its_error_behind_it(tmp_path: Path) -> None:
    path = written(tmp_path, "age,f,m\n0-17,9 ± 1.645,8 ± 3.29\n18+,20 ± 1.645,21 ± 3.29\n")
    problem, y = read_tables(path, names_to="sex", plus_minus="moe_90")
    assert y.tolist() == [9, 8, 20, 21]
    np.testing.assert_allclose(problem.variances, [1, 4, 1, 4], rtol=1e-3)


@refused(
    (["sex,value", "f,100 ± 2", "m,9 ± 1"], {}, r"what stands behind ± in '100 ± 2'\? say plus_minus= 'std_error'"),
    (["sex,value,se", "f,100,2", "m,9,1"], {"plus_minus": "moe_90"}, "there are none: leave it out"),
    (["sex,value,se", "f,50%,2", "m,50%,1"], {}, "'value' is in percent, and 'se' has no sign of it"),
    (["sex,value", "f,100 (2)", "m,9 (1)"], {}, "column 'variance' is missing"),
    (["sex,value,se", "f,10²,2", "m,9,1"], {}, "'10²' is not a number"),
    (["sex,value,se", "f,(2),2", "m,9,1"], {}, r"'\(2\)' is not a number"),
    (["sex,value,variance", "f,50%,4%", "m,50%,4%"], {}, "'variance' is in percent, which may be of a square"),
    (["sex,value,pct", "f,9,75", "m,3,25"], {"noise": RandomRounding(3)}, "'pct' holds numbers: call it 'note'"),
    (
        ["SEX,Sex,of,value", "F,Female,A,3", "F,Female,B,6", "M,Male,A,9", "M,Male,B,12"],
        {"noise": RandomRounding(3)},
        "columns 'SEX' and 'Sex' say the same, 'F' is 'Female'",
    ),
    (["sex,value", "f,100 ± 2 ± 1", "m,9 ± 1"], {"plus_minus": "moe_90"}, "moe_90 '2 ± 1' is not a number"),
    (["sex,value,moe_90", "f,9 ± 2,5", "m,9 ± 1,5"], {"plus_minus": "moe_90"}, "both say how precise values are"),
    (["sex,n", "f,9", "m,9", "", "age,value,se", "0-17,4,1", "18+,14,1"], {}, "row 5 has 3 cells, the header 2"),
    (["sex,value,se", "f,9,1", "m,9,1", "Source: Office, 2020"], {}, "row 4, 'Source: Office', is a note in several"),
    (["value,se,sex", "9,1,f", "7,1,m", "", "17,,"], {}, "column 'sex' is empty in row 5"),
)
def test_numbers_that_may_mean_two_things_are_refused(rows: list[str], said: dict[str, str], tmp_path: Path) -> None:
    read_tables(written(tmp_path, "\n".join(rows)), **said)  # type: ignore[arg-type]


@pytest.mark.parametrize("below", ["m,,", "m,,\nolder people,,"])
def test_a_level_below_an_empty_row_is_no_note(tmp_path: Path, below: str) -> None:
    path = written(tmp_path, f"sex,value,std_error\n*,30,1\nf,10,1\n\n{below}\n")
    refuses(r"below the table: 'm' would be left out: if it is a level take the empty row", read_tables, path)
    said = written(tmp_path, f"sex,value,std_error\n*,19,1\nf,10,1\nm,9,1\n\n{below}\nOur own count of the people,,\n")
    assert "below the table: 'm'" in repr(estimate(*read_tables(said)))


def test_a_point_of_thousands_beside_an_error_of_whole_numbers_is_refused(tmp_path: Path) -> None:
    rows = "sex\tvalue\n*\t{}\nf\t1.234 ± 2\nm\t90 ± 3\n"
    path = tmp_path / "in.tsv"
    path.write_text(rows.format("1.324 ± 2"))
    with pytest.raises(ValueError, match=r"'1.324 ± 2' may be of 1324 or 1.324, which has more digits than its error"):
        read_tables(path, plus_minus="std_error")
    path.write_text(rows.format("91.2 ± 2"))  # here the point is that of decimals
    assert read_tables(path, plus_minus="std_error")[1].tolist() == [91.2, 1.234, 90.0]


def test_quarters_beside_months_are_asked_for(tmp_path: Path) -> None:
    months = "".join(f"2020-{month:02},10,1\n" for month in range(1, 13))
    quarters = "".join(f"2020-Q{quarter},31,1\n" for quarter in range(1, 5))
    path = written(tmp_path, f"month,value,std_error\n{months}{quarters}2020,130,2\n")
    with pytest.raises(ValueError, match="'2020-Q1' is a quarter, of which '2020-01' is a part: say that too"):
        read_tables(path, sums={"month": ["year"]})
    assert read_tables(path, sums={"month": ["year", "quarter"]})[0].observed.size == 17


def test_a_lone_carriage_return_is_part_of_a_cell(tmp_path: Path) -> None:
    (tmp_path / "lone.csv").write_bytes(b"Counts\rof 2021\n\nsex\r,value,variance\nf,3,1\nm,4,1\n*,8,1\n")
    problem, y = read_tables(tmp_path / "lone.csv")
    assert problem.observed.size == 3
    assert sorted(y) == [3, 4, 8]


@pytest.mark.parametrize("said", [{}, {"noise": RandomRounding(3)}])
def test_numbers_of_a_variable_called_a_ratio_are_levels_where_no_row_is_absent(said: dict) -> None:
    own = {"sex": ["f", "f", "m", "m"], "income_ratio": [1, 2, 1, 2], "value": [3, 6, 9, 12]}
    frame = pl.DataFrame(own if said else {**own, "variance": 1.0})
    problem, y = read_tables(frame, **said)
    assert problem.observed.names == ("sex * income_ratio",)
    assert y.tolist() == [3, 6, 9, 12]


def test_columns_that_another_table_tells_apart_do_not_say_the_same() -> None:
    rows = [("f", "0", "*", 3), ("f", "1", "*", 6), ("m", "0", "*", 9), ("m", "1", "*", 12)]
    rows += [("f", "0", "x", 3), ("f", "0", "y", 3), ("m", "1", "x", 6), ("m", "1", "y", 6)]
    frame = pl.DataFrame(rows, schema=["sex", "age", "of", "value"], orient="row")
    problem, _ = read_tables(frame, noise=RandomRounding(3))
    assert problem.observed.names == ("sex * age", "sex * age * of")
    refuses("columns 'sex' and 'age' say the same", read_tables, frame[4:], noise=RandomRounding(3))
