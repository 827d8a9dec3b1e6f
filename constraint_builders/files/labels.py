"""Labels as people write them, matched with those of a schema."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.cell_keys import SUMMED_OUT

_ALIKE = str.maketrans("‐‑‒–—−‘’‛ʼ", "------''''")  # dashes and apostrophes
_WHOLE_FLOAT = re.compile(r"([0-9]+)\.0+")


class LabelNumbers:
    """The numbers of labels: of the very label, or of the only one whose `plain_label` is the same.

    Parameters
    ----------
    labels : sequence of str
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._exact = {label: number for number, label in enumerate(labels)}
        self._alike: dict[str, int | None] = {}
        for number, label in enumerate(labels):
            self._alike[plain_label(label)] = None if plain_label(label) in self._alike else number

    def get(self, label: str) -> int:
        """Its number, or -1."""
        found = self._exact.get(label, self._alike.get(plain_label(label)))
        return -1 if found is None else found


def plain_label(label: str) -> str:
    """A label without what makes no difference: capitals, kinds of spaces, dashes, accents, what nobody sees, 1.0."""
    seen = "".join(c for c in unicodedata.normalize("NFKC", label) if unicodedata.category(c) != "Cf")
    plain = " ".join(seen.translate(_ALIKE).casefold().split())
    return _WHOLE_FLOAT.sub(r"\1", plain) if _WHOLE_FLOAT.fullmatch(plain) else plain


def refuse_alike(labels: Iterable[str], what: str) -> None:
    """Raise `ValueError` for two labels of one `plain_label`."""
    first: dict[str, str] = {}
    for label in labels:
        other = first.setdefault(plain_label(label), label)
        if other != label:
            raise ValueError(f"{what} has both {other!a} and {label!a}: write one of them")


def inferred_levels(labels: pl.Series, rows: NDArray[np.int64]) -> list[str]:
    """The levels that labels name, without outer spaces, in order as `in_order` puts them.

    Parameters
    ----------
    labels : polars.Series
        A column of a table.
    rows : ndarray of int
        The number of every row there, for messages.

    Raises
    ------
    ValueError
        If two have one `plain_label`.
    """
    stripped = labels.str.strip_chars()
    levels = [label for label in stripped.unique(maintain_order=True) if label != SUMMED_OUT]
    first: dict[str, str] = {}
    for level in levels:
        other = first.setdefault(plain_label(level), level)
        if other != level:
            places = [rows[int((stripped == label).arg_max() or 0)] for label in (other, level)]
            as_shown = ascii if unicodedata.normalize("NFC", other) == unicodedata.normalize("NFC", level) else repr
            seen = f"{as_shown(other)} (row {places[0]}) and {as_shown(level)} (row {places[1]})"
            raise ValueError(f"column {labels.name!r} has both {seen}: write one of them, or give a schema with both")
    return in_order(levels)


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels sorted: numbers by size, others by the alphabet, digits inside of them as numbers."""
    return sorted(labels, key=_natural)


def _natural(label: str) -> tuple[bool, float, list[tuple[int, str]], str]:
    """A key to sort labels by: 2 before 10, ``0-4`` and ``5-9`` before ``10-14``."""
    try:
        number = float(label)
    except ValueError:
        number = np.nan
    digits = [part.lstrip("0") if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", plain_label(label)))]
    text = [(len(part) if i % 2 else 0, part) for i, part in enumerate(digits)]
    return (True, 0.0, text, label) if np.isnan(number) else (False, number, text, label)


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
