"""Microdata as a data frame: one weighted row for every kind of record, or one row for every record, of whole counts.

Controlled rounding gives whole counts whose chosen margins are the fitted ones, rounded too. Every cell, and every cell
of the kept tables, goes to one of its two neighbouring whole numbers, so values that are whole stay. Where the kept
tables form two chains, in each of which every table refines the next, the constraints are those of a network flow:
their matrix is totally unimodular, the linear program has whole vertices, and the fractional table itself shows that it
has a solution. Three tables of which no two refine one another need not have one (Cox and Ernst).

References
----------
Cox and Ernst, "Controlled rounding", INFOR 20 (1982); Hoffman and Kruskal, "Integral boundary points of convex
polyhedra" (1956); Edmonds on two laminar families.
"""

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
from constraint_builders.extras import needing

if TYPE_CHECKING:
    import polars
from collections.abc import Sequence

import scipy
from scipy import sparse

from constraint_builders.arrays import Index, Integers
from constraint_builders.description.table import make_table, parse_table
from constraint_builders.relations.bases import refines
from constraint_builders.relations.marginals import cell_map

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
    values = real_array(aligned(detail, partial(problem.names.dimensions, "detailed"), "cells"), "cells")
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
    with needing("data frames need polars", "frames"):
        import polars
    return polars


WHOLE = 1e-9  # relative distance within which a value counts as whole


def controlled_rounding(problem: Problem, detail: ArrayLike, keep: Sequence[str]) -> Integers:
    """Round detailed cells to whole numbers so that the tables `keep` are rounded as well.

    Among all such roundings, one with the least sum of squared changes over the cells and the kept tables.

    Parameters
    ----------
    problem : Problem
        Gives the schema, structural zeros, and the tables known exactly, which are kept too.
    detail : array_like, schema shape
        Non-negative counts, as `NonnegativeFit.detail` has them.
    keep : sequence of str
        Tables whose cells each go to a neighbouring whole number, or stay where they are whole.

    Returns
    -------
    ndarray of int64, schema shape

    Raises
    ------
    ValueError
        If the cells are negative or of another shape, a table is unknown, what is known exactly is not whole, the
        problem has a spine or equalities, or the kept tables are not two chains, so that such a rounding need not
        exist; names three tables that stand in the way where there are.
    """
    values, schema = checked_cells(problem, detail), problem.domain.schema
    if problem.equalities is not None:
        raise ValueError("controlled rounding keeps tables, not equalities between cells: this problem has some")
    tables = [parse_table(schema, name) for name in (*keep, *_exact_tables(problem))]
    detailed = make_table(schema, schema.names)
    labels = {table.name: cell_map(schema, detailed, table) for table in tables}
    _require_two_chains(labels)
    _require_whole(problem, values)
    floor, part = _split(values)
    if not part.any():
        return floor.reshape(schema.shape)
    up = _rounded_up(part, floor, list(labels.values()))
    return (floor + up).reshape(schema.shape)


def _exact_tables(problem: Problem) -> list[str]:
    """The observed tables with cells that are known exactly."""
    return [str(name) for name in problem.observed.names if problem.exact[problem.observed.slice(name)].any()]


def _require_whole(problem: Problem, values: Float) -> None:
    """Refuse cells, (cells,), whose sums, where known exactly, are not whole: no rounding keeps these."""
    sums = problem.marginal_matrix()[problem.exact] @ values
    broken = np.flatnonzero(_split(sums)[1])
    if broken.size:
        where = problem.observed.describe(int(np.flatnonzero(problem.exact)[broken[0]]))
        raise ValueError(f"{where} is known exactly and the cells sum to {sums[broken[0]]:g} there: no whole counts do")


def _rounded_up(part: Float, floor: Integers, tables: Sequence[Index]) -> Integers:
    """Which cells go up, (d,): a vertex of the flow problem of the fractional cells and the fractional sums."""
    cells = np.flatnonzero(part)
    rows, sums, bases = [], [], []
    for labels in tables:
        size = int(labels.max()) + 1
        places = (labels[cells], np.arange(cells.size))
        rows.append(sparse.csr_array((np.ones(cells.size), places), shape=(size, cells.size)))
        bases.append(np.bincount(labels, floor, size))
        sums.append(bases[-1] + np.bincount(labels, part, size))
    if not rows:
        return np.rint(part).astype(np.int64)
    sum_floor, sum_part = _split(np.concatenate(sums))
    choice = np.flatnonzero(sum_part)
    places = (choice, np.arange(choice.size))
    slack = sparse.csr_array((-np.ones(choice.size), places), shape=(sum_part.size, choice.size))
    result = scipy.optimize.linprog(
        1 - 2 * np.concatenate([part[cells], sum_part[choice]]),
        A_eq=sparse.hstack([sparse.vstack(rows), slack], format="csr"),
        b_eq=sum_floor - np.concatenate(bases),
        bounds=(0, 1),
        method="highs-ds",
    )
    if result.x is None or abs(result.x - np.rint(result.x)).max() > 1e-6:
        raise RuntimeError(f"the flow of the controlled rounding found no whole solution: {result.message}")
    up = np.zeros(part.size, dtype=np.int64)
    up[cells] = np.rint(result.x[: cells.size]).astype(np.int64)
    return up


def _split(values: Float) -> tuple[Integers, Float]:
    """Whole and fractional part, (cells,) each; values within rounding of a whole number are that number."""
    nearest = np.rint(values)
    whole = abs(values - nearest) <= WHOLE * np.maximum(1.0, values)
    floor = np.where(whole, nearest, np.floor(values))
    return floor.astype(np.int64), np.where(whole, 0.0, values - floor)


def _require_two_chains(tables: dict[str, Index]) -> None:
    """Refuse tables, labels (d,), that cannot be coloured with two colours so that those of one refine one another."""
    names = list(tables)
    rivals = {name: [other for other in names if not _comparable(tables[name], tables[other])] for name in names}
    for name in names:
        for other in rivals[name]:
            third = next((t for t in rivals[other] if t in rivals[name]), None)
            if third is not None:
                raise ValueError(_refusal(f"of {name!r}, {other!r} and {third!r} none refines another"))
    colours: dict[str, bool] = {}
    for start in names:
        waiting = [(start, True)] if start not in colours else []
        while waiting:
            name, colour = waiting.pop()
            if colours.setdefault(name, colour) != colour:
                raise ValueError(_refusal("the tables do not split into two chains of refinements"))
            waiting += [(other, not colour) for other in rivals[name] if colours.get(other) != (not colour)]


def _refusal(reason: str) -> str:
    return (
        f"{reason}: the margins are not those of a network flow (their matrix need not be totally unimodular), so "
        "whole cells that round them all need not exist. Keep fewer tables"
    )


def _comparable(first: Index, second: Index) -> bool:
    """Whether one of two partitions, (cells,) each, refines the other."""
    return refines(first, second) or refines(second, first)
