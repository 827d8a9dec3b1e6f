"""Every row of measurement files accounted for: what was read was used, or was not, for a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

USED = ""  # in place of a reason


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
    _rows: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)  # the reason last, or `USED`

    def saw(self, geolevel: str, kind: str, rows: int) -> None:
        """Count rows that were read."""
        self._read[geolevel, kind] += rows

    def use(self, geolevel: str, kind: str, name: str, rows: int) -> None:
        """Count rows that the estimate uses."""
        self.leave(geolevel, kind, name, USED, rows)

    def leave(self, geolevel: str, kind: str, name: str, reason: str, rows: int) -> None:
        """Count rows that it does not use."""
        if rows:
            self._rows[geolevel, kind, name, reason] += rows

    def replace(self, geolevel: str, kind: str, name: str, reason: str, rows: int, before: str = USED) -> None:
        """Count rows as not used for a reason that were counted as used, or as not used for another, before."""
        self.leave(geolevel, kind, name, before, -rows)
        self.leave(geolevel, kind, name, reason, rows)

    def take_over(self, other: RowAccounts, reason: str) -> None:
        """Count rows as others do that read the same files, where here they are not used for a reason."""
        for (level, kind, name, why), rows in other._rows.items():
            if why == USED or (why != reason and self._rows[level, kind, name, reason]):
                self.replace(level, kind, name, why, rows, before=reason)

    def unused(self) -> tuple[Unused, ...]:
        """All rows that are not used, in order of first appearance."""
        return tuple(
            Unused(level, name, rows, reason)
            for (level, _, name, reason), rows in self._rows.items()
            if rows and reason != USED
        )

    def totals(self) -> tuple[RowCount, ...]:
        """By geolevel and kind, in order of reading.

        Raises
        ------
        RuntimeError
            If a row is not accounted for: a defect of the reader.
        """
        counts = {key: [0, 0] for key in self._read}
        for (level, kind, _, reason), rows in self._rows.items():
            counts[level, kind][reason != USED] += rows
        found = [RowCount(*key, self._read[key], *own) for key, own in counts.items()]
        wrong = [own for own in found if own.read != own.used + own.unused]
        if wrong:
            raise RuntimeError(f"rows are not accounted for: {wrong[0]}")
        return tuple(found)
