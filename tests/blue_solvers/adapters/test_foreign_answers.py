"""Others' estimates in the shapes that they come in, laid out and judged."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from blue_solvers import estimate
from blue_solvers.adapters import answer_from, judge
from constraint_builders import Problem, Schema, Spine
from tests.helpers.every import cases, every
from tests.helpers.refused import refuses

SCHEMA = Schema({"sex": ["f", "m"], "age": ["a", "b", "c"]}, {"age": {"adult": ["minor", "grown", "grown"]}})
PROBLEM = Problem(SCHEMA, {"total": 1.0, "age * sex": 4.0, "sex": 2.0})
Y = np.array([30.0, 1, 2, 3, 4, 5, 6, 11, 13])
BEST = estimate(PROBLEM, Y)
TURNED = Problem(SCHEMA, {"total": 1.0, "age * sex": 4.0, "sex": 2.0}, ["sex", "sex * age", "total"])
DETAIL = BEST.tables["age * sex"].T  # sex, age


class Model(Mapping[Any, Any]):
    """As private-pgm's: a mapping of its cliques, whose projection has a data vector."""

    def __getitem__(self, clique: Any) -> Any:
        return {(): self.project(())}[clique]

    def __iter__(self) -> Iterator[Any]:
        return iter([()])

    def __len__(self) -> int:
        return 1

    def project(self, attrs: tuple[str, ...]) -> Any:
        own = {(): DETAIL.sum(), ("age", "sex"): DETAIL.T, ("sex",): DETAIL.sum(axis=1)}[tuple(attrs)]
        return SimpleNamespace(datavector=lambda: np.ravel(own))


def planner(bases: list[str]) -> Any:
    """As ResidualPlanner+'s."""
    answers = {(): [[DETAIL.sum()]], (0,): DETAIL.sum(axis=1), (0, 1): DETAIL.ravel()}
    own = {att: SimpleNamespace(get_noisy_answer_vector=lambda a=a: np.asarray(a)) for att, a in answers.items()}
    return SimpleNamespace(marg_dict=own, bases=bases)


def flat() -> dict[tuple[str, ...], Any]:
    """As SEA BLUE's."""
    return {(): [DETAIL.sum()], ("sex", "age"): DETAIL.ravel().tolist(), ("sex",): DETAIL.sum(axis=1)}


SHAPES: dict[str, Callable[[], Any]] = {
    "vector": lambda: BEST.values,
    "estimate": lambda: BEST,
    "estimate of other tables": lambda: estimate(TURNED, Y),
    "tables": lambda: BEST.tables,
    "transposed": lambda: {"sex * age": DETAIL, "total": DETAIL.sum(), "sex": DETAIL.sum(axis=1), "age": [0.0, 0, 0]},
    "flat lists by tuples": flat,
    "model": Model,
    "planner": lambda: planner(["I", "I"]),
    "own frame": lambda: BEST.to_frame(),
    "pandas": lambda: pd.DataFrame(BEST.to_frame().to_dict(as_series=False)).rename(columns={"std_error": "cv"}),
    "shuffled": lambda: BEST.to_frame().sample(fraction=1, shuffle=True, seed=2),
}


@every("kind", SHAPES)
def test_an_answer_in_any_shape(kind: str) -> None:
    np.testing.assert_allclose(answer_from(PROBLEM, SHAPES[kind]()), BEST.values, rtol=1e-12)


def test_flat_lists_whose_first_variable_goes_fastest() -> None:
    source = {**flat(), ("sex", "age"): DETAIL.T.ravel().tolist()}
    np.testing.assert_allclose(answer_from(PROBLEM, source, order="F"), BEST.values, rtol=1e-12)
    np.testing.assert_allclose(answer_from(PROBLEM, BEST.tables, order="F"), BEST.values, rtol=1e-12)
    assert abs(answer_from(PROBLEM, source) - BEST.values).max() > 0.1
    problem, y = geography()
    own = {name: own.reshape(len(own), -1, order="F") for name, own in estimate(problem, y).tables.items()}
    np.testing.assert_allclose(answer_from(problem, own, order="F"), estimate(problem, y).values)
    refuses("order must be 'C' or 'F': got 'A'", answer_from, PROBLEM, BEST.values, order="A")


def test_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "answer.npz", **{"sex * age": DETAIL, "total": DETAIL.sum(), "sex": DETAIL.sum(axis=1)})
    BEST.to_frame().write_csv(tmp_path / "answer.csv")
    for name in ("answer.npz", "answer.csv"):
        np.testing.assert_allclose(answer_from(PROBLEM, tmp_path / name), BEST.values, rtol=1e-12)


def geography() -> tuple[Problem, np.ndarray]:
    spine = Spine.from_geoids(["440010301001000", "440010301001001", "440030201011000"])
    observed = {"County": {"total": 1.0, "sex * adult": 2.0}, "State": {"sex * age": 3.0}}
    problem = Problem(SCHEMA, spine=spine, observed=observed)
    return problem, np.random.default_rng(1).normal(20, 2, problem.observed.size)


