"""What a solver says of a problem, in every way that it can be asked, beside what is so."""

import re
from dataclasses import dataclass, field

import numpy as np

from blue_solvers import BlueOperator, ConvergenceError, Estimate, Solver, UnsupportedProblemError, blue
from tests.helpers.oracles.compare import EPSILON, ROUNDING, Tolerance, largest, wrong_estimates, wrong_variances
from tests.helpers.oracles.description import Description
from tests.soak.problems import Posed

TOLERANCE = Tolerance(estimate=1e-6, variance=1e-6)
KNOWN = 1e-13  # of the largest figure, that one known exactly may be off by, as docs/promises.md says
FUNCTIONALS = 4
MOST_LISTED = 100_000  # entries of a matrix that a violation is looked for in


@dataclass(frozen=True)
class Outcome:
    """What came of one solver and one problem.

    Attributes
    ----------
    refused : str
        Why it was not taken, numbers left out; "" if it was.
    exact : bool
        Whether the solver calls its answer the BLUE.
    off : float
        Largest error beyond rounding in standard errors, of an answer that is called exact.
    wrong : list of str
    """

    refused: str = ""
    exact: bool = False
    off: float = 0.0
    wrong: list[str] = field(default_factory=list)


def judged(
    posed: Posed, solver: Solver, fit: bool = True, tolerance: Tolerance = TOLERANCE, proof: bool = True
) -> Outcome:
    """Values, variances, transpose and functionals of one solver; with `proof`, that and what it reports.

    With `fit` as well, how well the measurements fit, and planted errors.
    """
    try:
        P = blue(posed.problem, solver)
    except (UnsupportedProblemError, ConvergenceError) as refusal:
        wrong = [] if solver.supports(posed.problem) else [f"said to be taken: {refusal}"]
        return Outcome(refused=without_numbers(refusal), wrong=wrong)
    if reason := solver.supports(posed.problem):
        return Outcome(wrong=[f"said to be refused, and taken: {reason}"])
    try:
        return _asked(posed, P, fit, tolerance, proof)
    except (UnsupportedProblemError, ConvergenceError) as refusal:
        return Outcome(refused=f"when asked, {without_numbers(refusal)}")


def _asked(posed: Posed, P: BlueOperator, fit: bool, tolerance: Tolerance, proof: bool) -> Outcome:
    invented, reference = posed.invented, posed.invented.reference
    x, info = P.apply(invented.y)
    x = x + P.offset
    wrong, floor = [], np.maximum(rounding(posed), ROUNDING * EPSILON * (reference.moved + abs(P.offset)))
    floor[reference.variances == 0] += KNOWN * largest(invented)
    if info.exact:
        wrong += wrong_estimates(info, x, invented, tolerance, floor) + wrong_variances(P, invented, tolerance)
        wrong += _wrong_transpose(P, posed, x) + _wrong_functionals(P, posed, tolerance.variance)
    if proof:
        wrong += _wrong_proof(P, posed, fit, tolerance, floor)
    beyond = np.maximum(abs(x - reference.estimate) - floor, 0)
    off = float((beyond / np.where(reference.variances > 0, reference.std_errors, np.inf)).max(initial=0.0))
    return Outcome("", info.exact, off if info.exact else 0.0, wrong)


def _wrong_proof(P: BlueOperator, posed: Posed, fit: bool, tolerance: Tolerance, floor: np.ndarray) -> list[str]:
    """What is proved of an estimate that is proved, and what it reports."""
    invented, reference, wrong = posed.invented, posed.invented.reference, []
    estimate = P.estimate(invented.y, certify=True)
    if estimate.info.exact:
        wrong += [
            f"proved {own}" for own in wrong_estimates(estimate.info, estimate.values, invented, tolerance, floor)
        ]
        wrong += _wrong_fit(estimate, posed) if fit else []
    wrong += _wrong_violation(estimate, posed) + (_wrong_bounds(P, posed, estimate) if fit else [])
    bound = estimate.certificate().bound
    if bound is not None and not bound * (1 + 1e-6) >= reference.error(estimate.values):
        wrong.append(f"proved to {bound:.3g} standard errors, {reference.error(estimate.values):.3g} off")
    return wrong


def rounding(posed: Posed) -> float:
    """How far doubles may be off, in counts."""
    return ROUNDING * EPSILON * largest(posed.invented)


def without_numbers(error: Exception) -> str:
    """A message as one of its kind."""
    text = re.sub(r"'[^']*'|\([^)]*\)", "_", str(error))
    return f"{type(error).__name__}: {re.sub(r'[-+]?[0-9][0-9.,e+-]*', '#', text)[:110]}"


