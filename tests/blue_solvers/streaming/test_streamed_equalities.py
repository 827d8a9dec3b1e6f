"""Linear combinations of cells of any parts that are known exactly: kept as in memory, or refused."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import blue
from blue_solvers.streaming import partition, stream
from constraint_builders import Problem, Schema, Spine
from tests.blue_solvers.streaming.known_sums import with_equalities
from tests.helpers.effort import examples, first_of
from tests.helpers.partitioned import assert_same, proof_in, read_estimates, require_the_bytes_after_kills
from tests.helpers.spines import SCHEMA


@pytest.mark.few(1)
@pytest.mark.parametrize(("seed", "level"), first_of([(0, 2), (1, 1), (0, 0), (2, 3), (3, 2)], 2, of_several=True))
def test_equalities_within_parts_and_over_several(seed: int, level: int, tmp_path: Path) -> None:
    problem, y = with_equalities(seed)
    assert problem.equalities is not None
    partition(tmp_path / "in", problem, y, at=problem.spine.levels[level])
    stream(tmp_path / "in", tmp_path / "out")
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
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
    partition(tmp_path / "in", problem, y, at="State")
    stream(tmp_path / "in", tmp_path / "out")
    x = read_estimates(tmp_path / "out", problem)
    assert abs(x[0] - y[1:].sum() - off) < 1e-11 * y[0]
    assert abs(x[1:].sum() - y[1:].sum() - off) < 1e-11 * y[0]
    assert abs(x[1:] - y[1:] - off / 40_000).max() < 1e-9
    errors = read_estimates(tmp_path / "out", problem, "std_error")
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
            partition(Path(folder) / "in", problem, y, at="Block")
            stream(Path(folder) / "in", Path(folder) / "out")
        except ValueError as error:
            assert "contradict" in str(error)  # noqa: PT017
            assert exact
            assert off > 1e-9  # or it is no contradiction
            return
        x = read_estimates(Path(folder) / "out", problem)
        errors = read_estimates(Path(folder) / "out", problem, "std_error")
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
    partition(tmp_path / "in", problem, y, at="L0")
    stream(tmp_path / "in", tmp_path / "out")
    assert_same(problem, y, blue(problem, "dense"), tmp_path / "out")


def test_equalities_that_contradict_one_another_are_refused(tmp_path: Path) -> None:
    """As soon as the input is read where something is known exactly, and else where they are solved."""
    problem, y = with_equalities(1)
    assert problem.equalities is not None
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
