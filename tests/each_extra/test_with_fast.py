"""With the extra ``fast``: kernels compiled by numba."""

from blue_solvers.nonnegative import nnls
from constraint_builders import gallery
from constraint_builders.compiled import KERNELS
from noise_mechanisms import add_noise


def test_kernels_are_compiled_and_fit() -> None:
    problem = gallery.berkeley()
    assert nnls(problem, add_noise(problem, problem.truth, 1)).gap < 1e-6
    assert KERNELS
    assert all(kernel.fastest() is kernel.compiled() is not kernel.reference for kernel in KERNELS.values())
