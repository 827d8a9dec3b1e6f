"""What streaming and stored results make of everything that a problem may have: the best estimate, or a refusal."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from blue_solvers import Dense, blue
from blue_solvers.results.questions import Result
from blue_solvers.results.store import write_result
from blue_solvers.streaming import partition
from blue_solvers.uncertainty import functionals
from constraint_builders import LowRankPlusDiagonal, Problem, Schema, Spine
from constraint_builders.files.settings import parse_settings
from tests.helpers.partitioned import assert_same, streamed
from tests.helpers.places import DOCS

DOCUMENT = DOCS / "scaling.md"
SETTINGS = """
geolevels = ["State", "County", "Tract"]
[variables]
a = 2
b = 3
[recodes]
b.low = "0-1 | 2"
b.ends = "0,2 | 1"
[budget.losses]
total = [1, 1, 1]
"""
SETTINGS = SETTINGS.replace("[budget.losses]", "[budget]\n[budget.losses]")
SCHEMA = parse_settings(SETTINGS, "small").schema
SPINE = Spine([-1, 0, 0, 1, 1, 2], ["State", "County", "County", "Tract", "Tract", "Tract"])
TABLES: dict[str, dict[str, Any]] = {
    "State": {"total": 1.0},
    "County": {"b": 2.0, "detailed": 1.0},
    "Tract": {"detailed": 3.0},
}
BARE = {level: dict.fromkeys(tables) for level, tables in TABLES.items()}
CELLS = Problem(SCHEMA, TABLES, spine=SPINE).observed.size
NEIGHBOURS = sparse.diags_array(
    [np.full(CELLS - 1, 0.1), np.full(CELLS, 2.0), np.full(CELLS - 1, 0.1)], offsets=(-1, 0, 1)
)
SUM = np.ones((1, CELLS))


def on_county(**tables: Any) -> dict[str, dict[str, Any]]:
    return {**TABLES, "County": {"detailed": 1.0, **tables}}


@dataclass(frozen=True)
class Feature:
    """What a problem may have, as the document calls it, and what becomes of it.

    Attributes
    ----------
    name : str
    arguments : dict
        Of `Problem`.
    streamed, stored : str
        Why it is refused; empty if it is supported.
    """

    name: str
    arguments: dict[str, Any]
    streamed: str = ""
    stored: str = ""


DIFFER = "variances differ within a table of a geounit"
CORRELATED = r"its noise is correlated \(assumption A2\)"
FEATURES = [
    Feature("tables and variances by geounit", {"observed": on_county(b=[1.0, 5.0])}),
    Feature("recodes, also crossing ones", {"observed": on_county(low=1.0, ends=2.0)}),
    Feature("geounits that are exact or not measured", {"observed": on_county(b=[0.0, np.inf])}),
    Feature("structural zeros", {"observed": TABLES, "zeros": {("County", "b"): [[1, 0, 0], [0, 0, 0]]}}),
    Feature("any law of the noise", {"observed": TABLES, "noise": "laplace"}),
    Feature("equalities", {"observed": TABLES, "equalities": (SUM, [300.0])}, stored="it has equalities"),
    Feature(
        "equalities of cells not measured",
        {"observed": on_county(b=[np.inf, 1.0]), "equalities": (SUM, [300.0])},
        streamed="its equalities speak of cells that were not measured",
        stored="it has equalities",
    ),
    Feature(
        "cells that are not estimable",
        {
            "observed": {"State": {"detailed": 1.0}, "Tract": {"total": 1.0, "detailed": [np.inf, np.inf, 1.0]}},
            "undetermined": "nan",
        },
        streamed="table .*: it was not measured, and no other measurements determine it",
        stored="table .*: it was not measured",
    ),
    Feature("cells exact in part", {"observed": on_county(b=[[0, 1, 1], [1, 1, 1]])}, DIFFER, DIFFER),
    Feature("cells not measured in part", {"observed": on_county(b=[[np.inf, 1, 1], [1, 1, 1]])}, DIFFER, DIFFER),
    Feature("a variance for every cell", {"observed": on_county(b=[[2, 1, 1], [1, 1, 1]])}, DIFFER, DIFFER),
    Feature("a sparse covariance", {"observed": BARE, "covariance": NEIGHBOURS}, CORRELATED, CORRELATED),
    Feature(
        "a covariance that is an operator",
        {"observed": BARE, "covariance": aslinearoperator(sparse.csr_array(NEIGHBOURS))},
        CORRELATED,
        CORRELATED,
    ),
    Feature(
        "low-rank correlated noise",
        {"observed": BARE, "covariance": LowRankPlusDiagonal(np.ones(CELLS), np.ones((CELLS, 1)))},
        CORRELATED,
        CORRELATED,
    ),
]
NAMES = [feature.name for feature in FEATURES]


def problem_of(feature: Feature) -> tuple[Problem, np.ndarray]:
    arguments = dict(feature.arguments)
    if "zeros" in arguments:
        arguments["zeros"] = {name: np.array(cells, dtype=bool) for name, cells in arguments["zeros"].items()}
    problem = Problem(SCHEMA, spine=SPINE, desired=["detailed", "b", "total"], **arguments)
    M = problem.marginal_matrix()
    counts = np.random.default_rng(1).poisson(9, M.shape[1]).astype(float)
    if problem.zeros is not None:
        counts[problem.zeros.empty[SPINE.members[2]].repeat(2, axis=0).ravel()] = 0
    noisy = np.isfinite(problem.variances) & (problem.variances > 0)
    y = M @ counts + np.where(noisy, np.random.default_rng(2).normal(0, 2, M.shape[0]), 0)
    y[problem.unmeasured] = 0
    return problem, y


@pytest.mark.few(9)
@pytest.mark.parametrize("feature", FEATURES, ids=NAMES)
@pytest.mark.parametrize("at", ["State", "County"])
def test_streaming_supports_it_or_refuses_it_by_name(feature: Feature, at: str, tmp_path: Path) -> None:
    problem, y = problem_of(feature)
    if feature.streamed:
        with pytest.raises(ValueError, match=f"^this problem cannot be streamed: {feature.streamed}"):
            partition(tmp_path / "in", problem, y, at=at)
        assert list(tmp_path.iterdir()) == []
        return
    assert_same(problem, y, blue(problem, Dense()), streamed(tmp_path, problem, y, at=at))


@pytest.mark.few(11)
@pytest.mark.parametrize("feature", FEATURES, ids=NAMES)
@pytest.mark.parametrize("solver", ["auto", "cg"])
def test_results_support_it_or_refuse_it_by_name(feature: Feature, solver: str, tmp_path: Path) -> None:
    problem, y = problem_of(feature)
    P = blue(problem, solver)
    estimate, errors = P @ y + P.offset, np.sqrt(np.maximum(P.variances(), 0))
    if feature.stored:
        with pytest.raises(ValueError, match=f"^this result cannot be stored: {feature.stored}"):
            write_result(tmp_path / "result", P, estimate, errors, parse_settings(SETTINGS, "small"))
        assert list(tmp_path.iterdir()) == []
        return
    write_result(tmp_path / "result", P, estimate, errors, parse_settings(SETTINGS, "small"))
    stored = Result(tmp_path / "result")
    answer = stored.ask(
        "Tract", stored.geounits("Tract", ["3", "5"]), [{}, {"b": ["0", "2"]}, {"a": ["1"], "low": ["2"]}]
    )
    weights = {name: np.zeros((*problem.desired.shape(name), 3)) for name in problem.desired.names}
    chosen = weights["Tract", "detailed"]
    chosen[[0, 2], :, :, 0] = 1
    chosen[[0, 2], :, 0, 1] = chosen[[0, 2], :, 2, 1] = 1
    chosen[[0, 2], 1, 2, 2] = 1
    expected = functionals(blue(problem, Dense()), y, problem.desired.vector(weights))
    np.testing.assert_allclose(answer.estimate, expected.estimate, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(answer.covariance, expected.covariance, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(Schema({"a": 2}), {"a": 1.0}),
        Problem.from_matrix([[1.0, -1.0]], [1.0, 1.0]),
        Problem.from_summing_matrix([[1, 1], [1, 0], [0, 1]], 1.0),
    ],
)
def test_without_a_spine_both_refuse(problem: Problem, tmp_path: Path) -> None:
    y = np.zeros(problem.observed.size)
    P = blue(problem)
    with pytest.raises(ValueError, match="only a problem on a spine"):
        partition(tmp_path / "in", problem, y, at="x")
    with pytest.raises(ValueError, match="this result cannot be stored: it has no spine of geounits"):
        write_result(tmp_path / "result", P, P @ y, P.variances(), parse_settings(SETTINGS, "small"))


def test_results_refuse_another_schema(tmp_path: Path) -> None:
    problem, y = problem_of(FEATURES[0])
    P = blue(problem)
    other = parse_settings(SETTINGS.replace("b = 3", "b = 4").replace("| 2", "| 2-3").replace("| 1", "| 1,3"), "other")
    with pytest.raises(ValueError, match="its schema is not that of the settings"):
        write_result(tmp_path / "result", P, P @ y, np.sqrt(P.variances()), other)


def test_the_document_says_the_same() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+ \| [^|]+ \| [^|]+) \|$", DOCUMENT.read_text(), re.MULTILINE))
    for feature in FEATURES:
        cluster = feature.streamed or (feature.name == "equalities")
        said = ["refused" if refused else "yes" for refused in (feature.streamed, cluster, feature.stored)]
        assert rows[feature.name] == " | ".join(said), feature.name
