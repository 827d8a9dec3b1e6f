"""Around a line of a published table that is hardly known the smallest group that is: ages together, or a line above.

What is said of a group has the covariance of its lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from blue_solvers.results.published_answers import judged, line_sums, published_of, read_lines
from blue_solvers.results.stored import StoredResult
from constraint_builders.files.published_tables import PublishedTable
from constraint_builders.geography import Geoids

IN_ORDER = ("age", "hhage", "elderly")  # variables of whose levels neighbours are a group: ages
KNOWN_TO = 0.1


@dataclass(frozen=True)
class KnownGroup:
    """Lines of one published table at one place, together.

    Attributes
    ----------
    codes, labels : tuple of str
        Of neighbouring lines, in order, or of one.
    estimate, std_error : float
    """

    codes: tuple[str, ...]
    labels: tuple[str, ...]
    estimate: float
    std_error: float

    def __str__(self) -> str:
        ends = (self.codes[0], self.codes[-1]) if len(self.codes) > 1 else (self.codes[0],)
        labels = dict.fromkeys(map(repr, (self.labels[0], self.labels[-1])))
        return f"{' to '.join(ends)}, {' to '.join(labels)}: {self.estimate:,.0f} ± {self.std_error:,.0f}"


def known_groups(
    result: StoredResult, lines: Sequence[str], geoid: str, known_to: float = KNOWN_TO
) -> list[KnownGroup | None]:
    """For each line the smallest group with it of which the standard error is at most a share of the estimate.

    Parameters
    ----------
    result : StoredResult
    lines : sequence of str
        Of one table, such as ``["P14_003N"]``.
    geoid : str
        The place.
    known_to : float
        The share.

    Returns
    -------
    list of KnownGroup or None
        The line, neighbouring ages with it, or a line of which it is a part, among those that the result tells; None if
        nothing of the table is known so well there.

    Raises
    ------
    ValueError
        As `Result.table`.
    """
    published = published_of(result)
    own = [published.line(line) for line in lines]
    table = published.table(own[0].code.partition("_")[0])
    groups = [list(_groups(table, table.lines.index(line))) for line in own]
    around_them = {number for around in groups for alike in around for group in alike for number in group}
    needed = [number for number in sorted(around_them) if not judged(result, published, [table.lines[number]])[0]]
    found = read_lines(result, [table.codes[number] for number in needed])
    sums = line_sums(result, found, Geoids(result.spine, result.in_part).of([geoid]))
    estimates, covariance = sums.estimates[0], sums.covariance([0])

    def estimated(group: list[int]) -> KnownGroup:
        places = np.searchsorted(needed, group)
        variance = covariance[np.ix_(places, places)].sum()
        codes, labels = (tuple(getattr(table.lines[i], name) for i in group) for name in ("code", "label"))
        return KnownGroup(codes, labels, float(estimates[places].sum()), float(np.sqrt(max(variance, 0.0))))

    def told(alike: list[list[int]]) -> list[KnownGroup]:
        return [estimated(group) for group in alike if set(group) <= set(needed)]

    return [_smallest(map(told, around), known_to) for around in groups]


def _smallest(groups: Iterable[list[KnownGroup]], known_to: float) -> KnownGroup | None:
    """The best known of the first groups of one size of which one is known."""
    for alike in groups:
        known = [group for group in alike if group.std_error <= known_to * abs(group.estimate)]
        if known:
            return min(known, key=lambda group: group.std_error / abs(group.estimate) if group.std_error else 0.0)
    return None


def _groups(table: PublishedTable, number: int) -> Iterator[list[list[int]]]:
    """The groups with a line, by their lines' numbers, those of one size together: few ages first, then lines above."""
    above = table.parents[number]
    beside = [i for i, parent in enumerate(table.parents) if parent == above]
    if not _are_ages(table, beside):
        beside = [number]
    own = beside.index(number)
    for width in range(1, max(len(beside), 2)):
        firsts = range(max(own - width + 1, 0), min(own, len(beside) - width) + 1)
        yield [beside[first : first + width] for first in firsts]
    while above >= 0:
        yield [[above]]
        above = table.parents[above]


def _are_ages(table: PublishedTable, numbers: list[int]) -> bool:
    """Whether lines differ in a variable of `IN_ORDER` alone, each beginning where the one before it ends."""
    levels = [table.lines[i].levels for i in numbers]
    different = {
        name
        for name in dict.fromkeys(name for own in levels for name in own)
        if any(name not in own or (own[name] != levels[0].get(name)).any() for own in levels)
    }
    if len(different) != 1 or not different <= set(IN_ORDER):
        return False
    (name,) = different
    if not all(name in own for own in levels):
        return False
    counted = np.concatenate([np.flatnonzero(own[name]) for own in levels])
    return bool((np.diff(counted) == 1).all())
