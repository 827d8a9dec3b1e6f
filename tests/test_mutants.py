"""What `scripts/mutants` runs: the same sample for a seed, changes that mean something, and who survives."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

pytest.importorskip("cosmic_ray", reason="scripts/mutants installs it")
pytest.importorskip("coverage", reason="scripts/mutants installs it")

from tests.helpers.mutation.lines_of_tests import concerned
from tests.helpers.mutation.sampling import AREAS, changes_meaning, files_by_area, mutants_of, sample

SOURCE = '''"""Two functions."""

from __future__ import annotations


def larger(a: int | None, b: int) -> int | None:
    return b if a is None or b > a else a


def forgotten(a: int) -> int:
    return a + 1
'''
TEST = """
from blue_solvers.two import forgotten, larger


def test_larger():
    assert [larger(None, 1), larger(1, 2), larger(3, 2)] == [1, 2, 3]


def test_forgotten():
    assert forgotten(1)
"""
TRY = """
import subprocess
import sys
from pathlib import Path

from tests.helpers.mutation.lines_of_tests import Tests
from tests.helpers.mutation.sampling import sample
from tests.helpers.mutation.trying import attempt

measuring = ["-m", "tests.helpers.mutation.lines_of_tests", "coverage.json", "tests"]
subprocess.run([sys.executable, *measuring], check=True)
tests = Tests.read(Path("coverage.json"))
for mutant in sample(Path(), ["blue_solvers"], None, 0):
    print("tried", mutant.line, attempt(mutant, tests, 60.0).killed)
"""


@pytest.mark.slow
def test_a_seed_means_one_sample_of_every_area() -> None:
    mutants = sample(ROOT, [], 20, 3)
    assert mutants == sample(ROOT, [], 20, 3)
    assert mutants != sample(ROOT, [], 20, 4)
    assert Counter(mutant.area for mutant in mutants) == dict.fromkeys(AREAS, 4)
    assert len({(mutant.path, mutant.line, mutant.column) for mutant in mutants}) == 20
    for mutant in mutants:
        before = (ROOT / mutant.path).read_text()
        assert mutant.text(before) != before


def test_every_file_is_of_one_area() -> None:
    files = [path for area in files_by_area(ROOT, []).values() for path in area]
    assert len(files) == len(set(files)) > 80
    with pytest.raises(ValueError, match="blue_solvers/nowhere: no Python file is there"):
        files_by_area(ROOT, ["blue_solvers/nowhere"])


def test_tests_of_a_file_are_those_of_its_folder_and_what_else_concerns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for path in ("blue_solvers/uncertainty/regions.py", "blue_solvers/quantiles.py"):
        assert concerned([path]) == ["tests/blue_solvers/uncertainty"]
    assert concerned(["blue_solvers/signals.py"]) == ["tests/blue_solvers"]
    of_readers = concerned(["constraint_builders/files/rows.py", "constraint_builders/files/labels.py"])
    assert {"tests/constraint_builders/files", "tests/first_hour/test_natural_mistakes.py"} < set(of_readers)
    for tests in (of_readers, concerned(path for own in files_by_area(ROOT, []).values() for path in own)):
        assert all((ROOT / path).exists() for path in tests)


def test_what_changes_only_annotations_is_no_mutant() -> None:
    mutants = [mutant for mutant in mutants_of("", "two.py", SOURCE) if changes_meaning(SOURCE, mutant)]
    assert {mutant.line for mutant in mutants} == {7, 11}
    assert {mutant.line for mutant in mutants_of("", "two.py", SOURCE)} == {6, 7, 11}


@pytest.mark.slow
def test_what_no_test_notices_survives(tmp_path: Path) -> None:
    """In a process and a tree of their own: every change of the one function is noticed, of the other most are not."""
    helpers = Path("tests", "helpers", "mutation")
    shutil.copytree(ROOT / helpers, tmp_path / helpers)
    for folder in ("tests", "tests/helpers", "blue_solvers", "constraint_builders"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "blue_solvers" / "two.py").write_text(SOURCE)
    (tmp_path / "tests" / "test_two.py").write_text(TEST)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", TRY], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    tried = Counter(line for line in done.stdout.splitlines() if line.startswith("tried"))
    assert tried["tried 7 False"] == 1  # of two equal numbers either is the larger: `>=`
    assert tried["tried 7 True"] > 5
    assert tried["tried 11 False"] > 5
    assert (tmp_path / "blue_solvers" / "two.py").read_text() == SOURCE
