"""Which form of the decomposition costs least."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

import numpy as np

from blue_solvers.components.flat.array_form import ArrayForm, array_size, axes_in_use
from blue_solvers.components.flat.matrix_form import Components, MatrixForm
from blue_solvers.components.flat.sweep_form import SweepForm
from blue_solvers.components.flat.table_form import TableForm
from blue_solvers.components.size import as_float
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.tree_form import TreeForm
from constraint_builders import Problem, Schema
from constraint_builders.compiled import has_numba
from constraint_builders.memory import free_memory
from constraint_builders.relations.closed_tables import TooManyTablesError

CALL = 30e-6  # seconds that a batch of tables costs beside its data
VISIT = 1.2e-9  # seconds for a cell to be read or written once in a pass of numpy's
SWEPT = 0.6e-9  # in the compiled sweeps
TREE = 5e-5  # seconds that the form of a tree takes for an observed table besides
IN_NUMPY = 26.0  # times that sweeps take without compiled loops
MOST_ENTRIES = 1 << 17  # of a matrix of desired by observed cells: 1 MiB, read in 10 microseconds
FEW_CELLS = 1 << 17  # with their matrices 40 MiB: not worth a look at the free memory


def components_of(problem: Problem) -> Components:
    """The form of the decomposition that costs least, by a count of passes over cells.

    Few cells take their matrix, and without recodes need no compiled loops. Recodes take the sweeps or the form of a
    tree, which works on all cells of the variables together.
    """
    structured = StructuredProblem.of(problem)
    schema = structured.schema
    axes = axes_in_use(schema, problem.factors)
    if not problem.factors.issubset(schema.names):
        by_tree = TREE * len(structured.observed_tables) + _tree_seconds(schema, axes)
        swept = _sweeps(structured, by_tree if has_numba() else by_tree / IN_NUMPY)
        return _of_few_cells(structured, swept or TreeForm(structured))
    by_array, by_table = _array_seconds(schema, axes), _table_seconds(structured)
    if has_numba() and not _is_small(structured):
        sweeps = _sweeps(structured, min(by_array, by_table))
        if sweeps is not None:
            return sweeps
    return _of_few_cells(structured, TableForm(structured) if by_table < by_array else ArrayForm(structured))


def _is_small(structured: StructuredProblem) -> bool:
    return structured.observed.size * structured.desired.size <= MOST_ENTRIES


def _of_few_cells(structured: StructuredProblem, form: Components) -> Components:
    return MatrixForm(form, structured.observed.size) if _is_small(structured) else form


def _sweeps(structured: StructuredProblem, seconds: float) -> SweepForm | None:
    """The sweeps, where they are in free memory within so many seconds: not where there is much that is coarser."""
    passes = max(len(table.axes) for table in structured.tables) + 3
    most_cells = seconds / (SWEPT * passes)
    most_bytes = free_memory() if most_cells > FEW_CELLS else inf
    try:
        return SweepForm(structured, most_cells, most_bytes)
    except TooManyTablesError:
        return None


def _array_seconds(schema: Schema, axes: Sequence[int]) -> float:
    """Every axis takes three visits to every slot of the array: a sum, and a subtraction there and back."""
    return VISIT * _passes(axes) * as_float(array_size(schema, axes))


def _tree_seconds(schema: Schema, axes: Sequence[int]) -> float:
    """As `_array_seconds`, of the cells of all variables together without sums."""
    return VISIT * _passes(axes) * as_float(prod(schema.shape[axis] for axis in axes))


def _passes(axes: Sequence[int]) -> int:
    return 3 * len(axes) + 4


def _table_seconds(problem: StructuredProblem) -> float:
    """A cell takes a sum and a correction for each table just below its own, a shape one batch for each subset."""
    observed = problem.observed_tables
    batches = sum(2 ** min(len(shape), len(observed)) for shape in {table.shape for table in observed})
    sums = np.minimum([len(table.axes) for table in observed], len(observed))
    visits = float(problem.observed.sizes @ (2.0 * sums + 4))
    return CALL * (batches + len(problem.desired_tables) ** 0.5) + VISIT * (visits + 2 * problem.desired.size)
