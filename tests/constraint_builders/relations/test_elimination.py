"""Sparse elimination against exact ranks."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from constraint_builders import Problem, Schema
from constraint_builders.relations.elimination import eliminate, relations_between_rows
from tests.helpers.every import every
from tests.helpers.exact_reference import rational_rank
from tests.helpers.oracles.exact import modular


@st.composite
def systems(draw) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = draw(st.integers(0, 8)), draw(st.integers(1, 8))
    entries = draw(st.lists(st.integers(-2, 2), min_size=rows * columns, max_size=rows * columns))
    chosen = draw(st.sets(st.integers(0, columns - 1)))
    return np.array(entries, dtype=float).reshape(rows, columns), np.array(sorted(chosen), dtype=int)


@given(systems())
def test_what_remains_and_what_was_solved(system: tuple[np.ndarray, np.ndarray]) -> None:
    A, columns = system
    found = eliminate(sparse.csr_array(A), columns)
    others = np.setdiff1d(np.arange(A.shape[1]), columns)
    rank_of_columns = rational_rank(A[:, columns])
    assert found.pivot_rows.size == rank_of_columns == rational_rank(A[np.ix_(found.pivot_rows, columns)])
    assert sorted([*found.solved_columns, *found.free_columns]) == columns.tolist()
    assert not found.remaining[:, columns].toarray().any()
    assert np.allclose(found.solved[:, found.solved_columns].toarray(), np.eye(rank_of_columns))
    both = np.vstack([found.remaining.toarray(), found.solved.toarray()])
    assert np.linalg.matrix_rank(both, tol=1e-8) == rational_rank(A) if both.size else rational_rank(A) == 0
    if A.size and both.size:  # same row space
        assert np.linalg.matrix_rank(np.vstack([A, both]), tol=1e-8) == rational_rank(A)
    assert found.remaining.shape[1] == A.shape[1]
    assert set(others) >= set(np.unique(found.remaining.nonzero()[1]))


@pytest.mark.parametrize("size", [8, 64])
def test_rounding_in_place_of_zeros_decides_no_unit(size: int) -> None:
    """Weights as a product of matrices leaves them, 1e-17 where it cancelled: rows that are independent stay so."""
    rng = np.random.default_rng(size)
    W = np.linalg.qr(rng.normal(size=(size, size)))[0] * (rng.random((size, size)) < 0.3) + np.eye(size)
    empty = (W == 0).nonzero()
    W[empty] = rng.normal(size=empty[0].size) * 10.0 ** rng.uniform(-34, -16, empty[0].size)
    assert np.linalg.cond(W) < 1e3
    assert relations_between_rows(sparse.csr_array(W)).shape == (0, size)
    twice = relations_between_rows(sparse.csr_array(np.vstack([W, W[:3] + W[3:6]]))).toarray()
    assert twice.shape == (3, size + 3)
    assert abs(twice @ np.vstack([W, W[:3] + W[3:6]])).max() < 1e-11 * abs(twice).max()


def solved_exactly(A: np.ndarray) -> list[float]:
    """The last column of the reduced row echelon form of (n, n + 1), in rational arithmetic."""
    M = [[Fraction(float(entry)) for entry in row] for row in A]
    for j in range(len(M)):
        pivot = next(i for i in range(j, len(M)) if M[i][j] != 0)
        M[j], M[pivot] = M[pivot], M[j]
        M[j] = [entry / M[j][j] for entry in M[j]]
        for i in range(len(M)):
            if i != j:
                M[i] = [own - M[i][j] * other for own, other in zip(M[i], M[j], strict=True)]
    return [float(row[-1]) for row in M]


@every("small", [3e-6, 3e-7, 3e-8])
@every(
    ("matrix", "place"),
    [
        ([[-1, 1, -1, 0], [-1, -1, -1, 0], [0, -1, 1, -1], [1, -1, -1, 0]], (0, 3)),
        ([[-1, 1, -1, 1], [1, 1, -1, 1], [0, 0, 0, -1], [-1, 0, -1, 0]], (2, 0)),
        ([[1, 1, 0], [1, 0, 1], [0, 1, 1]], (1, 1)),
    ],
)
def test_no_pivot_magnifies_rounding(small: float, matrix: list[list[float]], place: tuple[int, int]) -> None:
    """Well-conditioned equations with one small entry are solved to rounding; entries of a row lie in any order."""
    A = np.array(matrix, dtype=float)
    A[place] = small
    assert np.linalg.cond(A) < 10
    A = np.column_stack([A, [0.7, 0.9, 1.1, 1.3][: len(A)]])
    found, expected = eliminate(sparse.csr_array(A), np.arange(len(A))), solved_exactly(A)
    assert found.free_columns.size == 0
    errors = found.solved[:, [len(A)]].toarray().ravel() - np.array(expected)[found.solved_columns]
    assert abs(errors).max() < 1e-13 * np.abs(expected).max()


@pytest.mark.parametrize("unit", [1e-13, 1e13])
def test_no_unit_of_an_unknown_decides_what_is_zero(unit: float) -> None:
    """Entries of 1, and in one column of 1 in another unit."""
    A = np.array([[1, 1, 0, 1], [1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 1, 0]], dtype=float)
    for column in range(4):
        scaled = A.copy()
        scaled[:, column] *= unit
        found = eliminate(sparse.csr_array(scaled), np.arange(4))
        assert found.pivot_rows.size == rational_rank(A) == 4
        assert found.free_columns.size == 0


def test_systems_that_differ_in_any_number_are_told_apart() -> None:
    """Small ones are remembered: by their entries, where these are, how wide they are and what is eliminated."""
    rows = np.array([[1.0, 2, 0, 0], [0, 1, 1, 3]])
    other, moved, wider = rows.copy(), rows[:, [0, 2, 1, 3]], np.hstack([rows, np.zeros((2, 1))])
    other[1, 3] = 5
    found = {}
    for name, A, columns in (
        ("first", rows, [0, 1]), ("other", other, [0, 1]), ("moved", moved, [0, 1]), ("wider", wider, [0, 1]),
        ("less", rows, [0]), ("again", rows, [0, 1]),
    ):  # fmt: skip
        found[name] = eliminate(sparse.csr_array(A), np.array(columns))
        assert found[name].solved.shape == (len(columns), A.shape[1])
        both = np.vstack([found[name].solved.toarray(), found[name].remaining.toarray(), A])
        assert np.linalg.matrix_rank(both) == 2, name
    assert found["again"] is found["first"]
    assert len({id(own) for own in found.values()}) == 5


@pytest.mark.parametrize("size", [10, 30, 100])
@pytest.mark.parametrize("apart", [0.0, 1e-12, 1e-9])
def test_rounding_is_told_from_rows_that_nearly_follow(size: int, apart: float) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        A = rng.integers(-8, 9, (size, size + 20)) / 8 * (rng.random((size, size + 20)) < 3 / size)
        A[range(size), range(size)] += 1
        last = rng.integers(-64, 65, size) / 64 @ A  # exactly
        last[-20:] += apart * abs(last).max() * np.eye(20)[np.argmax((A[:, -20:] != 0).sum(axis=0))]
        rows = np.vstack([A, last])
        found = eliminate(sparse.csr_array(rows), np.arange(size + 20)).nearly_dependent
        assert (found.size > 0) == (modular(rows).rank() > modular(A).rank()), seed


@pytest.mark.parametrize("decades", [0, 3])
def test_equalities_that_follow_from_others_to_rounding_are_no_equations(decades: int) -> None:
    """Of rows and cells in units of their own; refused by name at most where rounding is large."""
    refusals = list[str]()
    for seed in range(200):
        rng = np.random.default_rng([seed, decades])
        cells = int(rng.integers(3, 12))
        rows = int(rng.integers(1, cells))
        E = rng.normal(size=(rows, cells)) * 10 ** rng.uniform(-3, 3, (rows, 1))
        E, x = E * 10 ** rng.uniform(-decades, decades, cells), rng.normal(0, 100, cells)
        mixed = rng.normal(size=(int(rng.integers(1, 3)), rows))
        F, b = np.vstack([E, mixed @ E]), np.concatenate([E @ x, mixed @ (E @ x)])
        schema, variances = Schema({"a": cells}), {"a": 1.0}
        try:
            assert Problem(schema, variances, equalities=(F, b)).rank == rows, seed
        except ValueError as refusal:
            refusals.append(str(refusal))
        b[-1] += 1e-6 * abs(F[-1]) @ abs(x)
        with pytest.raises(ValueError, match=r"contradict|nearly a combination|weighs cells by"):
            _ = Problem(schema, variances, equalities=(F, b)).rank
    assert len(refusals) <= 20
    assert all(re.search(r"nearly a combination|weighs cells by", said) for said in refusals)


@every("seed", [1657, 2512, 2290, 710])
def test_relations_between_rows_of_wide_weights_hold_to_rounding(seed: int) -> None:
    """Pivots of a hundredth piled roundings up: areas' relations were 5e-6 of themselves off, and called exact."""
    rng = np.random.default_rng(seed)
    weights = rng.choice([0, 1, 7, -40, -704, 768, 224, 0.1875, 0.46875, 512], (6, 4))
    M = np.vstack([np.kron(weights, np.eye(3)), np.kron(weights[:3], np.ones((1, 3)))])
    M = M[:, rng.random(12) < 0.8]
    M = M[abs(M).sum(axis=1) > 0]
    A = relations_between_rows(sparse.csr_array(M)).toarray()
    assert len(A) == len(M) - modular(M).rank()
    left = [
        sum((Fraction(a) * Fraction(m) for a, m in zip(row, column, strict=True)), Fraction())
        for row in A
        for column in M.T
    ]
    assert (abs(np.array(left, dtype=float)) <= 1e-13 * (abs(A) @ abs(M)).ravel()).all()


