"""How counts are spread, from rounded figures of them, and what estimates make of it."""

import numpy as np
import pytest

from blue_solvers.rounded import estimate_rounded
from blue_solvers.rounded.count_distributions import MOST, is_small, log_distribution
from constraint_builders import Problem, Schema
from noise_mechanisms import add_noise
from noise_mechanisms.laws import CellKey, PublishedCount, RandomRounding

FEW = CellKey([{0: 1.0}, {-1: 0.6, 1: 0.3, 3: 0.1}, {-2: 0.3, 1: 0.6, 0: 0.1}, {-1: 0.25, 0: 0.5, 1: 0.25}])
LAWS = [RandomRounding(3), RandomRounding(5), FEW]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_distribution_is_that_of_the_counts(law: PublishedCount) -> None:
    """Of many figures: a third zeros, the others of rates around 6 and 40, and some beyond what is told."""
    rng = np.random.default_rng(1)
    rates = rng.choice([0.0, 6.0, 40.0, 2000.0], 60_000, p=[0.3, 0.4, 0.2, 0.1]) * rng.gamma(4, 0.25, 60_000)
    counts = rng.poisson(rates)
    figures = law.publish(counts, rng)
    found = np.exp(log_distribution(law, figures))
    small = counts <= MOST
    share = np.bincount(counts[small], minlength=MOST + 1) / small.sum()
    assert abs(found.sum() - 1) < 0.02
    assert abs(found - share)[4:].sum() / 2 < 0.03
    assert abs(found - share).sum() / 2 < 0.13  # what is rounded to 0 is not told apart well
    told, true = (own @ law.variance_at(np.arange(MOST + 1.0)) for own in (found, share))
    assert abs(told - true) < max(0.4 * abs(law.variance - true), 0.05 * true)
    assert counts[is_small(law, figures)].max() <= MOST


def test_variances_are_means_over_what_others_and_the_table_suggest() -> None:
    """Beside a dense computation, in two tables of many figures; the sums have few, and no prior."""
    rng, law = np.random.default_rng(2), RandomRounding(3)
    problem = Problem(Schema({"a": 30, "b": 8}), {"a": law, "detailed": law})
    M = problem.marginal_matrix().toarray()
    y = add_noise(problem, M @ rng.poisson(rng.gamma(0.6, 4, 240)).astype(float), rng)
    own = estimate_rounded(problem, y, rounds=100, certify=False).problem.variances
    assert own.min() > 0
    detailed = problem.observed.block(1)
    prior, counts = log_distribution(law, y[detailed]), np.arange(200.0)
    looked_at = rng.choice(y.size, 40, replace=False)
    for i in looked_at:
        others = np.delete(np.arange(y.size), i)
        J = (M[others].T / own[others]) @ M[others]
        if np.linalg.matrix_rank(J) < np.linalg.matrix_rank(np.vstack([J, M[i]])):
            assert own[i] == law.variance
            continue
        inverse = np.linalg.pinv(J, hermitian=True)
        beside, spread = M[i] @ inverse @ (M[others].T @ (y[others] / own[others])), M[i] @ inverse @ M[i]
        logs = -((counts - beside) ** 2) / (2 * spread) + (prior[:200] if detailed.start <= i < detailed.stop else 0)
        weights = np.exp(logs - logs.max())
        mean = weights @ law.variance_at(counts) / weights.sum()
        assert own[i] == pytest.approx(max(mean, 0.05 * law.variance), abs=0.03 * law.variance)


@pytest.mark.few(1)
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_small_counts_are_covered_neither_too_often_nor_too_seldom(law: PublishedCount) -> None:
    """Many cells near 0, of which the law says too much noise: errors are as large as they are said to be."""
    rng, inside, errors, said = np.random.default_rng(3), [], [], []
    problem = Problem(Schema({"a": 60, "b": 4, "c": 3}), {"a * b": law, "a * c": law, "detailed": law})
    rates = rng.gamma(0.5, 5, problem.domain.size)
    by_law = []
    for _ in range(8):
        truth = problem.marginal_matrix() @ rng.poisson(rates).astype(float)
        y = add_noise(problem, truth, rng)
        est = estimate_rounded(problem, y, certify=False)
        low, high = est.interval(0.95)
        inside.append((truth >= low) & (truth <= high))
        errors.append(est.values - truth)
        said.append(est.variances)
        by_law.append(estimate_rounded(problem, y, rounds=0, certify=False).values - truth)
    assert 0.93 < np.mean(inside) < 0.965
    assert np.mean(np.square(errors)) < np.mean(np.square(by_law))
    assert 0.9 < np.mean(np.square(errors)) / np.mean(said) < 1.1
