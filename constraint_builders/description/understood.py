"""What was understood of an input that its numbers do not say, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Understood:
    """What whoever reads an input made of it; said beside the equations wherever an estimate is shown.

    Attributes
    ----------
    sources : tuple of str
        Who measured, where several did.
    totals : tuple of str
        Labels that were taken for totals, such as ``"sex 'Total:'"``.
    places : str
        Which geolevels lie in which, and by what that was told.
    notes : tuple of str
        What else was decided, each in a few words, such as ``"3 rows without numbers left out"``.
    """

    sources: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    places: str = ""
    notes: tuple[str, ...] = ()
