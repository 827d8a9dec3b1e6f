"""Sequential fitting: tables one after another in order of priority, earlier answers held exactly.

Each stage is a program over the smallest cells that decide it. Where the next table refines every table held, these
are its own cells. So they are where a held table already tells what the next table has in common with all that is held,
and cells of the two meet in every combination: margins that agree on what they share then have a joint table
(conditional independence given what they share), so nothing else constrains the next one. Only otherwise are they the
cells of the common refinement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.nonnegative.duality_gap import Certified
from blue_solvers.nonnegative.fit import CellFit, NonnegativeFit, fit_columns
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.own_objective import missed_exactly, require_met, require_own_objective
from blue_solvers.nonnegative.quadratic_program import QuadraticProgram, csc
from blue_solvers.nonnegative.solving import solve
from blue_solvers.nonnegative.tree_partitions import crossed, join, meet, refines, sums_matrix
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Name


def sequential_fit(problem: Problem, y: ArrayLike, order: Sequence[str] | None = None) -> NonnegativeFit:
    """Fit tables one after another, each by non-negative least squares with the earlier answers held exactly.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise, every table being exact, noisy or unmeasured as a whole.
    y : array_like, (n,) or (n, K)
        Measurements over ``problem.observed``, in counts.
    order : sequence of str, optional
        The noisy tables by priority, the first fitted first; by default the order of ``problem.observed``. Tables known
        exactly come before all others.

    Returns
    -------
    NonnegativeFit
        Its margin residual is how far any held answer is missed; its KKT residual the worst of the stages'. Where no
        table determines the cells they are those with the least sum of squares.

    Raises
    ------
    ValueError
        If `y` does not fit the problem, the noise is correlated, there are equalities, a table is partly exact or
        partly unmeasured, leaves cells out or has areas that overlap or have weights, an exact value is negative, or
        `order` does not name every noisy table once.
    NotConvergedError
        If no non-negative cells meet the values known exactly.

    References
    ----------
    "An Uncertainty Principle is a Price of Privacy-Preserving Microdata", NeurIPS 2021, Algorithm 1.
    """
    model = FittingModel.of(problem)
    if model.equations[0].shape[0]:
        raise ValueError(
            "sequential fitting holds tables, not equations between their cells: this problem has equalities. Use "
            "nnls, max_fit, reweighted_fit or anchored_fit"
        )
    tables = _checked_order(model, order)
    plan = _plan(model, tables) if model.possible.size else []
    return fit_columns(problem, y, "sequential", partial(_sequential_fit, plan=plan))


@dataclass(frozen=True)
class FitStage:
    """One table's fit, given the answers of the tables held.

    Attributes
    ----------
    table : str or None
        None for the last stage, which only finds cells.
    rows : csc_array
        From the cells of the stage to the held sums and then, if `measured`, to the table's own cells.
    held : list of (str, csr_array)
        Tables whose answers are held, and what of them: matrices from their answers to the first of `rows`.
    variances : ndarray
        Of the table's own cells; empty for the last stage.
    own_cells : bool
        Whether the stage's cells are the table's own.
    """

    table: Name | None
    rows: sparse.csc_array
    held: list[tuple[Name, sparse.csr_array]]
    variances: Float
    own_cells: bool

    def program(self, y: Float, answers: dict[Name, Float]) -> QuadraticProgram:
        """The program of this stage; `y`, (rows,), holds the table's measurements."""
        values = np.concatenate([np.zeros(0), *(matrix @ answers[name] for name, matrix in self.held)])
        exact = np.zeros(values.size)
        cells = self.rows.shape[1]
        if self.own_cells:
            weight, target, row_answers, variances = 1 / self.variances, y, values, exact
        else:
            weight = np.full(cells, 0.0 if y.size else 1.0)
            target, row_answers = np.zeros(cells), np.concatenate([values, y])
            variances = np.concatenate([exact, self.variances])
        empty = self.rows.T @ np.concatenate([values == 0, np.zeros(row_answers.size - values.size)]) > 0
        return QuadraticProgram(
            M=self.rows,
            target=target,
            weight=weight,
            lower=np.zeros(cells),
            upper=np.where(empty, 0.0, np.inf),
            answer=row_answers,
            variance=variances,
            radius=np.full(row_answers.size, np.inf),
        )


@dataclass(frozen=True)
class Implied:
    """A table that is a sum of a table held."""

    table: Name
    source: Name
    sums: sparse.csr_array


Plan = list[FitStage | Implied]


