"""Every number in every flag: the work is done and its figures are numbers, or one line says what is wrong."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from blue_solvers.cli import COMMANDS
from blue_solvers.commands.arguments import (
    ReadPath,
    WrittenPath,
    column_and_role,
    counted_part,
    listed_names,
    settings_path,
    stored_result,
    variable_and_recode,
)
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.refused_commands import exit_code, no_refusal, options_of, remove_outputs

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
TEXTS += (counted_part, stored_result, str, None)


def complaints(line: list[str], capfd: pytest.CaptureFixture) -> Iterator[str]:
    """What is wrong with how a command line ends."""
    before = sorted(Path().rglob("*"))
    code = exit_code(line)
    out, said = capfd.readouterr()
    if code == 0:
        if said and not said.startswith("blue-solvers: this is now: "):
            yield f"succeeded and said {said[:200]!r}"
        if re.search(r"\b(nan|inf)\b", out):
            yield f"printed {re.findall('.*nan.*|.*inf.*', out)[0]!r}"
    else:
        yield from no_refusal(code, said)
        if sorted(Path().rglob("*")) != before:
            yield "left something"
    remove_outputs(Path())


@pytest.mark.few(2)
@lengths("every", 3, 1)
@pytest.mark.parametrize("run", RUNS)
def test_any_number_is_taken_or_refused_in_one_line(
    run: str, every: int, here: Path, capfd: pytest.CaptureFixture
) -> None:
    capfd.readouterr()
    start = list(RUNS).index(run) % every
    found = []
    for number in NUMBERS[:6] + NUMBERS[6 + start :: every]:
        line = [re.sub("N(?![A-Za-z])", lambda _, own=number: own, word) for word in run.split()]
        found += [f"{number[:20]!r}: {complaint}" for complaint in complaints(line, capfd)]
    assert not found, "\n".join(found)


@every("command", COMMANDS)
def test_every_flag_that_takes_a_number_is_tried_here(command: str) -> None:
    numbers = {action.dest for action in options_of(command) if action.type not in TEXTS}
    assert numbers <= {flag for run, flag in RUNS.items() if run.split()[0] == command}
