"""What the page of a long table says: the numbers are those of dense algebra, and what is not known is said."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import chi2

from blue_solvers import Problem, Schema, estimate, examples
from blue_solvers.cli import main
from constraint_builders.arrays import Float
from tests.helpers.dense_algebra import best
from tests.helpers.html_outline import Element, outline

BERKELEY = str(examples.BERKELEY)


def noisy_table(seed: int = 5, spoiled: float = 0.0) -> pl.DataFrame:
    """All tables of two variables, of which cell (b, 2) may be spoiled."""
    rng = np.random.default_rng(seed)
    truth = rng.poisson(60, (2, 3)).astype(float)
    rows = [("total", "*", "*", truth.sum(), 2.0)]
    rows += [("sex", sex, "*", truth[i].sum(), 3.0) for i, sex in enumerate("ab")]
    rows += [("age", "*", str(j), truth[:, j].sum(), 4.0) for j in range(3)]
    rows += [("sex * age", sex, str(j), truth[i, j], 5.0) for i, sex in enumerate("ab") for j in range(3)]
    frame = pl.DataFrame(rows, schema=["table", "sex", "age", "value", "variance"], orient="row")
    noise = rng.normal(size=len(frame)) * np.sqrt(frame["variance"].to_numpy())
    noise[-1] += spoiled
    return frame.with_columns(value=frame["value"] + pl.Series(noise))


def least_squares(frame: pl.DataFrame) -> tuple[Float, Float]:
    """Estimates of all rows and their covariance, from the labels by dense algebra."""
    cells = [(sex, age) for sex in "ab" for age in "012"]
    M = np.array([[sex in ("*", a) and age in ("*", b) for a, b in cells] for _, sex, age, *_ in frame.iter_rows()])
    x, covariance = best(M.astype(float), frame["variance"].to_numpy(), frame["value"].to_numpy())
    return M @ x, M @ covariance @ M.T


def page(tmp_path: Path, frame: pl.DataFrame, *options: str, suffix: str = ".csv") -> Element:
    """The report of a table."""
    path = tmp_path / f"noisy{suffix}"
    if suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)
    return report(path, *options)


def report(path: Path, *options: str) -> Element:
    out = path.parent / "report.html"
    assert main(["report", str(path), "--out", str(out), *options]) == 0
    return outline(out.read_text(encoding="utf-8"))


def section(root: Element, name: str) -> Element:
    return next(own for own in root.all("section") if own.attributes["aria-labelledby"] == name)


def downloaded(root: Element, file: str) -> pl.DataFrame:
    """The table in one of the links of a page."""
    links = [own.attributes for own in root.all("a") if own.attributes.get("download") == file]
    assert len(links) == 1, file
    kind, _, data = links[0]["href"].partition(",")
    assert kind == "data:text/csv;charset=utf-8;base64"
    return pl.read_csv(io.BytesIO(base64.b64decode(data)), infer_schema_length=None)


def tiles(root: Element) -> dict[str, str]:
    return {own.all("dt")[0].text: own.all("strong")[0].text for own in root.all("div") if own.all("dt")}


def test_the_numbers_are_those_of_dense_algebra(tmp_path: Path) -> None:
    frame = noisy_table()
    x, covariance = least_squares(frame)
    root = page(tmp_path, frame)
    y, variance = frame["value"].to_numpy(), frame["variance"].to_numpy()

    estimates = downloaded(root, "estimates.csv")
    np.testing.assert_allclose(estimates["estimate"], x, rtol=1e-12)
    np.testing.assert_allclose(estimates["std error"], np.sqrt(np.diag(covariance)), rtol=1e-10)

    statistic = ((y - x) ** 2 / variance).sum()
    assert downloaded(root, "fit_by_table.csv")["statistic"].sum() == pytest.approx(statistic)
    assert f"{statistic:,.5g} on 6 degrees of freedom" in section(root, "fit").text
    p = 2 * min(chi2.sf(statistic, 6), chi2.cdf(statistic, 6))
    assert f"p = {p:.2g}" in section(root, "fit").text

    studentised = (y - x) / np.sqrt(variance - np.diag(covariance))
    worst = downloaded(root, "worst_residuals.csv")
    np.testing.assert_allclose(worst["adjustment_z"], sorted(-studentised, key=abs, reverse=True)[:10], rtol=1e-9)
    moved = downloaded(root, "largest_adjustments.csv")
    order = np.argsort(-abs(studentised))[:10]
    np.testing.assert_allclose(moved["adjustment_z"], -studentised[order], rtol=1e-9)
    np.testing.assert_allclose(moved["adjustment"], (x - y)[order], rtol=1e-9)
    np.testing.assert_allclose(moved["estimate"], x[order], rtol=1e-9)
    assert moved["table"].to_list() == [frame["table"][int(i)] for i in order]

    precision = downloaded(root, "precision.csv")
    np.testing.assert_allclose(precision["measured std error"], np.sqrt([2.0, 3, 4, 5]))
    own = [np.median(np.sqrt(np.diag(covariance))[frame["table"] == name]) for name in precision["table"]]
    np.testing.assert_allclose(precision["std error"], own, rtol=1e-10)
    assert "Its tables disagree by at most" in section(root, "certificate").text


def test_readers_see_the_tables_first(tmp_path: Path) -> None:
    """Each by itself, with a margin of error of the level, and what changed; the same of the file of estimates."""
    frame = noisy_table()
    x, covariance = least_squares(frame)
    roots = [page(tmp_path, frame, "--level", "0.9")]
    assert main(["estimate", str(tmp_path / "noisy.csv"), "--out", str(tmp_path / "best.csv")]) == 0
    roots.append(report(tmp_path / "best.csv", "--level", "0.9"))
    for root in roots:
        first = root.all("section")[0]
        assert first.all("h2")[0].text == "The numbers"
        captions = [own.text for own in first.all("caption")]
        assert captions == ["total: 1 number", "sex: 2 numbers", "age: 3 numbers", "sex * age: 6 numbers"]
        cells = downloaded(root, "table_sex_age.csv")
        assert cells.columns == ["sex", "age", "estimate", "margin of error", "measured", "change", "std error"]
        np.testing.assert_allclose(cells["estimate"], x[-6:], rtol=1e-10)
        margins = 1.6448536269514722 * np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(cells["margin of error"], margins[-6:], rtol=1e-8)
        np.testing.assert_allclose(cells["change"], (x - frame["value"].to_numpy())[-6:], rtol=1e-6, atol=1e-9)
        moved = x - frame["value"].to_numpy()
        assert f"The largest change is {moved[abs(moved).argmax()]:+,.4g}".replace("-", "−") in first.text
        assert first.all("svg")


def test_places_have_their_names(tmp_path: Path) -> None:
    """By GEOID, also within the Census Bureau's identifiers; elsewhere only their codes are shown."""
    (tmp_path / "names.csv").write_text("GEOID,NAME\n44,Rhode Island\n44001,Bristol\n44003,Kent\n")
    rows = [("total", "State", "44", "*", 90.0, 2.0)]
    rows += [("sex", "County", code, sex, 20.0, 3.0) for code in ("0500000US44001", "0500000US44003") for sex in "fm"]
    columns = ["table", "geolevel", "geocode", "sex", "value", "variance"]
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    frame = frame.with_columns(geocode=pl.col("geocode").str.replace("^44$", "0400000US44"))
    root = page(tmp_path, frame, "--place-names", str(tmp_path / "names.csv"))
    shown = downloaded(root, "table_sex_county.csv")
    assert shown["place"].to_list() == ["Bristol", "Bristol", "Kent", "Kent"]
    assert "Kent" in root.all("svg")[0].text
    assert "place" not in downloaded(page(tmp_path, frame), "table_sex_county.csv").columns
    (tmp_path / "names.csv").write_text("GEOID,NAME\n55,Wisconsin\n")
    root = page(tmp_path, frame, "--place-names", str(tmp_path / "names.csv"))
    assert "None of the names of places that were given is that of a place" in section(root, "estimates").text


