"""What non-negative output must cost: lower and upper bounds on the errors of points and of their sum.

There are d disjoint point queries and the query that is their sum. A mechanism that outputs a non-negatively weighted
data set promises, on every data set, root mean squared error at most C for every point and at most D for the sum.
Theorem 3 says which (C, D) no private mechanism can promise; Theorem 4 gives mechanisms, and what they do promise.
Neighbours differ by one record more or less; docs/microdata.md has what is stated here.

Proof of the sharper form of Theorem 3.
Let O be the empty data set and D_i the one with n records, all counted by q_i. On D_i, Chebyshev's inequality (in the
form of Markov's for the square) gives P(q_i(M(D_i)) < k) <= P(|error| > n - k) <= C^2 / (n - k)^2, so the event E_i
that the output has q_i >= k has probability at least p = 1 - C^2 / (n - k)^2. D_i and O are n records apart, so
P_O(E_i) >= reach(n, p). Weights are not negative and the queries disjoint, so sum_i q_i(M(O)) = q*(M(O)), and by
Markov's inequality sum_i k P_O(E_i) <= E q*(M(O)). As q*(O) = 0, E q*(M(O)) <= sqrt(E (q*(M(O)) - q*(O))^2) <= D.
Together d k reach(n, p) <= D.

How far n records reach.
Pure: group privacy. Approximate: P_n >= e^-eps (P_(n-1) - delta) applied n times; the geometric sum is delta (1 -
e^(-eps n)) / (e^eps - 1). zCDP: n records cost n^2 rho (Bun and Steinke), so for every a > 1 the Renyi divergence of
order a of (event, complement) is at most n^2 rho a; it is at least (1/(a-1)) log(p^a q^(1-a)), q the probability n
records away, whence log(1/q) <= a n^2 rho + a/(a-1) log(1/p). The right side is least at a = 1 + sqrt(log(1/p) / (n^2
rho)), where it is (n sqrt(rho) + sqrt(log(1/p)))^2.

Proof of the lemma of Theorem 4.
a'_i = max(0, a_i - t) for one t. If t > B, then a'_i <= max(0, q_i) = q_i for all i and sum (q_i - a'_i) = q* - a* <=
B, terms not negative: each is at most B. If t < -B, then a'_i >= q_i for all i and the sum of the excesses is at most
B. Otherwise |a'_i - q_i| <= |a_i - t - q_i| <= 2B.

The errors of points in Theorem 4.
It is used that the largest of N exponentials has mean b H and variance b^2 H2, and for Gaussians P(max z^2 > u) <=
min(1, N e^(-u rho / 2)).

The approximate form of Theorem 4.
Of this algorithm the paper gives only the rates. The points' noise has density proportional to e^(-|x| / b), b = 2/eps,
on [-A, A], with A = b log(1 + (e^(eps/2) - 1) / (2 delta)). One record shifts one point by 1; the ratio of densities is
at most e^(1/b) = e^(eps/2) where both are positive, and the mass within 1 of the end is (1 - e^(-1/b)) e^(-(A-1)/b) /
(2 (1 - e^(-A/b))) = (e^(eps/2) - 1) / (2 (e^(A/b) - 1)) = delta. So it is (eps/2, delta)-DP (Geng and others), with the
sum (eps, delta)-DP. No point is ever off by more than A, so B <= max(A, |noise of the sum|) and d does not enter.

References
----------
"An Uncertainty Principle is a Price of Privacy-Preserving Microdata", NeurIPS 2021, Theorems 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from blue_solvers.nonnegative.model import FittingModel
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import positive_number, share, whole_number
from constraint_builders.relations.bases import first_cells, refines

SMALLEST_ERROR = 1e-9
CANDIDATES = 400
SMALLEST_REACH = 1e-30
LARGEST_DISTANCE = 1e12


@dataclass(frozen=True)
class PureDP:
    """Pure differential privacy.

    Attributes
    ----------
    epsilon : float
        Positive and finite.
    """

    epsilon: float
    noise: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive_number(self.epsilon, "epsilon"))

    def even_split_variance(self, tables: int) -> float:
        """Variance of the Laplace noise on each of `tables` tables that share the budget evenly."""
        return 2 * (tables / self.epsilon) ** 2

    def reach(self, records: Float, probability: Float) -> Float:
        """The least probability, (...), that an event of this `probability` still has `records` records away."""
        return probability * np.exp(-self.epsilon * records)


@dataclass(frozen=True)
class ApproximateDP:
    """Approximate differential privacy.

    Attributes
    ----------
    epsilon : float
        Positive and finite.
    delta : float
        Between 0 and 1, both excluded.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive_number(self.epsilon, "epsilon"))
        object.__setattr__(self, "delta", share(self.delta, "delta"))

    def reach(self, records: Float, probability: Float) -> Float:
        """The least probability, (...), that an event of this `probability` still has `records` records away."""
        lost = self.delta * -np.expm1(-self.epsilon * records) / np.expm1(self.epsilon)
        return np.maximum(0.0, probability * np.exp(-self.epsilon * records) - lost)


