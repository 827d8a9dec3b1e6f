"""What a page is made of, before it is text: sections, sentences, tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from constraint_builders.tied_together import TiedTogether

MOST_ROWS = 1_000  # of estimates on a page: more make it slow to open, and are in the result's own file
MOST_NAMED = 10  # cells among the largest
BY_ERROR = "by error"  # the format of numbers with as many decimals as their row's standard error deserves
STD_ERROR = "std error"

GOOD, DOUBT, PLAIN = "good", "doubt", "plain"


@dataclass(frozen=True)
class Shown:
    """A table of the page.

    Attributes
    ----------
    name : str
        Of the file that it is downloaded as.
    caption : str
    frame : polars.DataFrame
        Text and numbers; null where there is nothing to say.
    formats : mapping of str to str
        How numbers of a column are written: a format specification, or `BY_ERROR`.
    """

    name: str
    caption: str
    frame: pl.DataFrame
    formats: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tile:
    """One fact of the first lines: what it is, how much, and what that means."""

    label: str
    value: str
    note: str
    tone: str = PLAIN


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it: sentences, then a picture (SVG), then tables."""

    name: str
    heading: str
    sentences: Sequence[str]
    picture: str = ""
    tables: Sequence[Shown] = ()


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes
    ----------
    title, subtitle : str
    tiles : sequence of Tile
    sections : sequence of Section
    doubt : str
        What is doubtful about what was measured; empty if nothing is.
    places : callable, optional
        Of a geolevel, the first number of every place, or more numbers, which may not all be listed.
    """

    title: str
    subtitle: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    doubt: str = ""
    places: Callable[[str], pl.DataFrame] | None = None


def tied_tile(tied: TiedTogether) -> Tile:
    """What ties the numbers together."""
    first, _, rest = str(tied).partition("; ")
    return Tile("Tied by", first, rest, DOUBT if tied.is_loose else PLAIN)


def shown_of(shown: int, there: int, what: str) -> str:
    """How much of something is on the page, in a sentence."""
    if shown == there:
        return f"All {there:,} {what} are shown." if there != 1 else f"The only one of the {what} is shown."
    return f"The first {shown:,} of {there:,} {what} are shown; all of them are in the file of the result."


def small(number: float) -> str:
    """A bound in two digits."""
    return f"{number:.2g}"
