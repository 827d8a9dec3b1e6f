"""Thousands of malformed files: each is valid, or refused in one line that names a file, and nothing is left."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import polars as pl
import pytest

from blue_solvers.cli import main
from tests.helpers import malformed
from tests.helpers.effort import lengths
from tests.helpers.refused_commands import exit_code, no_refusal, remove_outputs

MOST_SECONDS = 60.0  # each takes milliseconds, on a busy machine seconds: only what would not end takes longer
MOST_BYTES = 400e6  # of peak memory above that before

SPINE = ("design", "spine.csv", "--entity", "place", "--out", "out.csv")
ESTIMATE = ("estimate", "table.csv", "--schema", "schema.toml", "--out", "out.csv")
SIMULATE = ("simulate", "blocks.csv", "--settings", "settings.toml", "--seed", "1", "--out", "out")
MEASUREMENTS = "release/Block.parquet/DPQuery/part-0.parquet"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> Path:
    """A good file of every kind."""
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("table.csv", malformed.TABLE),
        ("schema.toml", malformed.SCHEMA),
        ("settings.toml", malformed.SETTINGS),
        ("blocks.csv", malformed.BLOCKS),
        ("spine.csv", malformed.SPINE_BLOCKS),
        ("geounits.txt", malformed.GEOUNITS),
    ):
        (tmp_path / name).write_text(text)
    assert main([*SIMULATE[:-1], "release"]) == 0
    assert main(["estimate", "release", "--out", "result"]) == 0
    capfd.readouterr()
    return tmp_path


def typed(text: str, numbers: Iterable[str]) -> pl.DataFrame:
    return pl.read_csv(text.encode(), infer_schema=False).with_columns(pl.col(*numbers).cast(pl.Float64))


def broken(how: Callable[[str], Iterable], good: str, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Files of no kind, a good one broken by rule, and by chance."""
    yield from (*malformed.of_bytes(), *how(good), *malformed.of_chance(good.encode(), seed, count))


def changed(command: Iterable[str], name: str, new: str) -> list[str]:
    return [new if word == name else word for word in command]


def complaints(command: list[str], name: str, capfd: pytest.CaptureFixture, folder: Path) -> Iterator[str]:
    """What is wrong with how a command ends."""
    before, start = sorted(folder.rglob("*")), time.process_time()
    try:
        code = exit_code(command)
    except BaseException as error:  # a panic of polars is no Exception
        yield f"{type(error).__name__} escaped"
        return
    said = capfd.readouterr().err
    if time.process_time() - start > MOST_SECONDS:
        yield f"took {time.process_time() - start:.1f} s"
    if code == 0:
        if said:
            yield f"succeeded and said {said[:200]!r}"
        return
    yield from no_refusal(code, said)
    if re.search(r"\w\.(csv|toml|parquet|txt|xlsx)\b|release|\bout: |x{99}", said) is None:
        yield f"named no file: {said[:300]!r}"
    if sorted(folder.rglob("*")) != before:
        yield f"left something: {sorted(set(folder.rglob('*')) - set(before))}"


def peak_memory() -> float:
    status = Path("/proc/self/status")
    return 1024.0 * int(status.read_text().partition("VmHWM:")[2].split()[0]) if status.exists() else 0.0


