"""What counts everybody, and what counts some twice, in invented tables: by name, by numbers, and nothing else."""

import re
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema, read_tables
from constraint_builders.files import measurements_frame, read_long_table
from constraint_builders.files.labels import overlapping
from tests.helpers.effort import examples, lengths
from tests.helpers.every import every
from tests.helpers.natural_mistakes import ASKED_ABOUT, READ_AS_TOTALS
from tests.helpers.refused import refuses

SIZES = st.lists(st.integers(2, 4), min_size=1, max_size=2)


def margins(
    counts: np.ndarray, rng: np.random.Generator, error: float, kept: Any = lambda labels: True
) -> pl.DataFrame:
    """Every margin of a table of counts, with noise: columns v0, v1, ..., value and std_error; ``*`` where summed."""
    rows = []
    for cell in product(*(["*", *range(n)] for n in counts.shape)):
        labels = ["*" if i == "*" else f"{'abcdefgh'[i]}{axis}" for axis, i in enumerate(cell)]
        total = counts[tuple(slice(None) if i == "*" else i for i in cell)].sum()
        if kept(labels):
            rows.append([*labels, float(total + error * rng.standard_normal()), error])
    names = [f"v{axis}" for axis in range(counts.ndim)]
    return pl.DataFrame(rows, [*names, "value", "std_error"], orient="row")


def same(one: tuple, other: tuple) -> bool:
    return (
        one[0].observed == other[0].observed
        and np.array_equal(one[1], other[1])
        and np.array_equal(one[0].variances, other[0].variances)
    )


def test_every_word_for_a_total_is_read_or_asked_about() -> None:
    frame = margins(np.array([520, 490]), np.random.default_rng(0), 2.0)
    expected = read_tables(frame)
    for word in READ_AS_TOTALS:
        assert same(read_tables(frame.with_columns(pl.col("v0").replace("*", word))), expected), word
    for word in ASKED_ABOUT:
        with pytest.raises(ValueError, match=re.escape(f"does {word!r} count everybody?")):
            read_tables(frame.with_columns(pl.col("v0").replace("*", word)))


