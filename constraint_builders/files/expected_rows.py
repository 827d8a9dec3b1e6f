"""Measurements of a spine compared with what there should be: geounits, partitions, rows, and their variances.

A geounit that is an only child may be bypassed: it is not measured, and its loss is its parent's, whose variances are
smaller. With what loss they are is not written down: all of the level above, or that of the same table.

Measurements of one table that are averaged as they are read are tested against one another. A new measurement x of a
cell, of variance v, beside the weighted mean m of those before, of variance u: (x - m)^2 / (u + v) is a chi-square of
one degree of freedom under Gaussian noise, independent of the mean of all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import polars as pl
import scipy
from numpy.typing import NDArray

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table
from constraint_builders.files.doubts import Floor
from constraint_builders.files.measurement_files import LEVEL_SUFFIX, MEASUREMENTS, geocodes_in, level_folders
from constraint_builders.files.reading_report import Remark
from constraint_builders.files.settings import Settings

ROUNDING = 1e-5  # relative; files hold variances in 32 bits
SHRINKING = 1 / 6  # variances of discrete laws are smaller by so much at most
NEARLY_CONTINUOUS = 1.0  # the variance from which that of the discrete Gaussian is its parameter
MOST_BYPASSED = {"zcdp": 1, "pure": 3}  # children of one parent that may be
DOUBTFUL = 1e-4  # probability under all tables below which they do not agree
MOST_NAMED = 100  # geocodes in a message
MOST_DEVIATIONS = 20.0  # so far from zero no noise comes, Laplace's tails over 10^9 counts included
ADVICE = "one is missing, counted twice or in other units, or within= should leave the level out"


def only_children_below(spine: Spine) -> Index:
    """How many levels directly below each geounit have one geounit each, (N,); those that are not there have one."""
    child = np.full(spine.size, -1)
    children = np.flatnonzero(spine.parent >= 0)
    child[spine.parent[children]] = children
    found = np.zeros(spine.size, dtype=np.intp)
    for members in reversed(spine.members):
        parents = members[child[members] >= 0]
        below = child[parents]
        left_out = spine.level_of[below] - spine.level_of[parents] - 1
        found[parents] = left_out + np.where(spine.child_counts[parents] == 1, 1 + found[below], 0)
    return found


class ExpectedRows:
    """The rows of one geolevel as they are read, beside those that the settings expect.

    Parameters
    ----------
    settings : Settings
    geolevel : str
    geocodes : polars.Series of str, (G,)
    spine : Spine
    only_children : ndarray of int, (N,)
        As `only_children_below` gives it.
    """

    def __init__(
        self, settings: Settings, geolevel: str, geocodes: pl.Series, spine: Spine, only_children: Index
    ) -> None:
        self._geolevel, self._geocodes = geolevel, geocodes
        self._power = 1 if settings.budget.measure == "zcdp" else 2
        self._is_discrete, self._is_laplace = settings.noise.startswith("discrete"), settings.noise.endswith("laplace")
        number = spine.level_index(geolevel)
        members = spine.members[number]
        above = spine.parent[members]
        most = MOST_BYPASSED[settings.budget.measure]
        self._is_measured = np.where(above < 0, geolevel == settings.geolevels[0], spine.child_counts[above] > most)
        self._only_children = only_children[members]
        losses = settings.budget.losses
        self._losses = [_by_table(settings, losses.get(level, {})) for level in spine.levels[number:]]
        self._variances = _by_table(settings, settings.variances().get(geolevel, {}))
        elsewhere = {name for own in losses.values() for name in own} - set(losses.get(geolevel, {}))
        self._exact = [name for name in elsewhere if any(fnmatchcase(name, pattern) for pattern in settings.true)]
        self._found: dict[str, Flags] = {}
        self._rows = self._others = 0
        self._worst: tuple[float, str] = (0.0, "")
        self._floor, self._not_whole = Floor(), 0

    def add(self, table: str, geounits: Index, variances: Float, values: NDArray[Any]) -> None:
        """Take rows of a table, by number of geounit, (k,), with a cell's variance, (k,), above 0, and all cells."""
        self.add_known(table, geounits)
        self._floor.add(values, np.sqrt(variances)[:, np.newaxis])
        if self._is_discrete and values.dtype.kind == "f":
            self._not_whole += int((values != np.rint(values)).sum())
        said = self._variances.get(table)
        if said is None:
            return
        agrees = np.zeros(geounits.size, dtype=bool)
        below = self._only_children[geounits]
        for depth in range(int(below.max(initial=0)) + 1):
            for expected in self._with_losses_of(table, depth):
                least = expected * (1 - ROUNDING) - self._shrinking(expected)
                agrees |= (below >= depth) & (variances >= least) & (variances <= expected * (1 + ROUNDING))
        self._rows, self._others = self._rows + geounits.size, self._others + int((~agrees).sum())
        if not agrees.all():
            ratio = np.where(agrees, 0.0, abs(np.log(np.where(variances > 0, variances, said) / said)))
            worst = int(ratio.argmax())
            code = self._geocodes[int(geounits[worst])]
            text = f"that of {table!r} in {code!r} is {variances[worst]:.6g}, they say {said:.6g}"
            self._worst = max(self._worst, (float(ratio[worst]), text))

    def add_known(self, table: str, geounits: Index) -> None:
        """Take rows of a table, by number of geounit, (k,), of which all is known exactly."""
        self._found.setdefault(table, np.zeros(self._geocodes.len(), dtype=bool))[geounits] = True

    def _with_losses_of(self, table: str, depth: int) -> Iterator[float]:
        """The variances that a geounit may have that has the losses of so many levels below."""
        own, levels = self._losses[0], self._losses[: depth + 1]
        for share in (
            sum(own.values()) / sum(sum(level.values()) for level in levels),
            own[table] / sum(level.get(table, 0.0) for level in levels),
        ):
            yield self._variances[table] * share**self._power

    def _shrinking(self, expected: float) -> float:
        return SHRINKING if self._is_discrete and (self._is_laplace or expected < NEARLY_CONTINUOUS) else 0.0

    def remarks(self) -> Iterator[Remark]:
        """What is missing, what has other variances, and what such noise does not give."""
        none = np.zeros(self._geocodes.len(), dtype=bool)
        lacking = {table: self._is_measured & ~self._found.get(table, none) for table in self._variances}
        rows = sum(int(own.sum()) for own in lacking.values())
        if rows:
            table = max(lacking, key=lambda name: int(lacking[name].sum()))
            geounits = f"{int(np.any(list(lacking.values()), axis=0).sum()):,} of {int(self._is_measured.sum()):,}"
            yield Remark(
                "missing",
                f"at {self._geolevel} {rows:,} measurements, in {geounits} geounits that cannot have been bypassed: "
                f"{table!r} in {self._geocodes[int(lacking[table].argmax())]!r} first",
            )
        for name in self._exact:
            without = self._is_measured & ~self._found.get(name, none)
            if without.any():
                yield Remark(
                    "missing",
                    f"at {self._geolevel} the exact {name!r} of {int(without.sum()):,} geounits, which the settings do "
                    f"not measure there and hold true: {self._geocodes[int(without.argmax())]!r} first",
                )
        if self._others:
            yield Remark(
                "variances",
                f"at {self._geolevel} {self._others:,} of {self._rows:,} rows have others than the settings say: "
                f"{self._worst[1]}",
            )
        for doubt in self._floor.doubts():
            yield Remark("values", f"at {self._geolevel} {doubt}")
        if self._not_whole:
            yield Remark("values", f"at {self._geolevel} {self._not_whole:,} are not whole, as with discrete noise")


