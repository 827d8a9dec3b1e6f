"""Which form of the decomposition costs least."""

from __future__ import annotations

from math import inf, prod
from typing import Protocol

from blue_solvers.components.flat.array_form import ArrayForm, array_size, axes_in_use
from blue_solvers.components.flat.sweep_form import SweepForm
from blue_solvers.components.flat.table_form import TableForm
from blue_solvers.components.size import as_float
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.tree_form import TreeForm
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float
from constraint_builders.compiled import has_numba
from constraint_builders.description.table import Table
from constraint_builders.memory import free_memory
from constraint_builders.relations.closed_tables import TooManyTablesError

CALL = 30e-6  # seconds that a batch of tables costs beside its data
VISIT = 1.2e-9  # seconds for a cell to be read or written once in a pass of numpy's
SWEPT = 0.6e-9  # in the compiled sweeps
TREE = 5e-5  # seconds that the form of a tree takes for an observed table besides
IN_NUMPY = 26.0  # times that sweeps take without compiled loops
WORTH_COMPILING = 1.5e-4  # seconds of an estimate in numpy from which on compiled loops are loaded
FEW_CELLS = 1 << 17  # with their matrices 40 MiB: not worth a look at the free memory


class Components(Protocol):
    """The exact estimate of a problem under assumptions A1 to A3."""

    def apply(self, Y: Float) -> Float:
        """P Y, (n, K) to (m, K)."""

    def adjoint(self, V: Float) -> Float:
        """P' V, (m, K) to (n, K)."""

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a marginal and the sums of a finer one in the estimate from Y."""


def components_of(problem: Problem) -> Components:
    """The form of the decomposition that costs least, by a count of passes over cells.

    Recodes take the sweeps or the form of a tree, which works on all cells of the variables together.
    """
    structured = StructuredProblem.of(problem)
    tables = list(structured.observed_tables) + list(structured.desired_tables)
    if not all(factor in structured.schema.names for table in tables for factor in table.factors):
        by_tree = TREE * len(structured.observed_tables) + _tree_seconds(structured.schema, tables)
        return _sweeps(structured, tables, by_tree if has_numba() else by_tree / IN_NUMPY) or TreeForm(structured)
    by_array, by_table = _array_seconds(structured.schema, tables), _table_seconds(structured)
    if has_numba() and min(by_array, by_table) >= WORTH_COMPILING:
        sweeps = _sweeps(structured, tables, min(by_array, by_table))
        if sweeps is not None:
            return sweeps
    return TableForm(structured) if by_table < by_array else ArrayForm(structured)


def _sweeps(structured: StructuredProblem, tables: list[Table], seconds: float) -> SweepForm | None:
    """The sweeps, where they are in free memory within so many seconds: not where there is much that is coarser."""
    passes = max(len(table.axes) for table in tables) + 3
    most_cells = seconds / (SWEPT * passes)
    most_bytes = free_memory() if most_cells > FEW_CELLS else inf
    try:
        return SweepForm(structured, most_cells, most_bytes)
    except TooManyTablesError:
        return None


def _array_seconds(schema: Schema, tables: list[Table]) -> float:
    """Every axis takes three visits to every slot of the array: a sum, and a subtraction there and back."""
    return VISIT * _passes(schema, tables) * as_float(array_size(schema, tables))


def _tree_seconds(schema: Schema, tables: list[Table]) -> float:
    """As `_array_seconds`, of the cells of all variables together without sums."""
    cells = prod(schema.shape[axis] for axis in axes_in_use(schema, tables))
    return VISIT * _passes(schema, tables) * as_float(cells)


def _passes(schema: Schema, tables: list[Table]) -> int:
    return 3 * len(axes_in_use(schema, tables)) + 4


def _table_seconds(problem: StructuredProblem) -> float:
    """A cell takes a sum and a correction for each table just below its own, a shape one batch for each subset."""
    observed = problem.observed_tables
    batches = sum(2 ** min(len(shape), len(observed)) for shape in {table.shape for table in observed})
    visits = sum(table.size * (2 * min(len(table.axes), len(observed)) + 4) for table in observed)
    return CALL * (batches + len(problem.desired_tables) ** 0.5) + VISIT * (visits + 2 * problem.desired.size)