@dataclass(frozen=True)
class ZeroConcentratedDP:
    """Zero-concentrated differential privacy.

    Attributes
    ----------
    rho : float
        Positive and finite.
    """

    rho: float
    noise: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", positive_number(self.rho, "rho"))

    def even_split_variance(self, tables: int) -> float:
        """Variance of the Gaussian noise on each of `tables` tables that share the budget evenly."""
        return tables / (2 * self.rho)

    def reach(self, records: Float, probability: Float) -> Float:
        """The least probability, (...), that an event of this `probability` still has `records` records away."""
        return np.exp(-((np.sqrt(self.rho) * records + np.sqrt(np.log(1 / probability))) ** 2))


Privacy = PureDP | ApproximateDP | ZeroConcentratedDP


def least_sum_error(point_error: float, d: int, privacy: Privacy, form: str = "sharp") -> float:
    """The least D that a promise of C for every point leaves possible.

    Parameters
    ----------
    point_error : float
        C: root mean squared error promised for every point, in counts.
    d : int
        Number of points.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    form : {"sharp", "paper"}
        ``"sharp"``: our bound, ``D >= d k reach(n, 1 - C^2 / (n - k)^2)`` maximised over whole n and real k < n - C.
        ``"paper"``: Theorem 3 as printed, ``e^(2 epsilon (2C+k)) (delta/epsilon + (4C+2D+k) / (k(d-1))) >= 1/4``,
        maximised over k.

    Returns
    -------
    float
        Root mean squared error of the sum, in counts; 0 where the promise costs nothing.

    Raises
    ------
    ValueError
        If an argument is out of range, or the paper's form is asked for zCDP, where the paper omits it.
    """
    d, point_error = whole_number(d, "d", 2), positive_number(point_error, "point_error")
    if form == "sharp":
        return _sharp_sum_error(point_error, d, privacy)
    if form != "paper":
        raise ValueError(f"form must be 'sharp' or 'paper': got {form!r}")
    if isinstance(privacy, ZeroConcentratedDP):
        raise ValueError("the paper omits its trade-off for zCDP: use form='sharp'")
    return _paper_sum_error(point_error, d, privacy)


def least_point_error(sum_error: float, d: int, privacy: Privacy, form: str = "sharp") -> float:
    """The least C that a promise of D for the sum leaves possible.

    Parameters
    ----------
    sum_error : float
        D: root mean squared error promised for the sum, in counts.
    d, privacy, form
        As in `least_sum_error`, of which this is the inverse.

    Returns
    -------
    float
        Root mean squared error of the worst point, in counts.

    Raises
    ------
    ValueError
        As `least_sum_error`.
    """
    sum_error = positive_number(sum_error, "sum_error")

    def excess(logarithm: float) -> float:
        return least_sum_error(float(np.exp(logarithm)), d, privacy, form) - sum_error

    low, high = np.log(SMALLEST_ERROR), 0.0
    if excess(low) <= 0:
        return 0.0
    while excess(high) > 0:
        high += 1.0
    return float(np.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-12)))


def is_possible(point_error: float, sum_error: float, d: int, privacy: Privacy, form: str = "sharp") -> bool:
    """Whether the lower bound leaves room for a promise of C for every point and D for their sum.

    Parameters
    ----------
    point_error, sum_error : float
        C and D: root mean squared errors, in counts.
    d, privacy, form
        As in `least_sum_error`.

    Returns
    -------
    bool
        False: no mechanism with non-negative output can promise both. True: not ruled out.
    """
    sum_error = positive_number(sum_error, "sum_error")
    return sum_error >= least_sum_error(point_error, d, privacy, form)


@dataclass(frozen=True)
class Conflict:
    """Two promises that no private mechanism with non-negative output can keep.

    Attributes
    ----------
    sum_table, point_table : str
    d : int
        Cells of the point table in one cell of the sum table, the most there are.
    promised, least : float
        Root mean squared error of the sum table's cells: promised, and the least possible beside the point table's.
    """

    sum_table: str
    point_table: str
    d: int
    promised: float
    least: float


