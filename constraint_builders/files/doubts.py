"""What is doubtful about numbers that were measured, and no reason to refuse them: said wherever they are shown.

A level that few rows have, and that is much like another, may be that one misspelt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Layout
from constraint_builders.files.columns import SUMMED_OUT
from constraint_builders.files.labels import plain_label
from constraint_builders.files.naming import shown
from constraint_builders.files.numbers import read_labels
from constraint_builders.files.source import Source
from constraint_builders.sources import SourceTable

MOST_RARE = 200  # labels that are compared with all others
SHORTEST, LEAST_ALIKE = 4, 0.8
LETTERS = 64  # that are told apart, some of them by chance not
_DIGITS = re.compile(r"[0-9]+")
DEVIATIONS = 6.0  # so far below 0 noise does not come
ROUNDING = 1e-9  # of the largest value
NEAR = 0.5  # standard errors from 0, where noise goes up and down alike
SAME_BY_CHANCE = 1e-3  # probability of equal values of two sources below which one is called a copy
FAR = 10  # times a usual standard error
MANY_ROUND = 6  # different values that end in as many zeros, which by chance happens once in a million
MANY_NEAR = 60  # values just above 0 beside which some lie just below


class Floor:
    """Whether values with noise end at 0, as they do where negative ones were made 0, or were left out.

    Of values within half a standard error of 0 nearly 1 in 5 is below, if their counts are up to 3 standard errors:
    that none of 60 is has a probability of 4e-6. Larger counts hardly come so near.
    """

    def __init__(self) -> None:
        self._near = 0
        self._is_crossed = False

    def add(self, values: NDArray[Any], errors: Float) -> None:
        """Take values, (...), and their standard errors, above 0, that broadcast to them."""
        self._is_crossed = self._is_crossed or bool((values < 0).any())
        if not self._is_crossed:
            self._near += int((values < NEAR * errors).sum())

    def doubts(self) -> Iterator[str]:
        """That they do, if they do."""
        if self._near >= MANY_NEAR and not self._is_crossed:
            yield (
                f"no value is below 0, and {self._near:,} are within half a standard error above it: where negative "
                "ones were made 0, sums are too large"
            )


def doubts(
    layout: Layout, values: Float, variances: Float, ends_at_0: bool = False, in_percent: bool = False
) -> Iterator[str]:
    """What is doubtful about values over a layout, (n,), and their variances, infinite where nothing was measured.

    Coefficients of variation (`in_percent`) that are all below 1 may be shares, as sheets hold what they show in per
    cent. Of values that a law publishes, which end at 0, it is not doubtful that they do, nor are columns swapped.
    """
    known = np.flatnonzero(np.isfinite(variances))
    y, errors = values[known], np.sqrt(variances[known])
    noisy = errors > 0
    if noisy.any() and not ends_at_0 and (abs(y[noisy]) < errors[noisy]).all():
        yield "every value is smaller than its standard error: are the columns swapped?"
    if in_percent and noisy.any() and (errors[noisy] < 0.01 * abs(y[noisy])).all():
        yield "every coefficient of variation is below 1 %: does 0.02 stand for 2 %, as in sheets that show per cents?"
    yield from _swapped(layout, known, y, errors)
    yield from _coarser(y[noisy], errors[noisy])
    yield from _mostly_exact(layout, values, variances)
    below = known[y < -DEVIATIONS * errors - ROUNDING * y.max(initial=0.0)]
    if below.size:
        many = f"{below.size:,} values are" if below.size > 1 else "a value is"
        first = f"{layout.describe(int(below[0]))}: {values[below[0]]:,.6g}"
        yield f"{many} further below 0 than noise comes, {first}; is it a mark for what was not published?"
    if ends_at_0:
        return
    floor = Floor()
    floor.add(y[noisy], errors[noisy])
    yield from floor.doubts()


def _coarser(y: Float, errors: Float) -> Iterator[str]:
    """That values, (k,), are rounded to tens, hundreds or more, and their errors say far less."""
    different = np.unique(y[y != 0])
    if different.size < MANY_ROUND or (different != np.round(different)).any():
        return
    unit = 1.0
    while (different % (10 * unit) == 0).all():
        unit *= 10
    if unit > 1 and errors.max() < unit / FAR:
        yield (
            f"all {y.size:,} values are multiples of {unit:,.0f}, and their standard errors at most "
            f"{errors.max():.2g}: rounding alone makes larger ones"
        )


def _swapped(layout: Layout, known: Index, y: Float, errors: Float) -> Iterator[str]:
    """That one value, of (k,), is as large as the errors of others, and its error far larger, if no other is so too."""
    far = (errors > FAR * np.median(errors[errors > 0])) if errors.any() else errors > 0
    others = errors[~far & (errors > 0)]
    if far.sum() == 1 and others.size:
        (i,) = np.flatnonzero(far)
        if others.min() <= abs(y[i]) <= others.max() and abs(y[i]) < errors[i]:
            yield (
                f"{layout.describe(int(known[i]))}: {y[i]:,.6g} is smaller than its standard error, {errors[i]:,.6g}, "
                "which is far above all others: are the two swapped?"
            )


def _mostly_exact(layout: Layout, values: Float, variances: Float) -> Iterator[str]:
    """That most values of a table, of all (n,), are exact, and some are not; 0 may well be."""
    for index in range(len(layout.names)):
        own = layout.block(index)
        exact = np.flatnonzero((variances[own] == 0) & (values[own] != 0))
        noisy = int(((variances[own] > 0) & np.isfinite(variances[own])).sum())
        if exact.size > noisy > 0:
            first = layout.describe(own.start + int(exact[0]))
            yield (
                f"{exact.size:,} values of a table are exact, {first} first, and {noisy:,} not: were errors that are "
                "not known written as 0?"
            )


def copies(tables: Iterable[Sequence[SourceTable]]) -> Iterator[str]:
    """Sources, of several tables, whose values have noise and are the same in every cell that both measured."""
    chance: dict[tuple[str, str], float] = {}
    cells: dict[tuple[str, str], int] = {}
    for given in tables:
        for one, other in combinations(given, 2):
            pair = one.source, other.source
            both = (one.variances > 0) & (other.variances > 0) & np.isfinite(one.variances + other.variances)
            y = one.values[both]
            unit = 1.0 if (y == np.rint(y)).all() else 0.01
            with np.errstate(under="ignore"):
                by_chance = np.minimum(1.0, unit / np.sqrt(2 * np.pi * (one.variances + other.variances)[both])).prod()
            is_same = bool((y == other.values[both]).all())
            chance[pair] = chance.get(pair, 1.0) * float(by_chance) if is_same else np.inf
            cells[pair] = cells.get(pair, 0) + int(both.sum())
    for (one_name, other_name), own in chance.items():
        if own <= SAME_BY_CHANCE:
            yield (
                f"sources {one_name!r} and {other_name!r} have the same values in all {cells[one_name, other_name]:,} "
                "cells that both measured: is one a copy?"
            )


def copied_inputs(inputs: Mapping[str, tuple[Layout, Float, Float]]) -> tuple[str, ...]:
    """Inputs of a joint estimate, each a layout, values and variances, (n,), of which one is a copy of another."""
    given: dict[tuple[Any, int], list[SourceTable]] = {}
    for name, (layout, y, variances) in inputs.items():
        for table in layout.names:
            place = layout.slice(table)
            own = SourceTable(name, y[place], variances[place])
            given.setdefault((table, own.values.size), []).append(own)
    return tuple(copies(given.values()))


def misspelt(source: Source, name: str, beside: Sequence[str] | None = None) -> str:
    """A question about a level that few rows have and that is much like another; empty without one.

    Where rows may be absent, `beside` names the other columns that say what a row counts: the other level has twice the
    rows then, and none of the same cells, which would be given twice.
    """
    labels = read_labels(source.frame[name]).str.strip_chars()
    times = {str(label): n for label, n in labels.value_counts(sort=True).iter_rows() if label != SUMMED_OUT}
    rare = [label for label in reversed(times) if times[label] == 1 or 2 * times[label] <= max(times.values())]
    often = 1 if beside is None else 2
    alike = of_like_letters(rare[:MOST_RARE], [*times])
    pairs = (own for own in alike if often * times[own[0]] <= times[own[1]])

    def may_be(label: str, other: str) -> bool:
        if not much_alike(label, other):
            return False
        if not beside:  # no row may be absent, or nothing else tells rows apart
            return beside is None
        rows, others = (source.frame.filter(labels == own).select(beside) for own in (label, other))
        return rows.join(others, on=beside, how="semi", nulls_equal=True).is_empty()

    label, other = min((own for own in pairs if may_be(*own)), key=lambda own: (times[own[0]], own), default=("", ""))
    if not label:
        return ""
    row = source.row_of(labels == label)
    seldom = "occurs once" if times[label] == 1 else f"occurs {times[label]} times"
    return f"{shown(label)} in column {name!r}, first in row {row}, {seldom}: is it {shown(other)}?"


def of_like_letters(labels: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of labels and others that are `much_alike`, and some that are not: by how often each has a letter."""
    numbers = [[ord(letter) % LETTERS for letter in _DIGITS.sub("", plain_label(own))] for own in (*labels, *others)]
    counts = np.zeros((len(numbers), LETTERS), dtype=np.int16)
    np.add.at(
        counts,
        (np.repeat(np.arange(len(numbers)), [*map(len, numbers)]), np.array([*chain(*numbers)], dtype=np.intp)),
        1,
    )
    theirs, sizes = counts[len(labels) :], counts[len(labels) :].sum(axis=1)
    for label, own in zip(labels, counts, strict=False):
        most = 2 * np.minimum(own, theirs).sum(axis=1) / np.maximum(own.sum() + sizes, 1)
        for place in np.flatnonzero((most >= LEAST_ALIKE) & (abs(own.sum() - sizes) < 2)).tolist():
            yield label, others[place]


def much_alike(label: str, other: str) -> bool:
    """Whether one of two labels may be the other misspelt: some letters with one or two wrong, and no other number.

    Examples
    --------
    >>> much_alike("femal", "female"), much_alike("male", "female"), much_alike("15-19 years", "10-14 years")
    (True, False, False)
    """
    words = [_DIGITS.sub("", plain_label(own)) for own in (label, other)]
    if label == other or min(map(len, words)) < SHORTEST or _DIGITS.findall(label) != _DIGITS.findall(other):
        return False
    alike = SequenceMatcher(None, words[0], words[1], autojunk=False)
    return abs(len(words[0]) - len(words[1])) < 2 and alike.ratio() >= LEAST_ALIKE
