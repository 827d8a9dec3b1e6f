"""Numbers that are exact: fractions, and text that is one."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from numbers import Rational as AnyRational
from typing import TypeAlias

import numpy as np

from constraint_builders.description.reals import MOST_SHOWN, shown

Rational: TypeAlias = Fraction | int | str

_UNWIELDY = re.compile(r".{200}|[eE][+-]?\d{4}")  # text whose Fraction would fill the memory


def exact_number(value: Rational, what: str) -> Fraction:
    """A number as a fraction; `TypeError` or `ValueError` that names what it is where it is none, or no exact one."""
    if isinstance(value, (float, np.floating)):
        raise TypeError(f"{what} is the float {value}, which is not exact: give a Fraction or a string such as '1/10'")
    if isinstance(value, str) and _UNWIELDY.search(value):
        raise ValueError(f"{what} is {value[:20]!r} and so on: give a number of fewer digits")
    if not isinstance(value, (bool, np.timedelta64)) and isinstance(value, AnyRational):
        return Fraction(int(value.numerator), int(value.denominator))  # numpy's integers would overflow
    plain = not isinstance(value, str) or (value.isascii() and "_" not in value)
    try:
        if plain and isinstance(value, (str, Decimal)):
            return Fraction(value)
    except (ValueError, ArithmeticError):
        pass
    raise ValueError(f"{what} is {shown(value)}: give a Fraction or a string such as '104/4099'")


def in_digits(number: Fraction) -> str:
    """A fraction as a message shows it: exact where that is short."""
    text = str(number)
    return text if len(text) <= MOST_SHOWN else f"{Decimal(number.numerator) / number.denominator:.3g}"
