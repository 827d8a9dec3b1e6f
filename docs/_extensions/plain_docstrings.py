"""Docstrings are written to be read as they are: formulas in plain text, code and formulas indented, without markup.

``|x|`` and ``*`` are no markup in them, and a block that is indented after an empty line, outside the lists of
parameters, is code or a formula.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

UNDERLINE = re.compile(r"^-{3,}$")
LISTS = {"Parameters", "Other Parameters", "Attributes", "Methods", "Returns", "Yields", "Raises", "Warns"}
LITERAL = re.compile(r"(``.*?``|`[^`]*`)")


def escaped(line: str) -> str:
    """A line whose bars and asterisks are no markup, but for what stands between backquotes."""
    parts = LITERAL.split(line)
    return "".join(
        part if k % 2 else re.sub(r"(?<!\\)[|*]", lambda mark: "\\" + mark[0], part) for k, part in enumerate(parts)
    )


def plain(lines: list[str]) -> list[str]:
    """Docstring lines as reStructuredText that shows them as they were written."""
    written: list[str] = []
    section, block = "", False
    for number, line in enumerate(lines):
        text = line.strip()
        if number + 1 < len(lines) and UNDERLINE.match(lines[number + 1]):
            section = text
        indented = line.startswith("    ") and section not in LISTS
        if text and not indented:
            block = False
        elif indented and not block and written and not written[-1].strip():
            block = True
            if not (len(written) > 1 and written[-2].rstrip().endswith("::")):
                written += ["::", ""]
        code = block or text.startswith((">>>", "...")) or section == "Examples"
        written.append(line if code else escaped(line))
    return written


def process(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Before numpydoc reads them."""
    lines[:] = plain(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect."""
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
