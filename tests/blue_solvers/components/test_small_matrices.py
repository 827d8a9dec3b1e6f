"""The algebra of small matrices against dense linear algebra on one system at a time."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.linalg import sqrtm

from blue_solvers.components.orthogonal import SMALL, compress, compress_and_invert, fit, kronecker, squares_of_sums
from blue_solvers.components.tree.messages import (
    LinearMeasurement,
    Message,
    combine,
    complement,
    merges_of,
    part,
    range_projector,
)
from tests.helpers.effort import examples
from tests.helpers.every import every

seeds = st.integers(0, 2**32 - 1)


def orthonormal(rng: np.random.Generator, m: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((m, m)))[0]


def spread(rng: np.random.Generator, m: int) -> np.ndarray:
    """A covariance whose eigenvalues are from 0.1 to 10."""
    Q = orthonormal(rng, m)
    return Q @ np.diag(10 ** rng.uniform(-1, 1, m)) @ Q.T


def inverse_of(matrix: np.ndarray, least: float = 1e-7) -> np.ndarray:
    """The pseudoinverse, singular values up to `least` being rounding."""
    if not matrix.size:
        return np.zeros(matrix.shape[::-1])
    U, sizes, V = np.linalg.svd(matrix, full_matrices=False)
    kept = sizes > least
    return V[kept].T @ (U[:, kept] / sizes[kept]).T


def random_message(rng: np.random.Generator, m: int) -> tuple[Message, np.ndarray]:
    """A batch of one, some directions unknown, some exact, and its covariance on the rest."""
    Q = orthonormal(rng, m)
    kind = rng.choice(3, m, p=[0.25, 0.25, 0.5]) if rng.random() < 0.7 else np.full(m, 2)
    U, E, V = (Q[:, kind == which] for which in range(3))
    inner = np.real(sqrtm(spread(rng, V.shape[1]))) if V.shape[1] else np.zeros((0, 0))
    root, information = V @ inner @ V.T, V @ np.linalg.inv(inner) @ V.T
    return Message(*(own[None] for own in (root, information, U @ U.T, E @ E.T))), root @ root.T


@every("size", [1e-150, 1e-155, 1e-160, 1e-200, 1e-320])
def test_columns_next_to_nothing_are_compressed_without_a_warning(size: float) -> None:
    columns = np.random.default_rng(0).standard_normal((40, 4, 6)) * np.array([1.0, 1.0, size, size])[None, :, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root = compress(columns)
    np.testing.assert_allclose(root @ root.swapaxes(1, 2), columns @ columns.swapaxes(1, 2), atol=1e-12)


@examples(60)
@given(seeds)
def test_ranges(seed: int) -> None:
    """Of sums of projectors on the same few vectors, some of the batch alike, in any order."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 7))
    bases = [orthonormal(rng, m)[:, : rng.integers(0, m + 1)] for _ in range(3)]
    which = rng.integers(0, 3, 8)
    matrices = np.stack([bases[i] @ np.diag(rng.uniform(0.5, 2, bases[i].shape[1])) @ bases[i].T for i in which])
    matrices[1] = matrices[0]
    found = range_projector(matrices)
    for own, i in zip(found[2:], which[2:], strict=True):
        assert own == pytest.approx(bases[i] @ bases[i].T, abs=1e-12)
    assert found[1] == pytest.approx(found[0])
    assert found[0] == pytest.approx(bases[which[0]] @ bases[which[0]].T, abs=1e-12)


@pytest.mark.parametrize("m", [1, 3])
def test_what_counts_as_a_range(m: int) -> None:
    """Eigenvalues above 1e-9 of the scale; what counts in one system of a batch need not in another that is alike."""
    direction = np.zeros((m, m))
    direction[0, 0] = 1.0
    sizes = np.array([1e-8, 2e-10, 1e-8, 2e-10, 2e-10])
    scale = np.array([1.0, 1.0, 1e2, 1e-2, 1.0])
    found = range_projector(sizes[:, None, None] * direction, scale)
    assert np.array_equal(found[:, 0, 0], [1, 0, 0, 1, 0])
    assert abs(found - found[:, :1, :1] * direction).max() == 0
    assert range_projector(1e-8 * direction) == pytest.approx(direction)
    assert not range_projector(2e-10 * direction).any()


