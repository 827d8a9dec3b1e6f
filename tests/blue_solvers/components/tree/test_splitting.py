"""Components fall apart into pieces: against dense least squares, however they are cut."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import TwoPass, blue
from blue_solvers.components import component_products
from blue_solvers.components.orthogonal import kronecker
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree import splitting
from blue_solvers.components.tree.covariances import PlaceCovariances
from blue_solvers.components.tree.splitting import isotypic_components, split
from blue_solvers.components.tree.tree_plan import TreePlan
from tests.helpers.effort import examples
from tests.helpers.oracles.description import Block, Description
from tests.helpers.oracles.invent import Kind, some_with
from tests.helpers.partitioned import assert_same, streamed

CUTS = st.tuples(st.sampled_from([1, 4, 8, 64]), st.sampled_from([0, 200]))


@contextmanager
def cut(block: int, together: int) -> Iterator[None]:
    """All components in pieces, of blocks of so many group sums.

    Products take one matrix in place of pieces of components of up to `together` numbers.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "WORTH", 1)
        patch.setattr(splitting, "PUT_TOGETHER", 0)
        patch.setattr(splitting, "LARGEST_BLOCK", block)
        patch.setattr(component_products, "PUT_TOGETHER", together)
        yield


def determined(own: Description) -> bool:
    """Whether it is on a spine of several geolevels, and measurements determine every cell that may hold anything."""
    possible = own.marginal_matrix()[np.isfinite(own.variances)][:, ~own.empty_cells()]
    return own.level is not None and own.level.max() > 0 and np.linalg.matrix_rank(possible) == possible.shape[1] > 0


def with_zeros(own: Description) -> bool:
    return bool(own.zeros) and determined(own)


def without_zeros(own: Description) -> bool:
    return not own.zeros and determined(own)


def invented(seed: int) -> Description:
    """Half of the problems have structural zeros; all cells of every geounit are wanted, and what was drawn."""
    kind = Kind(equalities=False, exact=False, decades=3.0, nested=True)
    found = some_with(seed, kind, without_zeros if seed % 2 else with_zeros).description
    whole = tuple(Block(level, tuple(found.sizes)) for level in range(int(found.level.max()) + 1))
    others = tuple(own for own in found.desired if own.factors != tuple(found.sizes))
    return replace(found, desired=tuple(sorted((*whole, *others), key=lambda own: own.level)))