def test_several_inputs_are_shown_together(tmp_path: Path) -> None:
    frame = noisy_table()
    for name, own in (("one", frame.head(6)), ("two", frame.tail(6))):
        own.write_csv(tmp_path / f"{name}.csv")
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "one.csv"), str(tmp_path / "two.csv"), "--out", str(out)]) == 0
    root = outline(out.read_text(encoding="utf-8"))
    assert "Estimates of one.csv and two.csv" in root.text
    assert tiles(root)["Certificate"] == "proved"


def test_verdicts(tmp_path: Path) -> None:
    agreeing = tiles(page(tmp_path, noisy_table()))
    assert agreeing["Noise of the measurements"] == "as declared"
    assert agreeing["Certificate"] == "proved"
    spoiled = page(tmp_path, noisy_table(spoiled=60.0))
    assert tiles(spoiled)["Noise of the measurements"] == "contradictory"
    assert downloaded(spoiled, "worst_residuals.csv").row(0)[:2] == ("sex * age", "sex=b, age=2")
    close = noisy_table().with_columns(variance=pl.col("variance") * 1e6)
    assert tiles(page(tmp_path, close))["Noise of the measurements"] == "too close"
    alone = noisy_table().filter(pl.col("table") == "sex * age")
    assert tiles(page(tmp_path, alone))["Fit"] == "cannot be tested"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_estimates_are_judged_by_what_was_measured(tmp_path: Path, suffix: str) -> None:
    noisy_table().write_csv(tmp_path / "noisy.csv")
    measured, result = str(tmp_path / "noisy.csv"), tmp_path / f"result{suffix}"
    assert main(["estimate", measured, "--out", str(result)]) == 0
    assert tiles(report(result, "--measured", measured))["Certificate"] == "proved"
    assert tiles(report(result))["Certificate"] == "proved"  # it holds them itself
    read = pl.read_csv(result) if suffix == ".csv" else pl.read_parquet(result)
    wrong = read.with_columns(estimate=pl.col("estimate") + 0.5 * pl.col("std_error") * (pl.col("table") == "total"))
    if suffix == ".csv":
        wrong.write_csv(result)
    else:
        wrong.write_parquet(result)
    judged = report(result, "--measured", measured)
    assert tiles(judged)["Certificate"] == "not the best estimate"
    assert "differ from that estimate by at most 0.5 of" in section(judged, "certificate").text
    listed = downloaded(judged, "estimates.csv")
    np.testing.assert_allclose(listed["estimate"], wrong["estimate"])  # what was read is shown, not what it should be


