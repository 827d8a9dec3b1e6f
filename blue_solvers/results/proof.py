"""What a stored result says of its own proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

import msgspec

from blue_solvers.verification import Certificate, FitOfParts
from blue_solvers.verification.fit_of_parts import GeounitFit, Residual, TableFit

OF_TABLE: Any = tuple.__class_getitem__((str, str, *get_type_hints(TableFit).values()))
FIT: Any = msgspec.defstruct(  # as `FitOfParts.to_json` gives it
    "FIT", [("tables", list[OF_TABLE]), ("largest", list[Residual]), ("geounit", GeounitFit | None)]
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
            If another version said it, whose proofs have other parts.
        """
        try:
            certificate = msgspec.convert(said.get("certificate"), CERTIFICATE | None)
            fit = msgspec.convert(said.get("fit"), FIT | None)
            return cls(
                None if certificate is None else Certificate(**msgspec.structs.asdict(certificate)),
                None if fit is None else FitOfParts.from_json(msgspec.to_builtins(fit)),
                msgspec.convert(said.get("parts"), dict[str, dict[str, Any]] | None),
            )
        except msgspec.ValidationError as error:
            raise ValueError(f"its proof is of another version of this package ({error}): estimate again") from None
