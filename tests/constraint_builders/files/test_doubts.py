"""Numbers are doubted where noise does not give them, and only there."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import estimate
from constraint_builders import read_tables
from constraint_builders.description.layout import Layout
from constraint_builders.files.doubts import Floor, doubts, much_alike, of_like_letters
from noise_mechanisms.laws import RandomRounding, Rounding
from tests.helpers.effort import examples

COUNTS = st.sampled_from(["none", "few", "some", "many", "all sizes"])


def counts_of(kind: str, size: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "all sizes":
        return rng.poisson(np.exp(rng.uniform(-3, 8, size)))
    return rng.poisson({"none": 0, "few": 1, "some": 10, "many": 1000}[kind], size)


@examples(100)
@given(
    kind=COUNTS,
    size=st.integers(1, 600),
    error=st.sampled_from([0.3, 1.0, 7.0]),
    law=st.sampled_from(["normal", "laplace"]),
    spoil=st.sampled_from(["", "negative ones made 0", "negative ones left out", "signs lost"]),
    seed=st.integers(0, 10**6),
)
def test_values_that_end_at_0_are_doubted(kind: str, size: int, error: float, law: str, spoil: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale = error if law == "normal" else error / np.sqrt(2)
    y = counts_of(kind, size, rng) + getattr(rng, law)(0, scale, size)
    negative = int((y < 0).sum())
    y = {"negative ones made 0": np.maximum(y, 0), "negative ones left out": y[y >= 0], "signs lost": abs(y)}.get(
        spoil, y
    )
    found = [
        said for said in doubts(Layout(["x"], [y.shape]), y, np.full(y.size, error**2)) if "no value is below" in said
    ]
    near = int(((y >= 0) & (y < error / 2)).sum())
    assert not found or (spoil and negative)
    assert found or not (spoil and near >= 60)
    floor = Floor()
    for part in np.array_split(y, 3):
        floor.add(part, np.array(error))
    assert list(floor.doubts()) == found


@given(st.lists(st.text("aab0ä女 -", max_size=9), min_size=1, max_size=12), st.integers(0, 12))
def test_labels_that_are_much_alike_have_like_letters(labels: list[str], first: int) -> None:
    found = set(of_like_letters(labels[:first], labels))
    assert found >= {(own, other) for own in labels[:first] for other in labels if much_alike(own, other)}
    assert not {*of_like_letters(["female"], ["male", "femininity", "households"])}


def test_small_coefficients_of_variation_are_doubted_where_they_were_given() -> None:
    """A sheet that shows 2 % holds 0.02; errors of half a per cent are none of those."""
    layout, y = Layout(["x"], [(3,)]), np.array([1000.0, 520, -481])
    for size, given_in_percent in ((0.005, True), (0.005, False), (0.02, True)):
        found = [*doubts(layout, y, (size * y) ** 2, in_percent=given_in_percent)]
        assert any("coefficient of variation is below 1 %" in said for said in found) == (
            given_in_percent and size < 0.01
        )


@given(
    marks=st.lists(st.sampled_from([-9.0, -99, -1, -666_666_666]), max_size=3),
    exact=st.booleans(),
    seed=st.integers(0, 99),
)
def test_marks_among_values_are_doubted(marks: list[float], exact: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    errors = np.where(np.arange(20) % 4 == 0, 0.0, 0.1)
    y = np.where(errors == 0, rng.poisson(3, 20), rng.poisson(3, 20) + rng.normal(0, errors))
    places = rng.choice(20, len(marks), replace=False)
    y[places], errors[places] = marks, 0.0 if exact else 0.1
    found = [said for said in doubts(Layout(["x"], [(20,)]), y, errors**2) if "further below 0" in said]
    assert bool(found) == bool(marks)
    if found:
        assert ("a value is" in found[0]) == (len(marks) == 1)
        assert f"cell {(int(min(places)),)}" in found[0]


def test_what_is_doubted_is_part_of_what_is_said_of_an_estimate() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"race": ["total", "a", "b", "c"], "value": [40.0, 20, 21, -9], "std_error": [3.0, 2, 2, 0]}
    )
    problem, y = read_tables(frame)
    assert "further below 0 than noise comes, table 'race', cell (race=c): -9" in repr(estimate(problem, y))


@examples(60)
@given(
    parts=st.lists(st.floats(80, 120), min_size=5, max_size=9),
    noise=st.floats(0.001, 0.08),
    share=st.sampled_from([1.0, 0.2, 3.0]),
    place=st.integers(0, 9),
    seed=st.integers(0, 10**6),
)
def test_a_level_that_may_be_the_total_of_the_others_is_asked_about_or_named(
    parts: list[float], noise: float, share: float, place: int, seed: int
) -> None:
    """Whether it holds all others, or so much less or more that no noise makes up for it."""
    values = [*parts[:place], share * sum(parts), *parts[place:]]
    errors = noise * np.array(values)
    drawn = np.array(values) + errors * np.clip(np.random.default_rng(seed).normal(size=len(values)), -2, 2)
    labels = [f"level {i}" for i in range(len(parts))]
    labels.insert(place, "whole")
    frame = pl.DataFrame({"part": labels, "value": drawn, "std_error": errors})
    try:
        said = "; ".join(read_tables(frame)[0].understood.notes)
    except ValueError as refusal:
        said = str(refusal)
    assert ("'whole'" in said and "counts as many as all others together" in said) == (share == 1)


@pytest.mark.parametrize(
    ("unit", "error", "is_doubtful"),
    [(1000, 1.6, True), (1000, 99.0, True), (1000, 300.0, False), (10, 0.5, True), (1, 0.01, False)],
)
def test_values_that_are_rounded_more_than_their_errors_say_are_doubted(
    tmp_path: Path, unit: int, error: float, is_doubtful: bool
) -> None:
    rows = [f"{level},{unit * (17 + 3 * level)},{error}" for level in range(6)]
    total = unit * sum(17 + 3 * level for level in range(6))
    path = tmp_path / "in.csv"
    path.write_text("\n".join(["age,value,std_error", f"*,{total},{error}", *rows]) + "\n")
    found = [doubt for doubt in read_tables(path)[0].understood.notes if "are multiples of" in doubt]
    assert len(found) == is_doubtful
    if found:
        assert found[0].startswith(
            f"all 7 values are multiples of {unit:,}, and their standard errors at most {error:.2g}"
        )


def test_a_law_finer_than_the_values_is_doubted(tmp_path: Path) -> None:
    """Thousands of SDMX, multiplied out, are no counts to base 5."""
    codes = ["_T", *"ABCDEF"]
    values = [sum(range(11, 17)), *range(11, 17)]
    rows = [f"{code},{value},3" for code, value in zip(codes, values, strict=True)]
    path = tmp_path / "in.csv"
    path.write_text("\n".join(["AGE,OBS_VALUE,UNIT_MULT", *rows]) + "\n")
    problem, _ = read_tables(path, style="sdmx", noise=RandomRounding(5))
    assert any("all 7 values are multiples of 1,000" in doubt for doubt in problem.understood.notes)
    problem, _ = read_tables(path, style="sdmx", noise=Rounding(1000))
    assert not any("multiples" in doubt for doubt in problem.understood.notes)
