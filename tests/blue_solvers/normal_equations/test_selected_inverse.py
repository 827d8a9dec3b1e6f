"""Selected inversion against dense inverses, and its variances against those by applies."""

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from blue_solvers import blue
from blue_solvers.normal_equations import factorisation, inverses
from blue_solvers.normal_equations.cell_variances import desired_sums
from blue_solvers.normal_equations.factorisation import factorise
from blue_solvers.selected_inverse import SelectedInverse, entries_by_supernode, starts_of_supernodes
from blue_solvers.uncertainty import inverse_on_pattern, variances_by_selected_inversion
from blue_solvers.uncertainty.covariance import variances
from constraint_builders import Problem, Schema, gallery, memory
from tests.helpers.effort import examples
from tests.helpers.oracles.invent import plain_tables

LIBRARIES = [None] if factorisation.cholmod is None else [None, factorisation.cholmod]  # None is scipy
# Rounding of t' Sigma t - u' N^-1 u is relative to the first term and to the condition of N, up to about 1e7 with
# variances over eight decades; where the variance is less than a thousandth of that term it comes from the weights.
NOISE_TOLERANCE, OWN_TOLERANCE = 1e-9, 1e-6


def inverse_by(library: object, matrix: sparse.sparray) -> SelectedInverse:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factorisation, "cholmod", library)
        return SelectedInverse(*factorise(sparse.csc_array(matrix)).triangle())


@st.composite
def positive_definite(draw) -> sparse.csr_array:
    """Sparse, of 1 to 40 rows: arrows, bands, forests and whatever falls out."""
    size = draw(st.integers(1, 40))
    seed = draw(st.integers(0, 2**32 - 1))
    density = draw(st.sampled_from([0.0, 0.02, 0.1, 0.4]))
    B = sparse.random_array((size, size), density=density, rng=np.random.default_rng(seed))
    return sparse.csr_array(B @ B.T + sparse.eye_array(size))


@pytest.mark.parametrize("library", LIBRARIES)
@examples(60)
@given(matrix=positive_definite())
def test_entries_are_those_of_the_inverse(library, matrix):
    inverse = np.linalg.inv(matrix.toarray())
    rows, columns = matrix.nonzero()
    found = inverse_by(library, matrix).at(rows, columns)
    np.testing.assert_allclose(found, inverse[rows, columns], atol=1e-12 * abs(inverse).max())


def test_result_has_the_matrix_pattern():
    matrix = sparse.diags_array([[1.0] * 4, [4.0] * 5, [1.0] * 4], offsets=[-1, 0, 1]).tocsr()
    found = inverse_on_pattern(matrix)
    assert (found != 0).toarray().tolist() == (matrix != 0).toarray().tolist()
    np.testing.assert_allclose(found.diagonal(), np.linalg.inv(matrix.toarray()).diagonal(), rtol=1e-14)


@pytest.mark.parametrize("library", LIBRARIES)
def test_indefinite_matrix_is_refused(library):
    with pytest.raises(ValueError, match="no Cholesky factor"):
        inverse_by(library, sparse.csc_array(np.array([[1.0, 2.0], [2.0, 1.0]])))


def test_entry_off_the_pattern_is_refused():
    inverse = inverse_by(LIBRARIES[-1], sparse.eye_array(3))
    with pytest.raises(ValueError, match=r"entry \(0, 2\) of the inverse is off the factor's pattern"):
        inverse.at(np.array([0, 0]), np.array([0, 2]))


def test_entries_that_cancel_stay_on_superlus_pattern():
    """The Schur complement has zeros at (2, 1) by cancellation, which SuperLU may drop and later fronts need."""
    matrix = np.array([[1.0, 1, 1, 0], [1, 3, 1, 1], [1, 1, 3, 1], [0, 1, 1, 4]])
    rows, columns = np.nonzero(matrix)
    found = inverse_by(None, sparse.csc_array(matrix)).at(rows, columns)
    np.testing.assert_allclose(found, np.linalg.inv(matrix)[rows, columns], atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"cellwise": True}, {"covariance": "sparse", "decades": 3.0}], ids=str)
