"""Combinations that are known exactly are written over the cells that say them with least noise, and mean the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from blue_solvers.streaming import partition, stream
from blue_solvers.streaming.least_noise import with_little_noise
from constraint_builders import Problem, Schema, Spine
from tests.helpers.effort import lengths
from tests.helpers.every import cases
from tests.helpers.oracles.description import Block, Description
from tests.helpers.oracles.exact import ContradictionError, solve
from tests.helpers.oracles.invent import Kind, in_a_tree_with_equalities, invent
from tests.helpers.partitioned import proof_in, read_estimates

MORE = 3.0  # times the noise, where sums are hardly known better than their parts: what a median moves at most
FAR = 50.0  # by how much at most what is known differs from the truth


@pytest.mark.parametrize("decades", [4.0, 12.0])
@lengths("seeds", 75, 3_000)
def test_they_say_the_same_with_hardly_more_noise(decades: float, seeds: int) -> None:
    seen = changed = 0
    for seed in range(seeds):
        invented = invent(seed, Kind(decades=decades), in_a_tree_with_equalities)
        if invented is None:
            continue
        described = invented.description
        try:
            problem = described.problem()
        except ValueError as error:
            assert "is not estimable" in str(error)  # noqa: PT017
            continue
        given = problem.equality_rows[0].toarray()
        if given[:, problem.unmeasured].any():  # which cannot be streamed
            continue
        E = with_little_noise(problem).toarray()
        M, possible = described.marginal_matrix(), ~described.empty_cells()
        np.testing.assert_array_equal((E @ M)[:, possible], (given @ M)[:, possible])
        filled = (M[:, possible] != 0).any(axis=1)
        assert not E[:, filled & problem.unmeasured].any()
        noise = np.where(filled & ~problem.unmeasured, described.variances, 0.0)
        assert (abs(E) @ noise <= MORE * (abs(given) @ noise)).all()
        seen, changed = seen + 1, changed + (given != E).any()
    assert changed > seen / 5 > 0


@cases(
    (1e-9, [1.0, 1.0], 1.0, [0, 0, 0, 1, 1, 1], [1, 0, 0, 0, 0, 0]),
    (1e-9, [1e6, 1e6], 1.0, [0, 0, 0, 1, 1, 1], [1, 0, 0, 0, 0, 0]),
    (1e-9, [np.inf, np.inf], 1.0, [0, 0, 0, 1, 1, 1], [1, 0, 0, 0, 0, 0]),
    (np.inf, [np.inf, np.inf], 1.0, [0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1]),
    (1e-9, [1.0, 1e-9], 1.0, [0, 0, 0, 1, 1, 0], [1, 0, -1, 0, 0, 0]),
    (1e-9, [1.0, 1.0], 1.0, [0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0]),
    (1e6, [1e6, 1e6], 1.0, [1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]),
    (4.0, [1.0, 1.0], 1.0, [0, 0, 0, 1, 1, 3], [0, 1, 3, 0, 0, 0]),
    (1.0, [1.0, 1.0], 1.0, [1, -1, -1, 0, 0, 0], [1, -1, -1, 0, 0, 0]),
)
def test_a_sum_is_said_where_it_was_measured_best(
    state: float, counties: list[float], block: float, given: list[int], expected: list[int]
) -> None:
    """Of a state of two counties, of two blocks and one."""
    spine = Spine([-1, 0, 0, 1, 1, 2], ["State"] + ["County"] * 2 + ["Block"] * 3)
    observed = {"State": {"a": state}, "County": {"a": np.array(counties)}, "Block": {"a": block}}
    equalities = np.array([given], dtype=float), [float(np.dot(given, [6, 3, 3, 1, 2, 3]))]
    problem = Problem(Schema({"a": 1}), observed, spine=spine, equalities=equalities)
    np.testing.assert_array_equal(with_little_noise(problem).toarray(), [expected])


@lengths("seeds", 5, 1_000)
def test_sums_measured_far_better_than_their_parts_are_streamed_exactly(seeds: int, tmp_path: Path) -> None:
    """Against 600 bits, off by fifty; one of twenty may be refused, one of two hundred not be certified and off."""
    done = refused = off = 0
    for seed in range(seeds):
        described, y = precise_sums(seed)
        try:
            reference = solve(described, y)
        except ContradictionError:
            continue
        problem = described.problem()
        level = seed % len(problem.spine.levels)
        done += 1
        try:
            partition(tmp_path / f"in{seed}", problem, y, at=f"L{level}")
            stream(tmp_path / f"in{seed}", tmp_path / str(seed))
        except ValueError as error:
            assert "estimate in memory" in str(error)  # noqa: PT017
            refused += 1
            continue
        x, errors = (read_estimates(tmp_path / str(seed), problem, what) for what in ("estimate", "std_error"))
        np.testing.assert_allclose(errors, reference.std_errors, rtol=1e-6)
        if (abs(x - reference.estimate) > 1e-6 * reference.std_errors + 1e-11 * abs(y).max()).any():
            assert proof_in(tmp_path / str(seed)).certificate.bound is None
            off += 1
    assert refused <= done / 20
    assert off <= done / 200
    assert done > seeds / 2


def precise_sums(seed: int) -> tuple[Description, np.ndarray]:
    """Blocks of counties, whose sums were measured up to twelve decades better; and sums of them that are known."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(1, 5, rng.integers(1, 4))
    parent = np.concatenate([[-1], np.zeros(blocks.size), np.repeat(np.arange(1, 1 + blocks.size), blocks)])
    level = np.repeat([0, 1, 2], [1, blocks.size, blocks.sum()])
    cells = int(rng.integers(1, 4))

    def better(count: int, *shape: int) -> np.ndarray:
        own = 10.0 ** -rng.uniform(0, 12, count if rng.random() < 0.5 else 1) * np.ones(count)
        own[rng.random(count) < rng.choice([0, 0.3])] = rng.choice([0.0, np.inf])
        return np.broadcast_to(own.reshape(count, *[1] * len(shape)), (count, *shape)).copy()

    observed = [Block(0, ("a",), better(1, cells)), Block(1, ("a",), better(blocks.size, cells))]
    observed += [Block(1, (), better(blocks.size)), Block(2, ("a",), np.ones((blocks.sum(), cells)))]
    described = Description({"a": cells}, {}, parent.astype(int), level, tuple(observed), ())
    M = described.marginal_matrix()
    truth = M @ rng.poisson(100, M.shape[1])
    noise = np.where(np.isfinite(described.variances), described.variances, 0)
    y = truth + np.sqrt(noise) * rng.standard_normal(truth.size)
    within = np.repeat(np.arange(blocks.size), blocks)
    E = np.zeros((int(rng.integers(1, 3)), truth.size))
    for own in E[:, -within.size * cells :]:
        chosen = rng.integers(blocks.size) if rng.random() < 0.5 else within
        own.reshape(within.size, cells)[within == chosen] = rng.random(cells) < 0.7
    E = E[E.any(axis=1)]
    known = E @ truth + np.rint(rng.uniform(-FAR, FAR))
    described = replace(described, desired=tuple(described.observed), equalities=(E, known) if len(E) else None)
    return described, y
