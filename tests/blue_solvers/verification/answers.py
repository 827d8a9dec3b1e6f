"""Answers to certify: the exact one, each solver's, and deliberately wrong ones, with their true error."""

from dataclasses import dataclass, replace

import numpy as np

from blue_solvers.verification import Certificate, certify
from constraint_builders import Problem
from tests.helpers.oracles.description import Description
from tests.helpers.oracles.exact import Reference, solve
from tests.helpers.oracles.invent import Kind, invent


@dataclass(frozen=True)
class Case:
    """An invented problem whose observed tables are wanted, and its answer to 600 bits."""

    description: Description
    problem: Problem
    y: np.ndarray
    reference: Reference

    def error(self, x: np.ndarray) -> float:
        """See `Reference.error`."""
        return self.reference.error(x)

    def is_sound(self, x: np.ndarray) -> Certificate:
        """The certificate of x, which must not promise too much."""
        certificate = certify(self.problem, self.y, x)
        assert certificate.reason
        if certificate.bound is None:
            assert "not certified" in str(certificate)
        else:
            assert certificate.bound * (1 + 1e-6) >= self.error(x), (certificate.bound, self.error(x))
        return certificate


def case(seed: int, kind: Kind) -> Case | None:
    """The problem of a seed; None where there is none that the package takes."""
    found = invent(seed, kind)
    if found is None:
        return None
    described = replace(found.description, desired=found.description.observed)
    try:
        problem = described.problem()
    except ValueError:
        return None
    return Case(described, problem, found.y, solve(described, found.y))


def moved(case: Case, rng: np.random.Generator, size: float) -> np.ndarray:
    """The exact answer moved along possible counts, so that its tables still agree; some figure by `size` errors."""
    M = case.description.marginal_matrix()
    step = M @ (rng.standard_normal(M.shape[1]) * (rng.random(M.shape[1]) < 0.3) * ~case.description.empty_cells())
    uncertain = case.reference.std_errors > 0
    most = (abs(step[uncertain]) / case.reference.std_errors[uncertain]).max(initial=0.0)
    return case.reference.estimate + step * (size / most if most else 0.0)


def spoilt(case: Case, rng: np.random.Generator, size: float) -> np.ndarray:
    """The exact answer with one figure moved by `size` of its standard errors."""
    x = case.reference.estimate.copy()
    cell = int(rng.integers(x.size))
    x[cell] += size * (case.reference.std_errors[cell] or 1.0) * rng.choice([-1, 1])
    return x
