"""Good inputs of every kind that the command reads, small ones."""

import os
from pathlib import Path

from blue_solvers.cli import main
from tests.helpers import malformed
from tests.helpers.simulated import HOUSEHOLDS, settings_of

GEOLEVELS = ["State", "County", "Tract", "Block_Group", "Block"]
SETTINGS = settings_of(GEOLEVELS, HOUSEHOLDS, {"detailed": "1/5"})
BLOCKS = """geoid,hisp,race,hhtenshort_3lev,count
440010001001000,0,0,mortgage,3
440010001001001,1,2,rented,5
440030001001000,0,6,rented,4
"""


def good_inputs(folder: Path) -> Path:
    """Fill a folder: tables, schemas, settings, two releases, a result of one, and estimates."""
    for name, text in (
        ("table.csv", malformed.TABLE),
        ("second.csv", malformed.TABLE.replace("21,0", "21,2")),
        ("schema.toml", malformed.SCHEMA),
        ("settings.toml", SETTINGS),
        ("blocks.csv", BLOCKS),
        ("spine.csv", malformed.SPINE_BLOCKS),
        ("totals.csv", "geocode,total\n44,12\n"),
        ("geounits.txt", "440010001001000\n440010001001001\n"),
        ("places.csv", "place,geocode\na,440010001001000\n"),
        ("geoids.csv", "place,geoid\na,440010001001000\n"),
    ):
        (folder / name).write_text(text)
    before = Path.cwd()
    os.chdir(folder)
    try:
        for out in ("release", "other"):
            assert main(["simulate", "blocks.csv", "--settings", "settings.toml", "--seed", "1", "--out", out]) == 0
        assert main(["estimate", "release", "--out", "result"]) == 0
        assert main(["estimate", "table.csv", "--out", "estimates.csv"]) == 0
    finally:
        os.chdir(before)
    return folder
