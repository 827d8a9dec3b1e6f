"""What `bench versions` measures: public API that every version has, called in one version's process.

Run as a script, so that it takes the packages of the checkout it is told of: reads names of steps from standard input,
one a line, and writes the figure of each. Imports nothing of `bench`, which is another version's there.
"""

from __future__ import annotations

import gc
import resource
import runpy
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from pathlib import Path

import numpy as np
from scipy import sparse

import blue_solvers
from blue_solvers import blue
from constraint_builders import Problem, Schema, Spine, gallery
from constraint_builders.files.settings import production_settings

WIDTHS = {"State": 2, "County": 5, "Tract": 11, "Block_Group": 12, "Block": 15}
GROUPS_16 = {"total": "total", "votingage": "votingage", "cenrace": "race", "detailed": "detailed"}
SEED = 2024
LEAST_SECONDS = 0.05  # of processor, that a step is repeated for
TREES = {13: (3, 3), 111: (10, 10), 1_111: (10, 10, 10), 11_111: (10,) * 4, 101_111: (10, 10, 10, 10, 9)}
ALL_STEPS = ("describe", "prepare", "apply", "apply 8", "adjoint", "variances", "memory")


@dataclass(frozen=True)
class Case:
    """A problem, the solver that takes it, and what is measured of it."""

    describe: Callable[[], Problem]
    solver: str = "auto"
    steps: tuple[str, ...] = ALL_STEPS


def geoids() -> list[str]:
    """Blocks of Rhode Island, or of an invented state of its shape, as this version of `bench` has them."""
    return runpy.run_path(str(Path(__file__).with_name("invented_state.py")))["block_geoids"]()[1]


def rhode_island(cells: int) -> Problem:
    """The state's spine with the redistricting run's tables of 16 or 2,016 cells."""
    spine = Spine.from_geoids(geoids(), WIDTHS)
    variances = production_settings("pl94_us_persons").variances()
    levels = [level for level in spine.levels if level != "US"]
    if cells == 16:
        schema = Schema({"votingage": 2, "race": 8})
        observed = {level: {n: variances[level][q] for q, n in GROUPS_16.items()} for level in levels}
        return Problem(schema, observed, spine=spine)
    schema = gallery.pl94().schema
    assert schema is not None
    desired = {level: ["detailed"] for level in levels}
    return Problem(schema, {level: dict(variances[level]) for level in levels}, spine=spine, desired=desired)


def dhc_persons() -> Problem:
    """Every query group of the persons' demographic and housing characteristics at one state, less what is closed."""
    settings = production_settings("dhc_us_persons")
    return Problem(settings.schema, settings.variances()["State"])


def margins(levels: tuple[int, ...], ways: int, detailed: bool = False) -> Problem:
    """All tables of up to so many variables, in three precisions, and the one of them all where that is wanted."""
    names = [f"v{i}" for i in range(len(levels))]
    sizes = [*range(ways + 1), *([len(names)] if detailed else [])]
    tables = [" * ".join(chosen) or "total" for size in sizes for chosen in combinations(names, size)]
    precisions = {table: 1.0 + number % 3 for number, table in enumerate(tables)}
    return Problem(Schema(dict(zip(names, levels, strict=True))), precisions)


def recoded(number: int) -> Problem:
    """A schema of a hundred to a million cells, some tables of it, up to three recodes on some of its variables."""
    rng = np.random.default_rng([SEED, number])
    size = int(rng.integers(2, 7))
    most = 10 ** rng.uniform(2, 6)
    share = most ** (1 / size)
    levels = [max(2, int(share * rng.uniform(0.6, 1.6))) for _ in range(size)]
    names = [f"v{i}" for i in range(size)]
    factors = {name: [name] for name in names}
    recodes: dict[str, dict[str, list[int]]] = {}
    for i in rng.permutation(size)[: int(rng.integers(1, min(size, 4) + 1))].tolist():
        for j in range(int(rng.integers(1, 4))):
            groups = int(rng.integers(2, max(3, min(levels[i], 8))))
            own = np.sort(rng.integers(0, groups, levels[i])) if j else np.arange(levels[i]) * groups // levels[i]
            own = np.unique(own, return_inverse=True)[1]
            if 1 < own.max() + 1 < levels[i]:
                recodes.setdefault(names[i], {})[f"r{i}{j}"] = own.tolist()
                factors[names[i]].append(f"r{i}{j}")
    schema = Schema(dict(zip(names, levels, strict=True)), recodes=recodes)
    tables = {"detailed": 1.0, "total": 4.0} if number % 3 else {"total": 4.0, **dict.fromkeys(names, 2.0)}
    for _ in range(int(rng.integers(3, 12))):
        chosen = [str(rng.choice(factors[name])) for name in names if rng.random() < 0.5]
        if chosen:
            tables[" * ".join(chosen)] = float(rng.integers(1, 9))
    return Problem(schema, {table: variance for table, variance in tables.items() if not _is_detailed(table, names)})


def _is_detailed(table: str, names: list[str]) -> bool:
    return table != "detailed" and set(table.split(" * ")) == set(names)


