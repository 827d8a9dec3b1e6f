"""Noisy measurement files: what is written is read back, whatever the files' form, and what is wrong is named."""

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from constraint_builders import Problem, Schema, Spine
from constraint_builders.budget import Budget
from constraint_builders.files import Release, production_settings, write_noisy_measurements
from noise_mechanisms import add_noise
from tests.helpers.refused import refuses
from tests.helpers.state_files import SETTINGS, STATE, noisy, part, read, small_problem


def rewrite(path: Path, *changes: pl.Expr) -> None:
    pl.read_parquet(path, hive_partitioning=False).with_columns(*changes).write_parquet(path)


def add_constraints(folder: Path, rows: list[dict[str, Any]], level: str = "Block") -> None:
    path = part(folder, level, "Constraint")
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows).write_parquet(path)


def constraint(name: str, sign: str, value: list[int] | None, **said: str) -> dict[str, Any]:
    return {"geocode": "0440031", "query_name": f"{name}_con", "sign": sign, "value": value, "sex": "*", "age": "*"} | (
        said
    )


def assert_same(release: Release, problem: Problem, y: np.ndarray) -> None:
    found = release.problem
    assert set(found.observed.names) == set(problem.observed.names)
    assert found.spine.geocodes == problem.spine.geocodes
    assert np.array_equal(found.spine.parent, problem.spine.parent)
    for ours, theirs in ((found.variances, problem.variances), (release.y, y)):
        tables = found.observed.tables(ours)
        for name, cells in problem.observed.tables(theirs).items():
            assert np.array_equal(tables[name], cells, equal_nan=True)
    assert found.noise.law == problem.noise.law


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    variances = np.array([8.0, 9, 10, 11, 12, np.inf])
    problem = small_problem(Block={"total": variances, "detailed": np.array([1.0, 2, 3, 4, 5, 6])})
    y = noisy(problem)
    zeros = {("Block", "sex"): np.arange(12).reshape(6, 2) % 5 == 0, ("County", "detailed"): np.eye(3, 6) > 0}
    zeros["County", "detailed"] = zeros["County", "detailed"].reshape(3, 2, 3)
    write_noisy_measurements(tmp_path / "out", problem, y, zeros=zeros)
    release = read(tmp_path / "out")
    assert_same(release, problem, y)
    assert release.zeros.keys() == zeros.keys()
    for name, cells in zeros.items():
        assert np.array_equal(release.zeros[name], cells)
    assert release.problem.spine.levels == ("US", "State", "County", "Block")


def test_a_level_at_which_nothing_was_measured_is_written_without_values(tmp_path: Path) -> None:
    problem = small_problem(US={"sex * adult": np.inf})
    write_noisy_measurements(tmp_path / "out", problem, y := noisy(problem))
    known = problem.observed.slice(("US", "sex * adult")).stop
    assert_same(read(tmp_path / "out"), small_problem(US={}), y[known:])


def test_exact_counts_are_constraints(tmp_path: Path) -> None:
    problem = small_problem(STATE, State={"total": 0.0}, County={"total": np.array([0.0, 3.0]), "detailed": 2.0})
    M = problem.marginal_matrix()
    y = add_noise(problem, M @ np.repeat([6.0, 0.0], [1, M.shape[1] - 1]), 5)
    write_noisy_measurements(tmp_path / "out", problem, y)
    state = pl.read_parquet(part(tmp_path / "out", "State", "Constraint"), hive_partitioning=False)
    assert state.select("query_name", "sign", "value").rows() == [("total_con", "=", [6])]
    assert not part(tmp_path / "out", "State").exists()
    release = read(tmp_path / "out")
    found, given = (p.observed.tables(p.variances) for p in (release.problem, problem))
    values, drawn = release.problem.observed.tables(release.y), problem.observed.tables(y)
    for name in problem.observed.names:
        assert np.array_equal(found[name], given[name])
        assert np.array_equal(values[name], drawn[name])


def test_files_may_drift(folder: Path) -> None:
    whole = read(folder)
    path = part(folder)
    rows = pl.read_parquet(path, hive_partitioning=False)
    first, second = rows[::2], rows[1::2].select(reversed(rows.columns))
    other = path.parents[1] / "State=044" / "County=003"
    other.mkdir()
    first.with_columns(pl.col("value").cast(pl.List(pl.Int16)), pl.lit("x").alias("State")).write_parquet(path)
    second.with_columns(
        pl.col("value").cast(pl.List(pl.Int64)), pl.col("geocode").cast(pl.Categorical), pl.lit(0.5).alias("plb")
    ).drop("query_shape", "sex", "age").write_parquet(other / "part-00000-abc.snappy.parquet")
    (other / "_SUCCESS").write_text("")
    assert_same(read(folder), whole.problem, whole.y)


