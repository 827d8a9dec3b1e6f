"""A signal ends the command in one line, whenever it comes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blue_solvers.signals import Unwinding
from tests.helpers.disturbances import begin, end
from tests.helpers.effort import lengths
from tests.helpers.places import ROOT

SAID = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


@pytest.mark.few(1)
@pytest.mark.parametrize("number", list(SAID))
@lengths("runs", 4, 12)
def test_at_any_moment(number: signal.Signals, runs: int) -> None:
    """From the first line of our code, through the loading of packages, to the end of the process."""
    rng = random.Random(int(number))
    ends = [end(begin(["demo"]), rng.uniform(0, 0.8), number) for _ in range(runs)]
    expected = {(128 + number, f"blue-solvers: {SAID[number]}\n"), (0, "")}
    assert {(ended.code, ended.said) for ended in ends} <= expected
    assert signal.getsignal(number) is signal.SIG_IGN or any(ended.code for ended in ends)


def test_while_packages_are_loaded(tmp_path: Path) -> None:
    """A package that takes long to load stands for slow disks."""
    (tmp_path / "polars.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-m", "blue_solvers.cli", "estimate", str(ROOT), "--out", str(tmp_path / "out")]
    (tmp_path / "scipy").mkdir()
    (tmp_path / "scipy" / "__init__.py").write_text((tmp_path / "polars.py").read_text())
    for number in (signal.SIGINT, signal.SIGTERM):
        run = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert run.stdout.readline() == "loading\n"
        run.send_signal(number)
        _, said = run.communicate(timeout=30)
        assert (run.returncode, said) == (128 + number, f"blue-solvers: {SAID[number]}\n")


def test_the_exit_code_is_ours_wherever_the_signal_came(tmp_path: Path) -> None:
    """A process that runs a module dies by the signal if a plain `KeyboardInterrupt` has left `exec` before."""
    (tmp_path / "mine.py").write_text(
        "import signal, sys, blue_solvers.cli as cli, blue_solvers.commands.demo as demo\n"
        "demo.run = lambda args: exec('import signal; signal.raise_signal(signal.SIGINT); [None for _ in range(10)]')\n"
        "sys.exit(cli.main(['demo']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-m", "mine"]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "blue-solvers: interrupted\n")


def test_a_signal_that_the_process_was_asked_to_ignore_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = begin(["demo"])
    finally:
        signal.signal(signal.SIGINT, before)
    ended = end(run, 0.2, signal.SIGINT)
    assert (ended.code, ended.said) == (0, "")


def test_an_import_of_the_package_leaves_signals_alone() -> None:
    script = (
        "import signal; before = [signal.getsignal(n) for n in (2, 15, 1)]; import blue_solvers.cli; "
        "assert [signal.getsignal(n) for n in (2, 15, 1)] == before"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_an_exception_that_a_destructor_drops_is_raised_anew(capsys: pytest.CaptureFixture) -> None:
    class Dropping:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def work() -> None:
        own: object = Dropping()
        del own
        time.sleep(5)

    unwinding = Unwinding(forever=False)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), unwinding:
        work()
    assert unwinding.message() == ("terminated", 143)
    assert capsys.readouterr().err == ""
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_that_a_signal_caused_is_that_signal() -> None:
    class Named:
        def __set_name__(self, owner: type, name: str) -> None:
            signal.raise_signal(signal.SIGTERM)

    unwinding = Unwinding(forever=False)
    with pytest.raises(KeyboardInterrupt), unwinding:
        type("Owner", (), {"own": Named()})  # RuntimeError, before Python 3.12
    assert unwinding.message() == ("terminated", 143)
