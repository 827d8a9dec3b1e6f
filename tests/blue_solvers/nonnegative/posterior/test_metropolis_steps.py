"""Metropolis steps against what they mean, written in numpy."""

import copy

import numpy as np

from blue_solvers.nonnegative.posterior.metropolis import metropolis_steps
from tests.helpers.every import every
from tests.helpers.metropolis_in_numpy import invented_steps, step_in_numpy


@every("seed", range(8))
def test_the_loop_steps_as_numpy_does(seed: int) -> None:
    arguments = invented_steps(np.random.default_rng(seed))
    expected, found = copy.deepcopy(arguments), copy.deepcopy(arguments)
    step_in_numpy(*expected)
    metropolis_steps.loop(*found)
    assert expected[0].accepted.all()
    for name in ("states", "residuals", "totals", "accepted"):
        own = getattr(expected[0], name)
        np.testing.assert_allclose(getattr(found[0], name), own, rtol=0, atol=1e-12 * abs(own).max(), err_msg=name)