@examples(40, 5)
@given(seed=st.integers(0, 10**6))
def test_variances_agree_with_applies(options, seed):
    problem = plain_tables(seed, **options)
    T, Sigma = desired_sums(problem), problem.noise_covariance
    noise = np.einsum("ij,ji->i", T.toarray(), Sigma @ T.T.toarray())
    expected = variances(blue(problem, "dense"), "applies")
    rounding = (64 * np.finfo(float).eps) ** 2 * noise.max(initial=0)  # of a reference that should be 0
    for dense in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inverses, "is_cheaper_dense", lambda _, dense=dense: dense)
            error = abs(variances_by_selected_inversion(problem) - expected)
        assert (error <= NOISE_TOLERANCE * noise + OWN_TOLERANCE * expected + rounding).all()


def test_poorly_measured_cells_keep_their_digits():
    """A total of variance 1e14 over cells of variance 1 has the variance of their sum, which cancellation loses."""
    problem = Problem(Schema({"a": 5}), {"total": 1e14, "a": [1.0, 1.0, 1.0, 1.0, 1.0]})
    found = variances_by_selected_inversion(problem)
    np.testing.assert_allclose(found[0], 1 / (1 / 5 + 1e-14), rtol=1e-12)


def test_no_equations_leave_the_noise():
    problem = Problem(Schema({"a": 3}), {"a": [1.0, 2.0, 3.0]})
    np.testing.assert_array_equal(variances_by_selected_inversion(problem), [1, 2, 3])


def test_variances_by_products_where_no_equations_hold() -> None:
    covariance = aslinearoperator(sparse.diags_array([1.0, 2.0, 3.0, 4.0]))
    problem = Problem(Schema({"a": 2, "b": 2}), {"a * b": None}, desired=["total", "a"], covariance=covariance)
    np.testing.assert_allclose(blue(problem, "cg").variances(), [10.0, 3.0, 7.0], rtol=1e-13)


def test_too_little_memory_is_refused_before_allocating(monkeypatch):
    problem = gallery.cube(3, 6)  # its constraint matrix needs 42 KiB
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 100_000}))
    memory._free_in.cache_clear()
    with pytest.raises(MemoryError, match=r"selected inversion for 343 cells in 127 equations needs .* are free"):
        variances_by_selected_inversion(problem)


def test_fronts_that_would_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are needed at once: of a chain two, of a full matrix one."""
    free = 8.0 * (2 * 2_000 + 2 * 4)
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    chain = sparse.diags_array([np.full(1_999, -0.4), np.ones(2_000)], offsets=[-1, 0]).tocsc()
    full = sparse.csc_array(np.tril(np.ones((100, 100)) + 99 * np.eye(100)))

    def by_fronts(L: sparse.csc_array) -> None:
        starts = starts_of_supernodes(L.indptr, L.indices)
        entries_by_supernode.reference(L.indptr, L.indices, L.data, starts, np.empty(L.nnz))

    by_fronts(chain)
    with pytest.raises(MemoryError, match="selected inversion over 1 supernodes with 5,050 entries needs"):
        by_fronts(full)


@pytest.mark.parametrize("most", [1, 50, 5000])
def test_pairs_that_do_not_fit_at_once_take_several_sweeps(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(inverses, "is_cheaper_dense", lambda _: False)
    problem = gallery.cube(3, 3)
    expected = variances_by_selected_inversion(problem)
    monkeypatch.setattr(inverses, "MOST_PAIRS", most)
    np.testing.assert_allclose(variances_by_selected_inversion(problem), expected, rtol=1e-12)


@examples(40, 5)
@given(seed=st.integers(0, 10_000))
def test_sums_of_leaves_measured_well_and_poorly(seed: int) -> None:
    """Some so poorly that their variance comes from the weights."""
    rng = np.random.default_rng(seed)
    leaves = int(rng.integers(1, 6))
    sums = (rng.random((int(rng.integers(1, 5)), leaves)) < 0.6) * rng.choice([1.0, 2.0], leaves)
    S = np.vstack([sums[sums.any(axis=1)], np.eye(leaves)])
    noise = 10 ** rng.uniform(-3, 3, len(S))
    expected = np.diag(S @ np.linalg.inv(S.T @ (S / noise[:, None])) @ S.T)
    found = variances_by_selected_inversion(Problem.from_summing_matrix(S, noise))
    np.testing.assert_allclose(found, expected, rtol=1e-7)
