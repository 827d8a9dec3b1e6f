"""What was noticed of files that were read, and is no reason to refuse them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NO_DOUBT = ("averaged", "in part")  # what is as it should be, or was asked for


class Remark(NamedTuple):
    """One line.

    Attributes
    ----------
    about, text : str
    """

    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.about:<10} {self.text}"


def doubtful(remarks: Sequence[Remark]) -> str:
    """The first of those that put what was read in doubt, and how many more there are; empty without one."""
    found = [f"{own.about} {own.text}" for own in remarks if own.about not in NO_DOUBT]
    more = f"; and {len(found) - 1:,} more that info says" if len(found) > 1 else ""
    return f"read with remarks: {found[0]}{more}" if found else ""