@pytest.mark.parametrize(
    "change",
    [
        pl.when(pl.col("geocode") != "0440031").then("value"),
        pl.when(pl.col("geocode") != "0440031").then("variance"),
        pl.when(pl.col("geocode") == "0440031").then(float("nan")).otherwise("variance").alias("variance"),
        pl.when(pl.col("geocode") == "0440031").then(float("inf")).otherwise("variance").alias("variance"),
    ],
)
def test_empty_values_and_variances_are_not_measured(change: pl.Expr, folder: Path) -> None:
    whole = read(folder, desired={"State": ["total"]})
    rewrite(part(folder), change)
    release = read(folder, desired={"State": ["total"]})
    for name in ("total", "detailed"):
        variances = release.problem.observed.tables(release.problem.variances)["Block", name]
        values = release.problem.observed.tables(release.y)["Block", name]
        assert np.isinf(variances[2]).all()
        assert np.isnan(values[2]).all()
        kept = [0, 1, 3, 4]
        assert np.array_equal(values[kept], whole.problem.observed.tables(whole.y)["Block", name][kept])


def test_constraints_are_sorted_into_zeros_exact_counts_and_the_rest(folder: Path) -> None:
    add_constraints(
        folder,
        [
            constraint("sex_ub", "<=", [0, 99999], sex="detailed"),
            constraint("loose_ub", "<=", [1, 99999], sex="detailed"),
            constraint("sex_lb", ">=", [0, 0], sex="detailed"),
            constraint("grown", "=", [7, 0], age="adult"),
            constraint("both", "=", [0, 0], age="old", sex="sex"),
            constraint("old", "=", [4], age="old"),
            constraint("total", "=", [7]),
            constraint("whole", "=", [7]),
            constraint("published", "=", [0, 0], sex="detailed"),
            constraint("strange", "=", [0], age="eldest"),
            constraint("unsigned", "~", [0]),
            constraint("silent", "=", None),
        ],
    )
    release = read(folder)
    values = release.problem.observed.tables(release.y)
    variances = release.problem.observed.tables(release.problem.variances)
    assert variances["Block", "total"].tolist() == [40, 40, 0, 40, 40]
    assert values["Block", "total"][2] == 7
    assert values["Block", "adult"][2].tolist() == [7, 0]
    assert variances["Block", "adult"][:, 0].tolist() == [np.inf, np.inf, 0, np.inf, np.inf]
    marked = {name: np.argwhere(cells).tolist() for name, cells in release.zeros.items()}
    assert marked == {
        ("Block", "sex"): [[2, 0]],
        ("Block", "adult"): [[2, 1]],
        ("Block", "detailed"): [[2, 0, 2], [2, 1, 2]],
    }
    reasons = {unused.name: unused.reason for unused in release.unused}
    assert all((unused.geolevel, unused.rows) == ("Block", 1) for unused in release.unused)
    assert {name: reasons[name].partition(",")[0] for name in reasons} == {
        "loose_ub_con": "a linear estimate cannot use an upper bound above 0",
        "sex_lb_con": "a linear estimate cannot use a lower bound",
        "old_con": "it is an exact count of a set of levels that no table has",
        "total_dpq": "total_con says it exactly",
        "whole_con": "table 'total' is already given there",
        "published_con": "it holds of published estimates",
        "strange_con": "column 'age' says 'eldest'",
        "unsigned_con": "its sign '~' is not one of =",
        "silent_con": "it gives no value",
    }
    counted = {(own.geolevel, own.kind): (own.read, own.used, own.unused) for own in release.read.rows}
    assert counted["Block", "Constraint"] == (12, 4, 8)  # a bound that gives a zero is used
    assert counted["Block", "DPQuery"] == (10, 9, 1)


def test_exact_counts_that_contradict_are_refused(folder: Path) -> None:
    add_constraints(folder, [constraint("total", "=", [11]), constraint("again", "=", [12])])
    refuses("again_con of Block '0440031': another constraint says another 'total'", read, folder)


