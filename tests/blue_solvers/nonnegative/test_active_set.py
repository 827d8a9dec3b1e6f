"""The active-set method on few cells that many tables see."""

import itertools
import tracemalloc

import numpy as np
import pytest

from blue_solvers.nonnegative.active_set import polish
from blue_solvers.nonnegative.duality_gap import certify
from blue_solvers.nonnegative.quadratic_program import QuadraticProgram, csc
from blue_solvers.nonnegative.solving import feasible_cells
from constraint_builders import Problem, Schema


def test_many_rows_of_few_cells_are_never_held_as_a_square_of_all() -> None:
    """All tables of seven variables of two levels but the detailed one: 128 cells, 2,059 rows."""
    rng, names = np.random.default_rng(0), "abcdefg"
    tables = [" * ".join(own) or "total" for k in range(7) for own in itertools.combinations(names, k)]
    M = csc(Problem(Schema(dict.fromkeys(names, 2)), dict.fromkeys(tables, 1.0)).marginal_matrix())
    variance = 10 ** rng.uniform(-4, 4, len(tables))[rng.integers(len(tables), size=M.shape[0])]
    variance[rng.random(variance.size) < 0.01] = 0.0
    counts, none = rng.poisson(3.0, 128) * (rng.random(128) < 0.5), np.zeros(128)
    answer = M @ counts + np.sqrt(variance) * rng.standard_normal(variance.size)
    p = QuadraticProgram(M, none, none, none, none + np.inf, answer, variance)
    tracemalloc.start()
    found = polish(p, counts.astype(float))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert certify(p, found).gap <= 1e-8 * (1 + certify(p, found).objective)
    assert peak < 8 * sum(M.shape) ** 2 / 2  # bytes


@pytest.mark.parametrize("seed", [3026, 3048])
def test_steps_of_rounding_do_not_go_on_for_ever(seed: int) -> None:
    """Precisions over twelve decades: cells off a bound by rounding were taken for free, and freed again and again."""
    rng = np.random.default_rng(seed)
    cells, rows = int(rng.integers(10, 120)), int(rng.integers(3, 60))
    M = csc((rng.random((rows, cells)) < 0.3) * rng.integers(1, 3, (rows, cells)).astype(float))
    counts = np.where(rng.random(cells) < 0.6, 0, rng.integers(0, 30, cells))
    variance = 10.0 ** rng.uniform(-6, 6, rows)
    variance[rng.random(rows) < 0.3] = 0.0
    weight = 10.0 ** rng.uniform(-6, 6, cells)
    weight[rng.random(cells) < 0.5] = 0.0
    target = counts + rng.normal(size=cells) * np.where(weight > 0, weight, 1) ** -0.5
    upper = np.where(rng.random(cells) < 0.2, counts + 3.0, np.inf)
    answer = M @ counts + np.sqrt(variance) * rng.normal(size=rows)
    p = QuadraticProgram(M, target, weight, np.zeros(cells), upper, answer, variance)
    found = certify(p, polish(p, feasible_cells(p)))
    assert found.gap <= 1e-8 * (1 + found.objective) + 2 * found.rounding
    assert found.margin_residual <= 1e-9 * p.scale
