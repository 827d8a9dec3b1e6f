"""Published tables answered from a stored result: which it can answer, their lines over any places, and these compared.

What is compared, lines or places, has the covariance that both estimates have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import sparse

from blue_solvers.quantiles import normal_multiple
from blue_solvers.results.place_sums import PlaceSums, sources_at
from blue_solvers.results.store import Progress, reported
from blue_solvers.results.stored import Levels, StoredResult, of_variables
from blue_solvers.uncertainty import normal_intervals
from blue_solvers.uncertainty.ranks import rank_intervals
from blue_solvers.uncertainty.ratios import ratio_intervals
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.files.published_tables import PublishedLine, PublishedTables, product_of, published_tables
from constraint_builders.geography import Entities

NUMBERS = ("estimate", "std_error", "lower", "upper")
SUFFIXES = {"estimate": "", "std_error": "_se", "lower": "_lower", "upper": "_upper"}  # of a line's columns, wide
MOST_NAMED = 3  # lines in a message
RELIABLE = {"high": 10.0, "medium": 30.0}  # percent of an estimate that its standard error is at most; others are low
EXACT_ERROR, EXACT_DUST = 1e-4, 1e-6  # standard error, and distance from a whole number, that are nothing but rounding


@dataclass(frozen=True)
class Lines:
    """Lines of a published table as sums of cells of a result, some of them adding up others.

    Attributes
    ----------
    lines : tuple of PublishedLine
        Those that are asked for.
    paths : tuple of str
        Where they stand in their tables.
    counted : list of Levels, (K,)
        What sums count, in terms of the result's variables.
    told : list of str, (K,)
        The lines whose sums they are.
    adds : ndarray, (lines, K)
        How often a line counts each sum.
    """

    lines: tuple[PublishedLine, ...]
    paths: tuple[str, ...]
    counted: list[Levels]
    told: list[str]
    adds: Float

    @property
    def confidence(self) -> str:
        """The lower confidence of them all."""
        return max(line.confidence for line in self.lines)


def line_sums(result: StoredResult, lines: Lines, places: Entities) -> PlaceSums:
    """Lines of a published table over places; `ValueError` if what is stored does not tell one."""
    levels = np.unique(result.spine.level_of[result.spine.child_counts == 0]).tolist()
    return PlaceSums(result, places, lines.counted, lines.told, levels, lines.adds)


def published_of(result: StoredResult) -> PublishedTables:
    """The published tables of the product that a result is of.

    Raises
    ------
    ValueError
        If its variables are of no product.
    """
    product = product_of(result.schema, result.settings.name)
    if product is None:
        names = ", ".join(map(repr, result.schema.names))
        raise ValueError(f"the variables {names} are of no published product: ask for counts with query")
    return published_tables(product)


def read_lines(result: StoredResult, names: Sequence[str]) -> Lines:
    """The lines of published tables, by the names of these or one by one, that a result can answer.

    Parameters
    ----------
    result : StoredResult
    names : sequence of str
        Such as ``"P12"``, all lines of it, and ``"P12_003N"``, or as `published_name` reads them.

    Raises
    ------
    ValueError
        If there is no such table or line, or the result cannot answer it; the message says why.
    """
    published = published_of(result)
    lines: list[PublishedLine] = []
    for name in names:
        own = published.named(name)
        reason, _ = judged(result, published, own)
        if reason:
            raise ValueError(f"this result cannot answer {str(name).strip().upper()}: {reason}")
        lines += own
    return _as_sums(published, lines, result.schema)


def answerable(result: StoredResult) -> pl.DataFrame:
    """Which published tables a result can answer.

    Returns
    -------
    polars.DataFrame
        Columns ``table``, ``title``, ``lines``, ``unsure`` (how many of these have numbers that nobody confirms: none),
        ``geolevels`` (those of the spine at which every line is stored, others are composed of them) and ``reason``,
        why not, or empty.
    """
    published = published_of(result)
    rows = []
    for table in published.tables.values():
        reason, geolevels = judged(result, published, table.lines)
        unsure = sum(line.confidence != "A" for line in table.lines)
        rows.append((table.name, table.title, len(table.lines), unsure, ", ".join(geolevels), reason))
    columns = ("table", "title", "lines", "unsure", "geolevels", "reason")
    return pl.DataFrame(rows, schema=columns, orient="row")


def long_frame(
    result: StoredResult, lines: Lines, places: Entities, level: float, progress: Progress | None, whole: bool = False
) -> pl.DataFrame:
    """Lines over places, a row for each line of each place, with intervals at a level.

    With `whole` estimates are rounded and, like their bounds, cut at 0, as published counts are.
    """
    sums = line_sums(result, lines, places)
    estimate, std_error = whole_where_exact(sums.estimates.ravel(), sums.std_errors(progress).ravel())
    count = len(places.names)
    keys = {
        "geoid": np.repeat(np.array(places.names), len(lines.lines)).tolist(),
        "line": [line.code for line in lines.lines] * count,
        "label": [line.label for line in lines.lines] * count,
    }
    values = with_bounds(estimate, std_error, level)
    if whole:
        rounding = {"estimate": np.rint, "lower": np.floor, "upper": np.ceil}
        values |= {name: np.maximum(way(values[name]), 0) + 0.0 for name, way in rounding.items()}
    said = {"confidence": [line.confidence for line in lines.lines] * count, "path": [*lines.paths] * count}
    return with_reliability(pl.DataFrame(keys | values | said))


def with_reliability(frame: pl.DataFrame) -> pl.DataFrame:
    """Estimates with ``margin_90``, ``cv`` in percent, null where it is infinite, and ``reliability`` by `RELIABLE`."""
    cv = 100 * pl.col("std_error") / pl.col("estimate").abs()
    percent = pl.when(pl.col("std_error") == 0).then(0.0).when(pl.col("estimate") == 0).then(None).otherwise(cv)
    steps = pl.when(pl.col("cv") <= RELIABLE["high"]).then(pl.lit("high"))
    reliability = steps.when(pl.col("cv") <= RELIABLE["medium"]).then(pl.lit("medium")).otherwise(pl.lit("low"))
    margins = frame.with_columns((pl.col("std_error") * normal_multiple(0.9)).alias("margin_90"), percent.alias("cv"))
    return margins.with_columns(reliability.alias("reliability"))


def with_bounds(estimate: Float, std_error: Float, level: float) -> dict[str, Float]:
    """Columns of estimates, their standard errors, and the bounds of their intervals at a level, (rows,) each."""
    return dict(zip(NUMBERS, (estimate, std_error, *normal_intervals(estimate, std_error, level)), strict=True))


def whole_where_exact(estimate: Float, std_error: Float) -> tuple[Float, Float]:
    """Estimates and standard errors, (n,); what is known exactly is a whole number, without the rounding of sums."""
    whole = np.rint(estimate)
    exact = (std_error <= EXACT_ERROR) & np.isclose(estimate, whole, rtol=1e-13, atol=EXACT_DUST)
    return np.where(exact, whole + 0.0, estimate), np.where(exact, 0.0, std_error)  # + 0.0: no -0


def wide_frame(long: pl.DataFrame) -> pl.DataFrame:
    """A row for each place: ``geoid``, and columns such as ``P12_003N``, its ``_se``, ``_lower`` and ``_upper``."""
    codes = long["line"].unique(maintain_order=True).to_list()
    columns = {"geoid": long["geoid"].to_numpy()[:: len(codes)].tolist()}
    values = {name: long[name].to_numpy().reshape(-1, len(codes)) for name in NUMBERS}
    for number, code in enumerate(codes):
        columns |= {code + suffix: values[name][:, number] for name, suffix in SUFFIXES.items()}
    return pl.DataFrame(columns)


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
            (name,) = other.names
            if name not in places.names:
                places = Entities([*places.names, name], sparse.vstack([places.contains, other.contains]))
            self._other = places.names.index(name)
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

    def frame(self, values: dict[str, Float]) -> pl.DataFrame:
        """What is said of each pair, (P,), between what it is and the lower confidence of its two lines."""
        line, other = self.lines.lines
        count = len(self.names)
        others = self.names if self._other is None else [self._all.names[self._other]] * count
        own = {"geoid": self.names, "line": [line.code] * count}
        keys = own | {"other_geoid": others, "other_line": [other.code] * count}
        return pl.DataFrame(keys | values | {"confidence": [self.lines.confidence] * count})


def differences_frame(pairs: Pairs, level: float, progress: Progress | None = None) -> pl.DataFrame:
    """First less second: keys, ``estimate``, ``std_error``, ``lower``, ``upper`` and ``confidence``."""
    V = pairs.covariances(progress)
    spread = np.sqrt(np.maximum(V[:, 0, 0] - V[:, 0, 1] - V[:, 1, 0] + V[:, 1, 1], 0))
    estimate, std_error = whole_where_exact(pairs.estimates[:, 0] - pairs.estimates[:, 1], spread)
    return pairs.frame(with_bounds(estimate, std_error, level))


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
    return pairs.frame(values).with_columns(finite)


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
        "confidence": [lines.confidence] * rank.size,
    }
    return pl.DataFrame(columns).sort("rank", "geoid")


def _as_sums(published: PublishedTables, lines: Sequence[PublishedLine], schema: Schema) -> Lines:
    """The sums that lines need, those that add up others through these, in terms of a result's variables."""
    parts = [_summed(published, line) for line in lines]
    needed = {own.code: own for part in parts for own in part}
    adds = np.array([[sum(own.code == code for own in part) for code in needed] for part in parts], dtype=float)
    counted = [of_variables(schema, own.levels) for own in needed.values()]
    return Lines(tuple(lines), tuple(map(published.path, lines)), counted, list(needed), adds)


