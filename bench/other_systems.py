"""Systems for tables whose sources lie in a folder, run as they come on small problems.

Each gives one or more `Case`: a problem, what was measured, and the answer that the system gave to it, in its own form.
Nothing of them is part of this repository; `bench.peers` says where their sources are looked for.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial, reduce
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from blue_solvers.adapters import answer_from, problem_from_measurements
from constraint_builders import Problem, Schema, Spine

SEED = 2024
SHAPES = ((3, 3, 3), (2, 3, 4), (4, 4, 4, 4))


@dataclass(frozen=True)
class Case:
    """What a system made of a problem.

    Attributes
    ----------
    system, task : str
    problem : Problem
    y, x : ndarray, (n,)
        What was measured, and its answer over the observed layout.
    work : callable
        The same once more; it may print.
    """

    system: str
    task: str
    problem: Problem
    y: NDArray
    x: NDArray
    work: Callable[[], object]


@dataclass(frozen=True)
class Margins:
    """All margins of a table of so many levels."""

    shape: tuple[int, ...]

    @property
    def names(self) -> list[str]:
        """Of its variables."""
        return [f"v{axis}" for axis in range(len(self.shape))]

    @property
    def schema(self) -> Schema:
        """Of its cells."""
        return Schema(dict(zip(self.names, self.shape, strict=True)))

    @property
    def task(self) -> str:
        """What it is called."""
        return f"all margins of {' x '.join(map(str, self.shape))}"

    @property
    def tables(self) -> list[tuple[int, ...]]:
        """The axes of each, the total first."""
        axes = range(len(self.shape))
        return [own for size in range(len(axes) + 1) for own in itertools.combinations(axes, size)]

    def called(self, axes: tuple[int, ...]) -> str:
        """What a table is called."""
        return " * ".join(self.names[axis] for axis in axes) or "total"

    def matrix(self, axes: tuple[int, ...]) -> NDArray:
        """The matrix that sums cells in C order to a table."""
        return _kron([np.eye(n) if axis in axes else np.ones((1, n)) for axis, n in enumerate(self.shape)])


@contextmanager
def _on_path(folder: Path | None) -> Iterator[None]:
    """Sources in a folder; None are those that are installed."""
    if folder is None:
        yield
        return
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def silent(work: Callable[[], Any]) -> Any:
    """What work gives, without what it prints."""
    with redirect_stdout(StringIO()):
        return work()


def _kron(factors: list[NDArray]) -> NDArray:
    return reduce(np.kron, factors, np.ones((1, 1)))


def sea_blue(folder: Path) -> Iterator[Case]:
    """SEA BLUE's aggregation and down pass, on the histograms that it makes itself; its lists read in both orders."""
    with _on_path(folder):
        theirs = import_module("AproxBLUE")
    for shape in SHAPES:
        random.seed(SEED)  # its own generators
        np.random.seed(SEED)  # noqa: NPY002
        ways = len(shape)
        made = theirs.Histogram(num_vars=ways, var_levels=list(shape), num_children=0, max_detail=ways, max_depth=1)
        problem, y = _problem_of_histogram(made, shape)

        def passes(made: Any = made) -> Any:
            means, variances, _ = theirs.run_aggregation_step(made)
            return theirs.down_pass(made, means, variances)[0]

        tables = silent(passes)
        tables = {key: np.asarray(own, dtype=float) for key, own in tables.items()}
        for order, said in (("C", "lists as documented"), ("F", 'lists read with order="F"')):
            x = answer_from(problem, tables, order=order)
            yield Case(f"SEA BLUE, {said}", Margins(shape).task, problem, y, x, passes)


def _problem_of_histogram(made: Any, shape: tuple[int, ...]) -> tuple[Problem, NDArray]:
    """Its cells by their indices, 0 where a variable is summed out and levels from 1."""
    names = list(made.var_list)
    schema = Schema(dict(zip(names, shape, strict=True)))
    keys = [tuple(names[axis] for axis in own) for own in Margins(shape).tables]
    values = {key: np.full([shape[names.index(name)] for name in key], np.nan) for key in keys}
    variances = {key: own.copy() for key, own in values.items()}
    for row, value, variance in zip(made.variables, made.noised_data, made.variance, strict=True):
        index = [int(own) for own in row]
        key = tuple(name for name, own in zip(names, index, strict=True) if own)
        cell = tuple(own - 1 for own in index if own)
        values[key][cell], variances[key][cell] = value, variance
    named = {key: " * ".join(key) or "total" for key in keys}
    problem = Problem(schema, {named[key]: variances[key] for key in keys})
    return problem, problem.vector({named[key]: values[key] for key in keys})


