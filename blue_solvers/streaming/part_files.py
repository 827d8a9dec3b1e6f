"""Files of the parts of a problem: arrays by name, in an archive of numpy's own format.

::

    <folder>/schema.toml
    <folder>/manifest.json     tables, parts, and the SHA-256 of every file
    <folder>/parts/<part>.npz

An archive has ``geocodes`` (JSON, in bytes), ``level_of`` and ``parent``, the position of every geounit's parent in
the part, geounits being counted through the part's levels from its root down. Of every observed table with geounits
there it has ``values0`` ..., (geounits of its level, cells) in C order, and a number in ``variances``: 0 exact,
infinite where not measured, NaN where geounits differ, whose numbers are ``variances0`` .... Structural zeros are
``empty``, over the variables that tell them apart. Beside them lie, as sparse matrices, its share of the
``combinations`` that are known exactly, if there are any, and the leaves of its ``areas``, (areas, leaves), if they
cross. Whole numbers are kept in as few bytes as hold them, others as float64.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blue_solvers.results.checksums import DamagedError, read_json_object, require_intact, sha256, unsealed
from blue_solvers.streaming.cutting import CutSpine, members_of_parts, shared_out
from blue_solvers.streaming.manifest import (
    FORMAT,
    MANIFEST,
    SCHEMA,
    TOP,
    Manifest,
    PartEntry,
    level_file,
    part_file,
    read_design,
    write_manifest,
)
from blue_solvers.streaming.part_data import Design, Part
from blue_solvers.streaming.subtrees import require_within, table_bytes
from constraint_builders.arrays import Float, Index
from constraint_builders.description.reals import LARGEST_VALUE
from constraint_builders.files import read_schema_file
from constraint_builders.files.new_files import inside, new_folder, replacing

COMBINATIONS, AREAS = "combinations", "areas"  # matrices of a part, fields of `Part`
# what numpy and zipfile raise of bytes that are no archive of arrays, RuntimeError of what is encrypted or compressed
NOT_ARRAYS = (KeyError, IndexError, ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
BUFFERS = 8 << 20  # bytes of files and of blocks of geounits in cache, whatever the size of a part
TOGETHER = 16 << 20  # bytes of parts that are estimated together where areas cross, beside the buffers

Read: TypeAlias = Callable[[str, str, Index], ArrayLike]


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
        if (version := (found := read_json_object(path)).get("format")) != FORMAT:
            raise DamagedError(f"{path} has format {version!r}, not {FORMAT}: write it anew with this version")
        try:
            sealed = unsealed(path, found)
            said = msgspec.convert(sealed, Manifest)
            require_intact(inside(folder, SCHEMA), said.schema)
            design = read_design(sealed, read_schema_file(path.with_name(SCHEMA)).schema)
            said.require_sound(design)
        except DamagedError:
            raise
        except (ValueError, msgspec.ValidationError) as error:
            raise DamagedError(f"{path} is damaged: {error}") from None
        return cls(Path(folder), design, {part.name: part for part in said.parts}, said.top, sha256(path))

    def to_split(self, memory: float) -> set[str]:
        """Parts of a single geounit that need more than a limit; raises `MemoryError` if another part does."""
        split = set()
        for entry in self.parts.values():
            if entry.bytes > memory:
                whole = entry.geounits > 1 or self.design.equal_to
                level = self.design.levels.index(entry.geolevel)
                require_within(memory, entry.bytes if whole else table_bytes(self.design, level) + BUFFERS, str(entry))
                split.add(entry.name)
        return split

    def together(self, memory: float) -> list[tuple[str, ...]]:
        """Parts that are estimated together: each alone in a tree; where areas cross as many as share what each costs.

        How sums round depends on that, so it is the same in any memory that is not very little.
        """
        lots = []
        for _, same in groupby(self.parts.values(), lambda entry: entry.geolevel):
            entries = list(same)
            found = [[i] for i in range(len(entries))]
            if entries[0].leaves and memory >= TOGETHER + BUFFERS:
                needed = np.array([max(1.0, entry.bytes - BUFFERS) for entry in entries])
                found = [lot.tolist() for lot in shared_out(np.arange(needed.size), needed, TOGETHER)]
            lots += [tuple(entries[i].name for i in lot) for lot in found]
        return lots

    def bytes_of(self, names: Sequence[str]) -> int:
        """Memory that both passes over some parts take."""
        return BUFFERS + sum(self.parts[name].bytes - BUFFERS for name in names)

    def read(self, name: str, tables: Sequence[int] | None = None) -> Part:
        """The geounits of a part, with the values of all observed tables, or of chosen ones and zeros for the others.

        Raises
        ------
        DamagedError
            If its file is missing or is not what was written.
        """
        entry = self.top if name == TOP else self.parts[name]
        path = part_file(entry.name)
        if path not in entry.files:
            raise DamagedError(f"{self.folder / path} is missing in the manifest")
        require_intact(inside(self.folder, path), entry.files[path])
        try:
            with open(self.folder / path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                part = self._part(arrays, tables)
        except NOT_ARRAYS as error:
            raise DamagedError(f"{self.folder / path} is not what the manifest says: {error}") from None
        geounits, combined = len(part.geocodes), 0 if part.combinations is None else part.combinations.shape[0]
        if geounits != entry.geounits:
            raise DamagedError(f"{entry} has {geounits:,} geounits, and {entry.geounits:,} by the manifest")
        if (leaves := 0 if part.areas is None else part.areas.shape[1]) != entry.leaves:
            raise DamagedError(f"{entry} has {leaves:,} leaves of areas, and {entry.leaves:,} by the manifest")
        if combined != len(self.design.equal_to):
            raise DamagedError(f"{entry} has {combined} equalities, and {len(self.design.equal_to)} by the manifest")
        return part

    def _part(self, arrays: Mapping[str, NDArray], tables: Sequence[int] | None) -> Part:
        """The part that a file's arrays hold, values (G, cells) of a table, zeros of tables that are not chosen."""
        parent, level_of = (arrays[name].astype(np.intp) for name in ("parent", "level_of"))
        counts, variances, values = np.bincount(level_of, minlength=len(self.design.levels)), [], []
        same = arrays["variances"].astype(np.float64)
        for i, (level, table) in enumerate(self.design.observed):
            known = np.broadcast_to(arrays[f"variances{i}"] if np.isnan(same[i]) else same[i], counts[level])
            zeros = np.broadcast_to(0.0, (known.size, table.size))  # take no memory
            found = arrays[f"values{i}"] if known.size and (tables is None or i in tables) else zeros
            variances.append(known)
            values.append(found.astype(np.float64, copy=False).reshape(zeros.shape))
        geocodes = tuple(json.loads(arrays["geocodes"].tobytes()))
        matrices = {name: _matrix(arrays, name) for name in (COMBINATIONS, AREAS) if f"{name}.data" in arrays}
        if self.design.equal_to and COMBINATIONS not in matrices:
            raise KeyError(f"there are no {COMBINATIONS}")
        return Part(parent, level_of, geocodes, variances, values, arrays["empty"], **matrices)


