"""A page as HTML: one file, no script or style from elsewhere, and a policy by which browsers refuse any."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blue_solvers.about import __version__
from blue_solvers.reporting.page_parts import BY_ERROR, STD_ERROR, Page, Section, Shown, Tile
from constraint_builders.files.text_table import without_formulas
from constraint_builders.printable import counted, html_text

STYLE = Path(__file__).with_name("page.css")
SCRIPT = Path(__file__).with_name("page.js")
MOST_DECIMALS = 9
NOTHING = "–"
MINUS = re.compile(r"(?<![\w.)-])-(?=\d)|(?<=\de)-(?=\d)")  # before a number, or in its exponent: no line ends there


def html_of(page: Page) -> str:
    """One HTML document that holds all it needs.

    Parameters
    ----------
    page : Page

    Returns
    -------
    str
        Whatever the labels say, they are text there and nothing else.
    """
    style, script = STYLE.read_text(encoding="utf-8"), SCRIPT.read_text(encoding="utf-8")
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; base-uri 'none'"
    links = "".join(f'<li><a href="#{own.name}">{html_text(own.heading)}</a></li>' for own in page.sections)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f'<meta name="generator" content="blue-solvers {html_text(__version__)}">',
            f"<title>{html_text(page.title)}</title>\n<style>{style}</style>\n</head>\n<body>",
            '<a class="skip" href="#content">Skip to the content</a>',
            f"<header>\n<h1>{html_text(page.title)}</h1>\n<p>{html_text(page.subtitle)}</p>",
            f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n</header>',
            '<main id="content" tabindex="-1">',
            f'<dl class="tiles">{"".join(map(_tile, page.tiles))}</dl>',
            *map(_section, page.sections),
            '</main>\n<p id="said" class="hidden" role="status"></p>',
            f"<footer><p>Made by blue-solvers {html_text(__version__)}. This page loads nothing.</p></footer>",
            f"<script>{script}</script>\n</body>\n</html>\n",
        ]
    )


def _prose(text: str) -> str:
    return html_text(MINUS.sub("−", text))


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _tile(tile: Tile) -> str:
    value = f"<dd><strong>{_prose(tile.value)}</strong> <span>{_prose(tile.note)}</span></dd>"
    return f'<div class="tile {tile.tone}"><dt>{html_text(tile.label)}</dt>{value}</div>'


def _section(section: Section) -> str:
    parts = [f'<section aria-labelledby="{section.name}">\n<h2 id="{section.name}">{html_text(section.heading)}</h2>']
    parts += [f"<p>{_prose(sentence)}</p>" for sentence in section.sentences]
    if section.picture:
        label = html_text(f"Picture: {section.heading}")
        parts.append(f'<figure class="wide" tabindex="0" role="region" aria-label="{label}">{section.picture}</figure>')
    return "\n".join([*parts, *map(_table, section.tables), "</section>"])


def _table(shown: Shown) -> str:
    if shown.frame.is_empty():
        return f"<p>{html_text(shown.caption)}: none.</p>"
    numbers = [dtype.is_numeric() for dtype in shown.frame.dtypes]
    head = "".join(
        f'<th scope="col"{" class=number" if number else ""}>{html_text(name)}</th>'
        for name, number in zip(shown.frame.columns, numbers, strict=True)
    )
    place = shown.frame.columns.index(STD_ERROR) if STD_ERROR in shown.frame.columns else None
    formats = [shown.formats.get(name, "") for name in shown.frame.columns]
    body = "\n".join(
        _row(row, numbers, formats, None if place is None else row[place]) for row in shown.frame.iter_rows()
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="Table: {html_text(shown.caption)}">\n'
        f'<table class="sortable">\n<caption>{html_text(shown.caption)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>\n{_download(shown)}"
    )


def _row(row: Sequence[Any], numbers: Sequence[bool], formats: Sequence[str], std_error: float | None) -> str:
    cells = []
    for i, (value, number, form) in enumerate(zip(row, numbers, formats, strict=True)):
        if i == 0 and not number:
            cells.append(f'<th scope="row">{html_text(str(value))}</th>')
        elif not number:
            cells.append(f"<td>{NOTHING if value is None else html_text(str(value))}</td>")
        elif value is None or math.isnan(value):
            cells.append(f'<td class="number">{NOTHING}</td>')
        else:
            cells.append(f'<td class="number" data-v="{value!r}">{written(value, form, std_error)}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def written(value: float, form: str, std_error: float | None = None) -> str:
    """A number as people read it.

    Parameters
    ----------
    value : float
    form : str
        A format specification, by default of six digits; or `BY_ERROR`: decimals down to the second digit of the
        standard error.
    std_error : float, optional

    Examples
    --------
    >>> written(1234.5678, BY_ERROR, 0.123), written(1234.5678, BY_ERROR, 12.3), written(1234.5678, "+.1f")
    ('1,234.57', '1,235', '+1234.6')
    """
    if form == BY_ERROR:
        form = ",.10g" if std_error is None or not 0 < std_error < math.inf else f",.{_decimals(std_error)}f"
    return format(value, form or ",.6g").replace("-", "−")


def _decimals(std_error: float) -> int:
    return min(max(0, 1 - math.floor(math.log10(std_error))), MOST_DECIMALS)


def _download(shown: Shown) -> str:
    """The rows that are shown, with all digits, as a file within the page."""
    data = base64.b64encode(without_formulas(shown.frame).write_csv().encode()).decode()
    name = re.sub(r"[^a-z0-9]+", "_", shown.name.lower())
    size = counted(shown.frame.height, "row")
    return (
        f'<p class="download"><a download="{name}.csv" href="data:text/csv;charset=utf-8;base64,{data}">'
        f"Download {html_text(shown.name)} as CSV ({size})</a></p>"
    )
