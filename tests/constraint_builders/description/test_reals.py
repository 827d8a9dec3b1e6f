"""Numbers and arrays at the door: every kind of real number alike, nothing else."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.description.reals import (
    positive_number,
    real_array,
    real_number,
    share,
    shown,
    unit_number,
    whole_array,
    whole_number,
)
from tests.helpers.every import every
from tests.helpers.numbers_alike import NO_NUMBERS, dyadic, kinds_of
from tests.helpers.refused import refuses

RATIONALS = dyadic(-1000, 900, 40) | dyadic(-8, 8, 8)


@given(RATIONALS, st.booleans())
def test_every_kind_gives_the_same_float(value: Fraction, negative: bool) -> None:
    value = -value if negative else value
    for number in kinds_of(value):
        read = real_number(number, "x")
        assert type(read) is float
        assert read == value


@given(st.lists(RATIONALS, min_size=1, max_size=5))
def test_arrays_of_every_kind_hold_the_same_floats(values: list[Fraction]) -> None:
    wanted = [float(value) for value in values]
    for kind in (list, tuple, np.array, lambda v: np.array(v, dtype=object), np.ma.array):
        assert real_array(kind(wanted), "x").tolist() == wanted
    assert real_array(values, "x").tolist() == wanted
    assert real_array(np.array(values[0], dtype=object), "x") == wanted[0]
    mixed = [kinds_of(value)[-1] for value in values]
    assert real_array(np.array([*mixed, None], dtype=object)[:-1], "x").tolist() == wanted


@every("bad", NO_NUMBERS)
def test_no_number_is_refused_by_name(bad: Any) -> None:
    for read in (real_number, positive_number, share, unit_number):
        refuses(r"^x is .*: give a number, not ", read, bad, "x")
    refuses(r"^x is .*: give a whole number of 0 or more", whole_number, bad, "x", 0)


@every(
    "bad",
    [
        [True, 2.0],
        np.array([True]),
        [np.array([False]), np.array([1.0])],
        ["1", "2"],
        np.array([b"1"]),
        [1j, 2],
        np.array([1 + 0j]),
        [None, 1.0],
        np.array(None),
        [[1.0, 2.0], [3.0]],
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.array([3], dtype="m8[s]"),
        np.array([1.0, "2"], dtype=object),
        [10**400, 1],
        {"a": 1},
        "12",
        np.array([np.longdouble("1e4000")]),
        np.array([np.longdouble("1e-4000")]),
        [Fraction(1, 10**400), 1],
    ],
)
def test_arrays_of_something_else_are_refused_by_name(bad: Any) -> None:
    refuses(r"^(an entry of )?x (is|does not hold|holds)", real_array, bad, "x")


def test_masks_are_refused_unless_they_hide_nothing() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for values in (masked, [masked, masked], [[1.0, np.ma.masked]], np.ma.array([[1, 2]], mask=[[1, 0]])):
        refuses("x is a masked array", real_array, values, "x")
    assert real_array(np.ma.array([1, 2], mask=[0, 0]), "x").tolist() == [1, 2]


def test_truth_values_are_numbers_only_where_they_are_allowed() -> None:
    assert real_array(np.eye(2, dtype=bool), "x", truth_values=True).tolist() == [[1, 0], [0, 1]]
    assert real_array([True, 2.5], "x", truth_values=True).tolist() == [1, 2.5]
    refuses("x does not hold numbers but truth values", real_array, np.eye(2, dtype=bool), "x")


def test_a_float_array_is_not_copied() -> None:
    values = np.arange(3.0)
    assert real_array(values, "x") is values


@every("value", [np.inf, -np.inf, Decimal("Infinity"), np.float16("inf"), np.longdouble("inf")])
def test_infinity_of_any_kind_is_infinity(value: Any) -> None:
    assert abs(real_number(value, "x")) == np.inf


def test_numbers_beyond_floats_are_refused() -> None:
    for large in (10**400, -(10**400), Fraction(10**400), np.longdouble("1e4000"), Decimal("1e400"), 10**5000):
        refuses(r"x is .*too large for a float", real_number, large, "x")
    for small in (Fraction(1, 10**400), np.longdouble("1e-4000"), Decimal("1e-400")):
        refuses(r"x is .*too small for a float", real_number, small, "x")


@every("bad", [0, -2, np.inf, np.nan])
def test_ranges_of_single_numbers(bad: float) -> None:
    refuses(r"x is .*: give a positive, finite number", positive_number, bad, "x")
    refuses("between 0 and 1, both excluded", share, bad, "x")
    assert positive_number(5e-324, "x") == 5e-324
    assert (unit_number(0, "x"), unit_number(1, "x")) == (0, 1)
    assert 0 < share(np.nextafter(0, 1), "x") < share(np.nextafter(1, 0), "x") < 1
    refuses("both excluded", share, 1, "x")
    for outside in (-1e-300, 1 + 1e-15, np.nan):
        refuses("give a number from 0 to 1", unit_number, outside, "x")


def test_whole_numbers() -> None:
    for kind in (int, np.int8, np.uint64):
        assert whole_number(kind(3), "x", 3) == 3
        refuses(r"x is .*: give a whole number of 4 or more", whole_number, kind(3), "x", 4)
    refuses("give a whole number", whole_number, 3.0, "x", 0)


@every("values", [[1, -2], [1.0, -2.0], np.array([1, -2], dtype=object), [Fraction(1), -2]])
def test_whole_arrays_of_every_kind(values: Any) -> None:
    read = whole_array(values, "x")
    assert read.dtype == np.int64
    assert read.tolist() == [1, -2]


def test_whole_arrays_are_exact_and_refuse_what_is_not() -> None:
    assert whole_array([2**60 + 1], "x").tolist() == [2**60 + 1]
    assert whole_array(np.array([2**60 + 1, 1.0], dtype=object), "x").tolist() == [2**60 + 1, 1]
    for large in ([1e300], [2**63], np.array([2**63], dtype=np.uint64), [10**30], [2**61, -(2**61), 2**61]):
        refuses(r"x holds .*: whole numbers so large", whole_array, large, "x")
    for broken in ([0.5], [np.nan], [np.inf]):
        refuses("x must hold whole numbers", whole_array, broken, "x")


def test_values_are_shown_on_one_short_line() -> None:
    for value in (np.arange(100.0).reshape(10, 10), "x" * 1000, 10**5000, Fraction(10**5000, 7), "a\nb"):
        assert len(shown(value)) <= 60
        assert "\n" not in shown(value)
