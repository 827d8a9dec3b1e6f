"""The command: what it writes and prints, how it refuses bad input, and that it leaves nothing half-written."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from blue_solvers import ConvergenceError, blue, examples
from blue_solvers.cli import main
from blue_solvers.commands import screen
from blue_solvers.commands.listed import COMMANDS
from constraint_builders import Schema, gallery
from constraint_builders.files import (
    measurements_frame,
    read_long_table,
    read_schema_file,
    text_table,
    write_frame,
    write_schema_file,
)
from noise_mechanisms import add_noise
from tests.helpers.every import every
from tests.helpers.places import ROOT
from tests.helpers.refused_commands import commands, refusal

BERKELEY = str(examples.BERKELEY)
SCHEMA = str(examples.BERKELEY_SCHEMA)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "estimates.csv")


def test_estimates_are_those_of_the_library(out: str) -> None:
    assert main(["estimate", BERKELEY, "--schema", SCHEMA, "--out", out, "--level", "0.9", "--digits", "all"]) == 0
    problem, y = read_long_table(BERKELEY, read_schema_file(SCHEMA).schema)
    P = blue(problem)
    written = pl.read_csv(out)
    results, measured = ["estimate", "std_error", "lower", "upper"], ["value", "variance", "adjustment", "adjustment_z"]
    assert written.columns == ["table", "admitted", "sex", "department", *results, *measured]
    assert np.array_equal(written["estimate"], P @ y + P.offset)
    assert np.array_equal(written["std_error"], np.sqrt(P.variances()))
    half_width = 1.6448536269514722 * np.sqrt(P.variances())
    assert np.allclose(written["upper"] - written["estimate"], half_width, rtol=1e-9, atol=0)
    assert np.allclose(written["estimate"] - written["lower"], half_width, rtol=1e-9, atol=0)


@pytest.mark.parametrize("solver", ["auto", "dense", "cholesky", "cg"])
def test_an_exact_total_is_kept_exactly_and_suppressed_cells_are_filled_in(solver: str, out: str) -> None:
    assert main(["estimate", BERKELEY, "--out", out, "--solver", solver]) == 0
    assert pl.read_csv(out).row(0)[:8] == ("total", "*", "*", "*", 4526.0, 0.0, 4526.0, 4526.0)
    known = measurements_frame(examples.berkeley(), examples.berkeley().truth)
    keys = ["table", "admitted", "sex", "department"]
    detailed = pl.read_csv(out).filter(table="detailed").join(known.select(*keys, truth="value"), on=keys)
    assert detailed.height == 24
    assert (abs(detailed["estimate"] - detailed["truth"]) < 5 * detailed["std_error"]).all()


def test_recodes_and_desired_tables_come_from_the_schema_file(tmp_path: Path, out: str) -> None:
    problem = gallery.pl94()
    y = add_noise(problem, np.zeros(problem.observed.size), 0)
    write_frame(measurements_frame(problem, y), tmp_path / "noisy.parquet")
    write_schema_file(tmp_path / "pl94.toml", problem.schema, desired=["hhinstlevels", "total"])
    arguments = ["estimate", str(tmp_path / "noisy.parquet"), "--schema", str(tmp_path / "pl94.toml"), "--out", out]
    assert main(arguments) == 0
    groups = ["household", "institutional", "noninstitutional", "*"]
    assert pl.read_csv(out)["hhgq"].to_list() == groups
    assert np.allclose(pl.read_csv(out)["estimate"][:3].sum(), pl.read_csv(out)["estimate"][3])
    assert main([*arguments, "--desired", "votingage"]) == 0
    assert pl.read_csv(out)["table"].to_list() == ["votingage"] * 2
    assert main([*arguments, "--desired", "all"]) == 0
    assert pl.read_csv(out)["table"].n_unique() == 17


def test_an_inferred_schema_is_shown(capsys: pytest.CaptureFixture, tmp_path: Path, out: str) -> None:
    assert main(["estimate", BERKELEY, "--out", out]) == 0
    shown = capsys.readouterr().out
    (tmp_path / "shown.toml").write_text(shown[shown.index("    [variables]") : shown.index("observed")])
    known = gallery.berkeley().domain.schema
    sorted_ = Schema({name: sorted(known.labels_of(name)) for name in known.names})
    assert read_schema_file(tmp_path / "shown.toml").schema == sorted_


def test_info_describes_the_problem(capsys: pytest.CaptureFixture) -> None:
    assert main(["info", BERKELEY, "--schema", SCHEMA]) == 0
    printed = capsys.readouterr().out
    assert "detailed               2 x 2 x 6     24  9, 3 not measured" in printed
    assert "constraints  36 independent" in printed
    assert "A2           holds" in printed
    assert "A3           FAILS: variances differ within a table" in printed
    assert "auto would take cholesky" in printed


def test_demo_shows_the_whole_job(capsys: pytest.CaptureFixture) -> None:
    assert main(["demo"]) == 0
    printed = capsys.readouterr().out
    for word in ("truth", "noisy", "estimate", "std error", "before", "after", "rejected, female", BERKELEY):
        assert word in printed
    assert main(["demo", "--seed", "1"]) == 0
    assert capsys.readouterr().out != printed


def recommended(printed: str) -> list[str]:
    """The command that the demo ends with."""
    return shlex.split(printed.partition("The same from files:\n")[2])


@pytest.mark.few(1)
@pytest.mark.parametrize("path", ["", str(Path(sys.executable).parent)])
def test_the_command_that_the_demo_recommends_works(
    path: str, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path or "/nowhere")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert main(["demo"]) == 0
    command = recommended(capsys.readouterr().out)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if not line.endswith(" s so far")] == []  # a slow machine says so
    assert pl.read_csv(tmp_path / "estimates.csv").height == 63


def test_a_command_loads_nothing_compiled_for_few_numbers_and_no_solver_that_is_not_chosen(
    out: str, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("table,sex,value,variance\nsex,male,10,1\nsex,female,12,1\ntotal,*,21,1\n")
    solvers = {f"blue_solvers.{room}" for room in ("components.lattice", "components.tree", "crossing_areas")}
    others = {"psutil", "sksparse", "blue_solvers.structured", *solvers}
    script = "import sys, blue_solvers.cli as cli; cli.main(); print(*sys.modules)"
    choice = "blue_solvers.components.choice"
    for words, used, unused in (([BERKELEY, "--schema", SCHEMA], "numpy", set()), ([str(table)], choice, others)):
        command = [sys.executable, "-c", script, "estimate", *words, "--out", out]
        loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert used in loaded
        assert not {"numba", *unused} & {*loaded}


def test_the_demo_says_what_files_need(capsys: pytest.CaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.setattr("blue_solvers.commands.demo.find_spec", lambda name: None if name == "polars" else name)
    assert main(["demo"]) == 0
    assert "Files need polars: " in (printed := capsys.readouterr().out)
    assert "-m pip install 'blue-solvers[frames]'" in printed


def test_the_shipped_example_is_what_it_says(tmp_path: Path) -> None:
    problem, y = read_long_table(BERKELEY, read_schema_file(SCHEMA).schema, noise=read_schema_file(SCHEMA).noise)
    expected = examples.berkeley()
    assert (problem.schema, problem.noise) == (expected.schema, expected.noise)
    assert np.array_equal(problem.variances, expected.variances)
    assert np.nanmax(abs(y - expected.truth)) < 15
    examples.write_berkeley(tmp_path)
    assert (tmp_path / "berkeley.toml").read_text() == examples.BERKELEY_SCHEMA.read_text()
    assert read_long_table(tmp_path / "berkeley.csv")[0].observed.names == problem.observed.names


@pytest.mark.parametrize("command", [[], ["estimate"], ["info"], ["demo"]])
def test_help_ends_in_an_example(command: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([*command, "--help"])
    assert exit_.value.code == 0
    assert "example:\n  blue-solvers" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("blue-solvers ")


REFUSED = commands(f"""
estimate none.csv --out OUT => none.csv: No such file or directory
estimate nowhere --out OUT => nowhere: No such file or directory
estimate {BERKELEY} --schema none.toml --out OUT => none.toml: No such file or directory
estimate {BERKELEY} --schema {BERKELEY} --out OUT => berkeley.csv:
estimate {SCHEMA} --out OUT => .toml: the name must end in .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .arrow, .feather or
estimate {BERKELEY} --out OUT.xlsx => estimates.csv.xlsx: the name must end in .csv, .parquet, .arrow or .feather
estimate {BERKELEY} --out nowhere/x.csv => nowhere/x.csv: cannot be written: there is no folder 'nowhere'
estimate {BERKELEY} --out OUT --desired height => table 'height': 'height' is not a variable
estimate {BERKELEY} --out OUT --solver choleski => invalid choice: 'choleski' (choose from 'auto',
estimate {BERKELEY} --out OUT --solver choleski => 'cholesky'
estimate {BERKELEY} --out OUT --level 95 => must be a number between 0 and 1, 0.95 for instance
estimate {BERKELEY} --out OUT --level high => must be a number between 0 and 1
estimate {BERKELEY} --out OUT --level 0.05 => must be how often intervals hold, 0.5 or more, 0.95
info none.parquet => none.parquet: No such file or directory
estimate {BERKELEY} => required: --out
estimate {BERKELEY} => estimate --help
guess => invalid choice: 'guess'
 => required: COMMAND
estimate FOLDER --out OUT --plot picture.png => --plot is for
estimate FOLDER --out OUT --plot picture.png => too many cells to draw
estimate FOLDER --out OUT --level 0.9 => --level is for
estimate FOLDER --out OUT --level 0.9 => its result keeps standard errors, give --level to query
estimate FOLDER --out OUT --digits 3 => --digits is for
estimate FOLDER --out OUT --digits 3 => its result keeps all digits, give --digits to query
estimate FOLDER --out OUT --nonnegative nnls => --nonnegative is for one file of tables
estimate FOLDER --out OUT --nonnegative nnls => its result keeps unbiased estimates
estimate FOLDER --out OUT --nonnegative nnls => fit a long table instead
estimate FOLDER --out OUT --schema {SCHEMA} => --schema is for
estimate FOLDER --out OUT --schema {SCHEMA} => its schema is in --settings
estimate {BERKELEY} --out OUT --settings s.toml => --settings is for a folder of measurement files
estimate {BERKELEY} --out OUT --within 44 => --within is for a folder of measurement files
estimate {BERKELEY} --out OUT --totals t.csv => --totals is for a folder of measurement files
estimate {BERKELEY} --out OUT --memory 1e9 => --memory is for a folder of measurement files
estimate {BERKELEY} --out OUT --skip-rows 0 => must be a whole number of 1 or more: got 0
""")


@every(("words", "message"), REFUSED)
def test_bad_arguments_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture, out: str, tmp_path: Path
) -> None:
    given = [word.replace("OUT", out).replace("FOLDER", str(tmp_path)) for word in words]
    assert message in refusal(capsys, *given)
    assert not Path(out).exists()


def test_a_table_that_cannot_be_estimated_is_refused(capsys: pytest.CaptureFixture, tmp_path: Path, out: str) -> None:
    rows = pl.read_csv(BERKELEY, infer_schema=False).filter(pl.col("table").is_in(["sex", "department"]))
    rows.drop("admitted").write_csv(tmp_path / "noisy.csv")
    message = refusal(capsys, "estimate", str(tmp_path / "noisy.csv"), "--out", out, "--desired", "sex * department")
    assert "table 'sex * department' is not estimable" in message


@pytest.mark.parametrize("module", ["polars", "msgspec"])
@pytest.mark.parametrize(
    "command",
    [
        ["estimate", BERKELEY, "--out", "estimates.csv"],
        ["info", BERKELEY],
        ["simulate", "blocks.csv", "--settings", "pl94_us_persons", "--out", "out"],
        ["estimate", "release", "--out", "out"],
        ["query", "release", "--geounits", "44"],
        ["design", "blocks.csv", "--entity", "place"],
    ],
)
def test_a_missing_library_is_named_with_the_extra(
    module: str, command: list[str], monkeypatch: Any, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("release/Block.parquet/DPQuery").mkdir(parents=True)
    for name in [
        name for name in sys.modules if re.match(r"(constraint_builders\.files|blue_solvers\.(res|str))", name)
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert f"{module}: pip install 'blue-solvers[frames]'" in refusal(capsys, *command)
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


def test_pictures_without_matplotlib_name_the_extra(
    monkeypatch: Any, out: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = refusal(capsys, "estimate", BERKELEY, "--plot", "picture.png", "--out", out)
    assert "--plot needs matplotlib: pip install 'blue-solvers[plots]'" in said
    assert list(tmp_path.iterdir()) == []


def test_a_picture_that_cannot_be_drawn_leaves_nothing(monkeypatch: Any, out: str, tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(figure.Figure, "savefig", lambda *_, **__: 1 / 0)
    assert main(["estimate", BERKELEY, "--out", out, "--plot", str(tmp_path / "picture.png")]) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "blue-solvers: interrupted\n"),
        (MemoryError("a dense solve needs\n8 bytes"), 2, "blue-solvers: a dense solve needs 8 bytes\n"),
        (ConvergenceError("stopped early"), 1, "blue-solvers: stopped early\n"),
        (KeyError("x"), 1, "blue-solvers: internal error, please report it: KeyError: 'x'\n"),
    ],
)
def test_a_run_that_fails_while_writing_leaves_nothing(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture, monkeypatch: Any, out: str
) -> None:
    def fail_half_way(frame: pl.DataFrame, include_header: bool) -> str:
        if include_header:
            return "table,"
        raise error

    monkeypatch.setattr(text_table, "ROWS_WRITTEN", 1)
    monkeypatch.setattr(pl.DataFrame, "write_csv", fail_half_way)
    assert main(["estimate", BERKELEY, "--out", out]) == code
    assert capsys.readouterr().err == message
    assert list(Path(out).parent.iterdir()) == []


@pytest.mark.few(1)
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_killed_run_leaves_nothing(number: signal.Signals, code: int, out: str) -> None:
    script = (
        "import sys, time, polars as pl, blue_solvers.cli as cli\n"
        "from constraint_builders.files import text_table\n"
        "text_table.ROWS_WRITTEN = 1\n"
        "pl.DataFrame.write_csv = lambda frame, include_header: 'table,' if include_header else time.sleep(60)\n"
        f"sys.exit(cli.main(['estimate', {BERKELEY!r}, '--out', {out!r}]))"
    )
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = Path(out).parent
    while not list(folder.iterdir()) and run.poll() is None:
        time.sleep(0.02)
    run.send_signal(number)
    assert run.wait(timeout=20) == code
    assert list(folder.iterdir()) == []


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = "import sys, blue_solvers.cli as cli; sys.exit(cli.main(['demo']))"
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as run:
        run.stdout.close()
        assert run.stderr.read() == ""
        assert run.wait() == 1


def test_progress_is_for_terminals_only(capsys: pytest.CaptureFixture, monkeypatch: Any, out: str) -> None:
    monkeypatch.setattr(screen, "EVERY", np.inf)  # however long a busy machine takes
    main(["estimate", BERKELEY, "--out", out])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    main(["estimate", BERKELEY, "--out", out])
    assert "blue-solvers: computing exact variances ...\n" in capsys.readouterr().err


@pytest.mark.few(1)
@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_plot_writes_a_picture(tmp_path: Path, out: str, suffix: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"picture{suffix}"
    assert main(["estimate", BERKELEY, "--out", out, "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(start)


@pytest.mark.parametrize("method", ["nnls", "max", "sequential", "reweighted", "anchored"])
def test_nonnegative_counts_stand_beside_the_estimates(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    problem = gallery.delinquent_children()
    y = add_noise(problem, problem.truth, rng=3)
    noisy, plain, fitted = (str(tmp_path / f"{name}.csv") for name in ("noisy", "plain", "fitted"))
    write_frame(measurements_frame(problem, y), noisy)
    assert main(["estimate", noisy, "--out", plain]) == 0
    capsys.readouterr()
    assert main(["estimate", noisy, "--out", fitted, "--nonnegative", method]) == 0
    frame = pl.read_csv(fitted)
    assert frame.drop("nonnegative").equals(pl.read_csv(plain))
    assert frame["nonnegative"].min() >= 0
    assert frame["estimate"].min() < 0
    assert capsys.readouterr().out.count("moved ") == len(problem.desired.names)


NOTHING = ["--help", "--version", "--nothing", "tables nowhere", "query nowhere --all"]


@every("words", [*NOTHING, *(f"{name} --nothing" for name in COMMANDS if name != "design")])
def test_help_waits_for_no_library(words: str) -> None:
    """Nor do wrong arguments, or results that are nowhere; the choices of `design` are those of the library itself."""
    work = f"""
import sys
from blue_solvers.cli import main
try:
    main({words.split()!r})
finally:
    print(*{{"numpy", "polars"}} & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True, check=False)
    assert "" in done.stderr.splitlines()  # none of them
    assert "blue-solvers" in done.stdout + done.stderr
