"""What the command says: text from data is text, and streams that are closed, full or left do not stop the work."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import cli, examples
from blue_solvers.cli import main
from constraint_builders.printable import html_text, printable
from tests.helpers.effort import examples as tries
from tests.helpers.effort import lengths
from tests.helpers.places import ROOT

ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\x08\x9b31m\u202e\u2028\u200b\x85\x7f"
FORGED = "\nwritten    elsewhere.csv\nproved: x"
HOSTILE, TAME = f"f{ESCAPES}{FORGED}", "f"
TABLE = 'table,sex,value,variance\ntotal,*,9,1\nsex,"{label}",3,1\nsex,m,4,1\n'
PLACED = """table,sex,geolevel,geocode,value,variance
total,*,"{label}","{label}",9,1
sex,f,County,"{label}1",3,1
sex,m,County,"{label}1",4,1
"""
BLOCKS = 'geoid,sex,count\n440010001001000,"{label}",3\n440010001001001,m,5\n'
PLACES = 'place,geocode\n"{label}",440010001001000\n'
SPINE = 'geoid,place\n440010001001000,"{label}"\n440010001001001,B\n'
SETTINGS = """
geolevels = ["County", "Block"]
noise = "discrete_gaussian"
[variables]
sex = [{label}, "m", "u"]
[recodes]
sex."g{name}" = ["one", "one", {label}]
[budget]
total = "1"
[budget.geolevels]
County = "1/2"
Block = "1/2"
[budget.tables]
detailed = [1, 1]
"""
RUNS = [
    "estimate table.csv --out estimates.csv",
    "report table.csv --out page.html",
    "simulate blocks.csv --settings settings.toml --seed 3 --out release",
    "estimate release --out result",
    "estimate table.csv --out out.csv --write-schema s.toml",
    "estimate table.csv --out out.csv --nonnegative nnls",
    "estimate placed.csv --out out.csv",
    "estimate table.csv second.csv --out out.csv",
    "estimate table.csv second.csv --names NAME,b --out out.csv",
    "report estimates.csv --out page.html",
    "simulate blocks.csv --settings settings.toml --seed 3 --out again",
    "estimate release --out stored",
    "info table.csv",
    "info result",
    "tables result",
    "query result --table all --all",
    "query result --table all --places places.csv",
    "report result --out page.html",
    "design spine.csv --entity place --out out.csv",
    "benchmark --table table.csv --solver dense --columns 1",
    "estimate NAME.csv --out out.csv",
    "estimate table.csv --out NAME.csv",
    "info NAME.parquet",
    "estimate table.csv --desired NAME --out out.csv",
    "query result --count sex=NAME --all",
    "query result --geounits NAME",
    "report NAME --out page.html",
    "estimate table.csv placed.csv --same NAME=sex --out out.csv",
]


@tries(500, 300)
@given(text=st.text() | st.text("".join(map(chr, range(160)))))
def test_printable_text_is_one_line_of_what_is_shown_as_itself(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert shown == text or not text.isprintable()
    assert html_text(text).isprintable()
    assert not set(html_text(text)) & set("<>\"'")


def fill(folder: Path, label: str) -> Path:
    """Good inputs of all kinds, in which a label says something."""
    folder.mkdir()
    quoted = "".join(f"\\u{ord(c):04x}" for c in label)
    for name, text in (
        ("table.csv", TABLE.format(label=label)),
        ("second.csv", TABLE.format(label=label).replace(",9,", ",8,")),
        ("placed.csv", PLACED.format(label=label)),
        (f"{label}.csv", TABLE.format(label=label)),
        ("blocks.csv", BLOCKS.format(label=label)),
        ("places.csv", PLACES.format(label=label)),
        ("spine.csv", SPINE.format(label=label)),
        ("settings.toml", SETTINGS.format(label=f'"{quoted}"', name=quoted)),
    ):
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder


def said(
    folder: Path, label: str, runs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> list[list]:
    """What every command says of such inputs: lines of either stream and of pages, and its exit code."""
    fill(folder, label)
    monkeypatch.chdir(folder)
    found: list[list] = []
    for run in runs:
        code = main([word.replace("NAME", label) for word in run.split()])
        out, err = capsys.readouterr()
        page = Path("page.html")
        html = page.read_text(encoding="utf-8") if page.exists() and "page" in run else ""
        found.append([run, code, *(text.split("\n") for text in (out, err, html))])
    return found


@lengths("runs", RUNS[:2], RUNS)
def test_labels_places_and_paths_are_text_on_the_screen_and_on_pages(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    hostile = said(tmp_path / "hostile", HOSTILE, runs, monkeypatch, capsys)
    tame = said(tmp_path / "tame", TAME, runs, monkeypatch, capsys)
    shown = 0
    for (run, code, *texts), (_, tame_code, *tame_texts) in zip(hostile, tame, strict=True):
        assert code == tame_code, run
        for lines, tame_lines in zip(texts, tame_texts, strict=True):
            assert all(line.isprintable() for line in lines), run
            assert len(lines) == len(tame_lines), run
            shown += any("\\x1b[2J" in line for line in lines)
    assert shown > len(runs) / 2


def run(command: str, folder: Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    shell = f'blue() {{ {sys.executable} -m blue_solvers.cli "$@"; }}\n{command}'
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    return subprocess.run(["bash", "-c", shell], cwd=folder, env=variables, capture_output=True, text=True, check=False)


ESTIMATE = f"blue estimate {examples.BERKELEY} --out out.csv"


@pytest.mark.few(1)
@pytest.mark.skipif(os.name != "posix", reason="descriptors of POSIX")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (f"{ESTIMATE} >&-", 0),
        (f"{ESTIMATE} 2>&-", 0),
        (f"{ESTIMATE} <&- >&- 2>&-", 0),
        (f"{ESTIMATE} >/dev/full 2>&-", 1),
        (f"{ESTIMATE} 2>/dev/full", 0),
        (f"{ESTIMATE} 2> >(exit 0)", 0),
        (f"set -o pipefail; {ESTIMATE} | true", None),
        (f"set -o pipefail; {ESTIMATE} | head -1", None),
    ],
)
def test_the_work_is_done_whoever_listens(command: str, code: int | None, tmp_path: Path) -> None:
    done = run(command, tmp_path)
    assert done.returncode == code or (code is None and done.returncode in (0, 1))
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert (tmp_path / "out.csv").read_text().count("\n") == 64


@pytest.mark.few(1)
@pytest.mark.skipif(os.name != "posix", reason="descriptors of POSIX")
@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("blue demo | head -1", 0, ""),
        ("blue --help | true", 0, ""),
        ("blue estimate --help | true", 0, ""),
        ("blue demo >/dev/full", 1, "blue-solvers: standard output: No space left on device\n"),
        ("blue --version >/dev/full", 1, "blue-solvers: standard output: No space left on device\n"),
        ("blue nonsense 2>&-", 2, ""),
        ("blue nonsense 2>/dev/full", 2, ""),
        ("blue info nowhere.csv 2>&- >&-", 2, ""),
    ],
)
def test_streams_that_end_are_no_more_than_a_line(command: str, code: int, error: str, tmp_path: Path) -> None:
    done = run(command, tmp_path)
    assert (done.returncode, done.stderr) == (code, error)


def test_the_work_goes_on_when_the_reader_leaves_before_it(tmp_path: Path) -> None:
    """More is said before the work than a pipe holds."""
    levels = "".join(f"sex,{'x' * 900}{i},1,1\n" for i in range(200))
    (tmp_path / "table.csv").write_text(f"table,sex,value,variance\ntotal,*,200,1\n{levels}")
    done = run("set -o pipefail; blue estimate table.csv --no-fit --out out.csv | head -1", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert (tmp_path / "out.csv").read_text().count("\n") == 202


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("broken")])
def test_what_happens_while_arguments_are_parsed_is_one_line(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "_parser", fail)
    assert main(["demo"]) == (130 if isinstance(error, KeyboardInterrupt) else 1)
    said = capsys.readouterr().err
    assert said.startswith("blue-solvers: ")
    assert said.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["other", "blue-solvers"])
def test_an_interrupt_while_arguments_are_parsed_is_one_line(name: str, tmp_path: Path) -> None:
    script = (
        f"import os, signal, sys; sys.argv = [{name!r}, 'demo']\n"
        "import blue_solvers.cli as cli\n"
        "known = cli.import_module\n"
        f"cli.import_module = lambda name: (os.kill(os.getpid(), {int(signal.SIGINT)}), known(name))[1]\n"
        "sys.exit(cli.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "blue-solvers: interrupted\n")


def test_warnings_of_libraries_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    import warnings

    def warn(_: object) -> None:
        warnings.simplefilter("always")
        warnings.warn(HOSTILE, stacklevel=1)

    monkeypatch.setattr("blue_solvers.commands.demo.run", warn)
    assert main(["demo"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("blue-solvers: f\\x1b[2J")
    assert said[:-1].isprintable()


def test_dollars_in_names_are_dollars_in_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    income = r"$\frac$ to $9"
    Path("table.csv").write_text(TABLE.format(label="f").replace("sex", income))
    Path("spine.csv").write_text(SPINE.format(label=income))
    assert main(["estimate", "table.csv", "--out", "out.csv", "--plot", "fit.svg"]) == 0
    assert main(["design", "spine.csv", "--entity", "place", "--plot", "spine.svg"]) == 0
