"""Boundaries are found by the codes of places, kept as they are in GeoParquet, and opened up to be drawn."""

import json
import struct
from pathlib import Path

import polars as pl
import pyarrow.parquet
import pytest
from polars.testing import assert_frame_equal

from constraint_builders.files.boundaries import Boundaries, write_geoparquet
from tests.helpers.refused import refuses
from tests.helpers.shapes import NAD83, polygon

SQUARE = [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0], [0.0, 0.0]]
HOLE = [[0.5, 0.5], [1.0, 1.0], [1.0, 0.5], [0.5, 0.5]]
CODES = ["44001030100", "44001030200", "44003020101"]


SHAPES = [
    polygon([SQUARE, HOLE]),
    struct.pack("<BII", 1, 6, 2) + polygon([SQUARE]) + polygon([HOLE], ">"),
    polygon([HOLE], height=7.0),
]


@pytest.fixture
def boundaries() -> Boundaries:
    names = {"STATE": ["44"] * 3, "GEOIDFQ": [f"1400000US{code}" for code in CODES], "NAME": ["a", "b", "b"]}
    return Boundaries(pl.DataFrame(names), pl.Series(SHAPES), NAD83)


def test_geoparquet_holds_the_table_and_the_shapes_as_they_are(tmp_path: Path, boundaries: Boundaries) -> None:
    order = [2, 0, 1, 0]
    frame = pl.DataFrame({"geoid": [CODES[i] for i in order], "estimate": [1.5, 2.0, -3.0, 4.0]})
    write_geoparquet(frame, frame["geoid"].to_list(), boundaries, str(tmp_path / "out.parquet"))
    found = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert_frame_equal(pl.DataFrame(found.drop_columns(["geometry"])), frame)
    assert found["geometry"].to_pylist() == [SHAPES[i] for i in order]
    about = json.loads(found.schema.metadata[b"geo"])
    assert (about["version"], about["primary_column"]) == ("1.1.0", "geometry")
    assert about["columns"] == {
        "geometry": {"encoding": "WKB", "geometry_types": ["MultiPolygon", "Polygon", "Polygon Z"], "crs": NAD83}
    }


def test_shapes_are_opened_up_to_their_rings(boundaries: Boundaries) -> None:
    found = [[[ring.tolist() for ring in polygon] for polygon in shape] for shape in boundaries.polygons(CODES)]
    assert found == [[[SQUARE, HOLE]], [[SQUARE], [HOLE]], [[HOLE]]]
    line = Boundaries(pl.DataFrame({"geoid": ["44"]}), pl.Series([struct.pack("<BII", 1, 2, 0)]), None)
    refuses("a shape is no polygon", line.polygons, ["44"])


def test_blocks_of_the_spine_are_found_by_their_geoids(boundaries: Boundaries) -> None:
    blocks = Boundaries(pl.DataFrame({"GEOID20": ["440010301001000"]}), boundaries.shapes[:1], None)
    assert blocks.of(["0441000110004400103010011000", "440010301001000"]).to_list() == SHAPES[:1] * 2
    assert blocks.of(["1000000US440010301001000"]).to_list() == SHAPES[:1]
    named = Boundaries(pl.DataFrame({"NAME": ["East Coast School District", "West"]}), boundaries.shapes[:2], None)
    assert named.of(["East Coast School District"]).to_list() == SHAPES[:1]


def test_what_is_not_there_once_is_named(boundaries: Boundaries) -> None:
    with pytest.raises(ValueError, match="no shape is that of '44005', nor 1 others: no column has the codes of all"):
        boundaries.of(["44005", CODES[0], "44007", "44005"])
    refuses("no shape is that of 'a': no column", Boundaries(pl.DataFrame(), boundaries.shapes, None).of, ["a"])
    refuses("2 shapes are those of 'b': make one of them", boundaries.of, ["a", "b"])
    numbers = Boundaries(pl.DataFrame({"ID": ["1", "2"], "DISTRICT": ["2", "1"]}), boundaries.shapes[:2], None)
    refuses("columns 'ID' and 'DISTRICT' both have the codes of all places", numbers.of, ["1", "2"])


def test_shapes_that_geoparquet_does_not_know_are_refused(tmp_path: Path) -> None:
    together, curve = (struct.pack("<BII", 1, kind, 0) for kind in (7, 10))
    shapes = Boundaries(pl.DataFrame({"geoid": ["44", "09"]}), pl.Series([together, curve]), None)
    write_geoparquet(pl.DataFrame({"geoid": ["44"]}), ["44"], shapes, str(tmp_path / "out.parquet"))
    about = json.loads(pyarrow.parquet.read_schema(tmp_path / "out.parquet").metadata[b"geo"])
    assert about["columns"]["geometry"]["geometry_types"] == ["GeometryCollection"]
    with pytest.raises(ValueError, match="a shape is of kind 10, of which GeoParquet knows none"):
        write_geoparquet(pl.DataFrame({"geoid": ["09"]}), ["09"], shapes, str(tmp_path / "none.parquet"))
    assert not (tmp_path / "none.parquet").exists()
