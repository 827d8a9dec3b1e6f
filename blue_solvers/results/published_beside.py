"""Published counts beside the estimates of a stored result: how many standard errors they are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from scipy import sparse

from blue_solvers.results.published_answers import long_frame, published_of, read_lines
from blue_solvers.results.questions import Result
from blue_solvers.results.store import Progress
from constraint_builders.description.geo_ids import KINDS, NATION, geoid_of
from constraint_builders.files.published_files import PublishedFile
from constraint_builders.files.published_tables import PublishedTables
from constraint_builders.geography import Entities

FAR = 3.0  # standard errors


@dataclass(frozen=True)
class PublishedBeside:
    """Published counts and estimates of the same lines at the same places.

    Attributes
    ----------
    frame : polars.DataFrame
        Columns ``geoid``, ``line``, ``label``, ``published``, ``estimate``, ``std_error``, ``difference``, published
        less estimate, ``z``, that in standard errors, null where the estimate is exact, ``confidence`` and ``path``.
    left_out : dict of str to str
        Tables of the file that the result cannot answer, and why.
    """

    frame: pl.DataFrame
    left_out: dict[str, str]

    @property
    def exact(self) -> pl.DataFrame:
        """The rows whose estimates are known exactly."""
        return self.frame.filter(pl.col("std_error") == 0)

    @property
    def differ(self) -> pl.DataFrame:
        """The rows that are known exactly and were not published so."""
        return self.exact.filter(pl.col("difference") != 0)

    @property
    def far(self) -> pl.DataFrame:
        """The rows further apart than `FAR`, the furthest first."""
        return self.frame.filter(pl.col("z").abs() > FAR).sort(pl.col("z").abs(), descending=True)

    def __str__(self) -> str:
        compared, differ = self.frame.height, self.differ.height
        said = f"{self.far.height:,} of {compared - self.exact.height:,} are more than {FAR:g} standard errors apart"
        exact = f"; of {self.exact.height:,} known exactly {differ:,} differ" if self.exact.height else ""
        return said + exact


def beside_published(
    result: Result,
    published: PublishedFile,
    tables: Sequence[str] | None = None,
    geoids: Sequence[str] | None = None,
    geolevel: str | None = None,
    progress: Progress | None = None,
) -> PublishedBeside:
    """Compare published counts with the estimates.

    Parameters
    ----------
    result : Result
    published : PublishedFile
    tables : sequence of str, optional
        Tables or lines; by default all that the file has and the result can answer.
    geoids, geolevel
        Places as for `Result.table`; by default all that both have.
    progress : callable, optional
        As `Result.ask_places` takes it.

    Raises
    ------
    ValueError
        If a table or place is not in both, or nothing is.
    """
    places = _places(result, published.counts["geoid"].to_list(), geoids, geolevel)
    lines, left_out = _lines(result, published, tables)
    if not lines:
        reasons = "; ".join(f"{table}: {reason}" for table, reason in left_out.items())
        raise ValueError(f"nothing of it can be compared: {reasons or 'no column is a line of a published table'}")
    estimates = long_frame(result, read_lines(result, lines), places, 0.95, progress)
    counts = published.counts.unpivot(lines, index="geoid", variable_name="line", value_name="published")
    both = estimates.join(counts.drop_nulls(), on=["geoid", "line"], how="inner", maintain_order="left")
    difference = pl.col("published") - pl.col("estimate")
    z = pl.when(pl.col("std_error") > 0).then(pl.col("difference") / pl.col("std_error"))
    if both.is_empty():
        raise ValueError("what was published is empty there: there is no count to compare")
    frame = both.with_columns(difference.alias("difference")).with_columns(z.alias("z"))
    keys = ("geoid", "line", "label", "published", "estimate", "std_error", "difference", "z", "confidence", "path")
    return PublishedBeside(frame.select(keys), left_out)


def _places(result: Result, known: list[str], geoids: Sequence[str] | None, geolevel: str | None) -> Entities:
    """The places that are asked for, those that are published; by default all of both."""
    published = set(known)
    if geoids is not None and geolevel is None:
        asked = result.geoids.of(geoids)
        own = [geoid_of(geoid.upper()) or geoid for geoid in asked.names]
        lacking = [geoid for geoid in own if geoid not in published]
        if lacking:
            raise ValueError(f"{lacking[0]!r} is not in what was published, which has {', '.join(known[:4])}, ...")
        return Entities(own, asked.contains)
    if geolevel is not None:
        found = [result.geoids.every(geolevel, geoids or ())]
    else:
        kinds = sorted({0 if geoid == NATION else len(geoid) for geoid in known})
        found = [every for kind in kinds if (every := _every(result, KINDS[kind])) is not None]
    rows = [[i for i, name in enumerate(own.names) if name in published] for own in found]
    names = [own.names[i] for own, kept in zip(found, rows, strict=True) for i in kept]
    if not names:
        there = f"they are such as {', '.join(known[:4])}" if known else "it has none"
        raise ValueError(f"none of its places is in this result: {there}")
    return Entities(names, sparse.vstack([own.contains[kept] for own, kept in zip(found, rows, strict=True)]))


def _every(result: Result, kind: str) -> Entities | None:
    try:
        return result.geoids.every(kind)
    except ValueError:  # a level that the result does not have
        return None


def _lines(result: Result, file: PublishedFile, tables: Sequence[str] | None) -> tuple[list[str], dict[str, str]]:
    """The lines to compare, and the tables of the file that the result cannot answer, with the reasons."""
    by_table: dict[str, list[str]] = {}
    for line in file.lines:
        by_table.setdefault(line.partition("_")[0], []).append(line)
    left_out: dict[str, str] = {}
    for table, own in by_table.items():
        try:
            read_lines(result, own)
            _require_own(published_of(result), file.labels, own)
        except ValueError as error:
            left_out[table] = str(error)
    if tables is None:
        return [line for table, own in by_table.items() if table not in left_out for line in own], left_out
    codes = [line.code for name in tables for line in published_of(result).named(name)]
    for code in codes:
        if code not in file.lines:
            raise ValueError(
                f"line {code} is not in what was published, which has {', '.join(by_table) or 'no line of a table'}"
            )
        if codes.count(code) > 1:
            raise ValueError(f"line {code} is asked for twice: name its table or itself once")
        _require_own(published_of(result), file.labels, by_table[code.partition("_")[0]])
    return codes, {}


def _require_own(tables: PublishedTables, labels: Mapping[str, str], lines: Sequence[str]) -> None:
    """Refuse lines most of which are called otherwise in the file: another product has a table of that name too."""
    ours = {line.code: line.label for line in tables.table(lines[0].partition("_")[0]).lines}
    called = [(line, labels[line], ours.get(line, "no line")) for line in lines if line in labels]
    other = [each for each in called if not _are_alike(*each[1:])]
    if 2 * len(other) > len(called):
        line, there, here = other[0]
        raise ValueError(f"it is of another product: {line} is {there!r} there, and {here!r} in {tables.product}")


def _are_alike(theirs: str, ours: str) -> bool:
    shorter, longer = sorted((theirs.casefold(), ours.casefold()), key=len)
    return longer.startswith(shorter)
