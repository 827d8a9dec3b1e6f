"""Systems for tables whose sources lie in a folder, run as they come on small problems.

Each gives one or more `Case`: a problem, what was measured, and the answer that the system gave to it, in its own form.
Nothing of them is part of this repository; `bench.peers` says where their sources are looked for.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial, reduce
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from bench.problems import margins
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


Ways = tuple[int, ...]


def _all_margins(shape: Ways) -> tuple[Schema, dict[Ways, tuple[str, NDArray]]]:
    """Variables of so many levels; by the axes of all their tables, the total first: name, and what sums cells."""
    base = margins(shape, len(shape))
    M, names = base.marginal_matrix().toarray(), base.schema.names
    tables = zip(base.observed.names, base.observed_tables, strict=True)
    found = {tuple(map(names.index, own.factors)): (name, M[base.observed.slice(name)]) for name, own in tables}
    return base.schema, found


def _task(shape: Ways) -> str:
    return f"all margins of {' x '.join(map(str, shape))}"


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    """Sources in a folder."""
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

        tables = {key: np.asarray(own, dtype=float) for key, own in silent(passes).items()}
        for order, said in (("C", "lists as documented"), ("F", 'lists read with order="F"')):
            x = answer_from(problem, tables, order=order)
            yield Case(f"SEA BLUE, {said}", _task(shape), problem, y, x, passes)


def _problem_of_histogram(made: Any, shape: Ways) -> tuple[Problem, NDArray]:
    """Its cells by their indices, 0 where a variable is summed out and levels from 1."""
    names = list(made.var_list)
    values, variances = np.full((2, *(n + 1 for n in shape)), np.nan)
    cells = tuple(np.array(made.variables, dtype=int).T)
    values[cells], variances[cells] = made.noised_data, made.variance
    keys = {axes: " * ".join(names[axis] for axis in axes) or "total" for axes in _all_margins(shape)[1]}
    places = {name: tuple(slice(1, None) if i in own else 0 for i in range(len(shape))) for own, name in keys.items()}
    schema = Schema(dict(zip(names, shape, strict=True)))
    problem = Problem(schema, {name: variances[own] for name, own in places.items()})
    return problem, problem.vector({name: values[own] for name, own in places.items()})


def hdmm(folder: Path) -> Iterator[Case]:
    """HDMM's least squares for a strategy of weighted marginals."""
    with _on_path(folder / "src"):
        workload = import_module("hdmm.workload")
    for shape in SHAPES:
        (schema, tables), rng = _all_margins(shape), np.random.default_rng(SEED)
        cells = rng.poisson(40, shape).astype(float)
        weights = {axes: float(rng.uniform(0.5, 2)) for axes in tables}
        A = workload.Marginals.fromtuples(shape, weights)
        keys = np.flatnonzero(A.weights).tolist()  # read as binary numbers, the first axis the highest digit
        order = [tuple(axis for axis in range(len(shape)) if key >> (len(shape) - 1 - axis) & 1) for key in keys]
        answers = [sub @ cells.ravel() + rng.normal(size=sub.shape[0]) for sub in A.matrices]  # weighted: variance 1
        names = {tables[axes][0]: weights[axes] for axes in order}
        problem = Problem(schema, {name: 1 / weight**2 for name, weight in names.items()})
        y = np.concatenate([own / weight for own, weight in zip(answers, names.values(), strict=True)])

        def solve(A: Any = A, answers: list[NDArray] = answers) -> NDArray:
            return A.pinv() @ np.concatenate(answers)

        x = problem.marginal_matrix() @ np.asarray(silent(solve))
        task = f"{_task(shape)}, variances from 1/4 to 4"
        yield Case("HDMM, least squares of marginals", task, problem, y, x, solve)


def residual_planner(folder: Path) -> Iterator[Case]:
    """ResidualPlanner+ from what it measured itself, differences of tables, to the tables that were asked for."""
    with _on_path(folder):
        theirs = import_module("resplan.ResPlan")
    import pandas as pd

    for shape in SHAPES:
        (schema, tables), rng = _all_margins(shape), np.random.default_rng(SEED)
        np.random.seed(SEED)  # noqa: NPY002  its own generator
        planner, names = theirs.ResPlanSum(list(shape), ["I"] * len(shape)), list(schema.names)
        people = pd.DataFrame({name: rng.integers(0, size, 2000) for name, size in zip(names, shape, strict=True)})
        for axes in tables:
            planner.input_mech(axes)
        planner.input_data(people, names)

        def plan(planner: Any = planner) -> None:
            planner.get_noise_level()
            planner.measurement()
            planner.reconstruction()

        silent(plan)
        asked = Problem(schema, {name: 1.0 for name, _ in tables.values()})
        problem, y, x = _of_residuals(planner, schema, tables, answer_from(asked, planner, names))
        yield Case("ResidualPlanner+", f"{_task(shape)}, from its own residuals", problem, y, x, plan)


