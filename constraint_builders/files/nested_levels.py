"""Levels that are the sum of some others: a hierarchy in one column, a subtotal above or below its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.files.hidden_totals import (
    DEVIATIONS,
    IF_LEVEL,
    MeasuredCells,
    TableColumn,
    agree,
    chance,
    columns,
    is_more,
    rounding,
)
from constraint_builders.files.naming import shown

MOST_PARTS = 60  # side by side, of a subtotal
REFUSED = 0.05  # with which a sum may come about by chance that is refused
NAMED = 0.5  # and one that is named

Nested = tuple[int, list[int]]  # a level and its parts


def refuse_nested_levels(schema: Schema, tables: Sequence[MeasuredCells], written: Mapping[str, Sequence[str]]) -> None:
    """Refuse levels that are everywhere the sum, within noise, of what their codes begin or of what is written beside.

    Of a column that is known to add up to a total nothing is asked.

    Parameters
    ----------
    schema : Schema
    tables : sequence of MeasuredCells
    written : mapping of str to sequence of str
        The labels of every variable in the order of the file.

    Raises
    ------
    ValueError
        The level and its parts are named.
    """
    for name, whole, parts in _nested(schema, tables, written, REFUSED):
        raise ValueError(
            f"column {name!r}: {whole} counts as many as {parts} together: leave out its rows or theirs; {IF_LEVEL}"
        )


def perhaps_nested(
    schema: Schema, tables: Sequence[MeasuredCells], written: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Levels that are the sum of others by what may well be chance, in words; parameters as above."""
    for name, whole, parts in _nested(schema, tables, written, NAMED):
        yield f"{whole} in column {name!r} counts as many as {parts} together, within its noise: is it their subtotal?"


def _nested(
    schema: Schema, tables: Sequence[MeasuredCells], written: Mapping[str, Sequence[str]], most: float
) -> Iterator[tuple[str, str, str]]:
    """For every column that has one, its name, a level that is a sum and its parts."""
    found = list(columns(tables))
    told = {own.axis for own in found if own.has_total and agree(*own.without())}
    for column in found:
        if column.axis not in told:
            name = schema.names[column.axis]
            labels = schema.labels_of(name)
            order = [labels.index(label) for label in written[name]]
            nested = _by_prefix(column, labels, most) or _side_by_side(column, order, most)
            if nested is not None:
                whole, (first, *others) = nested
                told.add(column.axis)
                yield name, shown(labels[whole]), f"{shown(labels[first])} and {len(others)} more"


def families(labels: Sequence[str]) -> dict[int, list[int]]:
    """Labels that begin others, and the two or more of these that no longer one begins.

    Examples
    --------
    >>> families(["A", "A01", "A011", "A012", "A02", "B"])
    {0: [1, 4], 1: [2, 3]}
    """
    at = {label: place for place, label in enumerate(labels)}
    found: dict[int, list[int]] = {}
    for label, place in at.items():
        parent = next((at[label[:end]] for end in range(len(label) - 1, 0, -1) if label[:end] in at), None)
        if parent is not None:
            found.setdefault(parent, []).append(place)
    return {parent: parts for parent, parts in found.items() if len(parts) > 1}


def _by_prefix(column: TableColumn, labels: Sequence[str], most: float) -> Nested | None:
    """The first of `families`, where all of them are sums of their parts, not by chance."""
    found = families(labels)
    likely = 1.0
    for whole, parts in found.items():
        values, variances = column.measured([whole, *parts])
        sums, variance = values[:, 1:].sum(axis=1), variances.sum(axis=1) + rounding(values)
        if len(values):
            if not agree(values[:, 0] - sums, variance):
                return None
            likely *= float(chance(values[:, 0], np.maximum(variance, _grain(values))))
    return next(iter(found.items())) if likely <= most else None


def _side_by_side(column: TableColumn, order: list[int], most: float) -> Nested | None:
    """A level that is the sum of two or more that are written right before or after it, not by chance."""
    values, variances = column.measured(order)
    longest = min(MOST_PARTS, len(order) - 1) if len(values) else 0
    tried = sum(2 * (len(order) - parts) for parts in range(2, longest + 1))
    for parts in range(2, longest + 1):
        for whole, first in ((0, 1), (parts, 0)):
            for place in _where_a_sum(values, variances, parts, whole, first, most / tried):
                side = range(place + first, place + first + parts)
                if is_more(values, variances, place + whole, list(side)):
                    return order[place + whole], [order[part] for part in side]
    return None


def _where_a_sum(values: Float, variances: Float, parts: int, whole: int, first: int, most: float) -> list[int]:
    """Places of runs of levels, one more than parts, of which the one `whole` further is the sum of the others."""
    runs = values.shape[1] - parts
    nothing = np.zeros((len(values), 1))
    sums, noise = (
        (running[:, parts:] - running[:, :-parts])[:, first : first + runs]
        for running in (np.hstack([nothing, part.cumsum(axis=1)]) for part in (values, variances))
    )
    own = slice(whole, whole + runs)
    variance = variances[:, own] + noise + rounding(values)[:, None]
    likely = chance(values[:, own], np.maximum(variance, _grain(values)))
    return np.flatnonzero((likely <= most) & agree(values[:, own] - sums, variance)).tolist()


def _grain(values: Float) -> float:
    """The variance of whole numbers, which agree by chance more often than others do."""
    return (1 / (2 * DEVIATIONS)) ** 2 if (values == np.round(values)).all() else 0.0
