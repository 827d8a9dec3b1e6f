"""Tables of areas that cross, from files: the problem that one builds by hand, the estimate of dense algebra."""

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import Problem, Schema, estimate, nnls, read_tables
from blue_solvers.cli import main
from constraint_builders.files import measurements_frame
from noise_mechanisms.laws import RandomRounding
from tests.helpers.dense_algebra import least_squares
from tests.helpers.effort import examples
from tests.helpers.every import cases

LAW = RandomRounding(3)
SCHEMA = Schema({"kind": ["food", "other"], "size": ["large", "middle", "small"]})
LEVELS = {"Shop": "shop_2018_name", "Region": "region_2018_code", "Chain": "CHAIN", "City": "City"}
LEAVES = pl.DataFrame(
    {
        "shop_2018_name": ["s1", "s2", "s3", "s4", "s5"],
        "region_2018_code": ["01", "01", "02", "02", "02"],
        "CHAIN": ["x", "y", "x", "y", "y"],
        "City": ["A", "-", "B", "B", "-"],
    }
)
ROWS = pl.DataFrame(
    [
        ("Region", "01", 30),
        ("Region", "02", 42),
        ("chain", "x", 36),
        ("chain", "y", 33),
        ("shop", "s1", 12),
        ("total", "total", 72),
    ],
    ["level", "code", "value"],
    orient="row",
).with_columns(kind=pl.lit("total"))
FOOD = ROWS.with_columns(kind=pl.lit("food"), value=pl.col("value") // 6 * 3)
TWO = {"CHAIN": "C_1", "City": "C_2"}
TABLE = pl.concat([ROWS, FOOD, FOOD.with_columns(kind=pl.lit("other"))])
OTHER = TABLE[5:6].with_columns(value=pl.col("value") + 3)
NOWHERE = TABLE.drop("level", "code").with_columns(CHAIN=pl.lit("x"), City=pl.lit("C"))


class Invented(NamedTuple):
    """Leaves with their areas, rows by level and code, and which cells of leaves each row and each other one counts."""

    leaves: pl.DataFrame
    rows: pl.DataFrame
    counted: np.ndarray  # (rows, cells)
    absent: dict[tuple[str, ...], np.ndarray]  # by level, code and labels, (cells,)


@st.composite
def invented(draw: Any) -> Invented:
    """Areas that nest, cross or leave leaves out; every row has the figures of a law, and some are not there."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(2, 7))
    region, chain, city = rng.integers(0, 3, count), rng.integers(0, 2, count), rng.integers(-1, 2, count)
    if draw(st.booleans()):
        chain = 2 * region + chain  # which then nest
    names = {
        "shop_2018_name": [f"s{number}" for number in rng.permutation(count)],
        "region_2018_code": [f"0{number}" for number in region],
        "CHAIN": [f"c{number}" for number in chain],
        "City": ["-" if number < 0 else "AB"[number] for number in city],
    }
    leaves = pl.DataFrame(names)
    places = [("All", "total", np.ones(count, bool))]
    for level, column in LEVELS.items():
        own = np.array(names[column])
        places += [(level, code, own == code) for code in dict.fromkeys(names[column]) if code != "-"]
    cells = list(product(("*", *SCHEMA.labels_of("kind")), ("*", *SCHEMA.labels_of("size"))))
    counts = rng.poisson(9, (count, 2, 3))
    rows, counted, absent = [], [], {}
    for level, code, inside in places:
        for kind, size in cells:
            cell = [
                np.array([label == "*" or label == own for own in SCHEMA.labels_of(name)])
                for name, label in (("kind", kind), ("size", size))
            ]
            here = np.einsum("i,j,k->ijk", inside, *cell)
            if rng.random() < 0.9:
                figure = counts[here].sum()
                rows.append((level, code, kind, size, float(figure - figure % 3 + 3 * (rng.random() < figure % 3 / 3))))
                counted.append(here.ravel())
            else:
                absent["Whole" if level == "All" else level, "*" if level == "All" else code, kind, size] = here.ravel()
    order = rng.permutation(len(rows))
    frame = pl.DataFrame(rows, ["level", "code", "kind", "size", "value"], orient="row")
    return Invented(leaves, frame[order.tolist()], np.array(counted, dtype=float)[order], absent)


def figures(problem: Problem, vector: np.ndarray) -> dict[tuple[str, ...], float]:
    """The cells of a vector over the desired layout, (m,), by level, code and labels."""
    found = {}
    for level, table in problem.desired.names:
        kept = [] if table == "total" else ["kind", "size"] if table == "detailed" else table.split(" * ")
        labels = [problem.schema.labels_of(name) for name in kept]
        own = problem.desired.tables(vector)[level, table].reshape(-1)
        for (code, *cell), value in zip(product(problem.areas.names(level), *labels), own.tolist(), strict=True):
            said = dict(zip(kept, cell, strict=True))
            found[level, code, said.get("kind", "*"), said.get("size", "*")] = value
    return found


@examples(40, usual=4)
@given(invented(), st.booleans())
def test_estimates_from_files_are_those_of_dense_algebra(case: Invented, by_partitions: bool) -> None:
    """By level and code, and by a column for each partition, of which a shop's row may name all."""
    frame = case.rows
    if by_partitions:
        named = [pl.when(pl.col("level") == own).then("code").otherwise(pl.lit("*")).alias(own) for own in LEVELS]
        frame = frame.with_columns(named).drop("level", "code")
        columns = {column: level for level, column in LEVELS.items()}
    else:
        columns = {}
    problem, y = read_tables(frame, SCHEMA, areas=case.leaves, columns=columns, noise=LAW)
    est = estimate(problem, y)
    M = case.counted
    expected, variances = least_squares(M, np.full(len(M), LAW.variance), case.rows["value"].to_numpy(), M)
    values, errors, measured = (figures(problem, own) for own in (est.values, est.std_errors, problem.variances))
    for row, value, variance in zip(case.rows.iter_rows(), expected, variances, strict=True):
        key = ("Whole", "*", *row[2:4]) if row[0] == "All" else row[:4]
        np.testing.assert_allclose((values.pop(key), errors.pop(key)), (value, np.sqrt(variance)), atol=1e-7)
        assert measured.pop(key) == LAW.variance
    assert np.isinf(list(measured.values())).all()  # what has no row was not published
    D = np.array([case.absent[key] for key in values], dtype=float).reshape(len(values), M.shape[1])
    told = np.linalg.matrix_rank(M) == [np.linalg.matrix_rank(np.vstack([M, row])) for row in D]
    expected, variances = least_squares(M, np.full(len(M), LAW.variance), case.rows["value"].to_numpy(), D)
    np.testing.assert_allclose(list(values.values()), np.where(told, expected, np.nan), atol=1e-7)
    np.testing.assert_allclose(list(errors.values()), np.where(told, np.sqrt(variances), np.nan), atol=1e-7)


@examples(30, usual=3)
@given(invented())
def test_what_is_written_is_read_back(case: Invented) -> None:
    """With the areas themselves, and with the file of leaves."""
    problem, y = read_tables(case.rows, SCHEMA, areas=case.leaves, noise=LAW)
    written = measurements_frame(problem, y)
    for areas in (problem.areas, case.leaves):
        again, z = read_tables(written, SCHEMA, areas=areas)
        assert again.areas == problem.areas or areas is case.leaves
        assert again.observed.names == problem.observed.names
        np.testing.assert_array_equal(z, y)


def test_the_command_takes_what_the_library_does_long_and_wide(tmp_path: Path) -> None:
    """Of a wide table every column of numbers is a cell, but for those that are called notes."""
    TABLE.write_csv(tmp_path / "long.csv")
    wide = TABLE.pivot(on="kind", index=["level", "code"], values="value").with_columns(stated=pl.col("total"))
    wide.write_csv(tmp_path / "wide.csv")
    LEAVES.write_csv(tmp_path / "leaves.csv")
    problem, y = read_tables(TABLE, areas=LEAVES, noise=LAW)
    assert problem.areas.levels == ("Whole", "chain", "Region", "shop", "Leaf")
    est = estimate(problem, y)
    fitted = nnls(problem, y).desired
    assert np.isnan(fitted).any()
    wide_flags = ["--names-to", "kind", "--columns", "stated=note", "--nonnegative", "nnls"]
    for name, flags in (("long", []), ("wide", wide_flags)):
        out = tmp_path / f"{name}_estimates.csv"
        said = ["--areas", str(tmp_path / "leaves.csv"), "--rounded", "3", "--digits", "all", *flags]
        assert main(["estimate", str(tmp_path / f"{name}.csv"), *said, "--out", str(out)]) == 0
        found = pl.read_csv(out, schema_overrides={"geocode": pl.String})
        assert found["geolevel"].unique().sort().to_list() == ["Region", "Whole", "chain", "shop"]
        np.testing.assert_allclose(found["estimate"], est.values, equal_nan=True)
        np.testing.assert_allclose(found["std_error"], est.std_errors, equal_nan=True)
        if flags:
            np.testing.assert_allclose(found["nonnegative"], fitted, atol=1e-6, equal_nan=True)
        assert (
            found.filter(pl.col("geolevel") == "shop", pl.col("geocode") == "s1", pl.col("kind") == "food").height == 1
        )


def test_rows_of_several_partitions_count_where_these_meet() -> None:
    """An area that lies in another is itself; rows of all areas that stand twice with the same figure are one."""
    rows = [("s1", "x", 12), ("s3", "x", 24), ("*", "x", 36), ("total", "total", 69), ("total", "total", 69)]
    frame = pl.DataFrame(rows, ["shop_2018_name", "CHAIN", "value"], orient="row")
    more = frame.with_columns(region_2018_code=pl.lit("*"))
    crossed = pl.DataFrame({"shop_2018_name": "*", "CHAIN": ["x", "y"], "value": [24, 18], "region_2018_code": "02"})
    both = pl.concat([more, crossed]).with_columns(kind=pl.lit("*"))
    problem, y = read_tables(both, SCHEMA.__class__({"kind": ["food", "other"]}), areas=LEAVES, noise=LAW)
    assert problem.areas.levels == (
        "Whole", "CHAIN", "region_2018_code", "shop_2018_name", "CHAIN * region_2018_code", "Leaf"
    )  # fmt: skip
    meet = problem.areas.names("CHAIN * region_2018_code")
    table = problem.observed.tables(y)["CHAIN * region_2018_code", "total"]
    assert dict(zip(meet, table.tolist(), strict=True))["x * 02"] == 24
    assert "a row of all areas repeats others and counts once" in problem.understood.places
    again, z = read_tables(measurements_frame(problem, y), problem.schema, areas=LEAVES)
    assert again.areas.levels == problem.areas.levels
    np.testing.assert_array_equal(z, y)


def test_areas_of_several_files_are_estimated_together(tmp_path: Path) -> None:
    """Each level in a file of its own, as many publishers have them: the estimate of all in one."""
    LEAVES.write_csv(tmp_path / "leaves.csv")
    inputs = []
    for level in ("Region", "chain", "shop"):
        path = tmp_path / f"{level}.csv"
        TABLE.filter(pl.col("level") == level).write_csv(path)
        inputs.append(str(path))
    out = tmp_path / "all.csv"
    said = ["--areas", str(tmp_path / "leaves.csv"), "--rounded", "3", "--digits", "all"]
    assert main(["estimate", *inputs, *said, "--out", str(out)]) == 0
    problem, y = read_tables(TABLE.filter(pl.col("level") != "total"), areas=LEAVES, noise=LAW)
    est = estimate(problem, y)
    found = pl.read_csv(out)
    np.testing.assert_allclose(np.sort(found["estimate"].drop_nans()), np.sort(est.values[np.isfinite(est.values)]))


def test_columns_of_the_areas_that_are_named_are_layers() -> None:
    problem, _ = read_tables(TABLE, areas=LEAVES, noise=LAW, columns={"City": "Town"}, desired={"Town": ["total"]})
    assert problem.desired.names == (("Town", "total"),)
    assert problem.areas.names("Town") == ("A", "B")


def _with(frame: pl.DataFrame, **changes: Any) -> pl.DataFrame:
    """A frame in which the first row is changed."""
    first = frame[:1].with_columns(pl.lit(own).cast(frame.schema[name]).alias(name) for name, own in changes.items())
    return pl.concat([first, frame[1:]])


@cases(
(_with(TABLE, code="07"), LEAVES, "row 1: no leaf has the Region '07'"),
        (_with(TABLE, code="1"), LEAVES, "lost leading zeros, keep codes as text"),
        (_with(TABLE, code=""), LEAVES, "column 'code' is empty in row 1"),
        (_with(TABLE, level=""), LEAVES, "column 'level' is empty in row 1"),
        (_with(TABLE, level="Ward"), LEAVES, "levels 'Ward' and 'Region' are one column of the areas"),
        (TABLE.with_columns(pl.col("level").replace("Region", "Ward")), LEAVES, None),  # told by its codes
        (_with(TABLE, level="Ward", code="w"), LEAVES, "level 'Ward' is no column of the areas"),
        (TABLE, LEAVES.with_columns(shop_2018_name=pl.Series(["s1", "s2", "s1", "s4", "s5"])), "leaf 's1' of column"),
        (TABLE, _with(LEAVES, shop_2018_name=""), "column 'shop_2018_name' is empty in row 1"),
        (TABLE, _with(LEAVES, CHAIN=""), "leaf 's1', row 1, has no 'CHAIN'"),
        (TABLE, LEAVES.with_columns(afact=pl.Series([0.5, 1, 1, 1, 1])), "'afact' says what share of a leaf lies in"),
        (TABLE, LEAVES.with_columns(afact=1.0), None),
        (TABLE, _with(LEAVES, City=""), None),  # nothing counts there
        (TABLE, LEAVES[:0], "there are no rows"),
        (TABLE.drop("code"), LEAVES, "in which area does a row count?"),
        (TABLE.drop("level", "code"), LEAVES, "in which area does a row count?"),
        (TABLE.with_columns(CHAIN=pl.lit("x")), LEAVES, "column 'CHAIN' is one of the areas beside 'level'"),
        (TABLE.with_columns(parent=pl.lit("x")), LEAVES, "column 'parent' says in what areas lie"),
        (_with(TABLE, level="C"), LEAVES.rename(TWO), "level 'C' may be column 'C_1' or 'C_2'"),
        (pl.concat([TABLE, OTHER]), LEAVES, "is given twice, in rows 6 and 19"),
        (pl.concat([TABLE, TABLE[:1]]), LEAVES, "is given twice, in rows 1 and 19"),
        (NOWHERE, LEAVES, "row 1: no leaf lies in CHAIN 'x' and City 'C'"),
        (TABLE, LEAVES.with_columns(CHAIN=pl.Series([1.5] * 5)), "column 'CHAIN' holds neither text"),
        (TABLE, 7, "a table is a path or a data frame"),
)  # fmt: skip
def test_what_areas_do_not_tell_is_refused_by_name(table: pl.DataFrame, leaves: Any, said: str | None) -> None:
    if said is None:
        assert read_tables(table, areas=leaves, noise=LAW)
        return
    with pytest.raises((ValueError, TypeError)) as refused:
        read_tables(table, areas=leaves, noise=LAW)
    assert said in str(refused.value)


def test_columns_of_neither_are_refused() -> None:
    with pytest.raises(ValueError, match="columns names 'no', which is none, neither of the table nor of its areas"):
        read_tables(TABLE, areas=LEAVES, noise=LAW, columns={"no": "x"})
    with pytest.raises(ValueError, match="calls two columns of the areas 'City'"):
        read_tables(TABLE, areas=LEAVES, noise=LAW, columns={"CHAIN": "City"})


def test_levels_and_codes_without_areas_are_asked_about() -> None:
    """Codes are numbers too, and no cells."""
    wide = TABLE.pivot(on="kind", index=["level", "code"], values="value")
    with pytest.raises(ValueError, match="columns 'level' and 'code' say where a row counts: give areas="):
        read_tables(wide, noise=LAW, names_to="kind")


def test_without_a_law_every_area_needs_a_row() -> None:
    frame = TABLE.with_columns(variance=pl.lit(2.0))
    with pytest.raises(ValueError, match="table 'total' of shop 's2' is missing"):
        read_tables(frame, areas=LEAVES)
    problem, _ = read_tables(frame.filter(pl.col("level") != "shop"), areas=LEAVES)
    assert np.isfinite(problem.variances).all()


MARKED = pl.DataFrame({"level": ["Region", "Region"], "code": ["01", "02"], "food": ["3", "..C"], "other": [3, 6]})
AMONG = {
    "a mark": (MARKED, LEAVES, {"names_to": "kind"}, "column 'food' holds numbers, and '..C': is it a cell"),
    "decimal codes": (TABLE, LEAVES.with_columns(Region=pl.Series([1.0, 1, 2, 2, None])), {}, "'Region' holds neither"),
    "decimal columns": (NOWHERE, LEAVES.with_columns(CHAIN=pl.lit(1.5)), {}, "'CHAIN' holds neither text"),
    "a leaf of all": (TABLE, LEAVES.with_columns(shop_2018_name=pl.Series(["s1", "s2", "s3", "s4", "Total"])), {},
                      "leaf 'Total', row 5, counts all leaves"),
}  # fmt: skip


@pytest.mark.parametrize("case", AMONG)
def test_what_would_be_read_as_something_else_is_refused(case: str) -> None:
    table, leaves, options, message = AMONG[case]
    with pytest.raises(ValueError, match=message):
        read_tables(table, areas=leaves, noise=LAW, **options)


def test_cells_that_hold_a_mark_that_is_named_are_cells() -> None:
    problem, y = read_tables(MARKED, areas=LEAVES, noise=LAW, names_to="kind", suppressed="..C")
    np.testing.assert_array_equal(problem.observed.tables(y)["Region", "kind"], [[3, 3], [np.nan, 6]])
