"""Equations between cells that are all known exactly say nothing of the noise, and spoil no proof."""

import warnings

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import certify
from constraint_builders import Problem
from tests.helpers.effort import examples


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), known=st.integers(1, 4), measured=st.integers(2, 6))
def test_an_answer_is_proved(seed: int, known: int, measured: int) -> None:
    """Chains of equal cells, one of which are exact and the other noisy: their weighted mean, at most rounding off."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(known + measured)
    chains = cells[:known], cells[known:]
    A = np.concatenate([np.eye(len(cells))[own[:-1]] - np.eye(len(cells))[own[1:]] for own in chains])
    variances = np.zeros(len(cells))
    variances[chains[1]] = 10.0 ** rng.uniform(-3, 3, measured)
    problem = Problem.from_matrix(A, variances)
    y = np.full(len(cells), 7.0)
    y[chains[1]] += rng.standard_normal(measured)
    weights = 1 / variances[chains[1]]
    x = np.full(len(cells), 7.0)
    x[chains[1]] = weights @ y[chains[1]] / weights.sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound = certify(problem, y, x).bound
        off = certify(problem, y, x + 1e-3 * np.isin(np.arange(len(cells)), chains[1])).bound
    assert bound < 1e-9
    assert off >= 1e-3 * np.sqrt(weights.sum()) * (1 - 1e-6)
