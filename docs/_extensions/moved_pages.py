"""Pages that were merged or renamed: their old addresses lead to what has their content now."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

MOVED = {
    "adding_a_solver": "start/solvers.html#what-a-solver-must-do",
    "beyond_assumptions": "general_covariances.html",
    "first_hour": "start/tables.html",
    "mutants": "contributing.html",
    "open_doors": "other_tools.html",
    "others_judged": "comparison.html",
    "study_known_to_5_percent": "gallery/census/known_to_5_percent.html",
    "what_each_part_honours": "feature_support.html",
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>This page has moved</title>
<meta http-equiv="refresh" content="0; url={there}"></head>
<body><h1>This page has moved</h1><p>It is now <a href="{there}">here</a>.</p></body></html>
"""


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write a page that leads on for every old address."""
    if exception is None and app.builder.format == "html":
        for old, there in MOVED.items():
            (Path(app.outdir) / f"{old}.html").write_text(PAGE.format(there=there), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
