"""What `bench versions` measures: public API that every version has, called in one version's process.

Run as a script, so that it takes the packages of the checkout it is told of: reads names of steps from standard input,
one a line, and writes the figure of each. Imports nothing of `bench`, which is another version's there.
"""

import gc
import importlib
import resource
import runpy
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import blue_solvers
from blue_solvers import blue
from constraint_builders import Problem, gallery

HERE = Path(__file__).parent
problems = SimpleNamespace(**runpy.run_path(str(HERE / "problems.py")))
SEED = 2024
LEAST_SECONDS = 0.05  # CPU seconds, that a step is repeated for
TREES = {13: (3, 3), 111: (10, 10), 1_111: (10, 10, 10), 11_111: (10,) * 4, 101_111: (10, 10, 10, 10, 9)}
SMALL = ((2, 2, 1), (2, 2, 2), (3, 2, 2), (3, 3, 3))  # levels of three variables
SHORT = ("prepare", "apply", "adjoint", "variances")
ALL_STEPS = ("describe", "prepare", "apply", "apply 8", "adjoint", "variances", "memory")
NO_VARIANCES = tuple(step for step in ALL_STEPS if step != "variances")
LARGE = ("describe", "prepare", "apply", "variances", "memory")


@dataclass(frozen=True)
class Case:
    """A problem, the solver that takes it, and what is measured of it."""

    describe: Callable[[], Problem]
    solver: str = "auto"
    steps: tuple[str, ...] = ALL_STEPS


def summing(children: tuple[int, ...]) -> Problem:
    """A tree of sums given by its matrix, each node with a variance of its own."""
    return problems.forecasts(problems.tree(int(np.prod(children)), children))


def cellwise(describe: Callable[[], Problem]) -> Callable[[], Problem]:
    """The same tables with a variance between 1 and 3 for every cell."""
    return lambda: problems.cellwise(describe())


named, margins = problems.PROBLEMS, problems.margins
CASES: dict[str, Case] = {
    **{name: Case(named[name]) for name in ("pl94", "5^5", "6^6", "2^12", "dhc", "pl94 x 55", "adult two-way")},
    "7^7": Case(named["7^7"], steps=SHORT),
    "50 x 10": Case(named["50 x 10"], steps=("prepare", "apply", "variances")),
    "14 distinct": Case(named["2 to 15 levels, three-way"], steps=SHORT),
    "14 binary one-way and detailed": Case(partial(margins, (2,) * 14, 1, True), steps=SHORT),
    "12 binary two-way and detailed": Case(partial(margins, (2,) * 12, 2, True), steps=SHORT),
    "10 of 2 to 5 two-way and detailed": Case(partial(margins, (2, 3, 4, 5, 2, 3, 4, 5, 2, 3), 2, True), steps=SHORT),
    "adult": Case(named["adult"], steps=LARGE),
    "dhc persons": Case(named["dhc persons"], steps=("describe", "prepare", "apply", "memory")),
    "16 cells": Case(named["16 cells"]),
    "2,016 cells": Case(named["2,016 cells"], steps=LARGE),
    **{name: Case(make, steps=SHORT) for name, make in named.items() if name.startswith("recoded ")},
    **{f"small {i}": Case(partial(margins, own, 3), steps=("describe", *SHORT)) for i, own in enumerate(SMALL)},
    **{f"tree of {n}": Case(partial(summing, children), steps=("describe", *SHORT)) for n, children in TREES.items()},
    "summing tree": Case(partial(summing, (5, 20, 15, 30))),
    "crossed sums": Case(named["M5, an item in 10"]),
    **{f"cg {name}": Case(cellwise(named[name]), "cg", NO_VARIANCES) for name in ("5^5", "pl94")},
    "cg 16 cells": Case(cellwise(named["16 cells"]), "auto", ("prepare", "apply", "memory")),
    **{f"cholesky {name}": Case(cellwise(named[name]), "cholesky") for name in ("pl94", "4^4")},
    **{f"nnls {name}": Case(named[name], steps=("nnls",)) for name in ("pl94", "4^4", "6^6")},
    "import": Case(gallery.toy, steps=("import", "import command")),
}
COMMANDS = {"import": ("-c", "import blue_solvers"), "import command": ("-m", "blue_solvers.cli", "--version")}


class Measured:
    """The steps of a case, each giving the least of several times, in CPU seconds, or bytes."""

    def __init__(self, name: str) -> None:
        self._case = CASES[name]

    def figure(self, step: str) -> float:
        """One figure of a step."""
        if step == "memory":
            return self._memory()
        return _command(step) if step in COMMANDS else _processor_seconds(self._work(step))

    def _work(self, step: str) -> Callable[[], object]:
        if step == "describe":
            return self._case.describe
        if step == "prepare":
            return partial(blue, self.problem, self._case.solver)
        rng = np.random.default_rng(SEED)
        if step == "nnls":
            from blue_solvers.nonnegative import nnls

            y = self.problem.marginal_matrix() @ rng.poisson(2, self.problem.schema.shape).ravel()
            return partial(nnls, self.problem, y + rng.standard_normal(y.size) * np.sqrt(self.problem.variances))
        P = self.operator
        if step == "variances":
            return P.variances
        if step == "adjoint":
            return partial(P.rmatvec, rng.standard_normal(P.shape[0]))
        Y = rng.standard_normal((P.shape[1], 8) if step == "apply 8" else P.shape[1])
        return lambda: P @ Y

    @cached_property
    def problem(self) -> Problem:
        """The problem, described once."""
        return self._case.describe()

    @cached_property
    def operator(self) -> blue_solvers.BlueOperator:
        """The estimate, prepared once."""
        return blue(self.problem, self._case.solver)

    def _memory(self) -> float:
        """Most bytes of arrays and objects at once, from the description to the variances, once all is imported."""
        gc.collect()
        tracemalloc.start()
        P = blue(self._case.describe(), self._case.solver)
        x = P @ np.zeros(P.shape[1])
        if "variances" in self._case.steps:
            P.variances()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        del x
        return float(most)


def _command(step: str) -> float:
    """CPU seconds of a process."""
    before = _seconds_of_children()
    subprocess.run([sys.executable, *COMMANDS[step]], capture_output=True, check=True)
    return _seconds_of_children() - before


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _processor_seconds(run: Callable[[], object]) -> float:
    times: list[float] = []
    gc.collect()
    while not times or (sum(times) < LEAST_SECONDS and len(times) < 100):
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
        del result
    return min(times)


def serve(name: str) -> None:
    """Answer steps with figures until there are no more."""
    with suppress(ImportError, AttributeError):  # older versions have no references that serve first
        importlib.import_module("constraint_builders.compiled").compile_at_once()
    measured = Measured(name)
    print(Path(blue_solvers.__file__).parent.parent, flush=True)
    for line in sys.stdin:
        try:
            print(measured.figure(line.strip()), flush=True)
        except Exception as error:
            print(f"{type(error).__name__}: {error}".splitlines()[0], flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
