"""Labels as people write them, matched with those of a schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.cell_keys import SUMMED_OUT

ALSO_SUMMED_OUT = ("total", "all")


class LabelNumbers:
    """The numbers of labels: of the very label, or of the only one that differs in capitals and outer spaces alone.

    Parameters
    ----------
    labels : sequence of str
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._exact = {label: number for number, label in enumerate(labels)}
        self._alike: dict[str, int | None] = {}
        for number, label in enumerate(labels):
            self._alike[_plain(label)] = None if _plain(label) in self._alike else number

    def get(self, label: str) -> int:
        """Its number, or -1."""
        found = self._exact.get(label, self._alike.get(_plain(label)))
        return -1 if found is None else found


def _plain(label: str) -> str:
    return label.strip().casefold()


def summed_out_labels(levels: Iterable[str]) -> tuple[str, ...]:
    """What says that a variable of these levels is summed out."""
    taken = {_plain(level) for level in levels}
    return (SUMMED_OUT, *(word for word in ALSO_SUMMED_OUT if word not in taken))


def inferred_levels(labels: pl.Series, rows: NDArray[np.int64]) -> list[str]:
    """The levels that labels name, in order of first appearance, without outer spaces.

    Parameters
    ----------
    labels : polars.Series
        A column of a table.
    rows : ndarray of int
        The number of every row there, for messages.

    Raises
    ------
    ValueError
        If two differ in capitals alone.
    """
    stripped = labels.str.strip_chars()
    levels = [label for label in stripped.unique(maintain_order=True) if _plain(label) not in summed_out_labels(())]
    first: dict[str, str] = {}
    for level in levels:
        other = first.setdefault(_plain(level), level)
        if other != level:
            places = [rows[int((stripped == label).arg_max() or 0)] for label in (other, level)]
            seen = f"{other!r} (row {places[0]}) and {level!r} (row {places[1]})"
            raise ValueError(f"column {labels.name!r} has both {seen}: write one of them, or give a schema with both")
    return levels


def read_table_name(schema: Schema, name: str) -> tuple[str, Table]:
    """A table by its name, or one that differs from it in capitals and spaces alone, and the name put right.

    Raises
    ------
    ValueError
        If there is none.
    """
    try:
        return name, parse_table(schema, name)
    except ValueError:
        factors = [*schema.names, *(recode.name for recode in schema.recodes), "total", "detailed"]
        numbers = LabelNumbers(factors)
        found = [numbers.get(factor) for factor in name.split("*")]
        if min(found) < 0:
            raise
        right = " * ".join(factors[number] for number in found)
        return right, parse_table(schema, right)
