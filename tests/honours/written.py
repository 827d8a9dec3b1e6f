"""Write the tables that documents hold: ``python -m tests.honours.written`` after what they are made from changed."""

from __future__ import annotations

import re

from tests.helpers.places import DOCS, README
from tests.honours import capabilities, refusals

PAGE = DOCS / "feature_support.md"


def readme(text: str) -> str:
    """The README with the table of solvers."""
    own = capabilities.as_markdown() + "\n"
    written, count = re.subn(r"(?m)^\| solver \| exact for .*\n(\|.*\n)*", lambda _: own, text)
    assert count == 1
    return written


if __name__ == "__main__":
    README.write_text(readme(README.read_text()))
    PAGE.write_text(refusals.as_markdown())
