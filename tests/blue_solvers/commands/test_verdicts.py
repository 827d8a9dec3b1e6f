"""A bad fit, or nothing that ties numbers together, is said by every command that reads them, and is an exit code."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from blue_solvers import blue, estimate
from blue_solvers.cli import main
from blue_solvers.commands.fit_line import fit_report, proof_line
from blue_solvers.verification import Certificate
from constraint_builders import Problem, Schema
from constraint_builders.files import read_long_table, write_noisy_measurements
from constraint_builders.files.settings import parse_settings
from constraint_builders.true_tables import true_vector
from noise_mechanisms import add_noise
from tests.helpers.simulated import HOUSEHOLDS, settings_of
from tests.helpers.small_states import CODES, LEVELS, spine

SETTINGS = settings_of(LEVELS, HOUSEHOLDS, {"hisp": "1/4", "detailed": "1/9"})


@dataclass
class Stored:
    """A result, and whether the noise that was measured is that which is declared."""

    folder: str
    fits: bool


def write_release(folder: Path, factor: float) -> None:
    """Measurements of households with noise of so many times the variance that is declared."""
    settings = parse_settings(SETTINGS, "small")
    variances = {level: {"hisp": 4.0, "detailed": 9.0} for level in LEVELS}
    problem = Problem(settings.schema, variances, spine=spine(), noise=settings.noise)
    truth = true_vector(problem, np.random.default_rng(1).poisson(20, (len(CODES), 2, 7, 3)))
    y = add_noise(problem.with_variances(factor * problem.variances), truth, rng=5)
    write_noisy_measurements(folder, problem, y, notes={"settings.toml": SETTINGS})


@pytest.fixture(scope="module", params=["in memory", "streamed"])
def options(request: pytest.FixtureRequest) -> list[str]:
    return ["--memory", "1e9"] if request.param == "streamed" else []


@pytest.fixture(scope="module", params=[True, False], ids=["fits", "does not fit"])
def stored(request: pytest.FixtureRequest, options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Households on a small spine; the noise is as declared, or has nine times the variance."""
    folder = tmp_path_factory.mktemp("state")
    write_release(folder / "in", 1 if request.param else 9)
    assert main(["estimate", str(folder / "in"), "--out", str(folder / "out"), *options]) == 0
    return Stored(str(folder / "out"), request.param)


QUESTIONS = {
    "query table": ["--table", "H10", "--geoid", "01003"],
    "tables": [],
    "query comparison": ["--table", "H10_002N", "--over", "H10_001N", "--geoid", "01003"],
    "query": ["--geolevel", "County", "--all"],
    "info": [],
    "report": [],
}


@pytest.mark.few(3)
@pytest.mark.parametrize("command", QUESTIONS)
@pytest.mark.parametrize("strict", [False, True])
def test_every_command_that_reads_a_result_repeats_the_verdict(
    command: str, strict: bool, stored: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "page.html")] if command == "report" else []
    code = main([command.split()[0], stored.folder, *QUESTIONS[command], *out, *(["--strict"] if strict else [])])
    said, error = capsys.readouterr()
    assert code == (3 if strict and not stored.fits else 0)
    assert ("--strict" in error) == (code == 3)
    assert "proved" in said
    assert ("DOES NOT FIT" in said or "not as declared" in said) == (not stored.fits)
    assert ("fits: all tables agree" in said or ": as declared" in said) == stored.fits
    if command in ("info", "report"):
        assert "equations between 12 tables" in said
        assert "1 US > 2 State" in said


def test_the_result_itself_says_it(stored: Stored) -> None:
    assert json.loads((Path(stored.folder) / "result.json").read_text())["proof"]["fit"]["fits"] == stored.fits


