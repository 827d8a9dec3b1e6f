"""An interval has a `confidence_level`; what arguments and hooks were called before is taken with a warning."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import blue_solvers
from blue_solvers import Problem, Schema, blue, confidence_ellipsoid, estimate, intervals
from blue_solvers.results import tidy

NOT_OF_INTERVALS = {"minimal_detectable_error"}  # the level of a test


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions at the door, methods of classes there, and those of `tidy`."""
    for home in (blue_solvers, blue_solvers.plots, blue_solvers.pictures, tidy):
        for name in home.__all__ if hasattr(home, "__all__") else dir(home):
            if name.startswith("_"):
                continue
            own = getattr(home, name)
            if inspect.isclass(own):
                yield from ((f"{name}.{key}", value) for key, value in vars(own).items() if inspect.isfunction(value))
            elif inspect.isfunction(own) and (home is blue_solvers or own.__module__.startswith(home.__name__)):
                yield name, own


def test_every_interval_has_a_confidence_level() -> None:
    found = dict(functions())
    arguments = {name: inspect.signature(own).parameters for name, own in found.items()}
    named = {name for name, own in arguments.items() if "confidence_level" in own}
    assert {"Estimate.interval", "Estimate.to_frame", "Result.table", "intervals"} <= named
    assert len(named) > 15
    assert all(hasattr(found[name], "__wrapped__") for name in named)  # by what takes `level` with a warning
    others = {name for name, own in arguments.items() if "level" in own and own["level"].annotation == "float"}
    assert {name.rpartition(".")[2] for name in others} <= NOT_OF_INTERVALS


def test_former_words_give_the_same_with_a_warning() -> None:
    problem = Problem(Schema({"sex": 2, "age": 3}), {"total": 1.0, "sex": 2.0, "detailed": 3.0})
    y = np.random.default_rng(1).normal(20, 2, problem.observed.size)
    P, est = blue(problem), estimate(problem, y)
    with pytest.warns(DeprecationWarning, match=r"interval\(level=...\) is now confidence_level"):
        np.testing.assert_array_equal(est.interval(level=0.8), est.interval(confidence_level=0.8))
    with pytest.warns(DeprecationWarning, match="confidence_level"):
        np.testing.assert_array_equal(intervals(P, y, level=0.8), est.interval(0.8))
    with pytest.warns(DeprecationWarning, match="confidence_level"):
        assert est.to_frame(level=0.8).equals(est.to_frame(0.8))
    region = confidence_ellipsoid(P, y, np.eye(problem.desired.size)[:, :2], 0.8)
    with pytest.warns(DeprecationWarning, match="confidence_level"):
        assert region.level == region.confidence_level == 0.8
    with pytest.warns(DeprecationWarning, match="goodness_of_fit"):
        assert est.fit(draws=0).statistic == est.goodness_of_fit(draws=0).statistic
    with pytest.raises(TypeError, match="level"):
        est.interval(confidence_level=0.8, level=0.8)  # type: ignore[call-arg]
