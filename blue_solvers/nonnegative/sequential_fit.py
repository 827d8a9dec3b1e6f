"""Sequential fitting: tables one after another in order of priority, earlier answers held exactly.

A stage is first solved over its table's own cells, held at what they have in common with each table before: constraints
that other tables' cells bring are left out. That costs nothing if there are cells that meet all answers, since what is
best without a constraint, and meets it, is best with it. So all stages left are solved, and cells for them looked for
once. Where there are none, stages are taken back until there are some, and the first of these solved over the common
refinement of its table and those held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.nonnegative.duality_gap import Certified
from blue_solvers.nonnegative.fit import NonnegativeFit, fit_columns, missed_exactly, require_met, require_own_objective
from blue_solvers.nonnegative.least_squares import least_squares_of
from blue_solvers.nonnegative.model import ROUNDING, FittingModel
from blue_solvers.nonnegative.quadratic_program import QuadraticProgram, csc
from blue_solvers.nonnegative.solving import attempt, solve
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.layout import Name
from constraint_builders.relations.bases import join, meet, refines, sums_matrix


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
    if not model.possible.size:  # nor anything that one table may take from another
        return fit_columns(problem, y, "sequential", partial(least_squares_of, signed=False))
    return fit_columns(problem, y, "sequential", partial(_sequential_fit, turns=_turns(model, tables)))


@dataclass(frozen=True)
class FitStage:
    """One table's fit, given the answers of the tables held.

    Attributes
    ----------
    table : str or None
        None where only cells are looked for.
    cells : ndarray of int, (d,)
        For every detailed cell the cell of the stage that holds it.
    rows : csc_array
        From the cells of the stage to the held sums and then, if `measured`, to the table's own cells.
    held : list of (str, csr_array)
        Tables whose answers are held, and what of them: matrices from their answers to the first of `rows`.
    variances : ndarray
        Of the table's own cells; empty without a table.
    own_cells : bool
        Whether the stage's cells are the table's own.
    """

    table: Name | None
    cells: Index
    rows: sparse.csc_array
    held: list[tuple[Name, sparse.csr_array]]
    variances: Float
    own_cells: bool

    def held_sums(self, answers: Mapping[Name | None, Float]) -> Float:
        """What the first of `rows` are held at, (held rows,), by the answers of tables, (cells,) each."""
        return np.concatenate([np.zeros(0), *(matrix @ answers[name] for name, matrix in self.held)])

    def program(self, y: Float, answers: Mapping[Name | None, Float], empty: Flags) -> QuadraticProgram:
        """The program of this stage, with the table's measurements, (cells,), and which detailed cells are 0, (d,)."""
        values = self.held_sums(answers)
        exact = np.zeros(values.size)
        cells = self.rows.shape[1]
        if self.own_cells:
            weight, target, row_answers, variances = 1 / self.variances, y, values, exact
        else:
            least = 1 / (values.max(initial=0.0) or 1.0) ** 2  # of cells in the unit of the largest answer
            weight, target = np.full(cells, 0.0 if y.size else least), np.zeros(cells)
            row_answers, variances = np.concatenate([values, y]), np.concatenate([exact, self.variances])
        zero = self.rows.T @ np.concatenate([values == 0, np.zeros(row_answers.size - values.size)]) > 0
        zero |= np.bincount(self.cells, ~empty) == 0
        return QuadraticProgram(
            M=self.rows,
            target=target,
            weight=weight,
            lower=np.zeros(cells),
            upper=np.where(zero, 0.0, np.inf),
            answer=row_answers,
            variance=variances,
        )

    def answers(self, cells: Float) -> Float:
        """The table's answers, in its order, or all cells without a table, of the stage's cells, (cells,)."""
        return cells if self.own_cells or self.table is None else (self.rows @ cells)[-self.variances.size :]


