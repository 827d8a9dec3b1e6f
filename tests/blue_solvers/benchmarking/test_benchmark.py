"""Benchmarks of solvers: what is measured, by any solver, interrupted and gone on with."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from scipy.sparse.linalg import LinearOperator

import bench.solvers
import blue_solvers.benchmarking.comparison as comparison
from blue_solvers import SOLVERS, Dense, Prepared, Solver, benchmark, blue, plots
from blue_solvers.benchmarking import COLUMNS_OF_A_ROW
from blue_solvers.benchmarking.one_pair import Costs
from blue_solvers.benchmarking.records import fingerprint
from blue_solvers.cli import main
from blue_solvers.testing import problems
from constraint_builders import Areas, Problem, Schema, gallery
from noise_mechanisms import draw_noise
from tests.helpers.refused import refused, refuses

TABLE = "table,sex,value,variance\ntotal,*,21,1\nsex,female,9,2\nsex,male,11,2\n"


@dataclass(frozen=True)
class Wrong(Solver):
    """The estimate of other variances than the problem's."""

    name: ClassVar[str] = "wrong"

    def refusal(self, problem: Problem) -> str | None:
        return "it has too many cells" if problem.observed.size > 100 else None

    def plan(self, problem: Problem) -> Prepared:
        variances = problem.variances * np.arange(1, problem.observed.size + 1)
        return Dense().plan(problem.with_variances(variances))


@dataclass(frozen=True)
class Sleeper(Wrong):
    name: ClassVar[str] = "sleeper"

    def plan(self, problem: Problem) -> Prepared:
        time.sleep(60)
        raise AssertionError("nobody waited")


@pytest.mark.few(0)
def test_what_is_measured() -> None:
    problems = {"toy": gallery.toy(), "cube": gallery.cube(3, 3)}
    frame = benchmark(problems, ["dense", "sea_blue"], columns=3, alone=False)
    assert tuple(frame.columns) == COLUMNS_OF_A_ROW
    assert frame.select("problem", "solver").rows() == [(p, s) for p in problems for s in ("dense", "sea_blue")]
    assert frame["cells_in"].to_list() == [4, 4, 64, 64]
    assert (frame["status"] == "done").all()
    assert frame["exact"].all()
    assert frame["memory"].is_null().all()
    assert (frame["error"] < 1e-12).all()
    for seconds in ("prepare", "apply", "many_columns", "variances", "copy"):
        assert (frame[seconds] > 0).all()


def test_a_wrong_answer_has_its_error_by_certificate() -> None:
    """The certificate bounds the true error, worked out here by normal equations, from above."""
    problem = Problem(Schema({"sex": 2}), {"total": 1.0, "sex": 4.0})
    frame = benchmark({"one": problem}, [Wrong()], alone=False, seed=5)
    y = draw_noise(problem, 64, np.random.default_rng(5))[:, 0]
    M = np.array([[1.0, 1], [1, 0], [0, 1]])

    def cells(variances: np.ndarray) -> np.ndarray:
        weights = M.T / variances
        return np.linalg.solve(weights @ M, weights @ y)

    variances = np.array([1.0, 4, 4])
    apart = cells(variances) - cells(variances * [1, 2, 3])
    size = np.sqrt(apart @ (M.T / variances) @ M @ apart)  # of the worst combination, in its own standard errors
    assert size > 0.01
    assert size * (1 - 1e-9) <= frame["error"].item() < 1.01 * size


@pytest.mark.few(0)
def test_every_pair_has_a_process_of_its_own() -> None:
    problem = gallery.cube(3, 3)
    frame = benchmark({"cube": problem}, {"mine": Wrong(), "theirs": "dense"}, columns=2)
    assert frame["solver"].to_list() == ["mine", "theirs"]
    assert frame["status"].to_list() == ["done", "done"]
    assert (frame["memory"] >= 0).all()
    assert frame["error"][0] > 1e-3 > frame["error"][1]


@pytest.mark.few(0)
def test_large_matrices_are_seen_in_memory() -> None:
    large, small = benchmark({"large": gallery.cube(4, 4), "small": gallery.toy()}, ["dense"], columns=1)["memory"]
    assert large - small > (5**4 - 4**4) ** 2 * 8  # a row and a column for every constraint


