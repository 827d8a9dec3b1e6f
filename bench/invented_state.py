"""Blocks of Rhode Island where the shared data folder is at hand, of an invented state of its shape elsewhere."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

BLOCKS = Path(__file__).resolve().parents[2] / "shared" / "data" / "ri_2010_blocks.csv.gz"
COUNTIES, TRACTS, GROUPS = 5, 244, 815
SEED = 44
MEAN_BLOCKS = 25_181 / GROUPS


def block_geoids(path: Path = BLOCKS) -> tuple[str, list[str]]:
    """What the place is called, and the sorted GEOIDs of its blocks."""
    if not path.exists():
        return "an invented state", invented_geoids()
    with gzip.open(path, "rt") as file:
        return "Rhode Island", [line.split(",", 1)[0] for line in file][1:]


def invented_geoids(tracts: int = TRACTS) -> list[str]:
    """GEOIDs of about as many blocks, tracts, block groups and counties as Rhode Island has, by chance."""
    rng = np.random.default_rng(SEED)
    county = np.sort(rng.integers(COUNTIES, size=tracts))
    geoids = []
    for number in range(tracts):
        code = number - int(np.searchsorted(county, county[number]))
        tract = f"44{2 * county[number] + 1:03}{10 * (code // 4) + code % 4 + 101:04}00"
        for group in range(1, 2 + int(rng.integers(2 * GROUPS // TRACTS + 1))):
            blocks = 1 + rng.geometric(1 / MEAN_BLOCKS)
            geoids += [f"{tract}{group}{block:03}" for block in range(blocks)]
    return sorted(geoids)
