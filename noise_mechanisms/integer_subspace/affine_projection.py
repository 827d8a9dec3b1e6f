"""The mechanism that the paper compares with: double geometric noise, projected by linear programs."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.description.reals import positive_number, whole_number
from noise_mechanisms.integer_subspace.invariants import Invariants
from noise_mechanisms.integer_subspace.sampler import Seed
from noise_mechanisms.laws import DiscreteLaplace


def projected_noise(
    invariants: Invariants, epsilon: float, size: int, rng: Seed = None, whole: bool = True
) -> NDArray[np.float64]:
    """Draw independent double geometric noise and move it, by as little as possible in L1, to where invariants hold.

    The result's law has no formula, and among equally near points the solver's choice decides: that is what the
    generalized Laplace mechanism is compared with (the paper's appendix E.4). Simulation only: seeded draws in floating
    point promise nothing.

    Parameters
    ----------
    invariants : Invariants
        What must not change.
    epsilon : float
        Noise has probabilities proportional to exp(-epsilon |k|).
    size : int
        Number of draws; a linear program each, some milliseconds.
    rng : numpy.random.Generator, SeedSequence, int or None
        Source of randomness.
    whole : bool
        Whether the result must be whole numbers (integer programming) or may be real.

    Returns
    -------
    ndarray of float64, (size, d)

    Raises
    ------
    RuntimeError
        If the solver fails, with its message.
    """
    records, epsilon = invariants.records, positive_number(epsilon, "epsilon")
    size = whole_number(size, "size", 0)
    noise = DiscreteLaplace(1 / epsilon).sample(size * records, rng).reshape(size, records)
    return np.array([draw - _excess(invariants, draw, whole) for draw in noise], dtype=np.float64).reshape(
        size, records
    )


def _excess(invariants: Invariants, noise: NDArray[np.int64], whole: bool) -> NDArray[np.float64]:
    """The smallest change in L1 with A change = A noise, as a difference of two vectors that are not negative."""
    A = sparse.csr_array(sparse.hstack([invariants.matrix, -invariants.matrix]))
    target = invariants.apply(noise)
    solution = scipy.optimize.milp(
        np.ones(2 * invariants.records),
        constraints=scipy.optimize.LinearConstraint(A, target, target),
        bounds=scipy.optimize.Bounds(0, np.inf),
        integrality=np.full(2 * invariants.records, int(whole)),
    )
    if not solution.success:
        raise RuntimeError(f"the projection of the noise failed: {solution.message}")
    change = solution.x[: invariants.records] - solution.x[invariants.records :]
    return np.asarray(np.rint(change) if whole else change)
