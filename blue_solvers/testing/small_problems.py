"""Problems of every kind, small enough for a dense reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, sparse

from constraint_builders import Areas, Problem, Schema, gallery
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
        "equations": Problem.from_matrix(A, np.array([1.0, 2, 3, 4, 5]), b=np.array([1.0, 2, 3])),
        "equations with an exact cell": Problem.from_matrix(A, np.array([1.0, 0, 3, 4, 5])),
    }


def _correlated(factor: Float) -> Problem:
    covariance = linalg.block_diag(factor @ factor.T, 2.0, 3.0, 4.0)
    covariance[6, 0] = covariance[0, 6] = 0.3
    return Problem(Schema({"a": 2, "b": 3}), {"detailed": None, "a": None, "total": None}, covariance=covariance)
