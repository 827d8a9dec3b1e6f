"""One cycle of smoothed aggregation on A Sigma A'."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from blue_solvers.normal_equations.krylov import Product
from blue_solvers.normal_equations.noisy_equations import Equations
from constraint_builders.arrays import Float
from constraint_builders.extras import missing_extra

SEED = 0  # pyamg draws start vectors for its spectral estimates from numpy's global state


def multigrid_cycle(equations: Equations) -> Product:
    """Build a smoothed-aggregation hierarchy; the result applies one symmetric V-cycle to every column.

    A hierarchy suits A Sigma A' scaled to a unit diagonal, whose rows differ in variance by decades. Classical
    interpolation would assume signs that these matrices do not have.

    Raises
    ------
    ImportError
        If pyamg is not installed.
    """
    try:
        import pyamg
    except ImportError as error:
        raise missing_extra("multigrid needs pyamg", "multigrid", "use another solver, such as 'auto'") from error
    deviations = equations.deviations[:, None]
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(SEED)  # noqa: NPY002
    try:
        hierarchy = pyamg.smoothed_aggregation_solver(
            sparse.csr_matrix(equations.normal_matrix()), symmetry="symmetric"
        )
        cycle = hierarchy.aspreconditioner(cycle="V")
    finally:
        np.random.set_state(state)  # noqa: NPY002

    def apply(R: Float) -> Float:
        result = np.empty_like(R)
        for column, scaled in enumerate((R / deviations).T):
            result[:, column] = cycle.matvec(scaled)
        return result / deviations

    return apply