def test_refusals_and_time_limits_are_told() -> None:
    frame = benchmark({"pl94": gallery.pl94()}, [Wrong()], alone=False)
    assert "it has too many cells" in frame["status"].item()
    assert frame["prepare"].item() is None
    frame = benchmark({"toy": gallery.toy()}, [Sleeper()], timeout=3)
    assert frame["status"].item() == "TimeoutError: no answer within 3 s"


def test_a_benchmark_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, problems = tmp_path / "figures.jsonl", {"toy": gallery.toy(), "cube": gallery.cube(2, 3)}
    whole = benchmark(problems, ["dense"], columns=2, alone=False, resume=path)
    lines = path.read_text().splitlines()
    assert [json.loads(line)["problem"] for line in lines] == ["toy", "cube"]
    path.write_text(lines[0] + "\n" + lines[1][:40])  # killed while it wrote
    measured = []

    def figures(problem: Problem, *options: object) -> Costs:
        measured.append(problem)
        return Costs(status="done", apply=7.0)

    monkeypatch.setattr(comparison, "_here", figures)
    again = benchmark(problems, ["dense"], columns=2, alone=False, resume=path)
    assert measured == [problems["cube"]]
    assert again.rows()[0] == whole.rows()[0]
    assert again["apply"][1] == 7.0
    assert len(path.read_text().splitlines()) == 2
    benchmark({"toy": gallery.cube(2, 3)}, ["dense"], columns=2, alone=False, resume=path)  # another of that name
    assert len(measured) == 2


@dataclass(frozen=True)
class Numbered(Wrong):
    number: int = 0


SEX = Schema({"sex": ["female", "male"]})
TABLES = {"total": 1.0, "sex": 2.0}
ALIKE = [
    Problem(SEX, TABLES),
    Problem(Schema({"sex": ["f", "m"]}), TABLES),
    Problem(SEX, TABLES, noise="laplace"),
    Problem(SEX, TABLES, zeros={"sex": np.array([True, False])}),
    Problem(SEX, TABLES, equalities=(np.array([[0.0, 1, -1]]), [0.0])),
    Problem(SEX, TABLES, equalities=(np.array([[0.0, 1, -1]]), [1.0])),
    Problem(SEX, TABLES, truth=[3.0, 1.0, 2.0]),
    Problem(SEX, TABLES, covariance=np.diag([1.0, 2, 2]) + 0.1 * (1 - np.eye(3))),
    Problem(SEX, TABLES, covariance=np.diag([1.0, 2, 2]) - 0.1 * (1 - np.eye(3))),
    Problem.from_matrix([[1.0, -1, -1]], [1.0, 2, 2]),
    Problem.from_matrix([[1.0, 1, -1]], [1.0, 2, 2]),
    Problem.from_matrix([[1.0, 1, -1]], [1.0, 2, 2], b=[1.0]),
    Problem.from_summing_matrix([[1, 1], [1, 0], [0, 1]], [1.0, 2, 2]),
    Problem.from_summing_matrix([[1, 2], [1, 0], [0, 1]], [1.0, 2, 2]),
    Problem(SEX, {"R": TABLES}, areas=Areas(4, {"R": ["N", "N", "S", "S"]})),
    Problem(SEX, {"R": TABLES}, areas=Areas(4, {"R": ["N", "S", "N", "S"]})),
]


