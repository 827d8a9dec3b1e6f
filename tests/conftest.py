"""Settings that every test shares."""

import os

from hypothesis import HealthCheck, settings

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
