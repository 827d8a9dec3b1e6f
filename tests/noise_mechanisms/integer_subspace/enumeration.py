"""Laws on small lattices by listing their points, and the chi-square test of draws against them."""

from collections.abc import Callable

import numpy as np
from scipy import stats

from constraint_builders import Schema
from noise_mechanisms.integer_subspace import Invariants, Lattice

# A right sampler failed with this chance when the test was written; seeds are fixed. Release-grade draws have no seed:
# there it is the false-alarm rate of every run.
FALSE_ALARM = 1e-6
FEWEST_EXPECTED = 8.0


def margins(shape: tuple[int, ...], *tables: str) -> Invariants:
    """Invariants of a table whose axes are called a, b, c, ..."""
    return Invariants.from_margins(Schema(dict(zip("abcdefg", shape, strict=False))), tables)


TREE = Invariants.from_subsets([[0, 1, 2, 3], [0, 1]], records=5)
INTERSECTING = Invariants.from_subsets([[0, 1, 2], [0, 2, 3, 4], [1, 4, 5, 0]], records=6)
LARGE_STEPS = Invariants.from_subsets(
    [[0, 1, 2], [0, 3, 4], [1, 3, 5], [2, 4, 5], [0, 1, 5, 6], [2, 3, 6]], records=7
)  # its only move is (3, -4, 1, 1, -4, 3, -2)
TWO_BY_THREE = margins((2, 3), "a", "b")


def enumerate_law(
    lattice: Lattice, cost: Callable[[np.ndarray], np.ndarray], reach: int
) -> tuple[np.ndarray, np.ndarray]:
    """All points with coordinates up to `reach`, and their probabilities, proportional to exp(-cost)."""
    axes = [np.arange(-reach, reach + 1)] * lattice.dimension
    coordinates = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, lattice.dimension)
    points = coordinates @ lattice.basis.toarray().T
    weight = np.exp(-cost(points))
    return points, weight / weight.sum()


def l1_cost(epsilon: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda points: epsilon * abs(points).sum(axis=1)


def l2_cost(epsilon: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda points: epsilon * np.sqrt(np.square(points).sum(axis=1))


def gaussian_cost(sigma: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda points: np.square(points).sum(axis=1) / (2 * sigma**2)


def p_value(draws: np.ndarray, points: np.ndarray, probability: np.ndarray) -> float:
    """Chi-square p-value of draws (n, d) of a law on points (N, d), rare points merged with all that is not listed."""
    frequent = probability * len(draws) >= FEWEST_EXPECTED
    index = {tuple(point): i for i, point in enumerate(points[frequent].tolist())}
    observed = np.bincount([index.get(tuple(draw), len(index)) for draw in draws.tolist()], minlength=len(index) + 1)
    rest = probability[~frequent].sum()
    return _merged_p_value(observed, np.append(probability[frequent], rest) * len(draws))


def p_value_of_norms(draws: np.ndarray, points: np.ndarray, probability: np.ndarray) -> float:
    """The same for the L1 norm of the draws, where there are too few of them to tell points apart."""
    norms = np.bincount(abs(points).sum(axis=1), weights=probability)
    drawn = np.minimum(abs(draws).sum(axis=1), norms.size)
    return _merged_p_value(np.bincount(drawn, minlength=norms.size + 1), np.append(norms, 0.0) * len(draws))


def _merged_p_value(observed: np.ndarray, expected: np.ndarray) -> float:
    frequent = expected >= FEWEST_EXPECTED
    assert np.count_nonzero(frequent) >= 2, "too few draws for a test"
    seen = np.append(observed[frequent], observed[~frequent].sum())
    wanted = np.append(expected[frequent], expected[~frequent].sum())
    if wanted[-1] < FEWEST_EXPECTED:
        starts = np.arange(wanted.size - 1)
        seen, wanted = np.add.reduceat(seen, starts), np.add.reduceat(wanted, starts)
    return float(stats.chisquare(seen, wanted).pvalue)
