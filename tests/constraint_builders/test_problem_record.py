"""A problem is a frozen record: it cannot be changed, only replaced, and compares, prints and pickles as its fields."""

import pickle
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from scipy import sparse

from constraint_builders import LowRankPlusDiagonal, Problem, Schema, Spine, gallery
from constraint_builders.record import Record
from constraint_builders.schema_order import in_schema_order
from constraint_builders.some_tables import of_tables
from tests.helpers.every import every
from tests.helpers.refused import refuses

SCHEMA = Schema({"sex": ["f", "m"], "age": 3}, recodes={"age": {"adult": [0, 1, 1]}})
SUMS = sparse.csr_array([[1.0, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]])


def plain() -> Problem:
    return Problem(SCHEMA, {"age * sex": 2.0, "sex": [1.0, 0.0], "total": 4.0}, "all", noise="laplace")


def everything() -> Problem:
    spine = Spine([-1, 0, 0], ["US", "State", "State"], ["", "A", "B"])
    observed = {"US": {"total": 1.0, "age": 2.0}, "State": {"detailed": 3.0}}
    zeros = {("State", "age"): np.array([[False, False, True], [False, False, False]])}
    equalities = np.eye(16)[[4]] - np.eye(16)[[10]], [1.0]
    truth = np.eye(16)[[0, 1, 4]].sum(axis=0)
    return Problem(SCHEMA, observed, spine=spine, zeros=zeros, equalities=equalities, truth=truth, undetermined="nan")


def shared() -> Problem:
    covariance = LowRankPlusDiagonal(np.ones(5), np.ones((5, 1)))
    return Problem(SCHEMA, {"sex": None, "age": None}, covariance=covariance)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "tables": plain,
    "spine, zeros, equalities": everything,
    "unmeasured": lambda: Problem(SCHEMA, {"sex": [1.0, np.inf]}, undetermined="nan"),
    "shared noise": shared,
    "sparse noise": lambda: Problem(SCHEMA, {"age": None}, covariance=np.eye(3) + 0.1),
    "equations": lambda: Problem.from_matrix([[1.0, -1, -1]], [1.0, 2, 3], [4.0]),
    "tree": lambda: Problem.from_summing_matrix(SUMS, np.arange(5.0)),
    "weights": lambda: Problem.from_summing_matrix(2 * SUMS, 1.0),
    "gallery": gallery.berkeley,
}


def worked_out(name: str) -> Problem:
    """A problem that has worked out everything that it keeps."""
    problem = PROBLEMS[name]()
    _ = problem.rank, problem.tree, problem.completion, problem.exact_equations, problem.determined
    _ = problem.assumptions, problem.noise_covariance, problem.table_variances, problem.recodes_cross
    problem.tabulate(np.zeros((problem.observed.size, 1)))
    return problem


@every("name", PROBLEMS)
def test_no_attribute_can_be_set_or_deleted(name: str) -> None:
    problem = worked_out(name)
    for attribute in (*(field.name for field in fields(Record)), "rank", "tree", "anything"):
        refuses(f"does not change: .*{attribute}", setattr, problem, attribute, None, error=AttributeError)
        refuses("does not change", delattr, problem, attribute, error=AttributeError)
    with pytest.raises(ValueError, match="read-only"):
        problem.variances[:1] = 7.0


@every("name", PROBLEMS)
def test_it_pickles_without_what_it_worked_out(name: str) -> None:
    problem = worked_out(name)
    found = pickle.loads(pickle.dumps(problem))
    assert type(found) is Problem
    assert vars(found).keys() == {field.name for field in fields(Record)} < vars(problem).keys()
    assert found == problem == PROBLEMS[name]()
    assert hash(found) == hash(problem)
    assert (found.desired is found.observed) == (problem.desired is problem.observed)
    assert (found.constraint_matrix() != problem.constraint_matrix()).nnz == 0
    assert repr(found) == repr(problem)


def test_problems_that_differ_are_not_equal() -> None:
    made = {name: make() for name, make in PROBLEMS.items()}
    for name, problem in made.items():
        assert [other for other in made if made[other] == problem] == [name]
        assert problem.with_variances(np.full(problem.observed.size, 17.0)) != problem
        assert problem != name


@every("name", PROBLEMS)
def test_replacing_nothing_gives_an_equal_problem_and_leaves_the_first_as_it_was(name: str) -> None:
    problem = worked_out(name)
    assert problem.replace() == problem
    assert problem.replace() is not problem
    derived = problem.with_variances(np.ones(problem.observed.size)).replace(truth=None)
    assert ((derived.variances == 1).all(), derived.truth) == (True, None)
    assert problem == PROBLEMS[name]()
    refuses("unexpected keyword argument 'size'", problem.replace, size=3, error=TypeError)


def test_what_was_worked_out_is_not_carried_over() -> None:
    problem = worked_out("tables")
    exact = np.zeros(problem.observed.size)
    assert problem.with_variances(exact).exact.all()
    assert problem.with_variances(exact).exact_equations[0].shape[0] == problem.rank
    assert problem.replace(equalities=(sparse.csr_array(np.eye(9)[[0]]), np.ones(1))).rank == problem.rank + 1
    assert problem.observing().tabulation is None
    turned = in_schema_order(problem).problem
    assert turned is not problem
    assert turned.rank == problem.rank
    assert of_tables(problem, [0], [0]).rank == 0


def test_the_law_of_noise_is_replaced_by_its_name() -> None:
    problem = Problem(Schema({"sex": 2}), {"total": 1.0, "sex": 2.0})
    discrete = problem.replace(noise="discrete_laplace")
    assert discrete.noise == "discrete_laplace"
    assert problem.noise == "gaussian"
    assert (discrete.variances == problem.variances).all()
    refuses("noise", problem.replace, noise="gausian")
