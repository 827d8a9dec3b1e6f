"""The real census that ships with the package: what it has to be, and how it was made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from blue_solvers import read_tables
from blue_solvers.examples import AUCKLAND_2013, write_auckland
from blue_solvers.rounded import possible_counts
from noise_mechanisms.laws import RandomRounding
from tests.helpers.places import DATA

PUBLISHED = DATA / "rounded" / "nz2013_age_sex_seven_copies.csv.gz"


def test_some_counts_lead_to_all_of_its_figures(tmp_path: Path) -> None:
    """Seven tables of ages from 0 or 15 on; made anew it is the same, where what was published is at hand."""
    frame = pl.read_csv(AUCKLAND_2013)
    assert frame["source"].n_unique() == 7
    assert sorted(set(frame["source"].value_counts()["count"])) == [45, 54]
    assert (frame["value"] % 3 == 0).all()
    problem, y = read_tables(frame, noise=RandomRounding(3), total=["*"])
    low, high = possible_counts(problem, y)
    assert (low <= high).all()
    assert np.mean(high - low) < 2
    assert possible_counts(problem, y, [0], whole=True)[0] >= low[0]
    if PUBLISHED.exists():
        write_auckland(PUBLISHED, tmp_path)
        assert (tmp_path / AUCKLAND_2013.name).read_bytes() == AUCKLAND_2013.read_bytes()
