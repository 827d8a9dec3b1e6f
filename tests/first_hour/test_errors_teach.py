"""What newcomers try first: errors that teach, names that are there, and typed results."""

import logging
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse, stats

import blue_solvers
from blue_solvers import SOLVERS, Dense, SolverName, blue, certify, estimate, read_tables
from blue_solvers.cli import main
from blue_solvers.nonnegative import nnls
from blue_solvers.testing import PROPERTIES, check_solver
from constraint_builders import Problem, Schema, gallery
from constraint_builders.files.schema_file import SchemaFile
from noise_mechanisms import add_noise, variance_of
from noise_mechanisms.laws import DiscreteGaussian, DiscreteLaplace
from tests.helpers.every import every
from tests.helpers.places import ROOT
from tests.helpers.refused import refused, refuses

SCHEMA = Schema({"sex": ["f", "m"]})
FRAME = {"sex": ["f", "m"], "value": [1.0, 2.0], "variance": [1.0, 1.0]}


@refused(
    (lambda: Schema(["sex"]), r"variables must be a mapping .* as in {"),
    (lambda: Problem(SCHEMA, ["sex"]), r"with the variance of their noise, as in {'sex': 2.0}.*: got list"),
    (lambda: Problem({"sex": 2}, {"sex": 1.0}), r"begins with a Schema, such as Schema\({'sex': .*: got dict"),
    (lambda: Problem(SCHEMA, {"sex": 1.0}, zeros=["sex"]), r"by table, as in {'sex': \[True, False\]}: got list"),
    (lambda: Problem(SCHEMA, {"sex": 1.0}, equalities=[[1, 1]]), r"a matrix .* and what its rows come to, as in"),
    (lambda: read_tables(FRAME, {"sex": 2}), r"read with a Schema, such as Schema\({'sex': .*: got dict"),
    (lambda: read_tables(FRAME, np.ones(2)), "read with a Schema, .*: got ndarray"),
    (lambda: read_tables(FRAME, SchemaFile(SCHEMA)), r"read with a Schema, .*: got SchemaFile, give its .schema"),
    (lambda: blue(np.ones(3)), r"takes a Problem, .*: got ndarray; .*Problem\(schema, .*from_matrix"),
    (lambda: check_solver("sea_blue"), r"configured solver, such as SeaBlue\(\).*: got 'sea_blue'"),
    (lambda: blue(gallery.toy()) @ sparse.csr_array(np.eye(4)), r"dense vectors, .*: write P @ x.toarray\(\)"),
    (lambda: blue(gallery.toy()) @ {"B": [6, 9, 17]}, r"write P @ problem.vector\(tables\)"),
    (lambda: gallery.toy().vector([6, 9, 17, 29]), r"tables by name, as in {'B': \.\.\.}: got list"),
    error=TypeError,
)
def test_errors_teach(attempt) -> None:
    attempt()


@refused(
    (lambda: Schema({"age": 2}, recodes={"adult": [0, 1]}), r"'adult', .* \('age'\): give recodes of each .*, as in {"),
    (lambda: Problem(SCHEMA, {"sex x age": 1.0}), r"it has 'sex', and ' \* ' joins several"),
    (lambda: estimate(gallery.toy(), np.ones(3)), r"shape \(4,\): got \(3,\); problem.vector\(tables\) makes one"),
    (lambda: blue(gallery.toy()).apply(np.ones(8)), r"shape \(4,\) or \(4, K\) .*: got \(8,\); problem.vector makes"),
    (lambda: add_noise(gallery.toy(), np.ones(3)), "it holds the cells of 'B', 'total' in a row"),
)
def test_values_of_the_wrong_shape_or_name_say_what_to_write(attempt) -> None:
    attempt()


def test_tables_by_name_are_measurements_wherever_a_vector_is() -> None:
    """And a table that was not asked for is missed in words."""
    problem, tables = gallery.toy(), {"B": [6, 9, 17], "total": 29}
    y, est = problem.vector(tables), estimate(gallery.toy(), tables)
    assert certify(problem, tables, est.tables) == certify(problem, y, est)
    assert np.array_equal(nnls(problem, tables).observed, nnls(problem, y).observed)
    both = Problem(Schema({"a": 2, "b": 2}), {"a * b": 1.0, "total": 1.0})
    dataset = xr.Dataset({"a * b": (("b", "a"), [[1.0, 3], [2, 4]]), "total": 10.0})
    assert np.allclose(estimate(both, dataset).values, [1, 2, 3, 4, 10])
    with pytest.raises(KeyError, match="no table 'A' here: there are"):
        est.tables["A"]


def test_nodes_by_label_are_no_tables() -> None:
    """Of variances and of measurements, beside the one table that holds them all."""
    S, nodes = np.array([[1.0, 1.0], [1, 0], [0, 1]]), ["all", "north", "south"]
    variances, y = dict(zip(nodes, [4.0, 9.0, 9.0], strict=True)), dict(zip(nodes, [125.0, 60.0, 57.0], strict=True))
    problem = Problem.from_summing_matrix(pd.DataFrame(S, index=nodes), variances)
    assert problem.variances.tolist() == [4, 9, 9]
    expected = blue(problem) @ np.array([125.0, 60, 57])
    for given in (y, {"x": [125.0, 60, 57]}, [125.0, 60, 57]):
        assert np.allclose(estimate(problem, given).values, expected)
        assert np.allclose(nnls(problem, given).observed, expected)
        assert certify(problem, given, expected).is_proved


