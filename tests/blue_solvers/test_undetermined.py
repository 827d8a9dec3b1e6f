"""Cells that are not estimable are NaN, and everything else is estimated, against dense least squares."""

from __future__ import annotations

from itertools import combinations
from math import prod
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import SOLVERS, blue, estimate, functionals
from blue_solvers.cli import main
from blue_solvers.nonnegative import anchored_fit, coverage, inverted_intervals, max_fit, nnls, ols
from constraint_builders import LowRankPlusDiagonal, Problem, Schema, Spine
from tests.helpers.every import every
from tests.helpers.refused_commands import refusal

NAMES = "abc"


def rows_of(sizes: tuple[int, ...], axes: str) -> np.ndarray:
    """0/1 rows over the detailed cells."""
    cells = np.indices(sizes).reshape(len(sizes), -1)
    place = np.zeros(cells.shape[1], dtype=int)
    for axis in axes:
        place = place * sizes[NAMES.index(axis)] + cells[NAMES.index(axis)]
    rows = np.zeros((prod(sizes[NAMES.index(axis)] for axis in axes), cells.shape[1]))
    rows[place, np.arange(cells.shape[1])] = 1
    return rows


def expected(M: np.ndarray, v: np.ndarray, D: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least squares over the detailed cells by the measured rows, NaN where these do not span a desired row."""
    measured = np.isfinite(v)
    whitened = M[measured] / np.sqrt(v[measured])[:, None]
    inverse = np.linalg.pinv(whitened, rcond=1e-11)
    spanned = abs(D @ inverse @ whitened - D).max(axis=1) < 1e-8
    x = D @ inverse @ (y[measured] / np.sqrt(v[measured]))
    variances = ((D @ inverse) ** 2).sum(axis=1)
    return np.where(spanned, x, np.nan), np.where(spanned, variances, np.nan)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["cells", "tables", "shared"]))
def test_everything_that_is_determined_is_estimated(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.integers(2, 4, rng.integers(1, 4)).tolist())
    tables = ["".join(c) for k in range(len(sizes) + 1) for c in combinations(NAMES[: len(sizes)], k)]
    observed = [t for t in tables if rng.random() < 0.6] or [tables[-1]]
    names = {t: " * ".join(rng.permutation(list(t))) or "total" for t in tables}
    variances, blocks = {}, []
    for t in observed:
        axes = [f for f in names[t].split(" * ") if f != "total"]
        shape = tuple(sizes[NAMES.index(axis)] for axis in axes)
        v = np.full(shape, rng.uniform(1, 4)) if kind == "tables" else rng.uniform(1, 4, shape)
        v = np.where(rng.random() < 0.4 if kind == "tables" else rng.random(shape) < 0.4, np.inf, v)
        variances[names[t]] = v
        blocks.append(rows_of(sizes, "".join(axes)))
    M, v = np.vstack(blocks), np.concatenate([own.ravel() for own in variances.values()])
    y = rng.normal(10, 3, v.size)
    wanted = [t for t in tables if any(set(t) <= set(o) for o in observed) and rng.random() < 0.6] or [observed[0]]
    D = np.vstack([rows_of(sizes, "".join(f for f in names[t].split(" * ") if f != "total")) for t in wanted])
    options = {}
    Sigma = np.diag(np.where(np.isfinite(v), v, 0))
    if kind == "shared":
        U = rng.normal(size=(v.size, 1))
        options["covariance"] = LowRankPlusDiagonal(v, U)
        U = np.where(np.isfinite(v)[:, None], U, 0)
        Sigma = Sigma + U @ U.T
    given_ = dict.fromkeys(variances) if kind == "shared" else variances
    schema = Schema(dict(zip(NAMES, sizes, strict=False)))
    try:
        problem = Problem(schema, given_, [names[t] for t in wanted], undetermined="nan", **options)
    except ValueError as error:
        assert "no observed table contains it" in str(error)  # noqa: PT017
        return
    measured = np.isfinite(v)
    L = np.linalg.cholesky(Sigma[np.ix_(measured, measured)])
    W, z = np.linalg.solve(L, M[measured]), np.linalg.solve(L, y[measured])
    x, spread = expected(W, np.ones(len(W)), D, z)
    assert np.array_equal(np.isnan(x), np.zeros(x.size, bool) if problem.undetermined is None else problem.undetermined)
    tried = 0
    for name in SOLVERS:
        try:
            P = blue(problem, name)
        except ValueError:
            continue
        if not P.info.exact:
            continue
        tried += 1
        found = P @ np.where(measured, y, np.nan) + P.offset
        assert np.allclose(found, x, atol=1e-6, equal_nan=True), name
        assert np.allclose(P.variances(), spread, rtol=1e-6, atol=1e-9, equal_nan=True), name
        known = np.flatnonzero(~np.isnan(x))
        weights = np.zeros((x.size, 2))
        weights[known, 0] = 1
        weights[:, 1] = 1
        answers = functionals(P, np.where(measured, y, np.nan), weights[:, : 1 + (known.size == x.size)])
        assert np.allclose(answers.estimate[0], x[known].sum(), atol=1e-5)
        if known.size < x.size:
            assert np.isnan(functionals(P, np.where(measured, y, np.nan), weights).covariance[1]).all()
    assert tried >= 1


def test_the_reason_names_the_cell_by_its_labels() -> None:
    schema = Schema({"sex": ["f", "m"], "age": ["young", "old"]})
    holes = {"sex * age": [[1.0, np.inf], [1.0, np.inf]], "age": [1.0, np.inf]}
    with pytest.raises(ValueError, match=r"cell \(sex=f, age=old\) rests on .* desired= or choose undetermined= 'nan'"):
        Problem(schema, holes)
    problem = Problem(schema, holes, ["age * sex", "sex"], undetermined="nan")
    assert problem.undetermined is not None
    assert problem.undetermined.tolist() == [False, False, True, True, True, True]
    assert problem.why_undetermined(3) == (
        "table 'age * sex', cell (age=old, sex=m): it was not measured, and no other measurements determine it"
    )
    assert problem.why_undetermined(4) == (
        "table 'sex', cell (sex=f): it rests on cells that were not measured, and no other measurements determine it"
    )
    with pytest.raises(ValueError, match="undetermined must be 'error' or 'nan'"):
        Problem(schema, holes, undetermined="raise")  # type: ignore[arg-type]


SPINE = Spine([-1, 0, 0], ["State", "County", "County"], ["44", "44001", "44003"])


@every("solver", ["dense", "cholesky", "auto", "cg"])
@every("whole", [True, False])
def test_one_suppressed_cell_of_a_geography(solver: str, whole: bool) -> None:
    spread = np.array([[1.0, 2.0, 1.5], [3.0, np.inf, np.inf]])
    if whole:
        spread[1] = np.inf
    observed = {"State": {"total": 1.0, "b": 2.0}, "County": {"a": spread, "b": [2.0, 4.0]}}
    schema = Schema({"a": 3, "b": 2})
    with pytest.raises(ValueError, match="not estimable"):
        Problem(schema, observed, spine=SPINE, desired={"State": ["a"], "County": ["a", "b"]})
    problem = Problem(
        schema, observed, spine=SPINE, desired={"State": ["a", "total"], "County": ["a", "b"]}, undetermined="nan"
    )
    one = {"": np.ones((1, 6)), "a": rows_of((3, 2), "a"), "b": rows_of((3, 2), "b")}
    first, second, both = np.array([[1, 0]]), np.array([[0, 1]]), np.ones((1, 2))
    M = np.vstack(
        [np.kron(both, one[""]), np.kron(both, one["b"])]
        + [np.kron(county, one[t]) for t in ("a", "b") for county in (first, second)]
    )
    D = np.vstack(
        [np.kron(both, one["a"]), np.kron(both, one[""])]
        + [np.kron(county, one[t]) for t in ("a", "b") for county in (first, second)]
    )
    y = np.random.default_rng(3).normal(20, 4, len(M))
    x, variances = expected(M, problem.variances, D, y)
    assert np.isnan(x).any()
    P = blue(problem, solver)
    assert np.allclose(P @ np.where(problem.unmeasured, np.nan, y), x, equal_nan=True, atol=1e-7)
    assert np.allclose(P.variances(), variances, equal_nan=True)
    everything = Problem(schema, observed, spine=SPINE, desired="all", undetermined="nan")
    assert ("County", "a") in everything.desired.names


def test_what_nothing_determines_is_fitted_no_number() -> None:
    """As of the estimate; what is determined is fitted, covered and bounded as ever."""
    schema, spread = Schema({"sex": ["f", "m"], "age": ["a", "b", "c"]}), np.ones((2, 3))
    spread[0, :2] = np.inf
    tables = {"sex": 2.0, "sex * age": spread}
    problem = Problem(schema, tables, ["sex * age", "age", "total"], undetermined="nan")
    y = np.array([10.0, 20, np.nan, np.nan, 3, 4, 5, 6])
    best = estimate(problem, y).values
    for fit in (ols, nnls, max_fit, anchored_fit):
        assert np.array_equal(np.isnan(fit(problem, y).desired), np.isnan(best))
        assert np.array_equal(np.isnan(fit(problem, np.stack([y, y], 1)).desired[:, 1]), np.isnan(best))
    np.testing.assert_allclose(nnls(problem, y).desired, best)
    held = coverage(problem, problem.marginal_matrix() @ np.arange(6.0), nnls, 3, np.random.default_rng(0))
    assert np.array_equal(np.isnan(held.refined), np.isnan(best))
    with pytest.raises(ValueError, match=r"cell \(sex=f, age=a\): it was not measured, .*: leave it out of cells"):
        inverted_intervals(problem, y, [2, 0], draws=1)


def test_what_was_never_asked_of_anybody_is_still_refused() -> None:
    with pytest.raises(ValueError, match="no observed table contains it"):
        Problem(Schema({"a": 2, "b": 2}), {"a": [1.0, np.inf]}, ["b"], undetermined="nan")
    problem = Problem(Schema({"a": 2}), {"a": [1.0, 2.0]}, undetermined="nan")
    assert problem.undetermined is None


HOLES = """table,sex,age,value,variance
total,*,*,100,1
sex * age,f,young,20,1
sex * age,f,old,,inf
sex * age,m,young,17,1
sex * age,m,old,,inf
"""


def test_the_command_estimates_the_rest_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "in.csv").write_text(HOLES)
    arguments = ["estimate", str(tmp_path / "in.csv"), "--out", str(tmp_path / "out.csv")]
    assert main([*arguments, "--nonnegative", "nnls"]) == 0
    printed = capsys.readouterr().out
    assert "2 cells that cannot be estimated; --desired chooses other tables" in printed
    assert "cell (sex=f, age=old): it was not measured, and no other measurements determine it" in printed
    frame = pl.read_csv(tmp_path / "out.csv")
    lost = (frame["age"] == "old").to_list()
    for column in ("estimate", "std_error", "lower", "upper", "nonnegative"):
        assert frame[column].is_nan().to_list() == lost, column
    assert frame.filter(pl.col("age") != "old")["estimate"].to_list() == [100, 20, 17]
    assert frame["note"].is_null().to_list() == [not own for own in lost]
    assert main(["info", str(tmp_path / "in.csv")]) == 0
    assert "2 cells that cannot be estimated" in capsys.readouterr().out
    message = refusal(capsys, *arguments, "--undetermined", "error")
    assert "cell (sex=f, age=old) rests on cells" in message
    assert "--desired or choose --undetermined 'nan'" in message
