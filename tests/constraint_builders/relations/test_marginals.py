"""Sums of tables, as matrices and without."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Schema
from constraint_builders.description.table import parse_table
from constraint_builders.relations.marginals import Margin, margin_matrix, marginal_matrix, refines
from tests.helpers.exact_reference import marginal_rows
from tests.helpers.oracles.invent import plain_tables


@given(st.integers(0, 10**6))
def test_margins_between_all_pairs(seed: int) -> None:
    problem = plain_tables(seed)
    schema = problem.schema
    tables = [parse_table(schema, name) for name in {*problem.observed.names, *problem.desired.names}]
    rng = np.random.default_rng(0)
    for fine in tables:
        for coarse in tables:
            names = (" * ".join(table.factors) or "total" for table in (fine, coarse))
            rows_fine, rows_coarse = (marginal_rows(schema, name) for name in names)
            contained = np.linalg.matrix_rank(np.vstack([rows_fine, rows_coarse])) == np.linalg.matrix_rank(rows_fine)
            assert refines(schema, fine, coarse) == contained
            if not (contained and set(coarse.axes) <= set(fine.axes)):
                continue
            matrix = margin_matrix(schema, fine, coarse)
            assert np.array_equal(matrix @ rows_fine, rows_coarse)
            margin = Margin(schema, fine, coarse)
            X, V = rng.normal(size=(fine.size, 2)), rng.normal(size=(coarse.size, 2))
            assert np.allclose(margin.apply(X), matrix @ X)
            assert np.allclose(margin.transpose(V), matrix.T @ V)


def test_a_variable_of_one_level_need_not_be_there() -> None:
    schema = Schema({"a": 2, "one": 1})
    fine, coarse = parse_table(schema, "a"), parse_table(schema, "a * one")
    assert refines(schema, fine, coarse)
    assert refines(schema, coarse, fine)


def test_recodes_that_cross_do_not_refine() -> None:
    schema = Schema({"v": 4}, recodes={"v": {"halves": [0, 0, 1, 1], "parity": [0, 1, 0, 1]}})
    assert schema.group_map("halves", "parity") is None
    fine, coarse = parse_table(schema, "halves"), parse_table(schema, "parity")
    assert not refines(schema, fine, coarse)
    with pytest.raises(ValueError, match="cannot be summed"):
        margin_matrix(schema, fine, coarse)
    with pytest.raises(ValueError, match="cannot be summed"):
        Margin(schema, fine, coarse)


@pytest.mark.parametrize("names", [["total"], ["total", "b", "detailed"]])
def test_a_marginal_matrix_that_does_not_fit_twice_is_refused(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema({"a": 30, "b": 20})
    tables = tuple(parse_table(schema, name) for name in names)
    matrix = marginal_matrix(schema, tables)
    needed = (
        2 * matrix.nnz * (matrix.data.itemsize + matrix.indices.itemsize)
    )  # itself and the blocks it is copied from
    monkeypatch.setattr("constraint_builders.memory.free_memory", lambda: needed)
    assert (marginal_matrix(schema, tables) != matrix).nnz == 0
    monkeypatch.setattr("constraint_builders.memory.free_memory", lambda: needed - 1)
    with pytest.raises(MemoryError, match=f"the marginal matrix of {len(names)} tables over 600 detailed cells"):
        marginal_matrix(schema, tables)
