"""Parquet files of the parts of a problem; needs the extra ``frames``.

::

    <folder>/schema.toml
    <folder>/manifest.json                   tables, parts, and the SHA-256 of every file
    <folder>/<Geolevel>.parquet/<part>.parquet
    <folder>/equalities/<part>.npz           its share of linear combinations that are known exactly, if there are any
    <folder>/areas/<part>.npz                the leaves of its areas, (areas, leaves), if they cross

One row is one geounit. Column ``geocode`` names it and ``parent`` gives its parent's position within the part, geounits
being counted through the part's levels from its root down. Every observed table has a column of fixed-size lists, cells
in C order as int32 or float64, and one of variances, ``<table>:variance`` (0 exact, infinite where not measured).
Structural zeros are in column ``*:empty``, over the variables that tell them apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.results.checksums import (
    DamagedError,
    read_json_object,
    read_sealed_json,
    require_intact,
    sha256,
)
from blue_solvers.streaming.manifest import (
    FORMAT,
    MANIFEST,
    SCHEMA,
    TOP,
    Manifest,
    PartEntry,
    areas_file,
    combinations_file,
    level_file,
    read_design,
)
from blue_solvers.streaming.part_data import Design, Part
from constraint_builders.arrays import Float
from constraint_builders.files import read_schema_file
from constraint_builders.files.parquet import read_parquet, write_parquet
from constraint_builders.files.replacing import replacing
from constraint_builders.files.safe_paths import inside

EMPTY = "*:empty"
BUFFERS = 8 << 20  # bytes of Parquet and of blocks of geounits in cache, whatever the size of a part


class PartitionError(ValueError):
    """Some parts cannot be read; the message names each.

    Attributes
    ----------
    parts : dict of str to str
        For each of these parts what is wrong.
    """

    def __init__(self, message: str, parts: Mapping[str, str]) -> None:
        super().__init__(message, dict(parts))
        self.parts = dict(parts)

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Partitions:
    """A folder of parts.

    Attributes
    ----------
    folder : Path
    design : Design
    parts : dict of str to PartEntry
        The subtrees by name, in order.
    top : PartEntry
        The geounits above the subtrees, and the subtrees' roots.
    digest : str
        SHA-256 of the manifest: tells one input from another.
    """

    folder: Path
    design: Design
    parts: dict[str, PartEntry]
    top: PartEntry
    digest: str

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Partitions:
        """Read the manifest.

        Raises
        ------
        DamagedError
            If it is missing or cannot be understood.
        """
        path = inside(folder, MANIFEST)
        if not path.is_file():
            raise DamagedError(f"{path} is missing: give a folder that `partition` wrote")
        if (version := read_json_object(path).get("format")) != FORMAT:
            raise DamagedError(f"{path} has format {version!r}, not {FORMAT}: write it anew with this version")
        try:
            sealed = read_sealed_json(path)
            said = msgspec.convert(sealed, Manifest)
            require_intact(inside(folder, SCHEMA), said.schema)
            design = read_design(sealed, read_schema_file(path.with_name(SCHEMA)).schema)
            said.require_sound(design)
        except DamagedError:
            raise
        except (ValueError, msgspec.ValidationError) as error:
            raise DamagedError(f"{path} is damaged: {error}") from None
        return cls(Path(folder), design, {part.name: part for part in said.parts}, said.top, sha256(path))

    def read(self, name: str, tables: Sequence[int] | None = None) -> Part:
        """The geounits of a part, with the values of all observed tables, or of chosen ones and zeros for the others.

        Raises
        ------
        DamagedError
            If a file is missing or is not what was written.
        """
        entry = self.top if name == TOP else self.parts[name]
        chosen = range(len(self.design.observed)) if tables is None else tables
        parents, levels, geocodes = [], [], []
        frames: dict[int, pl.DataFrame] = {}
        for number, level in enumerate(self.design.levels):
            path = level_file(level, entry.name)
            if path in entry.files:
                require_intact(inside(self.folder, path), entry.files[path])
                own = [(i, table.name) for i, (where, table) in enumerate(self.design.observed) if where == number]
                columns = ["geocode", "parent", *(variance_column(table) for _, table in own)]
                columns += [table for i, table in own if i in chosen]
                columns += [] if self.design.zero_axes is None else [EMPTY]
                try:
                    frames[number] = read_parquet(self.folder / path, columns)
                except pl.exceptions.PolarsError as error:
                    raise DamagedError(f"{self.folder / path} is not what the manifest says: {error}") from None
                parents.append(frames[number]["parent"].to_numpy())
                levels.append(np.full(frames[number].height, number))
                geocodes += frames[number]["geocode"].to_list()
        if len(geocodes) != entry.geounits:
            raise DamagedError(f"{entry} has {len(geocodes):,} geounits, and {entry.geounits:,} by the manifest")
        variances, values = self._tables(frames)
        return Part(
            np.concatenate(parents),
            np.concatenate(levels),
            tuple(geocodes),
            variances,
            values,
            self._empty(frames),
            self._combinations(entry),
            self._areas(entry),
        )

    def _combinations(self, entry: PartEntry) -> sparse.csr_array | None:
        if not self.design.equal_to:
            return None
        found = self._matrix(entry, combinations_file(entry.name))
        if found.shape[0] != len(self.design.equal_to):
            said = len(self.design.equal_to)
            raise DamagedError(f"{entry} has {found.shape[0]} equalities, and {said} by the manifest")
        return found

    def _areas(self, entry: PartEntry) -> sparse.csr_array | None:
        name = areas_file(entry.name)
        return self._matrix(entry, name) if name in entry.files else None

    def _matrix(self, entry: PartEntry, name: str) -> sparse.csr_array:
        if name not in entry.files:
            raise DamagedError(f"{self.folder / name} is missing in the manifest")
        require_intact(inside(self.folder, name), entry.files[name])
        return sparse.csr_array(sparse.load_npz(self.folder / name))

    def _empty(self, frames: Mapping[int, pl.DataFrame]) -> NDArray[np.bool_] | None:
        if self.design.zero_axes is None:
            return None
        return np.concatenate([frame[EMPTY].rechunk().to_numpy().astype(bool) for frame in frames.values()])

    def _tables(self, frames: Mapping[int, pl.DataFrame]) -> tuple[list[Float], list[Float]]:
        variances, values = [], []
        for level, table in self.design.observed:
            frame = frames.get(level, pl.DataFrame())
            known = frame[variance_column(table.name)].to_numpy() if frame.height else np.zeros(0)
            variances.append(known)
            found = frame[table.name].rechunk().to_numpy() if table.name in frame.columns else _zeros(known, table.size)
            values.append(found.astype(np.float64, copy=False).reshape(known.size, table.size))
        return variances, values


def _zeros(rows: Float, size: int) -> Float:
    """Zeros that take no memory, (rows, size)."""
    return np.broadcast_to(0.0, (rows.size, size))


def variance_column(table: str) -> str:
    """Name of the column of a table's variances."""
    return f"{table}:variance"


