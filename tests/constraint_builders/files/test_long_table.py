"""Long tables: round trips through frames and files, and what they are refused for."""

import gzip
import importlib
import re
import sys
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blue_solvers import estimate
from constraint_builders import Problem, Schema
from constraint_builders.files import (
    estimates_frame,
    infer_schema,
    measurements_frame,
    read_long_table,
    rounded,
    write_frame,
)
from constraint_builders.files.new_files import replacing
from noise_mechanisms.laws import Rounding
from tests.helpers.every import cases, every
from tests.helpers.refused import refused, refuses

SCHEMA = Schema({"sex": ["female", "male"], "age": 3}, {"age": {"adult": ["minor", "adult", "adult"]}})
PROBLEM = Problem(SCHEMA, {"total": 0.0, "adult * sex": [[1.0, 2.0], [3.0, np.inf]], "age": 4.0, "detailed": 2.0})
SEEN = partial(unicodedata.normalize, "NFC")
Y = np.array([10.0, 1.5, 2.5, 3.25, np.nan, 3, 3, 4.5, *range(6)])


def same(first: tuple[Problem, Any], second: tuple[Problem, Any]) -> bool:
    """Whether all tables are, by name: those that are read come in an order of their own."""
    said = [(p.schema, set(p.observed.names), set(p.desired.names), p.noise.law) for p, _ in (first, second)]
    found, expected = (
        {name: (own[name], p.observed.tables(p.variances)[name]) for name in own}
        for p, own in ((p, p.observed.tables(y)) for p, y in (first, second))
    )
    return said[0] == said[1] and all(np.array_equal(found[key], expected[key], equal_nan=True) for key in expected)


@st.composite
def measurements(draw: Any) -> tuple[Problem, Any]:
    label = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=4).filter(lambda t: t != "*")
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    schema = Schema(
        {f"v{i}": draw(st.lists(label, min_size=size, max_size=size, unique_by=SEEN)) for i, size in enumerate(sizes)}
    )
    kept = st.lists(st.sampled_from(schema.names), unique=True).map(lambda names: " * ".join(names) or "total")
    tables = draw(st.lists(kept, min_size=1, max_size=5, unique_by=lambda name: frozenset(name.split(" * "))))
    variance = st.sampled_from([0.5, 3.0, 1e-4, 1e6])
    problem = Problem(schema, {name: draw(variance) for name in tables})
    values = st.floats(-1e9, 1e9)
    return problem, np.array(draw(st.lists(values, min_size=problem.observed.size, max_size=problem.observed.size)))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@given(measured=measurements(), seed=st.integers(0, 99))
