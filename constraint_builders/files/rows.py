"""The rows of a long table, matched with the cells of a schema's tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.arrays import Flags, Float, Integers
from constraint_builders.description.areas import Places
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.files.columns import (
    GEOCODE,
    GEOLEVEL,
    SOURCE,
    SUMMED_OUT,
    TABLE,
    Columns,
    cell_keys,
    find_columns,
)
from constraint_builders.files.doubts import misspelt
from constraint_builders.files.labels import (
    LabelNumbers,
    inferred_levels,
    read_table_name,
    refuse_alike,
    refuse_numbers,
)
from constraint_builders.files.naming import listed, shown
from constraint_builders.files.numbers import NotANumberError, read_labels, read_numbers
from constraint_builders.files.source import Source
from constraint_builders.files.spine_of_codes import Geography
from constraint_builders.sources import SourceTable

LevelTable = tuple[str, str]
MOST_CELLS = 1e7  # of a table that lacks some: it is held whole
LEAST_ALIKE = 3  # labels of two columns, each of which goes with one of the other, that say the same; two if twice each
NO_VARIABLE = "line"  # what the one is called that every row sums out


def infer(source: Source, columns: Columns) -> Schema:
    """The variables that the columns are, with their levels in order of `inferred_levels`."""
    if not columns.variables:
        raise ValueError(
            f"no column is a variable: add one, such as 'sex', {SUMMED_OUT!r} where all are counted, and give a schema "
            "where it is so in every row"
        )
    levels = {}
    for name in columns.variables:
        levels[name] = levels_of(source, name)
        if not levels[name] and len(columns.variables) == 1 and _are_of_several_geolevels(source, columns):
            levels[name] = ["all"]
        if not levels[name]:
            keep = "" if len(columns.variables) == 1 else "remove it, or "
            raise ValueError(f"column {name!r} is {SUMMED_OUT!r} in every row: {keep}give a schema, with its levels")
    return Schema(levels)


def _are_of_several_geolevels(source: Source, columns: Columns) -> bool:
    return GEOLEVEL in columns.keys and source.frame[columns.keys[GEOLEVEL]].n_unique() > 1


def with_a_variable(source: Source, columns: Columns) -> tuple[Source, Columns]:
    """The same, with a variable that every row sums out where there is none: totals at several geolevels need none."""
    if columns.variables or not _are_of_several_geolevels(source, columns):
        return source, columns
    source = replace(source, frame=source.frame.with_columns(pl.lit(SUMMED_OUT).alias(NO_VARIABLE)))
    return source, find_columns(source.frame, None)


def levels_of(source: Source, name: str) -> list[str]:
    """The levels that a column names, in order of `inferred_levels`."""
    return inferred_levels(_labels(source, name, variable=True), source.rows)


def as_written(source: Source, name: str, levels: Sequence[str]) -> list[str]:
    """The levels of a variable in the order of the rows."""
    labels = read_labels(source.frame[name]).str.strip_chars().unique(maintain_order=True)
    return labels.filter(labels.is_in(levels)).to_list()


def _labels(source: Source, name: str, variable: bool) -> pl.Series:
    hint = f": write {SUMMED_OUT!r} where the variable is summed out" if variable else ""
    return source.filled(read_labels(source.frame[name]), hint)


def _codes(column: pl.Series) -> tuple[list[str], NDArray[np.int64]]:
    """The different labels of a column, sorted, and for every row the number of its label."""
    labels = column.unique().sort()
    return labels.to_list(), column.cast(pl.Enum(labels)).to_physical().to_numpy().astype(np.int64)


@dataclass(frozen=True)
class Block:
    """Cells that one source gives for one table, at all geounits of one geolevel.

    Attributes
    ----------
    level : int
        Position of the geolevel among those of the spine, or the areas; 0 without one.
    table : int
        Position among the tables.
    source : str
        Empty where sources are not told apart.
    """

    level: int
    table: int
    source: str


@dataclass(frozen=True)
class MeasuredCells:
    """A table at a geolevel, over plain variables.

    Attributes
    ----------
    level : str
        Empty without a geography.
    table : Table
    values, variances : ndarray, (geounits, *shape)
        Of all sources together.
    name : str or (str, str)
        What a problem calls it.
    given : tuple of SourceTable
        What each source says.
    """

    level: str
    table: Table
    values: Float
    variances: Float
    name: str | tuple[str, str] = ""
    given: tuple[SourceTable, ...] = ()


class Rows:
    """The rows of a long table, each matched with a cell of a schema's tables.

    Parameters
    ----------
    source : Source
    columns : Columns
    schema : Schema
    geography : Geography or None
    inferred : bool
        Whether the schema comes from the rows themselves, for messages.

    Attributes
    ----------
    names : list of str
        Names of the tables as the rows give them, put right where they differ in capitals and spaces alone, in order of
        `Table.sort_key`.
    tables : list of Table
        What they are.
    blocks : list of Block
        In order of geolevel, table and source, whatever that of the rows is.

    Raises
    ------
    ValueError
        If a table or a label is unknown. `order` refuses the rest.
    """

    def __init__(
        self,
        source: Source,
        columns: Columns,
        schema: Schema,
        geography: Geography | None,
        inferred: bool,
    ) -> None:
        self.source, self._columns, self._schema, self._inferred = source, columns, schema, inferred
        self._has_places = geography is not None
        self._places: Places = geography.places if geography else Spine([-1])
        self._geounits = geography.geounits if geography else np.zeros(source.frame.height, np.intp)
        written, number = _codes(_labels(source, columns.keys[TABLE], variable=False))
        found = [self._table(name, inferred, number == i) for i, name in enumerate(written)]
        self.names = sorted(dict(found), key=lambda name: (dict(found)[name].sort_key, name))
        self.tables = [dict(found)[name] for name in self.names]
        self.table_of_row = np.array([self.names.index(name) for name, _ in found])[number]
        self.keys = cell_keys(schema, self.tables)
        self.cells = [self._cells_along(axis) for axis in range(len(schema.names))]
        self.blocks, self.block_of_row = self._find_blocks()

    def _table(self, name: str, inferred: bool, mine: NDArray[np.bool_]) -> tuple[str, Table]:
        """A table by its name; an error says what its rows, flagged in (rows,), count."""
        try:
            return read_table_name(self._schema, name)
        except ValueError as error:
            hint = "; recodes cannot be inferred, give a schema" if inferred else ""
            hint += f"; a table is named by what it counts, by its rows {self._counted(mine)!r}"
            raise ValueError(f"{error}{hint}") from None

    def _counted(self, mine: NDArray[np.bool_]) -> str:
        """What some rows, flagged in (rows,), count, by the variables that they do not sum out."""
        kept = []
        for variable, column in self._columns.variables.items():
            labels = read_labels(self.source.frame[column]).filter(pl.Series(mine)).unique().drop_nulls()
            if any(label.strip() != SUMMED_OUT for label in labels):
                kept.append(variable)
        return " * ".join(kept) or "total"

    def _cells_along(self, axis: int) -> NDArray[np.int32]:
        """For every row the level or group along one variable, 0 where it is summed out."""
        name = self._schema.names[axis]
        labels, codes = _codes(_labels(self.source, self._columns.variables[name], variable=True))
        numbers = map(LabelNumbers, self.keys.labels[axis])
        lookup = np.array([[own.get(label) for label in labels] for own in numbers], dtype=np.int32)
        cells = lookup[self.keys.factors[self.table_of_row, axis], codes]
        if cells.size and cells.min() < 0:
            self._refuse_label(axis, int(cells.argmin()), labels[codes[cells.argmin()]])
        return cells

    def _refuse_label(self, axis: int, row: int, label: str) -> None:
        name, table = self._columns.variables[self._schema.names[axis]], int(self.table_of_row[row])
        factor = int(self.keys.factors[table, axis])
        place = f"table {self.names[table]!r}, row {self.source.rows[row]}"
        got = shown(label)
        if factor == 0:
            raise ValueError(f"{place}: column {name!r} must be {SUMMED_OUT!r}, the table sums it out: got {got}")
        if label.strip() == SUMMED_OUT:
            raise ValueError(f"{place}: column {name!r} is {SUMMED_OUT!r}, but the table keeps it: give a level")
        there = listed(self.keys.labels[axis][factor])
        raise ValueError(f"{place}: unknown level {got} in column {name!r}: there are {there}")

    def _find_blocks(self) -> tuple[list[Block], Integers]:
        """All blocks, and the number of every row's."""
        levels = self._places.level_of[self._geounits]
        sources, source_of_row = [""], np.zeros(levels.size, np.int64)
        if SOURCE in self._columns.keys:
            sources, source_of_row = _codes(_labels(self.source, self._columns.keys[SOURCE], variable=False))
            refuse_alike(sources, f"column {self._columns.keys[SOURCE]!r}")
        shape = (int(levels.max(initial=0)) + 1, len(self.names), len(sources))
        key = np.ravel_multi_index((levels, self.table_of_row, source_of_row), shape)
        found, number = np.unique(key, return_inverse=True)
        places = zip(*np.unravel_index(found, shape), strict=True)
        return [Block(int(level), int(table), sources[source]) for level, table, source in places], number

    @cached_property
    def geounit_of_row(self) -> Integers:
        """Number within its geolevel of every row's geounit."""
        return self._places.rank_in_level[self._geounits].astype(np.int64)

    def shape(self, block: Block) -> tuple[int, ...]:
        """Shape of a block's cells: (geounits of the level, *table's shape)."""
        return (self._places.members[block.level].size, *self.tables[block.table].shape)

    def name(self, block: Block) -> str | LevelTable:
        """What a problem calls a block's table."""
        name = self.names[block.table]
        return (self._places.levels[block.level], name) if self._has_places else name

    def order(self, may_lack: bool = False) -> Integers:
        """The row of every cell of all blocks, block after block, each there once; -1 where it may lack one."""
        for number, block in enumerate(() if may_lack else self.blocks):
            self._refuse_missing_cells(number, block)
        sizes = np.array([np.prod(self.shape(block), dtype=np.int64) for block in self.blocks])
        starts = np.cumsum(sizes) - sizes
        per_table = np.array([table.size for table in self.tables])
        positions = starts[self.block_of_row] + self.geounit_of_row * per_table[self.table_of_row]
        for axis, cells in enumerate(self.cells):
            positions += self.keys.strides[self.table_of_row, axis] * cells
        self._refuse_duplicates(positions, int(sizes.sum()))
        order = np.full(int(sizes.sum()), -1)
        order[positions] = np.arange(positions.size)
        return order

    def _lacking(self, number: int, block: Block) -> tuple[Integers, int]:
        """The rows of a block, (k,), and of how many cells; all of them where none lacks a row."""
        size = int(np.prod([1, *self.shape(block)], dtype=object))
        return np.flatnonzero(self.block_of_row == number), size

    def refuse_gaps(self, asks: bool) -> None:
        """Refuse tables some cells of which have no row, too large ones, and those of which two columns say the same.

        With `asks` columns of percentages and the like too, as labels of which all else would have none.
        """
        variables = [self._columns.variables[name] for name in self._schema.names]
        places = [self._columns.keys[GEOCODE]] if GEOCODE in self._columns.keys else []
        labels = self.source.frame.with_columns(read_labels(self.source.frame[name]) for name in variables)
        levels = self._places.level_of[self._geounits]
        for number, block in enumerate(self.blocks):
            mine, size = self._lacking(number, block)
            if size <= mine.size:
                continue
            rows = labels[mine]
            for name in variables if asks else ():
                refuse_numbers(name, rows[name])
            _refuse_alike(rows, labels.filter(pl.Series(levels == block.level)), [*places, *variables])
            if size > MOST_CELLS:
                raise ValueError(
                    f"table {self.names[block.table]!r} has {mine.size:,} rows of {size:,} cells, which would all be "
                    "held: leave out a variable, or sum others to groups"
                )

    def _refuse_missing_cells(self, number: int, block: Block) -> None:
        table, shape = self.tables[block.table], self.shape(block)
        mine, size = self._lacking(number, block)
        if mine.size >= size:
            return
        columns: list[NDArray[np.integer]] = [self.geounit_of_row, *(self.cells[axis] for axis in table.axes)]
        gap = _first_gap(np.stack([column[mine].astype(np.int64) for column in columns], axis=1), shape)
        labels = [self._schema.labels_of(factor)[cell] for factor, cell in zip(table.factors, gap[1:], strict=True)]
        variables = [self._schema.names[axis] for axis in table.axes]
        where = self._geounit(int(self._places.members[block.level][gap[0]]))
        cell = _describe(self.names[block.table], where, variables, labels, block.source)
        there = f"the table has {mine.size:,} of {size:,} cells"
        instead = f"give each a row, of {self._columns.spread.column} inf where it was not published"
        columns_of = [self._columns.variables[variable] for variable in variables if self._inferred]
        perhaps = (misspelt(self.source, name) for name in columns_of)
        raise ValueError(f"{cell} is missing: {there}; {next(filter(None, perhaps), instead)}")

    def _refuse_duplicates(self, positions: Integers, size: int) -> None:
        """Refuse rows that give one cell twice, by positions among the cells, (rows,)."""
        repeated = np.flatnonzero(np.bincount(positions, minlength=size)[positions] > 1)
        if repeated.size:
            first, second = np.flatnonzero(positions == positions[repeated[0]])[:2]
            both = f"rows {self.source.rows[first]} and {self.source.rows[second]}"
            hint = (
                "" if SOURCE in self._columns.keys else "; two sources of one table are told apart by a column 'source'"
            )
            raise ValueError(f"{self.cell(int(first))} is given twice, in {both}{hint}")

    def cell(self, row: int) -> str:
        """Name the cell of a row for a message."""
        block = self.blocks[self.block_of_row[row]]
        names = [self._columns.variables[name] for name in self._schema.names]
        labels = [str(label) for label in self.source.frame[row].select(names).row(0)]
        where = self._geounit(int(self._geounits[row]))
        return _describe(self.names[block.table], where, self._schema.names, labels, block.source)

    def numbers(self, column: pl.Series, mark: str, what: str, hint: str = "") -> Float:
        """A column of numbers; `what` messages call it."""
        try:
            return read_numbers(column, mark)
        except NotANumberError as error:
            place = f"row {self.source.rows[error.row]}"
            raise ValueError(f"{self.cell(error.row)}: {what} {error} ({place}){hint}") from None

    def refuse(self, what: str, wrong: Flags, why: str) -> None:
        """Refuse the first row that is wrong, of flags (rows,)."""
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"{self.cell(row)}: {what} {why} (row {self.source.rows[row]})")

    def _geounit(self, position: int) -> str:
        if not self._has_places:
            return ""
        return f" of {self._places.levels[self._places.level_of[position]]} {self._places.geocodes[position]!r}"


