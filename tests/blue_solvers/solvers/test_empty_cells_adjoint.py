"""The adjoint of two passes where cells are structural zeros and others are known exactly."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from tests.helpers.effort import examples
from tests.helpers.oracles.invent import Kind, invent, with_zeros


@examples(40)
@given(seed=st.integers(0, 100_000))
def test_the_adjoint_is_the_transpose_where_cells_are_known_to_be_empty(seed: int) -> None:
    """Also of exact values that contradict it."""
    kind = Kind(decades=2.0, unmeasured=False)
    found = (own for s in range(seed, seed + 500) if (own := invent(s, kind, with_zeros)))
    problem = next(own for case in found if (own := case.description.problem()).exact.any())
    P = blue(problem, "two_pass")
    np.testing.assert_allclose((P.T @ np.eye(problem.desired.size)).T, P @ np.eye(problem.observed.size), atol=1e-8)
