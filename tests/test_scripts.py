"""The scripts install what is locked, once; what they run from elsewhere is named by its digest."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The scripts beside a .venv whose programs write down how they were called."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for path in [*(f".venv/bin/{name}" for name in ("pip", "python", "blue-solvers")), "bin/dpkg-query", "bin/apt-get"]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(
            f'#!/bin/sh\necho "{path} $*" >> "{tmp_path}/called"\necho "install ok installed"\n'
        )
        (tmp_path / path).chmod(0o755)
    return tmp_path


def called(tree: Path, script: str) -> list[str]:
    """Which programs a script calls to install something."""
    (tree / "called").unlink(missing_ok=True)
    environment = {**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["bash", f"scripts/{script}"], cwd=tree, env=environment, check=True, capture_output=True)
    lines = (tree / "called").read_text().splitlines()
    return [line for line in lines if re.match(r"\.venv/bin/pip|bin/apt-get|\.venv/bin/python -m pip", line)]


@pytest.mark.few(1)
@pytest.mark.parametrize("script", ["demo", "test"])
def test_a_second_run_installs_nothing(script: str, tree: Path) -> None:
    first = called(tree, script)
    assert first
    assert called(tree, script) == []
    with (tree / "requirements.lock").open("a") as file:
        file.write("# changed\n")
    assert called(tree, script) == first
    assert called(tree, script) == []


def test_an_installation_that_failed_is_tried_again(tree: Path) -> None:
    good = (tree / ".venv" / "bin" / "pip").read_text()
    (tree / ".venv" / "bin" / "pip").write_text(good + "exit 1\n")
    with pytest.raises(subprocess.CalledProcessError):
        called(tree, "demo")
    (tree / ".venv" / "bin" / "pip").write_text(good)
    assert called(tree, "demo")


def test_tests_take_what_is_locked_with_its_hashes(tree: Path) -> None:
    locked, own = called(tree, "test")
    assert "--require-hashes" in locked
    assert "requirements.lock" in locked
    assert "--no-deps" in own


@pytest.mark.skipif(not WORKFLOWS.exists(), reason="the sdist has no workflows")
def test_actions_are_named_by_their_digests() -> None:
    used = [line for path in WORKFLOWS.glob("*.yml") for line in path.read_text().splitlines() if "uses:" in line]
    assert used
    strange = [line for line in used if not re.search(r"uses: [\w\-]+/[\w\-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line)]
    assert strange == []