def test_what_was_not_tested_is_no_good_news(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_release(tmp_path / "in", 1)
    command = ["estimate", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--no-fit"]
    assert main([*command, "--strict"]) == 3
    assert main(["query", str(tmp_path / "out"), "--table", "H10", "--geoid", "01", "--strict"]) == 3
    said, error = capsys.readouterr()
    assert said.count("not tested") == 2
    assert error.count("not tested") == 2
    assert main(["report", str(tmp_path / "out"), "--out", str(tmp_path / "page.html")]) == 0
    assert "Nobody tested whether the measurements fit" in (tmp_path / "page.html").read_text(encoding="utf-8")


HEAD = "table,sex,value,variance\n"
FILES = {
    "as declared": (HEAD + "total,*,30,2\nsex,f,14,1\nsex,m,15,1\n", "equation between 2 tables", 0),
    "contradictory": (HEAD + "total,*,90,2\nsex,f,14,1\nsex,m,15,1\n", "CONTRADICTORY", 3),
    "too close": (HEAD + "total,*,29,2e18\nsex,f,14,1e18\nsex,m,15,1e18\n", "TOO CLOSE", 3),
    "loose": (HEAD + "sex,f,14,1\nsex,m,15,1\n", "NOTHING TIES THESE NUMBERS TOGETHER", 3),
}


def test_the_help_says_what_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that the tests here and of refused input see."""
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    for code, words in ((0, "done; with --strict"), (1, "failed"), (2, "bad input"), (3, "done, and in doubt")):
        assert f"\n  {code}  {words}" in said


def test_where_nothing_checks_anything_nothing_is_said() -> None:
    schema = Schema({"sex": ["f", "m"]})
    assert fit_report(blue(Problem(schema, {"sex": 1.0})).estimate([3.0, 4.0])).line == ""
    holes = Problem(schema, {"sex": [1.0, np.inf], "total": 1.0}, ["total"])
    assert fit_report(blue(holes).estimate([3.0, np.nan, 9.0])).line == ""


def test_what_contradicts_is_said_with_the_cell_that_is_furthest_off(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "in.csv").write_text(f"{HEAD}total,*,25,0\nsex,f,1000,1\nsex,m,12,1\n")
    assert main(["estimate", str(tmp_path / "in.csv"), "--out", str(tmp_path / "out.csv")]) == 0
    printed = capsys.readouterr().out
    for part in ("CONTRADICTORY", "chi-square 487,084 on 1 degree of freedom", "errors: table 'sex', cell (sex=f)"):
        assert part in printed


@pytest.mark.parametrize("kind", FILES)
def test_tables_in_a_file(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, words, code = FILES[kind]
    path, out = str(tmp_path / "in.csv"), str(tmp_path / "out.csv")
    (tmp_path / "in.csv").write_text(text)
    for command, end in ((["estimate", path, "--out", out], 0), (["estimate", path, "--out", out, "--strict"], code)):
        assert main(command) == end
        said, error = capsys.readouterr()
        assert words in said
        assert (tmp_path / "out.csv").exists()
        assert ("--strict" in error) == bool(end)
    assert main(["report", out, "--out", str(tmp_path / "page.html"), "--strict"]) == code
    page = capsys.readouterr().out
    assert ("as declared" in page) == (code == 0)
    assert main(["info", path, "--strict"]) == (code if kind in ("loose", "too close") else 0)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("tied by"))
    assert ("NOTHING TIES" in line) == (kind == "loose")
    assert ("NOTHING TIES" in page) == (kind == "loose")
    assert ("NOTHING TIES" in repr(estimate(*read_long_table(path)))) == (kind == "loose")
    assert main(["estimate", path, "--out", out, "--strict", "--no-fit"]) == 3


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("sex,f,14,1\nsex,m,15,1\nsex,x,-9,0\n", "cell (sex=x): -9; is it a mark for what was not published?"),
        ("".join(f"sex,{i},{i % 2 * 30},4\n" for i in range(160)), "no value is below 0, and 80 are within half a"),
    ],
)
def test_what_was_noticed_of_a_table_is_doubt_too(
    rows: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = str(tmp_path / "in.csv"), str(tmp_path / "out.csv")
    cells = [float(row.split(",")[2]) for row in rows.splitlines()]
    (tmp_path / "in.csv").write_text(f"{HEAD}total,*,{sum(cells) + 9},36\n{rows}")
    page = ["--out", str(tmp_path / "page.html")]
    for command in (["estimate", path, "--out", out], ["info", path], ["report", path, *page], ["report", out, *page]):
        assert main(command) == 0
        capsys.readouterr()
        assert main([*command, "--strict"]) == 3
        said, error = capsys.readouterr()
        assert words in error
        assert words in said


def test_one_line_tells_what_was_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["north,sex,ALL,State,1,40,1", "north,sex,f,County,11,20,2", "north,sex,m,County,11,21,2"]
    rows += ["south,sex,f,County,11,22,2", "south,sex,m,County,11,18,2"]
    text = "source,table,sex,geolevel,geocode,value,variance\n" + "\n".join(rows).replace("sex,ALL", "total,ALL")
    (tmp_path / "in.csv").write_text(text + "\n")
    said = []
    for command in (["info"], ["estimate", "--out", "out.csv"], ["report", "--out", "page.html"]):
        name, *options = command
        where = [options[0], str(tmp_path / options[1])] if options else []
        assert main([name, str(tmp_path / "in.csv"), *where]) == 0
        said.append(next(own for own in capsys.readouterr().out.splitlines() if own.lower().startswith("tied by")))
    said.append(repr(estimate(*read_long_table(tmp_path / "in.csv"))))
    for line in said:
        for part in ("1 equation", "2 repeated", "1 State > 1 County", "'north', 'south'", "sex 'ALL'"):
            assert part in line


def test_what_is_proved_is_said_in_words() -> None:
    """Whether it is the best estimate, how far at most, or why nothing is known."""
    assert proof_line(Certificate(None, "its noise is singular")) == "not certified: its noise is singular"
    assert proof_line(Certificate(0.5, "residuals")) == "not proved (bound 0.5)"
    far = "proved: no figure is further than 1e-12 standard errors from the best linear unbiased estimate"
    assert proof_line(Certificate(1e-12, "residuals", 0.0)) == far
