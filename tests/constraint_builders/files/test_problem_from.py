"""Frames as survey people have them, against problems that are described by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import estimate, read_tables
from constraint_builders import Problem, Schema
from constraint_builders.files import measurements_frame
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refused, refuses

KINDS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "pandas": lambda frame: pd.DataFrame(frame.to_dict(as_series=False)),
    "pyarrow": lambda frame: frame.to_arrow(),
    "batches": lambda frame: pa.RecordBatchReader.from_batches(frame.to_arrow().schema, frame.to_arrow().to_batches()),
}
SCHEMA = Schema({"sex": ["f", "m"], "age": ["young", "old", "older"]}, {"age": {"adult": ["minor", "grown", "grown"]}})


@every("kind", KINDS)
def test_three_lines(kind: str) -> None:
    frame = KINDS[kind](pl.DataFrame({"sex": ["total", "f", "m"], "estimate": [21, 9, 11], "se": [1.0, 2.0, 2.0]}))
    problem, y = read_tables(frame)
    out = estimate(problem, y).to_frame()
    assert out["table"].to_list() == ["total", "sex", "sex"]
    if kind != "batches":  # which are read once
        assert read_tables(frame, desired=["sex"])[0].desired.names == ("sex",)
    np.testing.assert_allclose(out["estimate"], [21 - 1 / 9, 9 + 4 / 9, 11 + 4 / 9])  # each by its share of variance


@examples(40)
@given(st.data())
def test_tables_need_no_names(data: st.DataObject) -> None:
    """Any tables of plain variables or, with the schema, recodes come back from their rows alone."""
    recoded = data.draw(st.booleans())
    factors = st.tuples(st.sampled_from(["", "sex"]), st.sampled_from(["", "age", *["adult"] * recoded]))
    tables = data.draw(st.lists(factors, min_size=1, max_size=4, unique=True))
    names = [" * ".join(filter(None, table)) or "total" for table in tables]
    if not recoded and not ("sex" in "".join(names) and "age" in "".join(names)):
        names.append("sex * age")
        names = list(dict.fromkeys(names))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    problem = Problem(SCHEMA, {name: float(rng.uniform(1, 9)) for name in names})
    y = rng.normal(20, 5, problem.observed.size)
    frame = measurements_frame(problem, y).drop("table").sample(fraction=1, shuffle=True, seed=1)
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    found, z = read_tables(KINDS[kind](frame), SCHEMA if recoded else None)
    assert set(found.observed.names) == {name if recoded or name != "detailed" else "sex * age" for name in names}
    order = found.schema.labels_of("age") if found.schema is not None else ()
    for name in names:
        got, expected = found.observed.tables(z)[name], problem.observed.tables(y)[name]
        if "age" in name:  # levels come in order of first appearance
            expected = expected[..., [SCHEMA.labels_of("age").index(label) for label in order]]
        if "sex" in name:
            expected = expected[[SCHEMA.labels_of("sex").index(label) for label in found.schema.labels_of("sex")]]
        np.testing.assert_allclose(got, expected)


def test_a_label_of_a_level_and_of_a_group_is_asked_for() -> None:
    schema = Schema({"age": ["a", "b", "c"]}, {"age": {"two": ["a", "z", "z"]}})
    frame = pl.DataFrame({"age": ["a", "z"], "value": [1, 2], "variance": [1.0, 1.0]})
    refuses("'a' is a label of 'age' and 'two': say which table in a column 'table'", read_tables, frame, schema)
    problem, _ = read_tables(frame.with_columns(table=pl.lit("two")), schema)
    assert problem.observed.names == ("two",)
    summed_out = Schema({"age": ["*", "b", "c"]}, {"age": {"two": ["*", "z", "z"]}})
    with pytest.raises(ValueError, match=r"the label '\*', in files the sign of summed out: rename it"):
        read_tables(frame.with_columns(age=pl.Series(["*", "b"])), summed_out)


@pytest.mark.parametrize("text", [True, False])
def test_suppressed_and_exact_cells(text: bool) -> None:
    marks: dict[str, Any]
    if text:
        frame = pl.DataFrame({"sex": ["all", "f", "m"], "value": ["1 200", " (D)", ""], "MOE 90": ["*****", "3", "2"]})
        marks = {"suppressed": ["(D)"], "exact": ["*****"]}
    else:
        values = {"value": [1200.0, -666666666, None], "moe_90": [-555555555.0, 3, 2]}
        frame = pl.DataFrame({"sex": ["all", "f", "m"], **values})
        marks = {"suppressed": [-666666666], "exact": [-555555555]}
    problem, y = read_tables(frame, **marks)
    np.testing.assert_array_equal(problem.variances, [0, np.inf, np.inf])
    np.testing.assert_array_equal(y, [1200, np.nan, np.nan])
    est = estimate(problem, y)
    np.testing.assert_array_equal(est.values, [1200, np.nan, np.nan])
    assert est.to_frame()["note"].is_not_null().to_list() == [False, True, True]


WIDE = pl.DataFrame(
    {
        "age": ["young", "old", "older", "total"],
        "f": [1.0, 2.0, 3.0, 6.5],
        "f_se": [1.0, 2.0, 3.0, 1.0],
        "M value": [4.0, 5.0, 6.0, 15.5],
        "m SE": [1.0, 2.0, 3.0, 1.0],
        "Total": [5.0, 7.0, 9.0, 21.0],
        "total_se": [0.0, 0.5, 0.25, 2.0],
    }
)


@every("kind", KINDS)
def test_wide_tables(kind: str) -> None:
    problem, y = read_tables(KINDS[kind](WIDE), names_to="sex")
    tables, variances = problem.observed.tables(y), problem.observed.tables(problem.variances)
    assert set(tables) == {"age * sex", "sex", "age", "total"}
    assert problem.schema.labels_of("age") == ("old", "older", "young")
    np.testing.assert_array_equal(tables["age * sex"], [[2, 5], [3, 6], [1, 4]])
    np.testing.assert_array_equal(variances["age * sex"], [[4, 4], [9, 9], [1, 1]])
    np.testing.assert_array_equal(tables["sex"], [6.5, 15.5])
    np.testing.assert_array_equal(variances["age"], [0.25, 0.0625, 0])
    assert tables["total"] == 21


def test_wide_tables_of_several_variables_and_one_precision_a_row() -> None:
    frame = pd.DataFrame({"f_young": [1], "m_young": [2], "f_old": [3], "m_old": [4], "cv": [10.0]})
    both = ["sex", "age"]
    cells = ["f_young", "m_young", "f_old", "m_old"]
    problem, y = read_tables(frame, columns={"cv": "cv_percent"}, names_to=both, cells=cells)
    assert problem.observed.names == ("sex * age",)
    np.testing.assert_array_equal(y, [3, 1, 4, 2])  # old before young
    np.testing.assert_allclose(problem.variances, np.square([0.3, 0.1, 0.4, 0.2]))


@refused(
    ({}, "'value' is missing.*call one 'value' in columns=, or give names_to="),
    ({"names_to": "age"}, "names_to 'age': name the variables, which are no columns yet"),
    ({"names_to": "sex", "cells": ["x"]}, "cell 'x' is no column"),
    ({"names_to": ["sex", "race"]}, "column 'f' falls into 1 levels at '_', names_to has 2 variables"),
    ({"cells": ["f"]}, "give names_to too"),
    ({"columns": {"g": "value"}}, "columns names 'g', which is none"),
    ({"columns": {"f": "age"}}, "columns calls two columns 'age'"),
    ({"names_to": "sex", "columns": {"m SE": "note"}, "cells": ["f", "M value"]}, "must say in one way"),
    ({"names_to": "sex", "columns": {"m SE": "f_moe_90"}}, "both say how precise 'f' is"),
)
def test_what_is_ambiguous_is_asked_for_by_name(options: dict[str, Any]) -> None:
    read_tables(WIDE, **options)


@refused(
    ("F+", r"'f_se' may say how precise 'f' and 'F\+' are: give each its own"),
    ("*", r"column '\*' is called by signs alone: call it 'total' if it counts everybody"),
)
def test_names_of_cells_that_differ_by_signs_alone_share_no_precision(name: str) -> None:
    """The precision of `f` was that of `F+` too; ``*`` is every column for polars."""
    read_tables(WIDE.with_columns(pl.Series(name, [1.0, 2, 3, 6.5])), names_to="sex")


def test_cells_without_a_precision_of_their_own_are_asked_for() -> None:
    frame = pl.DataFrame({"f": [1.0], "m": [2.0], "se": [1.0]})
    refuses(r"which columns are cells\?.*cells=\[", read_tables, frame, names_to="sex")


def test_no_frame_is_refused() -> None:
    refuses(r"a table is a path or a data frame", read_tables, {"value": [1.0]}, error=TypeError)


@every("label", ["All ages", "Total"])
def test_a_label_of_a_schema_is_a_level(label: str) -> None:
    frame = pd.DataFrame({"age": [label, "young", "old"], "value": [5.0, 2, 2], "variance": [1.0, 1, 1]})
    assert read_tables(frame, Schema({"age": [label, "young", "old"]}))[0].observed.names == ("age",)


@every("label", ["All other", "All others", "Allegheny", "Totally", "both parents"])
def test_a_label_that_only_begins_so_is_a_level(label: str) -> None:
    problem, _ = read_tables(pd.DataFrame({"group": [label, "one"], "value": [5.0, 2], "variance": [1.0, 1]}))
    assert set(problem.schema.labels_of("group")) == {label, "one"}


@every("kind", [float, int, str])
def test_a_mark_of_the_census_bureau_is_no_number(kind: type) -> None:
    values = [kind(own) for own in (20, -666666666, 12)]
    frame = pd.DataFrame({"sex": ["total", "f", "m"], "value": values, "variance": [1.0, 1, 1]})
    refuses(r"value -666666666\S* is a mark of the Census Bureau.*suppressed=", read_tables, frame)
    problem, y = read_tables(frame, suppressed=values[1])
    np.testing.assert_allclose(estimate(problem, y).values, [20, 8, 12])


def test_one_mark_and_one_cell_may_be_given_by_themselves() -> None:
    frame = pd.DataFrame({"sex": ["total", "f", "m"], "value": ["20", "(D)", "12"], "se": ["**", "1", "2"]})
    problem, _ = read_tables(frame, suppressed="(D)", exact="**")
    np.testing.assert_array_equal(problem.variances, [0, np.inf, 4])
    wide = pd.DataFrame({"female": [1.0], "std_error": [1.0]})
    problem, _ = read_tables(wide, names_to="sex", cells="female")
    assert problem.observed.names == ("sex",)


def test_columns_that_are_no_mapping_are_refused() -> None:
    refuses(r"columns is a mapping, such as .*: got list", read_tables, WIDE, columns=["f"], error=TypeError)


@pytest.mark.few(6)
@pytest.mark.parametrize("kind", ["long", "unnamed", "wide"])
@pytest.mark.parametrize("broken", ["nan", "NaN", " NAN ", "inf", "1e999"])
def test_what_is_no_number_beside_a_precision_is_refused_in_every_kind_of_table(
    kind: str, broken: str, tmp_path: Path
) -> None:
    texts = {
        "long": "table,sex,value,se\nsex,f,{},1\nsex,m,4,1\ntotal,*,9,1\n",
        "unnamed": "sex,value,se\nf,{},1\nm,4,1\n*,9,1\n",
        "wide": "town,f,f_se,m,m_se\nx,{},1,4,1\ny,2,1,3,1\n",
    }
    path, options = tmp_path / "table.csv", {"names_to": "sex"} if kind == "wide" else {}
    path.write_text(texts[kind].format(broken))
    refuses(r"table\.csv: .*sex=f", read_tables, path, **options)
    path.write_text(texts[kind].format(3))
    assert read_tables(path, **options)[1].size
    if kind != "long":  # where an empty value is one that was not published
        path.write_text(texts[kind].format(""))
        assert np.isnan(read_tables(path, **options)[1]).sum() == 1
        path.write_text(texts[kind].format(broken))
        assert np.isnan(read_tables(path, suppressed=broken.strip(), **options)[1]).sum() == 1