def test_bounds_never_replace_a_measurement_of_the_same_name(folder: Path) -> None:
    whole = read(folder)
    add_constraints(folder, [constraint("detailed", "<=", [0, 9, 9, 9, 9, 9], sex="detailed", age="detailed")])
    assert_same(read(folder), whole.problem, whole.y)


def test_constraints_without_attribute_columns_are_known_by_name(folder: Path) -> None:
    rows = [constraint("sex", "<=", [0, 9]), constraint("sex_ub", "<=", [0, 9])]
    add_constraints(folder, [{key: row[key] for key in row if key not in ("sex", "age")} for row in rows])
    release = read(folder)
    assert list(release.zeros) == [("Block", "sex")]
    assert [unused.name for unused in release.unused] == ["sex_ub_con"]
    assert "no column says what it counts" in release.unused[0].reason


def test_a_part_of_the_country_leaves_out_what_counts_others_too(tmp_path: Path) -> None:
    problem = small_problem()
    y = noisy(problem)
    write_noisy_measurements(tmp_path / "us", problem, y)
    state = read(tmp_path / "us", within=["044"])
    assert state.problem.spine.levels == ("State", "County", "Block")
    tables, whole = state.problem.observed.tables(state.y), problem.observed.tables(y)
    assert np.array_equal(tables["Block", "detailed"], whole["Block", "detailed"][:5])
    branches = read(tmp_path / "us", within=["044", "144"])
    assert branches.problem.spine.levels == ("US", "State", "County", "Block")
    assert ("US", "detailed") not in branches.problem.observed.names
    refuses("nothing was measured within 045", read, tmp_path / "us", within=["045"])
    refuses("nothing was measured within 145: no geocode begins so", read, tmp_path / "us", within=["044", "145"])
    for prefixes in ([""], ["044", ""]):
        refuses("within '' names no geounits: give the first characters", read, tmp_path / "us", within=prefixes)


@pytest.mark.parametrize("level", ["County", "Block"])
@pytest.mark.parametrize("how", ["no folder", "an empty folder", "a plain file", "files without rows"])
def test_a_folder_without_the_files_of_a_measured_geolevel_is_refused(level: str, how: str, folder: Path) -> None:
    if how == "files without rows":
        pl.read_parquet(part(folder, level), hive_partitioning=False).clear().write_parquet(part(folder, level))
    else:
        shutil.rmtree(folder / f"{level}.parquet")
        if how == "an empty folder":
            (folder / f"{level}.parquet" / "DPQuery").mkdir(parents=True)
        elif how == "a plain file":
            (folder / f"{level}.parquet").write_bytes(b"")
    refuses(f"the settings measure '.*' at '{level}', and there is nothing in {level}.par", read, folder)


def test_geolevels_that_the_settings_do_not_measure_may_be_missing(folder: Path) -> None:
    losses = {level: row for level, row in SETTINGS.budget.losses.items() if level != "Block"}
    shutil.rmtree(folder / "Block.parquet")
    release = read(folder, dataclasses.replace(SETTINGS, budget=Budget(losses)))
    assert release.problem.spine.levels == ("State", "County")


