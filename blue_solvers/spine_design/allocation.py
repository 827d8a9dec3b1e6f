"""The least privacy loss that meets stated targets, over geolevels and tables, for zCDP.

Let rho_i be the loss of a table i at a geolevel, in every geounit there: Gaussian noise of variance s / rho_i, s being
1 for bounded and 1/2 for unbounded neighbours. The variance of a functional w_k of the best linear unbiased estimate is

    Var_k(rho) = min over unbiased weights c of  sum_i a_ki / rho_i,   a_ki = s * (sum of c^2 over the cells of i)

a convex function of rho. The task

    minimise sum_i rho_i   subject to   Var_k(rho) <= t_k for every k

is convex, and is solved to a certified gap.

**Upper bound.** With the weights of the current rho kept, Var_k is at most sum_i a_ki / rho_i, so that the rho that is
best for these weights is feasible and costs no more than the current one. Its dual has one variable for each target:
rho_i = sqrt(sum_k mu_k a_ki) with mu >= 0 maximising 2 sum_i rho_i - sum_k mu_k t_k.

**Lower bound.** By convexity every feasible rho' has sum_i (a_ki / rho_i^2) rho'_i >= 2 Var_k(rho) - t_k; rho may be
scaled, and where Var_k meets its target this is sum_i (a_ki / rho_i^2) rho'_i >= Var_k(rho)^2 / t_k. The least cost
under these inequalities, a linear program, is a bound; at the optimum the two bounds meet.

References
----------
Xiao, Ding, Zhang and Kifer, "Optimizing fitness-for-use of differentially private linear queries", VLDB 2021: the same
task without a spine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blue_solvers.contract import ConvergenceError, Solver
from blue_solvers.operator import blue
from blue_solvers.solvers import SolverName
from blue_solvers.spine_design.report import workload_weights
from constraint_builders.arrays import Float
from constraint_builders.budget import Budget, Neighbours, gaussian_variance
from constraint_builders.description.reals import read_matrix, real_array
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.problem import Problem

TINY = 1e-100  # stands for a loss of 0


@dataclass(frozen=True)
class Allocation:
    """A budget that meets its targets.

    Attributes
    ----------
    losses : dict of (geolevel, table) to float
        rho of every table.
    variances : ndarray, (K,)
        Exact variance of every functional, at most its target.
    bound : float
        No budget that meets the targets has a lower total.
    iterations : int
    neighbours : {"bounded", "unbounded"}
        Under which the losses meet the targets.
    """

    losses: Mapping[tuple[str, str], float]
    variances: Float
    bound: float
    iterations: int
    neighbours: Neighbours = "bounded"

    @property
    def total(self) -> float:
        """Rho of everything."""
        return sum(self.losses.values())

    def budget(self, digits: int = 9, neighbours: Neighbours | None = None) -> Budget:
        """The budget in exact rationals that meets the targets, each loss rounded up to the last of `digits`.

        These are significant digits of the total: what targets of national totals need is 1e-11 and less. Under other
        `neighbours` than its own, losses are those of the same noise.
        """
        wanted = neighbours or self.neighbours
        times = gaussian_variance(1, wanted) / gaussian_variance(1, self.neighbours)
        unit = Fraction(10) ** (digits - 1 - math.floor(math.log10(self.total)))
        exact: dict[str, dict[str, Fraction]] = {}
        for (level, table), loss in self.losses.items():
            exact.setdefault(level, {})[table] = math.ceil(times * Fraction(loss) * unit) / unit
        return Budget(exact, "zcdp", wanted)

    @property
    def gap(self) -> float:
        """How far, at most, `total` lies above the least possible, relative to the latter."""
        return self.total / self.bound - 1


def allocate_budget(
    schema: Schema,
    spine: Spine,
    tables: Mapping[str, Sequence[str]],
    desired: Mapping[str, Sequence[str]],
    workload: sparse.sparray | NDArray,
    targets: ArrayLike,
    *,
    neighbours: Neighbours = "bounded",
    solver: SolverName | Solver = "auto",
    rtol: float = 1e-3,
    most_iterations: int = 500,
) -> Allocation:
    """Find the cheapest zCDP budget under which given functionals are accurate enough.

    Parameters
    ----------
    schema : Schema
    spine : Spine
    tables : mapping of geolevel to sequence of str
        The tables that may be measured; each gets one loss for its geolevel.
    desired : mapping of geolevel to sequence of str
        Tables that the functionals are of.
    workload : sparse array or ndarray, (m, K)
        One functional a column over the layout of `desired`; `entity_workload` makes one.
    targets : array_like, (K,)
        The largest variance allowed to every functional, in squared counts.
    neighbours : {"bounded", "unbounded"}
    solver : str or Solver
        As for `blue`.
    rtol : float
        The gap at which to stop.
    most_iterations : int

    Returns
    -------
    Allocation

    Raises
    ------
    ValueError
        If targets are not positive or do not fit the workload, a functional is zero, or a desired table is not
        estimable.
    ConvergenceError
        If the gap is still larger after so many iterations.
    """
    wanted, workload = real_array(targets, "targets"), sparse.csc_array(read_matrix(workload, "the workload"))
    if wanted.shape != (workload.shape[1],) or not (np.isfinite(wanted) & (wanted > 0)).all():
        raise ValueError(f"targets must be {workload.shape[1]} positive numbers, one for each functional")
    names = [(level, table) for level, row in tables.items() for table in row]
    if len(set(names)) < len(names):
        raise ValueError("a table is given twice at one geolevel: it gets one loss there, so leave one out")
    measurements = _Measurements(schema, spine, names, desired, workload, neighbours, solver)
    losses, bound, gap, total = np.ones(len(names)), 0.0, np.inf, float(len(names))
    for iteration in range(1, most_iterations + 1):
        squares = measurements.squares(losses) / wanted[:, None]
        relative = squares @ (1 / losses)  # variances over their targets
        losses, relative = losses * relative.max(), relative / relative.max()
        total = float(losses.sum())  # in units of which both programs are solved, whose tolerances are absolute
        squares, losses = squares / total, losses / total
        bound = max(bound, total * _least_cost(squares / losses**2 / relative[:, None] ** 2))
        gap = total / bound - 1
        if gap <= rtol:
            own = dict(zip(names, (total * losses).tolist(), strict=True))
            return Allocation(own, relative * wanted, bound, iteration, neighbours)
        losses = total * _best_for_weights(squares, losses)
    raise ConvergenceError(
        f"after {most_iterations} iterations the budget {total:.6g} may lie {gap:.2%} above the least one: "
        f"raise most_iterations, or rtol (now {rtol:g})"
    )


@dataclass(frozen=True)
class _Measurements:
    """What is measured, and which functionals of the estimates matter."""

    schema: Schema
    spine: Spine
    names: Sequence[tuple[str, str]]
    desired: Mapping[str, Sequence[str]]
    workload: sparse.sparray | NDArray
    neighbours: Neighbours
    solver: SolverName | Solver

    def squares(self, losses: Float) -> Float:
        """The a_ki of the module's docstring at the weights that are best for these losses, (K, tables)."""
        unit = float(gaussian_variance(1, self.neighbours))
        observed: dict[str, dict[str, float]] = {}
        for (level, table), loss in zip(self.names, losses, strict=True):
            observed.setdefault(level, {})[table] = unit / loss
        P = blue(Problem(self.schema, observed, self.desired, spine=self.spine), self.solver)
        starts = P.problem.observed.offsets[:-1]
        batches = [np.add.reduceat(weights**2, starts) for weights in workload_weights(P, self.workload)]
        squares = unit * np.concatenate(batches, axis=1).T
        if not squares.any(axis=1).all():
            raise ValueError("a functional of the workload is zero: leave it out")
        return squares


def _least_cost(cuts: Float) -> float:
    """The least sum of losses, none negative, with cuts @ losses >= 1, cuts being (K, tables)."""
    result = scipy.optimize.linprog(
        np.ones(cuts.shape[1]), A_ub=-cuts, b_ub=-np.ones(len(cuts)), bounds=(0, None), method="highs"
    )
    if not result.success:
        raise ConvergenceError(f"the linear program of the lower bound failed: {result.message}")
    return float(result.fun)


def _best_for_weights(squares: Float, losses: Float) -> Float:
    """The cheapest losses, (tables,), with squares @ (1 / losses) <= 1, by the dual, from losses that are feasible."""
    start = np.full(len(squares), losses.sum() / len(squares))

    def dual(multipliers: Float) -> tuple[float, Float]:
        """The dual, its sign turned, and its slopes at multipliers, (K,)."""
        best = np.sqrt(multipliers @ squares)
        return multipliers.sum() - 2 * best.sum(), 1 - squares @ (1 / np.maximum(best, TINY))

    found = scipy.optimize.minimize(dual, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(squares))
    return np.maximum(np.sqrt(found.x @ squares), TINY)
