"""The documentation site: `scripts/docs` builds it."""

import logging
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent / "_extensions")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
logging.getLogger("blue_solvers").setLevel(logging.WARNING)  # the code's colours come with a handler for everything

from pygments.lexers.special import TextLexer  # noqa: E402

from blue_solvers import __version__  # noqa: E402

project = "blue-solvers"
author = "the authors of blue-solvers"
copyright = "the authors of blue-solvers, Apache 2.0"
version = release = __version__
language = "en-GB"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "api_pages",  # ours: a page for every public module
    "plain_docstrings",  # ours: docstrings have no markup
    "outside_links",  # ours: links to numpy's and scipy's pages, without asking them
    "repository_links",  # ours: links out of docs/ that work on the site too
    "browser_page",  # ours: a page that runs lines in a browser, and the wheel that it installs there
]
templates_path = ["_templates"]
exclude_patterns = ["_*", "gallery/**/*.md5", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.json"]
nitpicky = True
default_role = "autolink"
highlight_language = "default"  # Python where it is, without complaint where it is a drawing

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # docstrings say types, shapes and units
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"

rooms_of_gallery = ["tables", "census", "forecasts", "networks", "solvers"]
gallery_order = [f"../examples/{room}" for room in rooms_of_gallery]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "subsection_order": gallery_order,
    "within_subsection_order": "FileNameSortKey",
    "copyfile_regex": r"^$",
    "doc_module": ("constraint_builders", "noise_mechanisms", "blue_solvers"),
    "reference_url": dict.fromkeys(("constraint_builders", "noise_mechanisms", "blue_solvers")),
    "backreferences_dir": "gallery/uses",
    "download_all_examples": False,
    "notebook_images": False,
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,  # pages that load tables and styles from other hosts
    "min_reported_time": 3600,
    "image_srcset": ["2x"],
    "thumbnail_size": (400, 280),
}

html_theme = "furo"
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
html_title = "blue-solvers"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False


def setup(app):
    """Know the language of files that pages show, which Pygments has no lexer for."""
    app.add_lexer("csv", TextLexer)
