"""Noise that leaves sums unchanged can be left out of an installation: nothing outside it imports it."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

PACKAGES = ("constraint_builders", "noise_mechanisms", "blue_solvers")
OPTIONAL = "noise_mechanisms.integer_subspace"
# Every module of the packages, in an installation without that one, and what noise is drawn for.
USE_THE_REST = f"""
import importlib, importlib.util, pkgutil, sys
assert importlib.util.find_spec("{OPTIONAL}") is None
count = 0
for package in {PACKAGES}:
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
            count += 1
from blue_solvers import blue
from blue_solvers.nonnegative import counts_posterior
from blue_solvers.uncertainty import intervals
from constraint_builders import Problem, Schema
from noise_mechanisms import *
import noise_mechanisms
assert "BoundedMechanism" not in dir(noise_mechanisms)
schema = Schema({{"sex": 2, "age": 2}})
problem = Problem(schema, {{"total": 0.0, "sex": 2.0, "detailed": 3.0}}, noise="discrete_gaussian")
y = add_noise(problem, problem.marginal_matrix() @ [20.0, 30, 40, 50], rng=1)
assert intervals(blue(problem), y, method="distribution_free", draws=99, rng=1)[0].size == problem.desired.size
assert counts_posterior(problem, y, effective=20, rng=1).effective_sizes.min() >= 20
print(count)
"""


def imported(path: Path) -> set[str]:
    """The modules that a file imports, at its top or inside functions, but for what only a type checker reads."""
    names, tree = set(), ast.parse(path.read_text())
    checked = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    unread = {id(own) for node in checked for statement in node.body for own in ast.walk(statement)}
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_nothing_outside_imports_integer_subspaces() -> None:
    inside = ROOT / OPTIONAL.replace(".", "/")
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if inside not in path.parents]
    assert len(files) > 100
    naming = [path for path in files if OPTIONAL.rpartition(".")[2] in path.read_text()]
    importing = {str(path) for path in naming if any(name.startswith(OPTIONAL) for name in imported(path))}
    assert importing == set()


@pytest.mark.few(0)
def test_everything_else_works_where_it_is_missing(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=without_it)
    done = subprocess.run([sys.executable, "-c", USE_THE_REST], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def without_it(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__" or name == OPTIONAL.rpartition(".")[2]]
