"""The released files of 2020, as the facts describe them: everything that they say is read, and counted."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from blue_solvers import blue
from constraint_builders.files import (
    Release,
    production_settings,
    read_noisy_measurements,
    read_state_totals,
    read_totals,
)
from tests.helpers.census_files import Written, geocodes, invented, write_census_files
from tests.helpers.census_products import PL94_PERSONS, PL94_UNITS

PLACES = {"044": {"001": [3, 2], "003": [4]}, "009": {"001": [2, 2]}, "109": {"001": [1, 3]}}
PL94 = production_settings("pl94_us_persons")


def pl94(folder: Path, **options: Any) -> Written:
    rng = np.random.default_rng(1)
    blocks = invented(PL94_PERSONS, geocodes(PL94_PERSONS, PLACES), np.arange(8), rng)
    return write_census_files(folder, PL94_PERSONS, blocks, rng, types="hhgq", **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written, Release]:
    folder = tmp_path_factory.mktemp("census") / "US_Person_PL_PROD"
    return folder, pl94(folder), read_noisy_measurements(folder, PL94)


def canonical(query: str) -> str:
    order = list(PL94_PERSONS.sizes)
    factors = query.split(" * ")
    return " * ".join(sorted(factors, key=lambda own: order.index(own) if own in order else -1))


def test_every_measurement_is_read_where_it_belongs(whole: tuple[Path, Written, Release]) -> None:
    _, written, release = whole
    problem = release.problem
    values, variances = (problem.observed.tables(v) for v in (release.y, problem.variances))
    for (level, code, query), (expected, variance) in written.measured.items():
        rank = problem.spine.rank_in_level[problem.spine.position(level, code)]
        key = level, canonical(query)
        assert np.array_equal(values[key][rank].ravel(), expected), (level, code, query)
        assert np.all(variances[key][rank] == variance)
    measured = sum(np.isfinite(variances[key]).sum() for key in variances)
    expected_cells = sum(own.size for own, _ in written.measured.values())
    assert measured == expected_cells + 1  # and the total of the US


def test_every_row_is_accounted_for(whole: tuple[Path, Written, Release]) -> None:
    _, written, release = whole
    assert {(own.geolevel, own.kind): own.read for own in release.read.rows if own.read} == {
        key: rows for key, rows in written.rows.items() if rows
    }
    for own in release.read.rows:
        assert own.read == own.used + own.unused
    assert sum(own.unused for own in release.read.rows) == sum(own.rows for own in release.unused)
    assert {own.name for own in release.unused} == {"hhgq_total_lb_con"}  # every upper bound has a zero


def test_only_children_are_in_constraints_only(whole: tuple[Path, Written, Release]) -> None:
    _, written, release = whole
    problem = release.problem
    codes = {code for level, code, _ in written.measured if level == "County"}
    counties = {code for level, code in zip(problem.spine.level_of, problem.spine.geocodes, strict=True) if level == 2}
    assert counties - codes == {"009100011", "109100011"}
    assert problem.spine.size == sum(len({block.codes[i] for block in written.blocks}) for i in range(6))


def test_edit_rules_and_absent_facilities_are_structural_zeros(whole: tuple[Path, Written, Release]) -> None:
    _, written, release = whole
    problem = release.problem
    for number, level in enumerate(PL94_PERSONS.geolevels):
        for position in problem.spine.members[number]:
            blocks = written.within(number, problem.spine.geocodes[position])
            present = np.concatenate([[sum(own.units for own in blocks)], sum(own.facilities for own in blocks)]) > 0
            expected = np.repeat(~present[:, None], 2, axis=1)
            expected[3, 0] = True  # nobody under 18 lives in a nursing home
            assert np.array_equal(problem.zeros.empty[position], expected), (level, position)


def test_bounds_say_how_many_facilities_and_housing_units_there_are(whole: tuple[Path, Written, Release]) -> None:
    _, written, release = whole
    types = PL94.schema.labels_of("hhgq")
    for number, level in enumerate(PL94_PERSONS.geolevels):
        for code in {block.codes[number] for block in written.blocks}:
            blocks = written.within(number, code)
            counts = dict(zip(types[1:], sum(own.facilities for own in blocks).tolist(), strict=True))
            if number > 1:  # above, bounds were lowered to totals
                counts["housing_units"] = sum(own.units for own in blocks)
            rows = release.facilities.filter(geolevel=level, geocode=code)
            found = dict(rows.select("type", "facilities").rows())
            assert found == {kind: count for kind, count in counts.items() if count}


@pytest.mark.few(0)
def test_totals_that_bounds_imply_are_tested(whole: tuple[Path, Written, Release], tmp_path: Path) -> None:
    _, written, release = whole
    people = {code: sum(b.persons.size for b in written.within(1, code)) for code in ("044", "009", "109")}
    found = {own.geocode: own.implied for own in release.read.implied}
    assert found == people | {"": sum(people.values())}
    assert all(own.agrees for own in release.read.implied)
    assert [line.partition(":")[0] for line in release.read.implied_lines()] == ["US", "State"]
    pl94(tmp_path / "plain", states_know_totals=False)
    assert read_noisy_measurements(tmp_path / "plain", PL94).read.implied == ()


@pytest.mark.few(0)
def test_totals_that_disagree_are_said(whole: tuple[Path, Written, Release], tmp_path: Path) -> None:
    shutil.copytree(whole[0], tmp_path / "us")
    for path in (tmp_path / "us" / "State.parquet" / "Constraint").rglob("*.parquet"):
        rows = pl.read_parquet(path, hive_partitioning=False).to_dicts()
        for row in rows:
            if row["query_name"] == "hhgq_total_ub_con":
                row["value"][0] += 500
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    read = read_noisy_measurements(tmp_path / "us", PL94).read
    assert "3 whose total is known or was measured 0 agree" in list(read.implied_lines())[1]
    said = [remark.text for remark in read.remarks if remark.about == "bounds"]
    assert [text.endswith("DISAGREE") for text in said] == [True] * 3


def test_a_prefix_that_matches_nothing_is_refused_naming_what_there_is(whole: tuple[Path, Written, Release]) -> None:
    with pytest.raises(ValueError, match=r"nothing was measured within 144: .* at State there are 009, 044, 109$"):
        read_noisy_measurements(whole[0], PL94, within=["044", "144"])
    with pytest.raises(ValueError, match=r"at County there are 009100011, 044100011, 044100031, 109100011$"):
        read_noisy_measurements(whole[0], PL94, within=["04410005"])


def test_what_lies_outside_of_prefixes_is_counted(whole: tuple[Path, Written, Release]) -> None:
    folder, written, _ = whole
    release = read_noisy_measurements(folder, PL94, within=["044"])
    assert sum(own.read for own in release.read.rows) == sum(written.rows.values())
    outside = [own for own in release.unused if own.name == "*"]
    assert {own.reason for own in outside} == {"it is of a geounit outside of 044"}
    inside = sum(1 for _, code, _ in written.measured if code.startswith("044"))
    assert sum(own.used for own in release.read.rows if own.kind == "DPQuery") == inside


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("within", "exact"),
    [
        (None, {("Whole_State", "009+109"): "09", ("State", "044"): "44"}),
        (["009", "109"], {("US", "009+109"): "09"}),
        (["044"], {("State", "044"): "44"}),
        (["044", "009"], {("State", "044"): "44"}),
    ],
)
def test_state_totals_hold_of_both_branches_together(
    within: list[str] | None, exact: dict[tuple[str, str], str], whole: tuple[Path, Written, Release], tmp_path: Path
) -> None:
    folder, written, _ = whole
    known = {state: sum(b.persons.size for b in written.blocks if b.codes[1][1:] == state) for state in ("44", "09")}
    (tmp_path / "states.csv").write_text("state,total\n" + "".join(f"{s},{n}\n" for s, n in known.items()))
    states = read_state_totals(tmp_path / "states.csv", folder, PL94, within)
    release = read_noisy_measurements(folder, PL94, within=within, totals=states.totals)
    assert bool(states.left_out) == (within == ["044", "009"])
    spine, problem = release.problem.domain.spine, release.problem
    variances, values = (problem.observed.tables(v) for v in (problem.variances, release.y))
    found = {}
    for level, table in problem.observed.names:
        if table == "total":
            members = spine.members[spine.level_index(level)]
            cells = zip(members, values[level, table].tolist(), variances[level, table].tolist(), strict=True)
            found |= {(level, spine.geocodes[i]): value for i, value, variance in cells if variance == 0}
    if within is None:
        assert found.pop(("US", "")) == sum(known.values())  # the release says it
        assert spine.parent[spine.position("State", "109")] == spine.position("Whole_State", "009+109")
    assert found == {geounit: known[state] for geounit, state in exact.items()}


def test_state_totals_of_2020_are_those_published(whole: tuple[Path, Written, Release]) -> None:
    states = read_state_totals("2020", whole[0], PL94)
    assert {own.codes: own.total for own in states.totals} == {("009", "109"): 3_605_944, ("044",): 1_097_379}
    with pytest.raises(ValueError, match="no noise explains that"):
        read_noisy_measurements(whole[0], PL94, totals=states.totals)


def test_totals_of_states_that_are_taken_in_part_are_said(whole: tuple[Path, Written, Release], tmp_path: Path) -> None:
    (tmp_path / "states.csv").write_text("state,total\n44,1\n09,2\n48,3\n")
    states = read_state_totals(tmp_path / "states.csv", whole[0], PL94, ["044100011", "109"])
    assert states.totals == ()
    assert states.left_out == (
        "the total of state 09 is not used: 009, which it counts too, is not taken",
        "the total of state 44 is not used: no more than 044100011 is taken of it",
    )


@pytest.mark.few(0)
def test_a_constraint_that_nobody_vouches_for_is_not_taken_as_true(tmp_path: Path) -> None:
    said = {"hhgq": "detailed", "votingage": "*", "hispanic": "*", "cenrace": "*"}
    pl94(tmp_path / "us", untrue={"hhgq_published_con": said})
    release = read_noisy_measurements(tmp_path / "us", PL94)
    reasons = {own.reason for own in release.unused if own.name == "hhgq_published_con"}
    assert reasons == {"the settings do not say that it holds of the true counts"}
    assert not any(
        (release.problem.observed.tables(release.problem.variances)[key] == 0).any()
        for key in release.problem.observed.names
        if key != ("US", "total")
    )


def test_a_row_whose_columns_contradict_its_name_is_refused(
    whole: tuple[Path, Written, Release], tmp_path: Path
) -> None:
    shutil.copytree(whole[0], tmp_path / "us")
    path = next((tmp_path / "us" / "County.parquet" / "DPQuery").rglob("*.parquet"))
    rows = pl.read_parquet(path, hive_partitioning=False)
    swapped = pl.when(pl.col("query_name") == "hispanic_dpq").then(pl.lit("*")).otherwise("hispanic").alias("hispanic")
    rows.with_columns(swapped, pl.lit(None).alias("query_shape")).write_parquet(path)
    with pytest.raises(ValueError, match=r"row \d+ \(hispanic_dpq of .*its name says table 'hispanic', its column"):
        read_noisy_measurements(tmp_path / "us", PL94)


def test_totals_of_units_are_exact_in_every_geounit(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    blocks = invented(PL94_UNITS, geocodes(PL94_UNITS, PLACES), np.zeros(2, dtype=int), rng)
    written = write_census_files(tmp_path / "units", PL94_UNITS, blocks, rng, types=None, total_at="*")
    release = read_noisy_measurements(tmp_path / "units", production_settings("pl94_us_units"))
    problem, spine = release.problem, release.problem.domain.spine
    P = blue(problem)
    tables, variances = (problem.desired.tables(v) for v in (P @ release.y + P.offset, P.variances()))
    for number, level in enumerate(spine.levels):
        for rank, position in enumerate(spine.members[number]):
            units = sum(own.persons.size for own in written.within(number, spine.geocodes[position]))
            assert tables[level, "detailed"][rank].sum() == pytest.approx(units, abs=1e-8)
            vacant, occupied = variances[level, "detailed"][rank]
            assert vacant == pytest.approx(occupied, rel=1e-9)
    assert {own.unused for own in release.read.rows} == {0}


@pytest.mark.few(1)
@pytest.mark.parametrize("variables", [["hhgq", "votingage"], ["votingage", "hhgq", "hispanic"]])
def test_sums_over_variables_that_nothing_couples_lose_nothing(
    variables: list[str], whole: tuple[Path, Written, Release]
) -> None:
    folder, _, _ = whole
    desired = ["total", "hhinstlevels", "votingage", "hhgq * votingage"]
    found = []
    for kept in (None, variables):
        release = read_noisy_measurements(folder, PL94, variables=kept, desired=desired)
        P = blue(release.problem)
        found.append((P @ release.y + P.offset, P.variances()))
        assert release.read.is_lossless
    (x, variances), (own_x, own_variances) = found
    assert np.allclose(x, own_x, rtol=0, atol=1e-7)
    assert np.allclose(variances, own_variances, rtol=1e-9, atol=1e-9)


def test_sums_over_others_are_said_to_lose(whole: tuple[Path, Written, Release]) -> None:
    folder, written, _ = whole
    release = read_noisy_measurements(folder, PL94, variables=["cenrace"])
    assert not release.read.is_lossless
    lost = {own.name for own in release.unused if own.reason == "its zeros are of variables that are summed out"}
    assert lost == {"nurse_nva_0_con", "hhgq_total_ub_con"}
    for own in release.read.rows:
        assert own.read == own.used + own.unused == written.rows.get((own.geolevel, own.kind), 0)
    with pytest.raises(ValueError, match="there is no variable 'age': there are hhgq, votingage, hispanic, cenrace"):
        read_noisy_measurements(folder, PL94, variables=["age"])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("sign", None, "it has no sign: whether it is an equality or a bound is not said"),
        ("sign", "gone", "it has no sign: whether it is an equality or a bound is not said"),
        ("votingage", None, "column 'votingage' is empty: it does not say what is counted"),
        ("hhgq", "hhgq12", "column 'hhgq' says 'hhgq12', of which the settings know only 'detailed', 'hhinstlevels'"),
    ],
)
def test_constraints_that_are_not_understood_are_named(
    column: str, value: str | None, reason: str, whole: tuple[Path, Written, Release], tmp_path: Path
) -> None:
    shutil.copytree(whole[0], tmp_path / "us")
    for path in (tmp_path / "us" / "Tract.parquet" / "Constraint").rglob("*.parquet"):
        rows = pl.read_parquet(path, hive_partitioning=False)
        other = rows.with_columns(pl.lit(value).cast(pl.String).alias(column))
        (rows.drop(column) if value == "gone" else other).write_parquet(path)
    release = read_noisy_measurements(tmp_path / "us", PL94)
    assert {own.reason for own in release.unused if own.geolevel == "Tract"} == {reason}
    assert not any(level == "Tract" for level, _ in release.zeros)


def test_all_that_a_known_total_replaces_is_counted_as_not_used(
    whole: tuple[Path, Written, Release], tmp_path: Path
) -> None:
    """Summed over other variables, several tables of a state measure its total: none of them is of use."""
    folder, written, _ = whole
    people = sum(block.persons.size for block in written.within(1, "044"))
    (tmp_path / "known.csv").write_text(f"geocode,total\n044,{people}\n")
    totals = read_totals(tmp_path / "known.csv")
    release = read_noisy_measurements(folder, PL94, variables=["hhgq"], totals=totals)
    unused = {own.name: own.rows for own in release.unused if own.reason.endswith("known.csv says it exactly")}
    names = {query for level, code, query in written.measured if (level, code) == ("State", "044")}
    summed = {f"{canonical(query)}_dpq" for query in names if "hhgq" not in query and query not in ("detailed",)}
    assert unused == dict.fromkeys(summed - {"hhinstlevels_dpq"}, 1)
    for own in release.read.rows:
        assert own.read == own.used + own.unused
