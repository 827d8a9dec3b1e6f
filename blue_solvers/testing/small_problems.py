"""Problems of every kind, small enough for a dense reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, sparse

from constraint_builders import Areas, Problem, Schema, Spine, gallery
from constraint_builders.arrays import Float


def problems() -> dict[str, Problem]:
    """Small problems by name, one for every kind of description.

    Returns
    -------
    dict of str to Problem
    """
    schema = Schema({"a": 3, "b": 2, "c": 4}, recodes={"c": {"halves": [0, 1, 1, 0]}})
    rng = np.random.default_rng(0)
    unequal = {"a * b": rng.uniform(1, 30, (3, 2)), "b * c": rng.uniform(1, 3, (2, 4)), "b": 2.0, "total": 5.0}
    partly = unequal | {"b * c": np.array([[1, np.inf, 2, 3], [1, 1, np.inf, 0]]), "c": 4.0}
    full = {"total": 1.0, "a": 2.0, "b": 3.0, "a * b": 4.0, "detailed": 5.0}
    areas = Areas(
        6,
        {
            "Region": [0, 0, 0, 1, 1, 1],
            "Product": ["x", "y", "y", "x", "y", "y"],
            "Weighed": [[0.5, 0.0, 2.0, 0.0, 0.0, -1.0], [1.0, 1.0, 0.0, 0.0, 1.0, 0.0]],
        },
    )
    on_areas: dict[str, dict[str, Any]] = {
        "Region": {"total": 0.0, "halves * b": 3.0},
        "Product": {"a": [2.0, np.inf], "c": 1.0},
        "Weighed": {"detailed": 5.0},
        "Region * Product": {"b": 0.5},
        "Leaf": {"detailed": 4.0, "a": 1.0},
    }
    A = np.array([[1.0, 1, 1, -1, 0], [0, 0, 1, 1, 1], [1, 1, 2, 0, 1]])
    factor = np.eye(6) + np.diag(np.full(5, 0.4), 1)
    return {
        "toy": gallery.toy(),
        "cube(2, 3)": gallery.cube(2, 3),
        "cube(3, 2)": gallery.cube(3, 2),
        "berkeley": gallery.berkeley(),
        "delinquent_children": gallery.delinquent_children(),
        "without total and detailed": Problem(schema, {"a * b": 1.0, "b * c": 0.01, "a * c": 50.0}, "all"),
        "one table": Problem(schema, {"a * b": 3.0}, ["a", "total"]),
        "recodes": Problem(schema, {"a * halves": 1.0, "halves * b": 3.0, "c": 2.0, "total": 0.5}),
        "exact total": Problem(schema, full | {"total": 0.0}),
        "exact tables": Problem(schema, full | {"total": 0.0, "a * b": 0.0}),
        "unmeasured table": Problem(schema, full | {"a * b": np.inf}),
        "unequal variances": Problem(schema, unequal),
        "unequal variances, exact total": Problem(schema, unequal | {"total": 0.0}, ["a", "b * c", "total"]),
        "exact and unmeasured cells": Problem(schema, partly),
        "correlated": Problem(
            Schema({"a": 2, "b": 3}),
            {"detailed": None},
            covariance=sparse.csr_array(factor @ factor.T),
            desired=["a", "detailed"],
        ),
        "correlated tables": _correlated(factor),
        "areas that cross": Problem(schema, on_areas, areas=areas.cross("Region", "Product"), desired="all"),
        "areas that nest": Problem(
            schema, {"Region": {"b": 2.0, "total": 0.0}, "Leaf": {"detailed": 1.0}}, areas=areas, desired="all"
        ),
        **_with_equalities(schema, areas, on_areas),
        "equations": Problem.from_matrix(A, np.array([1.0, 2, 3, 4, 5]), b=np.array([1.0, 2, 3])),
        "equations with an exact cell": Problem.from_matrix(A, np.array([1.0, 0, 3, 4, 5])),
    }


def _with_equalities(schema: Schema, areas: Areas, on_areas: dict[str, dict[str, Any]]) -> dict[str, Problem]:
    """Sums of observed cells that are known, some of them following from others, of which not all are 0."""
    rng = np.random.default_rng(1)
    flat = {"total": 2.0, "a": 2.0, "a * halves": 3.0, "b * c": 1.0, "detailed": 9.0}
    partly = {"total": 0.0, "a": [1.0, np.inf, 2.0], "b": [0.0, 3.0], "detailed": 5.0}
    cellwise = {"a": [1.0, 4.0, 9.0], "b * c": rng.uniform(1, 3, (2, 4)), "detailed": 9.0}
    spine = Spine([-1, 0, 0, 1, 1, 2], ["State", "County", "County", "Block", "Block", "Block"])
    on_spine = {"State": {"total": 1.0}, "County": {"b": 2.0}, "Block": {"detailed": 3.0, "a": 1.0}}
    crossed = areas.cross("Region", "Product")
    cases = {
        "equalities": Problem(schema, flat),
        "equalities, other tables desired": Problem(schema, flat, ["b", "halves", "a * b"]),
        "equalities, exact and unmeasured cells": Problem(schema, partly),
        "equalities, unequal variances": Problem(schema, cellwise),
        "equalities, structural zeros": Problem(schema, flat, zeros={"a * b": np.eye(3, 2, dtype=bool)}),
        "equalities on a spine": Problem(schema, on_spine, spine=spine, desired="all"),
        "equalities on areas that cross": Problem(schema, on_areas, areas=crossed),
    }
    return {name: _with_sums(problem, rng) for name, problem in cases.items()}


def _with_sums(problem: Problem, rng: np.random.Generator) -> Problem:
    """A problem whose equalities some whole counts satisfy: a cell, a sum, a weighted one, and one that follows."""
    n, noisy = problem.observed.size, np.flatnonzero(~(problem.exact | problem.unmeasured))
    counts = rng.integers(0, 30, problem.domain.size).astype(float)
    if problem.zeros is not None:
        counts[problem.zeros.detailed(problem.domain.leaves)] = 0
    E = np.zeros((4, n))
    E[0, noisy[-1]] = 1.0
    E[1, rng.choice(noisy, 5, replace=False)] = 1.0
    E[2] = rng.integers(-2, 3, n) * (rng.random(n) < 0.2)
    E[3] = E[0] - 2 * E[1]
    return problem.replace(equalities=(sparse.csr_array(E), E @ (problem.marginal_matrix() @ counts)))


def _correlated(factor: Float) -> Problem:
    """A problem whose noise has the covariance F F' in its detailed cells, of a factor F, (6, 6), and a little more."""
    covariance = linalg.block_diag(factor @ factor.T, 2.0, 3.0, 4.0)
    covariance[6, 0] = covariance[0, 6] = 0.3
    return Problem(Schema({"a": 2, "b": 3}), {"detailed": None, "a": None, "total": None}, covariance=covariance)