def _checked_order(model: FittingModel, order: Sequence[str] | None) -> tuple[Name, ...]:
    layout, noisy = model.problem.observed, model.noisy_tables
    for name in layout.names:
        for kind, mask in (("known exactly", model.problem.exact), ("unmeasured", model.problem.unmeasured)):
            cells = mask[model.present_rows(name)]
            if cells.any() and not cells.all():
                raise ValueError(
                    f"sequential fitting holds whole tables: table {name!r} has some cells that are {kind} and some "
                    "that are not. Use nnls"
                )
    if order is None:
        return (*model.exact_tables, *noisy)
    if isinstance(order, str):
        raise ValueError(f"order must be a list of tables: got {order!r}")
    names = [layout.names[layout.index(name)] for name in order]
    for name in names:
        if name not in noisy:
            raise ValueError(f"order names table {name!r}, which is exact or unmeasured: leave it out")
        if names.count(name) > 1:
            raise ValueError(f"order names table {name!r} twice: give it once")
    missing = [name for name in noisy if name not in names]
    if missing:
        raise ValueError(f"order leaves out {', '.join(map(repr, missing))}: name every noisy table once")
    return (*model.exact_tables, *names)


def _plan(model: FittingModel, order: Sequence[Name]) -> Plan:
    """The stages; they depend on the tables alone, not on the measurements."""
    steps: Plan = []
    finest: list[Name] = []
    together: Index = np.zeros(model.M.shape[1], dtype=np.intp)
    for table in order:
        labels = model.labels(table)
        source = next((held for held in finest if refines(model.labels(held), labels)), None)
        if source is not None:
            steps.append(Implied(table, source, sums_matrix(model.labels(source), labels)))
            continue
        steps.append(_stage(model, table, finest, together))
        finest = [held for held in finest if not refines(labels, model.labels(held))] + [table]
        together = join(together, labels)
    if len(finest) != 1 or not np.array_equal(model.labels(finest[0]), np.arange(model.M.shape[1])):
        cells = np.arange(model.M.shape[1])
        steps.append(_joint_stage(model, None, finest, cells))
    return steps


def _stage(model: FittingModel, table: Name, finest: Sequence[Name], together: Index) -> FitStage:
    """The stage of a table, after those whose common refinement is `together`, (cells,)."""
    labels = model.labels(table)
    common = meet(together, labels)
    teller = next((held for held in finest if refines(model.labels(held), common)), None)
    variances = model.problem.variances[model.present_rows(table)]
    noisy = bool(variances.any())
    if noisy and refines(labels, together):
        shared = [(held, model.labels(held)) for held in finest]
    elif noisy and teller is not None and crossed(together, labels):
        shared = [(teller, common)]
    else:
        return _joint_stage(model, table, finest, join(together, labels))
    rows = [sums_matrix(labels, groups) for _, groups in shared]
    held = [(name, sums_matrix(model.labels(name), groups)) for name, groups in shared]
    return FitStage(table, _stacked(rows, int(labels.max()) + 1), held, variances, own_cells=True)


def _joint_stage(model: FittingModel, table: Name | None, finest: Sequence[Name], cells: Index) -> FitStage:
    """A stage over the groups of `cells`, (cells,), with what the finest held tables hold."""
    rows = [sums_matrix(cells, model.labels(name)) for name in finest]
    held: list[tuple[Name, Any]] = [
        (name, sparse.eye_array(row.shape[0])) for name, row in zip(finest, rows, strict=True)
    ]
    variances = np.zeros(0)
    if table is not None:
        rows.append(sums_matrix(cells, model.labels(table)))
        variances = model.problem.variances[model.present_rows(table)]
    return FitStage(table, _stacked(rows, int(cells.max()) + 1), held, variances, own_cells=False)


def _stacked(rows: Sequence[sparse.csr_array], cells: int) -> sparse.csc_array:
    """All rows one under another, (rows, cells)."""
    return csc(sparse.vstack(rows)) if rows else csc(sparse.csc_array((0, cells)))


def _sequential_fit(model: FittingModel, y: Float, plan: Plan) -> CellFit:
    """The fit of one vector, (n,)."""
    model.refuse_impossible_exact(y)
    answers: dict[Name, Float] = {}
    stages: list[Certified] = []
    variances, squares = np.full(y.size, np.inf), 0.0
    cells = np.zeros(0)
    for step in plan:
        if isinstance(step, Implied):
            answers[step.table] = step.sums @ answers[step.source]
            continue
        own = np.zeros(0) if step.table is None else y[model.present_rows(step.table)]
        program = step.program(own, answers)
        stages.append(solve(program))
        cells = stages[-1].cells
        if step.table is None:
            continue
        squares += stages[-1].objective
        rows = model.present_rows(step.table)
        variances[rows] = model.problem.variances[rows]
        cells = cells if step.own_cells else (step.rows @ cells)[-own.size :]  # in the table's order
        answers[step.table] = cells
    sums = model.M @ cells
    missed = [require_met(sums[model.present_rows(name)], values, cells) for name, values in answers.items()]
    missed.append(missed_exactly(model, y, cells))
    require_own_objective(model, y, cells, squares, variances, max(missed))
    return CellFit(
        cells,
        max(stage.kkt_residual for stage in stages),
        max(missed),
        sum(stage.iterations for stage in stages),
        sum(stage.objective for stage in stages),
        max(stage.gap for stage in stages),
    )
