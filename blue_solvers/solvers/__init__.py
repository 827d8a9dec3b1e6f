"""The solvers: one file each, enrolled in `registry` by one line for every test and benchmark."""

from blue_solvers.solvers.registry import (
    SOLVERS,
    Auto,
    Cholesky,
    ConjugateGradient,
    Dense,
    Multigrid,
    SeaBlue,
    SolverName,
    TwoPass,
)

__all__ = ["SOLVERS", "Auto", "Cholesky", "ConjugateGradient", "Dense", "Multigrid", "SeaBlue", "SolverName", "TwoPass"]
