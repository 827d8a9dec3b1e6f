"""The two passes on a Dask cluster; needs the extra ``cluster``.

Every step is that of `streaming.stream`, done by a worker that reads and writes the shared folders itself: the bytes
are the same. Folders must be at the same paths everywhere. Nothing but names goes through Dask. A task whose worker
dies is run again elsewhere; what is on disk is not done twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from constraint_builders.extras import needing

with needing("a cluster needs Dask", "cluster"):
    from distributed import Client, Future

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.results.checksums import DamagedError
from blue_solvers.streaming.job import Job
from blue_solvers.streaming.part_files import PartitionError
from blue_solvers.streaming.run import Progress
from blue_solvers.streaming.workplace import difference, versions

PATIENCE = 60.0  # seconds without any worker
LOOK = 1.0  # seconds after which to look whether the cluster is still there

Arguments = tuple[str, str, bool, float | None, bool]  # of `Job`
Place = tuple[Arguments, str, tuple[tuple[str, str], ...]]  # these, the digest of the input, and versions of packages


class ClusterError(RuntimeError):
    """The cluster was lost, or cannot be used; what is done is on disk, and the same call goes on from there."""


def estimate(
    client: Client,
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    memory: float | None = None,
    variances: bool = True,
    certify: bool = True,
    patience: float = PATIENCE,
    progress: Progress | None = None,
) -> None:
    """Estimate all tables of a partitioned problem on a cluster, to the same bytes as `streaming.stream`.

    Parameters
    ----------
    client : distributed.Client
    folder, out : path
        As in `streaming.stream`, at the same place for every worker.
    memory : float, optional
        Bytes that one task may take, but for the one that solves the top of the tree. A part of a single geounit that
        needs more is split by table: every task takes one observed table, and their shares of the estimate are added;
        then every task gives one desired table.
    variances : bool
        Whether exact variances are wanted too.
    certify : bool
        As in `streaming.stream`.
    patience : float
        Seconds to wait for an answer of the scheduler, and for workers while there is none.
    progress : callable, optional
        Called with the pass, how many parts of it are done, and how many there are.

    Raises
    ------
    PartitionError, DamagedError, ValueError, BlockingIOError, OSError
        As `streaming.stream`.
    UnsupportedProblemError
        If linear combinations are known exactly.
    MemoryError
        If a part of several geounits, or one table of a geounit, needs more than `memory`.
    ClusterError
        If the scheduler is lost, it does not answer or no worker is there for longer than `patience`, or workers have
        other versions of packages than the client.
    distributed.KilledWorker
        If a task's workers died again and again.
    """
    job = Job(folder, out, variances, memory, certify)
    if job.input.design.equal_to:
        raise UnsupportedProblemError("equalities are for `streaming.stream`, not for a cluster")
    with job.held():
        arguments = str(job.input.folder.absolute()), str(job.place.out.absolute()), variances, memory, certify
        place = arguments, job.input.digest, tuple(versions().items())
        tasks = _Tasks(client, job, patience, progress or (lambda *_: None))
        shares = [(name, number) for name in sorted(job.split) for number in range(len(job.shares(name)))]
        tasks.run(place, "share", shares, "")
        for step, calls, of in job.steps():
            tasks.run(place, step, calls, of)
        job.finish()


class _Tasks:
    """Runs tasks, and notices when nobody does."""

    def __init__(self, client: Client, job: Job, patience: float, progress: Progress) -> None:
        self._client, self._job, self._patience, self._progress = client, job, patience, progress

    def run(self, place: Place, step: str, calls: Sequence[tuple[Any, ...]], of: str) -> None:
        """Do a step for all that it is called with, and wait; raises what went wrong, damaged parts named together."""
        try:
            tasks = {self._client.submit(_work, place, step, call, pure=False): call for call in calls}
        except Exception as error:
            raise self._lost("it takes no tasks") from error
        try:
            self._collect(tasks, of)
        except BaseException:
            if self._is_connected:
                self._client.cancel(list(tasks))
            raise

    def _collect(self, tasks: Mapping[Future, tuple[Any, ...]], of: str) -> None:
        ended: SimpleQueue[Future] = SimpleQueue()
        for future in tasks:
            future.add_done_callback(ended.put)
        failed: dict[str, str] = {}
        others: list[BaseException] = []
        done, count = 0, self._job.parts_of(tasks.values())
        for _ in tasks:
            future = self._next(ended)
            if future.status == "error":
                error = future.exception()
                call = tasks[future]
                if isinstance(error, PartitionError):
                    failed |= error.parts
                elif isinstance(error, DamagedError) and call and call[0] in self._job.input.parts:
                    failed[call[0]] = str(error)
                else:
                    others.append(error)
            elif future.status != "finished":
                raise self._lost(f"a task was {future.status}")
            if of:
                done += self._job.parts_of([tasks[future]])
                self._progress(of, done, count)
        self._job.refuse(failed)
        if others:
            raise others[0]

    def _next(self, ended: SimpleQueue[Future]) -> Future:
        """The next task that ended, however it did."""
        seen = time.monotonic()
        while True:
            try:
                return ended.get(timeout=LOOK)
            except Empty:
                now = time.monotonic()
                if not self._is_connected:
                    raise self._lost("the connection to its scheduler is gone") from None
                if self._has_workers():
                    seen = now
                elif now - seen > self._patience:
                    raise self._lost(f"there was no worker for {self._patience:g} s") from None

    @property
    def _is_connected(self) -> bool:
        return self._client.status == "running"

    def _has_workers(self) -> bool:
        """Whether the scheduler knows of a worker; asked in a thread, since the answer may never come."""
        answers: list[bool] = []

        def ask() -> None:
            with suppress(Exception):  # no answer either
                answers.append(bool(self._client.nthreads()))

        thread = Thread(target=ask, daemon=True)
        thread.start()
        thread.join(self._patience)
        if not answers:
            raise self._lost("its scheduler does not answer")
        return answers[0]

    def _lost(self, reason: str) -> ClusterError:
        return ClusterError(
            f"the cluster was lost: {reason}. What is done is in {self._job.place.out}: start a cluster and run again, "
            "and it goes on"
        )


@lru_cache(maxsize=4)
def _job(arguments: Arguments, digest: str, packages: tuple[tuple[str, str], ...]) -> Job:
    """The job, on a worker."""
    other = difference(dict(packages), versions())
    if other:
        raise ClusterError(f"a worker has {other}: give all the packages of the client")
    job = Job(*arguments)
    if job.input.digest != digest or not job.place.is_begun:
        folder, out, *_ = arguments
        raise ClusterError(f"a worker finds other files at {folder} or {out}: share the client's folders")
    return job


def _work(place: Place, step: str, call: tuple[Any, ...]) -> None:
    """Do a step, on a worker."""
    getattr(_job(*place), step)(*call)
