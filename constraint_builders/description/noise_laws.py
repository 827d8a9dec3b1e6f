"""The laws of noise by name: the one record of each.

A description keeps the name of its law and needs nothing else of it. Who draws finds the class where the record says.
"""

from __future__ import annotations

from typing import Any

from constraint_builders.description.reals import shown

# By name, where the class is, ``module:class``; it is imported by `noise_mechanisms.laws.kind_of` alone.
NOISE_LAWS: dict[str, str] = {
    "gaussian": "noise_mechanisms.laws.law_classes:Gaussian",
    "discrete_gaussian": "noise_mechanisms.laws.law_classes:DiscreteGaussian",
    "laplace": "noise_mechanisms.laws.law_classes:Laplace",
    "discrete_laplace": "noise_mechanisms.laws.law_classes:DiscreteLaplace",
}


def require_law(name: Any, what: str = "noise") -> str:
    """The name of a law as it is; `ValueError` for anything else, with `what` it was given for."""
    if not isinstance(name, str) or name not in NOISE_LAWS:
        raise ValueError(f"{what} must be one of {', '.join(NOISE_LAWS)}: got {shown(name)}")
    return name
