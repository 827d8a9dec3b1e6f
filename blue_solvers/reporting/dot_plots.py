"""Dot plots as SVG: a row for each name, whose colours the page chooses for light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from constraint_builders.printable import html_text

MOST_ROWS = 40
WIDTH, RIGHT, ROW, LEGEND, BOTTOM = 720, 24, 22, 34, 44
LETTER, LONGEST_LABEL = 6.8, 34  # units of the picture that a letter takes, and letters of a label
WIDE_RANGE = 50.0  # ratio of the largest to the least beyond which the axis is logarithmic
TICKS = 6
BEYOND = 1.5  # how far the axis goes on beyond a band, so that its ends are seen


@dataclass(frozen=True)
class Series:
    """Values of every row under one mark, NaN where there is none: an open circle or a filled diamond."""

    name: str
    values: Sequence[float]
    filled: bool = False


@dataclass(frozen=True)
class Axis:
    """Positions of values between two ends, in units of the picture."""

    left: float
    low: float
    high: float
    logarithmic: bool = False

    @classmethod
    def around(cls, left: float, values: Sequence[float], logarithmic: bool) -> Axis:
        """One from `left` on that shows all values, and 0 where it is not logarithmic."""
        if logarithmic:
            return cls(left, floor(log10(min(values))), ceil(log10(max(values)) + 1e-9), True)
        step = _step(max(*values, 0.0) - min(*values, 0.0))
        return cls(left, step * floor(min(*values, 0.0) / step), step * ceil(max(*values, 0.0) / step))

    def at(self, value: float) -> float:
        """Where a value stands."""
        place = log10(value) if self.logarithmic else value
        return self.left + (WIDTH - self.left - RIGHT) * (place - self.low) / ((self.high - self.low) or 1.0)

    def ticks(self) -> list[float]:
        """Round values along it."""
        if self.logarithmic:
            apart = max(1, ceil((self.high - self.low) / TICKS))
            return [10.0**power for power in range(int(self.low), int(self.high) + 1, apart)]
        step = _step(self.high - self.low)
        return [step * i for i in range(round(self.low / step), round(self.high / step) + 1)]


def dot_plot(
    name: str,
    title: str,
    description: str,
    labels: Sequence[str],
    series: Sequence[Series],
    along: str,
    band: tuple[float, float] | None = None,
    spans: Sequence[tuple[float, float]] = (),
) -> str:
    """A row for each label with a mark for each series, joined by a line.

    Parameters
    ----------
    name : str
        Unique on the page.
    title, description : str
        What it shows, in words: for those who do not see it.
    labels : sequence of str, (rows,)
    series : sequence of Series
    along : str
        What the axis measures.
    band : (low, high), optional
        Values between which nothing is remarkable. It keeps the axis from being logarithmic.
    spans : sequence of (low, high), (rows,), optional
        What a line in each row is drawn between, instead of its marks.

    Returns
    -------
    str
        An ``svg`` element, empty where there is nothing to draw.
    """
    values = [value for own in series for value in own.values if isfinite(value)]
    if not values:
        return ""
    values += [end for span in spans for end in span if isfinite(end)]
    wide = band is None and min(values) > 0 and max(values) / min(values) > WIDE_RANGE
    left = 16 + LETTER * min(max(map(len, labels)), LONGEST_LABEL)
    axis = Axis.around(left, [*values, *(BEYOND * end for end in band or ())], wide)
    top = LEGEND if len(series) > 1 else 4
    height = top + ROW * len(labels) + BOTTOM
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{name}-title {name}-desc">',
        f'<title id="{name}-title">{html_text(title)}</title>',
        f'<desc id="{name}-desc">{html_text(description)}</desc>',
        *_background(axis, top, height, along, band),
        *_legend(axis, series),
    ]
    for row, label in enumerate(labels):
        marks = [(own, own.values[row]) for own in series]
        ends = spans[row] if spans else [value for _, value in marks]
        parts += _row(axis, top + ROW * row + ROW / 2, label, marks, ends)
    return "".join([*parts, "</svg>"])


def _background(axis: Axis, top: float, height: float, along: str, band: tuple[float, float] | None) -> list[str]:
    bottom = height - BOTTOM
    parts = []
    if band is not None:
        left, right = axis.at(band[0]), axis.at(band[1])
        parts.append(
            f'<rect class="band" x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{bottom - top}"/>'
        )
    for tick in axis.ticks():
        x = axis.at(tick)
        parts.append(
            f'<line class="{"zero" if tick == 0 else "grid"}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'
        )
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{_said(tick)}</text>')
    centre = (axis.left + WIDTH - RIGHT) / 2
    return [
        *parts,
        f'<text class="along" x="{centre:.1f}" y="{height - 8}" text-anchor="middle">{html_text(along)}</text>',
    ]


def _legend(axis: Axis, series: Sequence[Series]) -> list[str]:
    if len(series) < 2:
        return []
    parts, x = [], axis.left
    for own in series:
        parts += [_mark(own, x + 6, 14), f'<text class="tick" x="{x + 18:.1f}" y="18">{html_text(own.name)}</text>']
        x += 34 + LETTER * len(own.name)
    return parts


def _row(axis: Axis, y: float, label: str, marks: Sequence[tuple[Series, float]], joined: Sequence[float]) -> list[str]:
    short = label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"
    there = [(own, axis.at(value)) for own, value in marks if isfinite(value)]
    parts = [
        f'<text class="label" x="{axis.left - 12:.1f}" y="{y + 4:.1f}" text-anchor="end">{html_text(short)}'
        f"<title>{html_text(label)}</title></text>"
    ]
    along = [axis.at(value) for value in joined if isfinite(value)]
    if len(along) > 1:
        ends = min(along), max(along)
        parts.append(f'<line class="join" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
    return [*parts, *(_mark(own, x, y) for own, x in there)]


def _mark(own: Series, x: float, y: float) -> str:
    if own.filled:
        return f'<path class="filled" d="M{x - 6:.1f} {y:.1f}l6 -6 6 6 -6 6z"/>'
    return f'<circle class="open" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'


def _said(tick: float) -> str:
    return f"{tick:,.6g}".replace("-", "−")


def _step(span: float) -> float:
    """A round distance of which about `TICKS` fit into a span: 1, 2 or 5 times a power of ten."""
    if span <= 0:
        return 1.0
    power = 10.0 ** floor(log10(span / TICKS))
    return next(step * power for step in (1, 2, 5, 10) if span / (step * power) <= TICKS)
