"""With the extra ``multigrid``: pyamg."""

import numpy as np

from blue_solvers import blue
from constraint_builders import gallery
from noise_mechanisms import add_noise


def test_multigrid_gives_the_estimate() -> None:
    problem = gallery.berkeley()
    y = add_noise(problem, problem.truth, 1)
    np.testing.assert_allclose(blue(problem, "multigrid") @ y, blue(problem, "dense") @ y, rtol=1e-8)
