"""Two measurements of the same cells: the combination is what all equations together say."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kurtosis

from blue_solvers import blue
from blue_solvers.cli import main
from constraint_builders import Problem, Schema, problem_of_sources, read_tables
from constraint_builders.files import measurements_frame, read_long_table
from constraint_builders.sources import combine_sources
from noise_mechanisms import draw_noise
from noise_mechanisms.laws import Rounding
from tests.helpers.every import cases, every
from tests.helpers.refused import refused, refuses
from tests.helpers.surveys import COUNTS, SCHEMA, SPINE, invented_surveys

numbers = st.floats(-1e6, 1e6)
spreads = st.sampled_from([0.25, 1.0, 3.0, 1e-6, 1e9, np.inf])


@given(data=st.data(), sources=st.integers(1, 4), cells=st.integers(1, 4))
def test_the_combination_is_the_mean_weighted_by_inverse_variances(data: Any, sources: int, cells: int) -> None:
    values = np.array(data.draw(st.lists(numbers, min_size=sources * cells, max_size=sources * cells)))
    variances = np.array(data.draw(st.lists(spreads, min_size=sources * cells, max_size=sources * cells)))
    values, variances = values.reshape(sources, cells), variances.reshape(sources, cells)
    combined, spread = combine_sources(list(values), list(variances))
    for cell in range(cells):
        measured = [i for i in range(sources) if np.isfinite(variances[i, cell])]
        if not measured:
            assert np.isnan(combined[cell])
            assert np.isinf(spread[cell])
            continue
        weights = [1 / Fraction(variances[i, cell]) for i in measured]
        mean = sum(w * Fraction(values[i, cell]) for w, i in zip(weights, measured, strict=True)) / sum(weights)
        size = max(abs(values[measured, cell]))
        assert abs(float(mean) - combined[cell]) <= 1e-14 * size
        assert spread[cell] == pytest.approx(float(1 / sum(weights)), rel=1e-14)


def test_exact_values_win_and_unmeasured_ones_say_nothing() -> None:
    values, variances = combine_sources([[9.0, 5, np.nan], [10.0, 6, 7]], [[4.0, 0, np.inf], [0.0, 1, 2]])
    assert values.tolist() == [10, 5, 7]
    assert variances.tolist() == [0, 0, 2]


def test_a_variance_may_be_one_for_all_cells() -> None:
    given = [np.zeros((2, 3)), np.ones((2, 3))]
    for measured in (given, np.array(given)):
        values, variances = combine_sources(measured, [1.0, np.full((2, 3), 3.0)])
        assert np.allclose(values, 0.25)
        assert np.allclose(variances, 0.75)


@refused(
    ([[1.0], [2.0]], [0.0, 0.0], r"cell \(0,\): two sources know it exactly, as 1.0 and 2.0: correct one"),
    ([[1.0], [3.0], [2.0]], [1.0, 0.0, 0.0], r"cell \(0,\): two sources know it exactly, as 3.0 and 2.0"),
    ([[1.0], [2.0]], [1.0, -1.0], "variance of source 2 is negative"),
    ([[1.0], [2.0]], [1.0, np.nan], "variance of source 2 is NaN"),
    ([[1.0], [np.nan]], [1.0, 1.0], r"source 2, cell \(0,\): the value is nan: give a number"),
    ([[1.0], [np.inf]], [1.0, 1.0], r"source 2, cell \(0,\): the value is inf: give a number"),
    ([[1.0], [1.0, 2.0]], [1.0, 1.0], "same shape"),
    ([[1.0, 2.0]], [[1.0]], r"source 1 has values of shape \(2,\) and variances of shape \(1,\)"),
    ([[1.0]], [1.0, 1.0], "give values and variances of the same sources: got 1 and 2"),
    ([], [], "give values and variances of the same sources"),
    (np.zeros((0, 2)), np.zeros((0, 2)), "give values and variances of the same sources"),
)
def test_what_cannot_be_combined_is_refused(values: Any, variances: Any) -> None:
    combine_sources(values, variances)


def test_exact_values_may_differ_by_rounding() -> None:
    values, variances = combine_sources([[0.1 + 0.2], [0.3]], [0.0, 0.0])
    assert values.tolist() == [0.1 + 0.2]
    assert variances.tolist() == [0]


TWO = """table,sex,source,value,variance
total,*,census,100,4
total,*,survey,104,12
sex,f,survey,55,9
sex,m,survey,46,9
sex,m,register,44,inf
sex,f,register,52,3
"""


def write(folder: Path, text: str) -> str:
    (folder / "noisy.csv").write_text(text)
    return str(folder / "noisy.csv")


def test_sources_in_a_file_count_as_measurements_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path, out = write(tmp_path, TWO), str(tmp_path / "out.csv")
    assert main(["estimate", path, "--out", out]) == 0
    assert "combined   table 'total' of several sources" in capsys.readouterr().out
    M = np.array([[1, 1], [1, 1], [1, 0], [0, 1], [1, 0]])  # every measured row over (f, m)
    y, v = np.array([100, 104, 55, 46, 52]), np.array([4, 12, 9, 9, 3])
    covariance = np.linalg.inv(M.T @ (M / v[:, None]))
    cells = covariance @ M.T @ (y / v)
    expected = {"*": cells.sum(), "f": cells[0], "m": cells[1]}
    spread = {"*": covariance.sum(), "f": covariance[0, 0], "m": covariance[1, 1]}
    written = pl.read_csv(out)
    assert len(written) == 3
    for sex, estimate, error in written.select("sex", "estimate", "std_error").rows():
        assert estimate == pytest.approx(expected[sex], rel=1e-12)
        assert error**2 == pytest.approx(spread[sex], rel=1e-12)


@cases(
    ("sex,f,register,52,3\n", "", r"table 'sex', cell \(sex=f\), source 'register' is missing"),
    (
        "sex,m,register,44,inf\nsex,f,register",
        "sex,f,survey",
        r"'sex', cell \(sex=f\), source 'survey' is given twice, in rows 4 and 6",
    ),
    ("census,100,4\ntotal,*,survey,104,12", "census,100,0\ntotal,*,survey,104,0", "table 'total': cell .* exactly"),
    ("total,*,census", "total,*,", "column 'source' is empty in row 2"),
)
def test_sources_that_do_not_fit_together_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in TWO
    refuses(message, read_long_table, write(tmp_path, TWO.replace(old, new)))


def test_one_table_may_be_spelt_in_two_ways_by_two_sources() -> None:
    schema = Schema({"a": 2, "b": 3})
    problem = Problem(schema, {"a * b": 2.0})
    frame = measurements_frame(problem, np.arange(6.0)).with_columns(source=pl.lit("one"))
    other = frame.with_columns(source=pl.lit("two"), table=pl.lit("b * a"), value=pl.col("value") + 1)
    found, y = read_long_table(pl.concat([frame, other.reverse()]), schema)
    assert found.observed.names == ("a * b",)
    assert y.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert (found.variances == 1).all()
    with pytest.raises(ValueError, match=r"'a \* b' and 'b \* a' are names of one table: give it once"):
        read_long_table(pl.concat([frame, other.with_columns(source=pl.lit("one"))]), schema)


def test_a_source_may_be_a_variable() -> None:
    frame = pl.DataFrame({"table": ["total", "source", "source"], "source": ["*", "well", "river"], "value": [3, 1, 2]})
    problem, _ = read_long_table(frame.with_columns(variance=1.0))
    assert problem.schema == Schema({"source": ["river", "well"]})
    assert read_long_table(frame[1:].with_columns(variance=1.0), problem.schema)[0].schema == problem.schema


def test_sources_are_told_apart_at_every_geounit() -> None:
    rows = [("A", "a", "s", 10, 1.0), ("A", "a", "t", 12, 1.0), ("B", "ab", "s", 4, 2.0), ("B", "ac", "s", 6, 2.0)]
    frame = pl.DataFrame(rows, ["geolevel", "geocode", "source", "value", "variance"], orient="row")
    problem, y = read_long_table(frame.with_columns(table=pl.lit("total"), sex=pl.lit("*")), Schema({"sex": 2}))
    assert problem.observed.tables(y)["A", "total"].tolist() == [11]
    assert problem.observed.tables(problem.variances)["A", "total"].tolist() == [0.5]
    assert problem.observed.tables(y)["B", "total"].tolist() == [4, 6]


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_surveys_are_estimated_as_all_their_measurements_stacked(seed: int, geography: bool) -> None:
    surveys = invented_surveys(seed, geography)
    wanted = {"S": ["a"], "C": ["b * a"]} if geography else ["b * a", "a"]
    problem, combined = problem_of_sources(SCHEMA, surveys.sources, wanted, spine=SPINE if geography else None)
    measured = np.isfinite(surveys.v)
    W = surveys.M[measured] / np.sqrt(surveys.v[measured])[:, None]
    inverse = np.linalg.inv(W.T @ W)
    x = inverse @ W.T @ (surveys.y[measured] / np.sqrt(surveys.v[measured]))
    parts = [COUNTS["b * a"], COUNTS["a"]]
    if geography:
        parts = [np.kron(np.ones((1, 2)), COUNTS["a"]), np.kron(np.eye(2), COUNTS["b * a"])]
    D = np.vstack(parts)
    P = blue(problem)
    assert np.allclose(P @ combined, D @ x)
    assert np.allclose(P.variances(), np.einsum("ij,jk,ik->i", D, inverse, D))


def test_surveys_that_cannot_be_combined_are_refused_by_number() -> None:
    schema = Schema({"sex": ["f", "m"]})
    good = ({"sex": 1.0}, {"sex": [1.0, 2.0]})
    for bad, message in [
        (({"sex": 1.0}, {"sex": [1.0, np.nan]}), r"source 2: table 'sex', cell \(sex=m\) is NaN"),
        (({"race": 1.0}, {"race": 1.0}), "source 2: table 'race'"),
        (({"sex": 1.0},), "source 2 must be a pair"),
        (3, "source 2 must be a pair"),
    ]:
        refuses(message, problem_of_sources, schema, [good, bad])
    exact = [({"sex": 0.0}, {"sex": [1.0, 2.0]}), ({"sex": 0.0}, {"sex": [1.0, 3.0]})]
    refuses(r"table 'sex': cell \(1,\): two sources know it exactly, as 2.0 and 3.0", problem_of_sources, schema, exact)
    refuses("there are no sources", problem_of_sources, schema, [])


def test_the_law_of_all_sources_is_that_of_the_problem() -> None:
    """Its mean is taken off estimates, and copies of a rounded figure say no more than one."""
    schema, law = Schema({"sex": 2}), Rounding(10)
    rounded, total = ({"sex": law}, {"sex": [10.0, 20.0]}), ({"total": 0.0}, {"total": 37.0})
    problem, y = problem_of_sources(schema, [total, rounded])
    assert problem.noise == law
    alone = Problem(schema, {"total": 0.0, "sex": law})
    assert blue(problem).estimate(y).values.tolist() == blue(alone).estimate([37.0, 10, 20]).values.tolist()
    refuses("are copies of one measurement", problem_of_sources, schema, [rounded, rounded])
    with pytest.raises(ValueError, match=r"several laws, source 1 of Rounding\(base=10\) and source 2 of gaussian"):
        problem_of_sources(schema, [rounded, ({"total": 4.0}, {"total": 40.0})])


@every("law", ["laplace", "discrete_laplace"])
def test_what_several_sources_measured_has_the_mean_of_their_noise(law: str) -> None:
    """Half the excess kurtosis of one, beside cells that one source measured; whole numbers become halves."""
    one = {"a": ["x", "y", "*"], "value": [10.0, 20, 31], "source": ["A"] * 3, "variance": [50.0] * 3}
    other = {"a": ["x", "y"], "value": [12.0, 18], "source": ["B"] * 2, "variance": [50.0] * 2}
    problem, _ = read_tables(pl.concat([pl.DataFrame(one), pl.DataFrame(other)]), noise=law)
    noise, twice = draw_noise(problem, 20_000, rng=0), problem.variances == 25.0
    assert twice.sum() == 2
    for cell, drawn in enumerate(noise):
        excess, expected = kurtosis(drawn), 1.5 if twice[cell] else 3.0
        assert excess == pytest.approx(expected, abs=0.6)
        assert drawn.var() == pytest.approx(problem.variances[cell], rel=0.1)
    assert (law == "discrete_laplace") == np.array_equal(2 * noise, np.round(2 * noise))
    if law == "discrete_laplace":
        assert ((noise != np.round(noise)).any(axis=1) == twice).all()
