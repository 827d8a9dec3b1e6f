"""Pages of the repository are read where they lie, and link to one another; on the site some of them lie elsewhere."""

from __future__ import annotations

from sphinx.application import Sphinx

MOVED = {
    "](../CONTRIBUTING.md": "](contributing.md",
    "](../../CONTRIBUTING.md": "](../contributing.md",
    "](../CHANGELOG.md": "](changelog.md",
    "](../README.md": "](index.md",
    "](../examples/": "](gallery/index.rst",
}


def redirect(app: Sphinx, name: str, source: list[str]) -> None:
    """Point links out of docs/ at the pages that include what they lead to."""
    for there, here in MOVED.items():
        source[0] = source[0].replace(there, here)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect."""
    app.connect("source-read", redirect)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
