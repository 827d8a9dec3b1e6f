"""Whole counts that meet what is known exactly, for chains to start from."""

from __future__ import annotations

import numpy as np
import scipy
from scipy import sparse

from blue_solvers.nonnegative.least_squares import nnls
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.quadratic_program import NotConvergedError
from constraint_builders.arrays import Float, Integers

_DISPERSION = 1.5  # standard deviations of noise that is added to the measurements again
_WHOLE = 1e-6


def whole_starts(model: FittingModel, y: Float, chains: int, rng: np.random.Generator) -> Integers:
    """Dispersed non-negative whole counts, (chains, d), each near a fit to measurements disturbed once more.

    Raises
    ------
    ValueError
        If what is known exactly is not whole, or no whole counts meet it.
    """
    problem, exact = model.problem, model.exact_rows
    answers = model.exact_answers(y)
    if (abs(answers - np.rint(answers)) > _WHOLE).any():
        wrong = answers[abs(answers - np.rint(answers)) > _WHOLE][0]
        raise ValueError(f"a value known exactly is {wrong:g}: whole counts sum to whole numbers only")
    noisy = model.measured & ~problem.exact
    deviations = np.sqrt(np.where(noisy, problem.variances, 0.0))
    starts, normal = [], problem.replace(noise=problem.noise.of_law("gaussian"))  # of which any figures may be
    for _ in range(chains):
        disturbed = np.where(noisy, y + _DISPERSION * deviations * rng.standard_normal(y.size), y)
        wanted = nnls(normal, disturbed).detail.ravel()[model.possible]
        starts.append(_nearest_whole(wanted, exact, np.rint(answers)) if exact.shape[0] else np.rint(wanted))
    return np.array(starts, dtype=np.int64)


def _nearest_whole(wanted: Float, exact: sparse.csr_array, answers: Float) -> Float:
    """Whole counts, (cells,), with these sums, of least distance from what is wanted, by an integer program."""
    d, floor = wanted.size, np.floor(wanted)
    # x = below + above, below <= floor, above >= 0: each unit away from the floor costs one, the first step up less.
    cost = np.concatenate([-np.ones(d), np.minimum(2 * (floor + 1 - wanted), 2.0) - 1 + 1e-6, np.ones(d)])
    upper = np.concatenate([floor, np.ones(d), np.full(d, np.inf)])
    matrix = sparse.csr_array(sparse.hstack([exact, exact, exact]))
    found = scipy.optimize.milp(
        cost,
        integrality=np.ones(3 * d),
        bounds=scipy.optimize.Bounds(np.zeros(3 * d), upper),
        constraints=scipy.optimize.LinearConstraint(matrix, answers, answers),
        options={"mip_rel_gap": 0.05, "time_limit": 60.0},
    )
    if found.status == 2:
        raise ValueError("no non-negative whole counts meet what is known exactly: correct it, or give it variances")
    if found.x is None:
        raise NotConvergedError(f"no whole counts to start from were found within a minute: {found.message}")
    return np.rint(found.x).reshape(3, d).sum(axis=0)
