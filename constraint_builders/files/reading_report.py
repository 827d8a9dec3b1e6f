"""What was read of a folder of measurements, and what became of it: printed, and stored with the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from constraint_builders.files.facility_bounds import ImpliedTotal
from constraint_builders.files.remarks import Remark
from constraint_builders.files.row_accounts import RowCount, Unused
from constraint_builders.files.tabulated_places import PlacesInPart


@dataclass(frozen=True)
class ReadingReport:
    """What became of every row, and what bounds say.

    Attributes
    ----------
    rows : tuple of RowCount
        By geolevel and kind: used and unused together are those that were read.
    unused : tuple of Unused
        Rows that are not used, by name, with the reason.
    facilities : mapping of str to int
        Exact numbers of facilities by type, and of housing units, of all geounits of the lowest geolevel that has them.
    implied : tuple of ImpliedTotal
        Totals of persons that follow from bounds, beside what else is known of them: a test of the bounds, never used.
    summed_out : tuple of str
        Variables over which tables were summed when they were read.
    is_lossless : bool
        Whether the sums lose nothing for the tables of the others.
    in_part : PlacesInPart
        The published places that are not held whole.
    remarks : tuple of Remark
        What is missing of the files, and what in them does not agree.
    """

    rows: tuple[RowCount, ...]
    unused: tuple[Unused, ...]
    facilities: Mapping[str, int]
    implied: tuple[ImpliedTotal, ...]
    summed_out: tuple[str, ...] = ()
    is_lossless: bool = True
    in_part: PlacesInPart = field(default_factory=PlacesInPart)
    remarks: tuple[Remark, ...] = ()

    def implied_lines(self) -> Iterator[str]:
        """What the test of implied totals gave, one line a geolevel; those that disagree are remarks."""
        for level in dict.fromkeys(own.geolevel for own in self.implied):
            here = [own for own in self.implied if own.geolevel == level]
            tested = [own for own in here if own.agrees is not None]
            agreeing = sum(own.agrees is True for own in tested)
            total = sum(own.implied for own in here)
            yield (
                f"{level}: bounds imply totals of {len(here):,} geounits, {total:,} together; of {len(tested):,} whose "
                f"total is known or was measured {agreeing:,} agree"
            )

    def to_json(self) -> dict[str, Any]:
        """For a file; `of_json` reads it."""
        said: dict[str, Any] = msgspec.to_builtins(self)
        return said

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> ReadingReport:
        """What `to_json` gave."""
        return msgspec.convert(said, cls)
