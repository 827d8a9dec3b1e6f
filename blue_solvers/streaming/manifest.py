"""What ``manifest.json`` says of the parts of a problem: the design that they share, and the files of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from blue_solvers.results.checksums import seal_json, sha256
from blue_solvers.streaming.part_data import Design
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import parse_table
from constraint_builders.description.tails import MOST_KURTOSIS
from constraint_builders.files import write_schema_file
from constraint_builders.files.new_files import path_component, replacing

MANIFEST, SCHEMA = "manifest.json", "schema.toml"
TOP = "top"
FORMAT = 15  # of descriptions and messages


@dataclass(frozen=True)
class PartEntry:
    """What the manifest says of a part.

    Attributes
    ----------
    name : str
    geolevel, geocode : str
        Of its root.
    leaf : int
        Position of its root in the part above all others, `TOP`; -1 for that part itself.
    geounits : int
    bytes : int
        Memory that its two passes take.
    leaves : int
        Of its areas, where these cross; 0 of a tree.
    files : dict of str to str
        SHA-256 by path within the folder.
    """

    name: str
    geolevel: str
    geocode: str
    leaf: int
    geounits: int
    bytes: int
    leaves: int = 0
    files: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"part {self.name} ({self.geolevel} {self.geocode!r})"


class Manifest(msgspec.Struct):
    """What `write_manifest` writes beside the fields of a design: SHA-256 of its schema, and the parts."""

    schema: str
    parts: tuple[PartEntry, ...]
    top: PartEntry

    def require_sound(self, design: Design) -> None:
        """Raise `ValueError` where parts of it contradict one another."""
        levels, axes, tails = range(len(design.levels)), range(len(design.schema.shape)), design.tails
        kinds = {kind for kind in design.zero_kinds if kind >= 0}
        zero_axes = {*design.zero_axes}
        size = prod(design.schema.shape[axis] for axis in zero_axes if axis in axes)
        places = [part.leaf for part in self.parts]
        known = [own for own in (*design.observed, *design.estimated) if own[0] in levels]
        keys = {design.key(own) for own in known}
        for what, sound in (
            ("levels", design.levels and len({*design.levels}) == len(levels) and {*design.put_in} <= {*levels}),
            ("tables", all(level in levels for level, _ in (*design.observed, *design.estimated))),
            ("tables", all(own == parse_table(design.schema, own.name) for _, own in design.observed)),
            ("tables", all(own == parse_table(design.schema, own.name) for _, own in design.estimated)),
            ("observed tables", _are_different(design.observed) and _are_different(design.estimated)),
            ("variables of structural zeros", _are_different(design.zero_axes) and zero_axes <= {*axes}),
            ("kinds of structural zeros", len(design.zero_kinds) == size > 0),
            ("kinds of structural zeros", kinds == {*range(len(kinds))} and min(design.zero_kinds) >= -1),
            ("tails", tails.step >= 0 and all(0 <= own <= MOST_KURTOSIS for own in tails.excess)),
            ("tails", len(tails.excess) in (0, len(design.observed)) and 0 <= tails.by_proxy <= 1),
            ("exact combinations", design.combinations is None or design.combinations.are_sound(design.equal_to)),
            ("exact combinations", design.combinations is None or keys <= design.combinations.moved.keys()),
            ("parts", _are_different([part.name for part in (*self.parts, self.top)]) and self.top.name == TOP),
            ("places of parts", _are_different(places) and {*places} <= {*range(self.top.geounits)}),
            ("sizes of parts", all(part.geounits > 0 and part.bytes > 0 for part in (*self.parts, self.top))),
        ):
            if not sound:
                raise ValueError(f"its {what} are none")
        for level in design.levels:
            level_file(level, TOP)
        for part in (*self.parts, self.top):
            strange = part.files.keys() - {part_file(part.name)}
            if strange:
                raise ValueError(f"{part} has the strange file {min(strange)!r}")


def _are_different(things: Collection[Any]) -> bool:
    return len({*things}) == len(things)


def write_manifest(folder: Path, design: Design, parts: Sequence[PartEntry], top: PartEntry) -> None:
    """Write the manifest of parts whose files are written."""
    write_schema_file(folder / SCHEMA, design.schema)
    digest = sha256(folder / SCHEMA)
    shared = msgspec.to_builtins(design, enc_hook=lambda own: digest if isinstance(own, Schema) else own.name)
    said = {"format": FORMAT, **shared, "parts": [asdict(part) for part in parts], "top": asdict(top)}
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(seal_json(said), encoding="utf-8")


def read_design(said: Mapping[str, Any], schema: Schema) -> Design:
    """The design of which `write_manifest` wrote that."""
    return msgspec.convert(
        said, Design, dec_hook=lambda kind, own: schema if kind is Schema else parse_table(schema, own)
    )


def level_file(geolevel: str, part: str) -> str:
    """Path of a part's estimates of a level, within their folder; `ValueError` if a name cannot be that of a file."""
    return f"{path_component(geolevel, 'geolevel')}.parquet/{path_component(part, 'part')}.parquet"


def part_file(part: str) -> str:
    """Path of a part within the folder of parts; `ValueError` if its name cannot be that of a file."""
    return f"parts/{path_component(part, 'part')}.npz"