def test_what_is_another_problem_or_solver_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All under one name, many of one shape and of the same variances."""
    measured = []

    def figures(*what: object) -> Costs:
        measured.append(what)
        return Costs(status="done", apply=float(len(measured)))

    monkeypatch.setattr(comparison, "_here", figures)
    cases = [(problem, "dense", 2, 0) for problem in ALIKE]
    cases += [(ALIKE[0], Numbered(1), 2, 0), (ALIKE[0], Numbered(2), 2, 0)]
    cases += [(ALIKE[0], "dense", 3, 0), (ALIKE[0], "dense", 2, 1)]
    for _ in range(2):  # what was measured once is not measured again
        said = [
            benchmark({"p": problem}, {"s": solver}, columns=n, seed=seed, alone=False, resume=tmp_path / "f")
            for problem, solver, n, seed in cases
        ]
        assert [frame["apply"].item() for frame in said] == list(range(1, len(cases) + 1))
    assert len(measured) == len(cases)


FINGERPRINTS = """
from blue_solvers.benchmarking.records import fingerprint
from blue_solvers.testing import problems
print(*(fingerprint(problem, "dense", 2, 0, True) for problem in problems().values()))
"""


def test_another_process_knows_every_problem_again() -> None:
    """Whatever the order of its sets, and what was worked out from the problem before."""
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    said = subprocess.run([sys.executable, "-c", FINGERPRINTS], capture_output=True, env=environment, check=True).stdout
    own = problems()
    for problem in own.values():
        blue(problem).variances()
    assert said.decode().split() == [fingerprint(problem, "dense", 2, 0, True) for problem in own.values()]


def test_what_cannot_be_pickled_is_not_resumed(tmp_path: Path) -> None:
    twice = LinearOperator((3, 3), matvec=lambda v: 2 * v, rmatvec=lambda v: 2 * v, dtype=float)
    problem = Problem(SEX, dict.fromkeys(TABLES), covariance=twice)
    given: dict[str, Any] = {"columns": 2, "alone": False, "resume": tmp_path / "f"}
    refuses("leave out resume", benchmark, {"p": problem}, ["cg"], error=TypeError, **given)


@refused(
    (([gallery.toy()],), {}, "problems must have names"),
    (({"toy": 3},), {}, "problem 'toy' is no Problem"),
    (({}, "dense"), {}, "solvers must be several"),
    (({}, ["dens"]), {}, "no solver 'dens': there are"),
    (({}, [3]), {}, "a solver is a name or a configured Solver"),
    (({},), {"columns": 0}, "columns must be 1 or more"),
    (({},), {"timeout": 0}, "timeout must be above 0"),
    error=(TypeError, ValueError),
)
def test_what_is_wrong_is_named(arguments: tuple, options: dict) -> None:
    benchmark(*arguments, **options)


def test_a_solver_that_no_other_process_has() -> None:
    @dataclass(frozen=True)
    class Local(Wrong):
        name: ClassVar[str] = "local"

    refuses("give alone=False", benchmark, {"toy": gallery.toy()}, [Local()], error=TypeError)


@pytest.mark.parametrize("line", ["these are notes", "{}", "3", "[" * 100_000, "{status}"])
def test_a_file_of_something_else_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    wrong = {field.name: 3 for field in fields(Costs)} | {"problem": "a", "solver": "b", "fingerprint": "c"}
    text = line.replace("{status}", json.dumps(wrong)) + "\n"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"notes.txt: line 1 is no record of a benchmark"):
        benchmark({"toy": gallery.toy()}, ["dense"], alone=False, resume=path)
    assert path.read_text() == text


def test_the_plot() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    frame = pl.DataFrame({"solver": ["a", "a", "b"], "cells_in": [9, 3, 4], "apply": [0.2, 0.1, None]})
    ax = plots.benchmark_times(figure.subplots(), frame)
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_xydata(), [[3, 0.1], [9, 0.2]])
    refuses("what must be one of", plots.benchmark_times, ax, frame, "memory")
    refuses("nothing to draw", plots.benchmark_times, ax, frame.filter(pl.col("solver") == "b"))


@pytest.mark.few(0)
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.csv").write_text(TABLE)
    out, plot, kept = tmp_path / "out.parquet", tmp_path / "out.png", tmp_path / "kept.jsonl"
    line = [
        "benchmark",
        "--problem",
        "toy",
        "--table",
        str(tmp_path / "mine.csv"),
        "--solver",
        "dense",
        "--columns",
        "2",
    ]
    assert main([*line, "--out", str(out), "--plot", str(plot), "--resume", str(kept)]) == 0
    assert "toy" in capsys.readouterr().out
    assert pl.read_parquet(out)["status"].to_list() == ["done", "done"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert len(kept.read_text().splitlines()) == 2
    refuses("2", main, [*line, "--columns", "0"], error=SystemExit)
    assert "--columns: must be a whole number of 1 or more: got 0" in capsys.readouterr().err


def test_the_bench_of_this_repository_uses_it() -> None:
    assert bench.solvers.benchmark is benchmark
    assert bench.solvers.SOLVERS is SOLVERS
