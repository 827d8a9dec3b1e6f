"""Settings that every test shares."""

import os

import pytest
from hypothesis import HealthCheck, settings

from constraint_builders import memory
from tests.helpers.effort import THOROUGH, USUAL

REPEATABLE = bool(os.environ.get("CI"))
for name, number in (("usual", USUAL), ("thorough", THOROUGH)):
    settings.register_profile(
        name,
        deadline=None,
        max_examples=number,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        derandomize=REPEATABLE,
        print_blob=REPEATABLE,
    )
settings.load_profile("usual")


@pytest.fixture(autouse=True)
def _free_memory_is_asked_anew() -> None:
    """What one test says is free is not what is free in the next, within the same second."""
    memory._free_in.cache_clear()
