"""Which solver is exact for what, and what it costs: the table that `auto` reads and the README shows."""

from __future__ import annotations

from dataclasses import dataclass

from blue_solvers.contract import Solver
from blue_solvers.solvers.cholesky import Cholesky
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient
from blue_solvers.solvers.dense import Dense
from blue_solvers.solvers.multigrid import Multigrid
from blue_solvers.solvers.sea_blue import SeaBlue
from blue_solvers.solvers.two_pass import TwoPass
from constraint_builders import Problem


@dataclass(frozen=True)
class Capability:
    """One way to an estimate.

    Attributes
    ----------
    call : str
        What to give to `blue`, in code.
    solver : Solver
    exact_for, cost : str
        In words, for people who choose.
    """

    call: str
    solver: Solver
    exact_for: str
    cost: str

    def refusal(self, problem: Problem) -> str | None:
        """Why this is not a way to the BLUE of a problem, or None."""
        return self.solver.supports(problem) or self.solver.why_inexact(problem)


SEA_BLUE = Capability(
    "sea_blue",
    SeaBlue(),
    "uncorrelated noise, equal variance within each table; otherwise the paper's heuristic, and `info.exact` is False",
    "a few passes over the data",
)
TWO_PASS = Capability(
    "two_pass",
    TwoPass(),
    "the same within each geounit of a spine, any recodes, structural zeros, equalities; summing matrices of trees",
    "a few passes over the data",
)
CHOLESKY = Capability(
    "cholesky",
    Cholesky(),
    "any sparse covariance, any equations",
    "a sparse factorisation of A Sigma A'",
)
AROUND_EQUAL_VARIANCES = Capability(
    'ConjugateGradient(preconditioner="two_pass")',
    ConjugateGradient(preconditioner="two_pass"),
    "a variance for every cell, correlated noise (sparse, or an operator with `solve`), up to 500 cells known exactly "
    "in part; spines, zeros, equalities",
    "about 17 estimates of `sea_blue` or `two_pass` where variances within a table are in ratio 3, at any size; 115 at "
    "most in ratio 100; no matrix",
)
ON_CONSTRAINTS = Capability(
    "cg",
    ConjugateGradient(),
    "any covariance, operators too, any equations",
    "iterations, relative to the adjustment: `ConjugateGradient(rtol=..., preconditioner=...)`",
)
MULTIGRID = Capability(
    "multigrid",
    Multigrid(),
    "as `cg`, where the entries of the covariance are known",
    "a hierarchy by smoothed aggregation, then fewer iterations",
)
DENSE = Capability(
    "dense",
    Dense(),
    "small problems: the reference",
    "memory as the square of the constraints",
)
CAPABILITIES = (SEA_BLUE, TWO_PASS, CHOLESKY, AROUND_EQUAL_VARIANCES, ON_CONSTRAINTS, MULTIGRID, DENSE)


def as_markdown() -> str:
    """The table, as the README has it."""
    rows = ["| solver | exact for | what it costs |", "|---|---|---|"]
    rows += [f"| `{c.call}` | {c.exact_for} | {c.cost} |" for c in CAPABILITIES]
    return "\n".join(rows)