def _refuse_alike(rows: pl.DataFrame, near: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse two columns that say the same of all rows of a table, as a code and a name do, and of others near it."""
    for one, other in combinations(names, 2):
        pairs = rows.group_by(one, other, maintain_order=True).agg(pl.len().alias(SUMMED_OUT))  # no column's name
        least = 2 if (pairs[SUMMED_OUT] > 1).all() else LEAST_ALIKE
        both = near.filter((pl.col(one) != SUMMED_OUT) & (pl.col(other) != SUMMED_OUT)).select(one, other).unique()
        is_alike = (own.height == own[one].n_unique() == own[other].n_unique() for own in (pairs, both))
        if least <= pairs.height and all(is_alike):
            raise ValueError(
                f"columns {one!r} and {other!r} say the same, {shown(pairs[one][0])} is {shown(pairs[other][0])}: keep "
                "one, and call the other 'note'"
            )


def _first_gap(cells: Integers, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The first cell, in C order, not in a row of `cells`, (k, axes); all cells may be more than can be counted."""
    present = np.unique(cells, axis=0)
    expected = np.empty((len(present) + 1, len(shape)), dtype=np.int64)
    rest = np.arange(len(present) + 1)
    for axis in reversed(range(len(shape))):
        rest, expected[:, axis] = np.divmod(rest, shape[axis])
    gaps = np.flatnonzero((present != expected[:-1]).any(axis=1))
    return tuple(int(i) for i in expected[gaps[0] if gaps.size else -1])


def _describe(table: str, where: str, variables: Sequence[str], labels: Sequence[str], source: str) -> str:
    """Name a cell for a message, for instance ``table 'sex * age', cell (sex=male, age=3)``."""
    kept = [f"{name}={label}" for name, label in zip(variables, labels, strict=True) if label != SUMMED_OUT]
    cell = f", cell ({', '.join(kept)})" if kept else ""
    return f"table {table!r}{where}{cell}{f', source {source!r}' if source else ''}"