def test_a_query_is_known_by_its_attributes_if_its_name_is_not(folder: Path) -> None:
    whole = read(folder)
    renamed = pl.col("query_name").replace({"detailed_dpq": "everything_dpq", "total_dpq": "nothing_dpq"})
    rewrite(part(folder), renamed)
    assert_same(read(folder), whole.problem, whole.y)
    pl.read_parquet(part(folder), hive_partitioning=False).drop("age").write_parquet(part(folder))
    release = read(folder)
    assert [(unused.name, unused.rows, unused.reason) for unused in release.unused] == [
        ("nothing_dpq", 5, "it is not a table of the schema"),
        ("everything_dpq", 5, "it is not a table of the schema"),
    ]
    assert {level for level, _ in release.problem.observed.names} == {"State", "County"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (pl.col("variance") * -1, r"row 1 \(total_dpq of '04400101'\): variance -40\.0 is none of noise"),
        (
            pl.when(pl.col("query_name") == "detailed_dpq").then([1, 2]).otherwise("value").alias("value"),
            r"row 6 \(detailed_dpq of '04400101'\): 2 values, but table 'detailed' has 6 cells",
        ),
        (
            pl.when(pl.col("geocode") == "0440032").then([None]).otherwise("value").alias("value"),
            r"row 4 \(total_dpq of '0440032'\): a value is empty, NaN or infinite",
        ),
        (
            pl.when(pl.col("geocode") == "0440032").then([]).otherwise("value").alias("value"),
            r"row 4 \(total_dpq of '0440032'\): the list of values is empty",
        ),
        (pl.when(pl.col("query_name") != "total_dpq").then("geocode"), "column 'geocode' is empty in row 1"),
        (pl.col("geocode").cast(pl.Int64), "column 'geocode' must hold text"),
        (pl.col("geocode").cast(pl.Binary), "column 'geocode' must hold text, for leading zeros: it holds bytes"),
        (pl.lit(True).alias("query_name"), "column 'query_name' must hold text: it holds true and false"),
        (pl.lit(1).alias("age"), "column 'age' must hold text: it holds Int"),
        (pl.col("value").list.first(), "column 'value' must hold lists of numbers"),
        *(
            (pl.col("value").cast(pl.List(dtype)), "column 'value' must hold lists of numbers: it holds lists")
            for dtype in (pl.Date, pl.Datetime("us"), pl.Time, pl.Duration("us"), pl.Boolean, pl.String)
        ),
        *(
            (pl.col("variance").cast(pl.Int64).cast(dtype), f"column 'variance' must hold numbers: it holds {what}")
            for dtype, what in [
                (pl.Date, "dates"),
                (pl.Datetime("us"), "dates and times"),
                (pl.Time, "times of day"),
                (pl.Duration("us"), "durations"),
                (pl.Boolean, "true and false"),
                (pl.String, "String"),
            ]
        ),
        (pl.struct("variance").alias("variance"), "column 'variance' must hold numbers: it holds records"),
        (pl.col("query_name").replace("total_dpq", "sex_dpq"), r"query_shape \[1, 1\], but table 'sex' has \[2, 1\]"),
        (pl.lit([2, 2]).alias("query_shape"), r"query_shape \[2, 2\], but table 'total' has \[1, 1\]"),
        (pl.col("geocode").replace("0440032", "0440033"), "table 'total' of Block '0440033' is given twice"),
    ],
)
def test_wrong_files_are_refused_by_file_row_and_column(change: pl.Expr, message: str, folder: Path) -> None:
    rewrite(part(folder), change)
    with pytest.raises(ValueError, match=message) as refusal:
        read(folder)
    assert str(refusal.value).startswith(str(part(folder)))


def test_missing_columns_and_damaged_files_are_named(folder: Path) -> None:
    rows = pl.read_parquet(part(folder), hive_partitioning=False)
    rows.drop("variance").write_parquet(part(folder))
    refuses(r"part-0\.parquet: column 'variance' is missing: there are geocode", read, folder)
    part(folder).write_bytes(b"PAR1 but not really")
    refuses(r"part-0\.parquet: not readable as a table", read, folder)


def test_missing_partitions_folders_and_geolevels_are_named(folder: Path, tmp_path: Path) -> None:
    rows = pl.read_parquet(part(folder), hive_partitioning=False)
    rows.filter(pl.col("geocode").str.starts_with("044001")).write_parquet(part(folder))
    refuses("County '044003' has no geounits below it", read, folder)
    (folder / "Tract.parquet").mkdir()
    refuses(r"geolevel 'Tract' is not in the settings, which have US, State", read, folder)
    refuses(r"there are no folders <Geolevel>\.parquet/DPQuery", read, tmp_path)
    refuses("nowhere", read, tmp_path / "nowhere", error=FileNotFoundError)


def test_a_country_without_some_of_its_states_is_refused(tmp_path: Path) -> None:
    problem = small_problem(US={"detailed": 2.0}, State={"detailed": np.array([2.0, 3.0])})
    write_noisy_measurements(tmp_path / "us", problem, noisy(problem))
    assert read(tmp_path / "us").problem.observed.size == problem.observed.size
    for level in ("State", "County", "Block"):
        for kind in (tmp_path / "us" / f"{level}.parquet").iterdir():
            shutil.rmtree(kind / "State=144")
    refuses(r"US '' counts 1,\d+ in table 'detailed', its 1 children \d+: no noise", read, tmp_path / "us")
    assert read(tmp_path / "us", within=["044"]).problem.spine is not None


def test_attributes_that_disagree_make_no_table(folder: Path) -> None:
    first = pl.int_range(pl.len()) == 0
    renamed = pl.col("query_name").replace({"total_dpq": "nothing_dpq"})
    rewrite(part(folder), renamed, pl.when(first).then(pl.lit("sex")).otherwise("sex").alias("sex"))
    (unused,) = read(folder).unused
    assert (unused.name, unused.rows, unused.reason) == ("nothing_dpq", 5, "it is not a table of the schema")