@dataclass(frozen=True)
class Turn:
    """A table's turn in the order; the last one (`table` None) finds the cells.

    Attributes
    ----------
    table : str or None
    finest : tuple of str
        The tables held before it that no other one held refines.
    alone : FitStage or None
        The stage over the table's own cells; None in the last turn.
    """

    table: Name | None
    finest: tuple[Name, ...]
    alone: FitStage | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the table is known exactly."""
        return self.alone is not None and not self.alone.variances.any()


Fitted = tuple[Name | None, Float, Certified | None]  # a table, or None for the cells, its answers and their stage


@dataclass
class Course:
    """How far the fit of some measurements has come: answers by table (of None the cells), and their stages."""

    model: FittingModel
    y: Float
    answers: dict[Name | None, Float] = field(default_factory=dict)
    stages: list[Certified] = field(default_factory=list)
    squares: float = 0.0
    empty: Flags = field(init=False)

    def __post_init__(self) -> None:
        self.empty = np.zeros(self.model.M.shape[1], dtype=bool)

    def follow(self, turns: Sequence[Turn]) -> None:
        """Take all turns: as many as have cells by themselves, one that has not with all constraints, and so on."""
        start = 0
        while start < len(turns):
            tried = self._by_themselves(turns[start:])
            while not self._have_cells(turns, start, tried):
                tried.pop()
            for fitted in tried:
                self._take(*fitted)
            start += len(tried)
            if start < len(turns):
                self._solve(turns[start])
                start += 1

    def _by_themselves(self, turns: Sequence[Turn]) -> list[Fitted]:
        """What turns give with the constraints of their own cells alone, up to one whose cells meet none."""
        answers, fitted = dict(self.answers), list[Fitted]()
        for turn in turns:
            found = None
            if turn.table is None and any(map(self._is_detailed, turn.finest)):
                answer = answers[turn.finest[0]][self.model.labels(turn.finest[0])]
            elif turn.alone is not None and turn.is_exact:
                answer = self._measured(turn.table)
                missed = abs(turn.alone.rows @ answer - turn.alone.held_sums(answers)).max(initial=0.0)
                if missed > ROUNDING * max(1.0, answer.max(initial=0.0)):
                    break
            else:
                stage = turn.alone or self._joint(None, turn.finest)
                found = attempt(self._program(stage, answers))
                if found is None:
                    break
                answer = stage.answers(found.cells)
            answers[turn.table] = answer
            fitted.append((turn.table, answer, found))
        return fitted

    def _have_cells(self, turns: Sequence[Turn], start: int, fitted: Sequence[Fitted]) -> bool:
        """Whether there are cells for these answers and all that are held."""
        if not fitted or fitted[-1][0] is None or self._is_detailed(fitted[-1][0]):
            return True  # found over all cells
        answers = self.answers | {table: answer for table, answer, _ in fitted}
        return attempt(self._program(self._joint(None, turns[start + len(fitted)].finest), answers)) is not None

    def _is_detailed(self, table: Name) -> bool:
        """Whether a table's cells are the detailed ones: of such a table all others follow."""
        return self.model.present_rows(table).size == self.empty.size

    def _solve(self, turn: Turn) -> None:
        """Take a turn with all constraints."""
        stage = self._joint(turn.table, turn.finest)
        program = self._program(stage, self.answers)
        found = attempt(program)
        if found is None:
            self.empty = np.zeros_like(self.empty)
            program = self._program(stage, self.answers)
            found = solve(program)
        if turn.table is not None:
            self._note_empty(stage, program, found)
            ends = np.cumsum([matrix.shape[0] for _, matrix in stage.held])
            sums = np.split(stage.rows @ found.cells, ends)  # which agree, as answers held do to rounding only
            self.answers.update((name, own) for (name, _), own in zip(stage.held, sums, strict=False))
        self._take(turn.table, stage.answers(found.cells), found)

    def _take(self, table: Name | None, answer: Float, found: Certified | None) -> None:
        """Note a table's answer, (cells,), and how it was found."""
        self.answers[table] = answer
        if found is not None:
            self.stages.append(found)
            self.squares += 0.0 if table is None else found.objective

    def _program(self, stage: FitStage, answers: Mapping[Name | None, Float]) -> QuadraticProgram:
        """The program of a stage with the answers of tables, (cells,) each."""
        return stage.program(self._measured(stage.table), answers, self.empty)

    def _note_empty(self, stage: FitStage, p: QuadraticProgram, found: Certified) -> None:
        """Note the cells that the answers of a stage leave nothing.

        By duality no cells with these answers have more than ``gap / pull`` in a cell that is pulled below 0. Held at 0
        such cells leave later stages an interior, without which Newton steps are many.
        """
        pull = p.M.T @ found.multipliers
        zero = (found.cells == 0) & (pull * ROUNDING * p.scale > found.gap)
        self.empty |= zero[stage.cells]

    def _measured(self, table: Name | None) -> Float:
        return np.zeros(0) if table is None else self.y[self.model.present_rows(table)]

    def _joint(self, table: Name | None, finest: Sequence[Name]) -> FitStage:
        """The stage over the cells of the common refinement of a table and those held; of all cells without a table."""
        labels = self.model.labels
        cells: Index = np.arange(self.model.M.shape[1])
        if table is not None:
            cells = reduce(join, map(labels, finest), labels(table))
        return _stage(self.model, table, cells, [(name, labels(name)) for name in finest])


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


