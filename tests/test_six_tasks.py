"""Six tasks, before and now: both do the same, and the page says how many lines of a user's each takes."""

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from constraint_builders import Problem, Schema, gallery
from tests.helpers import six_tasks
from tests.helpers.places import DOCS

FRAME = pd.DataFrame(
    {
        "sex": ["total", "female", "male", "female", "female", "male", "male"],
        "age": ["total", "total", "total", "young", "old", "young", "old"],
        "estimate": ["4526", "1835", "2688", "813", "1020", "(D)", "1604"],
        "moe": ["*****", "12", "15", "9", "11", "", "20"],
    }
)
S_DF = pd.DataFrame({"unique_id": ["total", "east", "west"], "east": [1.0, 1, 0], "west": [1.0, 0, 1]})
Y_HAT_DF = pd.DataFrame(
    {
        "unique_id": ["total", "east", "west"] * 2,
        "ds": [1, 1, 1, 2, 2, 2],
        "AutoETS": [100.0, 58, 47, 104, 60, 49],
        "AutoETS-lo-90": [92.0, 52, 43, 94, 52, 44],
        "AutoETS-hi-90": [108.0, 64, 51, 114, 68, 54],
    }
)
SUMS = {("sex",): [100.0, 97.0], ("sex", "age"): [41.5, 58.5, 47.0, 50.0]}


def marginals() -> tuple[Problem, Any]:
    problem = Problem(Schema(six_tasks.SEX_BY_AGE), {"sex": 4.0, "sex * age": 9.0})
    return problem, problem.vector({"sex": [101.0, 97.5], "sex * age": [[41.0, 59], [47, 50]]})


def test_published_tables() -> None:
    before, now = six_tasks.published_before(FRAME), six_tasks.published_now(FRAME)
    columns = ["estimate", "std_error", "lower", "upper"]
    np.testing.assert_allclose(now.select(columns), before.select(columns), rtol=1e-12, atol=1e-9)


def test_forecasts() -> None:
    before, now = (own(Y_HAT_DF, S_DF) for own in (six_tasks.forecasts_before, six_tasks.forecasts_now))
    np.testing.assert_allclose(now, before, rtol=1e-12)


def test_a_release() -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    measurement = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), scale=4.0)
    given = measurement, [101, 97], [41, 59, 47, 50], 2.0
    for now, before in zip(six_tasks.released_now(*given), six_tasks.released_before(*given), strict=True):
        np.testing.assert_allclose(now, before, rtol=1e-6)  # a privacy map is rounded upwards


def test_a_foreign_estimate() -> None:
    before, now = (own(*marginals(), SUMS) for own in (six_tasks.certified_before, six_tasks.certified_now))
    assert before == pytest.approx(now, rel=1e-6)


@pytest.mark.few(0)
def test_solvers_measured() -> None:
    problems, solvers = {"toy": gallery.toy(), "cube": gallery.cube(3, 3)}, ["two_pass", "cholesky"]
    before, now = six_tasks.measured_before(problems, solvers), six_tasks.measured_now(problems, solvers)
    assert list(before["problem"]) == now["problem"].to_list()
    assert before["error"].max() < 1e-9
    assert now["error"].max() < 1e-9


def test_tables_handed_on(tmp_path: Path) -> None:
    six_tasks.handed_on_before(*marginals(), tmp_path / "before.parquet")
    six_tasks.handed_on_now(*marginals(), tmp_path / "now.parquet")
    before, now = pl.read_parquet(tmp_path / "before.parquet"), pl.read_parquet(tmp_path / "now.parquet")
    for name in ("estimate", "std_error", "lower", "upper"):
        np.testing.assert_allclose(now[name], before[name], rtol=1e-12)


def lines(task: Callable[..., Any]) -> int:
    """Lines of a function's body, without its docstring and imports."""
    body = ast.parse(inspect.getsource(task)).body[0].body  # type: ignore[attr-defined]
    kept = [own for own in body if not (isinstance(own, ast.ImportFrom) or _is_text(own))]
    return sum(own.end_lineno - own.lineno + 1 for own in kept)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_the_page_says_how_many_lines() -> None:
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \|", (DOCS / "other_tools.md").read_text(), re.MULTILINE)
    named = {
        "published tables with margins of error": "published",
        "base forecasts of a hierarchy, M5": "forecasts",
        "a release of OpenDP, or measurements for private-pgm": "released",
        "somebody's estimates": "certified",
        "a solver": "measured",
        "R, DuckDB, Excel": "handed_on",
    }
    tasks = vars(six_tasks)
    counted = {task: [lines(tasks[f"{name}_{when}"]) for when in ("before", "now")] for task, name in named.items()}
    assert {task: [int(before), int(now)] for task, before, now in rows} == counted
