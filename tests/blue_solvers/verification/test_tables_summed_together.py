"""Tables that others are summed from together: they change what a proof takes, and nothing that it says."""

from itertools import combinations

import numpy as np
import pytest

from blue_solvers import blue
from blue_solvers.verification import certify
from blue_solvers.verification.problem_places import problem_places
from constraint_builders import Problem, Schema, Spine

SCHEMA = Schema({"a": 4, "b": 3, "c": 5, "d": 2, "e": 3}, recodes={"c": {"c2": [0, 0, 1, 1, 1], "c3": [0, 1, 1, 2, 2]}})


def _problem(rng: np.random.Generator, spine: Spine | None) -> Problem:
    """All tables of two factors, a few of them of groups of levels, and one that holds all."""
    pairs = [" * ".join(own) for own in combinations(["a", "b", "c", "d", "e", "c2", "c3"], 2) if not _same(own)]
    tables = {name: float(rng.uniform(1, 9)) for name in rng.permutation(pairs)[:9].tolist()}
    if spine is None:
        return Problem(SCHEMA, tables | {"detailed": 2.0})
    below = tables | {"detailed": rng.uniform(1, 3, 3).tolist()}
    return Problem(SCHEMA, {"State": {"a * b": 1.0, "c2 * e": 0.0}, "County": below}, spine=spine)


def _same(factors: tuple[str, ...]) -> bool:
    return all(factor.startswith("c") for factor in factors)


def _found(problem: Problem, y: np.ndarray, x: np.ndarray) -> float:
    """The bound; infinite where what is known exactly is contradicted."""
    proof = certify(problem, y, x)
    assert proof.bound is not None or "contradicts what is known exactly" in proof.reason
    return np.inf if proof.bound is None else proof.bound


@pytest.mark.parametrize("spine", [None, Spine.from_geocodes({"State": ["1"], "County": ["11", "12", "13"]})])
def test_proofs_say_the_same_with_helpers(spine: Spine | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of best estimates, and of figures that are wrong by much or little."""
    used = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        problem = _problem(rng, spine)
        y = rng.normal(100, 5, problem.observed.size)
        x = blue(problem).over_observed @ y
        wrong = [x, x + 1e-6 * rng.normal(size=x.size), np.where(rng.random(x.size) < 0.02, x + 3, x)]
        without = [_found(problem, y, own) for own in wrong]
        monkeypatch.setattr("blue_solvers.verification.problem_places.WORTH_HELPERS", 0)
        with_helpers = [_found(problem, y, own) for own in wrong]
        used += sum(len(level.helpers) for level in problem_places(problem).levels)
        monkeypatch.undo()
        assert np.isfinite(without[0])
        np.testing.assert_allclose(with_helpers, without, rtol=1e-3)
    assert used > 3
