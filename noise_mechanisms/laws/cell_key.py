"""Counts perturbed by what their cell key looks up in a perturbation table."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float, Index
from constraint_builders.description.reals import random_generator, real_array, whole_number
from noise_mechanisms.laws.base_law import Seed
from noise_mechanisms.laws.published_counts import PublishedCount, real_figures, whole_counts

_ROUNDING = 1e-6  # of a row's probabilities, which are published with few digits
REPEATED = 250  # rows of a table by record keys that larger counts take in turn, the last of it (ONS, 2023)
MOST_ROWS, MOST_CHANGE = 1_000_000, 10_000
COLUMNS = {"count": ("i", "pcv", "original"), "change": ("v", "pvalue", "diff"), "figure": ("j", "target")}
Row = Mapping[int, float]


class CellKey(PublishedCount):
    """Perturbation by cell key: of every count a row of probabilities of what is added to it.

    The same set of people always gets the same change, so that a figure that stands in several tables was measured
    once. Australia, Germany and the United Kingdom perturb so.

    Parameters
    ----------
    table : sequence of mapping of int to float
        For counts 0, 1, 2 and so on the probability of every change; larger counts take the last row.
    repeated : int
        How many rows at the end larger counts take in turn.

    Raises
    ------
    ValueError
        If probabilities are negative or do not add up to 1, or a change would make a count negative.

    Examples
    --------
    >>> law = CellKey([{0: 1.0}, {-1: 0.5, 1: 0.5}, {-1: 0.25, 0: 0.5, 1: 0.25}])
    >>> law.variance, law.variance_at([0, 1, 9]).tolist(), [own.tolist() for own in law.limits([0, 2, 5])]
    (0.5, [0.0, 1.0, 0.5], [[0.0, 1.0, 4.0], [1.0, 3.0, 6.0]])
    """

    name: ClassVar[str] = "cell_key"

    def __init__(self, table: Sequence[Row], repeated: int = 1) -> None:
        if isinstance(table, str | Mapping) or not all(isinstance(row, Mapping) for row in table):
            raise ValueError("a perturbation table is a list of rows, {change: probability} for every count from 0 on")
        rows = [
            {_whole(change, "a change"): _number(share, "a probability") for change, share in row.items()}
            for row in table
        ]
        if not rows or not all(rows):
            raise ValueError("a perturbation table has a row of changes for every count from 0 on: got an empty one")
        if max(max(map(abs, row)) for row in rows) > MOST_CHANGE:
            raise ValueError(f"a change is larger than {MOST_CHANGE:,}")
        self.smallest = min(min(row) for row in rows)
        self.probabilities = np.zeros((len(rows), max(max(row) for row in rows) - self.smallest + 1))
        for count, row in enumerate(rows):
            for change, share in row.items():
                self.probabilities[count, change - self.smallest] = share
        _refuse_wrong(self.probabilities, self.changes)
        self.probabilities /= self.probabilities.sum(axis=1, keepdims=True)
        self.probabilities.flags.writeable = False
        self.repeated = whole_number(repeated, "repeated", 1)
        if self.repeated > len(rows):
            raise ValueError(f"repeated is {self.repeated}, and there are {len(rows)} rows")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The table of a file, as agencies and their tools publish them.

        Parameters
        ----------
        path : str or Path
            Text with columns of the count (``i`` or ``pcv``) and the change (``v`` or ``pvalue``, or the figure ``j``),
            and the probability ``p``, or a row for every cell key (``ckey``), all as likely; separated by commas,
            semicolons or tabs.

        Returns
        -------
        CellKey

        Raises
        ------
        ValueError
            If a column is missing, a number is none, or a row of some count.
        """
        try:
            return cls._read(Path(path).read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError:
            raise ValueError(f"{path}: a perturbation table is text, of columns such as i, v and p") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def _read(cls, text: str) -> Self:
        """From what such a file holds."""
        reader = csv.DictReader(StringIO(text), delimiter=max(",;\t", key=text.partition("\n")[0].count))
        given = [name.strip().lower() for name in reader.fieldnames or ()]
        reader.fieldnames = given
        found = {what: next((name for name in names if name in given), None) for what, names in COLUMNS.items()}
        by_keys = "ckey" in given
        if found["count"] is None or not (found["change"] or found["figure"]) or not (by_keys or "p" in given):
            raise ValueError(
                f"a perturbation table has columns of the count (i or pcv), of the change (v or pvalue, or of "
                f"the figure, j) and of the probability (p), or a row for every ckey: got {', '.join(given)}"
            )
        rows: dict[int, dict[int, float]] = {}
        for line, own in enumerate(reader, start=2):
            count = _whole(own[found["count"]], f"line {line}: the count")
            if count < 0 or count > MOST_ROWS:
                raise ValueError(f"line {line}: the count is {count}: rows are of counts from 0 to {MOST_ROWS:,}")
            change = _whole(own[found["change"] or found["figure"]], f"line {line}: the change")
            change -= 0 if found["change"] else count
            share = 1.0 if by_keys else _number(own["p"], f"line {line}: the probability")
            row = rows.setdefault(count, {})
            row[change] = row.get(change, 0.0) + share
        if by_keys:
            rows = {count: {change: n / sum(row.values()) for change, n in row.items()} for count, row in rows.items()}
            rows.setdefault(0, {0: 1.0})  # nobody has a key
        missing = next((count for count in range(max(rows, default=0) + 1) if count not in rows), None)
        if missing is not None or not rows:
            raise ValueError(f"no row of the table is for the count {missing or 0}")
        return cls([rows[count] for count in range(len(rows))], REPEATED if by_keys and len(rows) > 2 * REPEATED else 1)

    @property
    def changes(self) -> Float:
        """What may be added, in the order of the columns of `probabilities`."""
        return self.smallest + np.arange(self.probabilities.shape[1], dtype=float)

    @property
    def copies_are_independent(self) -> bool:
        """No: the same people always get the same change."""
        return False

    @property
    def variance(self) -> float:
        """Of large counts, every row that they take being as likely, about their mean."""
        return float(self._of_large @ (self.changes - self.mean) ** 2)

    @property
    def mean(self) -> float:
        """Of the change of large counts."""
        return float(self._of_large @ self.changes)

    @property
    def excess_kurtosis(self) -> float:
        """Of the change of large counts; one by the variance where hardly any is changed."""
        return float(self._of_large @ (self.changes - self.mean) ** 4) / self.variance**2 - 3

    @property
    def agreement(self) -> float:
        """Of people that are not the same, with keys of their own; figures of the same people always agree."""
        return float((self.probabilities[-self.repeated :] ** 2).sum(axis=1).mean())

    @cached_property
    def _of_large(self) -> Float:
        return self.probabilities[-self.repeated :].mean(axis=0)

    def _rows(self, counts: Float) -> Index:
        """The row of every count, (...)."""
        size, counts = len(self.probabilities), np.maximum(counts, 0.0)
        turn = size - self.repeated + np.mod(counts - size, self.repeated)
        return np.where(counts < size, counts, turn).astype(np.intp)

    def log_probability(self, figures: Float, counts: Float) -> Float:
        """Of the change from n to y, (...), in the row of n."""
        change = np.asarray(figures - counts - self.smallest)
        usable = (change >= 0) & (change < self.probabilities.shape[1]) & (change == np.rint(change))
        usable &= (counts >= 0) & (counts == np.rint(counts))
        with np.errstate(divide="ignore"):
            found = np.log(self.probabilities[self._rows(counts), np.where(usable, change, 0).astype(np.intp)])
        return np.where(usable, found, -np.inf)

    def limits(self, figures: ArrayLike) -> tuple[Float, Float]:
        """The least and largest count, (...), among those that a change leads from."""
        values = real_figures(figures)
        counts = values[..., None] - self.changes
        possible = np.isfinite(self.log_probability(values[..., None], counts))
        low = np.where(possible, counts, np.inf).min(axis=-1)
        return low, np.where(possible, counts, -np.inf).max(axis=-1)

    def publish(self, counts: ArrayLike, rng: Seed = None) -> Float:
        """Each count perturbed by a key of its own, as if no two were of the same people."""
        values = whole_counts(counts)
        reached = np.cumsum(self.probabilities, axis=1)[self._rows(values)]
        drawn = random_generator(rng).random(values.shape)[..., None] * reached[..., -1:]
        return values + self.smallest + (drawn >= reached).sum(axis=-1)

    def variance_at(self, counts: ArrayLike) -> Float:
        """Of the row of every count, (...)."""
        means = self.probabilities @ self.changes
        return (self.probabilities @ self.changes**2 - means**2)[self._rows(real_array(counts, "counts"))]

    def _log_probability(self, k: Float) -> Float:
        """Of the changes of large counts, (...)."""
        place = np.clip(k - self.smallest, 0, self._of_large.size - 1).astype(np.intp)
        with np.errstate(divide="ignore"):
            return np.where(k - self.smallest == place, np.log(self._of_large[place]), -np.inf)

    def _drawn(self, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        """Changes of large counts."""
        reached = np.cumsum(self._of_large)
        return self.changes[np.searchsorted(reached / reached[-1], rng.random(shape), side="right")]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CellKey):
            return NotImplemented
        same = self.smallest == other.smallest and self.repeated == other.repeated
        return same and np.array_equal(self.probabilities, other.probabilities)

    def __hash__(self) -> int:
        return hash((self.smallest, self.repeated, self.probabilities.tobytes()))

    def __repr__(self) -> str:
        return f"CellKey({len(self.probabilities):,} rows, changes from {self.smallest} to {int(self.changes[-1])})"


def _refuse_wrong(probabilities: Float, changes: Float) -> None:
    """Refuse what are no probabilities, (rows, changes), and changes that leave less than nobody."""
    sums, counts = probabilities.sum(axis=1), np.arange(len(probabilities))
    wrong = ~((probabilities >= 0).all(axis=1) & (abs(sums - 1) <= _ROUNDING))
    if wrong.any():
        raise ValueError(f"probabilities of the count {counts[wrong][0]} are to add up to 1: got {sums[wrong][0]:g}")
    negative = ((probabilities > 0) & (counts[:, None] + changes < 0)).any(axis=1)
    if negative.any():
        raise ValueError(f"a change of the count {counts[negative][0]} leaves less than 0")


def _whole(value: Any, what: str) -> int:
    number = _number(value, what)
    if number != round(number):
        raise ValueError(f"{what} is to be a whole number: got {value!r}")
    return int(number)


def _number(value: Any, what: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{what} is to be a number: got {value!r}") from None
    if not np.isfinite(found):
        raise ValueError(f"{what} is to be a finite number: got {value!r}")
    return found