@example(measured=(PROBLEM, Y), seed=1)  # recodes, exact cells and some that were not measured
def test_round_trip_in_any_order(
    suffix: str, measured: tuple[Problem, Any], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    problem, y = measured
    path = tmp_path_factory.mktemp("long") / f"noisy{suffix}"
    write_frame(measurements_frame(problem, y), path)
    assert same(read_long_table(path, problem.schema), (problem, y))
    shuffled = measurements_frame(problem, y).sample(fraction=1.0, shuffle=True, seed=seed)
    again, values = read_long_table(shuffled, problem.schema)
    for name, cells in problem.observed.tables(y).items():
        assert np.array_equal(again.observed.tables(values)[name], cells, equal_nan=True)


@cases(
    ({}, [np.nan, 1.0, 2.0], r"table 'total' is NaN"),
    ({}, [3.0, np.inf, 2.0], r"table 'sex', cell \(sex=0\) is infinite"),
    ({"zeros": {"sex": [True, False]}}, [2.0, 0.0, 2.0], "structural zeros, which would be lost"),
    ({"equalities": ([[0.0, 1.0, -1.0]], [0.0])}, [2.0, 1.0, 1.0], "equalities, which would be lost"),
    ({"noise": Rounding(10)}, [20.0, 10.0, 10.0], r"the mean of the law Rounding\(base=10\) would be lost"),
)
def test_what_a_table_would_lose_is_not_written(more: dict[str, Any], y: list[float], message: str) -> None:
    """An empty value is read as one that was not measured."""
    variance = more["noise"].variance if "noise" in more else 1.0
    problem = Problem(Schema({"sex": 2}), {"total": variance, "sex": variance}, **more)
    refuses(message, measurements_frame, problem, y)


def test_the_columns_say_what_each_cell_is() -> None:
    rows = measurements_frame(PROBLEM, Y).rows()
    assert rows[0] == ("total", "*", "*", 10.0, 0.0)
    assert rows[1:5] == [
        ("adult * sex", "female", "minor", 1.5, 1.0),
        ("adult * sex", "male", "minor", 2.5, 2.0),
        ("adult * sex", "female", "adult", 3.25, 3.0),
        ("adult * sex", "male", "adult", None, np.inf),
    ]
    assert rows[-1] == ("detailed", "male", "2", 5.0, 2.0)


def test_estimates_have_the_same_keys() -> None:
    problem = Problem(SCHEMA, {"detailed": 1.0}, desired=["adult", "total"])
    frame = estimates_frame(problem, *np.arange(12.0).reshape(4, 3))
    assert frame.columns == ["table", "sex", "age", "estimate", "std_error", "lower", "upper"]
    assert frame.rows()[1:] == [("adult", "*", "adult", 1, 4, 7, 10), ("total", "*", "*", 2, 5, 8, 11)]


@every("index", [None, ["Total", "a", "b"]])
def test_nodes_of_a_hierarchy_are_told_by_name(index: list[str] | None) -> None:
    S = pd.DataFrame([[1, 1], [1, 0], [0, 1]], index=index)
    est = estimate(Problem.from_summing_matrix(S, [1.0, 2.0, 4.0]), [12.0, 3.0, 5.0])
    frame = est.to_frame(0.9)
    assert frame["node"].to_list() == (index or ["0", "1", "2"])
    np.testing.assert_array_equal(frame.select("estimate", "std_error"), np.stack([est.values, est.std_errors], 1))
    np.testing.assert_array_equal(frame.select("lower", "upper"), np.stack(est.interval(0.9), 1))
    assert frame.select("value", "variance").rows() == [(12.0, 1.0), (3.0, 2.0), (5.0, 4.0)]
    assert rounded(frame, 2)["node"].equals(frame["node"])


def test_all_frames_read_the_same() -> None:
    frame = measurements_frame(PROBLEM, Y)
    categorical = frame.with_columns(pl.col("table", "sex").cast(pl.Categorical))
    for other in (
        frame,
        categorical,
        frame.to_arrow(),
        frame.to_pandas(),
        categorical.to_pandas(),
        frame.to_pandas().convert_dtypes(),
    ):
        assert same(read_long_table(other, SCHEMA), (PROBLEM, Y))


def test_levels_may_be_numbers_in_a_frame() -> None:
    frame = pl.DataFrame({"table": "year", "year": [2010, 2020], "value": [1, 2], "variance": [1, 0]})
    assert infer_schema(frame) == Schema({"year": ["2010", "2020"]})
    assert read_long_table(frame)[1].tolist() == [1, 2]


@given(rows=st.permutations(range(16)))
def test_no_order_of_rows_changes_the_order_of_anything(rows: list[int]) -> None:
    """So that the operator of one reading fits the values of another."""
    frame = pl.DataFrame(
        {
            "table": ["total", *["age"] * 3, *["age * sex"] * 6, *["sex"] * 2, "total", *["age"] * 3],
            "sex": list("****mfmfmfmf****"),
            "age": ["*", "5-9", "0-4", *["10+"] * 3, *["0-4"] * 2, *["5-9"] * 2, *"***", "0-4", "10+", "5-9"],
            "source": ["b"] * 12 + ["a"] * 4,
            "value": np.arange(16.0),
            "variance": np.arange(1.0, 17.0),
        }
    )
    problem, y = read_long_table(frame)
    again, values = read_long_table(frame[rows])
    assert problem.schema.labels_of("age") == ("0-4", "5-9", "10+")
    assert (again.schema, again.observed.names) == (problem.schema, problem.observed.names)
    np.testing.assert_array_equal(values, y)
    np.testing.assert_array_equal(again.variances, problem.variances)


def test_desired_and_noise_are_passed_on() -> None:
    problem, _ = read_long_table(measurements_frame(PROBLEM, Y), SCHEMA, desired=["age"], noise="laplace")
    assert (problem.desired.names, problem.noise) == (("age",), "laplace")


def where(row: int, column: str, value: Any) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A frame with one entry changed."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        entries = frame[column].to_list()
        entries[row] = value
        return frame.with_columns(pl.Series(column, entries, strict=False))

    return change


BAD = [
    (lambda f: f.drop("variance"), "column 'variance' is missing: there are 'table', 'sex', 'age', 'value'"),
    (lambda f: f.drop("age"), "column 'age' is missing"),
    (lambda f: f.with_columns(hue=pl.lit("x")), "column 'hue' is no variable of the schema"),
    (
        lambda f: f.rename({"age": "Adult"}),
        "column 'Adult' is a recode: write its groups in the column 'age', and drop it",
    ),
    (lambda f: f.with_columns(geocode=pl.lit("44")), "column 'geolevel' is missing beside 'geocode'"),
    (lambda f: f.clear(), "there are no rows"),
    (
        lambda f: pl.concat([f, f[6:7]]),
        r"table 'age', cell \(age=1\) is given twice, in rows 7 and 15.*by a column 'source'",
    ),
    (lambda f: pl.concat([f, f[0:1]]), "table 'total' is given twice, in rows 1 and 15"),
    (lambda f: f[[*range(6), *range(7, 14)]], r"table 'age', cell \(age=1\) is missing: the table has 2 of 3 cells"),
    (lambda f: f[:-1], r"table 'detailed', cell \(sex=male, age=2\) is missing: the table has 5 of 6 cells"),
    (where(5, "table", "height"), "table 'height': 'height' is not a variable or recode"),
    (where(5, "table", None), "column 'table' is empty in row 6"),
    (where(5, "age", None), "column 'age' is empty in row 6: write '\\*' where the variable is summed out"),
    (where(5, "age", "9"), "table 'age', row 6: unknown level '9' in column 'age': there are '0', '1', '2'"),
    (where(5, "age", "adult"), "table 'age', row 6: unknown level 'adult'"),
    (
        where(1, "age", "0"),
        r"table 'adult \* sex', row 2: unknown level '0' in column 'age': there are 'minor', 'adult'",
    ),
    (where(5, "age", "*"), r"table 'age', row 6: column 'age' is '\*', but the table keeps it"),
    (where(5, "sex", "male"), r"table 'age', row 6: column 'sex' must be '\*', the table sums it out: got 'male'"),
    (where(5, "value", None), r"table 'age', cell \(age=0\): value is missing: .*inf for not measured.* \(row 6\)"),
    (where(5, "value", np.nan), r"table 'age', cell \(age=0\): value is missing"),
    (where(5, "value", np.inf), r"table 'age', cell \(age=0\): value is infinite"),
    (where(4, "value", -np.inf), r"table 'adult \* sex', cell \(sex=male, age=adult\): value is infinite"),
    (where(4, "variance", 1.0), r"table 'adult \* sex', cell \(sex=male, age=adult\): value is missing"),
    (where(5, "variance", None), r"table 'age', cell \(age=0\): variance is missing"),
    (where(5, "variance", np.nan), r"table 'age', cell \(age=0\): variance is missing: .* or inf"),
    (where(5, "variance", -1.0), r"table 'age', cell \(age=0\): variance is negative: .*0 or more"),
    (where(5, "value", "abc"), r"table 'age', cell \(age=0\): value 'abc' is not a number \(row 6\).*variance inf"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_rows_are_refused_by_place(change: Any, message: str, tmp_path: Path) -> None:
    frame = change(measurements_frame(PROBLEM, Y).with_columns(pl.col("table", "sex", "age").cast(pl.String)))
    refuses(f"data frame: {message}", read_long_table, frame, SCHEMA)
    write_frame(frame, tmp_path / "bad.csv")
    below_header = re.sub(r"(?<=row )\d+|(?<=rows )\d+|(?<= and )\d+", lambda row: str(int(row[0]) + 1), message)
    refuses(rf"bad\.csv: {below_header}", read_long_table, tmp_path / "bad.csv", SCHEMA)


@pytest.mark.parametrize("name", ["value", "variance"])
@pytest.mark.parametrize(
    ("dtype", "held"),
    [
        (pl.Date, "dates"),
        (pl.Datetime("ms"), "dates and times"),
        (pl.Time, "times of day"),
        (pl.Duration("us"), "durations"),
        (pl.Boolean, "true and false"),
        (pl.Struct({"a": pl.Int64}), "records"),
        (pl.List(pl.Int64), "lists"),
        (pl.Array(pl.Int64, 1), "lists"),
        (pl.Binary, "bytes"),
    ],
)
def test_what_is_no_number_is_never_read_as_one(name: str, dtype: Any, held: str, tmp_path: Path) -> None:
    frame = measurements_frame(PROBLEM, np.nan_to_num(Y)).with_columns(variance=pl.lit(1.0))
    other = pl.Series(name, [[b"1"]] * frame.height if dtype == pl.Binary else [1] * frame.height)
    other = other.list.first() if dtype == pl.Binary else other
    if isinstance(dtype, pl.Struct):
        other = pl.DataFrame({"a": other}).to_struct(name)
    elif isinstance(dtype, pl.List | pl.Array):
        other = other.reshape((-1, 1)).cast(dtype)
    elif dtype != pl.Binary:
        other = other.cast(dtype)
    typed = frame.with_columns(other.alias(name))
    write_frame(typed, tmp_path / "typed.parquet")
    for source in (typed, tmp_path / "typed.parquet", typed.to_arrow()):
        refuses(f"column '{name}' holds {held}: give numbers", read_long_table, source, SCHEMA)


@every("dtype", [pl.Int8, pl.UInt64, pl.Int128, pl.Float32, pl.Decimal(20, 2), pl.String, pl.Categorical])
def test_numbers_of_every_type_are_numbers(dtype: Any) -> None:
    values = pl.Series("value", ["10", "2", "3"])
    values = values.cast(dtype) if dtype in (pl.String, pl.Categorical) else values.cast(pl.Int64).cast(dtype)
    frame = pl.DataFrame({"table": ["total", "sex", "sex"], "sex": ["*", "f", "m"], "variance": 1}).with_columns(values)
    assert read_long_table(frame)[1].tolist() == [10, 2, 3]


@every("name", ["table", "sex", "age"])
@every(("dtype", "held"), [(pl.Float64, "decimal numbers"), (pl.Duration("us"), "durations")])
def test_labels_are_text_or_whole_numbers(name: str, dtype: Any, held: str) -> None:
    frame = measurements_frame(PROBLEM, Y).with_columns(pl.lit(1).cast(dtype).alias(name))
    refuses(f"column '{name}' holds {held}: labels are text or whole numbers", read_long_table, frame, SCHEMA)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1e999", "is too large for a floating-point number"),
        ("1e-999", "is too small for a floating-point number"),
        ("1_000", "is not a number"),
        ("0x10", "is not a number"),
        ("1,5", "is not a number: write decimals with a point"),
        ("12 %", "is not a number"),
    ],
)
@pytest.mark.parametrize("name", ["value", "variance"])
def test_text_that_floating_point_cannot_hold_is_refused(name: str, text: str, reason: str, tmp_path: Path) -> None:
    frame = measurements_frame(PROBLEM, Y).cast({"value": pl.String, "variance": pl.String})
    write_frame(where(5, name, text)(frame), tmp_path / "noisy.csv")
    refuses(rf"\(age=0\): {name} '{text}' {reason} \(row 7\)", read_long_table, tmp_path / "noisy.csv", SCHEMA)


FRAME = measurements_frame(PROBLEM, Y)
EXACT_AGES = pl.when(pl.col("table") == "age").then(0.0).otherwise("variance").alias("variance")
ASTRONOMICAL = pl.DataFrame({"table": "detailed", **{f"v{i}": ["a", "b", "c"] for i in range(40)}})
MALE = pl.DataFrame({"table": ["sex"], "sex": ["male"], "value": [11.0], "variance": [2.0]})
CORRELATED = Problem(Schema({"sex": 2}), {"sex": None}, covariance=np.eye(2) + 0.1)


@refused(
    (lambda: read_long_table(FRAME, SCHEMA, desired=["height"]), "data frame: table 'height'"),
    (
        lambda: read_long_table(pl.concat([FRAME, FRAME[1:5].with_columns(table=pl.lit("sex * adult"))]), SCHEMA),
        "are names of one table",
    ),
    (
        lambda: read_long_table(FRAME.with_columns(EXACT_AGES), SCHEMA),
        r"contradict one another by 0\.5 between 'total' and 'age': correct them, or give one a variance above 0",
    ),
    (
        lambda: read_long_table(ASTRONOMICAL.with_columns(value=1.0, variance=1.0)),
        r"v38=a, v39=b\) is missing: the table has 3 of 12,157,665,459,056,928,801",
    ),
    (lambda: read_long_table(FRAME), "recodes cannot be inferred, give a schema"),
    (lambda: infer_schema(FRAME[5:8]), r"column 'sex' is '\*' in every row: remove it, or give a schema"),
    (lambda: infer_schema(FRAME[5:8].drop("sex").with_columns(age=pl.lit("*"))), r"'\*' in every row: give a schema"),
    (
        lambda: read_long_table(MALE, Schema({"sex": ["female", "male"]})),
        r"table 'sex'.*\(sex=female\).*missing",  # and no wrong label
    ),
    (
        lambda: measurements_frame(Problem(Schema({"sex": ["*", "m"]}), {"sex": 1.0}), [1, 2]),
        r"variable 'sex' has the label '\*'",
    ),
    (lambda: measurements_frame(CORRELATED, [1, 2]), "noise is correlated"),
    (lambda: measurements_frame(Problem.from_matrix([[1, -1]], [1, 1]), [1, 2]), "made from a matrix"),
    (lambda: measurements_frame(PROBLEM, [1, 2, 3]), r"value must have shape \(14,\): got \(3,\)"),
)
def test_what_tables_and_problems_cannot_be_is_refused(call: Callable[[], Any]) -> None:
    call()


@cases(
    ("empty.csv", b"", "it is empty: the first row must name the columns"),
    ("ragged.csv", b"table,value,variance\ntotal,1\ntotal,1,2,3\n", "row 3 has 4 cells, the header 3"),
    ("binary.csv", b"table,value\n\xff\xfe\x00,1\n", "row 2 holds a NUL byte: it is no text"),
    (
        "latin.csv",
        b"table,city,value\ncity,Montr\xe9al,1\n",
        r"row 2 is not UTF-8 \(byte 0xE9, .*Montréal.*save it as 'CSV UTF-8'",
    ),
    ("open.csv", b'table,value\ntotal,"1\n', "a quotation mark in row 2 is not closed"),
    ("twice.csv", b"table,value,value\ntotal,1,2\n", "column 'value' is given twice, as columns 2 and 3"),
    ("unnamed.csv", b"table,value,\ntotal,1,2\n", "column 3 has no name in row 1"),
    (
        "cut.csv.gz",
        gzip.compress(b"table,value\ntotal,1\n" * 99, mtime=0)[:-20],
        "it is compressed by gzip, and cut short",
    ),
    ("text.parquet", b"table,value,variance\n", "not readable as a table"),
    (
        "noisy.xls",
        b"",
        r"the name must end in \.csv, \.csv\.gz, \.tsv, \.tsv\.gz, \.parquet, \.arrow, \.feather or \.xlsx",
    ),
    ("noisy.xlsx", b"PK\x03\x04", "not readable as an Excel file: "),
)
def test_unreadable_files_are_refused_by_name(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    refuses(rf"{name}: {message}", read_long_table, tmp_path / name)


def test_other_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_long_table(tmp_path / "none.csv")
    refuses(r"a path or a data frame .*: got int", read_long_table, 3, error=TypeError)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text("before")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_without_polars_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.delitem(sys.modules, "constraint_builders.files")
    with pytest.raises(ImportError, match=r"files and data frames need polars: pip install 'blue-solvers\[frames\]'"):
        importlib.import_module("constraint_builders.files")
