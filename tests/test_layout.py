"""The packages keep to the form of the house, and the tests are laid out as they are and share one way."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.every import every
from tests.helpers.places import ROOT
from tests.helpers.syntax import parsed

TESTS = ROOT / "tests"
PACKAGES = ["constraint_builders", "noise_mechanisms", "blue_solvers"]
SOURCES = sorted(TESTS.rglob("*.py"))
OURS = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@every("package", PACKAGES)
def test_folders_of_tests_are_folders_of_the_package(package: str) -> None:
    folders = {path.parent.relative_to(TESTS) for path in (TESTS / package).rglob("*.py")}
    assert folders
    assert all((ROOT / folder / "__init__.py").is_file() for folder in folders)


def test_nothing_but_whole_subjects_stands_outside() -> None:
    assert {path.name for path in TESTS.iterdir() if path.is_dir()} - {"__pycache__"} == {
        *PACKAGES,
        "each_extra",
        "facts",
        "first_hour",
        "helpers",
        "feature_support",
        "soak",
    }


@cache
def imported(path: Path) -> set[str]:
    """The modules that a file imports, and names from them."""
    tree = parsed(path)
    whole = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return whole | {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


@pytest.mark.few(0)
def test_what_tests_share_is_imported_from_the_root() -> None:
    own = {path.stem for path in SOURCES} | {path.name for path in TESTS.rglob("*") if path.is_dir()}
    for path in SOURCES:
        first = {name.partition(".")[0] for name in imported(path)}
        assert not first & (own - {*PACKAGES}), path


def test_no_helper_is_a_test_and_tests_import_no_tests() -> None:
    for path in SOURCES:
        if re.search(r"(?m)^\s*(from|import) tests\.(\w+\.)*test_", path.read_text()):
            shared = {name for name in imported(path) if name.startswith("tests.")}
            assert not [name for name in shared if name.rpartition(".")[2].startswith("test_")], path


def test_places_are_named_in_one_file() -> None:
    found = {path.name for path in SOURCES if "Path(__file__)" in path.read_text()}
    assert found - {Path(__file__).name} == {"places.py"}


def holding(pattern: str) -> list[str]:
    """The files of the packages with a line that a pattern is found in."""
    return [str(path.relative_to(ROOT)) for path in OURS if re.search(pattern, path.read_text())]


def test_no_file_is_longer_than_400_lines() -> None:
    assert len(OURS) > 200
    assert not [path for path in OURS if len(path.read_text().splitlines()) > 400]


def test_no_name_of_a_file_means_two_things() -> None:
    names = Counter(path.name for path in [*OURS, *SOURCES] if path.name != "__init__.py")
    assert not [name for name, times in names.items() if times > 1]


def test_no_name_of_a_class_means_two_things() -> None:
    trees = [parsed(path) for path in OURS]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert not [name for name, times in names.items() if times > 1]


def test_types_say_what_is_there() -> None:
    assert holding(r"is not None\b")
    assert not holding(r"assert [^\n]* is not None\b")
    assert len(holding(r"schema is (not )?None\b")) == 1


def test_scripts_and_checks_name_tests_that_are_there() -> None:
    texts = [path.read_text() for path in (ROOT / ".ci" / "run", *(ROOT / "scripts").iterdir()) if path.is_file()]
    named = {name for text in texts for name in re.findall(r"\btests/[\w/.]+\.py(?:::\w+)?", text)}
    assert len(named) > 10
    for path, _, test in (name.partition("::") for name in named):
        assert not test or f"def {test}(" in (ROOT / path).read_text(), test
        assert (ROOT / path).is_file(), path
