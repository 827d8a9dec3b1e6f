"""Budgets in exact rationals, against the Census Bureau's published 2020 settings and round trips."""

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.budget import (
    Budget,
    Measure,
    gaussian_rho,
    gaussian_variance,
    laplace_epsilon,
    laplace_scale,
    sensitivity_l1,
    sensitivity_l2_squared,
    split,
)
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refuses

positive = st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=1000)
losses = st.dictionaries(
    st.sampled_from(["US", "State", "Block"]),
    st.dictionaries(st.sampled_from(["total", "sex", "detailed"]), positive, min_size=1),
    min_size=1,
)

# Redistricting persons file of the 2020 census: rho, geolevel shares, query shares of two geolevels.
RHO = "293764/114921"
GEOLEVELS = {
    "US": "104/4099",
    "State": "1440/4099",
    "County": "447/4099",
    "Tract": "687/4099",
    "Block_Group": "1256/4099",
    "Block": "165/4099",
}
STATE = {
    "total": "3773/4097",
    "cenrace": "6/4097",
    "hispanic": "6/4097",
    "votingage": "6/4097",
    "hhinstlevels": "6/4097",
    "hhgq": "6/4097",
    "hispanic * cenrace": "12/4097",
    "votingage * cenrace": "12/4097",
    "votingage * hispanic": "6/4097",
    "votingage * hispanic * cenrace": "2/241",
    "detailed": "230/4097",
}
US = {
    "total": None,
    "cenrace": "52/4097",
    "hispanic": "26/4097",
    "votingage": "26/4097",
    "hhinstlevels": "26/4097",
    "hhgq": "26/4097",
    "hispanic * cenrace": "130/4097",
    "votingage * cenrace": "130/4097",
    "votingage * hispanic": "26/4097",
    "votingage * hispanic * cenrace": "26/241",
    "detailed": "189/241",
}


def production_budget() -> Budget:
    queries = {level: US if level == "US" else STATE for level in GEOLEVELS}
    return Budget.from_shares(RHO, GEOLEVELS, queries)


def test_production_settings_come_back_exactly() -> None:
    budget = Budget.from_variances(production_budget().exact_variances())
    assert budget.total == Fraction(RHO)
    assert budget.geolevel_shares == {level: Fraction(share) for level, share in GEOLEVELS.items()}
    assert budget.query_shares["State"] == {table: Fraction(share) for table, share in STATE.items()}
    assert budget.query_shares["US"] == {table: Fraction(share) for table, share in US.items() if share}


@pytest.mark.parametrize("measure", ["zcdp", "pure"])
@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
@given(losses=losses)
def test_variances_and_shares_round_trip(measure: Any, neighbours: Any, losses: Any) -> None:
    budget = Budget(losses, measure, neighbours)
    assert Budget.from_variances(budget.exact_variances(), measure, neighbours) == budget
    shares = (budget.total, budget.geolevel_shares, budget.query_shares)
    assert Budget.from_shares(*shares, measure, neighbours) == budget
    assert sum(budget.geolevel_shares.values()) == 1
    assert all(sum(row.values()) == 1 for row in budget.query_shares.values())


def test_one_table() -> None:
    assert gaussian_variance("1/2") == 2
    assert gaussian_variance("1/2", "unbounded") == 1
    assert gaussian_rho(2) == gaussian_rho(2.0) == Fraction(1, 2)
    assert laplace_scale("1/2") == 4
    assert laplace_scale("1/2", "unbounded") == 2
    assert laplace_epsilon(4) == laplace_epsilon(4.0) == Fraction(1, 2)
    assert (sensitivity_l1(), sensitivity_l1("unbounded")) == (2, 1)
    assert (sensitivity_l2_squared(), sensitivity_l2_squared("unbounded")) == (2, 1)


def test_pure_dp_budget() -> None:
    budget = Budget.from_shares(2, {"": 1}, {"": {"total": "1/4", "detailed": "0.75"}}, measure="pure")
    assert budget.scales() == {"": {"total": 4, "detailed": Fraction(4, 3)}}
    assert budget.exact_variances() == {"": {"total": 32, "detailed": Fraction(32, 9)}}
    assert budget.variances()[""]["total"] == 32.0


