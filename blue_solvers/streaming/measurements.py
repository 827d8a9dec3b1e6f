"""From noisy measurement files to a stored result, in limited memory; a run that was killed goes on where it was.

::

    <out>/.work/run.json      whose work this is
    <out>/.work/parts         the measurements, cut into parts; made whole, or anew
    <out>/estimates           written part by part
    <out>/result.json         last, when everything else is there

Measurements are read once, and their geocodes once more before. Their values go to disk in the order of the spine,
from where each part is made.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blue_solvers.result_files import OUTLINE, write_description, write_measured
from blue_solvers.solver import Info
from blue_solvers.streaming.part_files import PartitionError, Partitions
from blue_solvers.streaming.partition import Desired, partition_known
from blue_solvers.streaming.run import WORK, Progress, stream
from blue_solvers.streaming.value_files import ValueFiles
from constraint_builders import Schema
from constraint_builders.files import ExactTotal, Settings, Unused
from constraint_builders.files.measurement_outline import Outline, read_outline
from constraint_builders.files.new_folder import require_new
from constraint_builders.files.replacing import replacing
from constraint_builders.memory import format_bytes
from constraint_builders.spine_tables import spine_layout
from constraint_builders.table import parse_table
from constraint_builders.zeros import StructuralZeros

READER = 40 << 20  # bytes that the Parquet library keeps once it has read and written, however little at a time
RUN, PARTS, VALUES, SUMMARY = "run.json", "parts", "values", "summary.json"
INFO = Info("two_pass", exact=True, reason="two passes over the spine, streamed by subtree, exact")


@dataclass(frozen=True)
class Summary:
    """What was read.

    Attributes
    ----------
    tables, cells, exact, unmeasured : int
        Observed tables of all geolevels, and their cells: all, those known exactly and those not measured.
    zeros : tuple of (str, str, int)
        Number of structural zeros by geolevel and table.
    unused : tuple of Unused
        Rows that are not used, by name, with the reason.
    """

    tables: int
    cells: int
    exact: int
    unmeasured: int
    zeros: tuple[tuple[str, str, int], ...]
    unused: tuple[Unused, ...]

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
            outline.unused,
        )

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Summary:
        """What `write` wrote."""
        said = json.loads(path.read_text(encoding="utf-8"))
        zeros = tuple((level, table, cells) for level, table, cells in said.pop("zeros"))
        unused = tuple(Unused(*rows) for rows in said.pop("unused"))
        return cls(**said, zeros=zeros, unused=unused)


def estimate_measurements(
    files: str | os.PathLike[str],
    settings: Settings,
    out: str | os.PathLike[str],
    *,
    memory: float,
    desired: Desired = None,
    within: Sequence[str] | None = None,
    totals: Sequence[ExactTotal] = (),
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
    desired, within, totals
        As in `read_noisy_measurements`.
    progress : callable, optional
        Called with what is done next, a number of steps that are done, and how many there are: of reading geolevels
        first, then of working on parts.

    Returns
    -------
    Summary

    Raises
    ------
    ValueError
        As `read_noisy_measurements`, or if `out` holds the work of another input.
    PartitionError, DamagedError
        As `stream`.
    MemoryError
        If reading at all, the spine, a geounit without children, or the top of the tree need more than `memory`.
    OSError
        If there is something else at `out`, or it cannot be written.
    """
    if memory <= READER:
        raise MemoryError(f"reading files alone needs {format_bytes(READER)} and the limit is {format_bytes(memory)}")
    memory -= READER
    place = Path(out)
    work = place / WORK
    wishes = {"desired": desired, "within": within, "totals": totals}
    _begin(place, {"files": _fingerprint(files), "settings": settings.text} | wishes)
    if not (work / PARTS).exists():
        _read(files, settings, place, memory, desired, within, totals, progress)
    try:
        stream(work / PARTS, place / "estimates", memory=memory, progress=progress)
    except PartitionError as error:
        raise PartitionError(f"{error}, or remove {work / PARTS} to have all parts made anew", error.parts) from None
    summary = Summary.read(work / SUMMARY)
    write_description(place, settings, INFO, Partitions.open(work / PARTS).design.zero_axes or ())
    for done in (work, place / "estimates" / WORK):
        shutil.rmtree(done)
    return summary


def _fingerprint(files: str | os.PathLike[str]) -> str:
    """What tells one folder of files from another: their names, sizes and times."""
    seen = sorted(
        (str(path.relative_to(files)), path.stat().st_size, path.stat().st_mtime_ns)
        for path in Path(files).rglob("*.parquet")
        if path.is_file()
    )
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def _begin(place: Path, said: Mapping[str, Any]) -> None:
    """Make the folder, or take up what an earlier run left."""
    path, text = place / WORK / RUN, json.dumps(said)
    if (place / OUTLINE).exists() or not path.exists():
        require_new(place)
        path.parent.mkdir(parents=True)
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != text:
        raise ValueError(f"{place} holds the work of another input, or of other wishes: choose another folder")


def _read(
    files: str | os.PathLike[str],
    settings: Settings,
    place: Path,
    memory: float,
    desired: Desired,
    within: Sequence[str] | None,
    totals: Sequence[ExactTotal],
    progress: Progress | None,
) -> None:
    """Cut the measurements into parts, and write what variances follow from."""
    work = place / WORK
    for left in (work / VALUES, *work.glob(f".{PARTS}.*.part")):
        shutil.rmtree(left, ignore_errors=True)
    (work / VALUES).mkdir()
    values = ValueFiles(work / VALUES)
    bar = None if progress is None else lambda level, done, count: progress(f"reading {level}", done, count)
    outline = read_outline(files, settings, values.write, within=within, totals=totals, memory=memory, progress=bar)
    spine, schema = outline.spine, settings.schema
    layout = spine_layout(schema, spine, list(outline.zeros))
    zeros = StructuralZeros(schema, spine, layout, outline.zeros) if outline.zeros else None
    write_measured(place, settings, spine, outline.observed, zeros)
    Summary.of(outline, schema).write(work / SUMMARY)
    left_over = memory - outline.bytes - (0 if zeros is None else zeros.empty.nbytes)
    partition_known(work / PARTS, schema, spine, outline.observed, desired, values.read, zeros, left_over)
    shutil.rmtree(work / VALUES)
