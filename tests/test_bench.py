"""Every benchmark can be imported, and says what it does."""

from importlib import import_module

import pytest

from tests.helpers.places import ROOT

NAMES = sorted(path.stem for path in (ROOT / "bench").glob("*.py") if not path.stem.startswith("__"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_is_imported(name: str) -> None:
    assert import_module(f"bench.{name}").__doc__
