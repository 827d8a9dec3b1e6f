"""What is proved of a streamed estimate, and how its measurements fit: of each part while it is made, then of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from blue_solvers.results.checksums import DamagedError
from blue_solvers.results.proof import StoredProof
from blue_solvers.streaming.manifest import TOP
from blue_solvers.streaming.part_data import Design, Part
from blue_solvers.streaming.part_files import Partitions
from blue_solvers.streaming.workplace import Workplace
from blue_solvers.verification import Certificate
from blue_solvers.verification.by_sums import sum_up_part
from blue_solvers.verification.certificate import certificate_of
from blue_solvers.verification.certificate_sums import CertificateSums
from blue_solvers.verification.fit_of_parts import FitOfParts
from blue_solvers.verification.holding_tables import finest_tables
from blue_solvers.verification.placed_tables import ChildSummary, Figures, LevelTable, Unread
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders.arrays import Float, Index
from constraint_builders.description.domain import StructuralZeros

Rows = Float | Unread
Claimed: Any = tuple[dict[int, Float], dict[int, Float], Float | None]  # the cells, variances and multipliers of one
PROOFS, CLAIMED = "proofs", "claimed"  # in the folder of work: of every part, and the estimates of the top


@dataclass(frozen=True)
class ResultToProve:
    """What is to be proved of a part.

    Attributes
    ----------
    cells, variances : mapping of int to ndarray, (geounits of its level, cells), or what reads one
        Estimates of all tables, desired or checked, by number in the design; the latter may be empty.
    multipliers : ndarray, (k,), optional
        Of the combinations that are known exactly.
    values : sequence of ndarray, optional
        What was measured, by number of the observed table, where that is not in the part.
    """

    cells: Mapping[int, Rows]
    variances: Mapping[int, Rows]
    multipliers: Float | None = None
    values: Sequence[Rows] | None = None


@dataclass(frozen=True)
class PartProof:
    """What is known of a part once it is estimated.

    Attributes
    ----------
    sums : CertificateSums or None
        None where there is no certificate.
    refusal : str
        Why.
    fit : FitOfParts or None
        None where no variances were wanted.
    below : ChildSummary or None
        What the tree above has to know; None of the top, and of a part that is all of the tree.
    """

    sums: CertificateSums | None
    refusal: str = ""
    fit: FitOfParts | None = None
    below: ChildSummary | None = None

    def __add__(self, other: PartProof) -> PartProof:
        """What is known of this part and of another together, whose root lies above."""
        sums = None if self.sums is None or other.sums is None else self.sums + other.sums
        fit = None if self.fit is None or other.fit is None else self.fit + other.fit
        return PartProof(sums, self.refusal or other.refusal, fit, other.below)


NO_PARTS = PartProof(CertificateSums(), "", FitOfParts())


def prove_part(
    design: Design,
    part: Part,
    claim: ResultToProve,
    summaries: Mapping[int, ChildSummary],
    kept: Index,
    is_top: bool,
) -> PartProof:
    """Sum up a part.

    Parameters
    ----------
    design : Design
    part : Part
    claim : ResultToProve
    summaries : mapping of int to ChildSummary
        What parts that were cut off told, by the positions of their roots.
    kept : ndarray of int, (k,)
        Positions of the geounits that are this part's own.
    is_top : bool
        Whether there is nothing above it.
    """
    fit = _fit(design, part, claim, kept) if claim.variances else None
    if part.areas is not None:
        return PartProof(None, "areas cross inside parts, where no sums over a tree prove anything", fit)
    is_all = part.level_of[0] == 0 and 0 in kept  # it has the root of the tree: nothing is above it
    try:
        sums, below = _summed_up(design, part, claim, summaries, is_top or is_all)
    except NotCertifiedError as refusal:
        return PartProof(None, str(refusal), fit)
    return PartProof(sums, "", fit, below)


def _summed_up(
    design: Design, part: Part, claim: ResultToProve, summaries: Mapping[int, ChildSummary], is_top: bool
) -> tuple[CertificateSums, ChildSummary | None]:
    levels = len(design.levels)
    finest = finest_tables(design.schema, levels, design.observed, design.estimated)
    if finest is None:
        raise NotCertifiedError(f"no measured table at {design.levels[-1]} holds all others")
    claimed = {own: claim.cells[i] for i, own in enumerate(design.estimated) if i in claim.cells}
    level_tables, tables, end = list[LevelTable](), dict[str, tuple[Rows, Rows]](), 0
    values = claim.values or part.values
    for i, (level, table) in enumerate(design.observed):
        if not part.count(level):
            continue
        x = claimed.pop((level, table), None)
        if x is None:
            raise NotCertifiedError(f"table {table.name!r} at {design.levels[level]} is not determined everywhere")
        end += part.values[i].size
        place = slice(end - part.values[i].size, end)
        placed = LevelTable(design.key((level, table)), level, table, part.variances[i][:, None], place=place)
        level_tables.append(placed)
        tables[placed.key] = x, values[i]
    for (level, table), x in claimed.items():
        placed = replace(LevelTable.unmeasured(level, table, part.count(level)), key=design.key((level, table)))
        level_tables.append(placed)
        tables[placed.key] = x, x
    known, zeros = None, None
    if claim.multipliers is not None and part.combinations is not None:
        known = part.combinations, claim.multipliers
    if design.zero_axes or part.empty.any():
        zeros = StructuralZeros.of(design.schema, design.zero_axes, design.empty_cells(part.empty).empty)
    tree = part.parent, part.level_of
    figures = Figures(tables)
    return sum_up_part(
        design.schema, design.levels, finest, *tree, level_tables, figures, zeros, summaries, is_top, known
    )


def _fit(design: Design, part: Part, claim: ResultToProve, kept: Index) -> FitOfParts:
    """How measurements fit in the geounits that are the part's own, by their positions, (k,)."""
    values, fit = claim.values or part.values, FitOfParts()
    numbers = {own: i for i, own in enumerate(design.estimated)}

    def read(i: int, j: int, rows: Index, here: slice) -> tuple[Float, Float, Float, Float]:
        """Values, estimates, variances of noise and of estimates, (rows, ...) each, of a slice of the rows, (k,)."""
        own = rows[here]
        return values[i][own], claim.cells[j][own], part.variances[i][:, None][own], claim.variances[j][own]

    for number, level in enumerate(design.levels):
        members = part.members(number)
        rows = kept[(kept >= members.start) & (kept < members.stop)] - members.start
        observed = [(i, numbers.get(own, -1), own[1]) for i, own in enumerate(design.observed) if own[0] == number]
        tables = [(i, table, partial(read, i, j, rows)) for i, j, table in observed if j in claim.cells]
        fit.look_at(level, [part.geocodes[members.start + row] for row in rows.tolist()], tables, design.tails)
    return fit