@examples(60)
@given(seeds)
def test_complements_of_subspaces(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 7))
    a, b = np.sort(rng.integers(0, m + 1, 2))
    Q = np.stack([orthonormal(rng, m) for _ in range(4)])
    first, second = Q[..., :a] @ Q[..., :a].swapaxes(1, 2), Q[..., a:b] @ Q[..., a:b].swapaxes(1, 2)
    rest = complement(first, second)
    assert rest == pytest.approx(Q[..., b:] @ Q[..., b:].swapaxes(1, 2), abs=1e-12)
    if b == m:
        assert not rest.any()


def test_gains_of_what_is_exact_are_pseudo_inverses() -> None:
    W = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0], [1.0, 1.0, 1.0]])
    exact, nothing = np.array([1.0, 0.0]), np.zeros(2)
    message, (gain,) = combine([LinearMeasurement.measured(np.stack([W, W]), nothing, exact)])
    assert gain[0] == pytest.approx(np.linalg.pinv(W), abs=1e-14)
    assert message.exact[0] == pytest.approx(np.linalg.pinv(W) @ W, abs=1e-14)
    assert not gain[1].any()
    assert not message.exact[1].any()


def test_kronecker_products() -> None:
    rng = np.random.default_rng(0)
    A, B, C = (rng.standard_normal(shape) for shape in ((2, 3), (1, 4), (5, 2)))
    assert np.array_equal(kronecker([]), [[1.0]])
    assert kronecker([A, B, C]) == pytest.approx(np.kron(np.kron(A, B), C))


@every("m", [1, 2, 5, SMALL, SMALL + 1])
@every("more", [0, 1, 4])
def test_least_squares(m: int, more: int) -> None:
    """Gains, information and covariance of many systems, against the pseudoinverse of each."""
    F = np.random.default_rng(m + more).standard_normal((7, m + more, m)) * 10 ** np.linspace(-2, 2, m + more)[:, None]
    fitted = fit(F)
    for i, own in enumerate(F):
        assert fitted.inverse[i] @ own == pytest.approx(np.eye(m), abs=1e-9)
        assert fitted.inverse[i] == pytest.approx(np.linalg.pinv(own), rel=1e-7, abs=1e-9)
        assert fitted.information_root[i].T @ fitted.information_root[i] == pytest.approx(own.T @ own, rel=1e-9)
        assert fitted.covariance_root[i] @ fitted.information_root[i] == pytest.approx(np.eye(m), abs=1e-9)
    for own, other in zip(fit(np.stack([F, 2 * F], axis=1)), fitted, strict=True):  # with any axes before
        assert own.shape == (7, 2, *other.shape[1:])
        assert own[:, 0] == pytest.approx(other)


@every("m", [2, 5, SMALL + 1])
@every("dependent", [(), (3,), (0, 1, 2, 3, 4, 5)])
def test_columns_that_are_nearly_dependent_keep_their_digits(m: int, dependent: tuple[int, ...]) -> None:
    """In some systems of a batch: squares of what is left of a column, 1e-6 of it, would leave four digits of it."""
    F = np.random.default_rng(m).standard_normal((6, m + 3, m)) * 10.0 ** np.arange(m)
    for i in dependent:
        F[i, :, 1] = F[i, :, 0] + 1e-6 * F[i, :, 1]
    fitted = fit(F)
    for i, own in enumerate(F):
        lengths = np.linalg.norm(own, axis=0)
        assert fitted.inverse[i] @ own * lengths[:, None] / lengths == pytest.approx(np.eye(m), abs=1e-8)
        assert fitted.information_root[i].T @ fitted.information_root[i] == pytest.approx(own.T @ own, rel=1e-9)