def test_a_summing_matrix_takes_a_covariance() -> None:
    S = np.array([[1.0, 1.0], [1, 0], [0, 1]])
    half = np.random.default_rng(0).normal(size=(3, 3))
    Sigma = half @ half.T + np.eye(3)
    y = np.array([9.0, 4.0, 3.0])
    W = np.linalg.inv(Sigma)
    expected = S @ np.linalg.solve(S.T @ W @ S, S.T @ W @ y)
    for covariance in (Sigma, sparse.csr_array(Sigma)):
        P = blue(Problem.from_summing_matrix(S, covariance=covariance))
        assert np.allclose(P @ y, expected)
        assert np.allclose(P.variances(), np.diag(S @ np.linalg.inv(S.T @ W @ S) @ S.T))
    for arguments in ({}, {"variances": 1.0, "covariance": Sigma}):
        refuses(r"give variances, .* or covariance=.*: not both", Problem.from_summing_matrix, S, **arguments)
    refuses(r"covariance must have shape \(3, 3\)", Problem.from_summing_matrix, S, covariance=np.eye(2))


@every("scale", [0.3, 1.0, 2.5, 7.0])
def test_variances_of_mechanisms_by_their_scale(scale: float) -> None:
    points = np.arange(-2000, 2001)
    laplace, gaussian = np.exp(-abs(points) / scale), np.exp(-(points**2) / (2 * scale**2))
    for name, density in (("discrete_laplace", laplace), ("discrete_gaussian", gaussian)):
        assert np.isclose(variance_of(name, scale), (density * points**2).sum() / density.sum())
    assert np.isclose(variance_of("laplace", scale), stats.laplace(scale=scale).var())
    assert np.isclose(variance_of("gaussian", scale), scale**2)
    assert variance_of("discrete_laplace", scale) == DiscreteLaplace(scale).variance
    assert variance_of("discrete_gaussian", scale) == DiscreteGaussian(scale**2).variance
    for wrong in (0, -1.0, np.nan, np.inf, "2"):
        refuses("scale", variance_of, "laplace", wrong)
    refuses("law 'laplacian' is unknown", variance_of, "laplacian", 1.0)


def test_check_solver_says_what_it_checked() -> None:
    report = check_solver(Dense(), gallery.toy())
    assert (report.solver, report.laws, len(report.problems)) == ("dense", PROPERTIES, 1)
    assert report.compared == report.problems
    assert "keeps 13 laws" in str(report)


def test_version_solver_names_and_silence() -> None:
    assert blue_solvers.__version__ == version("blue-solvers")
    assert set(get_args(SolverName)) == set(SOLVERS)
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("blue_solvers").handlers)


def test_what_was_prepared_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="blue_solvers"):
        blue(gallery.toy(), "dense")
    assert "dense prepared in" in caplog.text


WITHOUT_PYAMG = """
import sys
sys.modules["pyamg"] = None
import blue_solvers
from constraint_builders import gallery
P = blue_solvers.blue(gallery.toy())
assert "pyamg" not in [name for name, module in sys.modules.items() if module is not None]
try:
    blue_solvers.blue(gallery.toy(), "multigrid")
except ImportError as error:
    print(error)
"""


def test_only_multigrid_needs_pyamg() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYAMG], capture_output=True, text=True, check=True, cwd=ROOT)
    expected = "multigrid needs pyamg: pip install 'blue-solvers[multigrid]', or use another solver, such as 'auto'"
    assert done.stdout.strip() == expected


@pytest.mark.slow
def test_user_code_passes_mypy() -> None:
    """What is wrong in it is marked, and a mark where nothing is wrong is an error; ``.ci/run`` checks it too."""
    code = ROOT / "tests" / "first_hour" / "typed_user_code.py"
    assert code.read_text().count("# type: ignore[") == 2
    options = ["--strict", "--no-incremental", "--follow-imports=silent", str(code)]
    done = subprocess.run([sys.executable, "-m", "mypy", *options], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_blocks_by_adult_and_race_have_settings_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    races = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")
    cells = [f"{age}_{race}" for age in ("under18", "adult") for race in races]
    lines = [f"44001000100100{block}," + ",".join(str(block + i) for i in range(16)) for block in range(3)]
    Path("blocks.csv").write_text("\n".join([",".join(["geoid", *cells]), *lines, ""]))
    assert main(["simulate", "blocks.csv", "--settings", "blocks_adult_race", "--seed", "1", "--out", "release"]) == 0
    assert main(["estimate", "release", "--out", "result"]) == 0
    assert main(["query", "result", "--all", "--table", "all"]) == 0
    assert "votingage" in capsys.readouterr().out
    assert main(["simulate", "blocks.csv", "--settings", "adult_race", "--out", "other"]) == 2
    assert "no settings 'adult_race': there are pl94_us_persons" in (said := capsys.readouterr().err)
    assert "blocks_adult_race; a file's name ends in .toml" in said
