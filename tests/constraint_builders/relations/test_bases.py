"""Bases adapted to any recodes of a variable: independent, complete, and refused only where none exists."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema
from constraint_builders.relations import bases
from constraint_builders.relations.bases import _pivot_columns, factor_bases
from tests.helpers.exact_reference import rational_rank
from tests.helpers.work import lines_run

PARTITIONS = st.integers(2, 8).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, n - 1), min_size=n, max_size=n), min_size=1, max_size=4)
)
CROSSING = [[0, 0, 1, 0, 0, 1], [0, 1, 0, 0, 1, 0], [0, 1, 1, 0, 1, 1]]  # 12|3, 13|2, 1|23 of three levels, twice


def over_levels(groups: list[int]) -> np.ndarray:
    """Indicators of a partition's groups, (groups, levels)."""
    return np.eye(max(groups) + 1)[:, groups]


def relabelled(groups: list[int]) -> list[int]:
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    return [numbers[group] for group in groups]


@given(PARTITIONS)
@example([[0, 0, 1, 1, 2, 2], [0, 0, 1, 2, 1, 2]])  # which cross within a group of both
@example([*CROSSING, [0, 1, 0, 2, 3, 2]])  # which refines the second alone, and crosses the others
@example([[0, 1, 0, 2, 3, 2], *CROSSING])
@example([*CROSSING, [0, 0, 1, 2, 2, 3]])
@example([*CROSSING, [0, 1, 1, 2, 3, 3]])
def test_one_basis_serves_all_recodes_that_have_one(found: list[list[int]]) -> None:
    """By ranks alone: each factor's rows span its groups, and all functionals together are independent."""
    recodes = {f"r{i}": groups for i, groups in enumerate(dict.fromkeys(tuple(relabelled(own)) for own in found))}
    recodes = {name: list(groups) for name, groups in recodes.items() if 1 < max(groups) + 1 < len(groups)}
    if not recodes:
        recodes = {"r0": [0] * (len(found[0]) - 1) + [1]} if len(found[0]) > 2 else {}
    schema = Schema({"v": len(found[0])}, {"v": recodes})
    factors = list(recodes) or ["v"]
    try:
        bases = factor_bases(schema, factors)
    except NotImplementedError:
        assert len(factors) > 2  # two partitions always share the sums of their join, and nothing else
        return
    functionals: dict[int, np.ndarray] = {}
    for factor, basis in bases.items():
        own = np.array(schema.groups_of(factor))
        rows = basis.matrix.toarray()
        assert np.linalg.matrix_rank(rows) == rows.shape[0] == rows.shape[1] == own.max() + 1
        cuts = np.cumsum([0, *basis.counts])
        for mode, (start, stop) in zip(basis.modes, pairwise(cuts.tolist()), strict=True):
            along = rows[start:stop] @ over_levels(own.tolist())
            np.testing.assert_array_equal(functionals.setdefault(mode, along), along)
    together = np.concatenate(list(functionals.values()))
    assert np.linalg.matrix_rank(together) == len(together)


@given(st.lists(st.lists(st.integers(0, 1), min_size=5, max_size=5).filter(any), min_size=1, max_size=6))
@example([[0, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 1, 1, 0], [0, 1, 0, 1, 0], [0, 1, 1, 0, 1]])
def test_pivots_are_the_columns_of_a_nonsingular_minor(matrix: list[list[int]]) -> None:
    """Of indicators of any groups, whose elimination leaves whole numbers beside 0 and 1."""
    rows = [{column: 1 for column, entry in enumerate(row) if entry} for row in matrix]
    pivots, A = _pivot_columns(rows), np.array(matrix)
    assert len(pivots) == len(set(pivots)) == rational_rank(A) == rational_rank(A[:, pivots])


def crossing(groups: int, count: int) -> Problem:
    """Recodes into so many groups of 30 levels, each a level further than the last."""
    levels = np.arange(30 * groups)
    recodes = {f"r{i}": ((levels + i) % levels.size // 30).tolist() for i in range(count)}
    schema = Schema({"v": levels.size}, {"v": recodes})
    variances = {name: np.linspace(1, 9, groups) for name in recodes}
    return Problem(schema, variances | {"total": 1.0, "v": np.linspace(1, 2, levels.size)})


@pytest.mark.parametrize("count", [2, 3])
def test_a_thousand_crossing_groups_are_read(count: int) -> None:
    problem = crossing(1_000, count)
    assert not problem.recodes_cross
    assert problem.rank == 1_000 * count + 1


@pytest.mark.parametrize("count", [2, 3])
def test_the_work_for_crossing_groups_grows_as_their_number(count: int) -> None:
    """It would as its square, were every row looked through for every column."""
    few, many = (lines_run(bases, lambda n=groups: crossing(n, count).rank) for groups in (50, 200))
    assert 400 < few < many < 6 * few


@given(levels=st.integers(2, 6), recoded=st.booleans(), seed=st.integers(0, 99))
def test_equations_stay_with_the_groups_that_all_tables_tell_apart(levels: int, recoded: bool, seed: int) -> None:
    """Of places without a total each equation speaks of one; where one table has groups of them alone, of one group."""
    rng = np.random.default_rng(seed)
    groups = [0, *rng.integers(0, 2, levels - 2).tolist(), 1] if recoded else list(range(levels))
    schema = Schema(
        {"place": levels, "sex": 2, "age": 3}, {"place": {"island": groups}} if levels > 2 and recoded else {}
    )
    first = "island * sex" if schema.recodes else "place * sex"
    problem = Problem(schema, {first: 1.0, "place * age": 1.0, "place * sex * age": 1.0})
    group = groups if schema.recodes else list(range(levels))
    of_cell: list[int] = []
    for name in problem.observed.names:
        own = range(max(groups) + 1) if str(name).startswith("island") else group
        of_cell += np.repeat(own, int(np.prod(problem.observed.shape(name)[1:]))).tolist()
    A, M = problem.constraint_matrix(), problem.marginal_matrix().toarray()
    assert all(len({of_cell[j] for j in A.indices[A.indptr[i] : A.indptr[i + 1]]}) == 1 for i in range(A.shape[0]))
    assert not (A @ M).any()
    assert A.shape[0] == M.shape[0] - np.linalg.matrix_rank(M) == np.linalg.matrix_rank(A.toarray())
