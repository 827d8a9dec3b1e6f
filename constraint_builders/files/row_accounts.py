"""Every row of measurement files accounted for: what was read was used, or was not, for a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Unused(NamedTuple):
    """Rows that the estimate does not use.

    Attributes
    ----------
    geolevel : str
    name : str
        The query's or constraint's name in the file; ``*`` for rows of all names.
    rows : int
    reason : str
    """

    geolevel: str
    name: str
    rows: int
    reason: str


class RowCount(NamedTuple):
    """What became of the rows of one kind at one geolevel: `read` is `used` and `unused` together.

    Attributes
    ----------
    geolevel : str
    kind : str
        ``DPQuery`` or ``Constraint``.
    read, used, unused : int
    """

    geolevel: str
    kind: str
    read: int
    used: int
    unused: int


@dataclass
class RowAccounts:
    """Counts rows that were read, used, and not used, by what they are and why."""

    _read: Counter[tuple[str, str]] = field(default_factory=Counter)
    _used: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _unused: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)

    def saw(self, geolevel: str, kind: str, rows: int) -> None:
        """Count rows that were read."""
        self._read[geolevel, kind] += rows

    def use(self, geolevel: str, kind: str, name: str, rows: int) -> None:
        """Count rows that the estimate uses."""
        self._used[geolevel, kind, name] += rows

    def leave(self, geolevel: str, kind: str, name: str, reason: str, rows: int) -> None:
        """Count rows that it does not use."""
        if rows:
            self._unused[geolevel, kind, name, reason] += rows

    def replace(self, geolevel: str, kind: str, name: str, reason: str, rows: int) -> None:
        """Count rows as not used that were counted as used before."""
        self.use(geolevel, kind, name, -rows)
        self.leave(geolevel, kind, name, reason, rows)

    def take_over(self, other: RowAccounts, reason: str) -> None:
        """Count rows as others do that read the same files, where here they are not used for a reason."""
        for (level, kind, name), rows in other._used.items():
            self._move(level, kind, name, reason, rows)
            self.use(level, kind, name, rows)
        for (level, kind, name, why), rows in other._unused.items():
            if why != reason and self._unused[level, kind, name, reason]:
                self._move(level, kind, name, reason, rows)
                self.leave(level, kind, name, why, rows)

    def _move(self, level: str, kind: str, name: str, reason: str, rows: int) -> None:
        self._unused[level, kind, name, reason] -= rows
        if not self._unused[level, kind, name, reason]:
            del self._unused[level, kind, name, reason]

    def unused(self) -> tuple[Unused, ...]:
        """All rows that are not used, in order of first appearance."""
        return tuple(Unused(level, name, rows, reason) for (level, _, name, reason), rows in self._unused.items())

    def totals(self) -> tuple[RowCount, ...]:
        """By geolevel and kind, in order of reading.

        Raises
        ------
        RuntimeError
            If a row is not accounted for: a defect of the reader.
        """
        left, used = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for (level, kind, _), rows in self._used.items():
            used[level, kind] += rows
        for (level, kind, _, _), rows in self._unused.items():
            left[level, kind] += rows
        found = [RowCount(*key, read, used[key], left[key]) for key, read in self._read.items()]
        wrong = [own for own in found if own.read != own.used + own.unused]
        if wrong:
            raise RuntimeError(f"rows are not accounted for: {wrong[0]}")
        return tuple(found)