@every("digits", [12, 13, 14])
@every("seed", range(6))
def test_rows_that_add_up_to_the_digits_they_are_written_with_follow_from_one_another(digits: int, seed: int) -> None:
    """What thirds of 12 digits leave was taken for knowledge of its own: sums were no sums, and nothing said so."""
    rng = np.random.default_rng(seed)
    parts = rng.choice([0.1, 1 / 3, 2 / 3, 1 / 7, 1], (3, 6))
    M = np.round(np.vstack([parts, np.array([[1, 1, 0], [0, 1, 1]]) @ parts]), digits)
    A = relations_between_rows(sparse.csr_array(M)).toarray()
    assert A.shape == (2, 5)
    assert (abs(A @ M) <= 100 * 10.0**-digits * (abs(A) @ abs(M))).all()
    np.testing.assert_allclose(A[:, :3] + A[:, 3:] @ np.array([[1, 1, 0], [0, 1, 1]]), 0, atol=1e-9)


@every("seed", [8, 84])
def test_what_is_dropped_is_small_in_whatever_order_entries_stand(seed: int) -> None:
    """Rows that no pivot touched were put in order between choosing and dropping: large entries went instead."""
    rng = np.random.default_rng(seed)
    A = 10.0 ** rng.integers(-6, 6, (12, 16)) * (rng.random((12, 16)) < 0.3)
    found = eliminate(sparse.csr_array(A), np.arange(10))
    rows, solved = A[found.pivot_rows], found.solved.toarray()
    pivots = rows[:, found.solved_columns]
    assert (abs(pivots @ solved - rows) <= 1e-6 * (abs(pivots) @ abs(solved)).max(axis=1, keepdims=True)).all()
