"""With the extra ``arrays``: datasets of xarray."""

import numpy as np

from blue_solvers import estimate, problem_from
from constraint_builders import gallery
from noise_mechanisms import add_noise


def test_out_and_in_again() -> None:
    problem = gallery.berkeley()
    est = estimate(problem, add_noise(problem, problem.truth, 1))
    again, y = problem_from(est.to_xarray())
    found = again.observed.tables(y)
    assert len(found) == len(est.tables) == 8
    for name, values in found.items():
        np.testing.assert_array_equal(values, est.tables[name if name in est.tables else "detailed"])
