"""How long a solver would take: iterations from how fast they begin, a factor from its order of elimination."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from blue_solvers.contract import ConvergenceError
from blue_solvers.normal_equations.factor_size import ENTRY_BYTES
from blue_solvers.normal_equations.factorisation import entries_by_cholmod
from blue_solvers.normal_equations.noisy_equations import equations_of
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient
from constraint_builders import Problem
from constraint_builders.memory import free_memory

TRIAL_RTOL = 1e-2
USUAL_RTOL = 1e-12  # about what it takes where none is asked for
TRIAL_ITERATIONS = 150  # one that has not come to TRIAL_RTOL by then has near a thousand before it


def predicted_seconds(problem: Problem, solver: ConjugateGradient) -> float:
    """Processor seconds to prepare a problem and estimate it once, foretold from a trial of a fifth of the work.

    Convergence is close to geometric over the whole way, so that the time to a hundredth tells the time to the
    solver's tolerance: measured within a factor of 1.6 for uniform, log-uniform and two-valued variances in ratios up
    to 10^4, mostly within a quarter.

    Parameters
    ----------
    problem : Problem
    solver : ConjugateGradient

    Returns
    -------
    float
        Infinite if the trial does not converge or what the solver needs does not fit in memory.
    """
    y = np.random.default_rng(0).standard_normal((problem.observed.size, 1))
    y *= np.sqrt(np.where(problem.unmeasured, 0.0, problem.variances))[:, None]
    start = time.process_time()
    try:
        prepared = replace(solver, rtol=TRIAL_RTOL, max_iterations=TRIAL_ITERATIONS).plan(problem)
        ready = time.process_time()
        prepared.apply(y)
    except (ConvergenceError, MemoryError):
        return np.inf
    steps = math.log(solver.rtol or USUAL_RTOL) / math.log(TRIAL_RTOL)
    return ready - start + steps * (time.process_time() - ready)


def products_of_equations(problem: Problem) -> float:
    """Multiplications that form A Sigma A', of independent equations; it has no more entries than that."""
    A = problem.constraint_matrix()
    Sigma = None if problem.covariance is None else problem.noise.entries()
    reach = A if Sigma is None else A @ Sigma
    return float((np.diff(reach.tocsc().indptr).astype(float) ** 2).sum())


def operations_of_factor(problem: Problem) -> float:
    """Of the factorisation of A Sigma A', counted in its order of elimination, which is found and nothing more.

    Returns
    -------
    float
        Infinite if the factor would not fit in memory or no order is told (without scikit-sparse 0.4).
    """
    entries = entries_by_cholmod(equations_of(problem, "independent")[-1].normal_matrix())
    if entries is None or ENTRY_BYTES * float(entries.sum()) > free_memory():
        return np.inf
    return float((entries.astype(float) ** 2).sum())
