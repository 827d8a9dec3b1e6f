"""Summing tables to coarser tables: as sparse matrices, as axis sums that form none, as problems of fewer variables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.areas import Places
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import ONE_PLACE
from constraint_builders.description.table import Table, make_table, parse_table
from constraint_builders.memory import require_memory

INDEX_BYTES = 8
VALUE_BYTES = 8
Variances = Mapping[str, Mapping[str, Float]]


def map_along(schema: Schema, fine: Table, coarse: Table, axis: int) -> NDArray[np.intp]:
    """For every cell of a table along an axis the cell of a coarser table that it falls in.

    Raises
    ------
    ValueError
        If it falls in several.
    """
    place = fine.axes.index(axis)
    into, out_of = coarse.factors[coarse.axes.index(axis)], fine.factors[place]
    if into == out_of:
        return np.arange(fine.shape[place])
    mapping = schema.group_map(out_of, into)
    if mapping is None:
        raise ValueError(f"table {fine.name!r} cannot be summed to {coarse.name!r}: {into!r} cuts {out_of!r}")
    return mapping


def refines(schema: Schema, fine: Table, coarse: Table) -> bool:
    """Whether every cell of `coarse` is a sum of cells of `fine`; a variable of one level need not be in `fine`."""
    own = dict(zip(fine.axes, fine.factors, strict=True))
    for axis, factor in zip(coarse.axes, coarse.factors, strict=True):
        held = own.get(axis)
        if held != factor and schema.shape[axis] > 1 and (held is None or schema.group_map(held, factor) is None):
            return False
    return True


class Margin:
    """The linear map from a table's cells to those of a coarser table, and its transpose, without a matrix.

    Parameters
    ----------
    schema : Schema
    fine, coarse : Table
        `fine` must refine `coarse`.
    """

    def __init__(self, schema: Schema, fine: Table, coarse: Table) -> None:
        self._fine_shape, self._same = fine.shape, fine == coarse
        own = dict(zip(coarse.axes, coarse.factors, strict=True))
        self._summed = tuple(i for i, axis in enumerate(fine.axes) if axis not in own)
        kept = [axis for axis in fine.axes if axis in own]
        self._turn = tuple(kept.index(axis) for axis in coarse.axes if axis in kept)
        self._regrouped: list[tuple[int, sparse.csr_array]] = []
        for i, (axis, factor) in enumerate(zip(fine.axes, fine.factors, strict=True)):
            if axis in own and own[axis] != factor:
                mapping = map_along(schema, fine, coarse, axis)
                self._regrouped.append((i, _indicator(mapping, schema.size_of(own[axis]))))

    def apply(self, cells: Float) -> Float:
        """Sum (n, K) cells of the fine table to (m, K) cells of the coarse one."""
        if self._same:
            return cells
        array = cells.reshape(self._fine_shape + cells.shape[1:])
        for axis, indicator in self._regrouped:
            array = _along(indicator, array, axis)
        sums = array.sum(axis=self._summed) if self._summed else array
        turned = sums.transpose(*self._turn, *range(len(self._turn), sums.ndim))
        return turned.reshape(prod(turned.shape[: len(self._turn)]), *cells.shape[1:])

    def transpose(self, cells: Float) -> Float:
        """Spread (m, K) cells of the coarse table over the (n, K) cells of the fine one that they are sums of."""
        if self._same:
            return cells
        shape = list(self._fine_shape)
        for axis, indicator in self._regrouped:
            shape[axis] = indicator.shape[0]
        lengths = [length for i, length in enumerate(shape) if i not in self._summed]
        own = cells.reshape(*(lengths[i] for i in self._turn), *cells.shape[1:])
        turned = own.transpose(*np.argsort(self._turn), *range(len(self._turn), own.ndim))
        kept = [1 if i in self._summed else length for i, length in enumerate(shape)]
        array = np.broadcast_to(turned.reshape(*kept, *cells.shape[1:]), (*shape, *cells.shape[1:]))
        for axis, indicator in self._regrouped:
            array = _along(indicator.T.tocsr(), array, axis)
        return array.reshape(prod(self._fine_shape), *cells.shape[1:])


def _indicator(mapping: NDArray[np.intp], groups: int) -> sparse.csr_array:
    """Rows of 0/1, (groups, cells), from the group of every cell, (cells,)."""
    cells = np.arange(mapping.size)
    return sparse.csr_array((np.ones(mapping.size), (mapping, cells)), shape=(groups, mapping.size))


def _along(matrix: sparse.csr_array, array: Float, axis: int) -> Float:
    """Multiply a matrix, (k, levels), into one axis of an array, (..., levels, ...)."""
    moved = np.moveaxis(array, axis, 0)
    product = matrix @ moved.reshape(moved.shape[0], prod(moved.shape[1:]))
    return np.moveaxis(product.reshape(matrix.shape[0], *moved.shape[1:]), 0, axis)


def cell_map(schema: Schema, fine: Table, coarse: Table) -> NDArray[np.intp]:
    """For every cell of `fine`, in C order, the cell of `coarse` that it is summed into."""
    after = accumulate(coarse.shape[:0:-1], mul, initial=1)
    strides = dict(zip(reversed(coarse.axes), after, strict=False))
    found = np.zeros((), dtype=np.intp)
    for place, axis in enumerate(fine.axes, 1):
        if axis in strides:
            own = map_along(schema, fine, coarse, axis) * strides[axis]
            found = found + own.reshape(-1, *(1,) * (len(fine.axes) - place))
    return np.broadcast_to(found, fine.shape).flatten()


def margin_matrix(schema: Schema, fine: Table, coarse: Table) -> sparse.csr_array:
    """The 0/1 matrix (coarse.size, fine.size) that sums the cells of `fine` to those of `coarse`."""
    return _indicator(cell_map(schema, fine, coarse), coarse.size)


def kronecker(one: sparse.csr_array, other: sparse.csr_array) -> sparse.csr_array:
    """The Kronecker product, (m p, n q), of (m, n) and (p, q); for small ones in a quarter of the time of scipy's."""
    shape = (one.shape[0] * other.shape[0], one.shape[1] * other.shape[1])
    kind = np.int32 if max(*shape, one.nnz * other.nnz) <= np.iinfo(np.int32).max else np.int64
    rows, others = (np.repeat(np.arange(own.shape[0], dtype=kind), np.diff(own.indptr)) for own in (one, other))
    columns = one.indices.astype(kind), other.indices.astype(kind)
    entries = (
        np.add.outer(rows * other.shape[0], others).ravel(),
        np.add.outer(columns[0] * other.shape[1], columns[1]).ravel(),
    )
    return sparse.csr_array((np.outer(one.data, other.data).ravel(), entries), shape=shape)