def hdmm(folder: Path) -> Iterator[Case]:
    """HDMM's least squares for a strategy of weighted marginals."""
    with _on_path(folder / "src"):
        workload = import_module("hdmm.workload")
    for margins in map(Margins, SHAPES):
        rng, shape = np.random.default_rng(SEED), margins.shape
        cells = rng.poisson(40, shape).astype(float)
        weights = {axes: float(rng.uniform(0.5, 2)) for axes in margins.tables}
        A = workload.Marginals.fromtuples(shape, weights)
        observed: dict[str, float] = {}
        values: dict[str, NDArray] = {}
        answers = []
        for sub, axes in zip(A.matrices, _order_of(A, shape), strict=True):
            noisy = (sub @ cells.ravel()) + rng.normal(size=sub.shape[0])  # of the weighted table: variance 1
            answers.append(noisy)
            observed[margins.called(axes)] = 1 / weights[axes] ** 2
            values[margins.called(axes)] = (noisy / weights[axes]).reshape([shape[axis] for axis in axes])
        problem = Problem(margins.schema, observed)
        y = problem.vector(values)

        def solve(A: Any = A, answers: list[NDArray] = answers) -> NDArray:
            return A.pinv() @ np.concatenate(answers)

        found = silent(solve)
        names, cells = margins.names, np.asarray(found)
        x = answer_from(problem, {tuple(names[a] for a in axes): margins.matrix(axes) @ cells for axes in weights})
        task = f"{margins.task}, variances from 1/4 to 4"
        yield Case("HDMM, least squares of marginals", task, problem, y, x, solve)


