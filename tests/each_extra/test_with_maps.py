"""With the extra ``maps``: from a shapefile in a zip to GeoParquet."""

import json
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from constraint_builders.files.boundaries import read_boundaries, write_geoparquet

pytest.importorskip("pyogrio")
CORNERS = [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]


def geojson(path: Path, geoids: list[str]) -> Path:
    geometry = {"type": "Polygon", "coordinates": [CORNERS]}
    features = [{"type": "Feature", "properties": {"GEOID": own, "ALAND": 1}, "geometry": geometry} for own in geoids]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


@pytest.mark.parametrize("suffix", [".geojson", ".gpkg", ".zip"])
def test_boundaries_go_from_file_to_file(tmp_path: Path, suffix: str) -> None:
    from pyogrio.raw import read, write

    path = geojson(tmp_path / "in.geojson", ["44001", "44003"])
    about, _, shapes, columns = read(path)
    kept = {"geometry_type": "Polygon", "crs": "EPSG:4269"}
    if suffix == ".gpkg":
        path = tmp_path / "in.gpkg"
        write(path, shapes, columns, about["fields"], driver="GPKG", **kept)
    elif suffix == ".zip":
        (tmp_path / "shapes").mkdir()
        write(tmp_path / "shapes/in.shp", shapes, columns, about["fields"], driver="ESRI Shapefile", **kept)
        path = tmp_path / "in.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for own in (tmp_path / "shapes").iterdir():
                archive.write(own, own.name)
    found = read_boundaries(path)
    assert found.crs["name"] == ("WGS 84" if suffix == ".geojson" else "NAD83")
    assert found.attributes["GEOID"].to_list() == ["44001", "44003"]
    np.testing.assert_array_equal(found.polygons(["44003"]), [[[CORNERS]]])
    frame = pl.DataFrame({"geoid": ["44003"], "estimate": [1.0]})
    write_geoparquet(frame, ["44003"], found, str(tmp_path / "out.parquet"))
    assert pl.read_parquet(tmp_path / "out.parquet")["geometry"].to_list() == [found.shapes[1]]


def test_what_is_no_file_of_boundaries_is_named(tmp_path: Path) -> None:
    (tmp_path / "none.csv.gz").write_text("geoid\n44\n")
    with pytest.raises(ValueError, match=r"none\.csv\.gz: GDAL does not read it as boundaries"):
        read_boundaries(tmp_path / "none.csv.gz")
    (tmp_path / "flat.csv").write_text("geoid\n44\n")
    with pytest.raises(ValueError, match=r"flat\.csv: it has no shapes"):
        read_boundaries(tmp_path / "flat.csv")
    with pytest.raises(FileNotFoundError):
        read_boundaries(tmp_path / "absent.shp")


def test_of_several_layers_none_is_taken_for_the_places(tmp_path: Path) -> None:
    from pyogrio.raw import read, write

    about, _, shapes, columns = read(geojson(tmp_path / "in.geojson", ["44001", "44003"]))
    kept = {"geometry_type": "Polygon", "crs": "EPSG:4269", "driver": "GPKG"}
    for layer in ("state", "county"):
        write(tmp_path / "in.gpkg", shapes, columns, about["fields"], layer=layer, append=layer == "county", **kept)
    with pytest.raises(ValueError, match=r"in\.gpkg: it has 2 layers of shapes, (state, county|county, state): give"):
        read_boundaries(tmp_path / "in.gpkg")
    write(tmp_path / "one.gpkg", shapes, columns, about["fields"], layer="county", **kept)
    write(tmp_path / "one.gpkg", None, columns, about["fields"], layer="said", append=True, driver="GPKG")
    assert read_boundaries(tmp_path / "one.gpkg").attributes["GEOID"].to_list() == ["44001", "44003"]
