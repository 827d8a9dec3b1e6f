"""Long tables of several geounits: what is written is read back, and a tree that is not whole is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema, Spine
from constraint_builders.files import measured_table, measurements_frame, read_long_table, write_frame
from constraint_builders.files.expected_rows import MOST_DEVIATIONS
from constraint_builders.files.source import open_source
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refused, refuses
from tests.helpers.spines import SCHEMA, TABLES, consistent_measurements, spines

SEX = Schema({"sex": ["f", "m"]})
ROWS = """table,sex,geolevel,geocode,value,variance
total,*,State,44,100,0
sex,f,County,44001,31,4
sex,m,County,44001,29,4
sex,f,County,44003,22,4
sex,m,County,44003,21,4
total,*,Tract,4400101,33,9
total,*,Tract,4400102,28,9
total,*,Tract,4400301,40,9
"""


@st.composite
def coded(draw: Any) -> Spine:
    """Spines whose codes tell parents, and others, of levels whose names say nothing of their order."""
    spine = draw(spines())
    if draw(st.booleans()):
        names = draw(st.permutations(["Nation", "Region", "Site", "Area"]))
        return Spine(spine.parent, [names[level] for level in spine.level_of], spine.geocodes)
    codes = [""] * spine.size
    for i in range(spine.size):
        codes[i] = codes[spine.parent[i]] + f"{i:02}" if i else "r"
    return Spine(spine.parent, [spine.levels[level] for level in spine.level_of], codes)


@st.composite
def measured(draw: Any) -> tuple[Problem, np.ndarray]:
    spine = draw(coded())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    observed: dict[str, dict[str, Any]] = {}
    for number, level in enumerate(spine.levels):
        names = {"detailed", *draw(st.lists(st.sampled_from(TABLES), max_size=2, unique=True))}
        variances = 10.0 ** rng.uniform(0, 2, spine.members[number].size)
        if draw(st.booleans()):  # not measured where those below it are
            variances[(rng.random(variances.size) < 0.4) & (spine.child_counts[spine.members[number]] > 0)] = np.inf
        observed[level] = dict.fromkeys(sorted(names), variances)
    problem = Problem(SCHEMA, observed, {spine.levels[0]: ["total"]}, spine=spine)
    y = consistent_measurements(problem, 3)
    y[problem.unmeasured] = np.nan
    return problem, y


def by_code(problem: Problem, vector: np.ndarray) -> dict[tuple[str, str, str], list[float]]:
    spine = problem.spine
    found = {}
    for (level, table), cells in problem.observed.tables(vector).items():  # type: ignore[misc]
        for i, own in zip(spine.members[spine.level_index(level)], cells, strict=True):
            found[level, spine.geocodes[i], table] = np.ravel(own).tolist()
    return found


def parents(spine: Spine | None) -> dict[tuple[str, str], str | None]:
    codes = [*spine.geocodes, None]
    return {
        (spine.levels[spine.level_of[i]], spine.geocodes[i]): codes[spine.parent[i]]  # -1 is the last
        for i in range(spine.size)
    }


@pytest.mark.parametrize("suffix", [None, ".csv", ".parquet"])
@given(given_=measured(), seed=st.integers(0, 99))
def test_what_is_written_is_read_back_in_any_order(
    suffix: str | None, given_: tuple[Problem, np.ndarray], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    problem, y = given_
    source: Any = measurements_frame(problem, y).sample(fraction=1.0, shuffle=True, seed=seed)
    if suffix is not None:
        path = tmp_path_factory.mktemp("long") / f"noisy{suffix}"
        write_frame(source, path)
        source = path
    again, values = read_long_table(source, SCHEMA)
    assert parents(again.spine) == parents(problem.spine)
    assert again.spine.levels == problem.spine.levels
    for ours, theirs in ((again.variances, problem.variances), (values, y)):
        found, expected = by_code(again, ours), by_code(problem, theirs)
        assert found.keys() == expected.keys()
        for key, cells in expected.items():
            assert np.array_equal(found[key], cells, equal_nan=True), key


def test_a_geounit_that_is_the_sum_of_others_by_chance_is_read_back() -> None:
    """Of a state that was not measured; without parents a reader asks whether one of its counties is all of it."""
    spine = Spine([-1, 0, 0, 0], ["State"] + ["County"] * 3, ["44", "44001", "44003", "44005"])
    problem = Problem(Schema({"a": 6}), {"State": {"a": np.inf}, "County": {"a": 1e-6}}, spine=spine)
    counts = np.random.default_rng(0).integers(10, 1000, (2, 6)).astype(float)
    y = np.concatenate([np.full(6, np.nan), counts.ravel(), counts.sum(axis=0)])
    frame = measurements_frame(problem, y)
    again, values = read_long_table(frame, problem.schema)
    assert parents(again.spine) == parents(spine)
    np.testing.assert_array_equal(values, y)
    refuses("'44005' counts as many as all others together", read_long_table, frame.drop("parent"), problem.schema)
    without_rows = Problem(problem.schema, {"County": {"a": 1e-6}}, spine=spine)
    assert "parent" not in measurements_frame(without_rows, y[6:]).columns


def test_geounits_that_would_be_lost_are_refused() -> None:
    """Of two counties one has no tracts: without its row the state would be read as the sum of the other's."""
    spine = Spine([-1, 0, 0, 1, 1], ["State", *["County"] * 2, *["Tract"] * 2], ["44", "441", "442", "4411", "4412"])
    tables = {"State": {"sex": 4.0}, "Tract": {"sex": 1.0}}
    refuses("State '44' holds others too", measurements_frame, Problem(SEX, tables, spine=spine), np.arange(6.0))
    problem = Problem(SEX, {**tables, "County": {"sex": np.inf}}, spine=spine, undetermined="nan")
    y = np.array([12.0, 9, 7, 4, 3, 3, *[np.nan] * 4])
    again, values = read_long_table(measurements_frame(problem, y), SEX)
    assert parents(again.spine) == parents(spine)
    np.testing.assert_array_equal(np.sort(values), np.sort(y))


