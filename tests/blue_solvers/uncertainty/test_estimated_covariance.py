"""Covariances against the dense P Sigma P', and the routes to variances against one another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import SeaBlue, blue
from blue_solvers.uncertainty import cell_weights, estimate_variances, functionals, variances
from blue_solvers.uncertainty.functionals import observed_weights
from constraint_builders import Problem, Schema, gallery
from tests.helpers.effort import examples
from tests.helpers.oracles.invent import plain_tables
from tests.helpers.refused import refuses


def unequal() -> Problem:
    """A 3 x 4 table with its margins, variances 1, 2 or 3 in every cell: A3 fails."""
    rng = np.random.default_rng(5)
    schema = Schema({"a": 3, "b": 4})
    shapes = {"total": (), "a": 3, "b": 4, "detailed": (3, 4)}
    return Problem(schema, {name: rng.choice([1.0, 2.0, 3.0], shape) for name, shape in shapes.items()})


def dense_covariance(P) -> np.ndarray:
    """P Sigma P' by dense matrices."""
    matrix = P @ np.eye(P.shape[1])
    return matrix @ np.diag(P.problem.variances) @ matrix.T


@examples(40)
@given(seed=st.integers(0, 10**6))
def test_three_routes_to_variances_agree(seed):
    P = blue(plain_tables(seed), "sea_blue")
    closed_form = variances(P, "closed_form")
    # Variances reach over eight decades: rounding is relative to the largest, through the condition of A Sigma A'.
    # Where all are exact, errors of weights, about 1e-16, are squared.
    noise = np.where(P.problem.unmeasured, 0, P.problem.variances)
    tolerance = 1e-9 * closed_form.max(initial=0.0) + 1e-20 * noise.max()
    np.testing.assert_allclose(variances(P, "applies"), closed_form, rtol=1e-6, atol=tolerance)
    np.testing.assert_allclose(variances(P, "selected_inversion"), closed_form, rtol=1e-6, atol=tolerance)
    np.testing.assert_array_equal(variances(P), closed_form)


@pytest.mark.parametrize("desired", [["total"], "all", ["detailed", "a", "b", "total"]])
def test_variances_by_applies_take_any_number_of_blocks(desired, monkeypatch):
    """More cells wanted than measured, and fewer; in blocks of two."""
    monkeypatch.setattr("blue_solvers.contract.prepared.VARIANCE_BLOCK", 2)
    P = blue(Problem(Schema({"a": 3, "b": 4}), {"detailed": 2.0}, desired=desired))
    np.testing.assert_allclose(variances(P, "applies"), np.diag(dense_covariance(P)), rtol=1e-12)


def test_functionals_that_do_not_fit_are_refused_by_their_number(monkeypatch):
    """The weights of 5 functionals over 12 cells, and two copies of them: 24 bytes for each."""
    P, W = blue(Problem(Schema({"a": 3, "b": 4}), {"detailed": 2.0})), sparse.csc_array(np.ones((12, 5)))
    for found in (lambda: functionals(P, np.ones(12), W).estimate, lambda: observed_weights(P, W)):
        monkeypatch.setattr("constraint_builders.memory.free_memory", lambda: 24 * 12 * 5)
        assert found().shape[-1] == 5
        monkeypatch.setattr("constraint_builders.memory.free_memory", lambda: 24 * 12 * 5 - 1)
        refuses("the weights of 5 functionals needs", found, error=MemoryError)


def test_heuristic_gets_its_own_covariance():
    heuristic, best = blue(unequal(), SeaBlue()), blue(unequal(), "dense")
    own = variances(heuristic, "applies")
    np.testing.assert_allclose(own, dense_covariance(heuristic).diagonal(), rtol=1e-9)
    assert (own > best.variances() - 1e-12).all()
    assert own.max() > 1.01 * best.variances()[own.argmax()]


@pytest.mark.parametrize("method", ["closed_form", "selected_inversion"])
def test_variances_of_the_blue_are_refused_for_a_heuristic(method):
    refuses(r"is not the BLUE: use 'applies'", variances, blue(unequal(), SeaBlue()), method)


def test_unknown_method_is_refused():
    refuses(r"method must be one of 'solver', .* got 'guess'", variances, blue(gallery.toy()), "guess")


def test_stochastic_estimates_scatter_as_they_say():
    """Standardised errors of 300 repetitions: mean 0, mean square 1, each within 5 of its own standard errors.

    All cells of one repetition share their probes, so each is tested by itself: 5 standard errors are passed by
    chance with probability 1e-6 for each of the 2 x 4 statistics.
    """
    P = blue(gallery.toy())
    exact, repetitions, probes = P.variances(), 300, 100
    scores = np.empty((4, repetitions))
    for i in range(repetitions):
        estimate, error = estimate_variances(P, probes, rng=i)
        scores[:, i] = (estimate - exact) / error
    assert (abs(scores.mean(axis=1)) < 5 / np.sqrt(repetitions)).all()
    assert (abs((scores**2).mean(axis=1) - 1) < 5 * np.sqrt(2 / repetitions) + 3 / probes).all()


def test_stochastic_estimate_does_not_depend_on_batches(monkeypatch):
    P = blue(unequal(), "dense")
    seen = []
    together = estimate_variances(P, 150, rng=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(64, 150), (128, 150), (150, 150)]
    signs = np.hstack(
        [
            np.random.default_rng(np.random.SeedSequence(1, spawn_key=(i,))).choice([-1.0, 1.0], (20, 64))
            for i in range(3)
        ]
    )[:, :150]
    samples = signs * (dense_covariance(P) @ signs)
    np.testing.assert_allclose(together[0], samples.mean(axis=1), rtol=1e-9)
    np.testing.assert_allclose(together[1], samples.std(axis=1, ddof=1) / np.sqrt(150), rtol=1e-9)


def test_one_probe_is_refused():
    refuses("probes is 1: give a whole number of 2 or more", estimate_variances, blue(gallery.toy()), 1)


def test_one_functional_may_be_a_vector_and_any_may_be_sparse():
    problem, w = gallery.toy(), np.array([1.0, 0, -2, 0])
    expected = functionals(problem, problem.truth, w[:, None])
    for same in (w, sparse.csc_array(w[:, None]), sparse.csr_array(w[:, None])[:, 0]):
        found = functionals(problem, problem.truth, same)
        np.testing.assert_array_equal(found.estimate, expected.estimate)
        np.testing.assert_array_equal(found.covariance, expected.covariance)


def test_bad_functionals_are_refused():
    problem = gallery.toy()
    refuses(r"W holds a functional .* \(4, K\): got \(3, 2\)", functionals, problem, problem.truth, np.ones((3, 2)))
    refuses("W holds NaN or infinite weights", functionals, problem, problem.truth, [np.nan, 0, 0, 0])
    refuses("cell 4 is not in the layout: positions run from 0 to 3", cell_weights, problem, [0, 4])
    refuses("cells must be a list of positions: got float64", cell_weights, problem, [0.5])
    refuses(r"table 'B', cell \(B=1\) is nan", functionals, problem, [6, np.nan, 17, 29], [1, 0, 0, 0])