def marginal_matrix(
    schema: Schema, tables: Sequence[Table], places: Places = ONE_PLACE, levels: Sequence[int] | None = None
) -> sparse.csr_array:
    """The 0/1 matrix from the detailed histograms of all leaves to all cells of tables, a block of rows for each.

    Parameters
    ----------
    schema : Schema
    tables : sequence of Table
    places : Spine or Areas
    levels : sequence of int, optional
        Of the tables, by default the first.

    Raises
    ------
    MemoryError
        If it would not fit, with the bytes that it needs.
    """
    detailed = make_table(schema, schema.names)
    levels = [0] * len(tables) if levels is None else levels
    leaves = {level: places.leaves_of(level) for level in dict.fromkeys(levels)} if places.size > 1 else {}
    entries = float(sum(leaves[level].nnz if leaves else 1 for level in levels)) * detailed.size
    count = float(leaves[levels[0]].shape[1] if leaves else 1) * detailed.size
    what = f"the marginal matrix of {len(tables)} tables over {count:.4g} detailed cells"
    # The stacked result, and the blocks that it is copied from.
    require_memory(2.0 * entries * (VALUE_BYTES + INDEX_BYTES), what, "use fewer tables")
    margins = {table: margin_matrix(schema, detailed, table) for table in dict.fromkeys(tables)}
    blocks = [margins[table] for table in tables]
    if leaves:
        blocks = [kronecker(leaves[level], own) for level, own in zip(levels, blocks, strict=True)]
    return sparse.csr_array(sparse.vstack(blocks, format="csr"))


def sum_out(schema: Schema, observed: Variances, needed: Collection[str]) -> tuple[Schema, dict[str, dict[str, Float]]]:
    """Sum measurements over the variables that a question does not need, without loss.

    A variable of which all observed tables keep either every level or none splits the problem into one for sums over
    its levels and one for contrasts between them, which share no information as long as variances are equal within each
    table of a geounit. So a count that is a sum over its levels has the same best linear unbiased estimate, and the
    same variance, in the problem of the tables summed over it. A variable with recodes in use does not split so, and
    stays. So do variables that structural zeros tell apart: count them among the needed ones.

    Parameters
    ----------
    schema : Schema
    observed : mapping of geolevel to mapping of table to ndarray, (geounits,)
        One variance for every table of a geounit, in squared counts.
    needed : collection of str
        Variables that the question distinguishes.

    Returns
    -------
    schema : Schema
        Of the variables that are needed or stay, at least one.
    observed : dict of geolevel to dict of table to ndarray, (geounits,)
        Tables summed to the same cells are one, with the variance of their best combination.
    """
    tables = {name: parse_table(schema, name) for row in observed.values() for name in row}
    factors = {factor for table in tables.values() for factor in table.factors}
    recoded = {schema.names[schema.axis_of(factor)] for factor in factors - set(schema.names)}
    kept = [name for name in schema.names if name in recoded.union(needed)] or [schema.names[0]]
    smaller = Schema({name: schema.labels_of(name) for name in kept}).with_recodes_of(schema)
    summed: dict[str, dict[str, Float]] = {}
    for level, row in observed.items():
        precisions: dict[str, Float] = {}
        for name, variances in row.items():
            margin = tables[name].over(smaller)
            with np.errstate(divide="ignore"):
                precision = 1 / (variances * (tables[name].size // margin.size))
                precisions[margin.name] = precisions.get(margin.name, 0.0) + precision
        with np.errstate(divide="ignore"):
            summed[level] = {name: 1 / precision for name, precision in precisions.items()}
    return smaller, summed