def _turns(model: FittingModel, order: Sequence[Name]) -> list[Turn]:
    """The turns of tables whose answers do not follow, and of cells; they do not depend on the measurements."""
    turns: list[Turn] = []
    finest: tuple[Name, ...] = ()
    for table in order:
        labels = model.labels(table)
        if any(refines(model.labels(held), labels) for held in finest):
            continue  # its answers follow
        turns.append(Turn(table, finest, _stage(model, table, labels, _shared(model, labels, finest))))
        finest = (*(held for held in finest if not refines(labels, model.labels(held))), table)
    return [*turns, Turn(None, finest)]


def _stage(model: FittingModel, table: Name | None, cells: Index, held: Sequence[tuple[Name, Index]]) -> FitStage:
    """The stage of a table over cells, (d,), that refine it; of tables held some groups, (d,) each, of these cells."""
    rows, variances = [sums_matrix(cells, groups) for _, groups in held], np.zeros(0)
    own_cells = table is not None and cells is model.labels(table)
    if table is not None:
        variances = model.problem.variances[model.present_rows(table)]
        rows += [] if own_cells else [sums_matrix(cells, model.labels(table))]
    stacked = sparse.vstack(rows) if rows else sparse.csc_array((0, int(cells.max()) + 1))
    sums = [(name, sums_matrix(model.labels(name), groups)) for name, groups in held]
    return FitStage(table, cells, csc(stacked), sums, variances, own_cells)


def _shared(model: FittingModel, labels: Index, finest: Sequence[Name]) -> list[tuple[Name, Index]]:
    """What a table, labels (d,), has in common with each one held; of what follows from another one nothing."""
    kept: list[tuple[Name, Index]] = []
    every = [(held, meet(labels, model.labels(held))) for held in finest]
    for held, groups in sorted(every, key=lambda one: -int(one[1].max())):
        if not any(refines(other, groups) for _, other in kept):
            kept.append((held, groups))
    return kept


def _sequential_fit(model: FittingModel, y: Float, turns: Sequence[Turn]) -> Certified:
    """The cells that fit y, (n,), turn by turn, checked against what they were held at."""
    model.refuse_impossible_exact(y)
    course = Course(model, y)
    course.follow(turns)
    cells, stages = course.answers.pop(None), course.stages
    variances = np.full(y.size, np.inf)
    for turn in turns:
        if turn.alone is not None:
            rows = model.present_rows(turn.table)
            variances[rows] = model.problem.variances[rows]
    sums = model.M @ cells
    missed = [require_met(sums[model.present_rows(name)], values, cells) for name, values in course.answers.items()]
    missed.append(missed_exactly(model, y, cells))
    farthest = max(missed) + sum(stage.margin_residual for stage in stages)  # by which stages moved what was held
    require_own_objective(model, y, cells, course.squares, variances, farthest)
    return Certified(
        cells=cells,
        multipliers=np.zeros(0),
        iterations=sum(stage.iterations for stage in stages),
        objective=course.squares,
        gap=max((stage.gap for stage in stages), default=0.0),
        rounding=max((stage.rounding for stage in stages), default=0.0),
        kkt_residual=max((stage.kkt_residual for stage in stages), default=0.0),
        margin_residual=farthest,
    )
