"""Exact standard errors are stored as if they had been given."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from blue_solvers import SolverName, blue
from blue_solvers.results.proof import Description
from blue_solvers.results.questions import Result
from blue_solvers.results.store import write_result
from constraint_builders import Problem, Spine
from constraint_builders.files.settings import parse_settings
from noise_mechanisms.laws import Rounding
from tests.helpers.every import every

SETTINGS = """
geolevels = ["State", "County"]
[variables]
sex = 2
age = 3
[recodes.age]
adult = ["no", "yes", "yes"]
[budget.losses]
total = ["1/2", "1/2"]
"""


@pytest.mark.parametrize("table", ["sex * age", "age * sex"])
@pytest.mark.parametrize("desired", [None, ["sex", "total"]])
def test_errors_worked_out_while_writing_are_the_exact_ones(
    tmp_path: Path, table: str, desired: list[str] | None
) -> None:
    spine = Spine([-1, 0, 0, 0], ["State", *["County"] * 3], ["1", "11", "12", "13"])
    settings = parse_settings(SETTINGS, "own")
    observed = {"State": {"total": 1.0}, "County": {table: [1.0, 2.0, 3.0], "age": 2.0}}
    problem = Problem(settings.schema, observed, desired, spine=spine)
    P, y = blue(problem), np.arange(float(problem.observed.size))
    with pytest.raises(ValueError, match="estimate must have shape"):
        write_result(tmp_path / "longer", P, np.append(P @ y, 1.0), None, settings)
    write_result(tmp_path / "given", P, P @ y, np.sqrt(P.variances()), settings)
    write_result(tmp_path / "worked_out", P, P @ y, None, settings)
    given, found = (Result(tmp_path / name).description.files for name in ("given", "worked_out"))
    assert given == found


@every("solver", ["two_pass", "cholesky", "dense"])
def test_sums_are_of_tables_that_were_estimated(tmp_path: Path, solver: SolverName) -> None:
    """Nothing determines the ages, and with them the levels of the variables that both counts name."""
    settings = parse_settings(SETTINGS, "own")
    spine = Spine([-1, 0, 0], ["State", "County", "County"], ["1", "11", "12"])
    observed = {"State": {"sex * adult": 1.0}, "County": {"adult": 2.0, "sex": 3.0}}
    P = blue(Problem(settings.schema, observed, {"County": ["adult", "sex"]}, spine=spine), solver)
    y = np.arange(float(P.shape[1]))
    write_result(tmp_path / solver, P, P @ y, None, settings)
    stored = Result(tmp_path / solver)
    answer = stored.ask("County", stored.geounits("County", ["12"]), [{"adult": ["yes"]}, {"sex": ["0"]}, {}])
    adults, sexes = (P.problem.desired.block(number) for number in (0, 1))
    W = np.zeros((P.shape[0], 3))
    W[adults, 0], W[sexes, 1], W[adults, 2] = [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 1, 1]
    np.testing.assert_allclose(answer.estimate, W.T @ (P @ y))
    weights = W.T @ (P @ np.eye(P.shape[1]))
    np.testing.assert_allclose(answer.covariance, weights * P.problem.variances @ weights.T, atol=1e-12)


def test_figures_of_a_law_are_not_stored_as_gaussian_noise(tmp_path: Path) -> None:
    """Settings name the noise: of the result its reports would say that of the settings."""
    settings = parse_settings(SETTINGS, "own")
    spine = Spine([-1, 0, 0], ["State", "County", "County"], ["1", "11", "12"])
    observed = {"State": {"total": Rounding(10)}, "County": {"sex * age": Rounding(10)}}
    P = blue(Problem(settings.schema, observed, spine=spine))
    with pytest.raises(ValueError, match=r"its noise is Rounding\(base=10\), which settings have no name for"):
        write_result(tmp_path / "rounded", P, np.zeros(P.shape[0]), None, settings)


def test_what_was_noticed_of_every_product_is_repeated() -> None:
    first, second = ({"remarks": [["missing", f"{number} of them"]]} for number in (1, 2))
    assert described({"read": first}).remarks == [("missing", "1 of them")]
    others = [{"name": name, "settings": "own", "zeros": [], "read": read} for name, read in (("b", second), ("c", {}))]
    joined = {"name": "a", "order": ["a", "b", "c"], "recodes": {}, "others": others}
    assert [text for _, text in described({"read": first, "joined": joined}).remarks] == ["1 of them", "2 of them"]
    assert described({"read": {}}).remarks == []


def described(said: dict[str, Any]) -> Description:
    words = dict.fromkeys(("settings", "noise", "solver", "reason"), "own")
    return msgspec.convert({**words, "exact": True, "zeros": [], "tables": {}, "files": {}, **said}, Description)
