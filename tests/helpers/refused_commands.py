"""Commands that end with one line on standard error and exit code 2."""

import shlex

import pytest

from blue_solvers.cli import main


def commands(text: str) -> list[tuple[list[str], str]]:
    """The cases of a table, one a line: a command's words, as one types them, and after an arrow what is said."""
    cases = [line.split(" => ", 1) for line in text.strip().splitlines()]
    return [(shlex.split(words), told.strip()) for words, told in cases]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a run that ends with exit code 2."""
    capsys.readouterr()
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    error = capsys.readouterr().err
    assert code == 2, error
    assert error.startswith("blue-solvers: "), error
    assert error.count("\n") == 1, error
    return error
