"""What the last file of a stored result says, of which kind every part is, and what it says of its own proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, get_type_hints

import msgspec

from blue_solvers.verification import Certificate, FitOfParts
from blue_solvers.verification.fitted_lots import GeounitFit, Residual
from constraint_builders.description.common_schema import CountedParts
from constraint_builders.description.tails import MOST_KURTOSIS
from constraint_builders.files.reading_report import Remark
from constraint_builders.files.tabulated_places import PlacesInPart

ROUNDING = 1e-9
Positive: Any = Annotated[float, msgspec.Meta(ge=0)]
OF_TABLE: Any = msgspec.defstruct(
    "OF_TABLE",
    [
        *[(key, str) for key in ("geolevel", "table")],
        *[(key, Positive) for key in ("statistic", "expectation")],
        *[(key, int) for key in ("checked", "noisy")],
        *[(key, Positive, 0.0) for key in ("heavy", "fixed", "by_steps", "light")],
        ("most", Annotated[float, msgspec.Meta(ge=0, le=1)], 1.0),
    ],
    array_like=True,
)
FIT: Any = msgspec.defstruct(  # as `FitOfParts.to_json` gives it
    "FIT",
    [
        ("tables", list[OF_TABLE]),
        ("largest", list[Residual]),
        ("geounit", GeounitFit | None),
        ("excess", Positive, 0.0),  # of all tables, in fits of former versions
    ],
)
CERTIFICATE: Any = msgspec.defstruct("CERTIFICATE", [*get_type_hints(Certificate).items()], forbid_unknown_fields=True)


@dataclass(frozen=True)
class StoredProof:
    """What is proved of stored estimates, and how the measurements fit; None where nobody asked.

    Attributes
    ----------
    certificate : Certificate or None
    fit : FitOfParts or None
    parts : dict of str to dict
        By part what it adds to the bound, if it was streamed.
    """

    certificate: Certificate | None = None
    fit: FitOfParts | None = None
    parts: Mapping[str, Mapping[str, Any]] | None = None

    def to_json(self) -> dict[str, Any]:
        """As a result keeps it."""
        certificate = None if self.certificate is None else asdict(self.certificate)
        fit = None if self.fit is None else self.fit.to_json()
        return {"certificate": certificate, "fit": fit, "parts": dict(self.parts or {})}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> StoredProof:
        """What `to_json` gave; nothing of an empty mapping.

        Raises
        ------
        ValueError
            If another version said it, whose proofs have other parts, or a fit is none that measurements have.
        """
        try:
            certificate = msgspec.convert(said.get("certificate"), CERTIFICATE | None)
            fit = msgspec.convert(said.get("fit"), FIT | None)
            return cls(
                None if certificate is None else Certificate(**msgspec.structs.asdict(certificate)),
                None if fit is None else _sound(FitOfParts.from_json(msgspec.to_builtins(fit))),
                msgspec.convert(said.get("parts"), dict[str, dict[str, Any]] | None),
            )
        except (msgspec.ValidationError, ValueError) as error:
            raise ValueError(f"its proof is of another version of this package ({error}): estimate again") from None


def _sound(fit: FitOfParts) -> FitOfParts:
    """A fit, if its kurtoses are some."""
    known: list[Any] = [*fit.tables.values(), *fit.largest, *filter(None, [fit.geounit])]
    if not all(0 <= own.excess <= MOST_KURTOSIS * (1 + ROUNDING) for own in known):
        raise ValueError("its kurtoses are none")
    return fit


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