def _by_table(settings: Settings, numbers: Mapping[str, Any]) -> dict[str, float]:
    """Numbers under the canonical names of their tables."""
    return {parse_table(settings.schema, name).in_schema_order().name: float(own) for name, own in numbers.items()}


class AveragedTables:
    """Chi-squares by geolevel and table, with their degrees of freedom."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[float, int]] = {}

    def add(self, geolevel: str, table: str, squares: Float, variances: Float, cells: int) -> None:
        """Take squared differences from the mean before, summed over cells, and their variances, (G,) each."""
        statistic, degrees = self._found.get((geolevel, table), (0.0, 0))
        self._found[geolevel, table] = statistic + float((squares / variances).sum()), degrees + cells * squares.size

    def remarks(self) -> Iterator[Remark]:
        """Whether they agree, if there are any."""
        if not sum(degrees for _, degrees in self._found.values()):
            return
        parts = {key: _probability(*own) for key, own in self._found.items()}
        whole = sum(own[0] for own in self._found.values()), sum(own[1] for own in self._found.values())
        level, table = min(parts, key=lambda key: parts[key])
        text = f"chi-square {whole[0]:,.6g} on {whole[1]:,} degrees of freedom, p = {_probability(*whole):.2g}"
        if min(_probability(*whole), len(parts) * parts[level, table]) >= DOUBTFUL:
            yield Remark("averaged", f"tables that become one agree with one another: {text}")
            return
        worst = "chi-square {:,.6g} on {:,}".format(*self._found[level, table])
        yield Remark(
            "averages",
            f"tables that become one DO NOT AGREE by the noise that is declared: {text}; worst {table!r} at {level}, "
            f"{worst}",
        )


def _probability(statistic: float, degrees: int) -> float:
    """Of a chi-square as far from its expectation, on either side."""
    tails = scipy.special.chdtrc(degrees, statistic), scipy.special.chdtr(degrees, statistic)
    return min(1.0, 2 * float(min(tails)))


ByTable = Mapping[str, Mapping[str, Float]]


def require_levels(found: Sequence[str], settings: Settings) -> None:
    """Refuse a folder without files of a geolevel that the settings measure, below others of which it has files.

    Parameters
    ----------
    found : sequence of str
        The geolevels that it has geounits of, from the root down.
    settings : Settings
    """
    for name in settings.geolevels[settings.geolevels.index(found[0]) :]:
        tables = settings.budget.losses.get(name, {})
        if tables and name not in found:
            what = f"{', '.join(tables)!r:.60} at {name!r}, and there is nothing in {name}{LEVEL_SUFFIX}"
            raise ValueError(f"the settings measure {what}: copy that folder, or give settings without {name!r}")


def require_measurements(spine: Spine, measured: Collection[str], settings: Settings) -> None:
    """Refuse a folder without measurements of a geolevel that the settings measure, where not all are only children.

    Only children are bypassed, and in constraints alone.

    Parameters
    ----------
    spine : Spine
    measured : collection of str
        The geolevels of which there are rows of measurements.
    settings : Settings
    """
    for name, members in zip(spine.levels, spine.members, strict=True):
        above = spine.parent[members]
        has_siblings = (above >= 0) & (spine.child_counts[above] > 1)
        if name not in measured and settings.budget.losses.get(name) and has_siblings.any():
            raise ValueError(
                f"there are no measurements at {name!r}, only constraints: copy "
                f"{name}{LEVEL_SUFFIX}/{MEASUREMENTS} too, or give settings that measure nothing there"
            )


def require_prefixes(
    folder: str | os.PathLike[str], settings: Settings, found: Iterable[Sequence[str]], within: Sequence[str]
) -> None:
    """Refuse a prefix with which no geocode begins, naming what there is.

    Parameters
    ----------
    folder : path
    settings : Settings
    found : iterable of sequence of str
        Geocodes that were taken, by geolevel.
    within : sequence of str
    """
    for prefix in within:
        if not any(code.startswith(prefix) for codes in found for code in codes):
            raise ValueError(
                f"nothing was measured within {prefix}: no geocode begins so, leave it out; "
                f"{_what_there_is(folder, settings, prefix)}"
            )


def _what_there_is(folder: str | os.PathLike[str], settings: Settings, prefix: str) -> str:
    """The geocodes of the uppermost geolevel that has any as long as a prefix, or those most like it."""
    codes: list[str] = []
    level = ""
    for name, place in level_folders(folder, settings.geolevels).items():
        level = name
        codes = [code for code in geocodes_in(place) if code]
        if codes and max(map(len, codes)) >= len(prefix):
            break
    if not codes:
        return "there are no other geounits than the root"
    if len(codes) > MOST_NAMED:
        alike = [next(n for n in range(len(prefix), -1, -1) if code.startswith(prefix[:n])) for code in codes]
        codes = [code for code, own in zip(codes, alike, strict=True) if own == max(alike)]
    more = f" and {len(codes) - MOST_NAMED:,} more" if len(codes) > MOST_NAMED else ""
    return f"at {level} there are {', '.join(codes[:MOST_NAMED])}{more}"


def refuse_missing_children(
    schema: Schema, spine: Spine, variances: ByTable, totals: ByTable, advice: str = ADVICE
) -> None:
    """Refuse measurements in which a geounit's count is not that of its children together, by far more than noise.

    Then children are missing: a partition was not copied, say. For every table measured at a geounit and at all its
    children the sums of all cells are compared.

    Parameters
    ----------
    schema : Schema
    spine : Spine
    variances : mapping of geolevel to mapping of table to ndarray (geounits of the level,)
        Of every cell of the table; infinite where it was not measured.
    totals : mapping of geolevel to mapping of table to ndarray (geounits of the level,)
        Sum of the measurements of all cells; 0 where there is none.
    advice : str
        What the message ends in.

    Raises
    ------
    ValueError
        If one differs by more than `MOST_DEVIATIONS` standard deviations; it is named.
    """
    for name in dict.fromkeys(table for tables in variances.values() for table in tables):
        counts, spread = np.zeros(spine.size), np.full(spine.size, np.inf)
        for level, tables in variances.items():
            if name in tables:
                members = spine.members[spine.level_index(level)]
                counts[members] = totals[level][name]
                spread[members] = tables[name] * parse_table(schema, name).size
        _compare(spine, name, counts, spread, advice)


def _compare(spine: Spine, name: str, counts: Float, variances: Float, advice: str) -> None:
    """Compare sums of all cells of a table in every geounit, (N,), with those of its children."""
    children = np.flatnonzero(spine.parent >= 0)
    of_children, variance_of_children = (
        np.bincount(spine.parent[children], weights=column[children], minlength=spine.size)
        for column in (counts, variances)
    )
    variance = variances + variance_of_children
    compared = (spine.child_counts > 0) & np.isfinite(variance)
    excess = np.where(compared, counts - of_children, 0.0)
    worst = int(np.argmax(abs(excess) - MOST_DEVIATIONS * np.sqrt(np.where(compared, variance, np.inf))))
    if compared[worst] and abs(excess[worst]) > MOST_DEVIATIONS * np.sqrt(variance[worst]) + 0.5:
        level, code = spine.levels[spine.level_of[worst]], spine.geocodes[worst]
        raise ValueError(
            f"{level} {code!r} counts {counts[worst]:,.0f} in table {name!r}, its {spine.child_counts[worst]} "
            f"children {of_children[worst]:,.0f}: no noise explains that; {advice}"
        )
