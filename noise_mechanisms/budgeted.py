"""From a budget to the variances of the noise that spends it."""

from __future__ import annotations

from constraint_builders.budget import Budget
from noise_mechanisms.laws import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Law

_GAUSSIAN: dict[str, type[Law]] = {"gaussian": Gaussian, "discrete_gaussian": DiscreteGaussian}
_LAPLACE: dict[str, type[Law]] = {"laplace": Laplace, "discrete_laplace": DiscreteLaplace}


def noise_variances(budget: Budget, noise: str) -> dict[str, dict[str, float]]:
    """Actual variances of the noise that spends a budget: what ``Problem(observed=...)`` takes.

    A budget gives the parameter of a law, sigma^2 or the scale; laws on the whole numbers have a smaller variance.

    Parameters
    ----------
    budget : Budget
    noise : {"gaussian", "discrete_gaussian", "laplace", "discrete_laplace"}

    Returns
    -------
    dict of geolevel to dict of table to float

    Raises
    ------
    ValueError
        If the law is not one that the budget's measure of privacy counts: Gaussian for zCDP, Laplace for pure DP.

    Examples
    --------
    >>> noise_variances(Budget({"State": {"total": 1}}), "gaussian")
    {'State': {'total': 1.0}}
    """
    return {level: {table: law.variance for table, law in row.items()} for level, row in _laws(budget, noise).items()}


def _laws(budget: Budget, noise: str) -> dict[str, dict[str, Law]]:
    known = _GAUSSIAN if budget.measure == "zcdp" else _LAPLACE
    if noise not in known:
        raise ValueError(f"a {budget.measure!r} budget is spent by {' or '.join(known)} noise: got {noise!r}")
    parameters = budget.exact_variances() if budget.measure == "zcdp" else budget.scales()
    return {
        level: {table: known[noise](parameter) for table, parameter in row.items()} for level, row in parameters.items()
    }
