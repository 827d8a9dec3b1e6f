"""A way to compute the estimate: what a solver says and does, and what every one of them has from here."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from blue_solvers.contract.prepared import InOtherLayout, Prepared, SharedNoiseEstimate
from blue_solvers.errors import ConvergenceError, Refusal, UnsupportedProblemError
from constraint_builders import Problem
from constraint_builders.arrays import inverse_order
from constraint_builders.relations.equations import UnsolvableError
from constraint_builders.schema_order import in_schema_order


class Solver(ABC):
    """A way to compute the estimate, with its tolerances as fields of a frozen dataclass.

    A solver says `refusal` and does `plan`, both of plain problems alone: their tables in the schema's order of the
    variables, all of their desired cells determined, and no low-rank correlated noise (`LowRankPlusDiagonal`). All else
    is made of these by `supports` and `prepare`, which no solver overrides.

    Laws: `supports` is None exactly where `prepare` gives a `Prepared`, and so where `blue` gives an operator. Only
    what depends on the machine is told by `prepare` alone: `MemoryError`, and `ImportError` for a package that is
    missing.
    """

    name: ClassVar[str]
    takes_singular_noise: ClassVar[bool] = False  # a covariance without an inverse
    exact_for: ClassVar[str] = ""  # in words, for people who choose
    cost: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take a solver's own `supports` and `prepare` for the hooks that they were before the release."""
        super().__init_subclass__(**kwargs)
        for before, now in (("supports", "refusal"), ("prepare", "plan")):
            if before in vars(cls) and getattr(getattr(cls, now), "__isabstractmethod__", False):
                warnings.warn(
                    f"{cls.__name__}.{before} is called {now} now: rename it", DeprecationWarning, stacklevel=3
                )
                setattr(cls, now, vars(cls)[before])
                delattr(cls, before)

    @abstractmethod
    def refusal(self, problem: Problem) -> str | None:
        """Why this solver does not take a plain problem, without doing its work; None if it does.

        A `Refusal` says apart what to do instead.

        Parameters
        ----------
        problem : Problem
            A plain one.

        Returns
        -------
        str or None
        """

    @abstractmethod
    def plan(self, problem: Problem) -> Prepared:
        """Do once what every apply needs, for a plain problem that is not refused.

        Parameters
        ----------
        problem : Problem
            A plain one.

        Returns
        -------
        Prepared

        Raises
        ------
        UnsupportedProblemError
            If the work itself shows that a problem of equations, equalities or a covariance operator cannot be solved.
        MemoryError
            If that would not fit.
        """

    def why_inexact(self, problem: Problem) -> str | None:
        """Why its estimate of a plain problem that it takes would not be the BLUE; None if it is, as for most.

        Parameters
        ----------
        problem : Problem
            A plain one.

        Returns
        -------
        str or None
        """
        return None

    def why_not_best(self, problem: Problem) -> str | None:
        """Why this is not a way to the BLUE of a plain problem, or None.

        Parameters
        ----------
        problem : Problem
            A plain one.

        Returns
        -------
        str or None
        """
        return self.refusal(problem) or self.why_inexact(problem)

    @classmethod
    def capabilities(cls) -> tuple[Capability, ...]:
        """What it is exact for and what that costs: a row for each configuration worth naming, one by default.

        Returns
        -------
        tuple of Capability
        """
        return (Capability(cls.name, cls(), cls.exact_for, cls.cost),) if cls.exact_for else ()

    def supports(self, problem: Problem) -> str | None:
        """None if this solver can take the problem, otherwise the reason why not.

        That equations or equalities contradict one another, that rounding would decide what areas with weights say,
        that a covariance operator is not one, or that iterations to what cells share do not come to an end, shows only
        in the work: such problems are prepared to find out.

        Parameters
        ----------
        problem : Problem
            Any.

        Returns
        -------
        str or None
        """
        reason = self._reason(plain_problem(problem), problem.noise.is_shared)
        if reason is not None or not _shows_late(problem):
            return reason
        try:
            self.prepare(problem)
        except (UnsupportedProblemError, ConvergenceError) as error:
            return str(error)
        except (MemoryError, ImportError):
            return None  # of this machine, not of the problem
        return None

    def prepare(self, problem: Problem) -> Prepared:
        """Do once what every apply needs.

        Parameters
        ----------
        problem : Problem
            Any.

        Returns
        -------
        Prepared

        Raises
        ------
        UnsupportedProblemError
            If the solver cannot take the problem, with the reason that `supports` gives.
        ConvergenceError
            If it iterates to a constant part and does not come to an end; `supports` says so too.
        MemoryError
            If that would not fit.
        """
        order = in_schema_order(problem.determined)
        plain = plain_problem(order.problem)
        reason = self._reason(plain, problem.noise.is_shared)
        if reason is not None:
            raise UnsupportedProblemError(reason)
        ordered = order.problem
        try:
            prepared = self.plan(plain)
            if plain is not ordered:
                same = plain.desired.names == plain.observed.names
                prepared = SharedNoiseEstimate(ordered, prepared, prepared if same else self.plan(plain.observing()))
        except UnsolvableError as error:
            raise UnsupportedProblemError(str(error)) from None
        if ordered is problem:
            return prepared
        layouts = (problem.observed, order.observed), (problem.desired, order.desired)
        return InOtherLayout(problem, prepared, *(inverse_order(turn, own.size) for own, turn in layouts))

    def _reason(self, plain: Problem, is_shared: bool) -> str | None:
        """Why it does not take a problem, of which this is the plain one, as far as that shows without the work."""
        inexact = self.why_inexact(plain)
        if inexact is not None and is_shared:
            return Refusal(f"shared noise needs the exact estimate without it, but {inexact}", "use solver='auto'")
        if plain.noise.is_singular and not self.takes_singular_noise:
            why = "its covariance is singular: combinations of cells without noise are known exactly"
            return Refusal(why, "use solver='dense'")
        return self.refusal(plain)


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
        """Why this is not a way to the BLUE of a plain problem (see `Solver`), or None."""
        return self.solver.why_not_best(problem)


def plain_problem(problem: Problem) -> Problem:
    """What a solver is given of a problem: in the schema's order, all of it determined, without shared noise."""
    ordered = in_schema_order(problem.determined).problem
    return ordered.replace(noise=ordered.noise.own) if ordered.noise.is_shared else ordered


def _shows_late(problem: Problem) -> bool:
    """Whether a problem states what can be wrong in itself, or takes work: equations, equalities, weights, products."""
    operator = not problem.noise.own.has_entries or problem.noise.is_shared
    return not problem.is_tabular or problem.has_equalities or problem.has_weights or operator
