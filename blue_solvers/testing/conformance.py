"""The laws of a solver, checked on small problems."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from blue_solvers.contract import ConvergenceError, Info, Solver, UnsupportedProblemError
from blue_solvers.operator import BlueOperator, blue
from blue_solvers.testing.adjoints import dot_test
from blue_solvers.testing.check_report import CheckReport
from blue_solvers.testing.dense_reference import DenseReference
from blue_solvers.testing.possible_truths import PossibleTruths
from blue_solvers.testing.refusable_problems import refusable_problems
from blue_solvers.testing.small_problems import problems
from constraint_builders import Problem
from constraint_builders.arrays import Float

TOLERANCE = 1e-9  # standard errors; direct solvers reach 1e-13
ITERATIVE_SLACK = (
    1e4  # a residual of rtol is an error of rtol / sqrt(smallest eigenvalue) at most: 1e-8 in these problems
)
ROUNDING = 64 * float(np.finfo(float).eps)  # of the largest count: what storing and summing a hundred of them costs
DENSE_CELLS = 1500  # observed cells up to which the independent dense estimate is made
COLUMNS = 3


PROPERTIES = (
    "supports_what_blue_takes",
    "shapes_and_columns",
    "linear",
    "adjoint",
    "repeats_itself",
    "gives_back_possible_truths",
    "keeps_equalities",
    "projects",
    "variances_are_those_of_the_covariance",
    "keeps_exact_cells",
    "ignores_unmeasured_cells",
    "pickles",
    "reports",
)


def check_solver(
    solver: Solver,
    problem: Problem | None = None,
    *,
    tolerance: float | None = None,
    rng: np.random.Generator | int | None = None,
) -> CheckReport:
    """Run a solver through every law of the contract.

    Parameters
    ----------
    solver : Solver
        Anybody's, configured.
    problem : Problem, optional
        What to check it on; by default `problems`, those that the solver supports. What it supports is then checked on
        the others too, and on problems that a solver may take or that none can.
    tolerance : float, optional
        Permitted difference in units of each cell's standard error. By default 1e-9, or for a solver that has a field
        `rtol`, 10,000 times that.
    rng : Generator, int or None
        Source of the noisy tables, or its seed; None is a fixed seed.

    Returns
    -------
    CheckReport
        Which laws were checked on which problems, and where the dense estimate was too large to compare with.

    Raises
    ------
    TypeError
        If `solver` is no solver, such as a name.
    AssertionError
        Naming the solver, the problem and the law that broke.
    UnsupportedProblemError
        If the solver does not support the problem given.

    Notes
    -----
    Agreement with the dense estimate is checked on problems of at most 1,500 observed cells, where `info.exact`.

    Examples
    --------
    >>> from blue_solvers import SeaBlue
    >>> from constraint_builders import gallery
    >>> print(check_solver(SeaBlue(), gallery.cube(2, 3)))
    solver 'sea_blue' keeps 13 laws and agrees with the dense estimate on 1 of 1 problem
    """
    if not isinstance(solver, Solver):
        raise TypeError(
            f"check_solver takes a configured solver, such as SeaBlue() or SOLVERS['sea_blue'](): got {solver!r}"
        )
    if tolerance is None:
        tolerance = max(TOLERANCE, ITERATIVE_SLACK * (getattr(solver, "rtol", None) or 0.0))
    generator = np.random.default_rng(0 if rng is None else rng)
    given = problems() if problem is None else {repr(problem): problem}
    checks = [_Check(solver, name, case, tolerance, generator) for name, case in given.items()]
    if problem is None:
        others = [_Check(solver, name, case, tolerance, generator) for name, case in refusable_problems().items()]
        for check in (*checks, *others):
            check.supports_what_blue_takes()
        checks = [check for check in checks if solver.supports(check.problem) is None]
        if not checks:
            raise AssertionError(
                f"solver {solver.name!r} supports none of the problems of blue_solvers.testing.problems"
            )
    compared = {check.name: check.run() for check in checks}
    return CheckReport(
        solver.name, PROPERTIES, tuple(compared), tuple(name for name, dense in compared.items() if dense)
    )


@dataclass
class _Check:
    """One solver on one problem."""

    solver: Solver
    name: str
    problem: Problem
    tolerance: float
    rng: np.random.Generator

    def run(self) -> bool:
        """Every law; whether the dense estimate was compared with."""
        for law in PROPERTIES:
            getattr(self, law)()
        if self.reference is None or not self.P.info.exact:
            return False
        self.agrees_with_dense(self.reference)
        return True

    @cached_property
    def P(self) -> BlueOperator:
        return blue(self.problem, self.solver)

    @cached_property
    def reference(self) -> DenseReference | None:
        return DenseReference.of(self.problem) if self.problem.observed.size <= DENSE_CELLS else None

    @cached_property
    def Y(self) -> Float:
        """Noisy tables: consistent ones, different in each column, plus Gaussian noise of the problem's variances."""
        noise = self.rng.standard_normal((self.problem.observed.size, COLUMNS))
        spread = np.sqrt(np.where(self.problem.unmeasured, 0.0, self.problem.variances))
        return self.consistent + spread[:, None] * noise

    @cached_property
    def truths(self) -> PossibleTruths:
        return PossibleTruths.of(self.problem)

    @cached_property
    def differences(self) -> Float:
        """Of possible truths, (q, COLUMNS)."""
        return self.truths.differences(self.rng, COLUMNS)

    @cached_property
    def consistent(self) -> Float:
        """Tables that agree and satisfy all equalities with 0 on their right-hand sides, (n, COLUMNS)."""
        return self.truths.observed @ self.differences

    @cached_property
    def start(self) -> Float:
        """One possible truth, (n, 1): where estimates are affine these are about it what they are about 0 elsewhere."""
        return (self.truths.observed @ self.truths.start)[:, None]

    @cached_property
    def allowed(self) -> Float:
        """Permitted difference of every cell, (m, 1)."""
        variances = self.P.variances() if self.reference is None else self.reference.variances
        largest = max(1.0, float(abs(self.Y).max(initial=0)), float(abs(self.start).max(initial=0)))
        return (self.tolerance * np.sqrt(np.maximum(variances, 0)) + ROUNDING * largest)[:, None]

    def supports_what_blue_takes(self) -> None:
        """`supports` is None exactly where there is an operator, and otherwise says why there is none."""
        reason, refused = self.solver.supports(self.problem), self._refused()
        if refused is None:
            self.require(reason is None, "supports", f"it says {reason!r}, but blue takes the problem")
            return
        told = f"{type(refused).__name__}: {refused}"
        self.require(isinstance(refused, UnsupportedProblemError | ConvergenceError), "supports", f"blue raises {told}")
        self.require(reason is not None, "supports", f"it is None, but blue raises {told}")
        self.require(bool(reason) and str(reason) in str(refused), "supports", f"it says {reason!r}, but blue {told}")

    def _refused(self) -> Exception | None:
        """What blue raises; but what depends on the machine is not for a solver to know beforehand."""
        try:
            self.P  # noqa: B018
        except (MemoryError, ImportError):
            raise
        except Exception as error:
            return error
        return None

    def shapes_and_columns(self) -> None:
        P, Y = self.P, self.Y
        m, n = self.problem.desired.size, self.problem.observed.size
        self.require(P.shape == (m, n), "shape", f"P is {P.shape}, the problem {(m, n)}")
        before = Y.copy()
        X = P @ Y
        self.require(np.array_equal(before, Y), "input kept", "P @ Y changed Y")
        self.require(
            X.shape == (m, COLUMNS) and X.dtype == np.float64, "shape", f"P @ (n, {COLUMNS}) is {X.dtype} {X.shape}"
        )
        one = P @ Y[:, 0]
        self.require(one.shape == (m,), "shape", f"P @ (n,) has shape {one.shape}")
        self.same(one[:, None], X[:, :1], "one column is what many columns give")
        U = np.ones((m, COLUMNS))
        self.require((P.T @ U).shape == (n, COLUMNS), "shape", f"P.T @ (m, {COLUMNS}) has shape {(P.T @ U).shape}")
        self.require((P.T @ U[:, 0]).shape == (n,), "shape", f"P.T @ (m,) has shape {(P.T @ U[:, 0]).shape}")

    def linear(self) -> None:
        P, Y = self.P, self.Y
        mixed = P @ (0.5 * Y[:, 0] - 0.25 * Y[:, 1])
        self.same(mixed, 0.5 * (P @ Y[:, 0]) - 0.25 * (P @ Y[:, 1]), "linear")

    def adjoint(self) -> None:
        """Both sides standardised, so that no cell drowns another."""
        deviations = np.sqrt(np.where(self.problem.unmeasured, 0.0, self.problem.variances))
        errors = self.allowed[:, 0] / self.tolerance
        scaled = aslinearoperator(sparse.diags_array(1 / errors)) @ self.P
        scaled = scaled @ aslinearoperator(sparse.diags_array(np.where(deviations > 0, deviations, 1.0)))
        try:
            dot_test(scaled, self.rng, rtol=10 * self.tolerance)
        except AssertionError as error:
            self.require(False, "adjoint", str(error))

    def repeats_itself(self) -> None:
        self.require(np.array_equal(self.P @ self.Y, self.P @ self.Y), "deterministic", "two applies differ")

    def gives_back_possible_truths(self) -> None:
        """Unbiased: what the equalities allow is estimated by itself, with the offset that they add."""
        P, offset = self.P, self.P.offset
        m = self.problem.desired.size
        self.require(
            offset.shape == (m,) and offset.dtype == np.float64, "offset", f"it is {offset.dtype} {offset.shape}"
        )
        if not self.truths.g.any():
            self.require(not offset.any(), "offset", "it is not 0, though all right-hand sides are")
        desired = self.truths.desired @ self.differences
        self.same(P @ self.consistent, desired, "consistent tables stay as they are")
        start = (self.truths.desired @ self.truths.start)[:, None]
        law = "unbiased: P @ x + P.offset is x where A x = b"
        self.same(P @ (self.consistent + self.start) + offset[:, None], desired + start, law)
        estimate = P.estimate(self.Y[:, 0] + self.start[:, 0]).values
        self.same(
            estimate[:, None], P @ (self.Y + self.start)[:, :1] + offset[:, None], "estimates are P @ y + P.offset"
        )

    def keeps_equalities(self) -> None:
        """E x = e of estimates from any noise, and E P = 0."""
        if self.problem.desired.names != self.problem.observed.names or self.problem.equalities is None:
            return
        E, e = self.problem.equalities
        X = self.P @ (self.Y + self.start) + self.P.offset[:, None]
        bound = abs(E) @ np.broadcast_to(self.allowed, X.shape)
        for law, residual in (
            ("equalities hold: E (P @ y + P.offset) = e", E @ X - e[:, None]),
            ("equalities hold: E P = 0", E @ (self.P @ self.Y)),
        ):
            self.require(
                bool((abs(residual) <= bound).all()), law, f"largest residual {abs(residual).max(initial=0):.3g}"
            )

    def projects(self) -> None:
        if self.problem.desired.names != self.problem.observed.names:
            return
        X = self.P @ self.Y
        self.same(self.P @ X, X, "P P = P")
        offset = self.P.offset[:, None]
        self.same(self.P @ (X + self.start), X + self.P @ self.start, "P P = P, from any possible truth")
        self.same(self.P @ (X + offset) + offset, X + offset, "estimates are their own estimates")
        A = self.problem.constraint_matrix("all")
        residual = abs(A @ X)
        self.require(
            bool((residual <= abs(A) @ np.broadcast_to(self.allowed, X.shape)).all()),
            "A P = 0",
            f"largest residual {residual.max(initial=0):.3g}",
        )

    def variances_are_those_of_the_covariance(self) -> None:
        variances = self.P.variances()
        m = self.problem.desired.size
        self.require(variances.shape == (m,), "variances", f"shape {variances.shape}, not {(m,)}")
        cells = self.rng.permutation(m)[:50]
        units = np.zeros((m, cells.size))
        units[cells, np.arange(cells.size)] = 1
        columns = self.P.covariance @ units
        self.close(variances[cells], columns[cells, np.arange(cells.size)], "variances are the covariance's diagonal")
        self.close(columns[cells], columns[cells].T, "covariance is symmetric")
        found = self.P.functional_covariance(sparse.csc_array(units))
        self.close(found, columns[cells], "covariance of functionals is the covariance's")

    def keeps_exact_cells(self) -> None:
        problem, exact = self.problem, self.problem.exact
        if not problem.is_tabular or not exact.any():
            return
        Y, X = self.Y, self.P @ self.Y
        known = problem.observed.tables(np.where(exact[:, None], Y, np.nan))
        for name, cells in problem.desired.tables(X).items():
            if name in known:
                own = known[name]
                kept = np.isnan(own) | (abs(cells - own) <= ROUNDING * np.maximum(1, abs(own)))
                self.require(bool(kept.all()), "exact cells are kept", f"table {name!r} changed")

    def ignores_unmeasured_cells(self) -> None:
        unmeasured = self.problem.unmeasured
        if not unmeasured.any():
            return
        Y = self.Y.copy()
        X = self.P @ Y
        Y[unmeasured] = np.nan
        self.require(
            np.array_equal(self.P @ Y, X), "cells not measured are ignored", "NaN in them changed the estimate"
        )
        tables: dict[Any, Any] = self.problem.observed.tables(Y)
        laid_out = self.problem.vector(tables)
        self.require(np.array_equal(laid_out, Y, equal_nan=True), "problem.vector takes NaN", "in cells not measured")
        weights = self.P.T @ np.eye(self.problem.desired.size)
        self.require(
            not weights[unmeasured].any(), "cells not measured have zero columns", "their weights are not zero"
        )

    def pickles(self) -> None:
        loaded = pickle.loads(pickle.dumps(self.P))
        self.same(loaded @ self.Y, self.P @ self.Y, "pickling")
        self.require(loaded.solver == self.P.solver, "pickling", "the loaded solver is configured differently")

    def reports(self) -> None:
        y = (self.Y + self.start)[:, 0]  # exact values of Y alone contradict equalities that are not 0
        estimate = self.P.estimate(y)
        X, info = estimate.values, estimate.info
        self.require(isinstance(info, Info), "info", f"it is a {type(info).__name__}, not an Info")
        self.require(
            isinstance(info.solver, str) and bool(info.solver), "info.solver", f"{info.solver!r} names nothing"
        )
        self.require(isinstance(info.exact, bool), "info.exact", f"{info.exact!r} is not a bool")
        self.require(isinstance(info.reason, str) and bool(info.reason), "info.reason", f"{info.reason!r} says nothing")
        self.require(
            isinstance(info.iterations, int) and info.iterations >= 0, "info.iterations", f"{info.iterations!r}"
        )
        violation = 0.0 if info.violation is None else info.violation
        for field, value in {"residual": info.residual, "violation": violation, "seconds": info.seconds}.items():
            self.require(np.isfinite(value) and value >= 0, f"info.{field}", f"{value!r} is not a number of 0 or more")
        scale = max(1.0, float(abs(X).max(initial=0)), float(abs(y).max(initial=0)))
        self.require(
            violation <= max(self.tolerance, ROUNDING) * 100 * scale, "info.violation", f"{info.violation!r} is large"
        )

    def agrees_with_dense(self, dense: DenseReference) -> None:
        self.same(
            self.P @ self.Y, dense.operator @ np.where(self.problem.unmeasured[:, None], 0, self.Y), "P is the BLUE's"
        )
        if not (self.problem.exact.any() and self.truths.g.any()):  # else it may be told by exact values as well
            self.same(self.P.offset, dense.offset, "offset")
        y = np.where(self.problem.unmeasured[:, None], 0, self.Y + self.start)
        expected = dense.operator @ y + dense.offset[:, None]
        self.same(self.P @ y + self.P.offset[:, None], expected, "P @ y + P.offset is the BLUE")
        self.close(self.P.variances(), dense.variances, "variances are the BLUE's")

    def same(self, X: Float, expected: Float, law: str) -> None:
        """Equal in units of standard errors, (m,) or (m, K)."""
        columns = X.reshape(X.shape[0], -1)
        excess = abs(columns - expected.reshape(columns.shape)) / self.allowed
        if not (excess <= 1).all():
            worst = np.unravel_index(int(np.nan_to_num(excess, nan=np.inf).argmax()), excess.shape)
            where = self.problem.desired.describe(int(worst[0]))
            self.require(False, law, f"{where} differs by {excess[worst]:.3g} times what is permitted")

    def close(self, variances: Float, expected: Float, law: str) -> None:
        """Equal as variances, (k,), or covariances, (k, k), relative to the cells' own."""
        scale = float(abs(expected).max(initial=0))
        bound = 10 * self.tolerance * abs(expected) + 10 * max(self.tolerance**2, ROUNDING) * scale
        if expected.ndim == 2:
            own = np.sqrt(abs(np.diag(expected)))
            bound = bound + 10 * self.tolerance * np.outer(own, own)
        difference = abs(variances - expected)
        self.require(bool((difference <= bound).all()), law, f"largest difference {difference.max(initial=0):.3g}")

    def require(self, holds: bool, law: str, detail: str) -> None:
        if not holds:
            raise AssertionError(f"solver {self.solver.name!r} on {self.name} breaks {law!r}: {detail}")
