"""Commands of earlier versions do what their new words do, and say these."""

from pathlib import Path

import pytest

from blue_solvers.cli import main
from blue_solvers.commands.listed import COMMANDS, FORMER

SAME = {  # what was said, and what is said now
    "joint table.csv second.csv --out out.csv": "estimate table.csv second.csv --out out.csv",
    "table result H10 --geoid 44001": "query result --table H10 --geoid 44001",
    "table result H10 H4 --geolevel county": "query result --table H10 --table H4 --geolevel county",
    "table result H10 --places geoids.csv": "query result --table H10 --places geoids.csv",
    "compare result H10_002N --rank --geolevel county": "query result --table H10_002N --rank --geolevel county",
    "compare result H10_002N --over H10_001N --geoid 44001": (
        "query result --table H10_002N --over H10_001N --geoid 44001"
    ),
    "spine spine.csv --entity place --geoid geoid": "design spine.csv --entity place --geoid-column geoid",
}


@pytest.mark.few(4)
@pytest.mark.parametrize("former", SAME)
def test_former_words_give_the_same_and_say_the_new_ones(
    former: str, here: Path, capsys: pytest.CaptureFixture
) -> None:
    said = []
    for words in (SAME[former], former):
        capsys.readouterr()
        assert main(words.split()) == 0
        said.append(capsys.readouterr())
    assert said[0].out == said[1].out
    assert said[0].err == ""
    assert said[1].err == f"blue-solvers: this is now: {FORMER[former.split()[0]].now}\n"


def test_at_most_eight_commands_are_shown(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert len(COMMANDS) == 8
    assert all(f"\n    {name} " in shown for name in COMMANDS)
    assert not any(f"\n    {name} " in shown for name in FORMER)
    assert {name.split()[0] for name in SAME} | {"benchmark"} == set(FORMER)
