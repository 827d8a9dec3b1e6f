"""Linear combinations of cells of any parts that are known exactly: kept whatever the variances, or refused."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import UnsupportedProblemError, blue
from blue_solvers.streaming import partition, stream
from constraint_builders import Problem, Schema, Spine
from tests.blue_solvers.streaming.known_sums import with_equalities
from tests.helpers.effort import examples, first_of, lengths
from tests.helpers.oracles.invent import Invented, Kind, in_a_tree_with_equalities, invent
from tests.helpers.partitioned import assert_same, proof_in, read_estimates, require_the_bytes_after_kills, streamed
from tests.helpers.spines import SCHEMA

COUNTIES, BLOCKS = 200, 100  # blocks of a county


@pytest.mark.few(1)
@pytest.mark.parametrize(("seed", "level"), first_of([(0, 2), (1, 1), (0, 0), (2, 3), (3, 2)], 2, of_several=True))
def test_equalities_within_parts_and_over_several(seed: int, level: int, tmp_path: Path) -> None:
    problem, y = with_equalities(seed)
    assert_same(problem, y, blue(problem, "two_pass"), streamed(tmp_path, problem, y, at=problem.spine.levels[level]))
    E, b = problem.equalities
    without = problem.observing().replace(equalities=None)
    assert abs(E @ (blue(without, "two_pass") @ y) - b).max() > 0.1  # or the equalities would change nothing


def known_sum(blocks: int, above: float, variance: float, off: float) -> tuple[Problem, np.ndarray, float]:
    """Blocks whose sum is known, and was measured too; the last number is by how much it was off."""
    spine = Spine([-1] + [0] * blocks, ["State"] + ["Block"] * blocks)
    rows = np.concatenate([[0.0], np.ones(blocks)])[None]
    observed = {"State": {"a": above}, "Block": {"a": variance}}
    rng = np.random.default_rng(blocks)
    y = np.round(rng.normal(100, 10, 1 + blocks))
    y[0] = y[1:].sum() + rng.normal(0, np.sqrt(above))
    known = float(y[1:].sum()) + off
    return Problem(Schema({"a": 1}), observed, spine=spine, equalities=(rows, [known])), y, off


@pytest.mark.few(2)
@pytest.mark.parametrize("off", [0.0, 3.0, -2000.0])
def test_a_known_sum_of_many_blocks_is_kept(off: float, tmp_path: Path) -> None:
    """With their sum known, blocks of equal variance s share what is missing: x = y + off / n, variance s (1 - 1/n)."""
    problem, y, _ = known_sum(40_000, 1e-2, 100.0, off)
    out = streamed(tmp_path, problem, y, at="State")
    x = read_estimates(out, problem)
    assert abs(x[0] - y[1:].sum() - off) < 1e-11 * y[0]
    assert abs(x[1:].sum() - y[1:].sum() - off) < 1e-11 * y[0]
    assert abs(x[1:] - y[1:] - off / 40_000).max() < 1e-9
    errors = read_estimates(out, problem, "std_error")
    np.testing.assert_allclose(errors[1:], np.sqrt(100.0 * (1 - 1 / 40_000)), rtol=1e-9)
    assert errors[0] < 1e-5


@examples(30, 4)
@given(
    st.integers(1, 6),
    st.floats(-14, 12),
    st.floats(-12, 12),
    st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 50.0]),
    st.booleans(),
)
@example(3, -9.0, 0.0, 50.0, False)  # seven digits of it were lost once, where the blocks' noise cancels in their sum
def test_a_known_sum_is_kept_whatever_the_variances(
    blocks: int, above: float, variance: float, off: float, exact: bool
) -> None:
    problem, y, _ = known_sum(blocks, 0.0 if exact else 10.0**above, 10.0**variance, off)
    with tempfile.TemporaryDirectory() as folder:
        try:
            out = streamed(Path(folder), problem, y, at="Block")
        except ValueError as error:
            assert "contradict" in str(error)  # noqa: PT017
            assert exact
            assert off > 1e-9  # or it is no contradiction
            return
        x = read_estimates(out, problem)
        errors = read_estimates(out, problem, "std_error")
    size = abs(y).sum()
    assert abs(x[1:].sum() - y[1:].sum() - off) < 1e-10 * size
    assert abs(x[1:] - y[1:] - off / blocks).max() < 1e-6 * np.sqrt(10.0**variance) + 1e-10 * size
    np.testing.assert_allclose(
        errors[1:] ** 2, 10.0**variance * (1 - 1 / blocks), rtol=1e-6, atol=1e-11 * 10.0**variance
    )


@pytest.mark.slow
def test_killed_runs_with_equalities_end_with_the_same_bytes(tmp_path: Path) -> None:
    problem, y = with_equalities(1)
    partition(tmp_path / "in", problem, y, at=problem.spine.levels[2])
    stream(tmp_path / "in", tmp_path / "whole")
    require_the_bytes_after_kills(tmp_path / "in", tmp_path / "whole", tmp_path / "out")
    assert proof_in(tmp_path / "out").certificate.bound < 1e-8


@pytest.mark.parametrize("variance", [0.0, 4.0])
def test_equalities_where_no_table_holds_all_others(variance: float, tmp_path: Path) -> None:
    """Nothing bounds what they leave free, which once ended in an error of an index."""
    spine, schema = Spine([-1], ["L0"]), Schema({"a": 2, "b": 5})
    E = np.array([[0.0, 0, 160, 0, -288, 0.5, 0], [2.0, 0, 0, 0, 0, -1, 3]])
    y = np.array([14.0, 17, 11.5, 9.5, 15, 35, 25])
    problem = Problem(schema, {"L0": {"a": variance, "b": 9.0}}, spine=spine, equalities=(E, [-2000.0, 70]))
    assert_same(problem, y, blue(problem, "dense"), streamed(tmp_path, problem, y, at="L0"))


def test_equalities_that_contradict_one_another_are_refused(tmp_path: Path) -> None:
    """As soon as the input is read where something is known exactly, and else where they are solved."""
    problem, y = with_equalities(1)
    E, b = problem.equalities
    doubled = sparse.csr_array(sparse.vstack([E, 2 * E[[0]]])), np.append(b, 2 * b[0] + 1)
    with pytest.raises(ValueError, match="the equations A x = b contradict one another"):
        partition(tmp_path / "exact", problem.replace(equalities=doubled), y, at=problem.spine.levels[1])
    observed = {"A": {"a": 1.0}, "B": {"a": 2.0}}
    equalities = np.ones((1, 6)) * [[1.0], [2.0]], [5.0, 11.0]
    problem = Problem(SCHEMA, observed, spine=Spine([-1, 0, 0], ["A", "B", "B"]), desired="all", equalities=equalities)
    partition(tmp_path / "in", problem, np.arange(6.0), at="B")
    with pytest.raises(ValueError, match="the equalities contradict one another"):
        stream(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


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
    out = streamed(tmp_path, problem, y, at=level)
    x, found = (read_estimates(out, problem, what) for what in ("estimate", "std_error"))
    assert errors[0] == found[0] == 0
    assert x[0] == pytest.approx(known, abs=1e-8)
    assert (abs(x - expected)[1:] <= 1e-6 * errors[1:]).all()
    np.testing.assert_allclose(found, errors, rtol=1e-9)
    assert abs(x[1 + COUNTIES :].sum() - known) <= 1e-11 * known
    without = problem.replace(equalities=None)
    assert abs(blue(without, "two_pass") @ y - expected)[0] > 1e-3  # or the sum would change nothing


@lengths("enough", 3, 150)
def test_invented_spines_against_600_bits(enough: int, tmp_path: Path) -> None:
    """With exact and unmeasured cells, recodes, zeros; over two, six and twelve decades."""
    done, proofs = 0, Counter[str]()
    for seed in range(4_000):
        decades = (2.0, 6.0, 12.0)[seed % 3]
        invented = invent(seed, Kind(decades=decades), in_a_tree_with_equalities)
        if invented is not None:
            own = streamed_exactly(invented, tmp_path / str(seed))
            done += own.pop("problems", 0)
            proofs += own if decades < 12 else Counter()
        if done == enough:
            break
    assert done == enough
    assert proofs["proved to 1e-8"] > 0.9 * proofs["proved"] > 0, proofs
    assert proofs["contradicted"] <= 0.1 * proofs["proved"], proofs


def streamed_exactly(invented: Invented, folder: Path) -> Counter[str]:
    """Cut a problem at every geolevel: asserts that the answers are right, and no bound too small."""
    try:
        problem = invented.description.problem()
    except ValueError as error:
        assert "is not estimable" in str(error)  # noqa: PT017
        return Counter()
    y, reference = invented.y, invented.reference
    known = reference.variances == 0
    done = Counter(problems=int(len(problem.spine.levels) > 1))
    for level in problem.spine.levels[:-1]:
        (folder / level).mkdir(parents=True)
        try:
            out = streamed(folder / level, problem, y, at=level)
        except UnsupportedProblemError as error:
            assert "cells that were not measured" in str(error)  # noqa: PT017
            return Counter()
        x, errors = (read_estimates(out, problem, what) for what in ("estimate", "std_error"))
        assert not errors[known].any()
        np.testing.assert_allclose(errors, reference.std_errors, rtol=1e-6)
        off, rounding = abs(x - reference.estimate), 1e-13 * abs(y).max()
        assert (off <= 1e-6 * reference.std_errors + rounding).all()
        certificate = proof_in(out).certificate
        if certificate.bound is None:
            done["contradicted"] += "exactly" in certificate.reason
            continue
        assert (off[~known] <= certificate.bound * reference.std_errors[~known]).all()
        done["proved"] += 1
        done["proved to 1e-8"] += certificate.bound < 1e-8
    return done


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
    return read_estimates(streamed(folder, problem, y, at="Block"), problem)


def test_equalities_that_exact_measurements_break_are_refused() -> None:
    E = np.array([[1.0, 0, 0], [0, 1, -1]])
    problem = Problem(Schema({"a": 2}), {"total": 0.0, "a": 1.0}, ["a"], equalities=(E, [10.0, 2.0]))
    P = blue(problem, "two_pass")
    assert P.estimate([10.0, 3, 4]).info.violation == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="values known exactly contradict one another by 3 between table 'total'"):
        P.estimate([7.0, 3, 4])
