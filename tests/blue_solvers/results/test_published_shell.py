"""How well lines are known, the smallest group that is, and what was published, against dense matrices over cells."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from blue_solvers import Problem, Result, blue, write_result
from blue_solvers.results.known_groups import known_groups
from blue_solvers.results.published_beside import PublishedBeside, beside_published
from constraint_builders.files.published_files import PublishedFile
from constraint_builders.files.settings import parse_settings
from tests.helpers.simulated import settings_of
from tests.helpers.small_states import LEVELS, SmallState, small_state, spine, summed

AGES = settings_of(LEVELS, {"sex": ["male", "female"], "age": 116}, {"detailed": "1/6"})
TRACT, BLOCK = "01003010900", "010030109001000"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> SmallState:
    """Persons by sex and age; block 1000 is all of tract 010900."""
    sums = {"age": summed(0), "detailed": summed()}
    return small_state(tmp_path_factory.mktemp("state") / "result", AGES, sums, ["sex * age"], 8)


def expected(state: SmallState, ages: range) -> tuple[float, float]:
    """Estimate and standard error of the males of some ages in the tract."""
    weight = np.zeros_like(state.estimate)
    weight[[code.endswith("010900" + "1" + "1000") for code in state.leaves], 0, ages.start : ages.stop] = 1
    estimate, covariance = state.expected(weight)
    return float(estimate[0]), float(np.sqrt(covariance[0, 0]))


def test_how_well_a_line_is_known_is_said_beside_it(state: SmallState) -> None:
    frame = state.result.table("P14", [TRACT])
    np.testing.assert_allclose(frame["margin_90"], 1.6448536269514722 * frame["std_error"], rtol=1e-12)
    np.testing.assert_allclose(frame["cv"], 100 * frame["std_error"] / frame["estimate"].abs(), rtol=1e-12)
    steps = [("high", 0, 10), ("medium", 10, 30), ("low", 30, np.inf)]
    for name, low, high in steps:
        own = frame.filter(pl.col("reliability") == name)["cv"]
        assert ((own > low) & (own <= high)).all()
    assert frame["path"][2] == "P14 > Male > Under 1 year"
    assert state.result.table("P14 > Male > Under 1 year", [TRACT]).equals(state.result.table("P14_003N", [TRACT]))
    assert state.result.table("P0140003", [TRACT]).equals(state.result.table("P14_003N", [TRACT]))


def test_whole_numbers_are_those_of_a_census(state: SmallState) -> None:
    exact, whole = (state.result.table("PCT12", geolevel="block", whole=own) for own in (False, True))
    assert (exact["lower"] < 0).any()
    np.testing.assert_array_equal(whole["estimate"], np.maximum(np.round(exact["estimate"]), 0))
    assert (whole["lower"] >= 0).all()
    assert ((whole["lower"] <= exact["lower"].clip(0)) & (whole["upper"] >= exact["upper"].clip(0))).all()
    for name in ("estimate", "lower", "upper"):
        assert (whole[name] == whole[name].round()).all()
    assert_frame_equal(whole.select("line", "std_error", "path"), exact.select("line", "std_error", "path"))


@pytest.mark.parametrize("known_to", [0.5, 0.05, 0.01, 0.002])
def test_the_smallest_group_is_the_narrowest_range_of_ages_that_is_known(state: SmallState, known_to: float) -> None:
    """Of every range with age 7, in order of width, from dense matrices."""
    ranges = [range(low, high) for low in range(8) for high in range(8, 21) if high - low < 20]
    known = [(own, *expected(state, own)) for own in ranges]
    known = [(own, estimate, error) for own, estimate, error in known if error <= known_to * abs(estimate)]
    if not known:
        known = [(own, *expected(state, own)) for own in (range(20),)]  # Male, or all, or nothing
    best = min(known, key=lambda one: (len(one[0]), one[2] / abs(one[1])))
    (group,) = known_groups(state.result, ["P14_010N"], TRACT, known_to)
    assert known_groups(state.result, ["P14_003N", "P14_010N"], TRACT, known_to)[1] == group
    if known_to == 0.002:
        assert group is None
        return
    ages = best[0]
    if len(ages) == 20:
        assert group.codes == (("P14_002N",) if known[0][2] <= known_to * abs(known[0][1]) else ("P14_001N",))
        return
    assert group.codes == tuple(f"P14_{age + 3:03}N" for age in ages)
    np.testing.assert_allclose([group.estimate, group.std_error], best[1:], rtol=1e-8)
    assert str(group).startswith(f"{group.codes[0]}")


def test_what_nothing_tells_is_in_no_group(tmp_path: Path) -> None:
    """Of a result that tells those under 5 by themselves, and no other age of the table."""
    text = settings_of(LEVELS, {"sex": 2, "age": 116}, {"sex * young": "1/6"}, 'age.young = "0-4 | 5-115"')
    settings = parse_settings(text, "small")
    own = spine()
    tables = {level: ["sex * young"] for level in own.levels}
    observed = {level: dict.fromkeys(names, 4.0) for level, names in tables.items()}
    problem = Problem(settings.schema, observed, tables, spine=own)
    P = blue(problem)
    write_result(tmp_path / "result", P, P @ np.full(problem.observed.size, 5.0), np.sqrt(P.variances()), settings)
    result = Result(tmp_path / "result")
    young, males = (result.table(line, [TRACT])["cv"].item() / 100 for line in ("P12_003N", "P12_002N"))
    found = {known: known_groups(result, ["P12_003N"], TRACT, known + 1e-9)[0] for known in (young, males)}
    assert [group and group.codes for group in found.values()] == [("P12_003N",), ("P12_002N",)]


def published(state: SmallState, lines: list[str], shift: float) -> PublishedFile:
    """Estimates of tracts and counties, all `shift` standard errors up, and places that the result has not."""
    frames = [state.result.table(line, geolevel=level) for line in lines for level in ("tract", "county", "nation")]
    long = pl.concat(frames).with_columns(value=pl.col("estimate") + shift * pl.col("std_error"))
    counts = long.pivot("line", index="geoid", values="value")
    others = pl.DataFrame({"geoid": ["02", "02013"]} | {line: [1.0, 2.0] for line in lines})
    return PublishedFile(pl.concat([counts, others]), {})


def test_what_was_published_is_so_many_standard_errors_off(state: SmallState) -> None:
    lines = ["P12_001N", "P12_002N"]
    near, far = (beside_published(state.result, published(state, lines, shift)) for shift in (2.9, -3.1))
    assert near.frame.height == 2 * 4
    assert near.frame["geoid"].unique().sort().to_list() == ["01003", "01003010800", TRACT, "US"]
    np.testing.assert_allclose(near.frame["z"], 2.9)
    np.testing.assert_allclose(near.frame["difference"], 2.9 * near.frame["std_error"])
    assert (near.far.height, far.far.height) == (0, 8)
    assert str(far) == "8 of 8 are more than 3 standard errors apart"
    chosen = beside_published(state.result, published(state, lines, 0), ["P0120002"], [TRACT])
    assert chosen.frame.select("geoid", "line").rows() == [(TRACT, "P12_002N")]
    long = beside_published(state.result, published(state, lines, 0), geoids=[f"1400000US{TRACT}", "us"])
    assert long.frame["geoid"].unique(maintain_order=True).to_list() == [TRACT, "US"]
    within = beside_published(state.result, published(state, lines, 0), geoids=["01"], geolevel="tract")
    assert set(within.frame["geoid"]) == {"01003010800", TRACT}


def test_what_is_known_exactly_has_no_distance_in_standard_errors() -> None:
    columns = {"std_error": [0.0, 0.0, 2.0, 2.0], "difference": [0.0, 1.0, -8.0, 7.0], "z": [None, None, -4.0, 3.5]}
    beside = PublishedBeside(pl.DataFrame(columns), {})
    assert str(beside) == "2 of 2 are more than 3 standard errors apart; of 2 known exactly 1 differ"
    assert beside.far["z"].to_list() == [-4, 3.5]
    assert beside.differ["difference"].to_list() == [1]


def test_a_table_of_another_product_is_not_compared(state: SmallState) -> None:
    """Several products have tables P1 to P5, whose lines count other people."""
    lines = ["P12_001N", "P12_002N", "P12_003N"]
    counts = published(state, lines, 0).counts
    ours = dict(zip(lines, ["Total", "Male", "Under five"], strict=True))
    theirs = dict(zip(lines, ["Total", "Urban", "Rural"], strict=True))
    assert beside_published(state.result, PublishedFile(counts, {}, labels=ours)).frame.height == 3 * 4
    for asked in (None, ["P12_001N"]):
        with pytest.raises(ValueError, match="of another product: P12_002N is 'Urban' there, and 'Male' in dhc_pers"):
            beside_published(state.result, PublishedFile(counts, {}, labels=theirs), asked)


def test_what_cannot_be_compared_is_said(state: SmallState) -> None:
    own = published(state, ["P12_001N"], 0)
    more = PublishedFile(own.counts.with_columns(P4_001N=pl.lit(1.0), P4_002N=pl.lit(1.0)), {})
    beside = beside_published(state.result, more)
    assert set(beside.frame["line"]) == {"P12_001N"}
    assert "lack 'hispanic'" in beside.left_out["P4"]
    for asked, said in (
        ({"tables": ["P12_001N", "P0120001"]}, "line P12_001N is asked for twice"),
        ({"tables": ["P12"]}, "line P12_002N is not in what was published, which has P12"),
        ({"geoids": [BLOCK]}, f"'{BLOCK}' is not in what was published, which has 01003"),
        ({"geolevel": "block"}, "none of its places is in this result"),
    ):
        with pytest.raises(ValueError, match=said):
            beside_published(state.result, own, **asked)  # type: ignore[arg-type]
    nothing = own.counts.with_columns(P12_001N=pl.lit(None, pl.Float64))
    with pytest.raises(ValueError, match="what was published is empty there"):
        beside_published(state.result, PublishedFile(nothing, {}))
    with pytest.raises(ValueError, match="none of its places is in this result: it has none"):
        beside_published(state.result, PublishedFile(own.counts.head(0), {}))
    with pytest.raises(ValueError, match=r"nothing of it can be compared: P4: .* lack 'hispanic'"):
        beside_published(state.result, PublishedFile(more.counts.drop("P12_001N"), {}))
    with pytest.raises(ValueError, match="no column is a line of a published table"):
        beside_published(state.result, PublishedFile(own.counts.select("geoid"), {}))
