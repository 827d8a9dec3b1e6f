"""Privacy-loss accounting: composition, and conversion between zCDP, pure DP and (epsilon, delta).

Losses are what `constraint_builders.budget` computes; whether neighbouring data sets change a record
(bounded) or add or remove one (unbounded) is settled there, when a variance becomes a loss, and a loss here
means what it meant there. Losses of different measures or neighbours must not be mixed; `pure_to_zcdp` makes
the measures equal.

zCDP has two conversions to (epsilon, delta). The *simple* one is Proposition 1.3 of Bun and Steinke (2016),

    epsilon = rho + 2 sqrt(rho log(1/delta)),

the *tight* one Corollary 13 of Canonne, Kamath and Steinke (2020), minimised numerically over alpha > 1,

    delta = min over alpha of  exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha.

Both hold for every rho-zCDP mechanism. `gaussian_delta` is exact, but for the continuous Gaussian alone
(Balle and Wang, 2018); discrete Gaussian noise is close to it, not bound by it.

References
----------
Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018.
Bun and Steinke, "Concentrated differential privacy", TCC 2016.
Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from numbers import Rational
from typing import Any, Literal, TypeAlias

import scipy
from scipy.special import log_ndtr

from constraint_builders.description.reals import number_from_0, share, shown

__all__ = ["compose", "gaussian_delta", "gaussian_epsilon", "pure_to_zcdp", "zcdp_delta", "zcdp_epsilon"]

Loss: TypeAlias = Fraction | float
Bound: TypeAlias = Literal["tight", "simple"]

# Losses that are converted: beyond them the formulas leave the range of float64, and no promise means anything.
_SMALLEST, _LARGEST = 1e-300, 1e12
_ITERATIONS = 2000  # of bisection: an interval of floats has fewer halvings


def compose(losses: Iterable[Loss] | Mapping[str, Any]) -> Loss:
    """Return the loss of everything together: the sum, for rho of zCDP as for epsilon of pure DP.

    Give it tables and geolevels. Not the geounits of a geolevel, nor the cells of a table: they count
    different people, and the sensitivity of a histogram already says what one person can do to all of them.

    Parameters
    ----------
    losses : iterable of losses, or mapping of table to loss, or of geolevel to mapping of table to loss
        Not negative, all of one measure and one kind of neighbours. ``Budget.losses`` fits.

    Returns
    -------
    Fraction or float
        Exact when the losses are.

    Raises
    ------
    ValueError
        If a loss is negative or NaN.

    Examples
    --------
    >>> compose({"State": {"total": Fraction(1, 3)}, "Block": {"total": Fraction(1, 6)}})
    Fraction(1, 2)
    """
    return sum(_leaves(losses), Fraction(0))


def pure_to_zcdp(epsilon: Loss) -> Loss:
    """Return epsilon^2 / 2, the rho of zCDP that every epsilon-DP mechanism satisfies (Bun and Steinke).

    Raises
    ------
    ValueError
        If epsilon is negative or NaN.
    """
    loss = _loss(epsilon, "epsilon")
    if isinstance(loss, float) and loss and not _SMALLEST <= loss * loss < math.inf:
        loss = Fraction(loss)
    return loss * loss / 2


def zcdp_epsilon(rho: Loss, delta: float, bound: Bound = "tight") -> float:
    """Return an epsilon such that every rho-zCDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    rho : Fraction or float
        zCDP loss, not negative.
    delta : float
        Between 0 and 1, both excluded.
    bound : {"tight", "simple"}
        Which conversion; see the module.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    The redistricting persons file of the 2020 census, bounded neighbours:

    >>> round(zcdp_epsilon(Fraction(293764, 114921), 1e-10), 2)
    17.14
    """
    rho, delta = _finite_loss(rho, "rho"), share(delta, "delta")
    _check_bound(bound)
    if rho == 0:
        return 0.0
    if bound == "simple":
        return rho + 2 * math.sqrt(rho * -math.log(delta))
    return _tight_epsilon(rho, -math.log(delta))


def zcdp_delta(rho: Loss, epsilon: float, bound: Bound = "tight") -> float:
    """Return a delta such that every rho-zCDP mechanism is (epsilon, delta)-DP: inverts `zcdp_epsilon`.

    Parameters
    ----------
    rho : Fraction or float
        zCDP loss, not negative.
    epsilon : float
        Not negative.
    bound : {"tight", "simple"}
        Which conversion; see the module.

    Returns
    -------
    float
        At most 1; 0 where it is too small for float64.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    rho, epsilon = _finite_loss(rho, "rho"), _finite_loss(epsilon, "epsilon")
    _check_bound(bound)
    if rho == 0:
        return 0.0
    excess = max(epsilon - rho, 0.0)
    simple = math.exp(-excess / (4 * rho) * excess)
    return _tight_delta(rho, epsilon) if bound == "tight" and simple else simple


