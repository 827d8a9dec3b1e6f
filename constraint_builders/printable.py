"""Text that comes from data, where people read it: on one line, and nothing that a terminal or a page obeys."""

from __future__ import annotations

import html
import unicodedata


def printable(text: str) -> str:
    r"""Text in one line, each character that is not shown as itself (controls, breaks, directions) as its escape.

    Examples
    --------
    >>> printable("no" + chr(10) + "yes" + chr(27) + "[2J")
    'no\\nyes\\x1b[2J'
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def html_text(text: str) -> str:
    """The same where it stands in HTML."""
    return html.escape(printable(text))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if unicodedata.category(character) == "Zs" else ascii(character)[1:-1]


def counted(number: int, noun: str) -> str:
    """A number with its noun, for instance ``1 table`` or ``4,096 tables``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
