"""Small files that would crash a process or fill its memory are refused in one line, whatever reads them."""

import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from blue_solvers.commands.listed import FORMER
from blue_solvers.results.checksums import read_sealed_json, seal_json, sha256
from tests.helpers import hostile
from tests.helpers.effort import lengths
from tests.helpers.limited_command import LimitedCommand
from tests.helpers.refused_commands import no_refusal, remove_outputs

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="it takes a Linux")

MOST_BYTES = 400e6  # of memory
NOW = f"blue-solvers: this is now: {FORMER['benchmark'].now}\n"  # what a former command says when it is done
BAD = "bad"  # where the name of a bad file goes

OF_TABLES = {
    "info": "info bad",
    "estimate": "estimate bad --out out.csv",
    "report": "report bad --out out.html",
    "simulate": "simulate bad --settings settings.toml --out out",
    "spine": "design bad --entity place --out out.csv",
    "joint": "estimate table.csv bad --out out.csv",
    "benchmark": "benchmark --table bad --solver dense --out out.csv",
    "report --measured": "report estimates.csv --measured bad --out out.html",
    "estimate --totals": "estimate release --totals bad --out out",
    "estimate --state-totals": "estimate release --state-totals bad --out out",
    "query --places": "query result --places bad --out out.csv",
    "table --places": "query result --table H10 --places bad --out out.csv",
    "compare --places": "query result --table H10_002N --minus H10_010N --places bad --out out.csv",
}
OF_OTHERS = {  # and the ending of its name
    "estimate table.csv --schema bad --out out.csv": ".toml",
    "info table.csv --schema bad": ".json",
    "estimate table.csv second.csv --schema bad --schema bad --out out.csv": ".toml",
    "simulate blocks.csv --settings bad --out out": ".toml",
    "estimate release --settings bad --out out": ".toml",
    "query result --geounits-file bad": ".txt",
    "benchmark --table table.csv --solver dense --resume bad": ".jsonl",
}
OF_RESULTS = {
    "info": "info result",
    "query": "query result --geounits 440010001001000",
    "table": "query result --table H10 --geoid 44",
    "tables": "tables result",
    "compare": "query result --table H10_002N --minus H10_010N --geoid 44",
    "report": "report result --out out.html",
}


@pytest.fixture(scope="module")
def command(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedCommand]:
    """One process for all runs that end well."""
    with LimitedCommand(shutil.copytree(made, tmp_path_factory.mktemp("good") / "here")) as command:
        yield command


def complaints(command: LimitedCommand, arguments: list[str], name: str) -> list[str]:
    """What is wrong with how a command refuses a file of some name."""
    before = sorted(command.folder.rglob("*"))
    ended = command.run(arguments)
    found = no_refusal(ended.code, ended.said)
    if name not in ended.said:
        found.append(f"no name: {ended.said[:300]!r}")
    if ended.bytes > MOST_BYTES:
        found.append(f"{ended.bytes:,} bytes of memory: {ended.said[:300]!r}")
    if sorted(command.folder.rglob("*")) != before:
        found.append(f"left {sorted(set(command.folder.rglob('*')) - set(before))}: {ended.said[:300]!r}")
    return found


def with_name(line: str, name: str) -> list[str]:
    return [name if word == BAD else word for word in line.split()]


def some(cases: Iterable[Any], number: int, every: int) -> Iterator[Any]:
    """One in every few cases, others for every number."""
    return islice(cases, number % every, None, every)


@pytest.mark.few(3)
@lengths("every", 23, 1)
@pytest.mark.parametrize("who", OF_TABLES)
def test_hostile_tables_are_refused_in_one_line(who: str, every: int, command: LimitedCommand) -> None:
    found = []
    for what, (ending, make) in some(hostile.TABLES.items(), list(OF_TABLES).index(who), every):
        path = command.folder / f"bad{ending}"
        path.write_bytes(make())
        said = complaints(command, with_name(OF_TABLES[who], path.name), path.name)
        found += [f"{what}: {complaint}" for complaint in said]
        path.unlink()
    assert not found, "\n".join(found)


ENDINGS = (".csv", ".csv.gz", ".xlsx", ".parquet", ".arrow")


TRIED = [pytest.param(who, marks=pytest.mark.slow) if who == "benchmark" else who for who in OF_TABLES]


