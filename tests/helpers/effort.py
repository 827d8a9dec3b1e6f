"""How far tests go: every property is always tried, at length by ``-m slow`` and ``--hypothesis-profile=thorough``."""

from typing import Any

import pytest
from hypothesis import settings

USUAL, THOROUGH = 5, 25  # examples of a property that says nothing else
FEWEST = 5


def examples(number: int, usual: int | None = None) -> settings:
    """As many examples of a property in the profile ``thorough``, and in others `usual` or their usual share."""
    usual = max(min(number, FEWEST), round(number * USUAL / THOROUGH)) if usual is None else usual
    return settings(max_examples=number if settings.default.max_examples >= THOROUGH else usual)


def lengths(name: str, short: Any, long: Any) -> pytest.MarkDecorator:
    """Run a test with one value of an argument always, and with another by ``-m slow``."""
    return pytest.mark.parametrize(name, [short, pytest.param(long, marks=pytest.mark.slow)])


def first_of(values: Any, number: int, of_several: bool = False) -> list[Any]:
    """Values of a parameter, or of several together, of which all but the first few are for ``-m slow``."""
    return [
        value if i < number else pytest.param(*(value if of_several else (value,)), marks=pytest.mark.slow)
        for i, value in enumerate(values)
    ]
