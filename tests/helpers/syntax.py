"""The syntax of files, read once by all that look at it."""

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """Of a file of Python."""
    return ast.parse(path.read_text())
