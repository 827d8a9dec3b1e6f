"""Every number in every flag: the work is done and its figures are numbers, or one line says what is wrong."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from blue_solvers.cli import COMMANDS, _parser, main
from blue_solvers.commands.arguments import (
    ReadPath,
    WrittenPath,
    column_and_role,
    counted_part,
    listed_names,
    settings_path,
    variable_and_recode,
)
from tests.helpers.command_inputs import good_inputs
from tests.helpers.effort import lengths
from tests.helpers.every import every

NUMBERS = [
    "nan", "inf", "-1", "0", "1e400", "1e-400", "", " ", "-inf", "1", "2", "0.5", "1e308", "1e-320", "1e300", "1e-300",
    "9" * 400, "1e99999999", "1e-99999999", "-0", "+1", "1.", ".5", "1e5", "1_0", "0x10", "1,5", "1/0", "1/3", "-1/3",
    "\u0663", "\uff11", "\u00b2", "\u2155", "\u22121", "1\u00a00", "\x1b[2J", "None", "true", "1e", "e5", "1j", "1 2",
]  # fmt: skip
RUNS = {  # where a number may stand
    "estimate table.csv --out out.csv --level=N": "level",
    "estimate table.csv --out out.csv --digits=N": "digits",
    "estimate table.csv --out out.csv --rounded=N": "rounded",
    "estimate table.csv --out out.csv --rounded=nearest:N": "rounded",
    "estimate table.csv --out out.csv --variance=N": "variance",
    "estimate table.csv --out out.csv --skip-rows=N": "skip_rows",
    "estimate release --out out --memory=N": "memory",
    "estimate table.csv second.csv --out out.csv --level=N": "level",
    "estimate table.csv second.csv --out out.csv --digits=N": "digits",
    "simulate blocks.csv --settings settings.toml --out out --seed=N": "seed",
    "simulate blocks.csv --settings settings.toml --out out --seed 1 --widths=State=N,County=5": "widths",
    "query result --all --geolevel County --level=N": "level",
    "query result --all --geolevel County --out out.csv --digits=N": "digits",
    "query result --table H10 --geoid 44001 --level=N": "level",
    "query result --table H10 --geoid 44001 --out out.csv --digits=N": "digits",
    "query result --table H10 --geoid=N": "geoid",
    "query result --table H10_N --geoid 44001": "",
    "query result --table H10_002N --rank --geolevel county --level=N": "level",
    "report table.csv --out out.html --level=N": "level",
    "report table.csv --out out.html --rounded=N": "rounded",
    "report table.csv --out out.html --variance=N": "variance",
    "report table.csv --out out.html --skip-rows=N": "skip_rows",
    "report release --out out.html --memory=N": "memory",
    "info table.csv --rounded=N": "rounded",
    "info table.csv --variance=N": "variance",
    "info table.csv --skip-rows=N": "skip_rows",
    "design spine.csv --entity place --out out.csv --loss=N": "loss",
    "design spine.csv --entity place --out out.csv --share State=N": "share",
    "design spine.csv --entity place --out out.csv --measure-entities=N": "measure_entities",
    "design spine.csv --entity place --out out.csv --fanout-cutoff=N": "fanout_cutoff",
    "benchmark --table table.csv --solver dense --columns=N": "columns",
    "benchmark --table table.csv --solver dense --columns 1 --timeout=N": "timeout",
    "demo --seed=N": "seed",
}
TEXTS = (ReadPath, WrittenPath, settings_path, listed_names, column_and_role, variable_and_recode)
TEXTS += (counted_part, str, None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good inputs of all kinds."""
    return good_inputs(tmp_path_factory.mktemp("made"))


def complaints(line: list[str], capfd: pytest.CaptureFixture) -> Iterator[str]:
    """What is wrong with how a command line ends."""
    before = sorted(Path().rglob("*"))
    try:
        code = main(line)
    except SystemExit as exit_:
        code = int(str(exit_.code))
    out, said = capfd.readouterr()
    if code == 0:
        if said and not said.startswith("blue-solvers: this is now: "):
            yield f"succeeded and said {said[:200]!r}"
        if re.search(r"\b(nan|inf)\b", out):
            yield f"printed {re.findall('.*nan.*|.*inf.*', out)[0]!r}"
    else:
        if code != 2 or said.count("\n") != 1 or not said.startswith("blue-solvers: ") or len(said) > 500:
            yield f"code {code}: {said[:300]!r}"
        if sorted(Path().rglob("*")) != before:
            yield "left something"
    for path in Path().glob("out*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.few(2)
@lengths("every", 3, 1)
@pytest.mark.parametrize("run", RUNS)
def test_any_number_is_taken_or_refused_in_one_line(
    run: str, every: int, made: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(made)
    capfd.readouterr()
    start = list(RUNS).index(run) % every
    found = []
    for number in NUMBERS[:6] + NUMBERS[6 + start :: every]:
        line = [re.sub("N(?![A-Za-z])", lambda _, own=number: own, word) for word in run.split()]
        found += [f"{number[:20]!r}: {complaint}" for complaint in complaints(line, capfd)]
    assert not found, "\n".join(found)


@every("command", COMMANDS)
def test_every_flag_that_takes_a_number_is_tried_here(command: str) -> None:
    actions = _parser([command])._subparsers._group_actions[0].choices[command]._actions  # type: ignore[union-attr, index]
    numbers = {action.dest for action in actions if action.type not in TEXTS}
    assert numbers <= {flag for run, flag in RUNS.items() if run.split()[0] == command}
