"""What all pictures share: colours that everybody can tell apart, numbers in words, and names that fit.

References
----------
M. Okabe and K. Ito (2008), "Color Universal Design": the colours.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, "black")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "0.6"

WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e3, "thousand"))
LINE_HEIGHT, LETTER_WIDTH = 1.35, 0.62  # of text, in units of its size
MOST_MENTIONED = 6  # tables in a note
WHOLE = 1.22  # of the length of axes before anything stands beside them: what they and their labels have together
NAMES_SHARE = 0.5  # of that length, at most, for names
LEADER = 14  # points between a picture and the names beside it, for lines that lead to them


def in_words(number: float) -> str:
    """A number as it is read aloud, for the ticks of a logarithmic axis.

    Examples
    --------
    >>> [in_words(number) for number in (0.05, 1, 200, 1000, 20_000, 5e6)]
    ['0.05', '1', '200', '1 thousand', '20 thousand', '5 million']
    """
    for unit, word in WORDS:
        if abs(number) >= unit * (1 - 1e-9):
            return f"{number / unit:,.6g} {word}"
    return f"{number:.6g}"


def logarithmic(axes: Axes, which: str) -> None:
    """Make an axis, "x" or "y", logarithmic, its ticks at 1, 2 and 5 or at powers of ten alone, in words."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(abs(limit) for limit in axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200 * low else (1.0,), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda number, _: in_words(number)))
    axis.set_minor_formatter(NullFormatter())


def lines_that_fit(axes: Axes, which: str) -> int:
    """How many lines of text fit along an axis, "x" (turned) or "y", one after another."""
    return max(1, int(_length(axes, which) / (_pixels(axes) * LINE_HEIGHT)))


def wrapped(axes: Axes, text: str, beside: Sequence[str] = ()) -> str:
    """Text in lines no longer than axes are wide, or will be once names stand to their left."""
    letter = _pixels(axes) * LETTER_WIDTH
    names = letter * max((len(line) for name in beside for line in name.splitlines()), default=0)
    width = min(_length(axes, "x"), _length(axes, "x") * WHOLE - names)
    return "\n".join(textwrap.fill(line, max(20, int(width / letter))) for line in text.splitlines())


def folded(axes: Axes, names: Sequence[str], which: str) -> list[str]:
    """Names of what lies along an axis, in lines that leave it more than half of the picture."""
    across = _length(axes, "x" if which == "y" else "y")
    letters = max(12, int(NAMES_SHARE * across / (_pixels(axes) * LETTER_WIDTH)))
    return [textwrap.fill(printable(name), letters) for name in names]


def mentioned(names: Sequence[str]) -> str:
    """Some names and how many more there are, for a note."""
    more = len(names) - MOST_MENTIONED
    return ", ".join(map(printable, names[:MOST_MENTIONED])) + (f" and {more:,} more" if more > 0 else "")


def _length(axes: Axes, which: str) -> float:
    """Length of an axis as it is now, in pixels."""
    extent = axes.get_window_extent()
    return float(extent.width if which == "x" else extent.height)


def _pixels(axes: Axes) -> float:
    """Size of labels, in pixels."""
    from matplotlib.font_manager import FontProperties

    points = float(FontProperties(size=axes.xaxis.label.get_fontsize()).get_size_in_points())
    return points * axes.figure.dpi / 72


def name_columns(ax: Axes, centres: Float, names: Sequence[str]) -> None:
    """Names above a picture, evenly spaced, with lines that lead to the centres, (names,), of what they name."""
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    left, right = ax.get_xlim()
    places = left + (right - left) * (np.arange(len(names)) + 0.5) / len(names)
    ax.set_xticks(places, names, rotation=90)
    ax.tick_params(axis="x", length=0, pad=LEADER + 2, top=False, bottom=False, labeltop=True, labelbottom=False)
    at_border = blended_transform_factory(ax.transData, ax.transAxes)
    above = at_border + ScaledTranslation(0, LEADER / 72, ax.figure.dpi_scale_trans)
    line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
    for place, centre in zip(places, centres, strict=True):
        ax.annotate("", (centre, 1), (place, 1), at_border, above, arrowprops=line, annotation_clip=False)