def test_what_gets_nothing_is_left_out() -> None:
    budget = Budget.from_shares(1, {"State": 1, "County": 0}, {"State": {"total": 0, "sex": None, "detailed": 1}})
    assert budget.losses == {"State": {"detailed": 1}}
    assert Budget.from_variances({"State": {"total": math.inf, "detailed": 1.0}}) == budget


def test_losses_cannot_be_changed() -> None:
    budget = production_budget()
    with pytest.raises(TypeError):
        budget.losses["US"]["detailed"] = Fraction(1)  # type: ignore[index]


def test_shares_that_do_not_sum_to_one_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"geolevel 'Block': the shares sum to 4098/4097 .*exactly 1"):
        Budget.from_shares(1, {"Block": 1}, {"Block": {"total": "1/4097", "detailed": 1}})
    refuses("geolevels: the shares sum to 1/2", Budget.from_shares, 1, {"Block": "1/2"}, {"Block": {"total": 1}})


def test_bad_shares_are_refused_by_name() -> None:
    refuses(r"share of 'sex' is the float 0\.1", split, 1, {"total": "0.9", "sex": 0.1}, error=TypeError)
    refuses("share of 'sex' is -1: a share cannot be negative", split, 1, {"total": 2, "sex": -1})
    refuses("share of 'sex' is '1/0'", split, 1, {"sex": "1/0"})
    refuses("share of 'sex' is 'half'", split, 1, {"sex": "half"})
    refuses("total is 0: it must be positive", split, 0, {"sex": 1})
    refuses("the shares sum to 0", split, 1, {})


def test_geolevels_of_both_mappings_must_match() -> None:
    refuses("geolevel 'Block' has no query shares", Budget.from_shares, 1, {"Block": 1}, {})
    with pytest.raises(ValueError, match="geolevel 'State' has query shares but no geolevel share"):
        Budget.from_shares(1, {"Block": 1}, {"Block": {"total": 1}, "State": {"total": 1}})


@every("bad", [0, -1, math.nan, -math.inf])
def test_bad_losses_and_variances_are_refused_by_name(bad: float) -> None:
    refuses(r"variance of \('State', 'sex'\) is", Budget.from_variances, {"State": {"sex": bad}})
    refuses(r"loss of \('State', 'sex'\) is", Budget, {"State": {"sex": bad}}, error=(ValueError, TypeError))
    refuses("scale is", laplace_epsilon, bad)


def test_unknown_words_are_refused() -> None:
    refuses("measure 'renyi' is unknown", Budget, {}, measure="renyi")
    refuses("neighbours 'close' is unknown", gaussian_variance, 1, "close")
    refuses("zCDP budget has no Laplace scales", production_budget().scales)
    refuses(r"the scale sqrt\(1/2\) is not rational", Budget.from_variances, {"State": {"sex": 1}}, measure="pure")


@every("text", ["1e99999999", "1e-99999999", "9" * 5000, "1/" + "9" * 300])
def test_text_that_would_fill_the_memory_is_refused_at_once(text: str) -> None:
    refuses(r"^rho is '.{1,20}' and so on: give a number of fewer digits$", gaussian_variance, text)


@examples(200, 60)
@given(
    mantissa=st.integers(1, 999), power=st.integers(-450, 450), measure=st.sampled_from(["zcdp", "pure"]),
)  # fmt: skip
def test_losses_of_any_size_give_usable_variances_or_are_refused_by_name(
    mantissa: int, power: int, measure: Measure
) -> None:
    budget = Budget({"State": {"sex": Fraction(mantissa) * Fraction(10) ** power}}, measure)
    exact = budget.exact_variances()["State"]["sex"]
    if 10**-100 <= exact <= 10**150:
        assert budget.variances() == {"State": {"sex": float(exact)}}
    else:
        refuses("table 'sex' at 'State'", budget.variances)


@every("share", ["1e-400", "1e400", "-1e-400", "٣", "1_0", "1/3", "1e400/1"])
def test_shares_of_any_size_are_refused_in_few_words(share: str) -> None:
    refuses(r"^.{1,120}$", split, 1, {"sex": share})
    refuses(r"^.{1,120}$", Budget, {"State": {"sex": f"-{share}"}})