MEASURED = ["value", "variance"]
TABLES = {
    "text tables": lambda: broken(malformed.of_text_table, malformed.TABLE, 1, 150),
    "tables of geounits": lambda: broken(malformed.of_text_table, malformed.GEOGRAPHY, 9, 100),
    "totals": lambda: broken(malformed.of_text_table, malformed.TOTALS, 10, 50),
    "sheets": lambda: (*malformed.of_bytes(), *malformed.of_chance(malformed.workbook(malformed.TABLE), 11, 150)),
    "typed tables": lambda: (
        *malformed.of_bytes(),
        *malformed.of_types(typed(malformed.TABLE, MEASURED)),
        *malformed.of_chance(malformed.parquet(typed(malformed.TABLE, MEASURED)), 2, 150),
    ),
    "schemas": lambda: broken(malformed.of_toml, malformed.SCHEMA, 3, 100),
    "settings": lambda: broken(malformed.of_toml, malformed.SETTINGS, 4, 100),
    "counts": lambda: broken(malformed.of_text_table, malformed.BLOCKS, 5, 100),
    "typed counts": lambda: malformed.of_types(typed(malformed.BLOCKS, ["count"])),
    "blocks": lambda: broken(malformed.of_text_table, malformed.SPINE_BLOCKS, 6, 50),
    "geounits": lambda: broken(lambda _: (), malformed.GEOUNITS, 7, 50),
}
CASES: list[tuple[str, list[str], str]] = [
    ("text tables", changed(ESTIMATE, "table.csv", "bad.csv"), "bad.csv"),
    ("text tables", ["info", "bad.csv"], "bad.csv"),
    ("tables of geounits", ["estimate", "bad.csv", "--out", "out.csv"], "bad.csv"),
    ("totals", ["estimate", "release", "--totals", "bad.csv", "--out", "out"], "bad.csv"),
    ("sheets", changed(ESTIMATE, "table.csv", "bad.xlsx"), "bad.xlsx"),
    ("typed tables", changed(ESTIMATE, "table.csv", "bad.parquet"), "bad.parquet"),
    ("schemas", changed(ESTIMATE, "schema.toml", "bad.toml"), "bad.toml"),
    ("settings", changed(SIMULATE, "settings.toml", "bad.toml"), "bad.toml"),
    ("settings", ["estimate", "release", "--settings", "bad.toml", "--out", "out"], "bad.toml"),
    ("counts", changed(SIMULATE, "blocks.csv", "bad.csv"), "bad.csv"),
    ("typed counts", changed(SIMULATE, "blocks.csv", "bad.parquet"), "bad.parquet"),
    ("blocks", changed(SPINE, "spine.csv", "bad.csv"), "bad.csv"),
    ("geounits", ["query", "result", "--geounits-file", "bad.txt"], "bad.txt"),
]


@pytest.mark.few(2)
@lengths("every", 13, 1)
@pytest.mark.parametrize(("kind", "command", "name"), CASES)
def test_malformed_files_are_refused_in_one_line(
    kind: str, command: list[str], name: str, every: int, folder: Path, capfd: pytest.CaptureFixture
) -> None:
    refuse_all(TABLES[kind](), every, command, folder / name, folder, capfd)


@lengths("every", 13, 1)
def test_malformed_measurement_files_are_refused_in_one_line(
    every: int, folder: Path, capfd: pytest.CaptureFixture
) -> None:
    good = pl.read_parquet(folder / MEASUREMENTS)
    files = [
        *malformed.of_bytes(),
        *malformed.of_types(good),
        *malformed.of_chance((folder / MEASUREMENTS).read_bytes(), 8, 150),
    ]
    refuse_all(files, every, ["estimate", "release", "--out", "out"], folder / MEASUREMENTS, folder, capfd)


def refuse_all(
    files: Iterable[tuple[str, bytes]],
    every: int,
    command: list[str],
    path: Path,
    folder: Path,
    capfd: pytest.CaptureFixture,
) -> None:
    """Run a command on each file, or one in every few, and show all that end badly."""
    found, tried, valid, before = [], 0, 0, peak_memory()
    for what, data in islice(files, None, None, every):
        path.write_bytes(data)
        found += [f"{what}: {complaint}" for complaint in complaints(command, path.name, capfd, folder)]
        tried, valid = tried + 1, valid + any(folder.glob("out*"))
        remove_outputs(folder)
    assert not found, f"{len(found)} of {tried}:\n" + "\n".join(found[:20])
    assert tried * every > 30
    assert valid < tried / 2  # most must be malformed for this to say anything
    assert peak_memory() - before < MOST_BYTES