def _summed(published: PublishedTables, line: PublishedLine) -> list[PublishedLine]:
    """The lines of cells that a line adds up, itself if it is one."""
    if not line.adds:
        return [line]
    return [own for code in line.adds for own in _summed(published, published.line(code))]


def judged(result: StoredResult, published: PublishedTables, lines: Sequence[PublishedLine]) -> tuple[str, list[str]]:
    """Why a result cannot answer some lines, or "", and the geolevels at which all are stored."""
    schema, own = result.schema, published.schema
    factors = dict.fromkeys(name for line in lines for part in _summed(published, line) for name in part.levels)
    known = {*schema.names, *(recode.name for recode in schema.recodes)}
    missing = [name for name in factors if name not in known]
    if missing:
        return f"its variables lack {' and '.join(map(repr, missing))}", []
    for name in factors:
        reason = _other_levels(name, schema, own)
        if reason:
            return reason, []
    needed = _as_sums(published, lines, schema)
    variables = dict.fromkeys(name for levels in needed.counted for name in levels)
    sources = {level: sources_at(result, level, needed.counted) for level in result.spine.levels}
    geolevels = [level for level, found in sources.items() if None not in found]
    if geolevels:
        return "", geolevels
    best = min(sources, key=lambda level: sources[level].count(None))
    lacking = [code for code, found in zip(needed.told, sources[best], strict=True) if found is None]
    named = ", ".join(lacking[:MOST_NAMED]) + (
        f" and {len(lacking) - MOST_NAMED} more" if len(lacking) > MOST_NAMED else ""
    )
    finest = " * ".join(name for name in schema.names if name in variables) or "total"
    return f"nothing stored tells {named}: estimate again with --desired {finest!r}, or what measures it", []


def _other_levels(name: str, schema: Schema, published: Schema) -> str:
    """Why a variable is not that of the published tables, or ""; levels that go by number are taken as such."""
    here, there = schema.labels_of(name), published.labels_of(name)
    numbers = tuple(map(str, range(len(there))))
    if here in (there, numbers) or (there == numbers and len(here) == len(there)):
        return ""
    return f"variable {name!r} has the levels {_few(here)} and not {_few(there)}"


def _few(labels: Sequence[str]) -> str:
    return ", ".join(labels[:3]) + (f", ... ({len(labels)})" if len(labels) > 3 else "")
