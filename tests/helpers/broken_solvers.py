"""A solver that is right but for one flaw, which `check_solver` is to find."""

from dataclasses import dataclass
from typing import ClassVar

from blue_solvers import Dense, Solver
from blue_solvers.contract import Info, Prepared
from constraint_builders import Problem
from constraint_builders.arrays import Float


class Broken(Prepared):
    """The dense reference's preparation, spoilt."""

    def __init__(self, problem: Problem, flaw: str) -> None:
        self.problem, self.flaw, self._calls = problem, flaw, 0
        whole = Dense().plan(problem)
        self._good = Dense().plan(problem.replace(equalities=None)) if flaw == "equality dropped" else whole
        changed = {
            "offset": lambda own: own + 1.0,
            "offset forgotten": lambda own: 0 * own,
            "offset twice": lambda own: 2 * own,
            "offset of y": lambda own: own + 1e-3,
        }
        self.offset = changed.get(flaw, lambda own: own)(self._good.offset)
        self.info = Info("" if flaw == "info.solver" else "broken", exact=True, reason="to be found out")

    def apply(self, Y: Float) -> tuple[Float, Info]:
        self._calls += 1
        if self.flaw == "P is the BLUE":
            return self.problem.tabulate(Y), self.info
        X, _ = self._good.apply(Y)
        added = self.offset if Y.ndim == 1 else self.offset[:, None]
        more = {"linear": 1e-3, "deterministic": 1e-12 * self._calls, "offset applied": added}
        return X + more.get(self.flaw, 0.0), self.info

    def adjoint(self, V: Float) -> Float:
        found = self._good.adjoint(V + 1.0 if self.flaw == "offset of the adjoint" else V)
        return found * (1.001 if self.flaw == "adjoint" else 1)

    def variances(self) -> Float:
        return self._good.variances() * (1.01 if self.flaw == "variances" else 1)


@dataclass(frozen=True)
class BrokenSolver(Solver):
    """With a flaw by its name; without one it is right."""

    name: ClassVar[str] = "broken"
    flaw: str = ""

    def refusal(self, problem: Problem) -> str | None:
        return Dense().refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        return Broken(problem, self.flaw)