def dense(own: Description) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of the possible cells of all leaves observed and desired figures, precisions of the first, the covariance."""
    M, D = (matrix[:, ~own.empty_cells()] for matrix in (own.marginal_matrix(), own.desired_matrix()))
    weights = np.where(np.isfinite(own.variances), 1 / own.variances, 0.0)
    return M, D, weights, np.linalg.inv((M.T * weights) @ M)


@given(st.integers(0, 10**6), st.none() | CUTS)
def test_estimates_and_errors_equal_dense_least_squares(seed: int, how: tuple[int, int] | None) -> None:
    drawn = invented(seed)
    problem, (M, D, weights, covariance) = drawn.problem(), dense(drawn)
    rng = np.random.default_rng(seed)
    y, v = np.where(weights, rng.normal(20, 10, weights.size), 0.0), rng.normal(size=len(D))
    W = sparse.csc_array(rng.normal(size=(len(D), 3)))
    with cut(*how) if how else nullcontext():
        P = blue(problem, TwoPass())
        found = P @ y, P.variances(), P.functional_covariance(W), P.T @ v
    expected = (
        D @ (covariance @ (M.T @ (weights * y))),
        np.einsum("ij,jk,ik->i", D, covariance, D),
        W.T @ (D @ covariance @ D.T @ W),
        weights * (M @ (covariance @ (D.T @ v))),
    )
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=0, atol=1e-9 * abs(other).max(initial=0.0))
    assert (found[1][~D.any(axis=1)] <= 1e-24 * found[1].max(initial=0.0)).all()


@pytest.mark.few(0)
@examples(10)
@given(st.integers(0, 10**6), CUTS)
def test_streamed_like_in_memory(seed: int, how: tuple[int, int]) -> None:
    drawn = invented(seed)
    few = drawn.desired[:1], drawn.desired[-1:], drawn.desired  # what parts have may differ
    problem = replace(drawn, desired=few[seed % 3]).problem()
    y = np.where(problem.unmeasured, 0.0, np.random.default_rng(seed).normal(20, 10, problem.observed.size))
    level = problem.spine.levels[1 + seed % (len(problem.spine.levels) - 1)]
    with cut(*how), tempfile.TemporaryDirectory() as folder:
        assert_same(problem, y, blue(problem, "two_pass"), streamed(Path(folder), problem, y, at=level))


@given(st.integers(0, 10**6), CUTS)
def test_sums_over_places(seed: int, how: tuple[int, int]) -> None:
    drawn = invented(seed)
    problem, (_, D, _, covariance) = drawn.problem(), dense(drawn)
    rng, levels = np.random.default_rng(seed), problem.spine.levels
    with cut(*how):
        plan = TreePlan(StructuredProblem.of(problem))
        taken = sparse.csr_array(rng.normal(size=(plan.finest.size, 2)))
        sweep = PlaceCovariances(plan, plan.finest, taken)
        signs = sparse.csr_array(rng.integers(-1, 2, (2, problem.spine.size)).astype(float))
        of_places, of_one = sweep.of(signs), sweep.of(sparse.csr_array(np.eye(1, problem.spine.size)))
    level_sizes = {level: own.size for level, own in zip(levels, problem.spine.members, strict=True)}
    sums = np.zeros((2, 2, D.shape[1]))
    for geounit in range(problem.spine.size):
        name = levels[problem.spine.level_of[geounit]], "detailed"
        rows = D[problem.desired.slice(name)].reshape(level_sizes[name[0]], plan.finest.size, D.shape[1])
        own = taken.T @ rows[problem.spine.rank_in_level[geounit]]
        sums += signs[:, [geounit]].toarray()[:, :, None] * own
    root = taken.T @ D[problem.desired.slice((levels[0], "detailed"))]
    for found, rows in ((of_places, sums.reshape(4, -1)), (of_one, root)):
        expected = rows @ covariance @ rows.T
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * abs(expected).max(initial=0.0))


@given(st.integers(0, 10**6), CUTS)
def test_pieces_say_together_what_tables_say(seed: int, how: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, rng.integers(1, 4)).tolist()
    kinds = rng.integers(-1, rng.integers(1, 4), int(np.prod(lengths)))
    tables = {}
    for number in range(rng.integers(1, 6)):
        axes = []
        for n in lengths:
            groups = np.arange(n) if rng.random() < 0.4 else rng.integers(0, n, n)
            groups = np.unique(groups, return_inverse=True)[1].ravel()
            weights = np.sqrt(np.arange(1, n + 1)) if rng.random() < 0.3 else np.ones(n)
            axes.append(np.eye(groups.max() + 1)[:, groups] * weights)
        tables[str(number)] = axes
    with cut(*how):
        pieces = splitting._pieces(tables, kinds)
    basis = np.concatenate([piece.basis.toarray() for piece in pieces] or [np.zeros((kinds.size, 0))], axis=1)
    np.testing.assert_allclose(basis.T @ basis, np.eye((kinds >= 0).sum()), atol=1e-10)
    assert not basis[kinds < 0].any()
    told = {name: np.zeros((len(kronecker(axes)), kinds.size)) for name, axes in tables.items()}
    for piece in pieces:
        own = piece.basis.toarray().reshape(kinds.size, piece.size, piece.multiplicity)
        assert not any(abs(own[kinds != kind, b]).max(initial=0.0) > 1e-10 for b, kind in enumerate(piece.kinds))
        for name, rows in piece.rows.items():
            frame = piece.frames[name].toarray().reshape(-1, len(rows), piece.multiplicity)
            for copy in range(piece.multiplicity):
                np.testing.assert_allclose(frame[:, :, copy].T @ frame[:, :, copy], np.eye(len(rows)), atol=1e-9)
                told[name] += frame[:, :, copy] @ rows @ own[:, :, copy].T
    for name, axes in tables.items():
        np.testing.assert_allclose(told[name], np.where(kinds >= 0, kronecker(axes), 0.0), atol=1e-9)


def test_levels_that_rules_and_recodes_treat_alike_are_copies() -> None:
    """Of 30 ages in two groups, one of which no student is of: three numbers to be worked out, whatever the ages."""
    groups = np.repeat([0, 1], [10, 20])
    tables = {
        "detailed": [np.eye(2), np.eye(30)],
        "group": [np.ones((1, 2)), np.eye(2)[:, groups]],
        "student * group": [np.eye(2), np.eye(2)[:, groups]],
    }
    kinds = np.where(np.outer([True, False], groups == 0), -1, 0).ravel()
    division = split(tables, kinds)
    assert not division.coordinates.are_numbers
    assert sum(piece.size * piece.multiplicity for piece in division.pieces) == 50
    assert max(piece.size for piece in division.pieces) <= 3
    assert sum(piece.size for piece in division.pieces if piece.multiplicity > 1) <= 2


def test_a_block_whose_links_do_not_commute_stays_whole() -> None:
    """A rotation by a third of a turn has no real directions of its own."""
    turn = np.array([[-0.5, -np.sqrt(0.75)], [np.sqrt(0.75), -0.5]])
    kinds = np.array([0, 0, 1, 1, 2, 2])
    gram = np.eye(6)
    for one, other, link in ((0, 1, np.eye(2)), (1, 2, np.eye(2)), (0, 2, turn)):
        gram[2 * one : 2 * one + 2, 2 * other : 2 * other + 2] = 0.3 * link
        gram[2 * other : 2 * other + 2, 2 * one : 2 * one + 2] = 0.3 * link.T
    (found,) = isotypic_components(kinds, gram[None])
    assert found.vectors.shape == (6, 6, 1)
    np.testing.assert_allclose(found.vectors[:, :, 0] @ found.grams[0] @ found.vectors[:, :, 0].T, gram, atol=1e-12)
