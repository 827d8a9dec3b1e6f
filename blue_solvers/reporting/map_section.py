"""A map of places, as SVG: the greater the number, the darker the place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from blue_solvers.reporting.page import written
from blue_solvers.reporting.page_parts import BY_ERROR, STD_ERROR, Page, Section
from constraint_builders.arrays import Float
from constraint_builders.description.geo_ids import geoid_in
from constraint_builders.files.columns import GEOCODE, GEOLEVEL, SUMMED_OUT, TABLE
from constraint_builders.files.tabulated_places import geoids_of
from constraint_builders.printable import html_text

if TYPE_CHECKING:
    from constraint_builders.files.boundaries import Boundaries, Polygons

WIDTH, LEGEND = 720, 40
PALEST = 0.08  # how much of the colour the least number has
SWATCHES = 6
MOST_DRAWN = 10_000  # places: more make a page slow to open
NUMBERS = ("estimate", STD_ERROR, "lower", "upper", "measured", "nonnegative")


def with_map(page: Page, boundaries: Boundaries) -> Page:
    """A page with a map of the first number of every place, listed or not, of the geolevel with most places listed.

    Parameters
    ----------
    page : Page
    boundaries : Boundaries

    Raises
    ------
    ValueError
        If the page lists no places, or not all of those have one shape of polygons each.
    """
    cells = next((own for section in page.sections if section.name == "estimates" for own in section.tables), None)
    if cells is None or not {GEOCODE, GEOLEVEL, TABLE} <= set(cells.frame.columns):
        raise ValueError("boundaries are of places: no numbers of places are listed here")
    level = max(cells.frame.partition_by(GEOLEVEL, maintain_order=True), key=lambda own: own[GEOCODE].n_unique())
    labels = [name for name in level.columns if name not in (GEOCODE, *NUMBERS)]
    known_or_nan = pl.col(*NUMBERS[:2]).fill_null(float("nan"))
    whole = level if page.places is None else page.places(level[GEOLEVEL][0])
    of_places = whole.with_columns(known_or_nan).filter(
        pl.all_horizontal(pl.col(name).eq_missing(pl.lit(level[name][0])) for name in labels)
    )
    drawn = of_places.head(MOST_DRAWN)
    what = ", ".join(str(level[name][0]) for name in labels if name != GEOLEVEL and level[name][0] != SUMMED_OUT)
    numbers = drawn.select(GEOCODE, *NUMBERS[:2]).iter_rows()
    said = [f"{code}: {written(number, BY_ERROR, error)}" for code, number, error in numbers]
    title = f"{level[GEOLEVEL][0]}: {what}"
    shapes = _polygons_of(boundaries, drawn[GEOCODE].cast(pl.String))
    those = f"the {drawn.height:,}" if drawn.height == of_places.height else f"{drawn.height:,} of {of_places.height:,}"
    sentence = f"The map shows {those} places of {level[GEOLEVEL][0]}, by {what}."
    degrees = (boundaries.crs or {}).get("type") == "GeographicCRS"
    drawing = _picture(title, shapes, drawn["estimate"].to_list(), said, degrees)
    return replace(page, sections=[*page.sections[:1], Section("map", "Map", [sentence], drawing), *page.sections[1:]])


def _polygons_of(boundaries: Boundaries, codes: pl.Series) -> list[Polygons]:
    """The polygons of places by GEOIDs, names or geocodes of 2020."""
    plain = [geoid_in(code) or code for code in codes]
    try:
        return boundaries.polygons(plain)
    except ValueError:
        geoids = geoids_of(codes, themselves=False).to_list()
        if "" in geoids:
            raise
        return boundaries.polygons(geoids)


def _picture(
    title: str, shapes: Sequence[Polygons], values: Sequence[float], said: Sequence[str], degrees: bool
) -> str:
    """Places as paths, with what is said of each; degrees are as wide as they are in the middle of the map."""
    points = np.concatenate([ring for shape in shapes for polygon in shape for ring in polygon])
    least, most = points.min(axis=0), points.max(axis=0)
    across = np.array([np.cos(np.radians((least[1] + most[1]) / 2)) if degrees else 1.0, 1.0])
    scale = across * (WIDTH - 2) / max(*((most - least) * across), 1e-300)
    height = (most[1] - least[1]) * scale[1] + 2
    known = [value for value in values if isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height + LEGEND:.0f}" role="img" aria-labelledby="map-title map-desc">',
        f'<title id="map-title">{html_text(title)}</title>',
        '<desc id="map-desc">The greater the number, the darker the place. The numbers are in the list below.</desc>',
    ]
    for shape, value, words in zip(shapes, values, said, strict=True):
        rings = [_line((ring - [least[0], most[1]]) * scale * [1, -1] + 1) for polygon in shape for ring in polygon]
        path = f'<path class="place" fill-rule="evenodd" {_shade(value, low, high)} d="{"".join(rings)}">'
        parts.append(f"{path}<title>{html_text(words)}</title></path>")
    for i in range(SWATCHES):
        shade = _shade(low + (high - low) * i / (SWATCHES - 1), low, high)
        parts.append(f'<rect class="place" {shade} x="{1 + 40 * i}" y="{height + 8:.0f}" width="40" height="12"/>')
    ends = f"{low:,.6g} to {high:,.6g}".replace("-", "−")
    parts.append(f'<text class="tick" x="{9 + 40 * SWATCHES}" y="{height + 18:.0f}">{ends}</text>')
    return "".join([*parts, "</svg>"])


def _line(points: Float) -> str:
    """A closed line through points, (points, 2), but for those that cannot be told from the one before."""
    rounded = points.round(1)
    kept = np.append(True, (np.diff(rounded, axis=0) != 0).any(axis=1))
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in rounded[kept].tolist()) + "Z"


def _shade(value: float, low: float, high: float) -> str:
    """How much of the colour a number has; none where it is not known."""
    if not isfinite(value):
        return 'fill-opacity="0"'
    return f'fill-opacity="{PALEST + (1 - PALEST) * (value - low) / ((high - low) or 1.0):.3f}"'
