"""The two passes on a Dask cluster: messages go up by a tree of tasks, and down again; needs the extra ``cluster``.

Workers read parts and write estimates themselves, so that folders must be at the same paths everywhere. Between them go
messages only: the cells of one geounit and small matrices. Every geounit above the parts combines its children's
messages in a task of its own. A task whose worker dies is run again elsewhere; what is on disk is not done twice.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

try:
    from distributed import Client, Future, as_completed
except ImportError as error:
    raise ImportError("a cluster needs Dask: pip install 'blue-solvers[cluster]'") from error

from blue_solvers.components.subtrees import Design, Downward, Index, Part, SubtreeForm, Upward, part_bytes
from blue_solvers.solver import UnsupportedProblemError
from blue_solvers.streaming.part_files import TOP, DamagedError, PartEntry
from blue_solvers.streaming.partition import BUFFERS
from blue_solvers.streaming.run import Job, Progress
from constraint_builders.memory import format_bytes


def estimate(
    client: Client,
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    memory: float | None = None,
    variances: bool = True,
    progress: Progress | None = None,
) -> None:
    """Estimate all tables of a partitioned problem on a cluster.

    Parameters
    ----------
    client : distributed.Client
    folder, out : path
        As in `streaming.stream`, at the same place for every worker.
    memory : float, optional
        Bytes that one task may take. A part of a single geounit that needs more is split by table: every task takes one
        observed table, and their shares of the estimate are added; then every task gives one desired table.
    variances : bool
        Whether exact variances are wanted too.
    progress : callable, optional
        Called with the pass, how many parts of it are done, and how many there are.

    Raises
    ------
    PartitionError, DamagedError, ValueError, OSError
        As `streaming.stream`.
    MemoryError
        If a part of several geounits, or one table of a geounit, needs more than `memory`.
    distributed.KilledWorker
        If a task's workers died again and again.
    """
    run = _Run(client, Job(folder, out, variances), memory, progress)
    run.job.begin()
    ups = run.go_up()
    downs = run.go_down(run.combine(ups))
    run.collect("down", downs)
    run.job.finish()


class _Run:
    """The tasks of one estimate."""

    def __init__(self, client: Client, job: Job, memory: float | None, progress: Progress | None) -> None:
        if job.input.design.equal_to:
            raise UnsupportedProblemError("equalities are for `streaming.stream`, not for a cluster")
        self.job = job
        self._place = (str(job.input.folder.absolute()), str(job.out.absolute()), job.variances)
        self._client = client
        self._progress = progress or (lambda *_: None)
        self._design = job.input.design
        self._top = job.input.read(TOP)
        self._name_of = {entry.leaf: name for name, entry in job.input.parts.items()}
        self._split = {name for name, entry in job.input.parts.items() if memory and self._is_split(entry, memory)}
        self._stars: dict[int, _Star] = {}

    def _is_split(self, entry: PartEntry, memory: float) -> bool:
        if entry.bytes <= memory:
            return False
        needed = _table_bytes(self._design, self._level(entry)) if entry.geounits == 1 else entry.bytes
        if needed > memory:
            raise MemoryError(
                f"{entry} needs {format_bytes(needed)} and a task may take {format_bytes(memory)}: raise it, or "
                "partition anew with this memory"
            )
        return True

    def _level(self, entry: PartEntry) -> int:
        return self._design.levels.index(entry.geolevel)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        return self._client.submit(function, *arguments, pure=False)

    def go_up(self) -> dict[str, Future]:
        """Messages of all parts."""
        ups = {
            name: self._split_up(entry) if name in self._split else self._submit(_message, self._place, name)
            for name, entry in self.job.input.parts.items()
        }
        self.collect("up", ups)
        return ups

    def _split_up(self, entry: PartEntry) -> Future:
        """The message of a geounit, its observed tables a task each, added in pairs."""
        observed = self._design.observed
        own = [[i] for i, (level, _) in enumerate(observed) if level == self._level(entry)] or [[]]
        shares = [self._submit(_share, self._place, entry.name, tables) for tables in own]
        while len(shares) > 1:
            pairs = [shares[i : i + 2] for i in range(0, len(shares), 2)]
            shares = [self._submit(_add, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return shares[0]

    def combine(self, ups: Mapping[str, Future]) -> Future:
        """What all measurements tell of the root: messages of children combined, geounit by geounit."""
        messages = {leaf: ups[name] for leaf, name in self._name_of.items()}
        for geounit in reversed(range(self._top.parent.size)):
            children = np.flatnonzero(self._top.parent == geounit)
            if children.size or (geounit == 0 and not messages):
                told = [child for child in children.tolist() if child in messages]
                star = _Star.of(self._design, self._top, geounit, told, [messages[child] for child in told])
                self._stars[geounit] = star
                messages[geounit] = self._submit(_combine, self._place, star.part, star.places, *star.below)
        return self._submit(_final, messages[0])

    def go_down(self, root: Future) -> dict[str, Future]:
        """Hand down to the parts; all tasks that write estimates, by what they write."""
        known = {0: root}
        tasks: dict[str, Future] = {}
        for geounit, star in sorted(self._stars.items()):
            name = f"{TOP}-{geounit:05d}"
            tasks[name] = self._submit(
                _hand_down, self._place, name, star.part, star.places, known[geounit], *star.below
            )
            known |= {
                child: self._submit(operator.getitem, tasks[name], place)
                for child, place in zip(star.told, star.places, strict=True)
            }
        for leaf, name in self._name_of.items():
            if name in self._split:
                tasks |= self._split_down(name, known[leaf])
            else:
                tasks[name] = self._submit(_finish, self._place, name, known[leaf])
        return tasks

    def _split_down(self, name: str, above: Future) -> dict[str, Future]:
        """The estimates of a geounit, its desired tables a task each."""
        level = self._level(self.job.input.parts[name])
        wanted = [i for i, (own, _) in enumerate(self._design.desired) if own == level]
        return {f"{name}-{i:05d}": self._submit(_finish_table, self._place, name, above, i) for i in wanted}

    def collect(self, step: str, tasks: Mapping[str, Future]) -> None:
        """Wait, and raise what went wrong; damaged parts are named together."""
        names = {future.key: name for name, future in tasks.items()}
        failed, others = {}, []
        for done, future in enumerate(as_completed(list(tasks.values())), 1):
            self._progress(step, done, len(tasks))
            error = future.exception()
            part = names[future.key].split("-")[0]
            if isinstance(error, DamagedError) and part in self.job.input.parts:
                failed[part] = str(error)
            elif error is not None:
                others.append(error)
        self.job.refuse(failed)
        if others:
            raise others[0]


@dataclass(frozen=True)
class _Star:
    """A geounit of the top and its children.

    Attributes
    ----------
    part : Part
    told : list of int
        Children that have a message, as the top numbers them.
    places : list of int
        The same, as `part` numbers them.
    below : list of Future
        Their messages.
    """

    part: Part
    told: list[int]
    places: list[int]
    below: list[Future]

    @classmethod
    def of(cls, design: Design, top: Part, geounit: int, told: list[int], below: list[Future]) -> _Star:
        """Take a geounit and its children from the top."""
        positions = np.concatenate([[geounit], np.flatnonzero(top.parent == geounit)])
        return cls(_take(design, top, positions), told, np.searchsorted(positions, told).tolist(), below)


def _take(design: Design, part: Part, positions: Index) -> Part:
    """A geounit and its children, by increasing position."""
    variances, values = [], []
    for (level, _), own_variances, own_values in zip(design.observed, part.variances, part.values, strict=True):
        place = part.members(level)
        rows = positions[(positions >= place.start) & (positions < place.stop)] - place.start
        variances.append(own_variances[rows])
        values.append(own_values[rows])
    parent = np.where(np.arange(positions.size) > 0, 0, -1)
    geocodes = tuple(part.geocodes[i] for i in positions.tolist())
    empty = None if part.empty is None else part.empty[positions]
    return Part(parent, part.level_of[positions], geocodes, variances, values, empty)


def _table_bytes(design: Design, level: int) -> float:
    """Bytes of a task that takes one table of a geounit."""
    bare = Design(design.schema, design.levels, (), ((level, design.finest),), 0.0, design.zero_axes)
    largest = max(table.size for own, table in (*design.observed, *design.desired) if own == level)
    return float(part_bytes(bare, np.array([level]), np.array([False]))[0]) + 8.0 * 4 * largest + BUFFERS


# What workers do. A place is (folder, out, variances) of a job.
Place: TypeAlias = tuple[str, str, bool]


@lru_cache(maxsize=4)
def _job(place: Place) -> Job:
    return Job(*place)


def _message(place: Place, name: str) -> Upward:
    return _job(place).message(name)


def _share(place: Place, name: str, tables: Sequence[int]) -> Upward:
    """The message of a part as if all but some of its tables were zero; messages are linear in what was measured."""
    job = _job(place)
    return SubtreeForm(job.input.design, job.input.read(name, tables), wanted=()).message()


def _add(first: Upward, second: Upward) -> Upward:
    return Upward(first.cells + second.cells, first.messages)


def _combine(place: Place, part: Part, places: Sequence[int], *below: Upward) -> Upward:
    return SubtreeForm(_job(place).input.design, part, dict(zip(places, below, strict=True))).message()


def _final(message: Upward) -> Downward:
    """Nothing lies above the root: what is known of it from below is all."""
    return Downward(message.cells, [own.root[0] for own in message.messages])


def _hand_down(
    place: Place, name: str, part: Part, places: Sequence[int], above: Downward, *below: Upward
) -> dict[int, Downward]:
    """Write the estimates of a geounit of the top, and of children without a message; tell the others theirs."""
    job = _job(place)
    form = SubtreeForm(job.input.design, part, dict(zip(places, below, strict=True)), above)
    result = form.estimates(job.variances).agreed()
    kept = np.setdiff1d(np.arange(part.parent.size), places)
    if not job.is_written(name):
        job.write(name, part, result, kept)
    return result.below


def _finish(place: Place, name: str, above: Downward) -> None:
    _job(place).finish_part(name, above)


def _finish_table(place: Place, name: str, above: Downward, table: int) -> None:
    """Write one desired table of a part of a single geounit, whose estimate is known: nothing is read but its name."""
    job = _job(place)
    own = f"{name}-{table:05d}"
    if not job.is_written(own):
        part = job.input.read(name, ())
        result = SubtreeForm(job.input.design, part, above=above, wanted=[table]).estimates(job.variances)
        job.write(own, part, result, np.arange(1))
