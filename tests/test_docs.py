"""Everything that the documentation shows runs: doctests, python blocks, commands."""

import doctest
import importlib
import os
import pkgutil
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from blue_solvers.cli import main
from tests.helpers.places import DOCS, README, ROOT

PACKAGES = ["constraint_builders", "noise_mechanisms", "blue_solvers"]
PAGES = [page for page in [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("**/*.md"))] if page.is_file()]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def modules() -> list[str]:
    names = list(PACKAGES)
    for package in PACKAGES:
        path = [str(ROOT / package)]
        names += [
            found.name for found in pkgutil.walk_packages(path, f"{package}.") if not found.name.endswith("__main__")
        ]
    return names


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text()) if language in languages]


def test_doctests() -> None:
    tried = 0
    for name in modules():
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if os.environ.get("CI") or (error.name or "").split(".")[0] in PACKAGES:
                raise
            continue  # an extra that is not installed
        runner = doctest.DocTestRunner()
        for test in doctest.DocTestFinder().find(module, name):
            if test.examples:
                runner.run(test)
        assert not runner.failures, name
        tried += runner.tries
    assert tried > 20


@pytest.mark.few(1)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run_in_order(
    page: Path, own_laws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType(f"page_{page.stem}")  # classes that a page defines are found, and pickled, by their module
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = module.__dict__
    for number, text in enumerate(blocks(page, "python", "py"), 1):
        if ">>>" in text:
            test = doctest.DocTestParser().get_doctest(text, names, f"{page.name} block {number}", str(page), 0)
            runner = doctest.DocTestRunner()
            runner.run(test, clear_globs=False)
            names.update(test.globs)
            assert not runner.failures
        else:
            exec(compile(text, f"{page.name} block {number}", "exec"), names)


def test_the_first_pages_say_how_to_install_what_they_import() -> None:
    """Beside what `pip install ".[frames,fast]"` brings."""
    brought = {*sys.stdlib_module_names, *PACKAGES, "numpy", "scipy", "polars", "pyarrow"}
    for page in (README, DOCS / "index.md", *DOCS.glob("start/*.md")):
        found = re.findall(r"^(?:import|from) (\w+)", "\n".join(blocks(page, "python")), re.MULTILINE)
        for name in {*found} - brought:
            assert re.search(rf"pip install .*\b{name}\b", page.read_text()), f"{page.name}: {name}"


def test_the_drawing_shows_the_floors_that_are_held() -> None:
    """Every room of a package, from the highest floor to the lowest."""
    held = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contracts = [contract for contract in held if contract["type"] == "layers"]
    drawings = blocks(DOCS / "architecture.md", "")
    assert len(drawings) == len(contracts) == 3
    for contract, drawing in zip(contracts, drawings, strict=True):
        floors = [[room.split(".", 1)[-1].strip() for room in floor.split("|")] for floor in contract["layers"]]
        shown = [[re.search(rf"(?<!\S){re.escape(room)}(?!\S)", drawing) for room in rooms] for rooms in floors]
        assert all(found is not None for rooms in shown for found in rooms), contract["name"]
        lines = [drawing.count("\n", 0, rooms[0].start()) for rooms in shown if rooms[0] is not None]
        assert lines == sorted(lines), contract["name"]


@pytest.mark.parametrize(("row", "figure"), [("Rhode Island's 26,246", "0.66 s"), ("12 binary variables", "9.2 ms")])
def test_the_figures_of_the_readme_are_those_of_the_page(row: str, figure: str) -> None:
    [line] = [line for line in (DOCS / "figures.md").read_text().splitlines() if line.startswith(f"| {row}")]
    assert f"| {figure} |" in line
    assert figure in README.read_text()


def test_the_first_pages_are_short() -> None:
    text = README.read_text()
    assert len(text.split()) <= 900
    assert max(map(len, text.splitlines())) <= 120
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 60


def test_the_guides_and_the_start_pages_have_at_most_30000_words() -> None:
    pages = [*DOCS.glob("*.md"), *DOCS.glob("start/*.md")]
    assert len(pages) > 25
    assert sum(len(page.read_text().split()) for page in pages) <= 30_000


def commands() -> list[str]:
    lines = [
        line for page in PAGES for text in blocks(page, "sh", "bash", "console", "shell") for line in text.splitlines()
    ]
    shown = [line.removeprefix("$ ").strip() for line in lines]
    return sorted({line for line in shown if line.startswith(("blue-solvers ", "python -m blue_solvers"))})


@pytest.mark.parametrize("line", commands())
def test_shown_commands_exist(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its subcommand has help, which knows every option that is shown."""
    words = line.split()
    words = words[1:] if words[0] == "blue-solvers" else words[3:]
    subcommand = [word for word in words[:1] if not word.startswith("-")]
    with pytest.raises(SystemExit) as ended:
        main([*subcommand, "--help"])
    assert not ended.value.code
    help_text = capsys.readouterr().out
    for option in (word.partition("=")[0] for word in words if word.startswith("--")):
        assert option in help_text
