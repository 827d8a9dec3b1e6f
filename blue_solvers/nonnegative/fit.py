"""What every non-negative method gives back: cells, what they sum to, and a certificate.

Fitted cells are judged by the problem's own matrix, apart from the program that they were found with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blue_solvers.nonnegative.duality_gap import Certified
from blue_solvers.nonnegative.model import ROUNDING, FittingModel
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.layout import Name


def judged(
    model: FittingModel, y: Float, p: QuadraticProgram, found: Certified, inflation: Float | float = 1.0
) -> Certified:
    """The solution of a model's program, refused if M @ cells is not what the program says.

    Parameters
    ----------
    model : FittingModel
    y : ndarray, (n,)
    p : QuadraticProgram
        The model's, perhaps with further rows after its own.
    found : Certified
    inflation : ndarray, (n,), or float
        What the program multiplies the variances of the measurements by.
    """
    further = np.flatnonzero(p.variance > 0)
    further = further[further >= model.sum_variances.size]
    squares = (p.M @ found.cells - p.answer)[further] ** 2 / p.variance[further]
    own = found.objective - float(squares.sum()) / 2
    require_own_objective(model, y, found.cells, own, model.problem.variances * inflation)
    return replace(found, margin_residual=max(found.margin_residual, missed_exactly(model, y, found.cells)))


def judged_within(model: FittingModel, y: Float, found: Certified) -> Certified:
    """The same of a program of y, (n,), within bounds, of whose cells those that are sums with bounds are left out."""
    cells = found.cells[: model.possible.size]
    require_own_objective(model, y, cells, found.objective, model.problem.variances, found.margin_residual)
    return replace(found, cells=cells, margin_residual=missed_exactly(model, y, cells))


@dataclass(frozen=True)
class NonnegativeFit:
    """Fitted detailed cells and the proof that they are what the method asks for.

    Attributes
    ----------
    problem : Problem
    method : str
        ``"ols"``, ``"bounded"``, ``"nnls"``, ``"max"``, ``"sequential"``, ``"reweighted"`` or ``"anchored"``.
    detail : ndarray, schema shape, with a trailing axis K for (n, K) measurements
        Fitted counts; with a spine those of every geounit without children, in its order, along the first axis; of a
        summing matrix its leaves, of equations the nodes.
    observed : ndarray, (n,) or (n, K)
        What they sum to, over the observed layout.
    kkt_residual : float
        How far the optimality conditions of the last optimisation are missed, in counts; see `kkt_residual`. The worst
        column. For sequential fitting the worst stage.
    margin_residual : float
        How far the cells are from what is known exactly and, for sequential fitting, from the answers held from
        earlier stages, in counts; the worst column.
    iterations : int
        Newton steps, and steps of the active-set method; the worst column.
    objective : ndarray, () or (K,)
        What the method minimises: half the sum of squared deviations in standard deviations; of sequential fitting the
        tables' together.
    gap : float
        What the objective exceeds the optimum by, at most: proved by duality from the cells and multipliers, rounding
        included. Every sum of the cells is then within ``sqrt(2 gap)`` of its own standard errors of the optimal one;
        see `error_bound`. The worst column; for sequential fitting the worst stage.
    """

    problem: Problem
    method: str
    detail: Float = field(repr=False)
    observed: Float = field(repr=False)
    kkt_residual: float
    margin_residual: float
    iterations: int
    objective: Float
    gap: float

    @property
    def error_bound(self) -> float:
        """How far any sum of the cells is from that of the optimal ones, at most, in its own standard errors.

        The standard error is that of the weighted least squares that the method solves, without bounds on the cells.
        """
        return float(np.sqrt(2 * self.gap))

    @property
    def desired(self) -> Float:
        """The fitted values over the desired layout, (m,) or (m, K); NaN where nothing measured determines a cell."""
        columns = self.problem.determined.tabulate(self.observed.reshape(self.observed.shape[0], -1))
        columns = np.where(self.problem.lost[:, None], np.nan, columns)
        return columns.reshape(-1, *self.observed.shape[1:])

    def tables(self) -> dict[Name, NDArray]:
        """The desired tables by name.

        Returns
        -------
        dict of name to ndarray
            In the tables' shapes.
        """
        return self.problem.desired.tables(self.desired)


def fit_columns(
    problem: Problem,
    y: ArrayLike,
    method: str,
    fit_one: Callable[..., Certified],
    of_columns: Callable[[FittingModel, Float], Iterable[Any]] | None = None,
) -> NonnegativeFit:
    """Apply a method to a vector, or to every column, over the observed layout.

    Parameters
    ----------
    problem : Problem
    y : array_like, (n,) or (n, K)
    method : str
    fit_one : callable
        Of the model, one vector, and what `of_columns` gives for that.
    of_columns : callable, optional
        Of the model and all vectors, (K, n).

    Returns
    -------
    NonnegativeFit

    Raises
    ------
    ValueError
        If `y` has another shape or holds what no table can hold.
    """
    values = read_measurements(problem, y)
    model = FittingModel.of(problem)
    columns = np.ascontiguousarray(values.reshape(values.shape[0], -1).T)
    if of_columns is None:
        fits = [fit_one(model, column) for column in columns]
    else:
        fits = [fit_one(model, *own) for own in zip(columns, of_columns(model, columns), strict=True)]
    cells = np.stack([fit.cells for fit in fits], axis=1).reshape(-1, *values.shape[1:])
    shape = model.cells.shape
    detail = np.zeros((prod(shape), *values.shape[1:]))
    detail[model.possible] = cells
    return NonnegativeFit(
        problem,
        method,
        detail.reshape(*shape, *values.shape[1:]),
        model.M @ cells,
        max(fit.kkt_residual for fit in fits),
        max(fit.margin_residual for fit in fits),
        max(fit.iterations for fit in fits),
        np.array([fit.objective for fit in fits]).reshape(values.shape[1:]),
        max(fit.gap for fit in fits),
    )


def read_measurements(problem: Problem, y: ArrayLike) -> Float:
    """A vector over the observed layout, (n,), or several in columns, (n, K).

    Raises
    ------
    ValueError
        If it has another shape or holds what no table can hold.
    """
    values, size = problem.observed.flat(y, "y"), problem.observed.size
    if values.ndim not in (1, 2) or values.shape[0] != size or 0 in values.shape:
        raise ValueError(f"y must have shape ({size},) or ({size}, K), as problem.vector makes it: got {values.shape}")
    problem.check_vector(values)
    return problem.noise.centred(values)


EPSILON = float(np.finfo(float).eps)
AGREE = 1e-9  # of 1 and the objective


def require_own_objective(
    model: FittingModel, y: Float, cells: Float, claimed: float, variances: Float, missed: float = 0.0
) -> None:
    """Refuse cells whose weighted squares are not what was claimed.

    Parameters
    ----------
    model : FittingModel
    y : ndarray, (n,)
    cells : ndarray, (d,)
    claimed : float
        Half the sum of squared deviations in standard deviations.
    variances : ndarray, (n,)
        That the deviations are measured by; 0 and ``inf`` for measurements that do not count.
    missed : float
        How far sums of the cells may be from those that the squares were worked out from, in counts.

    Raises
    ------
    NotConvergedError
        If M @ cells has other squares than these, by more than rounding.
    """
    kept = (variances > 0) & np.isfinite(variances)
    deviation = abs(model.M @ cells - y)[kept]
    rounding = missed + 4 * EPSILON * (model.sizes @ abs(cells) + abs(y))[kept]
    own = float(0.5 * (deviation**2 / variances[kept]).sum())
    slack = AGREE * (1 + own) + float(((deviation + rounding) * rounding / variances[kept]).sum())
    if not abs(own - claimed) <= slack:
        raise NotConvergedError(
            f"the fitted cells have an objective of {own:.6g}, and not the {claimed:.6g} that they were found with: "
            "please report the problem"
        )


def missed_exactly(model: FittingModel, y: Float, cells: Float) -> float:
    """How far cells, (cells,), are from what is known exactly, in counts; refused if by more than rounding."""
    return require_met(model.exact_rows @ cells, model.exact_answers(y), cells)


def require_met(sums: Float, answers: Float, cells: Float) -> float:
    """The largest difference of sums of cells, (d,), from what they are held at, (k,), in counts.

    Raises
    ------
    NotConvergedError
        If it is more than rounding.
    """
    missed = float(abs(sums - answers).max(initial=0.0))
    if missed > ROUNDING * max(1.0, float(abs(answers).max(initial=0.0)), float(abs(cells).max(initial=0.0))):
        raise NotConvergedError(
            f"the fitted cells miss what is known exactly or held by {missed:.3g} counts: correct the exact values or, "
            "if cells can meet them, please report the problem"
        )
    return missed