def test_tables_that_are_asked_for_under_another_name(tmp_path: Path) -> None:
    """Only one of the tables is in the result, turned: all that was measured counts all the same."""
    noisy_table().write_csv(tmp_path / "noisy.csv")
    measured, result = str(tmp_path / "noisy.csv"), tmp_path / "result.csv"
    assert main(["estimate", measured, "--desired", "age * sex", "--out", str(result)]) == 0
    judged = report(result, "--measured", measured)
    assert tiles(judged)["Certificate"] == "proved"
    assert downloaded(judged, "precision.csv")["measured std error"].to_list() == pytest.approx([np.sqrt(5)])


def test_a_result_that_holds_its_measurements_needs_no_other_file(tmp_path: Path) -> None:
    frame = noisy_table()
    x, covariance = least_squares(frame)
    errors = np.sqrt(np.diag(covariance))
    columns = {"estimate": x, "std_error": errors, "lower": x - 2 * errors, "upper": x + 2 * errors}
    whole = frame.with_columns(pl.Series(name, column) for name, column in columns.items())
    assert tiles(page(tmp_path, whole))["Certificate"] == "proved"
    part = page(tmp_path, whole.filter(pl.col("table") != "total"))
    assert tiles(part)["Certificate"] == "not the best estimate"
    assert "give all of it as --measured" in section(part, "certificate").text


@pytest.mark.parametrize("name", ["measured", "change"])
def test_a_variable_called_as_a_column_of_numbers_is_told_apart_from_it(tmp_path: Path, name: str) -> None:
    frame = noisy_table().rename({"sex": name}).with_columns(table=pl.col("table").str.replace("sex", name))
    frame.write_csv(tmp_path / "noisy.csv")
    assert main(["estimate", str(tmp_path / "noisy.csv"), "--out", str(tmp_path / "result.csv")]) == 0
    for given in (frame, pl.read_csv(tmp_path / "result.csv")):
        root = page(tmp_path, given)
        shown = downloaded(root, f"table_{name}.csv")
        assert shown.columns == [f"{name} (variable)", "estimate", "margin of error", "measured", "change", "std error"]
        assert shown[f"{name} (variable)"].n_unique() == shown.height > 1
        assert downloaded(root, "estimates.csv")[f"{name} (variable)"].n_unique() == shown.height + 1


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    noisy_table().write_csv(tmp_path / "noisy.csv")
    assert main(["estimate", str(tmp_path / "noisy.csv"), "--out", str(tmp_path / "result.csv")]) == 0
    estimates = pl.read_csv(tmp_path / "result.csv")
    keep = ["table", "sex", "age", "estimate", "std_error", "lower", "upper"]
    root = page(tmp_path, estimates.select(keep))
    assert tiles(root)["Fit and certificate"] == "not judged"
    assert "--measured" in section(root, "fit").text
    assert downloaded(root, "precision.csv")["cells"].to_list() == [1, 2, 3, 6]
    assert root.all("svg")


