"""What problems and operators are does not depend on whether somebody used them: hash, pickle and dask's token."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from blue_solvers import blue
from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.nonnegative import nnls
from blue_solvers.testing import problems
from blue_solvers.testing.possible_truths import PossibleTruths
from constraint_builders import Problem, Schema, Spine
from noise_mechanisms import add_noise

tokenize = pytest.importorskip("dask.base").tokenize
PROBLEMS = problems()


def told(thing: Any) -> tuple[int, bytes, str]:
    return hash(thing), pickle.dumps(thing), tokenize(thing)


def fitted(problem: Problem, y: np.ndarray) -> None:
    if problem.is_tabular and problem.covariance is None and problem.equalities is None:
        nnls(problem, abs(y))


def estimated(problem: Problem, y: np.ndarray) -> None:
    est = blue(problem).estimate(y, certify=True)
    est.certificate()
    est.goodness_of_fit(draws=2, rng=1)
    if problem.is_tabular:
        est.to_frame()


USES: dict[str, Callable[[Problem, np.ndarray], Any]] = {
    "estimate": estimated,
    "non-negative": fitted,
    "facts": lambda problem, y: (problem.rank, problem.tree, problem.determined, problem.completion, repr(problem)),
}


@pytest.mark.few(8)
@pytest.mark.parametrize("name", PROBLEMS)
def test_use_changes_neither_hash_nor_pickle_nor_token(name: str) -> None:
    problem = pickle.loads(pickle.dumps(PROBLEMS[name]))
    truths = PossibleTruths.of(problem)
    truth = truths.observed @ (truths.start + truths.differences(np.random.default_rng(0), 1)[:, 0])
    y = add_noise(problem.replace(noise="gaussian"), truth, rng=1)
    before = told(problem)
    for what, use in USES.items():
        try:
            use(problem, y)
        except (ValueError, UnsupportedProblemError, ArithmeticError):
            assert what == "non-negative"
        assert told(problem) == before, what
    P = blue(problem)
    fresh = told(P)[1:]
    P.variances()
    assert told(P)[1:] == fresh


def test_parts_of_descriptions_keep_what_they_are_in_pickles() -> None:
    """Copies answer as the originals do, which worked out more."""
    spine = Spine([-1, 0, 0], ["US", "State", "State"], ["", "A", "B"])
    schema = Schema({"age": 3}, {"age": {"adult": [0, 1, 1]}})
    zeros = {("State", "age"): np.array([[False, False, True], [False, True, True]])}
    problem = Problem(schema, {"US": {"total": 1.0}, "State": {"age": 2.0}}, spine=spine, zeros=zeros)
    unused = pickle.dumps(problem)
    problem.zeros.kinds  # noqa: B018
    spine.members, schema.names  # noqa: B018
    assert problem.observed.naming.dimensions(("State", "age"))[0].labels == ("A", "B")
    assert pickle.dumps(problem) == unused
    again = pickle.loads(pickle.dumps(problem))
    assert again == problem
    assert again.spine.members[1].tolist() == [1, 2]
    assert again.schema.size_of("adult") == 2
    np.testing.assert_array_equal(again.zeros.kinds, problem.zeros.kinds)
