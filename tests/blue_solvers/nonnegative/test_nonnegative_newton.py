"""The Newton core: one way of solving the systems against another, products by tables against the matrix."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.newton import NewtonSystem, dense, descend, evaluate, factored, iterated
from blue_solvers.nonnegative.quadratic_program import Solution, kkt_residual
from blue_solvers.nonnegative.solving import approach
from blue_solvers.nonnegative.tables import TabularRows
from constraint_builders import Schema, gallery
from tests.blue_solvers.nonnegative.random_programs import random_program
from tests.helpers.effort import examples
from tests.helpers.every import every


@given(seed=st.integers(0, 2**32 - 1))
@examples(150)
def test_programs_are_solved(seed):
    p = random_program(seed)
    solution, error = descend(p, np.zeros(p.answer.size))
    assert error < 1e-9 * p.scale
    assert kkt_residual(p, solution) < 1e-8 * p.scale


@given(seed=st.integers(0, 2**32 - 1))
@examples(40)
def test_the_residual_is_minus_the_gradient_of_the_dual(seed):
    p = random_program(seed)
    rng = np.random.default_rng(seed)
    at, direction = rng.normal(size=(2, p.answer.size))
    step = 1e-6
    slope = (evaluate(p, at + step * direction).value - evaluate(p, at - step * direction).value) / (2 * step)
    expected = -float(evaluate(p, at).residual @ direction)
    assert slope == pytest.approx(expected, rel=1e-4, abs=1e-4 * p.scale)


@every("way", [factored, iterated])
@every("tables", [True, False])
def test_all_ways_of_solving_newton_systems_agree(way, tables):
    problem = gallery.cube(5, 3)
    rng = np.random.default_rng(0)
    model = FittingModel(problem)
    p = model.program(model.M @ np.where(rng.random(243) < 0.3, 9.0, 0.0) + rng.normal(size=problem.observed.size))
    assert p.products is p.tables
    p = p if tables else replace(p, tables=None)
    state = evaluate(p, rng.normal(size=p.answer.size))
    state = replace(state, residual=1e-8 * state.residual)  # near the solution directions are asked for accurately
    expected = NewtonSystem(p, dense).direction(state)
    np.testing.assert_allclose(NewtonSystem(p, way).direction(state), expected, atol=1e-4 * abs(expected).max())


SHAPE = (2, 3, 4)


@every("kept", [((), (0,), (1,)), ((0, 1), (0, 2), (1,)), ((2,),)])
def test_tables_are_their_matrix_and_precondition_with_its_inverse_for_all_cells_free(kept):
    weight, schema = 0.5, Schema({f"v{axis}": size for axis, size in enumerate(SHAPE)})
    further = sparse.csr_array(np.random.default_rng(0).integers(-1, 2, (2, 24)).astype(float))
    tables = TabularRows(schema, tuple(" * ".join(f"v{axis}" for axis in axes) or "total" for axes in kept), further)
    numbers = np.arange(24).reshape(SHAPE)
    rows = []
    for axes in kept:
        for cell in np.ndindex(*(SHAPE[a] for a in axes)):
            row = np.zeros(24)
            row[numbers[tuple(cell[axes.index(a)] if a in axes else slice(None) for a in range(3))].ravel()] = 1
            rows.append(row)
    M = np.vstack([rows, further.toarray()])
    np.testing.assert_allclose(np.column_stack([tables @ e for e in np.eye(24)]), M, atol=1e-13)
    np.testing.assert_allclose(np.column_stack([tables.T @ e for e in np.eye(len(M))]), M.T, atol=1e-13)
    sizes = [int(np.prod([SHAPE[a] for a in axes])) for axes in kept]
    variance = np.append(np.repeat(1.0 + np.arange(len(kept)), sizes), [3.0, 5.0])
    inverse = np.zeros((len(M), len(M)))
    own = len(M) - 2
    inverse[:own, :own] = np.linalg.inv(M[:own] @ M[:own].T / weight + np.diag(variance[:own]))
    inverse[[own, own + 1], [own, own + 1]] = 1 / ((M[own:] ** 2).sum(axis=1) / weight + variance[own:])
    precondition = tables.inverse(variance, weight)
    np.testing.assert_allclose(np.column_stack([precondition(e) for e in np.eye(len(M))]), inverse, atol=1e-12)


@pytest.mark.parametrize("change", ["cells", "multipliers"])
def test_the_certificate_notices_what_is_wrong(change):
    """Moving a cell or, where a row is held exactly, a multiplier shows in the KKT residual."""
    p = random_program(1)
    p = replace(p, variance=np.zeros_like(p.variance))
    p = replace(p, answer=p.M @ np.full(p.target.size, 4.0), upper=np.full_like(p.upper, np.inf))
    solution = approach(p)
    assert kkt_residual(p, solution) < 1e-9 * p.scale
    cells, multipliers = solution.cells.copy(), solution.multipliers.copy()
    if change == "cells":
        cells[0] += 1.0
    else:
        multipliers += 1.0
    assert kkt_residual(p, Solution(cells, multipliers, 0)) > 1e-3
