"""From a budget to the variances of the noise that spends it."""

from __future__ import annotations

from fractions import Fraction

from constraint_builders.budget import Budget, by_place
from constraint_builders.description.reals import positive_number
from noise_mechanisms.laws.base_law import Family
from noise_mechanisms.laws.named_laws import LAWS, kind_of

SPENT_BY: dict[str, Family] = {"zcdp": "gaussian", "pure": "laplace"}


def noise_variances(budget: Budget, noise: str) -> dict[str, dict[str, float]]:
    """Actual variances of the noise that spends a budget: what ``Problem(observed=...)`` takes.

    A budget gives the parameter of a law, sigma^2 or the scale; laws on the whole numbers have a smaller variance.

    Parameters
    ----------
    budget : Budget
    noise : str
        A name in `LAWS`, of a law of the family that the measure of privacy counts.

    Returns
    -------
    dict of geolevel to dict of table to float

    Raises
    ------
    ValueError
        If the law is not one that the budget's measure of privacy counts: Gaussian for zCDP, Laplace for pure DP; or
        so little noise that floats do not tell its variance from 0, which means known exactly.

    Examples
    --------
    >>> noise_variances(Budget({"State": {"total": 1}}), "gaussian")
    {'State': {'total': 1.0}}
    """
    family, kind = SPENT_BY[budget.measure], kind_of(noise)
    if kind.family != family:
        known = [name for name, other in LAWS.items() if other.family == family]
        raise ValueError(f"a {budget.measure!r} budget is spent by {' or '.join(known)} noise: got {noise!r}")
    parameters = budget.exact_variances() if family == "gaussian" else budget.scales()

    def variance(place: tuple[str, str], given: Fraction) -> float:
        return positive_number(kind(given).variance, f"variance of {place[1]!r} at {place[0]!r}")

    return by_place(parameters, variance)