def proof_of_run(parts: Partitions, place: Workplace) -> StoredProof:
    """What is proved of all parts together, and how the measurements fit, from what a run kept of every part.

    Raises
    ------
    DamagedError
        If what a part said of it is damaged.
    """
    claimed = place.kept(CLAIMED, Claimed)
    kept = {name: place.kept(f"{PROOFS}/{name}", PartProof) for name in parts.parts}
    proofs = {name: own for name, own in kept.items() if own is not None and claimed is not None}
    lost = [name for name in kept if name not in proofs]
    if claimed is None or lost:
        raise DamagedError(f"{place.work / PROOFS / lost[0]} or {CLAIMED} is damaged: run again")
    return proof_of_all(parts, proofs, ResultToProve(*claimed))


def proof_of_all(parts: Partitions, proofs: dict[str, PartProof], claimed: ResultToProve) -> StoredProof:
    """Put all parts together with the top, of which that is `claimed`."""
    design, top = parts.design, parts.read(TOP)
    kept = np.setdiff1d(np.arange(top.level_of.size), [entry.leaf for entry in parts.parts.values()])
    is_refused = any(own.refusal for own in proofs.values())
    if is_refused or (not kept.size and all(own.below is None for own in proofs.values())):
        fit = _fit(design, top, claimed, kept) if claimed.variances else None
        last = PartProof(None if is_refused else CertificateSums(), fit=fit)  # of the top nothing is proved, or is left
    else:
        summaries = {parts.parts[name].leaf: own.below for name, own in proofs.items() if own.below is not None}
        last = prove_part(design, top, claimed, summaries, kept, is_top=True)
    named = {name: str(entry) for name, entry in parts.parts.items()}
    return put_together(design, {**{name: proofs[name] for name in parts.parts}, TOP: last}, named)


def put_together(
    design: Design, proofs: Mapping[str, PartProof], named: Mapping[str, str] = MappingProxyType({})
) -> StoredProof:
    """What all parts say together, the top of the tree among them; in their order, on which sums depend.

    Where there is no certificate it says which parts, called as in `named`, have none for that reason by themselves.
    """
    known = sum(proofs.values(), NO_PARTS)
    said = {name: _said(own) for name, own in proofs.items()}
    tables = {design.key(own): own for own in design.estimated}
    certificate = Certificate(None, known.refusal)
    if known.sums is not None:
        certificate = certificate_of(known.sums, design.schema, tables, design.combinations)
    if certificate.bound is None:
        alone = {
            name: own.refusal if own.sums is None else certificate_of(own.sums, design.schema, tables).reason
            for name, own in proofs.items()
        }
        guilty = [name for name, reason in alone.items() if reason == certificate.reason]
        certificate = replace(certificate, reason=f"{_called(guilty, named)}{certificate.reason}")
    return StoredProof(certificate, known.fit, said)


def _called(parts: Sequence[str], named: Mapping[str, str]) -> str:
    """Parts as the beginning of a sentence about them; nothing of none."""
    if not parts:
        return ""
    first = "the top of the tree" if parts[0] == TOP else named.get(parts[0], f"part {parts[0]}")
    return f"{first}{f' and {len(parts) - 1:,} more' if len(parts) > 1 else ''}: "


def _said(proof: PartProof) -> dict[str, Any]:
    if proof.sums is None:
        return {"refusal": proof.refusal} if proof.refusal else {}
    return {"left": float(np.sqrt(proof.sums.left)), "violation": proof.sums.violation, "cells": proof.sums.cells}
