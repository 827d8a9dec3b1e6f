"""Commands that end with one line on standard error and exit code 2."""

import argparse
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from blue_solvers.cli import _parser, main

LONGEST_LINE = 500


def commands(text: str) -> list[tuple[list[str], str]]:
    """The cases of a table, one a line: a command's words, as one types them, and after an arrow what is said."""
    cases = [line.split(" => ", 1) for line in text.strip().splitlines()]
    return [(shlex.split(words), told.strip()) for words, told in cases]


def options_of(command: str) -> list[argparse.Action]:
    """Its flags and arguments, as the parser has them."""
    return list(_parser([command])._subparsers._group_actions[0].choices[command]._actions)  # type: ignore[union-attr, index]


def exit_code(words: Iterable[str]) -> int:
    """What a command ends with."""
    try:
        return main(list(words))
    except SystemExit as ended:
        return int(str(ended.code))


def no_refusal(code: int, said: str) -> list[str]:
    """What is wrong with how a command refuses something: nothing, where it ends with 2 and says one line."""
    found = [f"exit code {code}"] if code != 2 else []
    if said.count("\n") != 1 or not said.startswith("blue-solvers: "):
        found.append("not one line")
    if len(said) > LONGEST_LINE:
        found.append(f"{len(said)} characters")
    return [f"{what}: {said[:300]!r}" for what in found]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a run that ends with exit code 2."""
    capsys.readouterr()
    code = exit_code(arguments)
    error = capsys.readouterr().err
    assert not [what for what in no_refusal(code, error) if "characters" not in what], error
    return error


def remove_outputs(folder: Path) -> None:
    """All that is called ``out`` and so on."""
    for path in folder.glob("out*"):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