def small(number: int) -> Problem:
    """Nine to 64 cells in all tables of three variables, each measured."""
    levels = [(2, 2, 1), (2, 2, 2), (3, 2, 2), (3, 3, 3)][number]
    return margins(levels, 3)


def cellwise(problem: Problem) -> Problem:
    """The same tables with a variance between 1 and 3 for every cell."""
    return problem.with_variances(np.random.default_rng(SEED).uniform(1, 3, problem.observed.size))


def summing(children: tuple[int, ...]) -> Problem:
    """A tree of sums given by its matrix, each node with a variance of its own."""
    labels = [np.arange(int(np.prod(children)))]
    for count in reversed(children):
        labels.append(labels[-1] // count)
    S = sparse.csr_array(sparse.vstack([_sums(own) for own in reversed(labels)]))
    return Problem.from_summing_matrix(S, np.random.default_rng(SEED).uniform(1, 3, S.shape[0]))


def crossed_sums() -> Problem:
    """Items in stores, by items, stores, departments and all, which are no tree."""
    items, stores = (grid.ravel() for grid in np.indices((300, 10)))
    keys = (np.zeros_like(items), stores, items // 30, items // 30 * 10 + stores, items, np.arange(items.size))
    S = sparse.csr_array(sparse.vstack([_sums(own) for own in keys]))
    return Problem.from_summing_matrix(S, np.random.default_rng(SEED).uniform(1, 3, S.shape[0]))


def _sums(group: np.ndarray) -> sparse.csr_array:
    return sparse.csr_array((np.ones(group.size, dtype=np.int8), (group, np.arange(group.size))))


SHORT = ("prepare", "apply", "adjoint", "variances")
NO_VARIANCES = tuple(step for step in ALL_STEPS if step != "variances")
CASES: dict[str, Case] = {
    "pl94": Case(gallery.pl94),
    "5^5": Case(partial(gallery.cube, 5, 5)),
    "6^6": Case(partial(gallery.cube, 6, 6)),
    "2^12": Case(partial(gallery.cube, 12, 2)),
    "dhc persons": Case(gallery.dhc),
    "7^7": Case(partial(gallery.cube, 7, 7), steps=SHORT),
    "50 x 10": Case(gallery.wide, steps=("prepare", "apply", "variances")),
    "14 distinct": Case(partial(margins, tuple(range(2, 16)), 3), steps=SHORT),
    "14 binary one-way and detailed": Case(partial(margins, (2,) * 14, 1, True), steps=SHORT),
    "12 binary two-way and detailed": Case(partial(margins, (2,) * 12, 2, True), steps=SHORT),
    "10 of 2 to 5 two-way and detailed": Case(partial(margins, (2, 3, 4, 5, 2, 3, 4, 5, 2, 3), 2, True), steps=SHORT),
    "pl94 x 55": Case(gallery.pl94_counties),
    "adult two-way": Case(partial(gallery.adult, 2)),
    "adult three-way": Case(partial(gallery.adult, 3), steps=("describe", "prepare", "apply", "variances", "memory")),
    "dhc query groups": Case(dhc_persons, steps=("describe", "prepare", "apply", "memory")),
    "Rhode Island x 16": Case(partial(rhode_island, 16)),
    "Rhode Island x 2016": Case(
        partial(rhode_island, 2016), steps=("describe", "prepare", "apply", "variances", "memory")
    ),
    **{f"recoded {number}": Case(partial(recoded, number), steps=SHORT) for number in range(24)},
    **{f"small {number}": Case(partial(small, number), steps=("describe", *SHORT)) for number in range(4)},
    **{f"tree of {n}": Case(partial(summing, children), steps=("describe", *SHORT)) for n, children in TREES.items()},
    "summing tree": Case(partial(summing, (5, 20, 15, 30))),
    "crossed sums": Case(crossed_sums),
    "cg 5^5": Case(lambda: cellwise(gallery.cube(5, 5)), "cg", NO_VARIANCES),
    "cg pl94": Case(lambda: cellwise(gallery.pl94()), "cg", NO_VARIANCES),
    "cg Rhode Island x 16": Case(lambda: cellwise(rhode_island(16)), "auto", ("prepare", "apply", "memory")),
    "cholesky pl94": Case(lambda: cellwise(gallery.pl94()), "cholesky"),
    "cholesky 4^4": Case(lambda: cellwise(gallery.cube(4, 4)), "cholesky"),
    "nnls pl94": Case(gallery.pl94, steps=("nnls",)),
    "nnls 4^4": Case(partial(gallery.cube, 4, 4), steps=("nnls",)),
    "import": Case(gallery.toy, steps=("import", "import command")),
    "command": Case(gallery.toy, steps=("simulate", "estimate folder", "query", "estimate table")),
}


class Measured:
    """The steps of a case, each giving the least of several times, in seconds of processor, or bytes."""

    def __init__(self, name: str) -> None:
        self._case = CASES[name]
        self._folder = tempfile.TemporaryDirectory()
        self._problem: Problem | None = None
        self._operator: object = None

    def figure(self, step: str) -> float:
        """One figure of a step."""
        if step == "memory":
            return self._memory()
        if step in COMMANDS:
            return self._command(step)
        return _processor_seconds(self._work(step))

    def _work(self, step: str) -> Callable[[], object]:
        if step == "describe":
            return self._case.describe
        problem = self.problem
        if step == "prepare":
            return lambda: blue(problem, self._case.solver)
        if step == "nnls":
            from blue_solvers.nonnegative import nnls

            y = problem.marginal_matrix() @ np.random.default_rng(SEED).poisson(2, problem.schema.shape).ravel()
            y = y + np.random.default_rng(SEED).standard_normal(y.size) * np.sqrt(problem.variances)
            return lambda: nnls(problem, y)
        P = self.operator
        rng = np.random.default_rng(SEED)
        if step == "variances":
            return P.variances
        rows, columns = P.shape
        if step == "adjoint":
            v = rng.standard_normal(rows)
            return lambda: P.rmatvec(v)
        Y = rng.standard_normal((columns, 8)) if step == "apply 8" else rng.standard_normal(columns)
        return lambda: P @ Y

    @property
    def problem(self) -> Problem:
        """The problem, described once."""
        if self._problem is None:
            self._problem = self._case.describe()
        return self._problem

    @property
    def operator(self):
        """The estimate, prepared once."""
        if self._operator is None:
            self._operator = blue(self.problem, self._case.solver)
        return self._operator

    def _memory(self) -> float:
        """Most bytes of arrays and objects at once, from the description to the variances, once all is imported."""
        self._problem = self._operator = None
        gc.collect()
        tracemalloc.start()
        problem = self._case.describe()
        P = blue(problem, self._case.solver)
        y = np.zeros(P.shape[1])
        x = P @ y
        if "variances" in self._case.steps:
            P.variances()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        del x
        return float(most)

    def _command(self, step: str) -> float:
        folder = Path(self._folder.name)
        if not (folder / "blocks.csv").exists():
            _write_files(folder)
        made = folder / {"simulate": "release", "estimate folder": "estimates"}.get(step, "none")
        if made.exists():
            subprocess.run(["rm", "-r", str(made)], check=True)
        if step == "query" and not (folder / "estimates").exists():
            self._command("estimate folder")
        if step == "estimate folder" and not (folder / "release").exists():
            self._command("simulate")
        return _child_seconds([sys.executable, *COMMANDS[step]], folder)


COMMAND = ("-m", "blue_solvers.cli")
COMMANDS: dict[str, tuple[str, ...]] = {
    "import": ("-c", "import blue_solvers"),
    "import command": (*COMMAND, "--version"),
    "simulate": (
        *COMMAND,
        "simulate",
        "blocks.csv",
        "--settings",
        "settings.toml",
        "--seed",
        "7",
        "--out",
        "release",
        "--widths",
        "State=2,County=5,Tract=11,Block=15",
    ),
    "estimate folder": (*COMMAND, "estimate", "release", "--out", "estimates"),
    "query": (
        *COMMAND,
        "query",
        "estimates",
        "--count",
        "votingage=adult",
        "--geounits",
        "44001",
        "--geolevel",
        "County",
    ),
    "estimate table": (*COMMAND, "estimate", "measured.csv", "--schema", "schema.toml", "--out", "table.csv"),
}


def _child_seconds(command: list[str], folder: Path) -> float:
    def used() -> float:
        of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return of_children.ru_utime + of_children.ru_stime

    before = used()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr.strip()}")
    return used() - before


def _write_files(folder: Path) -> None:
    """Counts by block and settings for the command, and a table of noisy margins."""
    rng = np.random.default_rng(SEED)
    labels = [f"{age}_{race}" for age, race in product(("minor", "adult"), ("a", "b", "c"))]
    rows = [f"geoid,{','.join(labels)}"]
    for place in (own for own in geoids() if own[2:5] in ("001", "003")):
        rows.append(",".join((place, *map(str, rng.poisson(3, len(labels))))))
    (folder / "blocks.csv").write_text("\n".join(rows[:2001]) + "\n")
    (folder / "settings.toml").write_text(SETTINGS)
    examples = Path(blue_solvers.__file__).with_name("examples")
    for source, target in (("berkeley.csv", "measured.csv"), ("berkeley.toml", "schema.toml")):
        (folder / target).write_bytes((examples / source).read_bytes())


SETTINGS = """
geolevels = ["State", "County", "Tract", "Block"]
noise = "discrete_gaussian"

[variables]
votingage = ["minor", "adult"]
race = ["a", "b", "c"]

[budget]
measure = "zcdp"
neighbours = "bounded"
total = "1/2"

[budget.geolevels]
State = "1/4"
County = "1/4"
Tract = "1/4"
Block = "1/4"

[budget.tables]
total = ["1/2", "1/2", "1/2", "1/2"]
detailed = ["1/2", "1/2", "1/2", "1/2"]
"""


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
    measured = Measured(name)
    print(Path(blue_solvers.__file__).parent.parent, flush=True)
    for line in sys.stdin:
        try:
            print(measured.figure(line.strip()), flush=True)
        except Exception as error:
            print(f"{type(error).__name__}: {error}".splitlines()[0], flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
