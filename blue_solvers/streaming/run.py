"""The two passes over the parts of a problem, one part at a time, each step on disk when it is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeAlias

from blue_solvers.results.checksums import DamagedError
from blue_solvers.results.proof import StoredProof
from blue_solvers.streaming.job import Job
from blue_solvers.streaming.part_files import PartitionError
from constraint_builders.files.new_files import naming_place
from constraint_builders.memory import require_limit

Progress: TypeAlias = Callable[[str, int, int], None]


def stream(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    memory: float | None = None,
    variances: bool = True,
    certify: bool = True,
    progress: Progress | None = None,
) -> None:
    """Estimate all tables of a partitioned problem, part by part.

    Parameters
    ----------
    folder : path
        Written by `partition` or `partition_source`.
    out : path
        Where estimates go: ``<Geolevel>.parquet/<part>.parquet`` with columns ``table``, ``geocode``, ``estimate`` and
        ``std_error``, lists of all cells in C order; small parts in which areas cross share a file, called by the
        first of them. If an earlier run was killed, it is resumed; otherwise there may be nothing.
    memory : float, optional
        Bytes that the work may take beside the program itself, with its libraries and the loops that numba loads at
        first; a part that needs more is refused by name, before anything is read, but for a part of a single geounit,
        which is then split by table. What is left over, or some MB without a limit, keeps measurements for the way
        down, which are otherwise read again.
    variances : bool
        Whether exact standard errors are wanted too.
    certify : bool
        Whether estimates are proved while they are made, and, with their standard errors, the fit of the measurements
        to their noise is tested; ``checksums.json`` says what was found.
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
        If a part needs more than `memory`, or that is more than this process has free.
    BlockingIOError
        If another run is at work at `out`.
    OSError
        If there is something else at `out`, or it cannot be written.
    """
    if memory is not None:
        require_limit(memory)
    job = Job(folder, out, variances, memory, certify)
    job.keep_within(memory)
    with naming_place(out), job.held():
        work_through(job, progress)


def work_through(job: Job, progress: Progress | None = None) -> tuple[dict[str, str], StoredProof | None]:
    """All steps of a job that is held, one after another; gives what `Job.finish` does."""
    steps = list(job.steps())
    count, done = sum(job.parts_of(calls) for _, calls, of in steps if of), 0
    report = progress or (lambda *_: None)
    for step, calls, of in steps:
        failed = dict[str, str]()
        for call in calls:
            if of or not call:
                report(f"{of} {job.input.parts[call[0]]}" if call else "top of the tree", done, count)
            done += job.parts_of([call]) if of else 0
            try:
                getattr(job, step)(*call)
            except PartitionError as error:
                failed |= error.parts
            except DamagedError as error:
                if not call:
                    raise
                failed[call[0]] = str(error)
        job.refuse(failed)
    found = job.finish()
    report("done", count, count)
    return found
