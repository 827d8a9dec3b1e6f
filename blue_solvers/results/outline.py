"""What the last file of a stored result says, of which kind every part is."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import msgspec

from constraint_builders.description.common_schema import CountedParts
from constraint_builders.files.reading_report import Remark
from constraint_builders.files.tabulated_places import PlacesInPart


class StoredReading(msgspec.Struct):
    """Of what `ReadingReport.to_json` gives that which questions are answered from."""

    in_part: PlacesInPart = msgspec.field(default_factory=PlacesInPart)
    remarks: list[Remark] = []


class _OtherProduct(msgspec.Struct):
    """What is said of a product of a joint result at whose geolevels nothing is stored."""

    name: str
    settings: str
    zeros: list[str]
    read: StoredReading


class _Products(msgspec.Struct):
    """What is said of the products of a joint result."""

    name: str
    order: list[str]
    recodes: dict[str, str]
    others: list[_OtherProduct]
    parts: CountedParts = msgspec.field(default_factory=CountedParts)


class Description(msgspec.Struct):
    """What the last file of a result says; what else is there is left alone."""

    settings: str
    noise: str
    solver: str
    exact: bool
    reason: str
    zeros: list[str]
    tables: dict[str, list[str]]
    files: dict[str, str]
    read: StoredReading = msgspec.field(default_factory=StoredReading)
    proof: dict[str, Any] = {}
    joined: _Products | None = None

    @property
    def in_part(self) -> PlacesInPart:
        """The published places of which a product does not hold all."""
        return reduce(or_, (read.in_part for read in self._readings))

    @property
    def remarks(self) -> list[Remark]:
        """What was noticed of the files that it was estimated from, product by product."""
        return [remark for read in self._readings for remark in read.remarks]

    @property
    def _readings(self) -> list[StoredReading]:
        return [self.read, *(own.read for own in (self.joined.others if self.joined else ()))]

    def files_of(self, whole: str) -> list[str]:
        """The files of a part that is a file or a folder of such."""
        return [name for name in self.files if name == whole or name.startswith(f"{whole}/")]
