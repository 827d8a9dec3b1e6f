"""Boundaries of places, from any file that GDAL reads, and tables joined to them as GeoParquet.

pyogrio hands shapes on as they are (well-known binary), which is what GeoParquet holds, and the system of coordinates
as it wants it: nothing here looks into a shape but to draw it.

References
----------
Open Geospatial Consortium, "GeoParquet specification", version 1.1.0.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from constraint_builders.arrays import Float
from constraint_builders.description.geo_ids import geoid_in
from constraint_builders.extras import needing
from constraint_builders.files.arrow_files import OLDEST
from constraint_builders.files.naming import naming
from constraint_builders.files.new_files import replacing
from constraint_builders.files.tabulated_places import block_geoid
from constraint_builders.opening import open_file

GEOMETRY = "geometry"
KINDS = {
    1: "Point",
    2: "LineString",
    3: "Polygon",
    4: "MultiPoint",
    5: "MultiLineString",
    6: "MultiPolygon",
    7: "GeometryCollection",
}
NUMBERS = {0: 2, 1: 3, 2: 3, 3: 4}  # of a point, by the thousands of the kind of its shape
Polygons = list[list[Float]]
SPACE = {0: "", 1: " Z", 2: " M", 3: " ZM"}


@dataclass(frozen=True)
class Boundaries:
    """Shapes with what a file says of them.

    Attributes
    ----------
    attributes : polars.DataFrame
        Columns of text, one of which holds the places' codes.
    shapes : polars.Series of bytes
        In well-known binary.
    crs : dict or None
        The system of coordinates, in PROJJSON; None if the file does not say.
    """

    attributes: pl.DataFrame
    shapes: pl.Series
    crs: dict[str, Any] | None

    def of(self, codes: Sequence[str]) -> pl.Series:
        """The shapes of places.

        Parameters
        ----------
        codes : sequence of str
            GEOIDs, geocodes of blocks that end in theirs, or names; the column of the file that has them all is found.

        Raises
        ------
        ValueError
            If no column has them all, once each, or two have them in different rows.
        """
        wanted = [geoid_in(code) or (code.isdigit() and block_geoid(code)) or code for code in codes]
        found = {name: self._places(name, set(wanted)) for name in self.attributes.columns}
        called = max(found, key=lambda name: len(found[name]), default="")
        best = found.get(called, {})
        lacking = [code for code in wanted if code not in best]
        if lacking:
            others = f", nor {len(set(lacking)) - 1:,} others" if len(set(lacking)) > 1 else ""
            raise ValueError(
                f"no shape is that of {lacking[0]!r}{others}: no column has the codes of all places, as text"
            )
        other = next((name for name, own in found.items() if len(own) == len(best) and own != best), None)
        if other is not None:
            raise ValueError(f"columns {called!r} and {other!r} both have the codes of all places: leave one out")
        several = next((code for code in wanted if len(best[code]) > 1), None)
        if several is not None:
            raise ValueError(f"{len(best[several])} shapes are those of {several!r}: make one of them")
        return self.shapes.gather([best[code][0] for code in wanted])

    def _places(self, name: str, wanted: set[str]) -> dict[str, list[int]]:
        """In which rows a column has each of some codes."""
        rows: dict[str, list[int]] = {}
        for row, value in enumerate(self.attributes[name]):
            code = value if value in wanted else geoid_in(value or "")
            if code in wanted:
                rows.setdefault(code, []).append(row)
        return rows

    def polygons(self, codes: Sequence[str]) -> list[Polygons]:
        """What places are made of, (places,): of every polygon its outline and holes, (points, 2).

        Parameters
        ----------
        codes : sequence of str

        Raises
        ------
        ValueError
            As `of`, or if a shape is no polygon.
        """
        return [_polygons(shape, 0)[0] for shape in self.of(codes)]


def read_boundaries(path: str | os.PathLike[str]) -> Boundaries:
    """Read shapes of places.

    Parameters
    ----------
    path : path
        A shapefile, also in a ``.zip``, a GeoPackage, GeoJSON, or what else GDAL reads.

    Raises
    ------
    ImportError
        If pyogrio is not installed.
    ValueError
        If it is nothing of the kind, or has several layers of shapes.
    OSError
        If it cannot be opened.
    """
    with needing("boundaries need pyogrio", "maps"):
        from pyogrio import list_layers
        from pyogrio.errors import DataSourceError
        from pyogrio.raw import read_arrow
    if not os.path.isdir(path):
        open_file(path).close()
    with naming(path):
        try:
            layers = [str(name) for name, kind in list_layers(os.path.abspath(path)) if kind is not None]
            if len(layers) > 1:
                raise ValueError(f"it has {len(layers)} layers of shapes, {', '.join(layers[:4])}: give a file of one")
            about, table = read_arrow(os.path.abspath(path), layer=layers[0] if layers else None)
        except DataSourceError:
            raise ValueError("GDAL does not read it as boundaries: give a shapefile, GeoPackage or GeoJSON") from None
        geometry = about["geometry_name"] or "wkb_geometry"
        if geometry not in table.column_names:
            raise ValueError("it has no shapes")
        said = json.loads((table.schema.field(geometry).metadata or {}).get(b"ARROW:extension:metadata", b"{}"))
        frame = pl.DataFrame(table.drop_columns([geometry])).select(pl.col(pl.String))
        shapes = pl.Series(GEOMETRY, table.column(geometry).to_pylist(), dtype=pl.Binary)
        known = shapes.is_not_null()
        return Boundaries(frame.filter(known), shapes.filter(known), said.get("crs"))


def write_geoparquet(frame: pl.DataFrame, codes: Sequence[str], boundaries: Boundaries, path: str) -> None:
    """Write a table with the shape of every row's place, whole or not at all.

    Parameters
    ----------
    frame : polars.DataFrame
    codes : sequence of str, (rows,)
        The place of every row.
    boundaries : Boundaries
    path : str

    Raises
    ------
    ValueError
        As `Boundaries.of`.
    OSError
        If it cannot be written.
    """
    import pyarrow.parquet

    shapes = boundaries.of(codes)
    kinds = sorted({_named(kind) for kind in set(map(_kind, shapes))})
    column = {"encoding": "WKB", "geometry_types": kinds, "crs": boundaries.crs}
    about = {"version": "1.1.0", "primary_column": GEOMETRY, "columns": {GEOMETRY: column}}
    table = frame.with_columns(shapes.alias(GEOMETRY)).to_arrow(compat_level=OLDEST)
    with replacing(path) as temporary:
        pyarrow.parquet.write_table(
            table.replace_schema_metadata({"geo": json.dumps(about)}), os.path.abspath(temporary), compression="zstd"
        )


def _kind(shape: bytes, at: int = 0) -> int:
    """The kind of a shape: one of `KINDS`, and thousands for more than two coordinates."""
    return int(struct.unpack_from(f"{'<' if shape[at] else '>'}I", shape, at + 1)[0])


def _named(kind: int) -> str:
    if kind % 1000 not in KINDS or kind // 1000 not in SPACE:
        raise ValueError(f"a shape is of kind {kind}, of which GeoParquet knows none: make polygons of curves")
    return KINDS[kind % 1000] + SPACE[kind // 1000]


def _polygons(shape: bytes, at: int) -> tuple[Polygons, int]:
    """The polygons of a shape, each its rings (points, 2), and where what is behind it begins."""
    kind, order = _kind(shape, at), "<" if shape[at] else ">"
    count, at = struct.unpack_from(f"{order}I", shape, at + 5)[0], at + 9
    parts: Polygons = []
    if KINDS.get(kind % 1000) == "MultiPolygon":
        for _ in range(count):
            own, at = _polygons(shape, at)
            parts += own
        return parts, at
    if KINDS.get(kind % 1000) != "Polygon":
        raise ValueError("a shape is no polygon: only polygons can be coloured")
    width, rings = NUMBERS[kind // 1000], []
    for _ in range(count):
        points = struct.unpack_from(f"{order}I", shape, at)[0]
        numbers = np.frombuffer(shape, f"{order}f8", points * width, at + 4)
        rings.append(numbers.reshape(points, width)[:, :2])
        at += 4 + 8 * points * width
    return [rings], at
