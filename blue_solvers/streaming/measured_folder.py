"""From noisy measurement files to a stored result, in limited memory; a run that was killed goes on where it was.

::

    <out>/.work/run.json      whose work this is, with the SHA-256 of every file that is read
    <out>/.work/reading       what reading makes, until all is read; made anew by a run that goes on
    <out>/.work/parts         the measurements, cut into parts
    <out>/.work/read          that all is read: the SHA-256 of what it made, and what was read
    <out>/estimates           written part by part
    <out>/result.json         last, when everything else is there

Files are read whole once for their checksums, for their geocodes, and for their values, which go to disk in the order
of the spine, from where each part is made. Whatever is taken up again is compared with its checksum first. Input that
is refused leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from blue_solvers.contract import Info
from blue_solvers.proving import is_exact
from blue_solvers.results.checksums import DamagedError, is_intact, read_sealed_json, sha256
from blue_solvers.results.proof import StoredProof
from blue_solvers.results.store import (
    ESTIMATES,
    FACILITIES,
    OUTLINE,
    SETTINGS,
    SPINE,
    VARIANCES,
    ZEROS,
    describe,
    read_description,
    write_measured,
)
from blue_solvers.streaming.input_files import InputFiles
from blue_solvers.streaming.job import CHECKSUMS, Job
from blue_solvers.streaming.manifest import MANIFEST
from blue_solvers.streaming.part_files import PartitionError
from blue_solvers.streaming.partition import Desired, partition_known
from blue_solvers.streaming.run import Progress, work_through
from blue_solvers.streaming.value_files import ValueFiles
from blue_solvers.streaming.workplace import RUN, WORK, Workplace, remove
from constraint_builders import Schema
from constraint_builders.description.table import parse_table
from constraint_builders.description.zeros import StructuralZeros
from constraint_builders.files import ExactTotal, ReadingReport, Settings
from constraint_builders.files.kept_variables import KeptVariables, keep_variables
from constraint_builders.files.measurement_outline import Outline, read_outline
from constraint_builders.files.new_folder import require_new
from constraint_builders.files.replacing import naming_place
from constraint_builders.files.safe_paths import inside
from constraint_builders.memory import format_bytes, require_limit
from constraint_builders.relations.spine_tables import spine_layout

READER = 40 << 20  # bytes that the Parquet library keeps once it has read and written, however little at a time
LARGEST = 2 << 30  # bytes of a part where smaller ones will do: arrays that are larger cost more, to clear their memory
READING, PARTS, READ = "reading", "parts", "read"  # in the folder of work
INFO = Info("two_pass", exact=True, reason="two passes over the spine, streamed by subtree, exact")


def _info(proof: StoredProof | None) -> Info:
    if proof is None or proof.certificate is None or is_exact(proof.certificate):
        return INFO
    return replace(INFO, exact=False, reason=f"{INFO.reason.removesuffix(', exact')}; {proof.certificate}")


@dataclass(frozen=True)
class Summary:
    """What was read.

    Attributes
    ----------
    tables, cells, exact, unmeasured : int
        Observed tables of all geolevels, and their cells: all, those known exactly and those not measured.
    zeros : tuple of (str, str, int)
        Number of structural zeros by geolevel and table.
    read : ReadingReport
        What became of every row, and what bounds say.
    """

    tables: int
    cells: int
    exact: int
    unmeasured: int
    zeros: tuple[tuple[str, str, int], ...]
    read: ReadingReport

    @classmethod
    def of(cls, outline: Outline, schema: Schema) -> Summary:
        """Sum up what a folder of measurements says."""
        tables = [
            (parse_table(schema, name).size, own) for level in outline.observed.values() for name, own in level.items()
        ]
        return cls(
            len(tables),
            sum(size * own.size for size, own in tables),
            sum(size * int((own == 0).sum()) for size, own in tables),
            sum(size * int(np.isinf(own).sum()) for size, own in tables),
            tuple((level, table, int(cells.sum())) for (level, table), cells in outline.zeros.items()),
            outline.read,
        )

    def to_json(self) -> dict[str, Any]:
        """For a file; `of_json` reads it."""
        return {**vars(self), "read": self.read.to_json()}

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> Summary:
        """What `to_json` gave."""
        zeros = tuple((level, table, cells) for level, table, cells in said["zeros"])
        return cls(**{**said, "zeros": zeros, "read": ReadingReport.of_json(said["read"])})


def estimate_measurements(
    files: str | os.PathLike[str],
    settings: Settings,
    out: str | os.PathLike[str],
    *,
    memory: float,
    desired: Desired = None,
    within: Sequence[str] | None = None,
    totals: Sequence[ExactTotal] = (),
    variables: Sequence[str] | None = None,
    certify: bool = True,
    progress: Progress | None = None,
) -> Summary:
    """Estimate all tables of a folder of noisy measurements, and store them for questions.

    The answer is that of `read_noisy_measurements` and `TwoPass` in memory, to rounding.

    Parameters
    ----------
    files : path
        As `read_noisy_measurements` takes it.
    settings : Settings
    out : path
        Made anew, as `results.Result` reads it. If an earlier run was killed, it is resumed.
    memory : float
        Bytes that the work may take beside the program itself.
    desired, within, totals, variables
        As in `read_noisy_measurements`.
    certify : bool
        As in `stream`; the result says what is proved of it.
    progress : callable, optional
        Called with what is done next, a number of steps that are done, and how many there are: of reading geolevels
        first, then of working on parts.

    Returns
    -------
    Summary

    Raises
    ------
    ValueError
        As `read_noisy_measurements`, or if `out` holds the work of another input, or of other versions of packages.
    PartitionError, DamagedError
        As `stream`.
    MemoryError
        If reading at all, the spine, a geounit without children, or the top of the tree need more than `memory`, or
        that is more than this process has free.
    BlockingIOError
        If another run is at work at `out`.
    OSError
        If there is something else at `out`, or it cannot be written.
    """
    require_limit(memory)
    if memory <= READER:
        raise MemoryError(f"reading files alone needs {format_bytes(READER)} and the limit is {format_bytes(memory)}")
    kept = keep_variables(settings, variables)
    return _Run(files, kept, Path(out), memory - READER, desired, within, totals, certify, progress).estimate()


class _Run:
    """One run, from beginning to end or from where an earlier one was killed."""

    def __init__(
        self,
        files: str | os.PathLike[str],
        kept: KeptVariables,
        out: Path,
        memory: float,
        desired: Desired,
        within: Sequence[str] | None,
        totals: Sequence[ExactTotal],
        certify: bool,
        progress: Progress | None,
    ) -> None:
        self._files, self._settings, self._out, self._memory = files, kept.target, out, memory
        self._kept = kept
        self._desired, self._within, self._totals, self._progress = desired, within, totals, progress
        self._certify = certify
        made = (SETTINGS, SPINE, VARIANCES, ZEROS, FACILITIES, ESTIMATES)
        self._place = Workplace(out, (READING, PARTS, READ), made, OUTLINE)
        self._parts = self._place.work / PARTS

    def estimate(self) -> Summary:
        """Do what is not done yet."""
        if not os.path.lexists(self._out):
            require_new(self._out)
        self._place.clear_ended()
        self._place.require_free()
        seen = InputFiles.of(self._files, self._settings.geolevels)
        wishes: dict[str, Any] = {
            "settings": self._kept.source.text,
            "variables": self._settings.schema.names,
            "desired tables": self._desired,
        }
        wishes["geounits"], wishes["proof"] = self._within, self._certify
        wishes["exact totals"] = [[list(known.codes), known.total, known.together] for known in self._totals]
        with naming_place(self._out), self._place.held({"files": seen.digests, **wishes}):
            summary = self._read_before() or self._read(seen)
            if not self._is_done():
                self._stream(summary.read)
            shutil.rmtree(self._out / ESTIMATES / WORK, ignore_errors=True)
            self._place.close()
        return summary

    def _read_before(self) -> Summary | None:
        """What an earlier run read, if all that it made of that is intact."""
        known = self._place.sealed(READ)
        if known is None:
            return None
        said = json.loads(known)
        made = {self._out / name: digest for name, digest in said["files"].items()}
        made[self._parts / MANIFEST] = said["manifest"]
        return Summary.of_json(said["summary"]) if all(is_intact(*file) for file in made.items()) else None

    def _read(self, seen: InputFiles) -> Summary:
        """Cut the measurements into parts, and write what variances follow from."""
        try:
            return self._read_anew(seen)
        except BaseException:  # whatever it is, nothing of this is of use to a later run
            self._place.discard()
            raise

    def _read_anew(self, seen: InputFiles) -> Summary:
        self._place.clean_steps()
        folder = self._place.work / READING
        values, measured = folder / "values", folder / "measured"
        for path in (values, measured):
            path.mkdir(parents=True)
        store = ValueFiles(values)
        outline = self._outline(store)
        spine, schema = outline.spine, self._settings.schema
        layout = spine_layout(schema, spine, list(outline.zeros))
        zeros = StructuralZeros(schema, spine, layout, outline.zeros) if outline.zeros else None
        taken = READER + outline.bytes + (0 if zeros is None else zeros.empty.nbytes)
        memory, parts = READER + self._memory, folder / PARTS

        def cut(memory: float) -> None:
            observed = outline.observed
            partition_known(parts, schema, spine, observed, self._desired, store.read, zeros, memory, reserved=taken)

        try:
            cut(min(memory, LARGEST + taken))
        except MemoryError:
            if memory <= LARGEST + taken:
                raise
            cut(memory)
        write_measured(measured, self._settings, spine, outline.observed, zeros, outline.facilities)
        seen.require_unchanged()
        files = {path.name: sha256(path) for path in sorted(measured.iterdir())}
        summary = Summary.of(outline, schema)
        said = {"summary": summary.to_json(), "files": files, "manifest": sha256(parts / MANIFEST)}
        os.rename(parts, self._parts)
        for name in files:
            os.replace(measured / name, self._out / name)
        self._place.seal(READ, json.dumps(said).encode())
        shutil.rmtree(folder)
        return summary

    def _outline(self, store: ValueFiles) -> Outline:
        def report(level: str, done: int, count: int) -> None:
            if self._progress is not None:
                self._progress(f"reading {level}", done, count)

        return read_outline(
            self._files,
            self._kept,
            store.write,
            within=self._within,
            totals=self._totals,
            memory=self._memory,
            progress=report,
        )

    def _is_done(self) -> bool:
        """Whether an earlier run ended, but for removing its work."""
        if not self._place.is_done:
            return False
        with suppress(DamagedError, OSError):
            files = read_description(self._out)["files"]
            if all(is_intact(self._out / name, digest) for name, digest in files.items()):
                return True
        (self._out / OUTLINE).unlink()
        return False

    def _stream(self, read: ReadingReport) -> None:
        """Estimate part by part, and say that the result is whole."""
        estimates = inside(self._out, ESTIMATES)
        self._drop_other(estimates)
        job = Job(self._parts, estimates, memory=self._memory, certify=self._certify)
        job.keep_within(self._memory)
        with job.held():
            files, proof = self._work_through(job)
        known = json.loads(self._place.sealed(READ) or b"{}")["files"]
        known |= {f"{ESTIMATES}/{path}": digest for path, digest in files.items()}
        known[f"{ESTIMATES}/{CHECKSUMS}"] = sha256(self._out / ESTIMATES / CHECKSUMS)
        design = job.input.design.without_put_in()
        axes = design.zero_axes or ()
        with self._place.replacing(OUTLINE) as temporary:
            text = describe(self._settings, design.levels, design.desired, _info(proof), axes, known, proof, read)
            temporary.write_text(text, encoding="utf-8")

    def _work_through(self, job: Job) -> tuple[dict[str, str], StoredProof | None]:
        try:
            return work_through(job, self._progress)
        except PartitionError as error:
            text = f"{error}, or remove {self._parts} to have all parts made anew"
            raise PartitionError(text, error.parts) from None
        except (DamagedError, MemoryError, OSError):
            raise
        except Exception:  # the input is refused: other input must find nothing in its way
            self._place.discard()
            raise

    def _drop_other(self, estimates: Path) -> None:
        """Remove estimates of other parts, which were cut for another memory, or whose input is not known."""
        with suppress(DamagedError, OSError, KeyError):
            if read_sealed_json(estimates / WORK / RUN)["measurements"] == sha256(self._parts / MANIFEST):
                return
        remove(estimates)