def test_exact_suppressed_and_undetermined_cells(tmp_path: Path) -> None:
    root = report(_copied(tmp_path))
    assert downloaded(root, "estimates.csv").row(0)[:6] == ("total", "*", "*", "*", 4526.0, 0.0)
    assert "Of 63 cells 1 are known exactly and 3 were not measured" in section(root, "made").text
    assert tiles(root)["Measured"] == "60 cells"
    frame = noisy_table().with_columns(
        variance=pl.when(pl.col("table") == "total").then(pl.col("variance")).otherwise(float("inf"))
    )
    lost = page(tmp_path, frame)
    assert "Left empty: 11 cells that cannot be estimated" in section(lost, "made").text
    body = section(lost, "estimates").all("tbody")[0].all("tr")
    assert [row.all("td")[2].text for row in body[1:]] == ["–"] * 11


def test_tables_that_could_not_be_estimated_stay_on_the_page(tmp_path: Path) -> None:
    tables = {"total": 4.0, "sex": 4.0, "sex * age": np.inf}
    problem = Problem(Schema({"sex": ["f", "m"], "age": 3}), tables, undetermined="nan")
    root = page(tmp_path, estimate(problem, [100, 57, 49, *[np.nan] * 6]).to_frame())
    assert "Left empty: 6 cells that cannot be estimated" in section(root, "made").text
    assert downloaded(root, "estimates.csv")["estimate"].null_count() == 6


def _copied(tmp_path: Path) -> Path:
    path = tmp_path / "berkeley.csv"
    path.write_bytes(Path(BERKELEY).read_bytes())
    return path


def test_rows_are_bounded_and_it_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [("a * b", str(i), str(j), rng.normal(), 1.0) for i in range(40) for j in range(40)]
    rows += [("a", str(i), "*", rng.normal(), 1.0) for i in range(40)]
    root = page(tmp_path, pl.DataFrame(rows, schema=["table", "a", "b", "value", "variance"], orient="row"))
    estimates = section(root, "estimates")
    assert "The first 1,000 of 1,640 rows are shown" in estimates.text
    assert len(estimates.all("tbody")[0].all("tr")) == 1_000
    assert downloaded(root, "estimates.csv").height == 1_000


