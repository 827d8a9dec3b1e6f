"""From noisy measurement files to a stored result, in limited memory; a run that was killed resumes.

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

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from blue_solvers.contract import Info
from blue_solvers.estimates import is_exact
from blue_solvers.results.checksums import DamagedError, is_intact, read_sealed_json, sha256, untouched
from blue_solvers.results.proof import StoredProof
from blue_solvers.results.store import ESTIMATES, OUTLINE, describe, read_description
from blue_solvers.results.stored_measurements import FACILITIES, SETTINGS, SPINE, VARIANCES, ZEROS, write_measured
from blue_solvers.streaming.job import CHECKSUMS, Job
from blue_solvers.streaming.manifest import MANIFEST
from blue_solvers.streaming.part_files import PartitionError
from blue_solvers.streaming.partition import Desired, partition_source
from blue_solvers.streaming.run import Progress, work_through
from blue_solvers.streaming.value_files import ValueFiles
from blue_solvers.streaming.workplace import RUN, WORK, Workplace, remove
from constraint_builders import Schema
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.table import TableNames, parse_table
from constraint_builders.files import ExactTotal, ReadingReport, Settings
from constraint_builders.files.kept_variables import KeptVariables, keep_variables
from constraint_builders.files.measurement_files import CONSTRAINTS, MEASUREMENTS, files_of, level_folders
from constraint_builders.files.new_files import inside, naming_place, require_new
from constraint_builders.files.noisy_measurements import Outline, read_outline
from constraint_builders.memory import format_bytes, require_limit

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


@dataclass(frozen=True)
class Reading:
    """What is kept once all is read.

    Attributes
    ----------
    summary : Summary
    files : dict of str to str
        SHA-256 of what reading made, by path within the result.
    manifest : str
        That of the manifest of the parts.
    """

    summary: Summary
    files: dict[str, str]
    manifest: str


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
    kept, report = keep_variables(settings, variables), progress or (lambda *_: None)
    return _Run(files, kept, Path(out), memory - READER, desired, within, totals, certify, report).estimate()


@dataclass(frozen=True)
class _Run:
    """One run, from beginning to end or from where an earlier one was killed."""

    files: str | os.PathLike[str]
    kept: KeptVariables
    out: Path
    memory: float
    desired: Desired
    within: Sequence[str] | None
    totals: Sequence[ExactTotal]
    certify: bool
    progress: Progress

    @property
    def settings(self) -> Settings:
        """Those of the variables that are kept."""
        return self.kept.target

    @cached_property
    def place(self) -> Workplace:
        """Where it writes."""
        made = (SETTINGS, SPINE, VARIANCES, ZEROS, FACILITIES, ESTIMATES)
        return Workplace(self.out, (READING, PARTS, READ), made, OUTLINE)

    @property
    def parts(self) -> Path:
        """Where the measurements lie, cut into parts."""
        return self.place.work / PARTS

    def estimate(self) -> Summary:
        """Do what is not done yet."""
        if not os.path.lexists(self.out):
            require_new(self.out)
        self.place.clear_ended()
        self.place.require_free()
        seen = InputFiles.of(self.files, self.settings.geolevels)
        wishes = {
            "settings": self.kept.source.text,
            "variables": self.settings.schema.names,
            "desired tables": self.desired,
            "geounits": self.within,
            "proof": self.certify,
            "exact totals": [[list(known.codes), known.total, known.together] for known in self.totals],
        }
        with naming_place(self.out), self.place.held({"files": seen.digests, **wishes}):
            known = self._read_before() or self._read(seen)
            if not self._is_done():
                self._stream(known)
            shutil.rmtree(self.out / ESTIMATES / WORK, ignore_errors=True)
            self.place.close()
        return known.summary

    def _read_before(self) -> Reading | None:
        """What an earlier run read, if all that it made of that is intact."""
        known = self.place.kept(READ, Reading)
        if known is None:
            return None
        made = {self.out / name: digest for name, digest in known.files.items()}
        made[self.parts / MANIFEST] = known.manifest
        return known if all(is_intact(*file) for file in made.items()) else None

    def _read(self, seen: InputFiles) -> Reading:
        """Cut the measurements into parts, and write what variances follow from."""
        try:
            return self._read_anew(seen)
        except BaseException:  # whatever it is, nothing of this is of use to a later run
            self.place.discard()
            raise

    def _read_anew(self, seen: InputFiles) -> Reading:
        self.place.clean_steps()
        folder = self.place.work / READING
        values, measured = folder / "values", folder / "measured"
        for path in (values, measured):
            path.mkdir(parents=True)
        store = ValueFiles(values)
        outline = read_outline(
            self.files,
            self.kept,
            store.write,
            within=self.within,
            totals=self.totals,
            memory=self.memory,
            progress=lambda level, *counts: self.progress(f"reading {level}", *counts),
        )
        spine, schema = outline.spine, self.settings.schema
        zeros = StructuralZeros(TableNames.of(schema, spine), outline.zeros) if outline.zeros else None
        taken = READER + outline.bytes + (0 if zeros is None else zeros.empty.nbytes)
        memory, parts = READER + self.memory, folder / PARTS
        source = parts, schema, spine, outline.observed, self.desired, store.read
        cut = partial(partition_source, *source, zeros=zeros, reserved=taken, noise=self.settings.noise)
        try:
            cut(memory=min(memory, LARGEST + taken))
        except MemoryError:
            if memory <= LARGEST + taken:
                raise
            cut(memory=memory)
        write_measured(measured, self.settings, spine, outline.observed, zeros, outline.facilities)
        seen.require_unchanged()
        files = {path.name: sha256(path) for path in sorted(measured.iterdir())}
        known = Reading(Summary.of(outline, schema), files, sha256(parts / MANIFEST))
        os.rename(parts, self.parts)
        for name in files:
            os.replace(measured / name, self.out / name)
        self.place.keep(READ, known)
        shutil.rmtree(folder)
        return known

    def _is_done(self) -> bool:
        """Whether an earlier run ended, but for removing its work."""
        if not self.place.is_done:
            return False
        with suppress(DamagedError, OSError):
            files = read_description(self.out).files
            if all(is_intact(self.out / name, digest) for name, digest in files.items()):
                return True
        (self.out / OUTLINE).unlink()
        return False

    def _stream(self, read: Reading) -> None:
        """Estimate part by part, and say that the result is whole."""
        estimates = inside(self.out, ESTIMATES)
        self._drop_other(estimates)
        job = Job(self.parts, estimates, memory=self.memory, certify=self.certify)
        job.keep_within(self.memory)
        with job.held():
            files, proof = self._work_through(job)
        known = read.files | {f"{ESTIMATES}/{path}": digest for path, digest in files.items()}
        known[f"{ESTIMATES}/{CHECKSUMS}"] = sha256(self.out / ESTIMATES / CHECKSUMS)
        design = job.input.design.without_put_in()
        with self.place.replacing(OUTLINE) as temporary:
            text = describe(
                self.settings,
                design.levels,
                design.desired,
                _info(proof),
                design.zero_axes,
                known,
                proof,
                read.summary.read,
            )
            temporary.write_text(text, encoding="utf-8")

    def _work_through(self, job: Job) -> tuple[dict[str, str], StoredProof | None]:
        try:
            return work_through(job, self.progress)
        except PartitionError as error:
            text = f"{error}, or remove {self.parts} to have all parts made anew"
            raise PartitionError(text, error.parts) from None
        except (DamagedError, MemoryError, OSError):
            raise
        except Exception:  # the input is refused: other input must find nothing in its way
            self.place.discard()
            raise

    def _drop_other(self, estimates: Path) -> None:
        """Remove estimates of other parts, which were cut for another memory, or whose input is not known."""
        with suppress(DamagedError, OSError, KeyError):
            if read_sealed_json(estimates / WORK / RUN)["measurements"] == sha256(self.parts / MANIFEST):
                return
        remove(estimates)


@dataclass(frozen=True)
class InputFiles:
    """The files that are read.

    Attributes
    ----------
    digests : dict of str to str
        SHA-256 of every file by its path within the folder.
    stamps : dict of Path to os.stat_result
        What the file system said of every file before its SHA-256 was worked out.
    """

    digests: dict[str, str]
    stamps: dict[Path, os.stat_result]

    @classmethod
    def of(cls, folder: str | os.PathLike[str], geolevels: Sequence[str]) -> InputFiles:
        """Read all files of some geolevels once; raises as `read_noisy_measurements` where there is none."""
        places = level_folders(folder, geolevels).values()
        paths = [path for place in places for kind in (MEASUREMENTS, CONSTRAINTS) for path in files_of(place, kind)]
        stamps = {path: path.stat() for path in paths}
        return cls({path.relative_to(folder).as_posix(): sha256(path) for path in paths}, stamps)

    def require_unchanged(self) -> None:
        """Raise `ValueError` if a file was written to or replaced since."""
        for path, before in self.stamps.items():
            if not path.is_file() or not untouched(path.stat(), before):
                raise ValueError(f"{path}: it changed while it was read: let nobody write there, and run again")