def test_rows_of_arrays_by_query_shape(tmp_path: Path) -> None:
    problem, y = geography()
    est = estimate(problem, y)
    tables = est.tables
    counties = [
        {"geocode": code, "query_shape": shape, "value": tables["County", table][i].ravel().tolist()}
        for i, code in [(1, "44003"), (0, "44001")]
        for shape, table in [((1, 1), "total"), ((2, 2), "sex * adult")]
    ]
    state = [{"geocode": "44", "query_shape": (2, 3), "value": tables["State", "sex * age"][0].ravel().tolist()}]
    source = {"County": pl.DataFrame(counties), "State": pl.DataFrame(state)}
    np.testing.assert_allclose(answer_from(problem, source), est.values)
    np.testing.assert_allclose(answer_from(problem, est.to_frame()), est.values)
    np.savez(tmp_path / "all.npz", **{f"{level}: {table}": own for (level, table), own in tables.items()})
    np.testing.assert_allclose(answer_from(problem, tmp_path / "all.npz"), est.values)
    with pytest.raises(ValueError, match=r"table 'sex \* adult' of County '44001' is missing"):
        answer_from(problem, {**source, "County": pl.DataFrame(counties[:3])})
    with pytest.raises(ValueError, match="table 'total' of County '44003' is given twice"):
        answer_from(problem, {**source, "County": pl.DataFrame([*counties, counties[0]])})
    with pytest.raises(ValueError, match="0 factors of 'age' have 4 levels"):
        answer_from(problem, {"State": pl.DataFrame([{"geocode": "44", "query_shape": (2, 4), "value": [0.0] * 8}])})


def test_judgement_is_the_distance_in_standard_errors() -> None:
    """Of a consistent answer: the largest over all combinations of cells, worked out densely."""
    rng = np.random.default_rng(5)
    other = DETAIL + rng.normal(0, 0.1, DETAIL.shape)
    wrong = {"total": other.sum() + 1, "sex": other.sum(axis=1), "sex * age": other}
    consistent = {"total": other.sum(), "sex": other.sum(axis=1), "sex * age": other}
    found = judge(PROBLEM, Y, {"best": BEST, "consistent": consistent, "inconsistent": wrong})
    assert found["answer"].to_list() == ["best", "consistent", "inconsistent"]
    cells = np.eye(6).reshape(2, 3, 6)
    M = np.concatenate([np.ones((1, 6)), cells.transpose(1, 0, 2).reshape(6, 6), cells.sum(axis=1)])
    information = M.T @ np.diag([1, *[1 / 4] * 6, 1 / 2, 1 / 2]) @ M
    apart = (other - DETAIL).ravel()
    distance = np.sqrt(apart @ information @ apart)
    assert found["distance"][0] < 1e-12
    assert distance * (1 - 1e-9) <= found["distance"][1] <= 1.01 * distance
    assert found["disagreement"][1] < 1e-12 < 0.1 < found["disagreement"][2]


@cases(
    ({"total": 3.0, "sex": [1.0, 2]}, r"table 'age \* sex' is missing: there are 'total', 'sex'"),
    ({"total": 3.0, "sex": [1.0, 2, 3]}, "table 'sex' must have 2 cells: got 3"),
    ({**flat(), "sex": [[1.0], [2]]}, "'sex' is given twice: give it once"),
    ({"total": 3.0, "sex": [[1.0], [2]]}, r"'sex' must have shape \(2,\), or be flat: got \(2, 1\)"),
    ({"total": 3.0, "sex * age": np.ones((3, 2))}, r"must have shape \(2, 3\), or be flat: got \(3, 2\)"),
    (estimate(Problem(SCHEMA, {"sex * age": 1.0}, ["sex"]), np.ones(6)), "no values for 'total'"),
    (estimate(Problem(Schema({"sex": 2}), {"sex": 1.0}), np.ones(2)), "the answer is over tables of other cells"),
    ([1.0, 2], r"must have shape \(9,\): got \(2,\)"),
    (planner(["I", "P"]), r"all its bases are 'I': it has \['I', 'P'\]"),
    (pl.DataFrame({"table": ["total"], "figure": [1.0]}), "no column is the answer: call it 'estimate'"),
)
def test_what_is_wrong_is_named(source: Any, message: str) -> None:
    refuses(message, answer_from, PROBLEM, source)
    refuses("answer 'theirs': ", judge, PROBLEM, Y, {"theirs": source})


def test_what_is_no_answer() -> None:
    refuses("an answer is arrays, tables, a model or a planner: got int", answer_from, PROBLEM, 3, error=TypeError)
    refuses("'sox' is no variable", answer_from, PROBLEM, BEST.values, variables=["sox"])
    empty = SimpleNamespace(marg_dict={(0,): SimpleNamespace(get_noisy_answer_vector=lambda: None)}, bases=["I"])
    refuses(r"the planner has no answer of \('sex',\)", answer_from, PROBLEM, empty)
