"""Answers that miss what is known exactly by rounding, which moves other figures: no bound is below their error."""

from dataclasses import replace

import numpy as np
import pytest

from blue_solvers import certify
from constraint_builders import Areas, Problem, Schema
from tests.helpers.every import every
from tests.helpers.oracles.description import Block, Description
from tests.helpers.oracles.exact import ContradictionError, solve
from tests.helpers.oracles.invent import Kind, invent

ALLOWED = 1e-13  # of the largest figure, that known ones may be off by
KINDS = [
    Kind(spine=False, decades=2.0, count=1e6),
    Kind(decades=4.0, count=1e5, cellwise=True),
    *(Kind(areas=areas, decades=4.0, count=1e6, cellwise=True) for areas in ("sets", "weights", "cut")),
]


def knows_sums(described: Description) -> bool:
    v = described.variances
    return (described.equalities is not None or (v == 0).any()) and (v > 0).any() and v.size <= 40


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.areas or f"spine {kind.spine}")
def test_what_exact_figures_are_missed_by_is_part_of_the_bound(kind: Kind) -> None:
    proved = 0
    for seed in range(60):
        found = invent(seed, kind, knows_sums)
        if found is None:
            continue
        d = replace(found.description, desired=tuple(Block(b.level, b.factors) for b in found.description.observed))
        try:
            problem, reference = d.problem(), solve(d, found.y)
        except (ValueError, ContradictionError):
            continue
        if not reference.determined.all():
            continue
        M, rng = d.marginal_matrix()[:, ~d.empty_cells()], np.random.default_rng(seed)
        known = np.vstack([np.eye(len(M))[d.variances == 0], *(() if d.equalities is None else d.equalities[:1])])
        for _ in range(4):
            moved = M @ rng.integers(-1, 2, M.shape[1]).astype(float)
            missed = max(abs(known @ moved).max(initial=0.0), 1e-3 * abs(moved).max(initial=0.0))
            if not missed:
                continue
            size = rng.uniform(0.05, 0.5) * ALLOWED * abs(reference.estimate).max() / missed
            x = reference.estimate + size * moved
            bound = certify(problem, found.y, x).bound
            assert bound is None or bound * (1 + 1e-6) >= reference.error(x), (seed, bound, reference.error(x))
            proved += bound is not None
    assert proved >= 20


@every("equality", [False, True])
@every("leaves", [2, 1_500])
@every("variance", [1.0, 1e2, 1e4])
def test_a_noisy_cell_that_takes_what_an_exact_sum_is_missed_by(variance: float, leaves: int, equality: bool) -> None:
    """Few are listed, many are not; the error is worked out by hand."""
    total, noise = 8e6, np.ones((leaves, 2))
    noise[0, 0] = variance
    areas = Areas(leaves, {"R": [np.arange(leaves) == 0]})
    row = np.zeros((1, 1 + 2 * leaves))
    row[0, 1:3] = 1
    options = {"equalities": (row, [total])} if equality else {}
    observed = {"R": {"total": np.inf if equality else 0.0}, "Leaf": {"a": noise}}
    problem = Problem(Schema({"a": 2}), observed, areas=areas, **options)
    y = np.concatenate([[total, 1e3, total - 1e3], np.full(2 * leaves - 2, 5.0)])
    for off in (2.0**-30, 2.0**-24):
        x = y.copy()
        x[:2] += off
        bound = certify(problem, y, x).bound
        assert bound >= off * np.sqrt((variance + 1) / variance) * (1 - 1e-6)
