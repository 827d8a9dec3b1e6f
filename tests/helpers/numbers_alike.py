"""One number in every kind that Python and numpy have, and everything that is no real number."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
FLOATS = (np.float16, np.float32, np.float64, np.longdouble)

# Everything that a careless conversion takes for the number 1, and what is no number at all.
NO_NUMBERS: list[Any] = [
    True, np.True_, np.array(True), "1", b"1", np.str_("1"), 1 + 0j, np.complex64(1), np.timedelta64(1),
    np.datetime64(1, "s"), np.ma.masked, np.ma.array(1.0, mask=True), None, [1.0], np.ones(1), {"a": 1}, Ellipsis,
]  # fmt: skip
NOT_POSITIVE: list[Any] = [
    0, -1, 0.0, -1.5, Fraction(0), Fraction(-1, 3), np.int8(-1), np.nan, np.inf, -np.inf, Decimal("NaN"),
    Decimal("Infinity"), np.float32("nan"), 10**400, Fraction(1, 10**400), np.longdouble("1e4000"), Decimal("sNaN"),
]  # fmt: skip


def kinds_of(value: Fraction) -> list[Any]:
    """A number in every kind that holds it exactly; its float is the first."""
    found: list[Any] = [float(value), value, np.array(float(value))]
    if value.denominator == 1:
        found.append(int(value))
        found += [kind(int(value)) for kind in INTEGERS if np.iinfo(kind).min <= value <= np.iinfo(kind).max]
    decimal = Decimal(value.numerator) / Decimal(value.denominator)
    if Fraction(decimal) == value:
        found.append(decimal)
    with np.errstate(over="ignore"):
        found += [kind(float(value)) for kind in FLOATS if float(kind(float(value))) == value]
    return found


def dyadic(low: int, high: int, bits: int) -> st.SearchStrategy[Fraction]:
    """Rationals a 2^k with a of so many bits and k from low to high, which are floats; whole ones are frequent."""
    return st.builds(lambda a, k: Fraction(a) * Fraction(2) ** k, st.integers(1, 2**bits), st.integers(low, high))
