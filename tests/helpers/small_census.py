"""Folders like those of redistricting persons, of two attributes, with the variances that their settings say.

They are of three branches of two states, one of which is cut in two as by American Indian areas; a few blocks have the
same place in tabulation in both, so that every kind of place is cut somewhere.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.census_files import Written, geocodes, invented, write_census_files
from tests.helpers.census_products import PL94_LEVELS, Product, groups

LOSSES = {"total": 0.5, "hhgq": 0.01, "hhinstlevels": 0.02, "votingage": 0.04, "detailed": 0.1}
PRODUCT = Product(
    "US_Person_PL_PROD",
    PL94_LEVELS,
    {"hhgq": 8, "votingage": 2},
    {"hhgq": {"hhinstlevels": groups("0 | 1-4 | 5-7")}},
    {"hhgq": {"gqNursingTotal": [3]}, "votingage": {"nonvoting": [0]}},
    LOSSES,
    {"nurse_nva_0": {"hhgq": "gqNursingTotal", "votingage": "nonvoting"}},
)
SETTINGS = f"""
geolevels = {list(PL94_LEVELS)}
noise = "discrete_gaussian"
[variables]
hhgq = [
    "household", "correctional", "juvenile", "nursing", "other_institutional", "college", "military",
    "other_noninstitutional",
]
votingage = ["under18", "adult"]
[recodes]
hhgq.hhinstlevels = "0 | 1-4 | 5-7"
[selections]
hhgq.gqNursingTotal = ["nursing"]
votingage.nonvoting = ["under18"]
[constraints]
true = ["total", "nurse_nva_0"]
facilities = ["hhgq_total_lb", "hhgq_total_ub"]
[budget]
measure = "zcdp"
[budget.losses]
""" + "\n".join(f"{name} = {[0 if name == 'total' else str(loss), *[str(loss)] * 5]}" for name, loss in LOSSES.items())

PLACES: Mapping[str, Mapping[str, Sequence[int]]] = {
    "041": {"001": [3, 2], "003": [4]},
    "141": {"001": [2, 2]},
    "044": {"001": [2, 2], "003": [3]},
}


def write_small_census(folder: Path, seed: int = 1, **options: Any) -> Written:
    """Write a folder with its settings; options are those of `write_census_files`, ``places`` and ``size``."""
    rng = np.random.default_rng(seed)
    codes = geocodes(PRODUCT, options.pop("places", PLACES))
    blocks = invented(PRODUCT, codes, np.arange(8), rng, options.pop("size", 40))
    written = write_census_files(folder, PRODUCT, blocks, rng, types="hhgq", **options)
    (folder / "settings.toml").write_text(SETTINGS)
    return written


def persons_in(written: Written, state: str) -> int:
    """How many live in a state, of both branches."""
    return sum(block.persons.size for block in written.blocks if block.codes[1][1:] == state)
