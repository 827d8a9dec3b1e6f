"""The table of capabilities: what it promises is true, and the README shows it."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

import blue_solvers
from blue_solvers import blue
from constraint_builders import Problem, Schema, Spine
from tests.feature_support.capabilities import as_markdown, capabilities
from tests.helpers.every import every
from tests.helpers.places import README

CAPABILITIES = capabilities()
SCHEMA = Schema({"a": 2, "b": 3}, recodes={"b": {"low": [0, 0, 1]}})
CROSSING = Schema({"b": 3}, recodes={"b": {"x": [0, 0, 1], "y": [0, 1, 0], "z": [0, 1, 1]}})
TABLES = {"a": 1.0, "b": 2.0, "detailed": 3.0}
SPINE = Spine([-1, 0, 0, 1], ["State", "County", "County", "Tract"])
ON_SPINE = {"State": {"total": 1.0}, "County": {"b": 2.0, "detailed": 1.0}, "Tract": {"detailed": 3.0}}
BLOCK = sparse.block_diag([np.eye(2) + 0.3, np.eye(3), np.eye(6) + 0.2], format="csr")
CELLWISE = {"a": [1.0, 2.0], "b": [2.0, 1.0, 1.5], "detailed": 3.0}

CROSSED = [[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0], *np.eye(4).tolist()]
TREE = [[1, 1, 1], [1, 1, 0], *np.eye(3).tolist()]

PROBLEMS = {
    "equal variances": Problem(SCHEMA, TABLES),
    "recodes": Problem(SCHEMA, {**TABLES, "low": 1.0}),
    "crossing recodes": Problem(CROSSING, {"x": 1.0, "y": 2.0, "z": 1.0, "detailed": 3.0}),
    "known exactly, not measured": Problem(SCHEMA, {**TABLES, "total": 0.0, "a * low": np.inf}),
    "cellwise variances": Problem(SCHEMA, CELLWISE),
    "cells not measured": Problem(SCHEMA, {**TABLES, "a": [1.0, np.inf]}),
    "correlated in blocks": Problem(SCHEMA, dict.fromkeys(TABLES), covariance=BLOCK),
    "covariance an operator": Problem(SCHEMA, dict.fromkeys(TABLES), covariance=aslinearoperator(BLOCK)),
    "spine": Problem(SCHEMA, ON_SPINE, spine=SPINE),
    "zeros": Problem(SCHEMA, TABLES, zeros={"detailed": [[True, False, False], [False, False, False]]}),
    "equalities": Problem(SCHEMA, TABLES, equalities=(np.eye(11)[:1], [7.0])),
    "any equations": Problem.from_matrix([[1.0, -1.0, -1.0]], [1.0, 2.0, 3.0]),
    "summing matrix, a tree": Problem.from_summing_matrix(TREE, 1.0),
    "summing matrix, crossed": Problem.from_summing_matrix(CROSSED, 1.0),
}

AROUND = 'ConjugateGradient(preconditioner="two_pass")'
BY_EQUATIONS = {"cholesky", "cg", "multigrid", "dense"}
EVERY = BY_EQUATIONS | {AROUND, "sea_blue", "two_pass"}  # solvers that join are held to what they say by `check_solver`

EXACT = {
    "equal variances": EVERY,
    "recodes": EVERY,
    "crossing recodes": EVERY,
    "known exactly, not measured": EVERY,
    "cellwise variances": BY_EQUATIONS | {AROUND},
    "cells not measured": BY_EQUATIONS | {AROUND},
    "correlated in blocks": BY_EQUATIONS | {AROUND},
    "covariance an operator": {"cg", "dense"},
    "spine": EVERY - {"sea_blue"},
    "zeros": EVERY - {"sea_blue"},
    "equalities": EVERY - {"sea_blue"},
    "any equations": BY_EQUATIONS,
    "summing matrix, a tree": BY_EQUATIONS | {"two_pass"},
    "summing matrix, crossed": BY_EQUATIONS,
}


def reference(problem: Problem, y: np.ndarray) -> np.ndarray:
    """The projection onto A x = b, dense."""
    A, b = (part.toarray() if sparse.issparse(part) else part for part in problem.equations())
    if problem.completion is not None:
        y = np.where(problem.unmeasured, 0.0, y)
    Sigma = problem.noise_covariance @ np.eye(problem.observed.size)
    x = y - Sigma @ A.T @ np.linalg.pinv(A @ Sigma @ A.T) @ (A @ y - b)
    if problem.completion is not None:
        C, c = problem.completion
        x = C @ x + c
    return problem.tabulate(x[:, None])[:, 0]


@every("name", PROBLEMS)
def test_each_solver_is_exact_for_what_the_table_says(name: str) -> None:
    problem = PROBLEMS[name]
    assert {c.call for c in CAPABILITIES if c.refusal(problem) is None} & EVERY == EXACT[name]
    y = problem.tabulate_transpose(np.ones((problem.desired.size, 1)))[:, 0] * 3 + np.arange(problem.observed.size)
    y[problem.exact] = 50.0
    expected = reference(problem, y)
    for capability in CAPABILITIES:
        if capability.refusal(problem) is None:
            P = blue(problem, capability.solver)
            np.testing.assert_allclose(P @ y + P.offset, expected, atol=1e-7, err_msg=capability.call)
            assert P.info.exact


@every("capability", CAPABILITIES)
def test_the_call_makes_the_solver(capability: object) -> None:
    call = capability.call  # type: ignore[attr-defined]
    solver = (
        eval(call, {own.__name__: own for own in blue_solvers.SOLVERS.values()})
        if "(" in call
        else blue_solvers.SOLVERS[call]()
    )
    assert solver == capability.solver  # type: ignore[attr-defined]


def test_every_solver_but_auto_is_in_the_table() -> None:
    assert {c.solver.name for c in CAPABILITIES} == set(blue_solvers.SOLVERS) - {"auto"}


def test_readme_shows_the_table() -> None:
    assert as_markdown() in README.read_text()
