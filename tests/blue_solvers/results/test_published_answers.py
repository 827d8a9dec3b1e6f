"""Published tables from a stored result, against sums and covariances of dense matrices over the blocks' cells."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from blue_solvers import blue
from blue_solvers.results.questions import Result
from blue_solvers.results.store import write_result
from constraint_builders import Problem, Spine
from constraint_builders.files import production_settings
from constraint_builders.true_tables import true_vector
from tests.helpers.refused import refused, refuses
from tests.helpers.simulated import settings_of
from tests.helpers.small_states import CODES, GEOIDS, SmallState, small_state, summed
from tests.helpers.small_states import LEVELS as GEOLEVELS

SEX, LOSSES = ["male", "female"], {"detailed": "1/6"}
RACE_GROUPS = list(production_settings("pl94_us_persons").schema.labels_of("cenrace"))
AGES = settings_of(GEOLEVELS, {"sex": SEX, "age": 116}, LOSSES, 'age.votingage = "0-17 | 18-115"')
RACES = settings_of(GEOLEVELS, {"sex": 2, "cenrace": RACE_GROUPS}, LOSSES)
PLACES = {  # GEOID, and its blocks as published: those of tract 010800 lie in three geounits of the spine at least
    "US": GEOIDS,
    "01": GEOIDS,
    "01003": GEOIDS,
    "01003010800": [g for g in GEOIDS if g.startswith(("01003010800", "01003990000"))],
    "01003010900": ["010030109001000"],
    "010030108001": ["010030108001001", "010030108001002"],
    "010030108002": ["010030108002009", "010030108002008", "010039900000001"],
    "010030108001002": ["010030108001002"],
    "010030108002008": ["010030108002008"],
    "010030108002009": ["010030108002009", "010039900000001"],
}
LEVELS = {
    "nation": ["US"],
    "state": ["01"],
    "County": ["01003"],
    "tract": ["01003010800", "01003010900"],
    "block group": ["010030108001", "010030108002", "010030109001"],
    "block": ["010030108001001", *(place for place in PLACES if len(place) == 15), "010030109001000"],
}


@pytest.fixture(scope="module")
def ages(tmp_path_factory: pytest.TempPathFactory) -> SmallState:
    """Persons by sex and single year of age, ages measured by themselves and by voting age too."""
    sums = {
        "age": summed(0),
        "votingage * sex": lambda cells: np.stack([cells[:, :18].sum(axis=1), cells[:, 18:].sum(axis=1)]),
        "detailed": summed(),
    }
    return small_state(tmp_path_factory.mktemp("ages") / "result", AGES, sums, ["sex * age"], 5)


@pytest.fixture(scope="module")
def races(tmp_path_factory: pytest.TempPathFactory) -> SmallState:
    sums = {"cenrace": summed(0), "detailed": summed()}
    return small_state(tmp_path_factory.mktemp("races") / "result", RACES, sums, ["sex * cenrace"], 6)


def weight(state: SmallState, place: str, cells: NDArray) -> NDArray:
    """A sum of cells over the blocks of a place."""
    inside = [GEOIDS[CODES.index(code)] in PLACES[place] for code in state.leaves]
    return np.multiply.outer(np.array(inside, dtype=float), cells)


def of_ages(sexes: list[int], ages: range) -> NDArray:
    cells = np.zeros((2, 116))
    cells[np.ix_(sexes, list(ages))] = 1
    return cells


P12 = [
    of_ages(sexes, ages)
    for sexes, groups in (([0, 1], [range(116)]), *(([sex], None) for sex in (0, 1)))
    for ages in groups
    or [
        range(116), range(5), range(5, 10), range(10, 15), range(15, 18), range(18, 20), range(20, 21), range(21, 22),
        range(22, 25), range(25, 30), range(30, 35), range(35, 40), range(40, 45), range(45, 50), range(50, 55),
        range(55, 60), range(60, 62), range(62, 65), range(65, 67), range(67, 70), range(70, 75), range(75, 80),
        range(80, 85), range(85, 116),
    ]
]  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("place", PLACES)
def test_p12_of_every_place_is_its_sum_with_its_exact_error(ages: SmallState, place: str) -> None:
    frame = ages.result.table("P12", [place], confidence_level=0.9)
    estimate, covariance = ages.expected(*(weight(ages, place, cells) for cells in P12))
    assert frame["geoid"].to_list() == [place] * 49
    np.testing.assert_allclose(frame["estimate"], estimate, atol=1e-8)
    np.testing.assert_allclose(frame["std_error"], np.sqrt(covariance.diagonal()), rtol=1e-9)
    np.testing.assert_allclose(frame["upper"] - frame["estimate"], 1.6448536269514722 * frame["std_error"], rtol=1e-9)
    np.testing.assert_allclose(frame["estimate"] - frame["lower"], 1.6448536269514722 * frame["std_error"], rtol=1e-9)


@pytest.mark.few(3)
@pytest.mark.parametrize("level", LEVELS)
def test_whole_levels_are_their_places_one_after_another(ages: SmallState, level: str) -> None:
    together = ages.result.table("P12", geolevel=level)
    assert together["geoid"].unique(maintain_order=True).to_list() == sorted(LEVELS[level])
    alone = pl.concat([ages.result.table("P12", [place]) for place in sorted(LEVELS[level])])
    keys = ["geoid", "line", "label", "confidence"]
    assert together.select(keys).equals(alone.select(keys))
    for name in ("estimate", "std_error", "lower", "upper"):
        np.testing.assert_allclose(together[name], alone[name], atol=1e-9)
    if level in ("nation", "state", "County"):  # of which the tract is a part, and no more than that is known of it
        refuses("lies only in part within '01003010800'", ages.result.table, "P12", ["01003010800"], geolevel=level)
    else:
        within = ages.result.table("P12", ["01003010800"], geolevel=level)
        own = together.filter(pl.col("geoid").str.starts_with("010030108"))
        assert within.select(keys).equals(own.select(keys))
        np.testing.assert_allclose(within["estimate"], own["estimate"], atol=1e-9)


def test_wide_is_long_turned(ages: SmallState) -> None:
    long, wide = (ages.result.table("P12", geolevel="block", wide=turned) for turned in (False, True))
    assert wide.columns[:5] == ["geoid", "P12_001N", "P12_001N_se", "P12_001N_lower", "P12_001N_upper"]
    assert wide.shape == (5, 1 + 4 * 49)
    for row in long.iter_rows(named=True):
        own = wide.row(by_predicate=pl.col("geoid") == row["geoid"], named=True)
        for suffix, name in {"": "estimate", "_se": "std_error", "_lower": "lower", "_upper": "upper"}.items():
            assert own[row["line"] + suffix] == row[name]


def test_tallies_count_people_once_for_each_race(races: SmallState) -> None:
    frame = races.result.table("P6", geolevel="tract")
    labels = races.result.schema.labels_of("cenrace")
    names = ["white", "black", "aian", "asian", "nhopi", "sor"]
    each = [np.array([name in label.split("+") for label in labels], dtype=float) for name in names]
    lines = [np.stack([own, own]) for own in (sum(each), *each)]
    weights = [weight(races, place, cells) for place in LEVELS["tract"] for cells in lines]
    estimate, covariance = races.expected(*weights)
    np.testing.assert_allclose(frame["estimate"], estimate, atol=1e-8)
    np.testing.assert_allclose(frame["std_error"], np.sqrt(covariance.diagonal()), rtol=1e-9)


def test_places_made_up_of_others(ages: SmallState) -> None:
    made = {"both": ["01003010900", "010030108002009"], "one": ["010030108001002"]}
    frame = ages.result.table("P12_001N", made)
    total = np.ones((2, 116))
    own = weight(ages, "01003010900", total) + weight(ages, "010030108002009", total)
    estimate, covariance = ages.expected(own, weight(ages, "010030108001002", total))
    assert frame["geoid"].to_list() == ["both", "one"]
    np.testing.assert_allclose(frame["estimate"], estimate, atol=1e-8)
    np.testing.assert_allclose(frame["std_error"], np.sqrt(covariance.diagonal()), rtol=1e-9)
    with pytest.raises(ValueError, match="place 'twice' counts '010030109001000' twice"):
        ages.result.table("P12", {"twice": ["01003010900", "010030109001000"]})
    refuses("not both", ages.result.table, "P12", made, geolevel="block")


@pytest.mark.parametrize(
    ("other_line", "other_geoid"), [("P12_026N", None), (None, "01003"), ("P12_001N", "010030108001"), (None, "same")]
)
def test_differences_and_ratios_have_the_joint_covariance(
    ages: SmallState, other_line: str | None, other_geoid: str | None
) -> None:
    places = ["01003010800", "010030108002", "010030109001000", "010030108002008"]
    PLACES["010030109001000"] = ["010030109001000"]
    asked = places if other_geoid != "same" else {"same": ["01003010900"], **{place: [place] for place in places}}
    found = {
        kind: getattr(ages.result, kind)("P12_003N", other_line, asked, other_geoid=other_geoid)
        for kind in ("differences", "ratios")
    }
    cells = {"P12_003N": of_ages([0], range(5)), "P12_026N": of_ages([1], range(116)), "P12_001N": np.ones((2, 116))}
    for place in places:
        second = {"same": "01003010900", None: place}.get(other_geoid, other_geoid)
        weights = weight(ages, place, cells["P12_003N"]), weight(ages, second, cells[other_line or "P12_003N"])
        (a, b), V = ages.expected(*weights)
        rows = {kind: frame.row(by_predicate=pl.col("geoid") == place, named=True) for kind, frame in found.items()}
        assert rows["ratios"]["other_line"] == (other_line or "P12_003N")
        assert rows["ratios"]["other_geoid"] == (other_geoid or place)
        np.testing.assert_allclose(rows["differences"]["estimate"], a - b, atol=1e-8)
        np.testing.assert_allclose(
            rows["differences"]["std_error"], np.sqrt(max(V[0, 0] - 2 * V[0, 1] + V[1, 1], 0)), atol=1e-6
        )
        np.testing.assert_allclose(rows["ratios"]["estimate"], a / b, rtol=1e-7)
        bounds = rows["ratios"]["lower"], rows["ratios"]["upper"]
        if bounds[0] is None:
            assert b**2 <= 3.8414588206941245 * V[1, 1]
            continue
        for bound in bounds:  # where a - t b is just as far from 0 as its error allows
            far = (a - bound * b) ** 2
            assert far == pytest.approx(
                3.8414588206941245 * (V[0, 0] - 2 * bound * V[0, 1] + bound**2 * V[1, 1]), rel=1e-6
            )


def test_ranks_compare_every_two_places(ages: SmallState) -> None:
    blocks = sorted(LEVELS["block"])
    PLACES["010030108001001"] = ["010030108001001"]
    found = ages.result.ranks("P12_003N", geolevel="block", confidence_level=0.8)
    x, V = ages.expected(*(weight(ages, block, of_ages([0], range(5))) for block in blocks))
    z = 1.959963984540054  # of 0.95: 0.8 with four differences each
    for row in found.iter_rows(named=True):
        i = blocks.index(row["geoid"])
        errors = np.sqrt(V.diagonal() + V[i, i] - 2 * V[i])
        others = [j for j in range(len(blocks)) if j != i]
        assert row["rank"] == 1 + sum(x[j] > x[i] for j in others)
        assert row["rank_from"] == 1 + sum(x[j] - x[i] > z * errors[j] for j in others)
        assert row["rank_to"] == len(blocks) - sum(x[i] - x[j] > z * errors[j] for j in others)
    assert found["rank"].to_list() == sorted(found["rank"])


def test_what_can_be_answered_is_listed_with_the_reason(ages: SmallState, races: SmallState) -> None:
    told = {row["table"]: row for row in ages.result.published_tables().iter_rows(named=True)}
    assert told["P12"]["reason"] == ""
    assert told["P12"]["geolevels"] == "US, State, County, Tract, Block_Group, Block"
    assert told["P12A"]["reason"] == "its variables lack 'cenrace'"
    assert {name for name, row in told.items() if not row["reason"]} == {"P1", "P12", "P14", "PCT12"}
    told = {row["table"]: row for row in races.result.published_tables().iter_rows(named=True)}
    assert {name for name, row in told.items() if not row["reason"]} == {"P1", "P3", "P6", "P8"}
    for state, name, said in (
        (ages, "P12A", "cannot answer P12A: its variables lack 'cenrace'"),
        (ages, "P5", "its variables lack 'hispanic' and 'cenrace'"),
        (ages, "H4", "'H4' is of dhc_households, and this result is of dhc_persons"),
        (races, "P12", "its variables lack 'age'"),
        (races, "P4_002N", "lack 'hispanic'"),
    ):
        refuses(said, state.result.table, name, ["01003"])


def test_what_is_not_stored_is_named(tmp_path: Path) -> None:
    state = small_state(tmp_path / "result", AGES, {"detailed": summed()}, ["sex", "sex * votingage"], 7)
    assert state.result.table("P12_002N", ["01003"]).height == 1
    with pytest.raises(
        ValueError, match=r"nothing stored tells P12_003N, .* estimate again with --desired 'sex \* age'"
    ):
        state.result.table("P12", ["01003"])


def test_other_levels_are_refused(tmp_path: Path) -> None:
    """Sexes in another order would be answered the wrong way round."""
    for name, variables, line, said in (
        ("turned", {"sex": SEX[::-1], "age": 3}, "P12_002N", "female, male and not male, fem"),
        ("coarse", {"sex": SEX, "age": 3}, "P12_003N", r"'age' has the levels 0, 1, 2 and not 0, 1, 2, ... \(116\)"),
    ):
        settings = settings_of(GEOLEVELS, variables, LOSSES)
        state = small_state(tmp_path / name, settings, {"detailed": summed()}, ["sex"], 7)
        refuses(said, state.result.table, line, ["01003"])


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_other_solvers_results_answer_alike(tmp_path: Path, solver: str) -> None:
    settings = settings_of(GEOLEVELS, {"sex": SEX, "hispanic": 2}, LOSSES)
    sums = {"detailed": summed(), "sex": summed(1)}
    state = small_state(tmp_path / "result", settings, sums, ["sex * hispanic"], 8, solver)
    frame = state.result.table("P4", geolevel="block_group")
    cells = [np.ones((2, 2)), np.array([[1, 0], [1, 0]]), np.array([[0, 1], [0, 1]])]
    PLACES["010030109001"] = ["010030109001000"]
    weights = [weight(state, place, own) for place in LEVELS["block group"] for own in cells]
    estimate, covariance = state.expected(*weights)
    np.testing.assert_allclose(frame["estimate"], estimate, atol=1e-6)
    np.testing.assert_allclose(frame["std_error"], np.sqrt(covariance.diagonal()), rtol=1e-6)


@refused(
    (["01003990000"], "what was measured in its block 010039900000001 is counted in 010030108002009"),
    (["01003011000"], "no tract '01003011000' in this result: near it are 01003010800, 01003010900"),
    (["0100301"], "is no GEOID and no geocode of this result"),
    ([], "no place is asked for"),
    (["01", "01"], "GEOID '01' is given twice"),
    ("01", r"geoids must be a list: write \['01'\]"),
    ([""], "a GEOID is empty"),
)
def test_unknown_places_are_refused(geoids: list[str], ages: SmallState) -> None:
    ages.result.table("P12", geoids)


def test_a_number_is_no_table(ages: SmallState) -> None:
    refuses("no published table '12' in dhc_persons", ages.result.table, 12, ["01"])


def test_a_table_is_no_line(ages: SmallState) -> None:
    result: Result = ages.result
    refuses("is a table: give a line of it, such as 'P12_001N'", result.ranks, "P12", ["01"])
    refuses("is a table", result.ratios, "P12", "P12_001N", ["01"])
    refuses("give another line or another place", result.ratios, "P12_001N", geoids=["01"])


def test_exact_counts_have_no_error(tmp_path: Path) -> None:
    """Housing units are known in every block, so that occupied and vacant ones have one error between them."""
    settings = production_settings("pl94_us_units")
    spine = Spine.from_geoids(["440010001001000", "440010001002000", "440030001001000"])
    observed = {level: {"total": 0.0, "detailed": 4.0} for level in spine.levels}
    problem = Problem(settings.schema, observed, {level: ["h1"] for level in spine.levels}, spine=spine)
    y = true_vector(problem, np.array([[3, 7], [1, 11], [2, 20]]))
    noise = np.random.default_rng(2).normal(0, 2, y.size) * (problem.variances > 0)
    P = blue(problem)
    write_result(tmp_path / "result", P, P @ (y + noise) + P.offset, np.sqrt(P.variances()), settings)
    result = Result(tmp_path / "result")
    frame = result.table("H1", geolevel="county")
    total, occupied, vacant = (frame.filter(pl.col("line") == f"H1_00{i}N") for i in (1, 2, 3))
    np.testing.assert_allclose(total["estimate"], [22, 22], rtol=1e-12)
    assert total["std_error"].to_list() == [0, 0]
    assert (occupied["std_error"] > 0.1).all()
    np.testing.assert_allclose(occupied["std_error"], vacant["std_error"], rtol=1e-12)
    share = result.ratios("H1_002N", "H1_001N", geolevel="county")
    np.testing.assert_allclose(share["lower"] * 22, occupied["lower"], rtol=1e-9)
    np.testing.assert_allclose(share["upper"] * 22, occupied["upper"], rtol=1e-9)
    sums = result.differences("H1_002N", "H1_003N", geolevel="county")
    np.testing.assert_allclose(sums["std_error"], 2 * occupied["std_error"], rtol=1e-9)
    made = result.table("H1_001N", {"two": ["440010001001000", "440030001001000"]})
    assert made["std_error"].to_list() == [0]
