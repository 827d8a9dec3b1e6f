"""Both passes over the parts of a problem, one part at a time, each step on disk when it is done."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from blue_solvers.components.subtrees import Downward, Estimates, Index, Part, SubtreeForm, Upward
from blue_solvers.result_files import write_estimates
from blue_solvers.solver import Float
from blue_solvers.streaming.equalities import Combined, Correction
from blue_solvers.streaming.message_files import (
    pack_arrays,
    pack_downward,
    pack_upward,
    unpack_arrays,
    unpack_downward,
    unpack_upward,
)
from blue_solvers.streaming.part_files import (
    TOP,
    DamagedError,
    PartitionError,
    Partitions,
    read_sealed,
    require_intact,
    sha256,
    write_sealed,
)
from constraint_builders.files.replacing import replacing
from constraint_builders.memory import format_bytes
from constraint_builders.table import Table

Progress: TypeAlias = Callable[[str, int, int], None]

WORK = ".work"
CHECKSUMS = "checksums.json"


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
        Where estimates go: ``<Geolevel>.parquet/<part>.parquet`` with columns ``table``, ``geocode``, ``estimate`` and
        ``std_error``, lists of all cells in C order. If an earlier run was killed, it is resumed.
    memory : float, optional
        Bytes that the work may take beside the program itself; a part that needs more is refused by name, before
        anything is read. What is left over keeps measurements for the way down, which are otherwise read again.
    variances : bool
        Whether exact standard errors are wanted too.
    progress : callable, optional
        Called with what is done next, how many parts of both passes are done, and how many there are.

    Raises
    ------
    PartitionError
        If parts are missing or damaged. All others are done as far as possible: put the files back and run again.
    DamagedError
        If the manifest or the top of the tree is missing or damaged.
    ValueError
        If `out` holds the work of another input, or values known exactly contradict one another.
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
        if known and self.is_written(TOP) and (self._correction() or not self.input.design.equal_to):
            return
        below = {entry.leaf: self.message(name) for name, entry in self.input.parts.items()}
        part = self.input.read(TOP)
        result = SubtreeForm(self.input.design, part, below).estimates(self.variances).agreed()
        for name, entry in self.input.parts.items():
            if read_sealed(self.work / "down" / name) is None:
                write_sealed(self.work / "down" / name, pack_downward(result.below[entry.leaf]))
        if self.input.design.equal_to and self._correction() is None:
            self._work_out_correction(part, below)
        if not self.is_written(TOP):
            self.write(TOP, part, result, np.setdiff1d(np.arange(part.level_of.size), list(below)))

    def _work_out_correction(self, top: Part, below: Mapping[int, Upward]) -> None:
        """Put together what all parts say of the combinations that are known exactly."""
        design = self.input.design
        combined, failed = [Combined.of(design, top, below, None)], {}
        for name in self.input.parts:
            try:
                part = self._kept[name] if name in self._kept else self.input.read(name)
                if part.combinations is not None and part.combinations.nnz:
                    combined.append(Combined.of(design, part, {}, self._above(name)))
            except DamagedError as error:
                failed[name] = str(error)
        self.refuse(failed)
        correction = Correction.of(combined, np.array(design.equal_to))
        write_sealed(self.work / "correction", pack_arrays(asdict(correction)))

    def _correction(self) -> Correction | None:
        """What equalities change; None without any, or if it is not known yet."""
        known = read_sealed(self.work / "correction")
        return None if known is None else Correction(**unpack_arrays(known))

    def descend(self, name: str) -> None:
        """Estimates of a part, once the top is solved."""
        self.finish_part(name, self._above(name))

    def _above(self, name: str) -> Downward:
        known = read_sealed(self.work / "down" / name)
        if known is None:
            raise DamagedError(f"{self.work / 'down' / name} is damaged: run again")
        return unpack_downward(known)

    def finish_part(self, name: str, above: Downward) -> None:
        """Estimates of a part from what all measurements tell of its root."""
        if not self.is_written(name):
            part = self._kept.pop(name) if name in self._kept else self.input.read(name)
            result = SubtreeForm(self.input.design, part, above=above).estimates(self.variances).agreed()
            self.write(name, part, result, np.arange(part.level_of.size))

    def write(self, name: str, part: Part, result: Estimates, kept: Index) -> None:
        """Write estimates of some geounits of a part."""
        if self.input.design.equal_to:
            correction = self._correction()
            if correction is None:
                raise DamagedError(f"{self.work / 'correction'} is damaged: run again")
            result = correction.applied(result)
        files = {}
        for level, level_name in enumerate(self.input.design.levels):
            place = part.members(level)
            rows = kept[(kept >= place.start) & (kept < place.stop)] - place.start
            tables = self._tables(level, result, rows)
            if rows.size and tables:
                path = f"{level_name}.parquet/{name}.parquet"
                codes = [part.geocodes[place.start + row] for row in rows.tolist()]
                files[path] = _write_level(self.out / path, codes, tables)
        write_sealed(self.work / "done" / name, json.dumps(files).encode())

    def _tables(self, level: int, result: Estimates, rows: Index) -> list[tuple[Table, Float, Float | None]]:
        """Tables of a level with their standard errors, if these are wanted."""
        tables = []
        for i, cells in result.cells.items():
            where, table = self.input.design.desired[i]
            if where == level:
                errors = np.sqrt(_rows(result.variances[i], rows)) if i in result.variances else None
                tables.append((table, _rows(cells, rows), errors))
        return tables

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
        with replacing(self.out / CHECKSUMS) as temporary:
            temporary.write_text(json.dumps({"input": self.input.digest, "files": files}, indent=1), encoding="utf-8")


def _write_level(path: Path, geocodes: list[str], tables: list[tuple[Table, Float, Float | None]]) -> str:
    """Write estimates of one level of a part, whole or not at all; gives the SHA-256 of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        write_estimates(temporary, geocodes, tables, compression="lz4")
        return sha256(temporary)


def _rows(array: Float, rows: Index) -> Float:
    return array if rows.size == len(array) else array[rows]