def require_file_names(design: Design) -> None:
    """Raise `ValueError` if the name of a level or a table cannot be that of a file or a column."""
    for name in design.levels:
        level_file(name, TOP)
    for level, table in (*design.observed, *design.desired):
        tables = [own.name for where, own in (*design.observed, *design.desired) if where == level]
        if table.name in ("geocode", "parent") or variance_column(table.name) in tables:
            raise ValueError(f"table {table.name!r} has the name of another column of its file: rename its variable")


def write_matrix(path: Path, matrix: sparse.csr_array) -> str:
    """Write the combinations that are known exactly, or the areas, of a part, whole or not; gives its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        sparse.save_npz(file, matrix, compressed=False)
        file.flush()
        digest = sha256(temporary)
    return digest


def write_level(path: Path, geocodes: Iterable[str], columns: Mapping[str, NDArray]) -> str:
    """Write one level of a part, whole or not at all; arrays (rows,) or (rows, cells).

    Returns
    -------
    str
        SHA-256 of the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    series = [pl.Series("geocode", list(geocodes), dtype=pl.String)]
    for name, array in columns.items():
        flat = pl.Series(name, np.ascontiguousarray(array).ravel())
        series.append(flat if array.ndim == 1 else flat.reshape(array.shape))
    with replacing(path) as temporary:
        write_parquet(pl.DataFrame(series), temporary, compression="lz4", statistics=False)
        digest = sha256(temporary)
    return digest
