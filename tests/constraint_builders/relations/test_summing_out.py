"""Summing over variables that a question does not need changes nothing in its answer."""

import numpy as np

from blue_solvers import Dense, blue
from constraint_builders import Problem, Schema, Spine
from constraint_builders.relations.marginals import sum_out
from tests.helpers.every import every

SCHEMA = Schema({"sex": ["f", "m"], "age": 4, "race": 3}, {"age": {"grown": [0, 0, 1, 1], "old": [0, 0, 0, 1]}})
SPINE = Spine([-1, 0, 0, 1, 1, 2], ["State", "County", "County", "Block", "Block", "Block"])


def observed(recoded: bool) -> dict[str, dict[str, np.ndarray]]:
    age = "grown" if recoded else "age"
    return {
        "State": {"total": np.array([0.0]), "sex * race": np.array([2.0]), "race": np.array([3.0])},
        "County": {"detailed": np.array([1.0, np.inf]), age: np.array([2.0, 0.5]), "sex": np.array([np.inf, 4.0])},
        "Block": {"detailed": np.array([5.0, 6.0, 7.0]), f"sex * {age}": np.array([1.0, 2.0, 9.0])},
    }


@every("recoded", [False, True])
@every("table", ["total", "sex", "race", "sex * race"])
def test_variances_stay_what_they_are(table: str, recoded: bool) -> None:
    desired = {"County": [table], "Block": [table]}
    full = blue(Problem(SCHEMA, observed(recoded), desired, spine=SPINE), Dense())
    schema, summed = sum_out(SCHEMA, observed(recoded), table.split(" * "))
    small = blue(Problem(schema, summed, desired, spine=SPINE), Dense())
    assert ("age" in schema.names) == recoded
    assert small.problem.observed.size <= full.problem.observed.size
    assert np.allclose(small.variances(), full.variances(), rtol=1e-10)


def test_tables_that_become_one_are_combined() -> None:
    schema, summed = sum_out(SCHEMA, observed(False), ["sex"])
    assert schema.names == ("sex",)
    assert summed["State"]["total"] == 0
    assert summed["State"]["detailed"] == 6
    assert np.allclose(summed["County"]["detailed"], [12, 4])
    assert np.allclose(summed["Block"]["detailed"], 1 / (1 / np.array([60.0, 72, 84]) + 1 / np.array([4.0, 8, 36])))


def test_one_variable_stays_at_least() -> None:
    schema, summed = sum_out(SCHEMA, observed(False), [])
    assert schema.names == ("sex",)
    assert list(summed["State"]) == ["total", "detailed"]
    assert schema.labels_of("sex") == ("f", "m")
