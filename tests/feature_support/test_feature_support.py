"""Every part against every feature: what it gives is right, or it refuses by name. The page in docs is this table."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.feature_support.instances import FEATURES, Instance
from tests.feature_support.kept_by_rooms import INVARIANTS
from tests.feature_support.parts import PARTS, with_client
from tests.feature_support.refusals import as_markdown, refusal, refused
from tests.feature_support.written import PAGE
from tests.helpers.every import every
from tests.helpers.places import ROOT


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="a cluster needs Dask (extra 'cluster')")
    client = distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)
    yield client
    client.close()


@pytest.mark.parametrize("part", PARTS)
@every("feature", FEATURES)
def test_every_part_supports_every_feature_or_refuses_it_by_name(
    part: str, feature: str, request: pytest.FixtureRequest
) -> None:
    check = with_client(request.getfixturevalue("client")) if part == "cluster" else PARTS[part]
    message = refusal(part, feature)
    if message is None:
        check(FEATURES[feature]())
        return
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        check(FEATURES[feature]())
    assert "\n" not in str(refused.value)


def test_the_table_names_parts_and_features_that_there_are() -> None:
    assert set(refused()) == set(PARTS)
    named = {feature for refusals in refused().values() for features in refusals.values() for feature in features}
    assert named <= set(FEATURES)


def test_every_invariant_has_its_test() -> None:
    for held in INVARIANTS.values():
        for file, test in held.values():
            assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(), (file, test)


def test_the_page_is_this_table() -> None:
    assert PAGE.read_text() == as_markdown()


def test_the_checks_can_fail() -> None:
    """A part that leaves out what another instance knows is found out."""
    zeros, without = FEATURES["structural zeros"](), FEATURES["equal variances"]()
    mixed = Instance(without.problem, zeros.y, zeros.counts, zeros.M, zeros.D, zeros.Sigma, zeros.known, zeros.values)
    for part in ('blue(solver="dense")', "nnls", "max_fit", "reweighted_fit", "anchored_fit", "sequential_fit"):
        with pytest.raises(AssertionError):
            PARTS[part](mixed)
    exact, noisy = FEATURES["a table known exactly"](), FEATURES["equal variances"]()
    mixed = Instance(noisy.problem, exact.y, exact.counts, exact.M, exact.D, exact.Sigma, exact.known, exact.values)
    for part in ("nnls", "refine_intervals", "ols", "add_noise, draw_noise"):
        with pytest.raises((AssertionError, ValueError)):
            PARTS[part](mixed)