@given(rows=st.permutations(range(9)))
def test_no_order_of_rows_changes_the_order_of_anything(rows: list[int]) -> None:
    """So that the operator of one reading fits the values of another."""
    header, *lines = ROWS.replace("sex,f,County", "total,*,Region,44,101,4\nsex,f,County", 1).splitlines()
    problem, y = read_long_table(frame_of(header, lines))
    again, values = read_long_table(frame_of(header, [lines[i] for i in rows]))
    assert again.observed.names == problem.observed.names
    assert again.spine == problem.spine
    np.testing.assert_array_equal(values, y)


def frame_of(header: str, lines: list[str]) -> pl.DataFrame:
    return pl.read_csv("\n".join([header, *lines]).encode(), infer_schema=False).with_columns(
        pl.col("value", "variance").cast(pl.Float64)
    )


def write(folder: Path, text: str) -> str:
    (folder / "noisy.csv").write_text(text)
    return str(folder / "noisy.csv")


def test_several_geounits_at_the_top_get_a_root(tmp_path: Path) -> None:
    below = ROWS.replace("total,*,State,44,100,0\n", "")
    problem, _ = read_long_table(write(tmp_path, below))
    assert problem.spine.levels == ("Root", "County", "Tract")
    with_parents = pl.read_csv(below.encode(), infer_schema=False).with_columns(
        parent=pl.when(pl.col("geolevel") == "Tract").then(pl.col("geocode").str.head(5))
    )
    again, _ = read_long_table(with_parents)
    assert parents(again.spine) == parents(problem.spine)


