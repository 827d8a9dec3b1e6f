"""Nodes that sum leaves: trees, forests, crossed hierarchies, weights; against dense least squares on the leaves."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import blue
from constraint_builders import Problem
from constraint_builders.arrays import Float
from tests.helpers.effort import examples
from tests.helpers.refused import refused, refuses


@st.composite
def trees(draw: st.DrawFn) -> Float:
    """Summing matrices of trees and forests, with chains and with leaves that are not nodes."""
    parent = [-1]
    for node in range(1, draw(st.integers(1, 12))):
        parent.append(draw(st.integers(-1 if node < 4 else 0, node - 1)))
    hidden = draw(st.lists(st.integers(0, len(parent) - 1), max_size=2))
    below = np.eye(len(parent))
    for node in reversed(range(len(parent))):
        if parent[node] >= 0:
            below[parent[node]] += below[node]
    leaves = [i for i in range(len(parent)) if i not in parent]
    S = np.hstack([below[:, leaves], below[:, hidden]])
    return S[draw(st.permutations(range(len(parent))))]


def retail_hierarchy(items: tuple[int, ...], categories: tuple[int, ...], stores: tuple[int, ...]) -> sparse.csr_array:
    """Items in departments in categories, crossed with stores in states: twelve levels, as in the M5 competition."""
    department = np.repeat(np.arange(len(items)), items)
    item, store = (grid.ravel() for grid in np.indices((sum(items), len(stores))))
    dept, cat, state = department[item], np.array(categories)[department[item]], np.array(stores)[store]
    none = np.zeros_like(item)
    levels = [(none,), (state,), (store,), (cat,), (dept,), (state, cat), (state, dept), (store, cat), (store, dept)]
    levels += [(item,), (item, state), (item, store)]
    blocks = []
    for keys in levels:
        _, group = np.unique(np.stack(keys), axis=1, return_inverse=True)
        blocks.append(sparse.csr_array((np.ones(group.size), (group.ravel(), np.arange(group.size)))))
    return sparse.csr_array(sparse.vstack(blocks))


def test_crossed_hierarchies_get_few_entries() -> None:
    S = retail_hierarchy(items=(30, 20, 25, 25), categories=(0, 0, 1, 1), stores=(0, 0, 0, 1, 1))
    A = Problem.from_summing_matrix(S, 1.0).constraint_matrix()
    naive = S[np.asarray(S.sum(axis=1)).ravel() > 1].nnz
    assert A.shape[0] == S.shape[0] - 500
    assert A.nnz < naive / 2


def test_exact_values_that_contradict_one_another_are_refused() -> None:
    tree = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    crossed = np.vstack([tree, [[0, 1, 1]]])
    for S in (tree, crossed):
        variances = np.zeros(len(S))
        variances[4] = 1.0
        problem = Problem.from_summing_matrix(S, variances)
        y = S @ np.array([3.0, 4.0, 5.0])
        y[4] += 0.5
        problem.vector({"x": y})
        y[1] += 1
        refuses(r"contradict one another by 1 between table 'x', cell \(node=1\)", problem.vector, {"x": y})


@refused(
    ([[1, 1], [1, 0]], [1.0, 2.0, 3.0], r"must be a number or have shape \(2,\), one for every row of S: got \(3,\)"),
    ([[1, 1], [1, 0]], [[1.0, 0.0], [0.0, 1.0]], "one for every row of S"),
    ([[1, 1], [1, 0]], [1.0, -2.0], "variances is negative"),
    ([[1, np.nan], [1, 0]], 1.0, "S holds NaN"),
    ([1.0, 1.0], 1.0, "S must be a matrix"),
    ([[1j, 1.0]], 1.0, "S does not hold numbers but complex numbers"),
    (np.zeros((0, 2)), 1.0, "S must have a row for every node"),
    ([[1, 1], [1, 0]], "some", "variances is 'some': give a number, not text"),
    ([[1, 1], [1, 0], [0, 1]], [1.0, np.inf, np.inf], "row 1 of S is not estimable"),
    ([[1, 1, 0], [0, 1, 1], [1, 0, 0]], [1.0, np.inf, 1.0], "not estimable"),
)
def test_bad_input_is_refused(S: list, variances: object) -> None:
    Problem.from_summing_matrix(S, variances)  # type: ignore[arg-type]


@examples(40)
@given(S=trees(), data=st.data())
def test_trees_of_variances_that_differ_by_decades(S: Float, data: st.DataObject) -> None:
    """Against the formula over the leaves in whole fractions: estimates in standard errors, variances relatively."""
    decades = data.draw(st.lists(st.integers(-6, 6), min_size=len(S), max_size=len(S)))
    if np.linalg.matrix_rank(S) < S.shape[1]:
        S = S[:, np.unique(S, axis=1, return_index=True)[1]]
    if np.linalg.matrix_rank(S) < S.shape[1]:
        return
    precisions = [Fraction(10) ** -own for own in decades]
    y = np.random.default_rng(0).normal(0, 3, len(S)) * 10.0 ** (np.array(decades) / 2)
    X = [[Fraction(int(entry)) for entry in row] for row in S]
    k = S.shape[1]
    rows = range(len(S))
    normal = [[sum(X[i][a] * X[i][b] * precisions[i] for i in rows) for b in range(k)] for a in range(k)]
    pulls = [sum(X[i][a] * precisions[i] * Fraction(float(y[i])) for i in rows) for a in range(k)]
    inverse = inverted(normal)
    C = [[sum(X[i][a] * inverse[a][b] for a in range(k)) for b in range(k)] for i in rows]
    expected = np.array([float(sum(C[i][b] * pulls[b] for b in range(k))) for i in rows])
    variances = np.array([float(sum(C[i][b] * X[i][b] for b in range(k))) for i in rows])
    P = blue(Problem.from_summing_matrix(S, 10.0 ** np.array(decades, dtype=float)))
    np.testing.assert_allclose(P.variances(), variances, rtol=1e-12)
    est = P.estimate(y)
    np.testing.assert_allclose((est.values - expected) / np.sqrt(variances), 0, atol=1e-9)
    assert (est.info.violation or 0.0) <= 1e-12 * max(abs(y).max(), abs(est.values).max()) * len(S)


def inverted(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    """By elimination, of a positive definite matrix."""
    size = len(matrix)
    rows = [[*own, *(Fraction(int(i == j)) for j in range(size))] for i, own in enumerate(matrix)]
    for i in range(size):
        rows[i] = [entry / rows[i][i] for entry in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [own[size:] for own in rows]
