"""Commands that end with one line on standard error and exit code 2."""

from __future__ import annotations

import pytest

from blue_solvers.cli import main


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
