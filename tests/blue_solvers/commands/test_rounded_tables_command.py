"""The command and the door for frames on tables that say no precision, since they were rounded or perturbed."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers import estimate, nnls, read_tables
from blue_solvers.cli import main
from constraint_builders import Schema
from noise_mechanisms.laws import CellKey, Gaussian, Law, RandomRounding, Rounding
from tests.helpers.every import cases, every
from tests.helpers.refused_commands import refusal

ROUNDED = pl.DataFrame(
    {
        "sex": ["total", "f", "m", "total", "total", "f", "f", "m"],
        "age": ["total", "total", "total", "old", "young", "old", "young", "old"],
        "value": [120, 60, 63, 75, 42, 42, 18, 33],
    }
)
KEY = "i,v,p\n0,0,1\n1,-1,0.5\n1,1,0.5\n2,-2,0.2\n2,-1,0.2\n2,0,0.2\n2,1,0.2\n2,2,0.2\n"
CODES = ["11", "12", "13"]
FLAGS: dict[str, tuple[list[str], Law]] = {
    "random": (["--rounded", "3"], RandomRounding(3)),
    "nearest": (["--rounded", "nearest:3"], Rounding(3)),
    "key": (["--cell-key", "key.csv"], CellKey.__new__(CellKey)),
    "variance": (["--variance", "4"], Gaussian(4.0)),
}


@every("name", list(FLAGS))
def test_the_command_takes_the_law_that_the_library_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ROUNDED.write_csv("rounded.csv")
    Path("key.csv").write_text(KEY)
    flags, law = FLAGS[name]
    law = CellKey.read("key.csv") if name == "key" else law
    assert main(["estimate", "rounded.csv", "--out", "out.csv", "--digits", "all", *flags]) == 0
    problem, y = read_tables(ROUNDED, noise=law)
    assert problem.noise.law == law.declared
    table = problem.observed.slice("sex * age")
    assert np.isinf(problem.variances[table]).sum() == 1  # the row that is absent
    assert (problem.variances[np.isfinite(problem.variances)] == law.variance).all()
    est = estimate(problem, y)
    out = pl.read_csv("out.csv")
    np.testing.assert_allclose(np.sort(out["estimate"]), np.sort(est.values))
    np.testing.assert_allclose(np.sort(out["std_error"]), np.sort(est.std_errors))


def test_figures_of_a_law_with_a_mean_are_written_as_they_were_published(tmp_path: Path) -> None:
    """Beside estimates that the mean is taken off, and non-negative counts."""
    frame = ROUNDED.with_columns(value=pl.Series([120, 60, 70, 80, 40, 40, 20, 30]))
    frame.write_csv(tmp_path / "rounded.csv")
    out = tmp_path / "out.csv"
    flags = ["--rounded", "nearest:10", "--nonnegative", "nnls", "--digits", "all"]
    assert main(["estimate", str(tmp_path / "rounded.csv"), "--out", str(out), *flags]) == 0
    found = pl.read_csv(out)
    assert sorted(found["value"].drop_nulls()) == sorted(frame["value"])
    problem, y = read_tables(frame, noise=Rounding(10))
    np.testing.assert_allclose(np.sort(found["estimate"]), np.sort(estimate(problem, y).values))
    np.testing.assert_allclose(np.sort(found["nonnegative"]), np.sort(nnls(problem, y).desired), atol=1e-6)
    known = found.filter(pl.col("value").is_not_null())
    np.testing.assert_allclose(known["adjustment"], known["estimate"] - known["value"] + 0.5)


def test_columns_are_said_of_several_inputs_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ROUNDED.filter(pl.col("age") == "total").drop("age").rename({"value": "n"}).write_csv(tmp_path / "one.csv")
    ROUNDED.filter(pl.col("sex") != "total").rename({"value": "count"}).write_csv(tmp_path / "two.csv")
    inputs = [str(tmp_path / "one.csv"), str(tmp_path / "two.csv")]
    said = ["--columns", "one:n=value", "--columns", "two:count=value", "--rounded", "3"]
    assert main(["estimate", *inputs, "--out", str(tmp_path / "out.csv"), *said]) == 0
    assert pl.read_csv(tmp_path / "out.csv").height >= 7
    refused = refusal(capsys, "estimate", *inputs, "--out", str(tmp_path / "no.csv"), "--columns", "n=value")
    assert "--columns must be an input and a column of it" in refused
    assert not (tmp_path / "no.csv").exists()


@cases(
    (["--rounded", "1"], "must be a base, 3, or nearest:5"),
    (["--rounded", "up:5"], "must be a base, 3, or nearest:5"),
    (["--variance", "-1"], "must be a number above 0"),
    (["--rounded", "3", "--variance", "4"], "not allowed with argument"),
    (["--rounded", "5"], "is 63, which no count is published as by RandomRounding(base=5)"),
)
def test_what_is_no_law_of_the_figures_is_refused(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ROUNDED.write_csv(tmp_path / "rounded.csv")
    out = tmp_path / "out.csv"
    assert said in refusal(capsys, "estimate", str(tmp_path / "rounded.csv"), "--out", str(out), *flags)
    assert not out.exists()


def test_absent_rows_of_every_table_geolevel_and_group_were_not_published() -> None:
    """Of random grids some rows are left out: those, and no others, are unmeasured."""
    schema = Schema({"a": ["x", "y", "z"], "b": ["p", "q"]}, recodes={"a": {"g": {"x": "xy", "y": "xy", "z": "other"}}})
    for seed in range(6):
        rng = np.random.default_rng(seed)
        counts = 3 * rng.integers(20, 90, (3, 3, 2))  # of three counties, levels of a and of b
        groups = {"*": [0, 1, 2], "xy": [0, 1], "other": [2], "x": [0], "y": [1], "z": [2]}
        rows = [
            {"geolevel": level, "geocode": code, "a": a, "b": b, "value": float(own[groups[a]][:, bs].sum())}
            for level, places in (
                ("State", {"1": counts.sum(axis=0)}),
                ("County", dict(zip(CODES, counts, strict=True))),
            )
            for code, own in places.items()
            for a, b, bs in [
                *((g, "*", [0, 1]) for g in ("*", "xy", "other")),
                *((a, b, [k]) for a in "xyz" for k, b in enumerate("pq")),
            ]
        ]
        frame = pl.DataFrame(rows)
        kept = rng.random(frame.height) < 0.8
        kept[frame["a"].to_numpy() == "*"] = True
        for level in ("State", "County"):  # each table has some row
            for place in ("xy", "x", "y", "z"):
                own = np.flatnonzero((frame["geolevel"] == level) & (frame["a"] == place))
                kept[own[:1]] = True
        problem, y = read_tables(frame.filter(pl.Series(kept)), schema, noise=RandomRounding(3), total=["*"])
        whole, expected = read_tables(frame, schema, noise=RandomRounding(3), total=["*"])
        assert problem.observed.names == whole.observed.names
        measured = ~problem.unmeasured
        assert measured.sum() == kept.sum()
        np.testing.assert_array_equal(y[measured], expected[measured])
        assert np.isnan(y[~measured]).all()


def test_most_rows_of_a_grid_may_be_absent() -> None:
    """Of 60 by 60 cells one in thirty was published; a name beside a code is asked about, and what is too large."""
    rng = np.random.default_rng(5)
    place = pl.Series("a", [f"a{number}" for number in rng.permutation(60)] * 2)
    other = pl.Series("b", [f"b{number}" for number in np.concatenate([np.arange(60), np.roll(np.arange(60), 1)])])
    margin = pl.DataFrame({"a": [f"a{number}" for number in range(60)], "b": "*", "value": 300})
    frame = pl.concat([pl.DataFrame([place, other]).with_columns(value=pl.lit(30)), margin.cast({"value": pl.Int32})])
    problem, _ = read_tables(frame, noise=RandomRounding(3))
    assert problem.observed.names == ("a", "a * b")
    assert (~problem.unmeasured).sum() == 120 + 60
    named = margin.head(9).with_columns(name=pl.col("a") + " Street").with_columns(sex=pl.lit("*")).drop("b")
    both = pl.concat([named, named.with_columns(sex=pl.lit("f"))])
    with pytest.raises(ValueError, match=r"columns 'a' and 'name' say the same, 'a.' is 'a. Street': keep one"):
        read_tables(both, noise=RandomRounding(3))
    codes = [f"c{number}" for number in range(300)]
    large = pl.DataFrame({name: rng.permutation(codes * 3) for name in "abc"}).with_columns(value=pl.lit(6))
    with pytest.raises(ValueError, match="'a \\* b \\* c' has 900 rows of 27,000,000 cells, which would all be held"):
        read_tables(large, noise=RandomRounding(3), total=["*"])
