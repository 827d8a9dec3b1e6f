"""Progress: a bar on a terminal, a line now and then in a log, the time left where parts are alike."""

import itertools

import pytest

from blue_solvers.commands import screen as module
from blue_solvers.commands.screen import CLOCK, EVERY, LevelBar, progress


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test sets."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    CLOCK.begin()
    yield now
    monkeypatch.undo()
    CLOCK.begin()


def test_a_log_gets_a_line_now_and_then(seconds: list[float], capsys: pytest.CaptureFixture) -> None:
    for step in range(100):
        progress(f"step {step}")
        seconds[0] += 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"blue-solvers: step {EVERY:.0f}, {EVERY:.0f} s so far"
    assert lines[-1] == "blue-solvers: step 90, 1 min 30 s so far"
    assert len(lines) == 99 // EVERY


@pytest.mark.parametrize("alike", [True, False])
def test_parts_that_are_alike_tell_the_time_left(
    alike: bool, seconds: list[float], capsys: pytest.CaptureFixture
) -> None:
    with LevelBar("estimating", alike) as bar:
        for done in range(4, 10):
            bar(f"part {done}", done, 10)
            seconds[0] += 10
    lines = capsys.readouterr().err.splitlines()
    left = ", about 40 s left" if alike else ""  # four parts, of ten seconds each
    assert lines[0] == f"blue-solvers: estimating part 6, 7 of 10{left}, 20 s so far"
    assert len(lines) == 2


def test_a_terminal_shows_the_time_left_too(
    seconds: list[float], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with LevelBar("estimating", alike=True) as bar:
        for done in itertools.islice(itertools.count(), 3):
            bar("part", done, 3)
            seconds[0] += 90
    *shown, cleared, end = capsys.readouterr().err.split("\r")
    assert [own.rstrip() for own in shown[:2]] == ["", "estimating [                        ] 1/3 part"]
    assert shown[-1] == "estimating [################        ] 3/3 part, about 1 min 30 s left"
    assert (cleared.strip(), end) == ("", "")
