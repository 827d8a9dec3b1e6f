"""Microdata as a data frame: one weighted row for every kind of record, or one row for every record."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blue_solvers.nonnegative.cells import Cells
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float
from constraint_builders.description.labelled import aligned
from constraint_builders.description.reals import real_array
from constraint_builders.extras import missing_extra

if TYPE_CHECKING:
    import polars


LARGEST_COUNT = 2.0**53


def weighted_rows(problem: Problem, detail: ArrayLike) -> polars.DataFrame:
    """One row for every detailed cell above 0, with its weight.

    Parameters
    ----------
    problem : Problem
        Gives the schema.
    detail : array_like, schema shape
        Non-negative counts, whole or not.

    Returns
    -------
    polars.DataFrame
        A column of labels for each variable, and ``weight``.

    Raises
    ------
    ValueError
        If the cells are negative, not finite, in structural zeros or of another shape, the problem has a spine, or a
        variable is called ``weight``.
    ImportError
        If polars is not installed.
    """
    frame = _frame_library()
    values, schema = checked_cells(problem, detail), problem.domain.schema
    if "weight" in schema.names:
        raise ValueError("a variable is called 'weight', as is the column of weights: rename the variable")
    cells = np.flatnonzero(values)
    return frame.DataFrame(_labels(schema, cells) | {"weight": values[cells]})


def unit_records(problem: Problem, counts: ArrayLike) -> polars.DataFrame:
    """One row for every record.

    Parameters
    ----------
    problem : Problem
        Gives the schema.
    counts : array_like of whole numbers, schema shape
        As `controlled_rounding` gives them.

    Returns
    -------
    polars.DataFrame
        A column of labels for each variable; records of one kind follow one another.

    Raises
    ------
    ValueError
        If the counts are negative, not whole, in structural zeros or of another shape, or the problem has a spine.
    ImportError
        If polars is not installed.
    """
    frame = _frame_library()
    values = checked_cells(problem, counts)
    if (values != np.rint(values)).any():
        raise ValueError("unit records need whole counts: round them with controlled_rounding, or use weighted_rows")
    return frame.DataFrame(_labels(problem.domain.schema, np.repeat(np.arange(values.size), values.astype(np.int64))))


def _labels(schema: Schema, cells: NDArray[np.intp]) -> dict[str, NDArray]:
    """For every variable its label in some cells, (rows,)."""
    positions = np.unravel_index(cells, schema.shape)
    return {
        name: np.array(schema.labels_of(name), dtype=object)[position]
        for name, position in zip(schema.names, positions, strict=True)
    }


def checked_cells(problem: Problem, detail: ArrayLike) -> Float:
    """The detailed cells as a vector, (d,), refused where they are no counts of the schema."""
    shape = problem.domain.schema.shape
    if problem.places is not None:
        kind = "areas" if problem.spine is None else "a spine"
        raise ValueError(
            f"records and rounded cells are of one geounit: this problem has {kind}. Give that of a geounit"
        )
    along = partial(problem.names.dimensions, "detailed")
    values = real_array(aligned(detail, along, "cells"), "cells")
    if values.shape != shape:
        raise ValueError(f"cells must have the schema's shape {shape}: got {values.shape}")
    if not np.isfinite(values).all() or values.min() < 0:
        raise ValueError("microdata need finite counts of 0 or more: fit them with a non-negative method first")
    if values.max() > LARGEST_COUNT:
        raise ValueError(f"a cell holds {values.max():g}: whole numbers above 2^53 are not exact, give smaller counts")
    flat = values.ravel()
    empty = np.ones(flat.size, dtype=bool)
    empty[Cells(problem).possible] = False
    if flat[empty].any():
        cell = tuple(int(i) for i in np.unravel_index(np.flatnonzero(empty & (flat > 0))[0], values.shape))
        raise ValueError(f"cell {cell} is a structural zero and holds {values[cell]:g}: correct either")
    return flat


def _frame_library() -> ModuleType:
    try:
        import polars
    except ImportError as error:
        raise missing_extra("data frames need polars", "frames") from error
    return polars
