"""Equations between tables of areas: all that hold, none twice, and what the measurements determine."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Areas, Problem, Schema
from constraint_builders.true_tables import true_vector
from tests.helpers.effort import examples
from tests.helpers.oracles.invent import invented_areas

SCHEMA = Schema({"a": 2, "b": 3}, recodes={"b": {"g": [0, 1, 1]}})
CELL_OF = {
    "total": lambda a, b: (),
    "a": lambda a, b: (a,),
    "g": lambda a, b: (min(b, 1),),
    "b": lambda a, b: (b,),
    "g * a": lambda a, b: (min(b, 1), a),
    "detailed": lambda a, b: (a, b),
}
SHAPES = {"total": (), "a": (2,), "g": (2,), "b": (3,), "g * a": (2, 2), "detailed": (2, 3)}


def rows_of(table: str, weights: np.ndarray) -> np.ndarray:
    """Rows of a table of areas over (leaves, a, b), written out cell by cell."""
    rows = []
    for own in weights:
        for cell in np.ndindex(*SHAPES[table]):
            row = np.zeros((own.size, 2, 3))
            for a, b in product(range(2), range(3)):
                row[:, a, b] = own * (CELL_OF[table](a, b) == cell)
            rows.append(row.ravel())
    return np.array(rows)


def described(seed: int) -> tuple[Areas, dict[str, dict[str, np.ndarray]], np.ndarray]:
    """Areas, tables with variances by area, and the rows of these."""
    rng = np.random.default_rng(seed)
    incidence, level = invented_areas(rng, bool(seed % 2))
    own = [incidence[level == number] for number in range(int(level.max()) + 1)]
    areas = Areas(incidence.shape[1], {f"L{i}": rows for i, rows in enumerate(own[:-1])})
    observed: dict[str, dict[str, np.ndarray]] = {}
    matrices = []
    for name, weights in zip(areas.levels, own, strict=True):
        for table in CELL_OF:
            if rng.random() < 0.5:
                observed.setdefault(name, {})[table] = rng.choice([0.0, 1.0, 2.0, np.inf], len(weights))
                matrices.append(rows_of(table, weights))
    if not observed:
        observed, matrices = {"Leaf": {"total": np.ones(areas.leaves)}}, [rows_of("total", own[-1])]
    return areas, observed, np.vstack(matrices)


@examples(80, 10)
@given(st.integers(0, 100_000))
def test_equations_are_all_that_hold_between_measured_cells(seed: int) -> None:
    areas, observed, M = described(seed)
    problem = Problem(SCHEMA, observed, areas=areas, undetermined="nan")
    measured = np.isfinite(problem.variances)
    np.testing.assert_array_equal(problem.marginal_matrix().toarray(), M)
    rank = int(measured.sum()) - np.linalg.matrix_rank(M[measured]) if measured.any() else 0
    for rows in ("independent", "all"):
        A = problem.constraint_matrix(rows).toarray()
        np.testing.assert_allclose(A @ M, 0, atol=1e-10)
        assert not A[:, ~measured].any()
        assert np.linalg.matrix_rank(A) == rank if A.size else rank == 0
    assert problem.constraint_matrix().shape[0] == rank == problem.rank


@examples(80, 10)
@given(st.integers(0, 100_000))
def test_what_is_wanted_is_summed_from_what_determines_it_or_refused(seed: int) -> None:
    areas, observed, M = described(seed)
    variances = np.concatenate(
        [np.repeat(v, int(np.prod(SHAPES[t]))) for own in observed.values() for t, v in own.items()]
    )
    measured = np.isfinite(variances)
    if not measured.any():
        return
    rng = np.random.default_rng(seed)
    layer, table = str(rng.choice(areas.levels)), str(rng.choice(list(CELL_OF)))
    D = rows_of(table, areas.layer(layer).incidence.toarray())
    stacked = np.vstack([M[measured], D])
    determined = np.linalg.matrix_rank(stacked) == np.linalg.matrix_rank(M[measured])
    if not determined:
        with pytest.raises(ValueError, match="not estimable"):
            Problem(SCHEMA, observed, {layer: [table]}, areas=areas)
        return
    problem = Problem(SCHEMA, observed, {layer: [table]}, areas=areas)
    counts = rng.integers(0, 9, (areas.leaves, 2, 3)).astype(float)
    y = np.where(measured, M @ counts.ravel(), 0)
    np.testing.assert_allclose(problem.tabulate(y[:, None])[:, 0], D @ counts.ravel(), atol=1e-9)
    np.testing.assert_allclose(true_vector(problem, counts), M @ counts.ravel())


def test_all_is_what_the_measurements_determine_in_every_area_of_a_layer() -> None:
    areas = Areas(4, {"Region": [0, 0, 1, 1], "Part": [[1, 1, 0, 0]], "None": [[0, 0, 0, 0]]})
    problem = Problem(SCHEMA, {"Region": {"a": 1.0}, "Part": {"b": 2.0}}, areas=areas, desired="all")
    assert set(problem.desired.names) == {
        ("Region", "total"), ("Region", "a"), ("Part", "total"), ("Part", "a"), ("Part", "b"),
        ("None", "total"), ("None", "a"), ("None", "b"),
    }  # fmt: skip
