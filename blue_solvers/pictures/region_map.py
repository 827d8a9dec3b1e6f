"""Maps of regions whose outlines are given as GeoJSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path


def region_map(
    ax: Axes,
    geojson: Mapping[str, Any],
    values: Mapping[str, float],
    label: str,
    *,
    key: str = "geoid",
    limits: tuple[float, float] | None = None,
) -> Axes:
    """Draw regions coloured by a number, with the bar that explains the colours; those without one are hatched.

    Parameters
    ----------
    ax : Axes
        Its axes are made equal and hidden; coordinates are drawn as they are, so project them first where that matters.
    geojson : mapping
        A ``FeatureCollection`` of polygons and multipolygons (RFC 7946).
    values : mapping of str to float
        By the property `key` of the features; every name must be a feature's. NaN counts as no number.
    label : str
        What the numbers are.
    key : str
        The property that names a feature.
    limits : (low, high) of float, optional
        Numbers at the ends of the colours, so that maps can be compared; by default the least and the largest.

    Raises
    ------
    ValueError
        If a feature has no such property, that of another or is no polygon, or a value belongs to no feature.
    """
    from matplotlib.collections import PathCollection

    outlines: dict[str, Path] = {}
    for name, path in _outlines(geojson, key):
        if name in outlines:
            raise ValueError(f"{key} {name!r} is of several features: make one MultiPolygon of them")
        outlines[name] = path
    if unknown := [name for name in values if name not in outlines]:
        raise ValueError(f"no feature has {key} {unknown[0]!r}: the map has {', '.join(list(outlines)[:4])}, ...")
    shown = {name: value for name, value in values.items() if np.isfinite(value)}
    missing = [path for name, path in outlines.items() if name not in shown]
    ax.add_collection(PathCollection(missing, facecolors="none", edgecolors="0.6", hatch="////", linewidths=0.5))
    coloured = PathCollection([outlines[name] for name in shown], edgecolors="white", linewidths=0.7)
    coloured.set_array(np.array(list(shown.values()), dtype=float))
    if limits is not None:
        coloured.set_clim(*limits)
    ax.add_collection(coloured)
    ax.autoscale_view()
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.figure.colorbar(coloured, ax=ax, label=label, shrink=0.8)
    return ax


def _outlines(geojson: Mapping[str, Any], key: str) -> Iterator[tuple[str, Path]]:
    from matplotlib.path import Path

    for number, feature in enumerate(geojson.get("features", ())):
        if key not in (feature.get("properties") or {}):
            raise ValueError(f"feature {number} has no property {key!r}: name the one that tells regions apart by key=")
        name, shape = str(feature["properties"][key]), feature.get("geometry") or {}
        if shape.get("type") not in ("Polygon", "MultiPolygon"):
            raise ValueError(
                f"{key} {name!r} is a {shape.get('type')}: only polygons and multipolygons can be coloured"
            )
        polygons = [shape["coordinates"]] if shape["type"] == "Polygon" else shape["coordinates"]
        rings = [np.array(ring, dtype=float)[:, :2] for polygon in polygons for ring in polygon]
        yield name, Path.make_compound_path(*(Path(ring, closed=True) for ring in rings))
