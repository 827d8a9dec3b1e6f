"""Two counties as parts that need more than a limit of memory."""

from pathlib import Path

import numpy as np

from blue_solvers.streaming import partition_source
from constraint_builders import Problem, Schema, Spine
from tests.helpers.spines import consistent_measurements

COUNTY_TABLES = {"a * b": 1.0, "a * c": 2.0, "detailed": [4.0, 1.0], "total": [0.0, 5.0], "a": [0.0, 5.0]}


def write_counties(folder: Path, off: float = 0.0) -> tuple[Problem, np.ndarray, float]:
    """Two counties as parts, with tables known exactly, and a limit of memory that they need more than."""
    schema = Schema({"a": 4, "b": 5, "c": 6})
    spine = Spine([-1, 0, 0], ["State", "County", "County"], ["44", "44001", "44003"])
    observed = {"State": {"detailed": 2.0}, "County": COUNTY_TABLES}
    problem = Problem(schema, observed, spine=spine)
    y = consistent_measurements(problem, 4)
    tables = problem.observed.tables(y.copy())
    tables["County", "a"][0, 1] += off

    def read(level: str, table: str, ranks: np.ndarray) -> np.ndarray:
        return tables[level, table][ranks]

    cut = partition_source(folder, schema, spine, observed, None, read, at="County")
    return problem, y, max(entry.bytes for entry in cut.parts.values()) - 2000.0
