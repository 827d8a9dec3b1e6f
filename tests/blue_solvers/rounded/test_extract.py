"""The real censuses that ship with the package: what they have to be, and how they were made."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers import estimate, read_tables
from blue_solvers.examples import (
    AUCKLAND_2013,
    OTAGO_2018,
    OTAGO_AREAS,
    SYDNEY_2021,
    write_auckland,
    write_otago,
    write_sydney,
)
from blue_solvers.rounded import estimated_noise, possible_counts
from noise_mechanisms.laws import Gaussian, RandomRounding
from tests.helpers.places import DATA

PUBLISHED = DATA / "rounded" / "nz2013_age_sex_seven_copies.csv.gz"
OF_NEW_ZEALAND = [DATA / "rounded" / f"nz2018_{name}.csv.gz" for name in ("vehicles", "areas")]
OF_AUSTRALIA = [DATA / "rounded" / f"au2021_SA4_{name}.csv.gz" for name in ("persons", "sex", "age_sex")]


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


def test_its_noise_is_what_all_of_the_country_says(tmp_path: Path) -> None:
    """Fourteen areas of 25 figures, whose variance is that of 2,419 others, 4.01; made anew it is the same."""
    problem, y = read_tables(pl.read_csv(SYDNEY_2021), noise=Gaussian(1.0), total=["*"])
    assert problem.observed.size == y.size == 14 * (1 + 2 + 22)
    assert np.isfinite(problem.variances).all()
    noise = estimated_noise(problem, y, "all", rng=0)
    assert noise.redundancy[0] == pytest.approx(14 * 3)
    assert abs(noise.factors[0] - 4.01) < noise.std_errors[0]
    if all(path.exists() for path in OF_AUSTRALIA):
        write_sydney(OF_AUSTRALIA, tmp_path)
        assert (tmp_path / SYDNEY_2021.name).read_bytes() == SYDNEY_2021.read_bytes()


def test_its_district_lies_in_two_regions(tmp_path: Path) -> None:
    """Three small areas of Waitaki lie outside of Otago, and one of Otago in no district; it fits, and is proved."""
    law = RandomRounding(3)
    problem, y = read_tables(OTAGO_2018, areas=OTAGO_AREAS, names_to="vehicles", noise=law)
    areas, held = problem.areas, pl.read_csv(OTAGO_AREAS, infer_schema_length=0)
    assert (held.height, areas.levels) == (140, ("region", "district", "SA2", "Leaf"))
    assert held.filter(pl.col("district") == "068")["region"].value_counts(sort=True)["count"].to_list() == [14, 3]
    assert held.filter(pl.col("district") == "-").height == 1
    tables, figures = problem.observed.tables(y), [own for own in y if np.isfinite(own)]
    assert not np.mod(figures, 3).any()
    parts = areas.leaves_of(areas.level_index("district")) @ tables["SA2", "total"]
    assert (parts != tables["district", "total"]).any()  # they do not add up
    est = estimate(problem, y)
    fit = est.goodness_of_fit(draws=0)
    assert fit.p_value > 0.01
    assert fit.degrees_of_freedom > 100
    assert est.certificate().bound < 1e-6
    if all(path.exists() for path in OF_NEW_ZEALAND):
        write_otago(*OF_NEW_ZEALAND, tmp_path)
        for path in (OTAGO_2018, OTAGO_AREAS):
            assert (tmp_path / path.name).read_bytes() == path.read_bytes()
