"""Write the tables that documents hold: ``python -m tests.feature_support.written`` after a change."""

import re

from tests.feature_support import capabilities, refusals
from tests.helpers.places import DOCS, README

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
