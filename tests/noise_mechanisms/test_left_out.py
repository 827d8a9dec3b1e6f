"""Noise that leaves sums unchanged can be left out of an installation: nothing outside it imports it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.helpers.places import ROOT

PACKAGES = ("constraint_builders", "noise_mechanisms", "blue_solvers")
OPTIONAL = "noise_mechanisms.integer_subspace"
# Every module of the packages, in an installation without that one.
IMPORT_THE_REST = f"""
import importlib, pkgutil, sys
sys.modules["{OPTIONAL}"] = None
count = 0
for package in {PACKAGES}:
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not found.name.startswith("{OPTIONAL}") and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
            count += 1
print(count)
"""


def imported(path: Path) -> set[str]:
    """The modules that a file imports, at its top or inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_nothing_outside_imports_integer_subspaces() -> None:
    inside = ROOT / OPTIONAL.replace(".", "/")
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if inside not in path.parents]
    assert len(files) > 100
    importing = {str(path) for path in files if any(name.startswith(OPTIONAL) for name in imported(path))}
    assert importing == set()


def test_everything_else_is_imported_where_it_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_THE_REST], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
