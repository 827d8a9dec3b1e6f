"""Equalities over parts are kept however small their variance is beside the measurements'."""

from pathlib import Path

import numpy as np
import pytest

from blue_solvers import UnsupportedProblemError, blue
from blue_solvers.streaming import partition, stream
from constraint_builders import Problem, Schema, Spine
from tests.helpers.effort import first_of, lengths
from tests.helpers.oracles.invent import Invented, Kind, in_a_tree_with_equalities, invent
from tests.helpers.partitioned import read_estimates

COUNTIES, BLOCKS = 200, 100  # blocks of a county
ENOUGH = 20  # invented problems of each kind


def large_spine(off: float) -> tuple[Problem, np.ndarray, float]:
    """20,201 geounits whose blocks have a known sum, over twelve decades of variances; its standard error is .001."""
    rng = np.random.default_rng(0)
    n = COUNTIES * BLOCKS
    parent = [-1] + [0] * COUNTIES + [1 + i for i in range(COUNTIES) for _ in range(BLOCKS)]
    spine = Spine(parent, ["State"] + ["County"] * COUNTIES + ["Block"] * n)
    counties, blocks = 10.0 ** rng.uniform(-6, 6, COUNTIES), 10.0 ** rng.uniform(-6, 6, n)
    observed = {"State": {"a": 1e-6}, "County": {"a": counties}, "Block": {"a": blocks}}
    counts = rng.poisson(100, n).astype(float)
    truth = np.concatenate([[counts.sum()], counts.reshape(COUNTIES, -1).sum(axis=1), counts])
    y = truth + np.sqrt(np.concatenate([[1e-6], counties, blocks])) * rng.standard_normal(truth.size)
    E = np.zeros((1, truth.size))
    E[0, 1 + COUNTIES :] = 1
    known = counts.sum() + off
    return Problem(Schema({"a": 1}), observed, spine=spine, equalities=(E, [known])), y, known


@pytest.mark.parametrize(
    ("level", "off"), first_of([("State", 0.5), ("County", 0.002), ("State", 0.002)], 1, of_several=True)
)
def test_a_known_sum_over_a_large_spine_and_twelve_decades(level: str, off: float, tmp_path: Path) -> None:
    """Half off is 500 of its standard errors."""
    problem, y, known = large_spine(off)
    P = blue(problem, "two_pass")
    expected, errors = P @ y + P.offset, np.sqrt(P.variances())
    partition(tmp_path / "in", problem, y, at=level)
    stream(tmp_path / "in", tmp_path / "out")
    x, found = (read_estimates(tmp_path / "out", problem, what) for what in ("estimate", "std_error"))
    assert errors[0] == found[0] == 0
    assert x[0] == pytest.approx(known, abs=1e-8)
    assert (abs(x - expected)[1:] <= 1e-6 * errors[1:]).all()
    np.testing.assert_allclose(found, errors, rtol=1e-9)
    assert abs(x[1 + COUNTIES :].sum() - known) <= 1e-11 * known
    without = Problem(problem.schema, large_observed(problem), spine=problem.spine)
    assert abs(blue(without, "two_pass") @ y - expected)[0] > 1e-3  # or the sum would change nothing


def large_observed(problem: Problem) -> dict:
    assert problem.geounit_variances is not None
    return {
        level: {table: variances}
        for (level, table), variances in zip(problem.observed.names, problem.geounit_variances, strict=True)
    }


@pytest.mark.few(1)
@pytest.mark.parametrize("decades", [2.0, 6.0, 12.0])
@lengths("enough", ENOUGH // 10, ENOUGH)
def test_invented_spines_against_600_bits(decades: float, enough: int, tmp_path: Path) -> None:
    """Cut at every geolevel; those with equalities that can be streamed, until there are enough."""
    done = 0
    for seed in range(4_000):
        invented = invent(seed, Kind(decades=decades), in_a_tree_with_equalities)
        if invented is not None:
            done += is_streamed_exactly(invented, tmp_path / str(seed))
        if done == enough:
            return
    raise AssertionError(f"only {done} of {enough} problems could be streamed")


def is_streamed_exactly(invented: Invented, folder: Path) -> bool:
    """Whether a problem can be streamed; asserts that the answers are right."""
    try:
        problem = invented.description.problem()
    except ValueError as error:
        assert "is not estimable" in str(error)  # noqa: PT017
        return False
    y, reference = invented.y, invented.reference
    known = reference.variances == 0
    folder.mkdir()
    for level in problem.spine.levels[:-1]:
        try:
            partition(folder / f"in{level}", problem, y, at=level)
        except UnsupportedProblemError as error:
            assert "cells that were not measured" in str(error)  # noqa: PT017
            return False
        stream(folder / f"in{level}", folder / level)
        x, errors = (read_estimates(folder / level, problem, what) for what in ("estimate", "std_error"))
        assert not errors[known].any()
        np.testing.assert_allclose(errors, reference.std_errors, rtol=1e-6)
        rounding = 1e-13 * abs(y).max()
        assert (abs(x - reference.estimate) <= 1e-6 * reference.std_errors + rounding).all()
    return len(problem.spine.levels) > 1


@pytest.mark.few(2)
@pytest.mark.parametrize("unit", [1e-13, 1.0, 1e13])
def test_the_unit_of_an_equality_is_of_no_consequence(unit: float, tmp_path: Path) -> None:
    spine = Spine([-1, 0, 0, 0], ["State"] + ["Block"] * 3)
    E, observed = np.array([[0, 1.0, 1, 0]]), {"State": {"a": 4.0}, "Block": {"a": 1.0}}
    y = np.array([30.0, 8, 9, 10])
    expected = read_streamed(
        Problem(Schema({"a": 1}), observed, spine=spine, equalities=(E, [20.0])), y, tmp_path / "1"
    )
    scaled = Problem(Schema({"a": 1}), observed, spine=spine, equalities=(E * unit, [20.0 * unit]))
    np.testing.assert_allclose(read_streamed(scaled, y, tmp_path / "2"), expected, rtol=1e-12)
    assert expected[1:3].sum() == pytest.approx(20, rel=1e-13)
    two = (np.concatenate([E, E]) * unit, [20.0 * unit, 20.01 * unit])
    with pytest.raises(ValueError, match="contradict"):
        read_streamed(Problem(Schema({"a": 1}), observed, spine=spine, equalities=two), y, tmp_path / "3")


def read_streamed(problem: Problem, y: np.ndarray, folder: Path) -> np.ndarray:
    folder.mkdir()
    partition(folder / "in", problem, y, at="Block")
    stream(folder / "in", folder / "out")
    return read_estimates(folder / "out", problem)


def test_equalities_that_exact_measurements_break_are_refused() -> None:
    E = np.array([[1.0, 0, 0], [0, 1, -1]])
    problem = Problem(Schema({"a": 2}), {"total": 0.0, "a": 1.0}, ["a"], equalities=(E, [10.0, 2.0]))
    P = blue(problem, "two_pass")
    assert P.estimate([10.0, 3, 4]).info.violation == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="values known exactly contradict one another by 3 between table 'total'"):
        P.estimate([7.0, 3, 4])