def _order_of(A: Any, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The axes of each table of a strategy: its keys are read as binary numbers, the first axis the highest digit."""
    keys = np.flatnonzero(A.weights)
    return [tuple(axis for axis in range(len(shape)) if key >> (len(shape) - 1 - axis) & 1) for key in keys.tolist()]


def residual_planner(folder: Path) -> Iterator[Case]:
    """ResidualPlanner+ from what it measured itself, differences of tables, to the tables that were asked for."""
    with _on_path(folder):
        theirs = import_module("resplan.ResPlan")
    import pandas as pd

    for margins in map(Margins, SHAPES):
        rng, shape, names = np.random.default_rng(SEED), margins.shape, margins.names
        np.random.seed(SEED)  # noqa: NPY002  its own generator
        planner = theirs.ResPlanSum(list(shape), ["I"] * len(shape))
        people = pd.DataFrame({name: rng.integers(0, size, 2000) for name, size in zip(names, shape, strict=True)})
        for axes in margins.tables:
            planner.input_mech(axes)
        planner.input_data(people, names)

        def plan(planner: Any = planner) -> None:
            planner.get_noise_level()
            planner.measurement()
            planner.reconstruction()

        silent(plan)
        tables = Problem(margins.schema, {margins.called(axes): 1.0 for axes in margins.tables})
        problem, y, x = _of_residuals(planner, margins, answer_from(tables, planner, names))
        yield Case("ResidualPlanner+", f"{margins.task}, from its own residuals", problem, y, x, plan)


def _of_residuals(planner: Any, margins: Margins, answer: NDArray) -> tuple[Problem, NDArray, NDArray]:
    """What its measurements alone say of the cells, and what its tables, which must agree, say of them."""
    rows, measured = [], []
    for axes, own in planner.res_dict.items():
        R, G = (_kron([np.asarray(m.todense() if sparse.issparse(m) else m) for m in found])
                for found in (own.res_mat_list, own.gamma_mat_list))  # fmt: skip
        root = linalg.cholesky(own.noise_level * G @ G.T, lower=True)
        rows.append(linalg.solve_triangular(root, R @ margins.matrix(axes), lower=True))
        measured.append(linalg.solve_triangular(root, np.ravel(own.noisy_answer_vector), lower=True))
    cells = answer[-int(np.prod(margins.shape)) :]  # the last table is the finest
    tables = np.concatenate([margins.matrix(axes) @ cells for axes in margins.tables])
    if abs(tables - answer).max() > 1e-6:
        raise ValueError(f"tables disagree by {abs(tables - answer).max():.1g}")
    back = np.linalg.inv(np.vstack(rows))  # as many differences as cells
    problem = Problem(margins.schema, {"detailed": None}, covariance=sparse.csr_array(back @ back.T))
    return problem, back @ np.concatenate(measured), cells


def blue_down(folder: Path) -> Iterator[Case]:
    """census-bluedown's two linear passes over a state of three geolevels, tables of equal variances."""
    with _on_path(folder):
        block = import_module("census_bluedown.block")
        linear = import_module("census_bluedown.linear_postprocessing")
    import pandas as pd

    rng = np.random.default_rng(SEED)
    shape, names = (2, 3, 4), ("hhgq", "votingage", "race")
    schema = Schema(dict(zip(names, shape, strict=True)))
    codes = ["44", *(f"44{i:02d}" for i in range(4)), *(f"44{i:02d}{j:02d}" for i in range(4) for j in range(5))]
    levels = {2: "State", 4: "County", 6: "Block"}
    parent = [codes.index(code[:-2]) if len(code) > 2 else -1 for code in codes]
    spine = Spine(parent=parent, geolevel=[levels[len(code)] for code in codes], geocode=codes)
    variances = {level: {"total": 3.0 + i, "hhgq": 8.0, "votingage * race": 5.0 - i, "detailed": 12.0 + 4 * i}
                 for i, level in enumerate(levels.values())}  # fmt: skip
    problem = Problem(schema, spine=spine, observed=variances)
    y = rng.normal(30, 6, problem.observed.size)
    axes = {"total": (), "hhgq": (0,), "votingage * race": (1, 2), "detailed": (0, 1, 2)}
    queries = {table: tuple(shape[a] if a in own else 1 for a in range(3)) for table, own in axes.items()}
    frames = {}
    measured = problem.observed.tables(y)
    for level in levels.values():
        own_codes = [code for code in codes if levels[len(code)] == level]
        rows = [(code, queries[t], variances[level][t], measured[level, t][i].ravel())
                for i, code in enumerate(own_codes) for t in axes]  # fmt: skip
        frames[level] = pd.DataFrame(rows, columns=["geocode", "query_shape", "variance", "value"])
    design = block.BlockShape(shape, 1)

    def passes() -> dict[str, Any]:
        own = {level: linear.process_blocks(design, frame) for level, frame in frames.items()}
        lower = {"Block": own["Block"]}
        lower["County"] = linear.bottom_up_step(design, lower["Block"].copy(), own["County"])
        lower["State"] = linear.bottom_up_step(design, lower["County"].copy(), own["State"])
        upper, best = linear.top_down_step(design, own["County"], lower["County"].copy(), own["State"])[:2]
        _, blocks = linear.top_down_step(design, own["Block"], lower["Block"].copy(), upper)
        state = lower["State"]
        return {"State": state, "County": best, "Block": blocks}

    found = silent(passes)
    split = {}
    for level, frame in found.items():
        rows = [
            (code, list(queries[table]), Margins(shape).matrix(kept) @ np.asarray(own.val))
            for code, own in zip(frame["geocode"], frame["estimate"], strict=True)
            for table, kept in axes.items()
        ]  # fmt: skip
        split[level] = pd.DataFrame(rows, columns=["geocode", "query_shape", "value"])
    x, task = answer_from(problem, split, names), "a state of 25 geounits, four tables each"
    yield Case("census-bluedown, linear passes", task, problem, y, x, passes)


def private_pgm(folder: Path | None) -> Iterator[Case]:
    """private-pgm's mirror descent, its total known; from its clone, or as installed from PyPI."""
    with _on_path(folder and folder / "src"):
        mbi = import_module("mbi")
    margins, rng = Margins((4, 4, 4)), np.random.default_rng(SEED)
    cells, names = rng.poisson(40, margins.shape).astype(float), margins.names
    measurements = []
    for axes in margins.tables[1:]:
        noisy = margins.matrix(axes) @ cells.ravel() + 2 * rng.normal(size=4 ** len(axes))
        measurements.append(mbi.LinearMeasurement(noisy, tuple(names[a] for a in axes), 2.0))
    domain = mbi.Domain(tuple(names), margins.shape)
    problem, y = problem_from_measurements(measurements, domain)
    estimation = import_module("mbi.estimation")
    total = float(cells.sum())
    from_2_0 = hasattr(estimation, "MirrorDescent")
    descent = estimation.MirrorDescent().estimate if from_2_0 else estimation.mirror_descent
    descend = partial(descent, domain, measurements, known_total=total, iters=1000)
    model = silent(descend)
    x, task = answer_from(problem, model), f"{margins.task}, standard deviation 2, cells around 40"
    yield Case("private-pgm, mirror descent", task, problem, y, x, descend)


SYSTEMS: dict[str, Callable[[Any], Iterator[Case]]] = {  # by their repositories
    "JordanAwan/SeaBlue": sea_blue,
    "dpcomp-org/hdmm": hdmm,
    "cmla-psu/ResidualPlannerPlus": residual_planner,
    "google-research/census-bluedown": blue_down,
    "ryan112358/private-pgm": private_pgm,
}


ON_PYPI = {"ryan112358/private-pgm": "mbi"}  # modules that a package index has too


def source_of(repository: str, folder: Path | None) -> Path | None:
    """Where a system's clone lies; None where it is taken from the environment, if a package index has it.

    Raises
    ------
    FileNotFoundError
        If the system is in neither.
    """
    if folder is not None and (own := folder / repository.partition("/")[2]).is_dir():
        return own
    module = ON_PYPI.get(repository)
    if module is not None and find_spec(module) is not None:
        return None
    installed = f", and no {module!r} is installed" if module else ""
    raise FileNotFoundError(f"no clone of it in {folder or 'any folder: give --peers'}{installed}")
