"""A user's program under strict types: what mypy must find wrong is marked, and nothing else is."""

import numpy as np

from blue_solvers import blue
from constraint_builders import Problem, Schema

problem = Problem(Schema({"sex": 2}), {"sex": 1.0, "total": 2.0})
y = problem.vector({"sex": np.array([1.0, 2.0]), "total": 3.0})
P = blue(problem, "dense")
tables: dict[str, np.ndarray] = problem.desired.tables(P @ y)
again = problem.observed.vector(problem.observed.tables(y))
print(tables["sex"].sum(), again.mean())


def wrong() -> None:
    """Nobody calls it."""
    blue(problem, "dence")  # type: ignore[arg-type]
    Problem({"sex": 2}, {"sex": 1.0})  # type: ignore[arg-type]
