"""The gallery's problems are those that the papers describe."""

from math import comb

import numpy as np
import pytest
from scipy.stats import norm

from blue_solvers import blue
from constraint_builders import Problem, gallery
from constraint_builders.files import production_settings
from tests.helpers.every import every


def test_toy_is_example_7() -> None:
    problem = gallery.toy()
    assert abs(problem.constraint_matrix().toarray().sum()) == 2
    assert problem.observed.tables(problem.truth)["total"] == 30


@every(("k", "levels"), [(1, 3), (2, 4), (3, 3), (4, 2)])
def test_cube_has_all_margins(k: int, levels: int) -> None:
    problem = gallery.cube(k, levels)
    assert len(problem.observed.names) == 2**k
    assert problem.observed.size == (levels + 1) ** k
    assert problem.rank == (levels + 1) ** k - levels**k
    assert set(problem.variances) == {2.0}


def test_redistricting() -> None:
    problem = gallery.pl94()
    assert problem.schema.shape == (8, 2, 2, 63)
    assert len(problem.desired.names) == 16
    assert problem.desired.size == 9 * 3 * 3 * 64
    assert "hhinstlevels" in problem.observed.names
    assert problem.observed.shape("hhinstlevels") == (3,)


def test_redistricting_with_counties() -> None:
    problem = gallery.pl94_counties(3)
    assert problem.desired.size == 4 * 9 * 3 * 3 * 64
    assert len(problem.observed.names) == 22
    assert problem.observed.shape("county * hhinstlevels") == (3, 3)


PRODUCTION_TABLES = {
    "total": 1, "cenrace": 63, "hispanic": 2, "votingage": 2, "hhgq": 8, "hispanic * cenrace": 126,
    "votingage * cenrace": 126, "votingage * hispanic": 4, "votingage * hispanic * cenrace": 252, "detailed": 2016,
}  # fmt: skip


def test_one_block_has_the_budget_of_production() -> None:
    problem = gallery.pl94_block()
    variances = production_settings("pl94_us_persons").variances()["Block"]
    assert dict(zip(problem.observed.names, problem.table_variances, strict=True)) == {
        name: pytest.approx(variances[name], rel=1e-12) for name in PRODUCTION_TABLES
    }


def _mean_widths(problem: Problem) -> tuple[float, float, float]:
    """Mean widths of 95 % intervals: of what was measured, of its estimates, and of the other estimates."""
    detailed = " * ".join(problem.schema.names)
    factors = [frozenset(str(name).replace("detailed", detailed).split(" * ")) for name in problem.desired.names]
    measured = {frozenset(str(name).replace("detailed", detailed).split(" * ")) for name in problem.observed.names}
    given = np.repeat([own in measured for own in factors], np.diff(problem.desired.offsets))
    widths = 2 * norm.ppf(0.975) * np.sqrt(blue(problem).variances())
    initial = 2 * norm.ppf(0.975) * np.sqrt(problem.variances)
    return float(initial.mean()), float(widths[given].mean()), float(widths[~given].mean())


def test_the_paper_s_widths_of_one_block() -> None:
    initial, given, other = _mean_widths(gallery.pl94_block())
    assert (round(initial, 3), round(given, 3), round(other, 4)) == (43.802, 19.342, 20.9643)


def test_the_paper_s_mean_width_of_several_counties() -> None:
    problem = gallery.pl94_counties(55, recoded=False)
    initial, given, other = _mean_widths(problem)
    cells = problem.observed.size, problem.desired.size - problem.observed.size
    printed = np.average([23.740, 25.0119], weights=cells)
    assert initial == pytest.approx(31.230, abs=1e-3)
    assert np.average([given, other], weights=cells) == pytest.approx(printed, abs=3e-4)
    assert (round(given, 2), round(other, 2)) == (21.20, 27.56)  # not the paper's 23.74 and 25.01


def test_the_paper_s_widths_of_a_state() -> None:
    initial, given, other = _mean_widths(gallery.dhc())
    assert (round(initial, 3), round(given, 3)) == (13.044, 12.887)
    assert other == pytest.approx(26.5573, abs=1e-4)


@pytest.mark.parametrize("max_way", [1, 2])
def test_adult(max_way: int) -> None:
    problem = gallery.adult(max_way)
    assert len(problem.observed.names) == sum(comb(14, k) for k in range(max_way + 1))


def test_wide() -> None:
    assert gallery.wide(variables=12, levels=3, max_way=2).observed.size == 1 + 12 * 3 + 66 * 9


@every("problem", [gallery.toy(), gallery.berkeley(), gallery.delinquent_children()])
def test_truth_agrees_with_itself(problem: Problem) -> None:
    assert not (problem.constraint_matrix("all") @ problem.truth).any()
    with pytest.raises(ValueError, match="read-only"):
        problem.truth[0] = 0


def test_berkeley_counts() -> None:
    problem = gallery.berkeley()
    tables = problem.observed.tables(problem.truth)
    assert tables["total"] == 4526
    assert tables["admitted * sex"].tolist() == [[1198, 557], [1493, 1278]]


def test_delinquent_children_counts() -> None:
    tables = gallery.delinquent_children().observed.tables(gallery.delinquent_children().truth)
    assert tables["county"].tolist() == [20, 55, 25, 35]
    assert tables["total"] == 135
    assert np.array_equal(tables["detailed"].sum(axis=0), tables["education"])
