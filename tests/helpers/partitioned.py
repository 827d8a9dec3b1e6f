"""A problem to be cut into parts, and estimates read back from the files of its parts."""

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from blue_solvers.results.proof import StoredProof
from blue_solvers.streaming import Partitions, partition, stream
from blue_solvers.streaming.job import CHECKSUMS
from blue_solvers.streaming.part_files import BUFFERS
from blue_solvers.streaming.subtrees import part_bytes
from constraint_builders import Problem
from constraint_builders.description.table import parse_table
from tests.helpers.places import ROOT
from tests.helpers.random_trees import uneven_spine
from tests.helpers.spines import SCHEMA

KILL_AFTER = """
import os, signal, sys
from pathlib import Path
from blue_solvers.streaming import stream
left = int(sys.argv[3])
replace = os.replace
def counted(source, target):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)  # the file is written, not yet in its place
    replace(source, target)
    if left == 1 and sys.argv[4] == "after":
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = counted
stream(Path(sys.argv[1]), Path(sys.argv[2]))
"""


MEASURE = """
import json, re, sys
from pathlib import Path
from blue_solvers.streaming import estimate_measurements, stream
from constraint_builders.files import read_settings
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
for arguments in json.loads(sys.argv[1]):
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = peak()
    CALL
print(peak() - before)
"""


def killed_until_done(arguments_of: Callable[[int], list[str]], most: int) -> int:
    """Run Python again and again, with arguments by attempt, until it is not killed: how often it was."""
    for attempt in range(most):
        ended = subprocess.run([sys.executable, "-c", *arguments_of(attempt)], cwd=ROOT, check=False).returncode
        if ended == 0:
            return attempt
        assert ended == -signal.SIGKILL
    raise AssertionError(f"killed {most} times")


def require_the_bytes_after_kills(folder: Path, whole: Path, out: Path, steps: int = 20) -> None:
    """Runs that are killed again and again end with the bytes of an undisturbed one, the certificate among them."""
    moments = ("before", "after")
    arguments = [KILL_AFTER, str(folder), str(out), str(steps)]
    assert killed_until_done(lambda attempt: [*arguments, moments[attempt % 2]], 60) > 2
    assert digests(out) == digests(whole)
    assert (out / CHECKSUMS).read_text() == (whole / CHECKSUMS).read_text()
    assert not list(out.rglob(".*.part"))


def peak_of_the_second(call: str, *runs: list[object]) -> int:
    """By how many bytes memory grows in the second of two runs of one process; the first loads all that is needed."""
    command = [sys.executable, "-c", MEASURE.replace("CALL", call), json.dumps(runs)]
    return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def proof_in(out: Path) -> StoredProof:
    """What a run has stored of its proof."""
    return StoredProof.from_json(json.loads((out / CHECKSUMS).read_text()))


def invented_problem(seed: int = 0, size: int = 45) -> Problem:
    """Recodes, variances per geounit, geounits without measurements, exact totals, branches of uneven depth."""
    rng = np.random.default_rng(seed)
    spine = uneven_spine(rng, size)
    tables = ["detailed", "total", "g * c", "a * b", "h * q"]
    observed: dict[str, dict[str, np.ndarray]] = {}
    for number, level in enumerate(spine.levels):
        count = spine.members[number].size
        for table in tables[:1] + tables[1 + number % 4 : 3 + number % 4]:
            observed.setdefault(level, {})[table] = 10.0 ** rng.uniform(-1, 2, count)
    lowest = observed[spine.levels[-1]]["detailed"]
    lowest[...] = np.where(rng.random(lowest.size) < 0.3, 1.0, lowest)
    second = observed[spine.levels[1]]
    second["total"] = np.where(rng.random(spine.members[1].size) < 0.5, 0.0, 3.0)
    second["detailed"][0] = np.inf
    return Problem(SCHEMA, observed, spine=spine, desired=["detailed", "b", "total"])


def partition_tightly(folder: Path, problem: Problem, y: np.ndarray, share: float) -> Partitions:
    """Cut with so large a share of the memory that one part would take, or with the next more that is not refused."""
    spine = problem.spine
    design = partition(folder.with_name(f"{folder.name}-whole"), problem, y, at=spine.levels[0]).design
    empty = None if problem.zeros is None else problem.zeros.empty.reshape(spine.size, -1)
    whole = float(part_bytes(design, spine.level_of, spine.child_counts > 0, empty).sum())
    while True:
        try:
            return partition(folder, problem, y, memory=BUFFERS + min(share, 1.001) * whole)
        except MemoryError:
            assert share <= 1
            share *= 1.1


def streamed(folder: Path, problem: Problem, y: np.ndarray, **cut) -> Path:
    """Cut, estimate part by part, and tell where the estimates are."""
    partition(folder / "in", problem, y, **cut)
    stream(folder / "in", folder / "out")
    return folder / "out"


def read_estimates(out: Path, problem: Problem, what: str = "estimate") -> np.ndarray:
    """Estimates, or ``"std_error"``, over the problem's desired layout."""
    tables = {}
    for level, table in problem.desired.names:
        places = problem.domain.places
        members = places.members[places.level_index(level)]
        codes = pl.DataFrame({"geocode": [places.geocodes[i] for i in members]})
        frame = pl.concat([pl.read_parquet(path) for path in sorted((out / f"{level}.parquet").glob("*"))])
        table = parse_table(problem.schema, table).name  # files are in the schema's order
        frame = frame.filter(pl.col("table") == table)
        assert sorted(frame["geocode"]) == sorted(codes["geocode"])
        cells = codes.join(frame, on="geocode", how="left", maintain_order="left")[what].explode().to_numpy()
        tables[level, table] = cells.reshape(problem.desired.shape((level, table)))
    return problem.desired.vector(tables)


def digests(out: Path) -> dict[str, str]:
    """SHA-256 of every file of estimates, by path."""
    files = sorted(out.glob("*.parquet/*"))
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def assert_same(problem: Problem, y: np.ndarray, P, out: Path) -> None:
    """Estimates and variances in files equal those of an operator, to rounding."""
    expected, variances = P @ y + P.offset, P.variances()
    # Rounding: messages pass through cells once more, and information spans four decades.
    deviations = np.sqrt(np.maximum(variances, 0)) + 1e-4
    assert (abs(read_estimates(out, problem) - expected) <= 1e-9 * deviations + 1e-12 * abs(y).max()).all()
    found = read_estimates(out, problem, "std_error") ** 2
    np.testing.assert_allclose(found, variances, rtol=1e-8, atol=1e-10 * max(1.0, variances.max()))