def gaussian_delta(rho: Loss, epsilon: float) -> float:
    """Return the smallest delta such that Gaussian noise of total loss rho is (epsilon, delta)-DP.

    The noise is the continuous law. Any number of Gaussian tables are together as private as one whose rho is
    the sum, so this is exact for a whole release. In terms of a sensitivity D2 and a standard deviation
    sigma, rho = D2^2 / (2 sigma^2).

    Parameters
    ----------
    rho : Fraction or float
        Composed zCDP loss of the Gaussian tables, not negative.
    epsilon : float
        Not negative.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is negative or NaN.
    """
    return _gaussian_delta(_finite_loss(rho, "rho"), _finite_loss(epsilon, "epsilon"))


def gaussian_epsilon(rho: Loss, delta: float) -> float:
    """Return the smallest epsilon such that Gaussian noise of total loss rho is (epsilon, delta)-DP.

    The inverse of `gaussian_delta`, to a relative error of about 1e-12 from rho = 1e-6 on.

    Parameters
    ----------
    rho : Fraction or float
        Composed zCDP loss of the Gaussian tables, not negative.
    delta : float
        Between 0 and 1, both excluded.

    Returns
    -------
    float
        0 where delta covers even epsilon = 0.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    rho, delta = _finite_loss(rho, "rho"), share(delta, "delta")
    if _gaussian_delta(rho, 0.0) <= delta:
        return 0.0
    above = zcdp_epsilon(rho, delta, "simple")
    return _root(lambda epsilon: _gaussian_delta(rho, epsilon) - delta, 0.0, above)


def _gaussian_delta(rho: float, epsilon: float) -> float:
    if rho == 0:
        return 0.0
    mu = math.sqrt(2 * rho)
    log_first = float(log_ndtr(mu / 2 - epsilon / mu))
    log_second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    first = math.exp(log_first)
    return -first * math.expm1(log_second - log_first) if first else 0.0


def _tight_epsilon(rho: float, log_inverse_delta: float) -> float:
    """Minimum over alpha of alpha rho + log(1 - 1/alpha) + (log(1/delta) - log alpha) / (alpha - 1).

    Its derivative has the sign of rho (alpha - 1)^2 + log(alpha) - log(1/delta), which increases with alpha.
    """

    def slope(excess: float) -> float:
        return rho * excess**2 + math.log1p(excess) - log_inverse_delta

    excess = _root(slope, 0.0, 2 * math.sqrt(log_inverse_delta / rho))
    log_alpha = math.log1p(excess)
    return max(0.0, (1 + excess) * rho - math.log1p(1 / excess) + (log_inverse_delta - log_alpha) / excess)


def _tight_delta(rho: float, epsilon: float) -> float:
    """The minimum of the module's formula, where the derivative of its logarithm vanishes.

    The derivative is (2 alpha - 1) rho - epsilon + log(1 - 1/alpha). With u = log(alpha - 1) it increases
    from below zero at u = -3 rho - 1 to above zero at alpha - 1 = epsilon / rho + 2 / sqrt(2 rho).
    """

    def slope(u: float) -> float:
        return (2 * math.exp(u) + 1) * rho - epsilon - _softplus(-u)

    u = _root(slope, -3 * rho - 1, math.log(epsilon / rho + 2 / math.sqrt(2 * rho)))
    excess = math.exp(u)
    log_delta = excess * ((1 + excess) * rho - epsilon) - u - (1 + excess) * _softplus(-u)
    return math.exp(min(log_delta, 0.0))


def _softplus(u: float) -> float:
    """log(1 + exp(u)) without overflow."""
    return max(u, 0.0) + math.log1p(math.exp(-abs(u)))


def _leaves(losses: Iterable[Any] | Mapping[str, Any]) -> Iterator[Loss]:
    values: Iterable[Any] = losses.values() if isinstance(losses, Mapping) else losses
    for loss in values:
        if isinstance(loss, Mapping):
            yield from _leaves(loss)
        else:
            yield _loss(loss, "a loss")


def _loss(loss: Any, what: str) -> Loss:
    """A loss of any kind of number, exact where it is exact."""
    number = number_from_0(loss, what)
    return Fraction(int(loss.numerator), int(loss.denominator)) if isinstance(loss, Rational) else number


def _finite_loss(loss: Any, what: str) -> float:
    """A loss that can be converted."""
    number = float(_loss(loss, what))
    if number and not _SMALLEST <= number <= _LARGEST:
        raise ValueError(f"{what} is {shown(loss)}: a loss is converted if 0, or from {_SMALLEST:g} to {_LARGEST:g}")
    return number


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(scipy.optimize.bisect(function, low, high, xtol=1e-300, rtol=1e-13, maxiter=_ITERATIONS))


def _check_bound(bound: str) -> None:
    if bound not in ("tight", "simple"):
        raise ValueError(f"bound {bound!r} is unknown: use 'tight' or 'simple'")