@examples(60, 6)
@given(data=st.data(), sizes=SIZES, seed=st.integers(0, 99))
def test_totals_of_any_name_are_totals(data: st.DataObject, sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = margins(rng.poisson(80, sizes), rng, 2.0)
    word = data.draw(st.sampled_from(READ_AS_TOTALS))
    word = data.draw(st.sampled_from([word, word.upper(), f" {word}:", f"({word})"]) if word != "_T" else st.just(word))
    assert same(
        read_tables(frame.with_columns(pl.exclude("value", "std_error").replace("*", word))), read_tables(frame)
    )


@examples(40, 5)
@given(label=st.sampled_from(ASKED_ABOUT), sizes=SIZES, seed=st.integers(0, 99))
def test_what_may_be_a_total_is_asked_about_and_is_what_is_said(label: str, sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = margins(rng.poisson(80, sizes), rng, 2.0)
    called = frame.with_columns(pl.col("v0").replace("*", label))
    refuses(r"column 'v0': does .* count everybody\?", read_tables, called)
    assert same(read_tables(called, total=["*", label]), read_tables(frame))
    problem, _ = read_tables(called, total="*")
    assert set(problem.schema.labels_of("v0")) == {label, *read_tables(frame)[0].schema.labels_of("v0")}


@examples(60, 6)
@given(sizes=st.lists(st.integers(3, 6), min_size=1, max_size=2), seed=st.integers(0, 999), whole=st.booleans())
def test_a_total_of_its_own_name_is_asked_about(sizes: list[int], seed: int, whole: bool) -> None:
    """Whether the total is not said otherwise, or stands beside it once more."""
    rng = np.random.default_rng(seed)
    frame = margins(rng.integers(400, 900, sizes), rng, 4.0)
    totals = frame.filter(pl.col("v0") == "*").with_columns(v0=pl.lit("Ruritania"))
    parts = frame if whole else frame.filter(pl.col("v0") != "*")
    with pytest.raises(ValueError, match=r"column 'v0': 'Ruritania' (counts as many|is counted twice)"):
        read_tables(pl.concat([parts, totals]).sample(fraction=1, shuffle=True, seed=seed))


@examples(60, 6)
@given(n=st.integers(4, 8), seed=st.integers(0, 999), data=st.data())
def test_a_subtotal_beside_the_total_is_asked_about(n: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    parts = data.draw(st.sets(st.integers(0, n - 1), min_size=2, max_size=n - 2))
    counts = rng.integers(400, 900, [n, 2])
    counts[:, 1] += 37 * np.arange(n)
    frame = margins(counts, rng, 3.0)
    inside = counts[sorted(parts)].sum(axis=0)
    assume(abs(counts - inside).min() > 60)  # no level of as many
    rows = [("South", label, float(count), 3.0) for label, count in (("a1", inside[0]), ("b1", inside[1]))]
    rows.append(("South", "*", float(inside.sum()), 3.0))
    with pytest.raises(ValueError, match="column 'v0': 'South' is counted twice"):
        read_tables(pl.concat([frame, pl.DataFrame(rows, frame.schema, orient="row")]))


@examples(60, 6)
@given(sizes=st.lists(st.integers(2, 5), min_size=2, max_size=4), other=st.integers(1, 3), seed=st.integers(0, 999))
def test_a_hierarchy_in_one_column_is_asked_about(sizes: list[int], other: int, seed: int) -> None:
    """Told by codes in any order, or by parts that stand below what they add up to."""
    rng = np.random.default_rng(seed)
    rows = []
    for whole, parts in enumerate(sizes):
        counts = rng.integers(400, 900, (parts, other))
        named = [("ABCD"[whole], counts.sum(axis=0)), *((f"{'ABCD'[whole]}{i}", own) for i, own in enumerate(counts))]
        noise = 2 * rng.standard_normal((len(named), other))
        assume((abs(noise[0] - noise[1:].sum(axis=0)) < 3 * 2 * np.sqrt(len(named))).all())  # else they do not add up
        for (label, own), errors in zip(named, noise, strict=True):
            rows += [(label, f"b{j}", float(n + e), 2.0) for j, (n, e) in enumerate(zip(own, errors, strict=True))]
    frame = pl.DataFrame(rows, ["v", "w", "value", "std_error"], orient="row")
    with pytest.raises(ValueError, match=r"column 'v': 'A' counts as many as 'A0' and \d more together"):
        read_tables(frame.sample(fraction=1, shuffle=True, seed=seed))
    plain = {label: f"level {place}" for place, label in enumerate(frame["v"].unique(maintain_order=True))}
    if other == 3:
        with pytest.raises(ValueError, match=r"column 'v': 'level \d+' counts as many as 'level \d+' and \d more"):
            read_tables(frame.with_columns(pl.col("v").replace(plain)))
    assert read_tables(frame, total="*")[0].schema.names == ("v", "w")


@lengths("number", 40, 200)
def test_sums_come_about_by_chance_and_are_not_taken_for_subtotals(number: int) -> None:
    """Of tables, many of small whole numbers, one in a hundred at most is asked about."""
    asked = 0
    for seed in range(number):
        rng = np.random.default_rng(seed)
        counts = rng.integers(0, 10 ** rng.integers(1, 4), (rng.integers(3, 25), rng.integers(1, 3)))
        error = float(rng.choice([0.0, 0.5, 3.0]))
        labels = [(f"a{i}", f"b{j}") for i in range(counts.shape[0]) for j in range(counts.shape[1])]
        noisy = counts.ravel() + np.round(error * rng.standard_normal(counts.size))
        frame = pl.DataFrame(
            [(*own, float(y), error) for own, y in zip(labels, noisy, strict=True)],
            ["v", "w", "value", "std_error"],
            orient="row",
        )
        try:
            read_tables(frame)
        except ValueError:  # nothing else can be wrong with it
            asked += 1
    assert asked <= number / 100


@lengths("number", 30, 150)
def test_levels_are_no_totals_whatever_they_count(number: int) -> None:
    """Of tables with totals none is asked about, though one level counts as many as the others together."""
    for seed in range(number):
        rng = np.random.default_rng(seed)
        counts = rng.integers(1, 3000, rng.integers(3, 7, rng.integers(1, 3)))
        counts[0] = counts[1:].sum(axis=0)
        read_tables(margins(counts, rng, 10.0 ** rng.uniform(-1, 2)))


def test_noise_is_not_taken_for_a_sum() -> None:
    """Nor is one of two alike beside a small one, nor counts of which little is known."""
    for values, error in (([510, 505, 3], 5.0), ([100, 60, 20], 10.0), ([3, 2, 1], 1.0), ([0, 0, 0], 0.0)):
        frame = pl.DataFrame({"v": ["a", "b", "c"], "value": values, "std_error": [error] * 3})
        assert read_tables(frame)[0].schema.labels_of("v") == ("a", "b", "c")


@examples(60, 6)
@given(sizes=SIZES, seed=st.integers(0, 999), label=st.sampled_from(["Source: X", "Note", "z"]))
def test_rows_that_say_nothing_are_refused_where_nothing_is_left_for_them(
    sizes: list[int], seed: int, label: str
) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(300, sizes)
    frame = margins(counts, rng, 1.0)
    names = [f"v{axis}" for axis in range(counts.ndim)]
    others = [[*["*"] * (counts.ndim - 1)]] if counts.ndim == 1 else [["*"], *[[f"{c}1"] for c in "abcd"[: sizes[1]]]]
    footer = pl.DataFrame([[label, *own, None, None] for own in others], frame.schema, orient="row")
    with pytest.raises(ValueError, match=rf"row {frame.height + 1}, '{label}' in column 'v0', has neither a value"):
        read_tables(pl.concat([frame, footer]))
    problem, _ = read_tables(pl.concat([frame, footer]), suppressed="")
    assert problem.schema.names == tuple(names)
    assert int(problem.unmeasured.sum()) == len(others)
    hidden = frame.with_columns(
        pl.when(pl.col("v0") == "a0").then(None).otherwise(pl.col("value", "std_error")).name.keep()
    )
    assert int(read_tables(hidden)[0].unmeasured.sum()) == len(others)  # which leaves 300 for it


SPELLINGS = [
    lambda low, high: f"{low}-{high}" if high else f"{low}+",
    lambda low, high: f"{low} to {high} years" if high else f"{low} years and over",
    lambda low, high: (f"Under {high + 1}" if not low else f"{low} – {high}") if high else f"{low} or older",
    lambda low, high: f"${low:,} to ${high:,}" if high else f"${low:,} or more",
]


@examples(80, 8)
@given(cuts=st.sets(st.integers(1, 3000), min_size=2, max_size=8), spelling=st.sampled_from(SPELLINGS), data=st.data())
def test_ranges_of_which_one_holds_others_are_found(cuts: set[int], spelling: Any, data: st.DataObject) -> None:
    starts = [0, *sorted(cuts)]
    ends = [*(start - 1 for start in starts[1:]), None]
    assume(all(end is None or end > start for start, end in zip(starts, ends, strict=True)))
    levels = [spelling(*own) for own in zip(starts, ends, strict=True)]
    assert overlapping(levels) is None
    first = data.draw(st.integers(0, len(starts) - 2))
    last = data.draw(st.integers(first + 1, len(starts) - 1))
    subtotal = spelling(starts[first], ends[last])
    assert subtotal in overlapping([*levels, subtotal])


def test_intervals_in_brackets_are_ranges() -> None:
    assert overlapping(["[0, 5)", "[5, 18)", "[18,99]"]) is None
    assert overlapping(["[0,18)", "[0,5)"]) == ("[0,18)", "[0,5)")


@every(
    "levels",
    [["1-1", "1-2", "2-1"], ["2020-01", "2020-02"], ["0-18", "18-65", "65+"], ["a", "5"], ["(0,18]", "(18,65]", "65"]],
)
def test_codes_and_ends_are_no_overlap(levels: list[str]) -> None:
    assert overlapping(levels) is None


def test_tables_that_are_named_ask_too() -> None:
    frame = pl.DataFrame(
        {"table": "sex", "sex": ["Ruritania", "a", "b"], "value": [1000, 600, 402], "variance": [9.0] * 3}
    )
    refuses("'Ruritania' counts as many", read_long_table, frame)


def test_arrays_of_labels_ask_too() -> None:
    xarray = pytest.importorskip("xarray")
    for total, words in (
        ("Total", "has the label 'Total'"),
        ("T", "has the label 'T'"),
        ("Ruritania", "counts as many"),
    ):
        labels = {"sex": [total, "a", "b"]}
        source = xarray.Dataset(
            {
                "n": xarray.DataArray([1000.0, 600, 402], labels, ["sex"]),
                "n_se": xarray.DataArray([3.0] * 3, labels, ["sex"]),
            }
        )
        refuses(words, read_tables, source)


@pytest.mark.few(0)
def test_numbers_that_have_nothing_to_do_with_one_another_are_not_taken_for_sums() -> None:
    """Of 300 problems whose numbers contradict one another, as the test of the fit says, 3 at most are asked about."""
    complaints = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        schema = Schema({"sex": ["f", "m"], "age": ["young", "old", "older"]})
        names = ["sex * age", *(name for name in ("total", "sex", "age") if rng.random() < 0.6)]
        problem = Problem(schema, {name: float(rng.uniform(1, 9)) for name in names})
        frame = measurements_frame(problem, rng.normal(20, 5, problem.observed.size)).drop("table")
        try:
            assert len(read_tables(frame)[0].observed.names) == len(names)
        except ValueError as error:
            complaints.append(str(error))
    assert all("counts as many" in complaint for complaint in complaints)
    assert len(complaints) <= 3