@pytest.mark.parametrize("dtype", [pl.Decimal(38, 3), pl.Float64, pl.UInt8, pl.Int16])
def test_numbers_of_every_type_are_read_as_they_are(dtype: Any, folder: Path) -> None:
    rewrite(part(folder), pl.col("value").list.eval(pl.element().abs()))
    whole = read(folder)
    rewrite(part(folder), pl.col("value").cast(pl.List(dtype)))
    assert_same(read(folder), whole.problem, whole.y)


def test_whole_numbers_of_128_bits_are_refused(folder: Path) -> None:
    rewrite(part(folder), pl.col("value").cast(pl.List(pl.Int128)))
    refuses(r"part-0\.parquet: not readable as a table: Integers with more than 64 bits", read, folder)


def test_names_of_columns_are_no_names_of_variables(folder: Path) -> None:
    settings = dataclasses.replace(SETTINGS, schema=Schema({"sex": 2, "sign": 3}))
    refuses("variable 'sign' has the name of a column of measurement files: rename it", read, folder, settings)
    budget = dataclasses.replace(SETTINGS.budget, losses={})  # its tables are of other variables
    named_row = dataclasses.replace(SETTINGS, schema=Schema({"row": 2, "position": 3}), budget=budget)
    rewrite(part(folder), pl.lit("*").alias("row"))
    assert ("Block", "detailed") in read(folder, named_row).problem.observed.names


def test_another_schema_is_refused(folder: Path) -> None:
    settings = production_settings("pl94_us_units")
    losses = {level: settings.budget.losses[level] for level in ("State", "County", "Block")}
    settings = dataclasses.replace(settings, budget=Budget(losses))
    refuses(r"query_shape \[2, 3\], but table 'detailed' has \[2\]", read, folder, settings)
    for level in ("County", "Block"):
        rewrite(part(folder, level), pl.lit(None).alias("query_shape"))
    refuses(r"6 values, but table 'detailed' has 2 cells: is the schema the file's\?", read, folder, settings)


def test_the_writer_refuses_what_the_layout_cannot_hold(tmp_path: Path) -> None:
    problem = small_problem(STATE)
    y = noisy(problem)
    y[3] += 0.5
    with pytest.raises(ValueError, match=r"measurement files hold whole numbers; draw discrete noise"):
        write_noisy_measurements(tmp_path / "out", problem, y)
    cells = np.arange(1.0, 31).reshape(5, 2, 3)
    uneven = small_problem(STATE, Block={"detailed": cells})
    with pytest.raises(ValueError, match="one variance for each table of a geounit"):
        write_noisy_measurements(tmp_path / "out", uneven, noisy(uneven))
    plain = Problem(SETTINGS.schema, {"total": 1.0})
    refuses("this problem has no spine", write_noisy_measurements, tmp_path / "out", plain, [1.0])
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError, match="it is there already"):
        write_noisy_measurements(tmp_path / "out", problem, noisy(problem))


@pytest.mark.parametrize(
    ("level", "code", "message"),
    [
        ("../../Evil", "44", "geolevel '../../Evil' cannot name a file"),
        ("State", "/../../evil/x1", "geocode '/../../evil/x1' cannot name a file"),
        ("State", "4=4", "geocode '4=4' cannot name a file: it has the character '='"),
    ],
)
def test_names_from_data_never_lead_out_of_the_folder(level: str, code: str, message: str, tmp_path: Path) -> None:
    spine = Spine.from_geocodes({level: [code], "Block": [f"{code}1", f"{code}2"]})
    problem = Problem(SETTINGS.schema, {level: {"total": 1.0}, "Block": {"detailed": 1.0}}, spine=spine)
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    refuses(re.escape(message), write_noisy_measurements, place / "out", problem, np.zeros(problem.observed.size))
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
    assert list(place.iterdir()) == []


def test_a_failing_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem(STATE)

    def fail_at_block(level: str, number: int, levels: int) -> None:
        if level == "Block":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_noisy_measurements(tmp_path / "out", problem, noisy(problem), progress=fail_at_block)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told_by_level(folder: Path) -> None:
    told: list[tuple[str, int, int]] = []
    read(folder, progress=lambda *step: told.append(step))
    assert told == [("State", 0, 3), ("County", 1, 3), ("Block", 2, 3)]
