"""Areas that cross inside the areas of one layer, streamed: beside exact arithmetic, and the same in memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import UnsupportedProblemError, blue
from blue_solvers.streaming import Partitions, partition, stream
from constraint_builders import Areas, Problem, Schema
from constraint_builders.description.table import parse_table
from tests.helpers.effort import examples
from tests.helpers.oracles.compare import EPSILON, ROUNDING, largest
from tests.helpers.oracles.invent import Invented, Kind, invent
from tests.helpers.partitioned import KILL_AFTER, digests
from tests.helpers.places import ROOT

CUT = Kind(areas="cut", zeros=False, equalities=False)
SEEDS = st.integers(0, 100_000)
SCHEMA = Schema({"sex": 2, "age": 5}, recodes={"age": {"adult": [0, 0, 1, 1, 1]}})
BLOCKS = np.arange(24)
LAYERS = {
    "County": BLOCKS // 12,
    "Tract": BLOCKS // 6,
    "Group": 10 * (BLOCKS // 6) + (BLOCKS % 6) // 2,
    "Other": 10 * (BLOCKS // 6) + (BLOCKS % 6 + 1) // 3,
}
MEASURED = {
    "County": {"total": 0.0, "adult": 2.0},
    "Tract": {"sex": 3.0, "adult": 1.0},
    "Group": {"sex * adult": 4.0},
    "Other": {"age": 2.0},
    "Leaf": {"total": 0.5, "detailed": 9.0},
}


def some(seed: int) -> Invented:
    """The first problem that can be estimated, of a seed or those after it."""
    return next(found for s in range(seed, seed + 60) if (found := invent(s, CUT)) is not None)


def invented(layers: dict = LAYERS, measured: dict = MEASURED, **options) -> Problem:
    return Problem(SCHEMA, measured, areas=Areas(BLOCKS.size, layers), **options)


def streamed(problem: Problem, out: Path, what: str) -> np.ndarray:
    """What the files of a run say, over the desired layout."""
    tables = {}
    for layer, name in problem.desired.names:
        frame = pl.concat([pl.read_parquet(path) for path in sorted((out / f"{layer}.parquet").glob("*"))])
        table = parse_table(problem.schema, name)
        frame = frame.filter(pl.col("table") == table.in_schema_order().name)
        codes = list(problem.areas.names(layer))
        assert sorted(frame["geocode"]) == sorted(codes)
        row = dict(zip(frame["geocode"], frame[what].to_list(), strict=True))
        cells = np.array([row[code] for code in codes]).reshape(len(codes), -1)
        if table.is_turned:
            cells = cells[:, table.places_in(table.in_schema_order())]
        tables[layer, name] = cells.reshape(problem.desired.shape((layer, name)))
    return problem.desired.vector(tables)


def run(problem: Problem, y: np.ndarray, folder: Path, **cut) -> tuple[np.ndarray, np.ndarray]:
    partition(folder / "in", problem, y, **cut)
    stream(folder / "in", folder / "out")
    return streamed(problem, folder / "out", "estimate"), streamed(problem, folder / "out", "std_error") ** 2


@examples(60, 25)
@given(seed=SEEDS)
def test_beside_exact_arithmetic(seed: int) -> None:
    """At every layer at which the areas can be cut; some of them are unmeasured, exact, empty or weighted."""
    found = some(seed)
    problem, reference = found.description.problem(), found.reference
    floor = ROUNDING * EPSILON * largest(found)
    cuts = 0
    for layer in problem.areas.levels:
        with tempfile.TemporaryDirectory() as folder:
            try:
                x, variances = run(problem, found.y, Path(folder), at=layer)
            except UnsupportedProblemError as error:
                assert "cut at" in str(error)
                continue
        cuts += 1
        assert (abs(x - reference.estimate) <= 1e-8 * reference.std_errors + floor).all()
        known = reference.variances == 0
        assert (abs(variances - reference.variances)[~known] <= 1e-7 * reference.variances[~known]).all()
        assert (variances[known] <= 1e-12).all()
    assert cuts