def test_a_geography_is_shown_by_level(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [("total", "State", "44", 90.0, 2.0)]
    rows += [("total", "County", f"44{i}", 30 + rng.normal(), 3.0) for i in range(3)]
    frame = pl.DataFrame(rows, schema=["table", "geolevel", "geocode", "value", "variance"], orient="row")
    root = page(tmp_path, _with_a_variable(frame))
    precision = downloaded(root, "precision.csv")
    assert precision["geolevel"].to_list() == ["State", "County", "County"]
    assert {"geolevel", "table"} <= set(downloaded(root, "fit_by_table.csv").columns)
    assert "County" in root.all("svg")[0].text
    result = tmp_path / "result.csv"
    assert main(["estimate", str(tmp_path / "noisy.csv"), "--out", str(result)]) == 0
    judged = report(result, "--measured", str(tmp_path / "noisy.csv"))
    assert tiles(judged)["Certificate"] == "proved"
    assert downloaded(judged, "precision.csv").equals(precision)


def _with_a_variable(frame: pl.DataFrame) -> pl.DataFrame:
    totals = frame.with_columns(sex=pl.lit("*"))
    counties = frame.filter(pl.col("geolevel") == "County")
    parts = [
        counties.with_columns(table=pl.lit("sex"), sex=pl.lit(sex), value=pl.col("value") / 2) for sex in ("f", "m")
    ]
    return pl.concat([totals, *parts])


HOSTILE = "<img src=x onerror=alert(1)>\"'</script><script>alert(2)</script>"


def test_labels_are_text_and_nothing_else(tmp_path: Path) -> None:
    frame = noisy_table().with_columns(sex=pl.col("sex").replace({"a": HOSTILE, "b": "=1+1"}))
    root = page(tmp_path, frame, suffix=".parquet")
    assert not root.all("img")
    assert len(root.all("script")) == 1
    assert any(own.text == HOSTILE for own in root.all("td"))
    assert "'=1+1" in downloaded(root, "estimates.csv")["sex"].to_list()


def test_wrong_input_ends_in_one_line_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy_table().write_csv(tmp_path / "noisy.csv")
    noisy, out = str(tmp_path / "noisy.csv"), str(tmp_path / "report.html")
    assert main(["estimate", noisy, "--out", str(tmp_path / "result.csv")]) == 0
    result = str(tmp_path / "result.csv")
    noisy_table().filter(pl.col("table") == "sex").write_csv(tmp_path / "other.csv")
    pl.read_csv(result).with_columns(estimate=pl.lit("many")).write_csv(tmp_path / "broken.csv")
    pl.read_csv(result).drop("std_error").write_csv(tmp_path / "short.csv")
    (tmp_path / "empty").mkdir()
    for arguments, message in [
        ([noisy, "--out", str(tmp_path / "report.txt")], "give a file that ends in .html or .htm"),
        ([noisy, "--out", str(tmp_path / "no" / "report.html")], "there is no folder"),
        (["absent.csv", "--out", out], "absent.csv: No such file"),
        ([noisy, "--measured", noisy, "--out", out], "holds no estimates to judge"),
        ([result, "--measured", str(tmp_path / "empty"), "--out", out], "a long table is a file"),
        ([result, "--measured", str(tmp_path / "other.csv"), "--out", out], "age"),
        ([str(tmp_path / "broken.csv"), "--out", out], "broken.csv: .*'many' is not a number"),
        ([str(tmp_path / "short.csv"), "--out", out], "column 'std_error' is missing"),
        ([str(tmp_path / "empty"), "--out", out], "is a folder of nothing that this command made"),
        ([noisy, "--out", noisy], "ends in .html"),
    ]:
        capsys.readouterr()
        before = sorted(tmp_path.rglob("*"))
        assert main(["report", *arguments]) == 2, message
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert re.search(message, error), error
        assert sorted(tmp_path.rglob("*")) == before


FORMS = {
    "a table column": ("table,sex,value,variance\ntotal,*,30.2,2\nsex,f,14.1,1\nsex,m,15.5,3\n", []),
    "labels alone": ("sex,value,moe_90\ntotal,30.2,2\nf,14.1,1\nm,15.5,3\n", []),
    "empty values": (
        "sex,age,value,std_error\nf,total,30.2,2\nf,a,,1\nf,b,15.5,3\nm,total,20,1\nm,a,9,1\nm,b,13,2\n",
        [],
    ),
    "wide": ("age,f,f_se,m,m_se\na,10.4,1,12.2,1\nb,5,1.5,6.1,1\ntotal,16,1,17.9,2\n", ["--names-to", "sex"]),
    "other names": (
        "sex,n,e\ntotal,30.2,2\nf,14.1,1\nm,15.5,3\n",
        ["--columns", "n=value", "--columns", "e=std_error"],
    ),
    "marks": ("sex,value,se\ntotal,30.2,2\nf,14.1,**\nm,15.5,3\nx,(D),1\n", ["--exact", "**", "--suppressed", "(D)"]),
    "several sources": ("source,sex,value,std_error\nA,f,14,1\nA,m,9.5,2\nA,total,25,1\nB,f,16,3\nB,m,10,1\n", []),
    "places": (
        "sex,geolevel,geocode,value,variance\ntotal,State,44,99.7,1\nf,County,44001,31,4\nm,County,44001,29,4\n"
        "f,County,44003,21,4\nm,County,44003,22,5\n",
        [],
    ),
    "places of which the highest was not measured": (
        "sex,geolevel,geocode,value,variance\ntotal,State,44,,inf\nf,County,44001,31,4\nm,County,44001,29,4\n"
        "total,County,44001,61,4\nf,County,44003,21,4\nm,County,44003,22,5\ntotal,County,44003,44,5\n",
        [],
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("form", FORMS)
def test_every_table_that_is_estimated_is_shown_and_its_estimates_are_judged(form: str, tmp_path: Path) -> None:
    """To any number of digits; what is further off than these explain is not the best estimate."""
    text, said = FORMS[form]
    (tmp_path / "noisy.csv").write_text(text)
    noisy, result = str(tmp_path / "noisy.csv"), tmp_path / "result.csv"
    assert tiles(report(Path(noisy), *said))["Certificate"] == "proved"
    for digits in ("1", "2", "3", "13", "all"):
        assert main(["estimate", noisy, *said, "--out", str(result), "--digits", digits]) == 0
        assert tiles(report(result, "--measured", noisy, *said))["Certificate"] == "proved", digits
        assert tiles(report(result))["Certificate"] == "proved", digits
        if digits == "3":
            read = pl.read_csv(result, schema_overrides={"geocode": pl.String})
            off = (
                pl.when(pl.int_range(pl.len()) == pl.col("std_error").arg_max())
                .then(0.02 * pl.col("std_error"))
                .otherwise(0.0)
            )
            read.with_columns(estimate=(pl.col("estimate") + off).round(8)).write_csv(result)
            assert tiles(report(result, "--measured", noisy, *said))["Certificate"] == "not the best estimate"


def test_sources_are_named_where_they_contradict_each_other(tmp_path: Path) -> None:
    (tmp_path / "noisy.csv").write_text("source,sex,value,std_error\nA,f,100,1\nA,m,100,1\nB,f,200,1\nB,m,0,1\n")
    for root in (report(tmp_path / "noisy.csv"), _of_result(tmp_path)):
        assert tiles(root)["Noise of the measurements"] == "contradictory"
        worst = downloaded(root, "worst_residuals.csv")
        assert sorted(worst.select("cell", "source", "measured").rows()) == [
            ("sex=f", "A", 100), ("sex=f", "B", 200), ("sex=m", "A", 100), ("sex=m", "B", 0)
        ]  # fmt: skip
        assert downloaded(root, "precision.csv")["measured std error"].to_list() == pytest.approx([np.sqrt(0.5)])
        assert "By source" in section(root, "fit").text


def _of_result(tmp_path: Path) -> Element:
    result = tmp_path / "result.csv"
    assert main(["estimate", str(tmp_path / "noisy.csv"), "--out", str(result)]) == 0
    return report(result)


def test_what_is_not_shown_is_counted_and_not_spoken_for(tmp_path: Path) -> None:
    """The largest change is that of the rows that are shown, and rounding is none; no table goes without a word."""
    value = np.arange(1.0, 1201.0)
    rows = [("age", "*", f"{i}", own, 4.0) for i, own in enumerate(value)]
    rows += [("sex", own, "*", value.sum() / 2, 4.0) for own in "fm"]
    frame = pl.DataFrame(rows, schema=["table", "sex", "age", "value", "variance"], orient="row")
    text = section(page(tmp_path, frame), "tables").text
    assert "sex: 2 numbers" in text
    assert "age: the first 40 of 1,200 numbers" in text
    text = section(page(tmp_path, frame.with_columns(pl.col("value") * 0.1)), "tables").text
    assert "No number of those in the tables below was moved from what was measured." in text
    alone = pl.DataFrame({"table": "age", "age": frame["age"][:1200], "value": value, "variance": 4.0})
    wide = [alone.with_columns(table=pl.lit("age * place"), place=pl.lit(own)) for own in "ab"]
    both = pl.concat([*wide, alone.with_columns(place=pl.lit("*"), value=2 * pl.col("value"))])
    text = section(page(tmp_path, both), "tables").text
    assert "age: the first 40 of 1,200 numbers" in text


def test_intervals_of_a_file_are_said_to_be_of_their_own_level(tmp_path: Path) -> None:
    frame, out = noisy_table(), tmp_path / "estimates.csv"
    frame.write_csv(tmp_path / "in.csv")
    assert main(["estimate", str(tmp_path / "in.csv"), "--level", "0.9", "--digits", "2", "--out", str(out)]) == 0
    assert "Intervals cover about 0.9, as the file has them," in section(report(out), "estimates").text
    assert "Intervals cover 0.9 for" in section(report(out, "--level", "0.9"), "estimates").text
