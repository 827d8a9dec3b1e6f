"""The two passes over more than fits in memory: by subtree, from Parquet to Parquet; needs the extra ``frames``.

A problem is cut into parts: subtrees, and the top of the tree above them. Going up, every part tells in a small message
what it knows of its root. The top is solved in memory. Going down, every part is read again and writes its estimates.
Whatever is done is on disk, whole or not at all and with a checksum: a run that was killed goes on where it was, and
gives the same bytes.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blue_solvers.components.messages import Message
from blue_solvers.components.subtrees import (
    Design,
    Downward,
    Estimates,
    Index,
    Part,
    SubtreeForm,
    Upward,
    part_bytes,
)
from blue_solvers.partition_files import (
    EMPTY,
    TOP,
    DamagedError,
    PartEntry,
    PartitionError,
    Partitions,
    read_sealed,
    require_intact,
    variance_column,
    write_level,
    write_manifest,
    write_sealed,
)
from blue_solvers.solver import Float, UnsupportedProblemError
from blue_solvers.solvers import TwoPass
from constraint_builders import Problem, Schema, Spine
from constraint_builders.files.new_folder import new_folder
from constraint_builders.files.replacing import replacing
from constraint_builders.memory import format_bytes
from constraint_builders.spine_constraints import SpineConsistency
from constraint_builders.spine_tables import undetermined
from constraint_builders.table import parse_table

Progress: TypeAlias = Callable[[str, int, int], None]
Read: TypeAlias = Callable[[str, str, Index], ArrayLike]

WORK = ".work"
BUFFERS = 8 << 20  # bytes of Parquet and of blocks of geounits in cache, whatever the size of a part
RESULT = "result.json"


def partition(
    folder: str | os.PathLike[str],
    problem: Problem,
    y: ArrayLike,
    *,
    memory: float | None = None,
    at: str | None = None,
) -> Partitions:
    """Cut a problem and its measurements into parts, whole or not at all.

    Parameters
    ----------
    folder : path
        Made anew.
    problem : Problem
        On a spine, as `TwoPass` takes it.
    y : array_like, (n,)
        Measurements over its observed layout.
    memory, at
        As in `partition_source`.

    Raises
    ------
    UnsupportedProblemError
        If `TwoPass` cannot take the problem.
    ValueError
        If the problem has no spine, or `y` is not a vector of its measurements.
    MemoryError, OSError
        As in `partition_source`.
    """
    if problem.spine is None or problem.schema is None:
        raise ValueError("only a problem on a spine can be cut into parts: this one has none")
    reason = TwoPass().supports(problem)
    if problem.equalities is not None:
        reason = "its equalities may span several parts: estimate it in memory"
    if reason is not None or problem.geounit_variances is None:
        raise UnsupportedProblemError(f"this problem cannot be streamed: {reason}")
    values = np.array(y, dtype=np.float64)
    problem.check_vector(values)
    values[problem.unmeasured] = 0
    blocks = problem.observed.tables(values)
    design = Design(
        problem.schema,
        problem.spine.levels,
        tuple(zip(problem.observed_levels, problem.observed_tables, strict=True)),
        tuple(zip(problem.desired_levels, problem.desired_tables, strict=True)),
        _smallest(problem.geounit_variances),
        None if problem.zeros is None else problem.zeros.axes,
    )

    def read(level: str, table: str, ranks: Index) -> Float:
        return blocks[problem.observed.names[problem.observed.index((level, table))]][ranks]

    empty = None if problem.zeros is None else problem.zeros.empty
    return _write_parts(folder, design, problem.spine, problem.geounit_variances, read, memory, at, empty)


def _smallest(variances: list[Float]) -> float:
    """The smallest variance of noisy measurements, 0 if there is none."""
    noisy = np.concatenate([own[np.isfinite(own) & (own > 0)] for own in variances])
    return float(noisy.min()) if noisy.size else 0.0


def partition_source(
    folder: str | os.PathLike[str],
    schema: Schema,
    spine: Spine,
    observed: Mapping[str, Mapping[str, ArrayLike]],
    desired: Mapping[str, Sequence[str]],
    read: Read,
    *,
    memory: float | None = None,
    at: str | None = None,
) -> Partitions:
    """Cut measurements that do not fit in memory into parts, whole or not at all.

    Parameters
    ----------
    folder : path
        Made anew.
    schema : Schema
    spine : Spine
    observed : mapping of str to mapping of str to float or array_like (geounits,)
        For every geolevel its measured tables with their variances; 0 exact, ``inf`` not measured.
    desired : mapping of str to sequence of str
        For every geolevel the wanted tables.
    read : callable
        Called with a geolevel, the name of an observed table and the numbers of some geounits within their level (G,);
        gives the measurements, (G, cells) or (G, *shape), anything where there is none.
    memory : float, optional
        Bytes that the work on a part may take beside the program itself; parts are the largest subtrees that keep to
        it. By default there is no limit, and `at` is needed.
    at : str, optional
        Cut at this geolevel, or below where `memory` demands it.

    Returns
    -------
    Partitions

    Raises
    ------
    ValueError
        If a table or level is unknown or given twice, a variance is not one, a desired table is not estimable, neither
        `memory` nor `at` is given, or a name cannot be that of a file.
    MemoryError
        If a geounit without children, or the top of the tree, needs more than `memory`; it is named.
    OSError
        If there is something at `folder`, or it cannot be written.
    """
    names = [(level, table) for level, tables in observed.items() for table in tables]
    tables = [(spine.level_index(level), parse_table(schema, table)) for level, table in names]
    wanted = [(spine.level_index(level), parse_table(schema, table)) for level, own in desired.items() for table in own]
    for kind, given in (("observed", tables), ("desired", wanted)):
        if not given or len(set(given)) < len(given):
            raise ValueError(f"{kind} tables must be at least one, each given once: got {len(given)}")
    variances = [
        _geounit_variances(name, value, spine.members[level].size)
        for name, (level, _), value in zip(
            names, tables, (value for own in observed.values() for value in own.values()), strict=True
        )
    ]
    design = Design(schema, spine.levels, tuple(tables), tuple(wanted), _smallest(variances))
    _require_estimable(design, spine, variances)
    spelled = {(level, table.name): name for (level, table), (_, name) in zip(tables, names, strict=True)}

    def read_as_named(level: str, table: str, ranks: Index) -> ArrayLike:
        return read(level, spelled[spine.level_index(level), table], ranks)

    return _write_parts(folder, design, spine, variances, read_as_named, memory, at)


def _geounit_variances(name: tuple[str, str], value: ArrayLike, count: int) -> Float:
    variances = np.asarray(value, dtype=np.float64)
    if variances.shape not in ((), (count,)) or np.isnan(variances).any() or (variances < 0).any():
        raise ValueError(f"variances of {name!r} must be one number, or {count} of them, none negative or NaN")
    return np.broadcast_to(variances, (count,))


def _require_estimable(design: Design, spine: Spine, variances: list[Float]) -> None:
    levels = [level for level, _ in design.observed]
    consistency = SpineConsistency(design.schema, spine, levels, [table for _, table in design.observed], variances)
    for level, table in design.desired:
        geounit = undetermined(consistency, table, spine.members[level])
        if geounit is not None:
            raise ValueError(
                f"table {table.name!r} is not estimable at {spine.levels[level]} {spine.geocodes[geounit]!r}: nothing "
                "measured there, below or above determines it"
            )


def _write_parts(
    folder: str | os.PathLike[str],
    design: Design,
    spine: Spine,
    variances: list[Float],
    read: Read,
    memory: float | None,
    at: str | None,
    empty: NDArray[np.bool_] | None = None,
) -> Partitions:
    _require_file_names(design)
    own = part_bytes(design, spine.level_of, spine.child_counts > 0)
    roots = choose_cut(spine, own, None if memory is None else memory - BUFFERS, at)
    members = _members_of_parts(spine, roots)
    top = members.pop()
    order = np.lexsort((top, spine.level_of[top]))
    leaves = {geounit: position for position, geounit in enumerate(top[order].tolist())}
    with new_folder(folder) as temporary:
        writer = _PartWriter(temporary, design, spine, variances, read, empty)
        parts = [
            writer.write(f"{number:05d}", geounits, leaves[int(root)], own[geounits].sum() + BUFFERS)
            for number, (root, geounits) in enumerate(zip(roots, members, strict=True))
        ]
        entry = writer.write(TOP, top, -1, own[top].sum() + BUFFERS)
        write_manifest(temporary, design, parts, entry)
    return Partitions.open(folder)


def _require_file_names(design: Design) -> None:
    for name in design.levels:
        if not name or name.startswith(".") or set(name) & set('/\\:*?"<>|'):
            raise ValueError(f"geolevel {name!r} cannot be the name of a folder: rename it")
    for level, table in (*design.observed, *design.desired):
        tables = [own.name for where, own in (*design.observed, *design.desired) if where == level]
        if table.name in ("geocode", "parent") or variance_column(table.name) in tables:
            raise ValueError(f"table {table.name!r} has the name of another column of its file: rename its variable")


def choose_cut(spine: Spine, own: Float, memory: float | None, at: str | None = None) -> Index:
    """Roots of the parts: the largest subtrees that keep to a memory limit, at a geolevel or below.

    Parameters
    ----------
    spine : Spine
    own : ndarray, (N,)
        Bytes of every geounit.
    memory : float or None
    at : str, optional

    Returns
    -------
    ndarray of int
        Geounits, in the spine's order.

    Raises
    ------
    ValueError
        If neither `memory` nor `at` is given.
    MemoryError
        If a geounit without children, or all geounits above the cut, need more than `memory`.
    """
    if memory is None and at is None:
        raise ValueError("nothing says where to cut: give memory= in bytes, or at= a geolevel")
    limit = np.inf if memory is None else memory
    below = own.astype(float)
    for members in reversed(spine.members[1:]):
        np.add.at(below, spine.parent[members], below[members])
    fits = (below <= limit) & (spine.level_of >= (0 if at is None else spine.level_index(at)))
    alone = np.flatnonzero((spine.child_counts == 0) & (below > limit))
    if alone.size:
        raise MemoryError(
            f"{spine.levels[spine.level_of[alone[0]]]} {spine.geocodes[alone[0]]!r} alone needs "
            f"{format_bytes(below[alone[0]])} and the limit is {format_bytes(limit)}: raise it, or want fewer tables"
        )
    roots = np.flatnonzero(fits & ((spine.parent < 0) | ~fits[spine.parent]))
    needed = own[~fits].sum() + own[roots].sum()
    if needed > limit:
        raise MemoryError(
            f"the {int((~fits).sum()) + roots.size:,} geounits at and above the cut need {format_bytes(needed)} and "
            f"the limit is {format_bytes(limit)}: raise it"
        )
    return roots


def _members_of_parts(spine: Spine, roots: Index) -> list[Index]:
    """Geounits of every part, then those of the top, which has the roots of all parts."""
    part = np.full(spine.size, -1)
    part[roots] = np.arange(roots.size)
    for members in spine.members[1:]:
        part[members] = np.maximum(part[members], part[spine.parent[members]])
    order = np.argsort(part, kind="stable")
    bounds = np.searchsorted(part[order], np.arange(roots.size + 1))
    parts = [order[start:stop] for start, stop in pairwise(bounds)]
    return [*parts, np.sort(np.concatenate([order[: bounds[0]], roots]))]


class _PartWriter:
    """Writes the files of parts."""

    def __init__(
        self,
        folder: Path,
        design: Design,
        spine: Spine,
        variances: list[Float],
        read: Read,
        empty: NDArray[np.bool_] | None,
    ) -> None:
        self._folder, self._design, self._spine = folder, design, spine
        self._variances, self._read, self._empty = variances, read, empty

    def write(self, name: str, geounits: Index, leaf: int, needed: float) -> PartEntry:
        """Write one part; `geounits` are positions in the spine."""
        spine = self._spine
        ordered = geounits[np.lexsort((geounits, spine.level_of[geounits]))]
        position = np.full(spine.size, -1)
        position[ordered] = np.arange(ordered.size)
        files = {}
        for level in np.unique(spine.level_of[ordered]).tolist():
            here = ordered[spine.level_of[ordered] == level]
            above = spine.parent[here]
            columns: dict[str, NDArray] = {"parent": np.where(above >= 0, position[above], -1)}
            if self._empty is not None:
                columns[EMPTY] = self._empty[here].reshape(here.size, -1)
            for i, (where, table) in enumerate(self._design.observed):
                if where == level:
                    columns[variance_column(table.name)] = self._variances[i][spine.rank_in_level[here]]
                    columns[table.name] = self._measured(i, here)
            path = f"{spine.levels[level]}.parquet/{name}.parquet"
            files[path] = write_level(self._folder / path, [spine.geocodes[i] for i in here.tolist()], columns)
        root = int(ordered[0])
        level_name, geocode = spine.levels[spine.level_of[root]], spine.geocodes[root]
        return PartEntry(name, level_name, geocode, leaf, ordered.size, int(needed), files)

    def _measured(self, number: int, geounits: Index) -> Float:
        level, table = self._design.observed[number]
        name = self._spine.levels[level]
        ranks = self._spine.rank_in_level[geounits]
        values = np.array(self._read(name, table.name, ranks), dtype=np.float64).reshape(ranks.size, -1)
        values[np.isinf(self._variances[number][ranks])] = 0
        if values.shape[1] != table.size:
            raise ValueError(f"table {table.name!r} of {name} has {table.size} cells: got {values.shape[1]} a geounit")
        if not np.isfinite(values).all():
            broken = geounits[~np.isfinite(values).all(axis=1)][0]
            raise ValueError(
                f"table {table.name!r} of {name} {self._spine.geocodes[broken]!r} is not finite: give numbers, or an "
                "infinite variance"
            )
        return values


def stream(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    memory: float | None = None,
    variances: bool = True,
    progress: Progress | None = None,
) -> None:
    """Estimate all tables of a partitioned problem, part by part.

    Parameters
    ----------
    folder : path
        Written by `partition` or `partition_source`.
    out : path
        Where estimates go: ``<Geolevel>.parquet/<part>.parquet`` with columns ``geocode``, every desired table, and
        ``<table>:variance`` of every cell. If an earlier run was killed, it is resumed.
    memory : float, optional
        Bytes that the work may take beside the program itself; a part that needs more is refused by name, before
        anything is read. What is left over keeps measurements for the way down, which are otherwise read again.
    variances : bool
        Whether exact variances are wanted too.
    progress : callable, optional
        Called with what is done next, how many parts of both passes are done, and how many there are.

    Raises
    ------
    PartitionError
        If parts are missing or damaged. All others are done as far as possible: put the files back and run again.
    DamagedError
        If the manifest or the top of the tree is missing or damaged.
    ValueError
        If `out` holds the work of another input.
    MemoryError
        If a part needs more than `memory`.
    OSError
        If `out` cannot be written.
    """
    job = Job(folder, out, variances)
    job.limit_memory(memory)
    job.begin()
    steps = len(job.input.parts)
    report = progress or (lambda *_: None)
    failed = {}
    for done, (name, entry) in enumerate(job.input.parts.items()):
        report(f"up {entry}", done, 2 * steps)
        try:
            job.message(name)
        except DamagedError as error:
            failed[name] = str(error)
    job.refuse(failed)
    report("top of the tree", steps, 2 * steps)
    job.crown()
    for done, (name, entry) in enumerate(job.input.parts.items()):
        report(f"down {entry}", steps + done, 2 * steps)
        try:
            job.descend(name)
        except DamagedError as error:
            failed[name] = str(error)
    job.refuse(failed)
    job.finish()
    report("done", 2 * steps, 2 * steps)


class Job:
    """A run from one folder to another. Every step is on disk when it is done, and is not done twice.

    Parameters
    ----------
    folder, out : path
    variances : bool
    """

    def __init__(self, folder: str | os.PathLike[str], out: str | os.PathLike[str], variances: bool = True) -> None:
        self.input = Partitions.open(folder)
        self.out = Path(out)
        self.variances = variances
        self.work = self.out / WORK
        self._spare = 0.0
        self._kept: dict[str, Part] = {}

    def limit_memory(self, memory: float | None) -> None:
        """Raise `MemoryError` if a part needs more than a limit; what is left over keeps parts for the way down."""
        entries = (*self.input.parts.values(), self.input.top)
        for entry in entries:
            if memory is not None and entry.bytes > memory:
                raise MemoryError(
                    f"{entry} needs {format_bytes(entry.bytes)} and the limit is {format_bytes(memory)}: raise it, or "
                    "partition anew with this memory"
                )
        self._spare = 0.0 if memory is None else memory - max(entry.bytes for entry in entries)

    def begin(self) -> None:
        """Make the folder, or take up what an earlier run left.

        Raises
        ------
        ValueError
            If it is the work of another input.
        """
        self.work.mkdir(parents=True, exist_ok=True)
        self._sweep()
        path = self.work / "input.json"
        said = json.dumps({"manifest": self.input.digest, "variances": self.variances})
        if path.exists() and path.read_text(encoding="utf-8") != said:
            raise ValueError(f"{self.out} holds the work of another input, or of other wishes: choose another folder")
        if not path.exists():
            with replacing(path) as temporary:
                temporary.write_text(said, encoding="utf-8")

    def _sweep(self) -> None:
        """Remove what killed runs left unfinished."""
        for folder in (self.out, self.work):
            for left in (*folder.glob(".*.part"), *folder.glob("*/.*.part")):
                left.unlink()

    def message(self, name: str) -> Upward:
        """What a part tells of its root."""
        path = self.work / "up" / name
        known = read_sealed(path)
        if known is None:
            part = self.input.read(name)
            known = pack_upward(SubtreeForm(self.input.design, part).message())
            write_sealed(path, known)
            self._keep(name, part)
        return unpack_upward(known)

    def _keep(self, name: str, part: Part) -> None:
        """Keep a part for the way down, if there is memory to spare."""
        needed = sum(values.nbytes for values in part.values)
        if needed <= self._spare:
            self._kept[name] = part
            self._spare -= needed

    def crown(self) -> None:
        """Solve the top of the tree: its estimates, and what it tells of the root of every part."""
        known = all(read_sealed(self.work / "down" / name) is not None for name in self.input.parts)
        if known and self.is_written(TOP):
            return
        below = {entry.leaf: self.message(name) for name, entry in self.input.parts.items()}
        part = self.input.read(TOP)
        result = SubtreeForm(self.input.design, part, below).estimates(self.variances)
        if not self.is_written(TOP):
            self.write(TOP, part, result, np.setdiff1d(np.arange(part.level_of.size), list(below)))
        for name, entry in self.input.parts.items():
            if read_sealed(self.work / "down" / name) is None:
                write_sealed(self.work / "down" / name, pack_downward(result.below[entry.leaf]))

    def descend(self, name: str) -> None:
        """Estimates of a part, once the top is solved."""
        known = read_sealed(self.work / "down" / name)
        if known is None:
            raise DamagedError(f"{self.work / 'down' / name} is damaged: run again")
        self.finish_part(name, unpack_downward(known))

    def finish_part(self, name: str, above: Downward) -> None:
        """Estimates of a part from what all measurements tell of its root."""
        if not self.is_written(name):
            part = self._kept.pop(name) if name in self._kept else self.input.read(name)
            result = SubtreeForm(self.input.design, part, above=above).estimates(self.variances)
            self.write(name, part, result, np.arange(part.level_of.size))

    def write(self, name: str, part: Part, result: Estimates, kept: Index) -> None:
        """Write estimates of some geounits of a part."""
        files = {}
        for level, level_name in enumerate(self.input.design.levels):
            place = part.members(level)
            rows = kept[(kept >= place.start) & (kept < place.stop)] - place.start
            columns = self._columns(level, result, rows)
            if rows.size and columns:
                path = f"{level_name}.parquet/{name}.parquet"
                codes = [part.geocodes[place.start + row] for row in rows.tolist()]
                files[path] = write_level(self.out / path, codes, columns)
        write_sealed(self.work / "done" / name, json.dumps(files).encode())

    def _columns(self, level: int, result: Estimates, rows: Index) -> dict[str, NDArray]:
        columns: dict[str, NDArray] = {}
        for i, cells in result.cells.items():
            where, table = self.input.design.desired[i]
            if where == level:
                columns[table.name] = _rows(cells, rows)
                if i in result.variances:
                    columns[variance_column(table.name)] = _rows(result.variances[i], rows)
        return columns

    def is_written(self, name: str) -> bool:
        """Whether the estimates of a part are there and undamaged."""
        said = read_sealed(self.work / "done" / name)
        try:
            for path, digest in json.loads(said or b"null").items():
                require_intact(self.out / path, digest)
        except (AttributeError, DamagedError):
            return False
        return True

    def refuse(self, failed: Mapping[str, str]) -> None:
        """Raise `PartitionError` if parts failed."""
        if failed:
            lines = "; ".join(f"{self.input.parts[name]}: {reason}" for name, reason in failed.items())
            raise PartitionError(
                f"{len(failed)} of {len(self.input.parts)} parts cannot be read: {lines}. The others are done: put "
                "these files back, and run again",
                failed,
            )

    def finish(self) -> None:
        """Say that all is done, with the SHA-256 of every file."""
        self._sweep()
        files: dict[str, Any] = {}
        for path in sorted((self.work / "done").iterdir()):
            files |= json.loads(read_sealed(path) or b"{}")
        with replacing(self.out / RESULT) as temporary:
            temporary.write_text(json.dumps({"input": self.input.digest, "files": files}, indent=1), encoding="utf-8")


def _rows(array: Float, rows: Index) -> Float:
    return array if rows.size == len(array) else array[rows]


def pack_upward(message: Upward) -> bytes:
    """A message in bytes; the inverse of `unpack_upward`."""
    arrays = {"cells": message.cells}
    for i, own in enumerate(message.messages):
        arrays |= {f"V{i}": own.V, f"unknown{i}": own.unknown, f"exact{i}": own.exact}
    return _pack(arrays)


def unpack_upward(data: bytes) -> Upward:
    """The message that `pack_upward` wrote."""
    arrays = _unpack(data)
    count = len(arrays) // 3
    messages = [Message(arrays[f"V{i}"], arrays[f"unknown{i}"], arrays[f"exact{i}"]) for i in range(count)]
    return Upward(arrays["cells"], messages)


def pack_downward(message: Downward) -> bytes:
    """A message in bytes; the inverse of `unpack_downward`."""
    return _pack({"cells": message.cells} | {f"C{i}": C for i, C in enumerate(message.covariances)})


def unpack_downward(data: bytes) -> Downward:
    """The message that `pack_downward` wrote."""
    arrays = _unpack(data)
    return Downward(arrays["cells"], [arrays[f"C{i}"] for i in range(len(arrays) - 1)])


def _pack(arrays: Mapping[str, Float]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _unpack(data: bytes) -> dict[str, Float]:
    with np.load(io.BytesIO(data)) as arrays:
        return {name: arrays[name] for name in arrays.files}
