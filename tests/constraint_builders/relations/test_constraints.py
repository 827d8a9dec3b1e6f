"""The equations between tables: as many as their rank, spanning the same space, with small entries."""

from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from constraint_builders import Problem, Schema, gallery, memory
from tests.helpers.every import every
from tests.helpers.exact_reference import exact_rank


def test_recodes_without_a_common_basis_are_eliminated_exactly() -> None:
    three = {"ab": [0, 0, 1], "ac": [0, 1, 0], "bc": [0, 1, 1]}
    schema = Schema({"v": 3}, recodes={"v": three})
    crossing = Problem(schema, dict.fromkeys(three, 1.0))
    assert crossing.recodes_cross
    assert crossing.constraint_matrix().shape[0] == crossing.rank == exact_rank(schema, list(three))
    assert Problem(schema, {"ab": 1.0, "ac": 1.0}).rank == exact_rank(schema, ["ab", "ac"])


@every("problem", [gallery.cube(3, 3), gallery.pl94(), gallery.adult(1)])
def test_rank_formula_of_the_design(problem: Problem) -> None:
    A = problem.constraint_matrix()
    assert A.shape[0] == problem.rank
    assert abs(A.data).max() == 1
    for rows in (A, problem.constraint_matrix("all")):  # what libraries with 32 bit indices take
        assert rows.indices.dtype == rows.indptr.dtype == np.int32


def test_unknown_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="rows must be"):
        gallery.toy().constraint_matrix(rows="some")


def test_matrix_that_does_not_fit_names_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**20))
    memory._free_in.cache_clear()
    problem = gallery.cube(4, 12)
    with pytest.raises(MemoryError, match=r"constraint matrix .* needs .*MiB and 1 MiB are free: use a solver"):
        problem.constraint_matrix()
    with pytest.raises(MemoryError, match=r"marginal matrix .* needs .*MiB"):
        problem.marginal_matrix()
