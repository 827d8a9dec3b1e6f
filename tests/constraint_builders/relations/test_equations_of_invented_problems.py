"""Equations between tables: all that hold, none twice, and what they determine; of tables, spines and areas alike."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.true_tables import true_vector
from tests.helpers.effort import examples
from tests.helpers.exact_reference import rational_rank
from tests.helpers.oracles.description import Block, Description
from tests.helpers.oracles.invent import Kind, drawn_factors, some_with

KINDS = {
    "tables": Kind(spine=False, cellwise=True, nested=True, turned=True),
    "a spine": Kind(nested=True, turned=True),
    "areas": Kind(areas="sets", turned=True),
    "areas with weights": Kind(areas="weights"),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
SEEDS = st.integers(0, 10**6)


def described(kind: str, seed: int) -> Description:
    """A problem of a kind in which nothing but tables is known."""
    return some_with(seed, KINDS[kind], lambda own: own.equalities is None and not own.zeros).description


def rank_of(matrix: np.ndarray) -> int:
    """Of multiples of halves, exactly."""
    return rational_rank(np.rint(2 * matrix))


@each_kind
@examples(60, 5)
@given(seed=SEEDS)
def test_equations_are_all_that_hold_between_measured_cells(kind: str, seed: int) -> None:
    own = described(kind, seed)
    problem, M, measured = own.problem(), own.marginal_matrix(), np.isfinite(own.variances)
    np.testing.assert_array_equal(problem.marginal_matrix().toarray(), M)
    assert problem.rank == int(measured.sum()) - rank_of(M[measured])
    for rows in ("independent", "all"):
        A = problem.constraint_matrix(rows).toarray()
        np.testing.assert_allclose(A @ M, 0, atol=1e-10)
        assert not A[:, ~measured].any()
        assert (np.linalg.matrix_rank(A) if A.size else 0) == problem.rank
        if own.incidence is None and not problem.recodes_cross and measured.all():
            assert set(np.unique(A)) <= {-1, 0, 1}
    assert len(problem.constraint_matrix().toarray()) == problem.rank


@each_kind
@examples(80, 6)
@given(seed=SEEDS)
def test_what_is_wanted_is_summed_from_what_determines_it_or_refused(kind: str, seed: int) -> None:
    own, rng = described(kind, seed), np.random.default_rng(seed)
    levels = [0] if own.level is None else np.unique(own.level)
    own = replace(own, desired=(Block(int(rng.choice(levels)), drawn_factors(rng, own)),))
    M, D, measured = own.marginal_matrix(), own.desired_matrix(), np.isfinite(own.variances)
    if rank_of(np.vstack([M[measured], D])) != rank_of(M[measured]):
        with pytest.raises(ValueError, match="not estimable"):
            own.problem()
        return
    problem, counts = own.problem(), rng.integers(0, 9, M.shape[1]).astype(float)
    y = np.where(measured, M @ counts, 0)
    found = problem.tabulate(problem.completed(y[:, None]))[:, 0]  # what was not measured follows from the others
    np.testing.assert_allclose(found, D @ counts, atol=1e-9)
    if own.has_places:
        cells = counts.reshape(own.leaves.size, *own.sizes.values())
        np.testing.assert_allclose(true_vector(problem, cells), M @ counts)
    assert prod(problem.desired.shape(problem.desired.names[0])) == len(D)


@each_kind
@examples(40, 4)
@given(seed=SEEDS)
def test_equations_between_exact_cells_are_all_that_hold_between_them(kind: str, seed: int) -> None:
    """Where cells are empty, and sums of any cells are known: of cells measured with noise they say nothing."""
    whole = replace(KINDS[kind], cellwise=True)
    own = some_with(seed, whole, lambda own: bool(own.zeros) and bool((own.variances == 0).any())).description
    problem = own.problem()
    (A, b), exact = problem.exact_equations, own.variances == 0
    every = problem.equations()[0].toarray()
    assert np.linalg.matrix_rank(every) == len(every) == problem.rank
    assert not A.toarray()[:, ~exact].any()
    M = own.marginal_matrix()[:, ~own.empty_cells()]
    E, values = own.equalities or (np.zeros((0, len(M))), np.zeros(0))
    known = E @ M
    assert A.shape[0] == int(exact.sum()) - rank_of(np.vstack([M[exact], known])) + rank_of(known)
    assert (np.linalg.matrix_rank(A.toarray()) if A.nnz else 0) == A.shape[0]
    start, null = np.linalg.lstsq(known, values, rcond=None)[0], np.eye(M.shape[1]) - np.linalg.pinv(known) @ known
    counts = start + null @ np.random.default_rng(seed).normal(0, 9, M.shape[1])
    np.testing.assert_allclose(A @ (M @ counts), b, atol=1e-8 * (1 + abs(start).max(initial=0)))
