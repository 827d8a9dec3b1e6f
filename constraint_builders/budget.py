"""Shares of a privacy-loss budget to noise variances and back, in exact rationals.

The total privacy loss is split over geolevels, and within a geolevel over tables. A person is counted in one
cell of every table of one geounit of every geolevel, so losses add up over tables and geolevels and not over
geounits or cells. With gamma the share of a geolevel and alpha the share of a table in it, a table gets the
loss

    rho gamma alpha (zCDP)         ->  Gaussian parameter  sigma^2 = D2^2 / (2 rho gamma alpha)
    epsilon gamma alpha (pure DP)  ->  Laplace scale       b = D1 / (epsilon gamma alpha)

where D2 and D1 are the sensitivities of a histogram, in the L2 and the L1 norm:

=============  ======================================================  ====  ==
neighbours     two data sets differ by                                 D2^2  D1
=============  ======================================================  ====  ==
``bounded``    changing one record: one cell loses 1, another gains 1  2     2
``unbounded``  adding or removing one record: one cell changes by 1    1     1
=============  ======================================================  ====  ==

The Census Bureau's 2020 settings are zCDP with bounded neighbours: sigma^2 = 1 / (rho gamma alpha).

Losses and shares are `fractions.Fraction`, whole numbers, or strings such as ``"104/4099"`` and ``"0.1"``. A
float is refused where it would be a share, because shares must sum to exactly 1.

References
----------
Bun and Steinke, "Concentrated differential privacy", TCC 2016.
Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from constraint_builders.description.reals import LARGEST, SMALLEST, Rational, exact_number, in_digits

__all__ = [
    "Budget",
    "gaussian_rho",
    "gaussian_variance",
    "laplace_epsilon",
    "laplace_scale",
    "sensitivity_l1",
    "sensitivity_l2_squared",
    "split",
]

Measure: TypeAlias = Literal["zcdp", "pure"]
Neighbours: TypeAlias = Literal["bounded", "unbounded"]
Shares: TypeAlias = Mapping[str, Rational | None]
Losses: TypeAlias = Mapping[str, Mapping[str, Fraction]]
T = TypeVar("T")
U = TypeVar("U")

_SENSITIVITY = {"bounded": 2, "unbounded": 1}


def sensitivity_l1(neighbours: Neighbours = "bounded") -> int:
    """Return the L1 sensitivity of a histogram: 2 for bounded neighbours, 1 for unbounded ones."""
    if neighbours not in _SENSITIVITY:
        raise ValueError(f"neighbours {neighbours!r} is unknown: use 'bounded' or 'unbounded'")
    return _SENSITIVITY[neighbours]


def sensitivity_l2_squared(neighbours: Neighbours = "bounded") -> int:
    """Return the squared L2 sensitivity of a histogram: 2 for bounded neighbours, 1 for unbounded ones."""
    return sensitivity_l1(neighbours)


def gaussian_variance(rho: Rational, neighbours: Neighbours = "bounded") -> Fraction:
    """Return sigma^2 = D2^2 / (2 rho) of the (discrete) Gaussian noise that spends rho on a histogram.

    Parameters
    ----------
    rho : int, Fraction, float or str
    neighbours : {"bounded", "unbounded"}
        Whether neighbours change one record, or one is added or removed.

    Returns
    -------
    Fraction
        In squared units of the counts.

    Raises
    ------
    TypeError
        If rho is a float.
    ValueError
        If rho is not positive or neighbours is unknown.
    """
    return Fraction(sensitivity_l2_squared(neighbours), 2) / _positive(rho, "rho")


def gaussian_rho(variance: Rational | float, neighbours: Neighbours = "bounded") -> Fraction:
    """Return rho = D2^2 / (2 sigma^2), the loss of a histogram with (discrete) Gaussian noise.

    A float counts as the rational that it is.

    Raises
    ------
    ValueError
        If the variance is not positive and finite or neighbours is unknown.
    """
    return Fraction(sensitivity_l2_squared(neighbours), 2) / _measured(variance, "variance")


def laplace_scale(epsilon: Rational, neighbours: Neighbours = "bounded") -> Fraction:
    """Return the scale D1 / epsilon of the (discrete) Laplace noise that spends epsilon on a histogram.

    Raises
    ------
    TypeError
        If epsilon is a float.
    ValueError
        If epsilon is not positive or neighbours is unknown.
    """
    return sensitivity_l1(neighbours) / _positive(epsilon, "epsilon")


def laplace_epsilon(scale: Rational | float, neighbours: Neighbours = "bounded") -> Fraction:
    """Return the pure-DP loss of a histogram with (discrete) Laplace noise of the given scale: D1 / scale.

    A float counts as the rational that it is.

    Raises
    ------
    ValueError
        If the scale is not positive and finite or neighbours is unknown.
    """
    return sensitivity_l1(neighbours) / _measured(scale, "scale")


def noise_variance(loss: Rational, measure: Measure, neighbours: Neighbours) -> Fraction:
    """The exact variance of the noise that spends a loss on a histogram: Gaussian for zCDP, Laplace for pure DP."""
    return gaussian_variance(loss, neighbours) if measure == "zcdp" else 2 * laplace_scale(loss, neighbours) ** 2


def check_privacy(measure: Measure, neighbours: Neighbours) -> None:
    """Refuse a measure of privacy loss, or a relation of neighbouring data sets, that is unknown."""
    if measure not in ("zcdp", "pure"):
        raise ValueError(f"measure {measure!r} is unknown: use 'zcdp' or 'pure'")
    sensitivity_l1(neighbours)


def split(total: Rational, shares: Shares, what: str = "shares") -> dict[str, Fraction]:
    """Split a loss by shares that sum to exactly 1.

    Parameters
    ----------
    total : Fraction, int or str
        The loss to be split.
    shares : mapping of name to Fraction, int, str or None
        None and 0 mean that the name gets nothing; it is left out of the answer.
    what : str
        What an error calls the shares.

    Returns
    -------
    dict of name to Fraction

    Raises
    ------
    TypeError
        If a share is a float.
    ValueError
        If a share is negative or they do not sum to 1.
    """
    exact = {
        name: exact_number(share, f"{what}: share of {name!r}") for name, share in shares.items() if share is not None
    }
    for name, share in exact.items():
        if share < 0:
            raise ValueError(f"{what}: share of {name!r} is {in_digits(share)}: a share cannot be negative")
    whole = sum(exact.values(), Fraction(0))
    if whole != 1:
        more = Decimal((whole - 1).numerator) / (whole - 1).denominator
        raise ValueError(f"{what}: the shares sum to {in_digits(whole)} (1 {more:+.3g}): they must sum to exactly 1")
    part = _positive(total, f"{what}: total")
    return {name: part * share for name, share in exact.items() if share}


@dataclass(frozen=True)
class Budget:
    """The privacy loss that every (geolevel, table) spends.

    Parameters
    ----------
    losses : mapping of geolevel to mapping of table to Fraction, int or str
        Loss (rho or epsilon) of every measured table, positive. What is not measured is not there. Without a
        spine, use one geolevel of any name.
    measure : {"zcdp", "pure"}
        What a loss is: rho of zCDP, met by Gaussian noise, or epsilon of pure DP, met by Laplace noise.
    neighbours : {"bounded", "unbounded"}
        Whether neighbouring data sets change one record, or add or remove one.

    Raises
    ------
    TypeError
        If a loss is a float.
    ValueError
        If a loss is not positive, or measure or neighbours is unknown.

    Examples
    --------
    >>> tables = {"State": {"total": 1}, "Block": {"total": "1/4", "detailed": "3/4"}}
    >>> Budget.from_shares("1/2", {"State": "1/5", "Block": "4/5"}, tables).variances()
    {'State': {'total': 10.0}, 'Block': {'total': 10.0, 'detailed': 3.3333333333333335}}
    """

    losses: Losses
    measure: Measure = "zcdp"
    neighbours: Neighbours = "bounded"

    def __post_init__(self) -> None:
        check_privacy(self.measure, self.neighbours)
        exact = by_place(self.losses, lambda place, loss: _positive(loss, f"loss of {place}"))
        fixed = {level: MappingProxyType(row) for level, row in exact.items()}
        object.__setattr__(self, "losses", MappingProxyType(fixed))

    @classmethod
    def from_shares(
        cls,
        total: Rational,
        geolevel_shares: Shares,
        query_shares: Mapping[str, Shares],
        measure: Measure = "zcdp",
        neighbours: Neighbours = "bounded",
    ) -> Budget:
        """Split a total over geolevels and, within each, over tables.

        Parameters
        ----------
        total : Fraction, int or str
            rho or epsilon of everything.
        geolevel_shares : mapping of geolevel to share
            They sum to exactly 1. A geolevel with share 0 (bypassed) is left out and needs no query shares.
        query_shares : mapping of geolevel to mapping of table to share
            In every geolevel they sum to exactly 1. A table with share None or 0 is left out.
        measure, neighbours
            As for the class.

        Raises
        ------
        TypeError
            If a share is a float.
        ValueError
            If shares are negative, missing, or do not sum to 1; the error names the geolevel.
        """
        levels = split(total, geolevel_shares, "geolevels")
        missing = [level for level in levels if level not in query_shares]
        if missing:
            raise ValueError(f"geolevel {missing[0]!r} has no query shares: give them, or a geolevel share of 0")
        unknown = [level for level in query_shares if level not in geolevel_shares]
        if unknown:
            raise ValueError(f"geolevel {unknown[0]!r} has query shares but no geolevel share: give it one, or 0")
        losses = {level: split(loss, query_shares[level], f"geolevel {level!r}") for level, loss in levels.items()}
        return cls(losses, measure, neighbours)

    @classmethod
    def from_variances(
        cls,
        variances: Mapping[str, Mapping[str, Rational | float]],
        measure: Measure = "zcdp",
        neighbours: Neighbours = "bounded",
    ) -> Budget:
        """Return the budget that the given variances spend: the inverse of `exact_variances`.

        Parameters
        ----------
        variances : mapping of geolevel to mapping of table to Fraction, int, str or float
            sigma^2 (zCDP) or 2 scale^2 (pure DP) of every table; a float counts as the rational that it is.
            Infinite ones are left out.
        measure, neighbours
            As for the class.

        Raises
        ------
        ValueError
            If a variance is NaN or not positive, or, for pure DP, half of it is not the square of a rational.
        """
        loss: Callable[[Fraction, Neighbours], Fraction]
        loss = gaussian_rho if measure == "zcdp" else _epsilon_of_variance
        losses = {
            level: {
                table: loss(_measured(variance, f"variance of {(level, table)}"), neighbours)
                for table, variance in row.items()
                if variance != math.inf
            }
            for level, row in variances.items()
        }
        return cls(losses, measure, neighbours)

    @property
    def total(self) -> Fraction:
        """The rho or epsilon of everything together."""
        return sum(self._level_losses().values(), Fraction(0))

    @property
    def geolevel_shares(self) -> dict[str, Fraction]:
        """Share of the total that every geolevel spends; they sum to 1."""
        total = self.total
        return {level: loss / total for level, loss in self._level_losses().items()}

    @property
    def query_shares(self) -> dict[str, dict[str, Fraction]]:
        """Share of its geolevel's loss that every table spends; they sum to 1 in every geolevel."""
        levels = self._level_losses()
        return by_place(self.losses, lambda place, loss: loss / levels[place[0]])

    def exact_variances(self) -> dict[str, dict[str, Fraction]]:
        """Return the exact variance of every table, by geolevel and table.

        For zCDP it is the parameter sigma^2 of the (discrete) Gaussian, for pure DP 2 scale^2 of the
        continuous Laplace. The law on the whole numbers has a smaller actual variance, which for the discrete
        Gaussian shows only where sigma^2 is less than 3: pass the parameter to
        ``DiscreteGaussian(sigma2=...)`` or, from `scales`, to ``DiscreteLaplace(scale=...)`` and read its
        ``variance``.
        """
        return self._map(lambda loss, neighbours: noise_variance(loss, self.measure, neighbours))

    def variances(self) -> dict[str, dict[str, float]]:
        """Return `exact_variances` as floats: what ``Problem(observed=...)`` takes.

        Raises
        ------
        ValueError
            If one is too small or too large for that.
        """
        exact = self.exact_variances()
        return by_place(exact, lambda place, own: usable_variance(own, f"table {place[1]!r} at {place[0]!r}"))

    def scales(self) -> dict[str, dict[str, Fraction]]:
        """Return the exact scale of the (discrete) Laplace noise of every table, by geolevel and table.

        Raises
        ------
        ValueError
            If the measure is not pure DP.
        """
        if self.measure != "pure":
            raise ValueError("a zCDP budget has no Laplace scales: use exact_variances()")
        return self._map(laplace_scale)

    def _map(self, parameter: Callable[[Fraction, Neighbours], Fraction]) -> dict[str, dict[str, Fraction]]:
        return by_place(self.losses, lambda _, loss: parameter(loss, self.neighbours))

    def _level_losses(self) -> dict[str, Fraction]:
        return {level: sum(row.values(), Fraction(0)) for level, row in self.losses.items()}