def _wrong_transpose(P: BlueOperator, posed: Posed, x: np.ndarray) -> list[str]:
    y = posed.invented.y
    v = np.random.default_rng(0).standard_normal(x.size)
    pulled, moved = P.T @ v, x - P.offset
    apart, size = abs(pulled @ y - v @ moved), abs(pulled) @ abs(y) + abs(v) @ (abs(moved) + abs(P.offset))
    allowed = 1e-9 * size + rounding(posed) * abs(v).sum()
    return [f"transpose {apart / size:.3g} of its size off"] if apart > allowed else []


def _wrong_functionals(P: BlueOperator, posed: Posed, tolerance: float) -> list[str]:
    """Covariance of some cells as functionals, and its columns."""
    expected = posed.invented.reference.variances
    cells = np.random.default_rng(0).permutation(expected.size)[:FUNCTIONALS]
    cells = np.unique([*cells, *np.flatnonzero(expected == 0)[:1]]).astype(int)
    W = np.zeros((expected.size, cells.size))
    W[cells, np.arange(cells.size)] = 1
    covariance, expected = P.functional_covariance(W), expected[cells]
    wrong = []
    if (abs(covariance.diagonal() - expected) > tolerance * expected).any():  # what is known exactly has none
        wrong.append(f"variances of functionals {covariance.diagonal().tolist()} for {expected.tolist()}")
    largest = max(P.problem.variances[~P.problem.unmeasured].max(), expected.max())
    rounding_of_sums = EPSILON * P.shape[1] * largest  # a column adds as many products as there are cells
    allowed = tolerance * np.sqrt(expected.max() * expected) + rounding_of_sums
    if (abs((P.covariance @ W)[cells] - covariance) > allowed).any():
        wrong.append("columns of the covariance are not those of functionals")
    return wrong


def _wrong_bounds(P: BlueOperator, posed: Posed, estimate: Estimate) -> list[str]:
    """Planted errors that are proved to be smaller: of any size, and as small as figures known exactly may have."""
    reference, rng = posed.invented.reference, np.random.default_rng(0)
    noise = reference.std_errors * rng.standard_normal(reference.estimate.size)
    planted = [reference.estimate * (1 + KNOWN / 2), *(reference.estimate + noise * 10.0**own for own in (-8, -3, 1))]
    found = [(P.certificate(posed.invented.y, x, estimate.observed).bound, reference.error(x)) for x in planted]
    return [
        f"planted {error:.3g} standard errors off, proved to {bound:.3g}"
        for bound, error in found
        if bound is not None and not bound * (1 + 1e-6) >= error
    ]


def _wrong_fit(estimate: Estimate, posed: Posed) -> list[str]:
    """Chi-square and its degrees of freedom."""
    expected, fit = posed.invented.reference, estimate.goodness_of_fit(draws=2, rng=0)
    wrong = []
    if fit.degrees_of_freedom != expected.degrees_of_freedom:
        wrong.append(f"{fit.degrees_of_freedom} degrees of freedom for {expected.degrees_of_freedom}")
    noise = own_noise(posed.invented.description)
    moved = rounding(posed) * np.sqrt((1 / noise).sum())
    allowed = 1e-6 * (1 + expected.statistic) + 2 * np.sqrt(expected.statistic) * moved + moved**2
    if abs(fit.statistic - expected.statistic) > allowed:
        wrong.append(f"chi-square {fit.statistic!r} for {expected.statistic!r}")
    return wrong


def own_noise(description: Description) -> np.ndarray:
    """The least variance that noisy cells have of their own."""
    own = description.variances if description.shared is None else description.shared[0]
    noise = own[(own > 0) & np.isfinite(own)]
    correlated = description.covariance is not None and description.shared is None
    return noise / 10 if correlated else noise


def _wrong_violation(estimate: Estimate, posed: Posed) -> list[str]:
    """Tables of an answer, a heuristic one too, that do not agree while it is said that they do."""
    d = posed.invented.description
    same = [(b.level, b.factors) for b in d.desired] == [(b.level, b.factors) for b in d.observed]
    M = d.marginal_matrix()
    if not same or M.size > MOST_LISTED or d.equalities is not None or d.zeros or not M.any():
        return []
    left = estimate.values - M @ np.linalg.lstsq(M, estimate.values, rcond=None)[0]
    floor = 1e3 * max(rounding(posed), EPSILON * abs(estimate.values).max())
    said = estimate.info.violation or 0.0
    if estimate.info.solver != "sea_blue" and abs(left).max(initial=0.0) > floor + 10 * said * len(M):
        return [f"tables {abs(left).max():.3g} apart, {said:.3g} said"]
    return []
