"""Levels that are the sum of some others: a hierarchy in one column, a subtotal above or below its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

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
MOST_ROWS = 16  # of a table, the largest, in which sums are looked for that hold in all
REFUSED = 0.05  # with which a sum may come about by chance that is refused
NAMED = 0.5  # and one that is named


class Nested(NamedTuple):
    """A level and its parts, and how likely some such sum comes about by chance."""

    whole: int
    parts: list[int]
    chance: float


def nested_levels(
    schema: Schema, tables: Sequence[MeasuredCells], written: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Levels that are everywhere the sum, within noise, of what their codes begin or of what is written beside.

    Of a column that is known to add up to a total nothing is asked.

    Parameters
    ----------
    schema : Schema
    tables : sequence of MeasuredCells
    written : mapping of str to sequence of str
        The labels of every variable in the order of the file.

    Yields
    ------
    str
        Those that may well be by chance, in words.

    Raises
    ------
    ValueError
        For one that hardly is; the level and its parts are named.
    """
    found = list(columns(tables))
    told = {own.axis for own in found if own.has_total and agree(*own.without())}
    for column in found:
        if column.axis in told:
            continue
        name = schema.names[column.axis]
        labels = schema.labels_of(name)
        place = {label: i for i, label in enumerate(labels)}
        nested = _by_prefix(column, labels) or _side_by_side(column, [place[label] for label in written[name]])
        if nested is None:
            continue
        told.add(column.axis)
        whole, parts = shown(labels[nested.whole]), f"{shown(labels[nested.parts[0]])} and {len(nested.parts) - 1} more"
        if nested.chance <= REFUSED:
            raise ValueError(
                f"column {name!r}: {whole} counts as many as {parts} together: leave out its rows or theirs; {IF_LEVEL}"
            )
        yield f"{whole} in column {name!r} counts as many as {parts} together, within its noise: is it their subtotal?"


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


def _by_prefix(column: TableColumn, labels: Sequence[str]) -> Nested | None:
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
    return Nested(*next(iter(found.items())), likely) if likely <= NAMED else None


def _side_by_side(column: TableColumn, order: list[int]) -> Nested | None:
    """The level that is the sum of two or more written right before or after it that is least likely by chance."""
    values, variances = column.measured(order)
    largest = np.argsort(-abs(values).sum(axis=1), kind="stable")[:MOST_ROWS]
    longest = min(MOST_PARTS, len(order) - 1) if len(values) else 0
    tried = sum(2 * (len(order) - parts) for parts in range(2, longest + 1))
    found = [
        Nested(place + whole, [*range(place + first, place + first + parts)], tried * likely)
        for parts in range(2, longest + 1)
        for whole, first in ((0, 1), (parts, 0))
        for place, likely in _where_a_sum(values[largest], variances[largest], parts, whole, first, NAMED / tried)
    ]
    for whole, parts, likely in sorted(found, key=lambda own: own.chance):
        difference = values[:, whole] - values[:, parts].sum(axis=1)
        variance = variances[:, [whole, *parts]].sum(axis=1) + rounding(values)
        if agree(difference, variance) and is_more(values, variances, whole, parts):
            return Nested(order[whole], [order[part] for part in parts], likely)
    return None


def _where_a_sum(
    values: Float, variances: Float, parts: int, whole: int, first: int, most: float
) -> list[tuple[int, float]]:
    """Places of runs of levels, one more than parts, of which the one `whole` further is the sum, and the chance."""
    runs = values.shape[1] - parts
    nothing = np.zeros((len(values), 1))
    sums, noise = (
        (running[:, parts:] - running[:, :-parts])[:, first : first + runs]
        for running in (np.hstack([nothing, part.cumsum(axis=1)]) for part in (values, variances))
    )
    own = slice(whole, whole + runs)
    variance = variances[:, own] + noise + rounding(values)[:, None]
    likely = chance(values[:, own], np.maximum(variance, _grain(values)))
    places = np.flatnonzero((likely <= most) & agree(values[:, own] - sums, variance))
    return list(zip(places.tolist(), likely[places].tolist(), strict=True))


def _grain(values: Float) -> float:
    """The variance of whole numbers, which agree by chance more often than others do."""
    return (1 / (2 * DEVIATIONS)) ** 2 if (values == np.round(values)).all() else 0.0