def _matrix(arrays: Mapping[str, NDArray], name: str) -> sparse.csr_array:
    """The matrix that arrays hold by its data and indices, (entries,) each, indptr, (rows + 1,), and shape."""
    fields = (arrays[f"{name}.{field}"] for field in ("data", "indices", "indptr"))
    return sparse.csr_array(tuple(fields), shape=tuple(arrays[f"{name}.shape"].tolist()))


def _write_arrays(path: Path, arrays: Iterable[tuple[str, NDArray]]) -> None:
    """Write arrays, one after another, as `numpy.load` reads them; always the same bytes of the same arrays."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def write_parts(folder: str | os.PathLike[str], sources: Sources) -> Partitions:
    """Write the parts below the roots of a cut, and the top above them, whole or not at all, in a folder made anew."""
    cut, tree = sources.cut, sources.cut.tree
    sources = replace(sources, design=sources.design.with_levels(tree.levels, cut.level_numbers))
    for level in sources.design.levels:
        level_file(level, TOP)  # refuses what cannot name a file
    *members, top = members_of_parts(tree, cut.roots)
    order = np.lexsort((top, tree.level_of[top]))
    leaves = {geounit: position for position, geounit in enumerate(top[order].tolist())}
    with new_folder(folder) as temporary:
        parts = [
            sources.write(temporary, f"{number:05d}", geounits, geounits, leaves[root])
            for number, (root, geounits) in enumerate(zip(cut.roots.tolist(), members, strict=True))
        ]
        entry = sources.write(temporary, TOP, top, np.setdiff1d(top, cut.roots), -1)
        write_manifest(temporary, sources.design, parts, entry)
    return Partitions.open(folder)


@dataclass(frozen=True)
class Sources:
    """What the files of parts are written from.

    Attributes
    ----------
    design : Design
        Of what was cut.
    cut : CutSpine
    variances : list of ndarray, (geounits of its level,)
        Of every observed table of the design.
    read : callable
        Called with a level, the name of an observed table and the numbers of geounits in that level.
    empty : ndarray of bool, (geounits, cells)
        Structural zeros, of all that the cut has.
    equalities : csr_array, (k, observed cells), optional
        Combinations that are known exactly, over every observed table with all geounits of its level.
    leaves : csr_array, (geounits, leaves), optional
        With which weight every leaf counts in areas that cross inside parts, of all that the cut has.
    """

    design: Design
    cut: CutSpine
    variances: Sequence[Float]
    read: Read
    empty: NDArray[np.bool_]
    equalities: sparse.csr_array = field(default_factory=lambda: sparse.csr_array((0, 0)))
    leaves: sparse.csr_array | None = None

    def write(self, folder: Path, name: str, geounits: Index, own: Index, leaf: int) -> PartEntry:
        """Write one part; `geounits` are positions in the spine, (G,), of which `own`, (k,), are in no other part."""
        tree, geocodes = self.cut.tree, self.cut.geocodes
        ordered = geounits[np.lexsort((geounits, tree.level_of[geounits]))]
        path = folder / part_file(name)
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            _write_arrays(temporary, self._arrays(name, ordered, own))
            digest = sha256(temporary)
        root, needed = int(ordered[0]), self.cut.own[geounits].sum() + BUFFERS
        level_name = tree.levels[tree.level_of[root]]
        leaves = 0 if self.leaves is None or name == TOP else self.leaves[[root]].nnz
        return PartEntry(
            name,
            level_name,
            geocodes[root],
            leaf,
            ordered.size,
            int(needed),
            leaves,
            {part_file(name): digest},
        )

    def _arrays(self, name: str, ordered: Index, own: Index) -> Iterator[tuple[str, NDArray]]:
        """What is kept of a part, of which all geounits, (G,), and those in no other part, (k,), are given."""
        tree = self.cut.tree
        yield "parent", _small(_positions(ordered, np.argsort(ordered), tree.parent[ordered]))
        yield "level_of", _small(tree.level_of[ordered])
        codes = json.dumps([self.cut.geocodes[i] for i in ordered.tolist()])
        yield "geocodes", np.frombuffer(codes.encode(), dtype=np.uint8)
        yield "empty", self.empty[ordered]
        places = [ordered[tree.level_of[ordered] == level] for level, _ in self.design.observed]
        variances = [own[tree.rank_in_level[here]] for own, here in zip(self.variances, places, strict=True)]
        largest = [own.max(initial=0.0) for own in variances]
        same = [top if (own == top).all() else np.nan for own, top in zip(variances, largest, strict=True)]
        yield "variances", np.array(same)
        for i, here in enumerate(places):
            if here.size:
                yield f"values{i}", _small(self._measured(i, here))
            if np.isnan(same[i]):
                yield f"variances{i}", variances[i]
        for what, matrix in self._matrices(name, ordered, own):
            fields = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
            yield from ((f"{what}.{field}", np.asarray(array)) for field, array in fields.items())

    def _matrices(self, name: str, ordered: Index, own: Index) -> Iterator[tuple[str, sparse.csr_array]]:
        """Its share of what is known exactly, (k, cells), and its areas, (G, leaves), of geounits (G,)."""
        if self.design.equal_to:
            yield COMBINATIONS, self._share(self.equalities, ordered, own)
        if self.leaves is not None and name != TOP:
            rows = self.leaves[ordered]
            yield AREAS, rows[:, np.sort(rows[[0]].indices)]

    def _share(self, equalities: sparse.csr_array, ordered: Index, own: Index) -> sparse.csr_array:
        """What combinations take of a part's tables, (k, cells), in geounits that are in no other part."""
        first, columns, counted, tree = 0, [], [], self.cut.tree
        for level, table in self.design.observed:
            here = ordered[tree.level_of[ordered] == level]
            columns.append((first + tree.rank_in_level[here][:, None] * table.size + np.arange(table.size)).ravel())
            counted.append(np.repeat(np.isin(here, own).astype(float), table.size))
            first += tree.members[level].size * table.size
        share = sparse.csr_array(equalities[:, np.concatenate(columns)] @ sparse.diags_array(np.concatenate(counted)))
        share.eliminate_zeros()
        return share

    def _measured(self, number: int, geounits: Index) -> NDArray:
        """Values of a table, (G, cells), int32 where they came so; 0 where nothing was measured."""
        level, table = self.design.observed[number]
        name = self.cut.tree.levels[level]
        ranks = self.cut.tree.rank_in_level[geounits]
        values = np.asarray(self.read(name, table.name, ranks)).reshape(ranks.size, -1)
        if values.dtype != np.int32:
            values = values.astype(np.float64, copy=False)
        unmeasured = np.isinf(self.variances[number][ranks])
        if unmeasured.any():
            values = np.where(unmeasured[:, None], 0, values)
        if values.shape[1] != table.size:
            raise ValueError(f"table {table.name!r} of {name} has {table.size} cells: got {values.shape[1]} a geounit")
        if values.dtype != np.int32 and not (usable := (abs(values) <= LARGEST_VALUE).all(axis=1)).all():
            raise ValueError(
                f"table {table.name!r} of {name} {self.cut.geocodes[geounits[~usable][0]]!r} is not finite, or beyond "
                f"{LARGEST_VALUE:g}: give numbers, or an infinite variance"
            )
        return values


def _positions(ordered: Index, by_number: Index, geounits: Index) -> Index:
    """Place among `ordered`, (G,), of some geounits, (k,), -1 for those that are not there; `by_number` sorts it."""
    found = by_number[np.minimum(np.searchsorted(ordered, geounits, sorter=by_number), ordered.size - 1)]
    return np.where(ordered[found] == geounits, found, -1)


def _small(values: NDArray) -> NDArray:
    """Whole numbers in the type that takes the fewest bytes, in their shape; others as they are."""
    with np.errstate(invalid="ignore"):  # what is too large is not equal
        whole = values.astype(np.int32)
    if not np.array_equal(whole, values):
        return values
    ends = np.min_scalar_type(whole.min(initial=0)), np.min_scalar_type(whole.max(initial=0))
    return whole.astype(np.result_type(*ends))
