"""What the last file of a stored result says, of which kind every part is."""

from __future__ import annotations

from typing import Any

import msgspec


class _InPart(msgspec.Struct):
    """As `PlacesInPart.to_json` gives it."""

    cut: dict[str, str] = {}
    absent: list[str] = []


class _Read(msgspec.Struct):
    """Of what `ReadingReport.to_json` gives that which questions are answered from."""

    in_part: _InPart = msgspec.field(default_factory=_InPart)
    remarks: list[tuple[str, str]] = []


class _OtherProduct(msgspec.Struct):
    """What is said of a product of a joint result at whose geolevels nothing is stored."""

    name: str
    settings: str
    zeros: list[str]
    read: _Read


class _CountedParts(msgspec.Struct):
    """As `CountedParts.to_json` gives it."""

    only: dict[str, dict[str, list[str]]] = {}
    beside: dict[str, dict[str, list[str]]] = {}
    own: list[str] = []


class _Products(msgspec.Struct):
    """What is said of the products of a joint result."""

    name: str
    order: list[str]
    recodes: dict[str, str]
    others: list[_OtherProduct]
    parts: _CountedParts | None = None


class Description(msgspec.Struct):
    """What the last file says; what else is there is left alone."""

    settings: str
    noise: str
    solver: str
    exact: bool
    reason: str
    zeros: list[str]
    tables: dict[str, list[str]]
    files: dict[str, str]
    read: _Read = msgspec.field(default_factory=_Read)
    proof: dict[str, Any] = {}
    joined: _Products | None = None