def conflicts(problem: Problem, errors: Mapping[str, float], privacy: Privacy) -> list[Conflict]:
    """Which of a set of error guarantees cannot be kept together by non-negative output.

    Parameters
    ----------
    problem : Problem
    errors : mapping of str to float
        For observed tables the root mean squared error promised for each of their cells on every data set, in counts.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
        Of everything that is released together.

    Returns
    -------
    list of Conflict
        Empty if the lower bounds rule nothing out.

    Raises
    ------
    ValueError
        If a table is not observed, an error is not positive, or the problem has no schema.
    """
    if not problem.is_tabular:
        raise ValueError("promises conflict between tables of one schema: a problem made from a matrix has none")
    model = FittingModel(problem)
    given = {name: positive_number(error, f"error of {name!r}") for name, error in errors.items()}
    found = []
    for coarse, promised in given.items():
        for fine, point_error in given.items():
            points = _points_per_sum(model.labels(fine), model.labels(coarse))
            if points < 2:
                continue
            least = least_sum_error(point_error, points, privacy)
            if promised < least:
                found.append(Conflict(coarse, fine, points, promised, least))
    return found


def upper_bounds_accurate_points(d: int, privacy: Privacy) -> tuple[float, float]:
    """What `mechanisms.accurate_points` promises (Theorem 4, items 1 and 2).

    Parameters
    ----------
    d : int
        Number of points.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP

    Returns
    -------
    point, total : float
        Mean squared errors, in squared counts, of every point and of the sum on every data set.
    """
    d = whole_number(d, "d", 2)
    variance = 1 / (2 * privacy.rho) if isinstance(privacy, ZeroConcentratedDP) else 2 / privacy.epsilon**2
    return variance, d**2 * variance


def upper_bounds_accurate_sum(d: int, privacy: Privacy) -> tuple[float, float]:
    """What `mechanisms.accurate_sum` promises (Theorem 4, items 3 to 5, with constants).

    Parameters
    ----------
    d : int
        Number of points.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP

    Returns
    -------
    point, total : float
        Mean squared errors, in squared counts, of every point and of the sum on every data set.
    """
    d = whole_number(d, "d", 2)
    if isinstance(privacy, ZeroConcentratedDP):
        return 8 / privacy.rho * (1 + np.log(d + 1)), 1 / privacy.rho
    total = 8 / privacy.epsilon**2
    if isinstance(privacy, ApproximateDP):
        return 4 * (truncation(privacy) ** 2 + total), total
    inverses = 1 / np.arange(1, d + 2)
    return 2 * total * float(inverses.sum() ** 2 + (inverses**2).sum()), total


def truncation(privacy: ApproximateDP) -> float:
    """Where the Laplace noise of scale 2 / epsilon is cut off so that it costs (epsilon / 2, delta), in counts."""
    return 2 / privacy.epsilon * float(np.log1p(np.expm1(privacy.epsilon / 2) / (2 * privacy.delta)))


def _sharp_sum_error(C: float, d: int, privacy: Privacy) -> float:
    """Any n and k give a bound: a grid of n, and for each a grid of k that is then refined at the best."""
    farthest = 4 * C + CANDIDATES
    while privacy.reach(np.array([farthest]), np.ones(1))[0] > SMALLEST_REACH and farthest < LARGEST_DISTANCE:
        farthest *= 2
    records = np.unique(np.round(np.geomspace(1, farthest, CANDIDATES)))
    records = records[records > C]

    def bound(n: Float, k: Float) -> Float:
        """The bound that n and k give, of shapes that broadcast."""
        return d * k * privacy.reach(n, 1 - (C / (n - k)) ** 2)

    share = (np.arange(CANDIDATES) + 0.5) / CANDIDATES
    grid = bound(records[:, None], share * (records[:, None] - C))
    best = records[np.unravel_index(grid.argmax(), grid.shape)[0]]
    refined = _maximise(lambda k: float(bound(np.array([best]), np.array([k]))[0]), 0.0, best - C)
    return max(float(grid.max()), refined)


def _paper_sum_error(C: float, d: int, privacy: PureDP | ApproximateDP) -> float:
    delta = privacy.delta if isinstance(privacy, ApproximateDP) else 0.0

    def bound(k: float) -> float:
        chance = np.exp(-2 * privacy.epsilon * (2 * C + k)) / 4 - delta / privacy.epsilon
        return float(0.5 * (k * (d - 1) * chance - 4 * C - k))

    # Beyond 1 / (2 epsilon) the first term falls, and so does the rest.
    return max(0.0, _maximise(bound, 0.0, 1 / (2 * privacy.epsilon)))


def _maximise(function: Callable[[float], float], low: float, high: float) -> float:
    return -float(scipy.optimize.minimize_scalar(lambda k: -function(k), bounds=(low, high), method="bounded").fun)


def _points_per_sum(fine: NDArray[np.intp], coarse: NDArray[np.intp]) -> int:
    """The most groups of `fine` in one of `coarse`, both (cells,); 0 if `fine` does not refine it."""
    return int(np.bincount(coarse[first_cells(fine)]).max()) if refines(fine, coarse) else 0
