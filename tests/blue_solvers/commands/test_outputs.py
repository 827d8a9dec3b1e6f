"""Every subcommand, every output that it writes, every bad place for it: one line, and nothing is changed."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blue_solvers.cli import COMMANDS, _parser, main
from blue_solvers.commands.arguments import ReadPath, WrittenPath, settings_path, stored_result
from tests.helpers.every import every
from tests.helpers.refused_commands import exit_code, no_refusal, options_of

FOLDER = {"out": "new"}
PAGE = {"out": "new.html"}
RUNS: dict[str, tuple[str, dict[str, str]]] = {  # arguments, and the outputs that they may have
    "estimate, schema": ("estimate table.csv --schema schema.toml", {"out": "new.csv", "plot": "new.png"}),
    "estimate": ("estimate table.csv", {"out": "new.csv", "write_schema": "new.toml", "plot": "new.png"}),
    "estimate, folder": ("estimate release --totals totals.csv --settings settings.toml", FOLDER),
    "estimate, streamed": ("estimate release --memory 1e9", FOLDER),
    "joint": ("estimate table.csv second.csv", {"out": "new.csv"}),
    "joint, folders": ("estimate release other", FOLDER),
    "info": ("info table.csv", {"write_schema": "new.toml"}),
    "simulate": ("simulate blocks.csv --settings settings.toml --seed 1", FOLDER),
    "query": ("query result --geounits-file geounits.txt", {"out": "new.csv"}),
    "query, places": ("query result --places places.csv", {"out": "new.csv"}),
    "table": ("query result --table H10 --geoid 44001", {"out": "new.csv"}),
    "table, places": ("query result --table H10 --places geoids.csv", {"out": "new.csv"}),
    "compare": ("query result --table H10_002N --rank --geolevel county", {"out": "new.csv"}),
    "report": ("report table.csv --schema schema.toml", PAGE),
    "report, inferred": ("report table.csv", {"out": "new.html", "write_schema": "new.toml"}),
    "report, judged": ("report estimates.csv --measured table.csv", PAGE),
    "report, folder": ("report result", PAGE),
    "spine": ("design spine.csv --entity place", {"out": "new.csv", "plot": "new.png"}),
    "benchmark": (
        "benchmark --table table.csv --solver dense --columns 1",
        {"out": "new.csv", "plot": "new.png", "resume": "new.json"},
    ),
}
NONE = {"tables", "demo"}  # write nothing
CASES = [(run, option) for run, (_, outputs) in RUNS.items() for option in outputs]


def state_of(here: Path) -> dict[str, object]:
    """All that is there: bytes and modes of files, and where links lead."""
    return {
        str(path): os.readlink(path)
        if path.is_symlink()
        else (path.stat().st_mode, path.is_file() and path.read_bytes())
        for path in here.rglob("*")
    }


def words(run: str, **outputs: str) -> list[str]:
    """A command line with some of its outputs, and --out in any case."""
    line, known = RUNS[run]
    places = {**{option: place for option, place in known.items() if option == "out"}, **outputs}
    return [
        *line.split(),
        *(word for option, place in places.items() for word in (f"--{option.replace('_', '-')}", place)),
    ]


def inputs(run: str) -> list[str]:
    """The paths that a command line reads."""
    args = vars(_parser(words(run)).parse_args(words(run)))
    read = [path for value in args.values() for path in (value if isinstance(value, list) else [value])]
    return [str(path) for path in read if isinstance(path, ReadPath)]


def put(place: str, command: Callable[[Path], object]) -> str:
    command(Path(place))
    return place


def bad_places(run: str, option: str, good: str) -> Iterator[tuple[str, str]]:
    """Where an output may not go; what has to be there first is there."""
    suffix = Path(good).suffix
    for number, path in enumerate(inputs(run)):
        yield f"the input {path}", path
        yield f"{path} roundabout", f"./../here/{path}"
        yield f"below {path}", f"{path}/new{suffix}"
        yield f"a link to {path}", put(f"soft-{number}{suffix}", lambda own, path=path: own.symlink_to(path))
        yield f"inside {path} by a link", f"soft-{number}{suffix}/new{suffix}"
        if Path(path).is_dir():
            deep = next(own for own in sorted(Path(path).rglob("*.parquet")) if own.is_file())
            yield f"deep inside {path}", str(deep.with_name(f"new{suffix}"))
            yield f"over a file of {path}", str(deep)
        else:
            yield f"a hard link to {path}", put(f"hard-{number}{suffix}", lambda own, path=path: own.hardlink_to(path))
    yield "a link to itself", put(f"loop{suffix}", lambda own: own.symlink_to(own.name))
    yield "in no folder", f"nowhere/new{suffix}"
    yield "too long a name", "x" * 300 + suffix
    yield "no name", ""
    if suffix:
        yield "a folder", put(f"taken{suffix}", Path.mkdir)
        # a device that nobody can replace, neither root nor mutants
        yield "a device", put(f"device{suffix}", lambda own: own.symlink_to("/dev/pts/ptmx"))
        yield "a pipe", put(f"pipe{suffix}", os.mkfifo)
        if option not in ("write_schema", "resume"):
            yield "another ending", "new.txt"
    else:
        yield "a file that is there", put("taken", lambda own: own.write_text("mine"))
        if run != "estimate, streamed":  # which goes on there
            yield "an empty folder that is there", put("empty", Path.mkdir)
        yield "a folder that is there", put("full/own", lambda own: (own.parent.mkdir(), own.write_text("mine")))[:4]
    for other, place in RUNS[run][1].items():
        if other != option:
            yield f"that of --{other}", place


def refused(line: list[str], here: Path, capsys: pytest.CaptureFixture) -> list[str]:
    """What is wrong with how a command line is refused."""
    before = state_of(here)
    capsys.readouterr()
    code = exit_code(line)
    out, said = capsys.readouterr()
    complaints = no_refusal(code, said) + ([f"printed {out!r}"] if out else [])
    return complaints + ["changed something"] * (state_of(here) != before)


@pytest.mark.few(4)
@pytest.mark.parametrize(("run", "option"), CASES)
def test_bad_places_are_refused_and_nothing_is_changed(
    run: str, option: str, here: Path, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("matplotlib")
    found, tried = [], 0
    good = RUNS[run][1][option]
    for what, place in bad_places(run, option, good):
        outputs = {option: place}
        if what.startswith("that of --"):
            outputs[what.removeprefix("that of --")] = outputs[option]
        found += [f"{what}: {complaint}" for complaint in refused(words(run, **outputs), here, capsys)]
        tried += 1
    assert not found, "\n".join(found)
    assert tried > 5


@pytest.mark.few(1)
@pytest.mark.parametrize("run", RUNS)
def test_good_places_are_taken_and_the_mode_of_what_was_there_is_kept(run: str, here: Path) -> None:
    pytest.importorskip("matplotlib")
    outputs = RUNS[run][1]
    files = {option: place for option, place in outputs.items() if Path(place).suffix and option != "resume"}
    before = os.umask(0o022)
    os.umask(before)
    for mode in (None, 0o600, 0o640):
        for place in files.values():
            if mode is not None:
                Path(place).chmod(mode)
        assert main(words(run, **outputs)) == 0
        for place in files.values():
            assert Path(place).stat().st_size
            assert stat.S_IMODE(Path(place).stat().st_mode) == (mode or 0o666 & ~before)
        if not files:
            break


def test_a_file_that_nobody_else_may_read_is_never_readable_while_it_is_written(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("new.csv").touch(0o600)
    seen = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (seen.append(Path(old).stat().st_mode), replace(old, new)))
    assert main(words("estimate")) == 0
    assert [stat.S_IMODE(mode) for mode in seen] == [0o600]


@every("command", COMMANDS)
def test_every_path_says_whether_it_is_read_or_written_and_is_tried_here(command: str) -> None:
    known = {own for run, own in CASES if RUNS[run][0].split()[0] == command}
    for action in options_of(command):
        named = {"FILE", "FOLDER", "INPUT", "BLOCKS", "RESULT"} & {action.metavar}
        assert not named or action.type in (ReadPath, WrittenPath, stored_result), action.dest
        assert action.dest not in ("settings", "out", "plot") or action.type in (settings_path, WrittenPath), (
            action.dest
        )
        assert action.type is not WrittenPath or action.dest in known, action.dest
    assert known or command in NONE


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "text", ["precious", '{"problem": 3}\n', "[1]\n", "\xff", '{"prob', '{"problem": "a"}\nprecious']
)
def test_what_is_no_record_of_a_benchmark_is_never_written_over(
    text: str, here: Path, capsys: pytest.CaptureFixture
) -> None:
    Path("new.json").write_text(text, encoding="latin-1")
    line = words("benchmark", resume="new.json")
    if text == '{"prob':  # a first line that was cut short
        assert main(line) == 0
    else:
        assert refused(line, here, capsys) == []
