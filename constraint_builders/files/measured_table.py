"""From the rows of a long table to an estimation problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.files.columns import find_columns
from constraint_builders.files.geography_columns import read_geography
from constraint_builders.files.measured_columns import read_measurements
from constraint_builders.files.missing_partitions import refuse_missing_children
from constraint_builders.files.naming import naming
from constraint_builders.files.rows import Block, LevelTable, Rows, infer
from constraint_builders.files.source import Source, open_source
from constraint_builders.problem import Problem
from constraint_builders.sources import combine_sources


@dataclass(frozen=True)
class MeasuredTable:
    """What a long table says.

    Attributes
    ----------
    problem : Problem
    y : ndarray, (n,)
    ignored : tuple of str
        Names of columns of notes.
    combined : tuple of str or (str, str)
        Names of tables of which several sources were combined into one measurement.
    """

    problem: Problem
    y: Float
    ignored: tuple[str, ...]
    combined: tuple[str | LevelTable, ...]


def read_measured_table(
    source: Any,
    schema: Schema | None = None,
    *,
    desired: Sequence[str] | str | None = None,
    noise: str = "gaussian",
    undetermined: Literal["error", "nan"] = "error",
) -> MeasuredTable:
    """Read measurements from a long table, and what was ignored and combined there.

    Parameters and errors are those of `read_long_table`.
    """
    return measured(open_source(source), schema, desired=desired, noise=noise, undetermined=undetermined)


def measured(
    table: Source,
    schema: Schema | None = None,
    *,
    desired: Sequence[str] | str | None = None,
    noise: str = "gaussian",
    undetermined: Literal["error", "nan"] = "error",
) -> MeasuredTable:
    """What a long table that was opened says; parameters and errors are those of `read_long_table`."""
    with naming(table.what):
        columns = find_columns(table.frame, schema)
        if table.frame.is_empty():
            raise ValueError("there are no rows: give one for every cell")
        inferred, schema = not schema, schema or infer(table, columns)
        geography = read_geography(table, columns)
        rows = Rows(table, columns, schema, geography, inferred)
        order = rows.order()
        values, variances = (column[order] for column in read_measurements(rows, columns))
        found = _tables(rows, values, variances)
        spine = None if geography is None else geography.spine
        if spine is not None:
            _compare_children(schema, spine, found)
        problem = Problem(schema, _observed(found, spine), desired, spine=spine, noise=noise, undetermined=undetermined)
        y = problem.observed.vector({own.name: own.values if spine else own.values[0] for own in found})
        problem.check_vector(y)
        combined = tuple(own.name for own in found if len(own.sources) > 1)
        return MeasuredTable(problem, y, columns.ignored, combined)


@dataclass
class _Measured:
    """One table, (geounits, *shape), of one source or of several."""

    name: str | LevelTable
    table: Table
    values: Float
    variances: Float
    sources: list[str] = field(default_factory=list)

    def add(self, other: _Measured) -> None:
        """Combine with what another source says."""
        turned = [0, *(1 + other.table.axes.index(axis) for axis in self.table.axes)]
        values, variances = other.values.transpose(turned), other.variances.transpose(turned)
        try:
            self.values, self.variances = combine_sources([self.values, values], [self.variances, variances])
        except ValueError as error:
            raise ValueError(f"table {self.name!r}: {error}") from None
        self.sources += other.sources


def _tables(rows: Rows, values: Float, variances: Float) -> list[_Measured]:
    """The tables in order of first appearance, their sources combined."""
    found: dict[tuple[int, str], _Measured] = {}
    start = 0
    for block in rows.blocks:
        shape = rows.shape(block)
        cells = slice(start, start + int(np.prod(shape)))
        own = _measured(rows, block, values[cells].reshape(shape), variances[cells].reshape(shape))
        first = found.setdefault((block.level, own.table.name), own)
        if block.source in first.sources and first is not own:
            raise ValueError(f"{first.name!r} and {own.name!r} are names of one table: give it once")
        if first is not own:
            first.add(own)
        start = cells.stop
    return list(found.values())


def _measured(rows: Rows, block: Block, values: Float, variances: Float) -> _Measured:
    return _Measured(rows.name(block), rows.tables[block.table], values, variances, [block.source])


def _observed(found: Sequence[_Measured], spine: Spine | None) -> dict[str, Any]:
    if spine is None:
        return {str(own.name): own.variances[0] for own in found}
    observed: dict[str, dict[str, Float]] = {}
    for own in found:
        observed.setdefault(own.name[0], {})[own.name[1]] = own.variances
    return observed


def _compare_children(schema: Schema, spine: Spine, found: Sequence[_Measured]) -> None:
    """Refuse tables of geounits whose children are not all there."""
    variances: dict[str, dict[str, Float]] = {}
    totals: dict[str, dict[str, Float]] = {}
    for own in found:
        cells = tuple(range(1, own.values.ndim))
        level = own.name[0]
        variances.setdefault(level, {})[own.table.name] = own.variances.mean(axis=cells)
        totals.setdefault(level, {})[own.table.name] = np.nan_to_num(own.values).sum(axis=cells)
    refuse_missing_children(schema, spine, variances, totals)