@lengths("number", 2, 60)
@pytest.mark.parametrize("who", TRIED)  # a benchmark of what is read takes a second, and reads it as the others do
def test_damaged_tables_are_read_or_refused_in_one_line(who: str, number: int, command: LimitedCommand) -> None:
    found, refused = [], 0
    for tried, (ending, data) in enumerate(hostile.damaged(list(OF_TABLES).index(who), number)):
        path = command.folder / f"bad{ending}"
        path.write_bytes(data)
        said = complaints(command, with_name(OF_TABLES[who], path.name), path.name)
        if said[:1] in (["exit code 0: ''"], [f"exit code 0: {NOW!r}"]):
            assert len([complaint for complaint in said if "bytes of memory" in complaint]) == 0
            remove_outputs(command.folder)
        else:
            found += [f"number {tried}: {complaint}" for complaint in said]
            refused += 1
        path.unlink()
    assert not found, "\n".join(found)
    assert refused > 5


@lengths("every", 13, 1)
def test_what_stands_where_a_file_should_be_is_refused_in_one_line(every: int, command: LimitedCommand) -> None:
    of_tables = [
        (with_name(words, f"bad{ending}"), f"bad{ending}") for words in OF_TABLES.values() for ending in ENDINGS
    ]
    of_others = [(with_name(words, f"bad{ending}"), f"bad{ending}") for words, ending in OF_OTHERS.items()]
    found = []
    for number, (what, place) in enumerate(hostile.PLACES.items()):
        for arguments, name in [*some(of_tables, number, every), *of_others]:
            if "nothing" in what and "--resume" in arguments:
                continue  # what is not there yet is begun
            place(command.folder / name)
            said = complaints(command, arguments, name)
            found += [f"{what}, {arguments}: {complaint}" for complaint in said]
            (command.folder / name).rmdir() if what == "a folder" else (command.folder / name).unlink(missing_ok=True)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["settings.toml", "Block.parquet/DPQuery/State=44/part-0.parquet"])
def test_hostile_measurement_folders_are_refused_in_one_line(name: str, command: LimitedCommand) -> None:
    tables = {} if name == "settings.toml" else {w: m() for w, (e, m) in hostile.TABLES.items() if e == ".parquet"}
    places = {what: partial(Path.write_bytes, data=data) for what, data in tables.items()} | hostile.ENDLESS
    found = []
    for what, place in places.items():
        folder = command.folder / "measured"
        shutil.copytree(command.folder / "release", folder)
        (folder / name).unlink()
        place(folder / name)
        said = complaints(command, ["estimate", "measured", "--out", "out"], Path(name).name)
        found += [f"{what}: {complaint}" for complaint in said]
        shutil.rmtree(folder)
    assert not found, "\n".join(found)


@pytest.mark.few(1)
@pytest.mark.parametrize("who", OF_RESULTS)
@lengths("every", 7, 1)
def test_hostile_results_are_refused_in_one_line(every: int, who: str, command: LimitedCommand) -> None:
    """Of the files of a result each by itself; by default what stands in their place takes turns."""
    good = read_sealed_json(command.folder / "result" / "result.json")
    arguments = ["forged" if word == "result" else word for word in OF_RESULTS[who].split()]
    nested = hostile.nested_parquet(500)
    found: list[str] = []
    unread: set[str] = set()
    for number, name in enumerate(["result.json", *good["files"]]):
        places = {what: place for what, place in hostile.ENDLESS.items() if name == "result.json" or "hole" not in what}
        if name.endswith(".parquet"):
            places["500 records within one another"] = partial(Path.write_bytes, data=nested)
        for what, place in list(places.items())[number % every :: every]:
            folder = command.folder / "forged"
            shutil.copytree(command.folder / "result", folder)
            (folder / name).unlink()
            place(folder / name)
            if what not in hostile.ENDLESS:
                forged = {**good, "files": {**good["files"], name: sha256(folder / name)}}
                (folder / "result.json").write_text(seal_json(forged))
            said = complaints(command, arguments, "forged")
            shutil.rmtree(folder)
            if said[:1] == ["exit code 0: ''"]:  # it did not need this file
                unread.add(name)
            else:
                found += [f"{what} for {name}: {complaint}" for complaint in said]
    assert not found, "\n".join(found)
    assert "result.json" not in unread
    assert len(unread) < len(good["files"]) - 1  # the settings, and the spine
