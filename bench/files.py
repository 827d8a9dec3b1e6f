"""The command's whole run beside polars that reads and writes the same files, interleaved: CPU time and peak memory.

    python -m bench files                     Rhode Island at 2,016 cells a geounit, some minutes
    python -m bench files --quick             at 16 cells

Measurement files are written for the blocks of Rhode Island where the shared data folder is at hand, of an invented
state of its shape otherwise, with noise alone for counts. A row is a process: "in memory" is
``blue-solvers estimate FOLDER --out RESULT``, from measurement files to the stored result with estimates, standard
errors, proof and fit; "streamed" is the same with ``--memory``; "polars" reads the measurement files, and writes the
frames of the result with the compression and the row groups that it has; "polars, zstd" writes them with the
compression that is polars' own choice; that its frames are in memory by then is not counted. Start and imports are
counted for all, as after an installation: a round that is not measured compiles modules and loops. Times are medians
of CPU seconds, user and system, on one BLAS thread; the ratios are medians over rounds. Before every process
another one writes to memory and ends, so that all find as much at hand: what the host of a virtual machine has taken
back costs a page fault of the host's, up to 2 s a gigabyte.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bench.measuring import figures_apart, parser_of, print_table
from bench.problems import block_geoids, state
from blue_solvers.results.estimate_rows import COMPRESSION, ROW_GROUP
from constraint_builders.files import write_noisy_measurements
from constraint_builders.files.settings import production_settings
from tests.helpers.simulated import settings_of

SETTINGS = "settings.toml"
PEERS = {"polars": COMPRESSION, "polars, zstd": "zstd"}
AT_HAND = 3 << 30  # bytes that are written to before a process is measured
LIMITS = {"16": ("100MB",), "2016": ("10GB", "3GB", "1GB")}  # of streaming: in one part, and in many
HEADER = ["process", "processor s", "x polars", "x polars, zstd", "x in memory", "peak MB", "x numbers in and out"]


def main(argv: list[str]) -> None:
    """Print the table."""
    parser = parser_of("files", __doc__, "16 cells a geounit")
    parser.add_argument("--rounds", type=int, help="of all processes, interleaved (3, or with --quick 1)")
    options = parser.parse_args(argv)
    cells = "16" if options.quick else "2016"
    print(block_geoids()[0])
    with tempfile.TemporaryDirectory() as folder:
        size = figures_apart("files", folder, cells)
        print_table(HEADER, compare(Path(folder), size, options.rounds or (1 if options.quick else 3), LIMITS[cells]))


def measure(folder: str, cells: str) -> int:
    """Write measurement files of noise alone, with their settings; how many numbers they hold."""
    problem = state(cells)
    rng, y = np.random.default_rng(0), np.empty(problem.observed.size)
    for i, variances in enumerate(problem.geounit_variances):
        noise = rng.standard_normal((variances.size, problem.observed_tables[i].size))
        y[problem.observed.block(i)] = np.rint(noise * np.sqrt(variances)[:, None]).ravel()
    text = production_settings("pl94_us_persons").text
    if cells == "16":
        variables = {name: list(map(str, problem.schema.labels_of(name))) for name in problem.schema.names}
        text = settings_of(problem.spine.levels, variables, {own.name: "1/100" for own in problem.observed_tables})
    write_noisy_measurements(Path(folder) / "release", problem, y, notes={SETTINGS: text})
    return y.size


def compare(place: Path, size: int, rounds: int, limits: Sequence[str]) -> Iterator[list[object]]:
    """Rows of the first table."""
    whole = 8.0 * 3 * size  # measurements, estimates and standard errors as numbers
    command = ["-m", "blue_solvers.cli", "estimate", str(place / "release"), "--out"]
    runs = {"in memory": [*command, str(place / "result")]}
    runs |= {f"streamed in {limit}": [*command, str(place / "streamed"), "--memory", limit] for limit in limits}
    runs |= {name: ["-m", "bench.files_peer", str(place), str(ROW_GROUP), own] for name, own in PEERS.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        shutil.rmtree(place / "result", ignore_errors=True)
        for name, arguments in runs.items():
            shutil.rmtree(place / "streamed", ignore_errors=True)
            seconds, peak, said = _run(arguments, place / "modules")
            beside = float(said) if name in PEERS else 0.0
            if turn:  # modules and loops are compiled in the first
                found[name].append((seconds - beside, peak))
    for name, own in found.items():
        pairs = (zip(own, found[other], strict=True) for other in (*PEERS, "in memory"))
        ratios = [statistics.median(a[0] / b[0] for a, b in pair) for pair in pairs]
        seconds, peak = statistics.median(a[0] for a in own), max(a[1] for a in own)
        yield [name, seconds, *ratios, peak / 1e6, peak / whole]


def _run(arguments: Sequence[str], modules: Path) -> tuple[float, float, str]:
    """Processor seconds and peak bytes of a process, and what it printed; compiled modules are kept in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(modules)
    subprocess.run([sys.executable, "-c", f"import numpy; numpy.ones({AT_HAND} // 8)"], check=True)
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen([sys.executable, *arguments], stdout=printed, stderr=complaints, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        complaints.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(arguments[:3])} failed: {complaints.read().strip()[-500:]}")
        return usage.ru_utime + usage.ru_stime, 1024.0 * usage.ru_maxrss, printed.read()