def by_place(tables: Mapping[str, Mapping[str, T]], of: Callable[[tuple[str, str], T], U]) -> dict[str, dict[str, U]]:
    """What follows for every (geolevel, table) from what is said of it, by geolevel and table."""
    return {level: {table: of((level, table), own) for table, own in row.items()} for level, row in tables.items()}


def _epsilon_of_variance(variance: Fraction, neighbours: Neighbours) -> Fraction:
    square = variance / 2
    scale = Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))
    if scale**2 != square:
        raise ValueError(
            f"variance {variance}: the scale sqrt({square}) is not rational: "
            "build the budget from laplace_epsilon(scale) with scales rounded as you see fit"
        )
    return laplace_epsilon(scale, neighbours)


def usable_variance(variance: Fraction, what: str) -> float:
    """A variance that follows from a loss as a float; `ValueError` that names what it is of where none is usable."""
    if SMALLEST <= variance <= LARGEST:
        return float(variance)
    loss, bound = ("large", f"below {SMALLEST:g}") if variance < SMALLEST else ("small", f"above {LARGEST:g}")
    raise ValueError(f"the loss of {what} is so {loss} that its noise has a variance {bound}: give another")


def _positive(value: Rational, what: str) -> Fraction:
    exact = exact_number(value, what)
    if exact <= 0:
        raise ValueError(f"{what} is {in_digits(exact)}: it must be positive")
    return exact


def _measured(value: Rational | float, what: str) -> Fraction:
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            raise ValueError(f"{what} is {value}: it must be positive and finite")
        value = Fraction(*value.as_integer_ratio())
    return _positive(value, what)
