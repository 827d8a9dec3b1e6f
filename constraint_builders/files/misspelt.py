"""Levels that are another one misspelt: few rows have them, and a letter or two are wrong."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from constraint_builders.files.columns import SUMMED_OUT
from constraint_builders.files.labels import plain_label
from constraint_builders.files.naming import shown
from constraint_builders.files.numbers import read_labels
from constraint_builders.files.source import Source

MOST_RARE = 200  # labels that are compared with all others
SHORTEST, LEAST_ALIKE = 4, 0.8
_DIGITS = re.compile(r"[0-9]+")


def misspelt(source: Source, name: str) -> str:
    """A question about a level that few rows of a column have and that is much like another; empty without one."""
    labels = read_labels(source.frame[name]).str.strip_chars()
    times = {str(label): n for label, n in labels.value_counts(sort=True).iter_rows() if label != SUMMED_OUT}
    rare = [label for label in reversed(times) if times[label] == 1 or 2 * times[label] <= max(times.values())]
    pairs = ((label, other) for label in rare[:MOST_RARE] for other in times if times[label] <= times[other])
    label, other = min(
        (own for own in pairs if much_alike(*own)), key=lambda own: (times[own[0]], own), default=("", "")
    )
    if not label:
        return ""
    row = source.row_of(labels == label)
    seldom = "occurs once" if times[label] == 1 else f"occurs {times[label]} times"
    return f"{shown(label)} in column {name!r}, first in row {row}, {seldom}: is it {shown(other)}?"


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
