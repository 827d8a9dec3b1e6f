"""Confidence levels, and quantiles that keep their digits at any level: worked out from the smaller tail."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
import scipy  # which takes `special` when it is named: that costs as much as all solvers

from constraint_builders.description.reals import share

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def takes_confidence_level(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """A function of a `confidence_level`, which may be given under its former name ``level``, with a warning."""

    @wraps(function)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        if "level" in kwargs and "confidence_level" not in kwargs:
            said = f"{function.__name__}(level=...) is now confidence_level=..."
            warnings.warn(said, DeprecationWarning, stacklevel=2)
            kwargs["confidence_level"] = kwargs.pop("level")
        return function(*args, **kwargs)

    return called


def read_level(level: float) -> float:
    """A confidence level of any kind of number as a float; `ValueError` for what is none."""
    return share(level, "confidence_level")


def normal_multiple(level: float) -> float:
    """How many standard deviations to either side hold a normal variable with probability `level`."""
    return (
        float(np.sqrt(2) * scipy.special.erfinv(level)) if level < 0.5 else -float(scipy.special.ndtri((1 - level) / 2))
    )


def t_multiple(degrees: float, level: float) -> float:
    """The same for Student's t of positive or infinite `degrees`: of F with one above the root of its quantile."""
    return normal_multiple(level) if np.isinf(degrees) else float(np.sqrt(f_quantile(1, degrees, level)))


def chi_square_quantile(degrees: int, level: float) -> float:
    """The value that chi-square does not exceed with probability `level`."""
    half = degrees / 2
    return 2 * float(
        scipy.special.gammaincinv(half, level) if level < 0.5 else scipy.special.gammainccinv(half, 1 - level)
    )


def f_quantile(above: float, below: float, level: float) -> float:
    """The value that F with these degrees of freedom does not exceed with probability `level`."""
    if level < 0.5:
        share = float(scipy.special.betaincinv(above / 2, below / 2, level))
        return below * share / (above * (1 - share))
    rest = float(scipy.special.betaincinv(below / 2, above / 2, 1 - level))
    return below * (1 - rest) / (above * rest)
