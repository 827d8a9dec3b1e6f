"""One solver on one problem: what it takes to prepare, to apply, to say its variances, and how good the answer is."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from blue_solvers.benchmarking.clock import best_seconds, copy_seconds, forget_peak, peak_bytes
from blue_solvers.contract import ConvergenceError, Prepared, Solver, UnsupportedProblemError
from blue_solvers.contract.prepared import VARIANCE_BLOCK
from blue_solvers.operator import BlueOperator, blue
from blue_solvers.solvers import SolverName
from blue_solvers.verification import certify
from constraint_builders import Problem
from constraint_builders.arrays import Float
from noise_mechanisms import draw_noise

DONE = "done"
LARGE = 2_000_000  # cells above which many columns at once are not tried
LONGEST_VARIANCES = 20.0  # seconds: where they would take longer column by column they are left out


@dataclass(frozen=True)
class Costs:
    """What was measured of a solver on a problem; None where that was not, NaN nowhere.

    Attributes
    ----------
    status : str
        ``"done"``, or why there are no figures.
    by : str or None
        What did the work, as ``P.info.solver`` says.
    exact : bool or None
        Whether it promises the best estimate.
    prepare, apply, many_columns, variances, copy : float or None
        Seconds: once; of one column; of `columns` at once; of all exact variances; to copy input and output once.
    memory : int or None
        By how many bytes the largest resident memory grew, until one column was applied.
    iterations : int or None
        Of one column.
    error : float or None
        Proved: how far any figure is at most from the best estimate, in its own standard errors.
    proof : str or None
        What proves that, or why it is not certified.
    """

    status: str
    by: str | None = None
    exact: bool | None = None
    prepare: float | None = None
    apply: float | None = None
    many_columns: float | None = None
    variances: float | None = None
    copy: float | None = None
    memory: int | None = None
    iterations: int | None = None
    error: float | None = None
    proof: str | None = None


def figures(problem: Problem, solver: SolverName | Solver, columns: int, seed: int, alone: bool) -> Costs:
    """Measure a solver on a problem, in this process.

    Parameters
    ----------
    problem : Problem
    solver : str or Solver
    columns : int
        How many are applied at once; not tried above two million cells.
    seed : int
        Of the measurements: the problem's truth, if it has one, and noise of its law.
    alone : bool
        Whether nothing else was done in this process, so that its peak memory is the solver's.
    """
    try:
        return _figures(problem, solver, columns, seed, alone)
    except (UnsupportedProblemError, ConvergenceError, MemoryError, ImportError) as error:
        return Costs(status=f"{type(error).__name__}: {error}")


def _figures(problem: Problem, solver: SolverName | Solver, columns: int, seed: int, alone: bool) -> Costs:
    y, Y = _measurements(problem, columns, seed)
    before = forget_peak() if alone else 0
    start = time.perf_counter()
    P = blue(problem, solver)
    prepare = time.perf_counter() - start
    x, info = P.apply(y)
    memory = peak_bytes() - before if alone else None
    apply = best_seconds(lambda: P @ y)
    many = None if Y is None else best_seconds(lambda: P @ Y, repeats=2, least=0)
    error, proof = _judged(P, y)
    return Costs(
        status=DONE,
        by=info.solver,
        exact=info.exact,
        prepare=prepare,
        apply=apply,
        many_columns=many,
        variances=_seconds_of_variances(P, apply),
        copy=copy_seconds(y, x),
        memory=memory,
        iterations=info.iterations,
        error=error,
        proof=proof,
    )


def _measurements(problem: Problem, columns: int, seed: int) -> tuple[Float, Float | None]:
    """One column of measurements, and many of them, zero where nothing was measured."""
    rng = np.random.default_rng(seed)
    few = problem.observed.size + problem.desired.size <= LARGE
    noise = draw_noise(problem, columns if few else 1, rng)
    truth = np.zeros(problem.observed.size) if problem.truth is None else problem.truth
    Y = np.where(problem.unmeasured[:, None], 0.0, noise + np.where(problem.unmeasured, 0.0, truth)[:, None])
    return np.ascontiguousarray(Y[:, 0]), Y if few else None


def _seconds_of_variances(P: BlueOperator, apply: float) -> float | None:
    by_columns = type(P._prepared).variances is Prepared.variances
    if by_columns and apply * P.shape[0] > LONGEST_VARIANCES * VARIANCE_BLOCK**0.5:
        return None
    start = time.perf_counter()
    P.variances()
    return time.perf_counter() - start


def _judged(P: BlueOperator, y: Float) -> tuple[float | None, str]:
    """The certificate of the answer to y, (n,), as the solver gave it, unrefined."""
    observed = P.over_observed
    proof = certify(observed.problem, y, observed @ y + observed.offset)
    return proof.bound, proof.reason
