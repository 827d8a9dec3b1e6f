"""What a solver says of an invented problem, beside what is so."""

from dataclasses import dataclass

import numpy as np

from blue_solvers import BlueOperator, ConvergenceError, Info, Solver, UnsupportedProblemError, blue
from tests.helpers.oracles.invent import Invented

EPSILON = float(np.finfo(float).eps)
ROUNDING = 64  # units in the last place of the largest value, or of the largest noise


@dataclass(frozen=True)
class Tolerance:
    """Errors that are allowed: of estimates in their standard errors, of variances in themselves."""

    estimate: float = 1e-8
    variance: float = 1e-7


def differences(invented: Invented, solver: Solver | str, tolerance: Tolerance = Tolerance()) -> list[str] | None:
    """Everything that a solver says wrongly; None where it refuses the problem by name or does not call it exact."""
    try:
        P = blue(invented.description.problem(), solver)
        x, info = P.apply(invented.y)
        proved = P.estimate(invented.y, certify=True)
    except (UnsupportedProblemError, ConvergenceError):
        return None
    wrong = []
    if info.exact:
        wrong += wrong_estimates(info, x + P.offset, invented, tolerance) + wrong_variances(P, invented, tolerance)
    bound = proved.certificate().bound
    if bound is not None and bound * (1 + 1e-6) < invented.reference.error(proved.values):
        wrong.append(f"proved to {bound:.3g} standard errors, {invented.reference.error(proved.values):.3g} off")
    if proved.info.exact:
        wrong += [f"proved {w}" for w in wrong_estimates(proved.info, proved.values, invented, tolerance)]
    return wrong if wrong or info.exact else None


def wrong_estimates(
    info: Info, x: np.ndarray, invented: Invented, tolerance: Tolerance, floor: float | np.ndarray | None = None
) -> list[str]:
    """Estimates that are off by more than the tolerance, or than their own bound, and than rounding."""
    reference = invented.reference
    errors = abs(x - reference.estimate)
    floor = ROUNDING * EPSILON * largest(invented) if floor is None else floor
    wrong = []
    if not (errors <= tolerance.estimate * reference.std_errors + floor).all():
        worst = (np.maximum(errors - floor, 0) / np.maximum(reference.std_errors, 1e-300)).max()
        wrong.append(f"estimates {errors.max():.3g} off, {worst:.3g} standard errors")
    bound = info.error_bound
    if bound is not None and not (errors <= bound * reference.std_errors + floor).all():
        wrong.append(f"estimates beyond their bound of {bound:.3g} standard errors")
    return wrong


def wrong_variances(P: BlueOperator, invented: Invented, tolerance: Tolerance) -> list[str]:
    """Variances that are off by more than the tolerance, or not 0 where the figure is known exactly."""
    reference = invented.reference.variances
    errors = abs(P.variances() - reference)
    if (errors <= tolerance.variance * reference).all():  # what is known exactly has none
        return []
    known = errors[reference == 0].max(initial=0)
    relative = (errors[reference > 0] / reference[reference > 0]).max(initial=0)
    return [f"variances {relative:.3g} of themselves off, {known:.3g} where the value is known"]


def largest(invented: Invented) -> float:
    """The largest value, or standard deviation of its noise, as equalities weigh it: what rounding is relative to."""
    v, weighed = invented.description.variances, 1.0
    if invented.description.equalities is not None:
        sizes = abs(invented.description.equalities[0])
        least = np.where(sizes > 0, sizes, np.inf).min(axis=1)
        weighed = float((sizes.max(axis=1) / least).max(initial=1.0))
    return weighed * float(max(abs(invented.y).max(initial=1), 2 * np.sqrt(v[np.isfinite(v)]).max(initial=0)))
