"""Labels that people take for one, and ranges that overlap, whatever the writing; sources that are copies."""

import unicodedata
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from constraint_builders.files.doubts import copies
from constraint_builders.files.labels import LabelNumbers, inferred_levels, overlapping
from constraint_builders.sources import SourceTable

WORDS = st.text("aé-'1 b", min_size=1, max_size=6).map(lambda text: f"x{' '.join(text.split())}x")
WRITINGS = {
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "capitals": str.upper,
    "a dash": lambda text: text.replace("-", "–"),
    "an apostrophe": lambda text: text.replace("'", "’"),
    "a space that does not break": lambda text: text.replace(" ", "\u00a0"),
    "two spaces": lambda text: text.replace(" ", "  "),
    "what nobody sees": lambda text: f"{text[0]}\u200b{text[1:]}\u00ad",
    "wide digits": lambda text: text.replace("1", "１"),
}


@given(label=WORDS, writing=st.sampled_from(sorted(WRITINGS)))
def test_one_label_in_two_writings(label: str, writing: str) -> None:
    other = WRITINGS[writing](label)
    assert LabelNumbers(["another", label]).get(other) == 1
    labels = pl.Series("a", [label, "another", other])
    if other == label:
        assert len(inferred_levels(labels, np.arange(3))) == 2
        return
    with pytest.raises(ValueError, match=r"'a' has both .*\(row 7\) and .*\(row 9\)"):
        inferred_levels(labels, np.arange(7, 10))


SPELLINGS = {
    "de": ("unter {b}", "{a} bis unter {b}", "{a} und mehr"),
    "fr": ("moins de {b} ans", "{a} à moins de {b} ans", "{a} ans et plus"),
    "es": ("menos de {b} años", "{a} a menos de {b} años", "{a} y más"),
    "en": ("under {b}", "{a} to {b} years", "{a} and over"),
    "k": ("<{b}k", "{a}-{b}k", "{a}k+"),
    "k, written out": ("<{b}k", "{a}-{b}k", "{a}000+"),
    "nl": ("onder {b}", "{a} tot {b}", "{a} en ouder"),
}


@given(
    language=st.sampled_from(sorted(SPELLINGS)),
    cuts=st.lists(st.integers(1, 99), min_size=2, max_size=6, unique=True).map(sorted),
)
@example(language="k, written out", cuts=[1, 2])
def test_ranges_overlap_or_lie_side_by_side(language: str, cuts: list[int]) -> None:
    below, between, above = SPELLINGS[language]
    levels = [below.format(b=cuts[0]), above.format(a=cuts[-1])]
    levels += [between.format(a=a, b=b) for a, b in pairwise(cuts)]
    assert overlapping(levels) is None
    assert overlapping([*levels, below.format(b=cuts[-1] + 1)]) is not None
    assert overlapping([*levels, between.format(a=cuts[0] - 1, b=cuts[1] + 1)]) is not None
    if not language.startswith("k") and cuts[1] - cuts[0] > 1:
        assert overlapping([*levels, str(cuts[0] + 1)]) is not None


@given(
    values=st.lists(st.integers(-99, 999), min_size=1, max_size=5),
    error=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    changed=st.booleans(),
)
def test_copies_are_told_from_surveys(values: list[int], error: float, changed: bool) -> None:
    y, v = np.array(values, float), np.full(len(values), error**2)
    other = y + changed * (np.arange(len(values)) == 0)
    said = list(copies([[SourceTable("A", y, v), SourceTable("B", other, v)]]))
    by_chance = (1 / (2 * error * np.sqrt(np.pi))) ** len(values) if error == 30.0 else 1.0
    assert bool(said) == (not changed and by_chance <= 1e-3)