def _of_residuals(
    planner: Any, schema: Schema, tables: Mapping[Ways, tuple[str, NDArray]], answer: NDArray
) -> tuple[Problem, NDArray, NDArray]:
    """What its measurements alone say of the cells, and what its tables, which must agree, say of them."""
    rows, measured = [], []
    for axes, own in planner.res_dict.items():
        R, G = (reduce(np.kron, [m.todense() if sparse.issparse(m) else m for m in found], np.ones((1, 1)))
                for found in (own.res_mat_list, own.gamma_mat_list))  # fmt: skip
        root = linalg.cholesky(own.noise_level * G @ G.T, lower=True)
        rows.append(linalg.solve_triangular(root, R @ tables[axes][1], lower=True))
        measured.append(linalg.solve_triangular(root, np.ravel(own.noisy_answer_vector), lower=True))
    cells = answer[-int(np.prod(schema.shape)) :]  # the last table is the finest
    apart = abs(np.concatenate([M @ cells for _, M in tables.values()]) - answer).max()
    if apart > 1e-6:
        raise ValueError(f"tables disagree by {apart:.1g}")
    back = np.linalg.inv(np.vstack(rows))  # as many differences as cells
    problem = Problem(schema, {"detailed": None}, covariance=sparse.csr_array(back @ back.T))
    return problem, back @ np.concatenate(measured), cells


def blue_down(folder: Path) -> Iterator[Case]:
    """census-bluedown's two linear passes over a state of three geolevels, tables of equal variances."""
    with _on_path(folder):
        block = import_module("census_bluedown.block")
        linear = import_module("census_bluedown.linear_postprocessing")
    import pandas as pd

    rng = np.random.default_rng(SEED)
    shape, names = (2, 3, 4), ("hhgq", "votingage", "race")
    codes = ["44", *(f"44{i:02d}" for i in range(4)), *(f"44{i:02d}{j:02d}" for i in range(4) for j in range(5))]
    levels = {2: "State", 4: "County", 6: "Block"}
    parent = [codes.index(code[:-2]) if len(code) > 2 else -1 for code in codes]
    spine = Spine(parent=parent, geolevel=[levels[len(code)] for code in codes], geocode=codes)
    variances = {level: {"total": 3.0 + i, "hhgq": 8.0, "votingage * race": 5.0 - i, "detailed": 12.0 + 4 * i}
                 for i, level in enumerate(levels.values())}  # fmt: skip
    problem = Problem(Schema(dict(zip(names, shape, strict=True))), spine=spine, observed=variances)
    y = rng.normal(30, 6, problem.observed.size)
    axes = {"total": (), "hhgq": (0,), "votingage * race": (1, 2), "detailed": (0, 1, 2)}
    queries = {table: tuple(shape[a] if a in own else 1 for a in range(3)) for table, own in axes.items()}
    measured, sums = problem.observed.tables(y), {table: _all_margins(shape)[1][own][1] for table, own in axes.items()}
    frames = {}
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
        return {"State": lower["State"], "County": best, "Block": blocks}

    split = {}
    for level, frame in silent(passes).items():
        estimates = list(zip(frame["geocode"], frame["estimate"], strict=True))
        rows = [(code, list(queries[t]), sums[t] @ np.asarray(own.val)) for code, own in estimates for t in axes]
        split[level] = pd.DataFrame(rows, columns=["geocode", "query_shape", "value"])
    x, task = answer_from(problem, split, names), "a state of 25 geounits, four tables each"
    yield Case("census-bluedown, linear passes", task, problem, y, x, passes)


def private_pgm(folder: Path) -> Iterator[Case]:
    """private-pgm's mirror descent, its total known."""
    with _on_path(folder / "src"):
        mbi = import_module("mbi")
    shape, rng = (4, 4, 4), np.random.default_rng(SEED)
    schema, tables = _all_margins(shape)
    cells, names = rng.poisson(40, shape).astype(float), tuple(schema.names)
    measurements = []
    for axes, (_, M) in list(tables.items())[1:]:
        noisy = M @ cells.ravel() + 2 * rng.normal(size=4 ** len(axes))
        measurements.append(mbi.LinearMeasurement(noisy, tuple(names[a] for a in axes), 2.0))
    domain = mbi.Domain(names, shape)
    problem, y = problem_from_measurements(measurements, domain)
    estimation = import_module("mbi.estimation")
    from_2_0 = hasattr(estimation, "MirrorDescent")
    descent = estimation.MirrorDescent().estimate if from_2_0 else estimation.mirror_descent
    descend = partial(descent, domain, measurements, known_total=float(cells.sum()), iters=1000)
    x, task = answer_from(problem, silent(descend)), f"{_task(shape)}, standard deviation 2, cells around 40"
    yield Case("private-pgm, mirror descent", task, problem, y, x, descend)


SYSTEMS: dict[str, Callable[[Any], Iterator[Case]]] = {  # by their repositories
    "JordanAwan/SeaBlue": sea_blue,
    "dpcomp-org/hdmm": hdmm,
    "cmla-psu/ResidualPlannerPlus": residual_planner,
    "google-research/census-bluedown": blue_down,
    "ryan112358/private-pgm": private_pgm,
}


def source_of(repository: str, folder: Path | None) -> Path:
    """Where a system's clone lies.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    if folder is None or not (own := folder / repository.partition("/")[2]).is_dir():
        raise FileNotFoundError(f"no clone of it in {folder or 'any folder: give --peers'}")
    return own