@every("m", [1, 2, 5, SMALL, SMALL + 1])
@every("q", [1, 3, 20])
def test_square_roots_of_sums_of_products(m: int, q: int) -> None:
    rng = np.random.default_rng(m)
    parts = rng.standard_normal((6, m, q)), rng.standard_normal((6, m, m))
    total = sum(part @ part.swapaxes(1, 2) for part in parts)
    root = compress(*parts)
    assert root.shape == (6, m, m)
    assert root @ root.swapaxes(1, 2) == pytest.approx(total)
    root, inverse = compress_and_invert(*parts)
    assert root @ root.swapaxes(1, 2) == pytest.approx(total)
    assert root @ inverse == pytest.approx(np.stack([np.eye(m)] * 6), abs=1e-9)
    few = compress(parts[0])  # of fewer columns than rows too
    assert few @ few.swapaxes(1, 2) == pytest.approx(parts[0] @ parts[0].swapaxes(1, 2))


def test_small_and_large_rows_keep_their_own_precision() -> None:
    """One unknown is measured 1e8 times as well as the other, by rows that mix them."""
    F = np.array([[[1e8, 1e8], [1.0, -1.0], [0.5, 2.0]]])
    determinant = (2 * 1e8) ** 2 + (1.5 * 1e8) ** 2 + 2.5**2  # of F'F, by the minors of F (Cauchy and Binet)
    covariance = np.array([[1e16 + 5, -(1e16 - 1 + 1)], [-(1e16 - 1 + 1), 1e16 + 1.25]]) / determinant
    root = fit(F).covariance_root[0]
    assert root @ root.T == pytest.approx(covariance, rel=1e-12)
    together = np.ones(2) @ root  # the sum has a standard deviation of about 1e-8
    assert (together**2).sum() == pytest.approx(6.25 / determinant, rel=1e-6)


@examples(100)
@given(seeds)
def test_how_two_share_what_their_sum_is_found_to_be(seed: int) -> None:
    """The limit of Gaussian conditioning as what is unknown has ever larger variances."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 5))
    (left, one), (right, other) = random_message(rng, m), random_message(rng, m)
    of_left, of_right, root = part(left, right)
    large = 1e7

    def shares_of(size: float) -> np.ndarray:
        C, D = one + size * left.unknown[0], other + size * right.unknown[0]
        return C @ inverse_of(C + D)

    C, D = one + large * left.unknown[0], other + large * right.unknown[0]
    shares = 2 * shares_of(2 * large) - shares_of(large)  # less what goes with 1 / large
    possible = (C + D) @ inverse_of(C + D)  # what the sum may be found to differ by
    near = 1e-3 * (1 + abs(shares).max())
    assert of_left[0] @ possible == pytest.approx(shares, abs=near)
    assert of_right[0] @ possible == pytest.approx(possible - shares, abs=near)
    known, directions = np.linalg.eigh(2 * np.eye(m) - left.unknown[0] - right.unknown[0])
    unknown = directions[:, known < 1e-9]
    finite = np.eye(m) - unknown @ unknown.T
    kept = np.eye(m) - shares
    given_sum = finite @ (kept @ C @ kept.T + shares @ D @ shares.T) @ finite
    assert root[0] @ root[0].T == pytest.approx(given_sum, abs=near * (1 + abs(given_sum).max()))


@examples(60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_merges_add_up_every_owners_terms(counts: list[int]) -> None:
    owners = np.repeat(np.arange(len(counts)), counts)
    rounds, totals, size = merges_of(owners)
    values = np.zeros(size)
    values[: owners.size] = 2.0 ** np.arange(owners.size)  # sums of different terms differ
    for left, right, total in rounds:
        assert not values[total].any()
        values[total] = values[left] + values[right]
    assert np.array_equal(values[totals], np.bincount(owners, 2.0 ** np.arange(owners.size)))
    assert size == 2 * owners.size - len(counts)
    assert len(rounds) == int(np.ceil(np.log2(max(counts))))


@every("size", [(0, 0), (2, 0), (0, 2)])
def test_where_nothing_is_left_squares_are_0(size: tuple[int, int]) -> None:
    """Of numbers that are empty in a geounit."""
    root = np.zeros((3, *size))
    assert (squares_of_sums(np.ones((1, size[0])), root) == np.zeros((3, 1))).all()
    assert (squares_of_sums(sparse.csr_array(np.ones((1, size[0]))), root) == np.zeros((3, 1))).all()
