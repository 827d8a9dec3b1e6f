"""The gallery's problems are those that the papers describe."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from constraint_builders import Problem, gallery


def test_toy_is_example_7() -> None:
    problem = gallery.toy()
    assert abs(problem.constraint_matrix().toarray().sum()) == 2
    assert problem.truth is not None
    assert problem.observed.tables(problem.truth)["total"] == 30


@pytest.mark.parametrize(("k", "levels"), [(1, 3), (2, 4), (3, 3), (4, 2)])
def test_cube_has_all_margins(k: int, levels: int) -> None:
    problem = gallery.cube(k, levels)
    assert len(problem.observed.names) == 2**k
    assert problem.observed.size == (levels + 1) ** k
    assert problem.rank == (levels + 1) ** k - levels**k
    assert set(problem.variances) == {2.0}


def test_redistricting() -> None:
    problem = gallery.pl94()
    assert problem.schema is not None
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


def test_demographic_and_housing() -> None:
    problem = gallery.dhc()
    assert len(problem.desired.names) == 32
    assert problem.desired.size == 43 * 3 * 117 * 3 * 64
    assert len(problem.observed.names) == 3


@pytest.mark.parametrize("max_way", [1, 2])
def test_adult(max_way: int) -> None:
    problem = gallery.adult(max_way)
    assert len(problem.observed.names) == sum(comb(14, k) for k in range(max_way + 1))


def test_wide() -> None:
    problem = gallery.wide(variables=12, levels=3, max_way=2)
    assert problem.observed.size == 1 + 12 * 3 + 66 * 9


@pytest.mark.parametrize("problem", [gallery.toy(), gallery.berkeley(), gallery.delinquent_children()], ids=repr)
def test_truth_agrees_with_itself(problem: Problem) -> None:
    assert problem.truth is not None
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