BAD = [
    ("44003,21,4", "44003,,4", r"table 'sex' of County '44003', cell \(sex=m\): value is missing"),
    ("sex,m,County,44003,21,4\n", "", r"table 'sex' of County '44003', cell \(sex=m\) is missing: .* 3 of 4 cells"),
    ("geolevel,geocode", "geocode,note", "column 'geolevel' is missing beside 'geocode'"),
    ("total,*,Tract,4400102", "total,*,Tract,4400101", r"'total' of Tract '4400101' is given twice, in rows 7 and 8"),
    ("total,*,Tract,4400102", "total,*,,4400102", "column 'geolevel' is empty in row 8: every row needs a level"),
    ("geocode", "geography", "column 'geocode' is missing beside 'geolevel'"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_geounits_that_make_no_tree_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in ROWS
    refuses(message, read_long_table, write(tmp_path, ROWS.replace(old, new)), SEX)


def test_children_that_count_far_less_than_their_parent_are_refused() -> None:
    with pytest.raises(ValueError, match="A 'a' counts 300 in table 'total', its 2 children 3: no noise explains that"):
        read_long_table(PARENTS.with_columns(value=pl.Series([300.0, 1, 2])), SEX)
    cells = PARENTS.with_columns(sex=pl.lit("f"), table=pl.lit("sex"))
    table = pl.concat([cells, cells.with_columns(sex=pl.lit("m"))])
    limit = MOST_DEVIATIONS * 6**0.5  # of six cells of variance 1
    read_long_table(table.with_columns(value=pl.col("value") + pl.Series([limit, *[0.0] * 5])), SEX)
    with pytest.raises(ValueError, match="in table 'detailed', its 2 children 6: no noise explains that"):
        read_long_table(table.with_columns(value=pl.col("value") + pl.Series([limit + 1, *[0.0] * 5])), SEX)


PARENTS = pl.DataFrame(
    {
        "table": "total",
        "geolevel": ["A", "B", "B"],
        "geocode": ["a", "b", "c"],
        "parent": [None, "a", "a"],
        "value": [3.0, 1, 2],
        "variance": 1.0,
        "sex": "*",
    }
)


@refused(
    ({"parent": [None, "z", "a"]}, "B 'b' has the parent 'z', which has no rows: give it some"),
    ({"parent": ["c", "a", "a"]}, "exactly one root"),
    ({"parent": [None, "a", "b"]}, "B 'c' has the parent 'b', which has no rows"),
    ({"geocode": ["a", "b", "b"]}, r"table 'total' of B 'b' is given twice, in rows 2 and 3"),
    ({"geocode": ["a", "b", "b"], "parent": [None, "a", "c"]}, "row 3: B 'b' has two parents, 'a' and 'c'"),
    ({"geolevel": ["A", "B", "C"], "geocode": ["a", "a", "c"], "parent": ["", "", "a"]}, "'a', a code at A and B"),
    ({"geocode": [1, 2, 3]}, "column 'geocode' must hold text, for leading zeros: it holds numbers"),
    ({"geolevel": [1.5, 2.5, 2.5]}, "column 'geolevel' holds decimal numbers"),
)
def test_parents_that_make_no_tree_are_refused(change: dict[str, list]) -> None:
    read_long_table(PARENTS.with_columns(pl.Series(name, column) for name, column in change.items()), SEX)


def test_a_branch_may_skip_a_level(tmp_path: Path) -> None:
    text = ROWS.replace("sex,f,County,44003,22,4\nsex,m,County,44003,21,4\n", "")
    problem, _ = read_long_table(write(tmp_path, text), SEX)
    assert parents(problem.spine)["Tract", "4400301"] == "44"


def test_an_only_child_may_have_the_code_of_its_parent(tmp_path: Path) -> None:
    text = ROWS.replace("sex,f,County", "total,*,Region,44,101,4\nsex,f,County", 1)
    problem, y = read_long_table(write(tmp_path, text), SEX)
    spine = problem.spine
    assert spine.levels == ("Region", "State", "County", "Tract")
    shuffled = measurements_frame(problem, y).sample(fraction=1.0, shuffle=True, seed=1)
    again, _ = read_long_table(shuffled, SEX)
    assert again.spine.levels == spine.levels
    assert parents(again.spine) == parents(spine)


@examples(60)
@given(lost=st.sets(st.sampled_from(["01001", "01003", "01005", "010010201"]), min_size=1), reverse=st.booleans())
def test_lost_leading_zeros_are_refused(lost: set[str], reverse: bool) -> None:
    """Such a county would lie beside its state, and nothing would be added up."""
    codes = {"01": "State", "01001": "County", "01003": "County", "01005": "County", "010010201": "Tract"}
    rows = [(level, code.removeprefix("0") if code in lost else code) for code, level in codes.items()]
    frame = pl.DataFrame(rows[::-1] if reverse else rows, ["geolevel", "geocode"], orient="row")
    frame = frame.with_columns(table=pl.lit("total"), value=1.0, variance=1.0, sex=pl.lit("*"))
    refuses(r"would lie in '0\d*' if it were '0\d+': where a leading zero is lost", read_long_table, frame, SEX)


@every("places", [5, 12, 120])
def test_codes_that_begin_one_another_are_written_with_parents(places: int) -> None:
    """As the codes of geounits that have none, which are their numbers: 1, 10, 11."""
    spine = Spine([-1, *np.arange(places) // 5])
    problem = Problem(SEX, {level: {"total": 1.0, "sex": 1.0} for level in spine.levels}, spine=spine)
    y = problem.marginal_matrix() @ np.ones(problem.domain.size)
    again, values = read_long_table(measurements_frame(problem, y), SEX)
    assert parents(again.spine) == parents(problem.spine)
    assert by_code(again, values) == by_code(problem, y)


def told(codes: dict[str, str], levels: dict[int, str]) -> pl.DataFrame:
    """A row for each of some geounits of GEOIDs, called otherwise in a file."""
    return pl.DataFrame(
        [(levels[len(geoid)], code) for geoid, code in codes.items()], ["geolevel", "geocode"], orient="row"
    ).with_columns(table=pl.lit("total"), value=1.0, variance=np.inf, sex=pl.lit("*"))


KINDS = {0: "0100000US", 2: "0400000US", 5: "0500000US", 11: "1400000US"}
NAMED = {0: "Nation", 2: "State", 5: "County", 11: "Tract"}


@st.composite
def geoids(draw: Any) -> list[str]:
    """GEOIDs of a nation, or a state alone, from the top down."""
    numbers = st.sets(st.integers(1, 60), min_size=1, max_size=3)
    found, states = ([""], draw(numbers)) if draw(st.booleans()) else ([], {draw(st.integers(1, 60))})
    for state in states:
        found.append(f"{state:02}")
        for county in draw(numbers):
            found.append(f"{state:02}{county:03}")
            found += [f"{state:02}{county:03}{tract:06}" for tract in draw(numbers)]
    return found


def of_geoids(found: list[str]) -> dict[str, str | None]:
    """The parent of every GEOID by its width."""
    widths = sorted({len(own) for own in found})
    above = {own: [own[:width] for width in widths if width < len(own)] for own in found}
    return {own: parents[-1] if parents else None for own, parents in above.items()}


@examples(60)
@given(found=geoids(), shuffled=st.randoms())
def test_long_identifiers_of_the_census_bureau_nest_as_geoids_do(found: list[str], shuffled: Any) -> None:
    shuffled.shuffle(found)
    codes = {own: KINDS[len(own)] + own for own in found}
    problem, _ = read_long_table(told(codes, NAMED), SEX, undetermined="nan")
    expected = {(NAMED[len(own)], codes[own]): codes.get(above) for own, above in of_geoids(found).items()}
    assert parents(problem.spine) == expected


@examples(150, 15)
@given(found=geoids(), data=st.data())
def test_geounits_are_never_cut_apart_in_silence(found: list[str], data: st.DataObject) -> None:
    """Codes that a spreadsheet or a person changed: parents are the true ones, or the file is refused."""
    change = data.draw(
        st.sampled_from(
            [lambda own: f"{int(own or 0)}.0", lambda own: str(int(own or 0)), lambda own: f"Place {own}"[::-1],
             lambda own: own[-3:], lambda own: f"USA-{own}"]
        )
    )  # fmt: skip
    levels = data.draw(st.sets(st.sampled_from(sorted({len(own) for own in found})), min_size=1))
    codes = {own: change(own) if len(own) in levels else own for own in found}
    try:
        table = measured_table.measured(open_source(told(codes, NAMED)), SEX, undetermined="nan")
    except ValueError:
        return
    expected = {(NAMED[len(own)], codes[own]): codes.get(above) for own, above in of_geoids(found).items()}
    if " itself, beside its " not in table.problem.understood.places:
        assert parents(table.problem.spine) == expected


@pytest.mark.parametrize("told_by", ["codes", "parents"])
def test_unlike_geolevels_at_the_top_are_refused(told_by: str) -> None:
    frame = PARENTS.with_columns(geocode=pl.Series(["Rhode Island", "Kent", "Bristol"]))
    frame = frame.drop("parent") if told_by == "codes" else frame.with_columns(parent=pl.lit(""))
    refuses("A 'Rhode Island' and B 'Bristol' would lie side by side", read_long_table, frame, SEX)


def test_the_spine_is_told() -> None:
    table = measured_table.measured(open_source(pl.read_csv(ROWS.encode(), schema_overrides={"geocode": pl.String})))
    assert (
        table.problem.understood.places
        == "1 State > 2 County > 3 Tract, by codes that begin with those of their parents"
    )
