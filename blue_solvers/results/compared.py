"""Lines of published tables compared, between lines or between places, with the covariance that they have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from scipy import sparse

from blue_solvers.results.published_answers import Lines, line_sums, read_lines, whole_where_exact, with_bounds
from blue_solvers.results.store import Progress, reported
from blue_solvers.results.stored import StoredResult
from blue_solvers.uncertainty.ranks import rank_intervals
from blue_solvers.uncertainty.ratios import ratio_intervals
from constraint_builders.arrays import Float
from constraint_builders.geography import Entities


class Pairs:
    """Two quantities for every place: a line there, and another line there, or a line at another place.

    Parameters
    ----------
    result : StoredResult
    line, other_line : str
    places : Entities
    other : Entities, optional
        One place, of which the other line is; by default of each place itself.

    Attributes
    ----------
    estimates : ndarray, (P, 2)
    """

    def __init__(
        self, result: StoredResult, line: str, other_line: str, places: Entities, other: Entities | None = None
    ) -> None:
        self.lines = read_lines(result, [line, other_line])
        if len(self.lines.lines) != 2:
            raise ValueError(f"{line!r} or {other_line!r} is a table: give lines of it, such as 'P12_003N'")
        self.names, self._other = list(places.names), None
        if other is not None:
            self._other = _number_of(other.names[0], places)
            places = _with(places, other)
        self._sums, self._all = line_sums(result, self.lines, places), places
        first, second = self._sums.estimates[:, 0], self._sums.estimates[:, 1]
        second = second if self._other is None else np.full(first.size, second[self._other])
        self.estimates = np.stack([first, second], axis=1)[: len(self.names)]

    def covariances(self, progress: Progress | None) -> Float:
        """Covariance of the two of every place, (P, 2, 2)."""
        return np.stack(list(self._covariances(progress)))

    def _covariances(self, progress: Progress | None) -> Iterator[Float]:
        if self._other is None:
            yield from self._sums.covariances(progress)
            return
        for number in reported(self.names, progress):
            yield self._sums.covariance([number, self._other])[np.ix_([0, 3], [0, 3])]

    def keys(self) -> dict[str, list[str]]:
        """What each pair is: place, line, and what it is compared with."""
        line, other = self.lines.lines
        count = len(self.names)
        others = self.names if self._other is None else [self._all.names[self._other]] * count
        own = {"geoid": self.names, "line": [line.code] * count}
        return own | {"other_geoid": others, "other_line": [other.code] * count}

    def confidence(self) -> list[str]:
        """The lower confidence of the two lines, for every place."""
        return [_lower(self.lines)] * len(self.names)


def differences_frame(pairs: Pairs, level: float, progress: Progress | None = None) -> pl.DataFrame:
    """First less second: keys, ``estimate``, ``std_error``, ``lower``, ``upper`` and ``confidence``."""
    V = pairs.covariances(progress)
    spread = np.sqrt(np.maximum(V[:, 0, 0] - V[:, 0, 1] - V[:, 1, 0] + V[:, 1, 1], 0))
    estimate, std_error = whole_where_exact(pairs.estimates[:, 0] - pairs.estimates[:, 1], spread)
    values = with_bounds(estimate, std_error, level)
    return pl.DataFrame(pairs.keys() | values | {"confidence": pairs.confidence()})


def ratios_frame(pairs: Pairs, level: float, progress: Progress | None = None) -> pl.DataFrame:
    """First over second: keys, ``estimate``, ``lower``, ``upper`` and ``confidence``.

    Bounds are null where the second is not far enough from 0 to bound the ratio, an estimate where it is 0.
    """
    V = pairs.covariances(progress)
    for i in (0, 1):
        V[:, i, i] = np.maximum(V[:, i, i], 0)  # 0 may come out as -1e-20
    exact = [whole_where_exact(pairs.estimates[:, i], np.sqrt(V[:, i, i])) for i in (0, 1)]
    (first, _), (second, _) = exact  # what is divided by may be known to be 0
    ratio, lower, upper = ratio_intervals(first, second, V, level)
    values = {"estimate": ratio, "lower": lower, "upper": upper}
    finite = [pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name) for name in values]
    frame = pl.DataFrame(pairs.keys() | values | {"confidence": pairs.confidence()})
    return frame.with_columns(finite)


def ranks_frame(result: StoredResult, line: str, places: Entities, level: float) -> pl.DataFrame:
    """Places by a line, the largest first: estimates, ``rank``, and the ranks that it may have."""
    lines = read_lines(result, [line])
    if len(lines.lines) != 1:
        raise ValueError(f"{line!r} is a table: give a line of it, such as {lines.lines[0].code!r}")
    sums = line_sums(result, lines, places)
    covariance = sums.covariance(range(len(places.names)))
    estimate, std_error = whole_where_exact(sums.estimates[:, 0], np.sqrt(np.maximum(covariance.diagonal(), 0)))
    rank, first, last = rank_intervals(estimate, covariance, level)
    columns = {
        "geoid": list(places.names),
        "line": [lines.lines[0].code] * rank.size,
        "estimate": estimate,
        "std_error": std_error,
        "rank": rank,
        "rank_from": first,
        "rank_to": last,
        "confidence": [_lower(lines)] * rank.size,
    }
    return pl.DataFrame(columns).sort("rank", "geoid")


def _lower(lines: Lines) -> str:
    return max(line.confidence for line in lines.lines)


def _number_of(name: str, places: Entities) -> int:
    """Where a place is, or will be: after the others."""
    return places.names.index(name) if name in places.names else len(places.names)


def _with(places: Entities, other: Entities) -> Entities:
    """Places and one more, unless it is among them."""
    if other.names[0] in places.names:
        return places
    return Entities([*places.names, *other.names], sparse.vstack([places.contains, other.contains]))
