"""The rows of a table put into areas that need not nest: by level and code, or by a column for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from constraint_builders.arrays import Flags
from constraint_builders.description.area_layers import BETWEEN
from constraint_builders.description.areas import LEAF, Areas
from constraint_builders.files.columns import GEOCODE, GEOLEVEL, PARENT, SUMMED_OUT, Columns, plain_name
from constraint_builders.files.labels import LabelNumbers, is_total, plain_label
from constraint_builders.files.leaf_table import LeafTable
from constraint_builders.files.naming import listed, naming, shown
from constraint_builders.files.numbers import read_labels
from constraint_builders.files.source import Source
from constraint_builders.files.spine_of_codes import ROOTS, Geography

LEVEL_NAMES, CODE_NAMES = (GEOLEVEL, "level"), (GEOCODE, "code", "geoid")
DIGITS = r"^[0-9]*$"
POSITION = "position"


@dataclass(frozen=True)
class TableAreas:
    """The areas that a table counts in, and what they were taken for."""

    areas: Areas
    said: str

    def geography(self, table: Source, columns: Columns) -> Geography:
        """Where rows with a level and the code of an area belong."""
        rows = table.frame.select(pl.col(columns.keys[key]).alias(key) for key in (GEOLEVEL, GEOCODE))
        return Geography.of(self.areas, rows, self.said)


def in_areas(
    table: Source, given: Any, names: Mapping[str, str], totals: Sequence[str]
) -> tuple[Source, TableAreas, list[str]]:
    """A table whose rows have the level and the code of an area; the areas; those of the totals that count no areas.

    A row says where it counts in two columns, or by a column for each partition: where those meet that it does not sum
    out.

    Parameters
    ----------
    table : Source
    given : path, data frame or Areas
        A row for each leaf, and a column for each partition.
    names : mapping of str to str
        What columns of it are called otherwise.
    totals : sequence of str
        Labels that count everybody, if they are said.

    Raises
    ------
    ValueError
        If a leaf is given twice, or lies in no area of a column that is used; if no leaf lies in an area of a row; if
        it is not said in which a row counts, or may be said by several columns.
    """
    roles = {plain_name(name): name for name in table.frame.columns}
    where = "areas" if isinstance(given, Areas) else f"areas of {given}" if isinstance(given, str) else "areas"
    with naming(where):
        leaves = LeafTable.read(given, names)
    strange = next(
        (name for name in names if name not in table.frame.columns and names[name] not in leaves.named), None
    )
    if strange is not None:
        raise ValueError(f"columns names {strange!r}, which is none, neither of the table nor of its areas")
    leaves.refuse_unread(table.frame.columns)
    level, code = (next((roles[own] for own in known if own in roles), None) for known in (LEVEL_NAMES, CODE_NAMES))
    partitions = {name: own for name in table.frame.columns if (own := leaves.named_so(name)) is not None}
    if PARENT in roles:
        raise ValueError(f"column {roles[PARENT]!r} says in what areas lie, and so do the areas: call it 'note'")
    if level is not None and code is not None:
        beside = next((name for name in partitions if name not in (level, code)), None)
        if beside is not None:
            raise ValueError(f"column {beside!r} is one of the areas beside {level!r} and {code!r}: call it 'note'")
        said = _by_codes(table, leaves, level, code, totals)
    elif partitions and (level is None or level in partitions) and (code is None or code in partitions):
        said = _by_partitions(table, leaves, partitions, totals)
    else:
        there = listed(leaves.frame.columns)
        raise ValueError(
            "in which area does a row count? give columns 'level' and 'code', or one for each partition, named as in "
            f"the areas: {there}"
        )
    placed, areas = _placed(table, leaves, said)
    of_places = [label for own in said.used for label in map(plain_label, _marked(_labels(table, own), totals))]
    return placed, areas, [mark for mark in totals if mark == SUMMED_OUT or plain_label(mark) not in of_places]


@dataclass(frozen=True)
class _Said:
    """Level and code of every row's area, without its name those that count everywhere; and the columns of levels."""

    levels: pl.Series
    codes: pl.Series
    columns: Mapping[str, Sequence[str]]
    used: tuple[str, ...]


def _labels(table: Source, name: str) -> pl.Series:
    labels = read_labels(table.frame[name]).str.strip_chars().replace("", None)
    return table.filled(labels, f": say where it counts, {SUMMED_OUT!r} for all areas")


def _everywhere(labels: pl.Series, codes: Iterable[pl.Series], totals: Sequence[str]) -> pl.Series:
    """Where labels count all areas: marks of totals, and where none is there the words for that which are no code."""
    there, found = _words(labels), _marked(labels, [*totals, SUMMED_OUT])
    if SUMMED_OUT not in totals and not found - {SUMMED_OUT}:
        known = list(codes)
        found |= {label for label in there if is_total(label) and not any(label in own for own in known)}
    return labels.is_in(list(found))


def _words(labels: pl.Series) -> list[str]:
    """The different labels that are no numbers."""
    return labels.filter(~labels.str.contains(DIGITS)).unique().to_list()


def _marked(labels: pl.Series, marks: Sequence[str]) -> set[str]:
    """The different labels that are one of some marks."""
    said = set(map(plain_label, marks))
    return {
        label for label in [*_words(labels), *labels.filter(labels.is_in(marks)).unique()] if plain_label(label) in said
    }


def _by_codes(table: Source, leaves: LeafTable, level: str, code: str, totals: Sequence[str]) -> _Said:
    codes, written = _labels(table, code), _labels(table, level)
    leaves.refuse_unread(written.unique(maintain_order=True))
    first: dict[str, str] = {}
    spelt = {label: first.setdefault(plain_label(label), label) for label in written.unique(maintain_order=True)}
    levels = written.replace(spelt)
    everywhere = _everywhere(codes, leaves.codes.values(), totals)
    columns: dict[str, Sequence[str]] = {}
    for own in dict.fromkeys(spelt.values()):
        there = codes.filter((levels == own) & ~everywhere).unique(maintain_order=True)
        if there.len() and not (leaves.areas and own in leaves.areas.levels):
            parts = [leaves.named_so(part) for part in own.split(BETWEEN)]
            crossed = [part for part in parts if part is not None]
            columns[own] = crossed if len(crossed) == len(parts) > 1 else [leaves.column_of(own, there)]
        elif there.len():
            columns[own] = [own]
    return _Said(levels.set(everywhere, None), codes, columns, (level, code))


def _by_partitions(table: Source, leaves: LeafTable, partitions: Mapping[str, str], totals: Sequence[str]) -> _Said:
    labels = {name: _labels(table, name) for name in partitions}
    known = [leaves.codes[own] for own in partitions.values()]
    summed = {name: _everywhere(own, known, totals) for name, own in labels.items()}
    keeps = ~np.stack([own.to_numpy() for own in summed.values()], axis=1)
    levels, codes = np.full(len(keeps), None, dtype=object), np.full(len(keeps), SUMMED_OUT, dtype=object)
    columns: dict[str, Sequence[str]] = {}
    for pattern in np.unique(keeps, axis=0):
        here = (keeps == pattern).all(axis=1)
        kept = [name for name, keep in zip(partitions, pattern, strict=True) if keep]
        if not kept:
            continue
        there = {name: labels[name].filter(pl.Series(here)) for name in kept}
        _refuse_apart(table, leaves, {partitions[name]: own for name, own in there.items()}, here)
        finest = _finest(leaves, partitions, kept)
        level = BETWEEN.join(finest)
        columns[level] = [partitions[name] for name in finest]
        levels[here] = level
        codes[here] = [BETWEEN.join(own) for own in zip(*(there[name] for name in finest), strict=True)]
    return _Said(
        pl.Series(levels.tolist(), dtype=pl.String),
        pl.Series(codes.tolist(), dtype=pl.String),
        columns,
        tuple(partitions),
    )


def _finest(leaves: LeafTable, partitions: Mapping[str, str], kept: Sequence[str]) -> list[str]:
    """Those of some partitions whose intersection is that of all, without those that hold the areas of another."""
    found = list(kept)
    for name in kept:
        if any(leaves.is_within(partitions[other], partitions[name]) for other in found if other != name):
            found.remove(name)
    return found


def _refuse_apart(table: Source, leaves: LeafTable, labels: Mapping[str, pl.Series], here: Flags) -> None:
    """Refuse a row, of those flagged in (rows,), of which no leaf lies in all areas, by the columns of the leaves."""
    if len(labels) == 1:
        return
    rows = pl.DataFrame([own.alias(name) for name, own in labels.items()]).with_row_index(POSITION)
    apart = rows.join(leaves.frame.select(list(labels)).unique(), on=list(labels), how="anti").sort(POSITION)
    if apart.height:
        number = table.rows[here][apart[POSITION][0]]
        both = " and ".join(f"{name} {shown(apart[name][0])}" for name in labels)
        raise ValueError(f"row {number}: no leaf lies in {both}: correct one, or the areas")


def _placed(table: Source, leaves: LeafTable, said: _Said) -> tuple[Source, TableAreas]:
    """The table with the level and the code of every row's area, rows of all areas that are repeated once."""
    everywhere = said.levels.is_null()
    whole = next(own for own in ROOTS[1:] if _may_be_whole(leaves, said, own)) if everywhere.any() else ""
    areas = leaves.layers(said.columns, whole)
    levels, codes = said.levels.fill_null(whole), said.codes
    if whole:
        codes = codes.set(everywhere, areas.names(whole)[0])
    for level in said.columns:
        here = levels == level
        codes = codes.zip_with(~here, _as_in(areas, level, codes, table, here))
    frame = table.frame.drop(said.used).with_columns(levels.alias(GEOLEVEL), codes.alias(GEOCODE))
    kept = (~everywhere).to_numpy(writable=True)
    kept[~kept] = frame.filter(everywhere).select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
    table = replace(table, frame=frame).kept(pl.Series(kept))
    return table, TableAreas(areas, _in_words(areas, said.columns, int((~kept).sum())))


def _may_be_whole(leaves: LeafTable, said: _Said, name: str) -> bool:
    """Whether a layer of all leaves can have a name: no other has it."""
    if leaves.areas is None or name not in leaves.areas.levels:
        return name not in (*said.columns, *leaves.named)
    return leaves.areas.layer(name).size == 1 and bool((leaves.areas.layer(name).incidence.toarray() == 1).all())


def _as_in(areas: Areas, level: str, codes: pl.Series, table: Source, here: pl.Series) -> pl.Series:
    """Codes as the areas of a level are called; refused where no leaf has one."""
    known = areas.names(level)
    own = codes.filter(here).unique(maintain_order=True)
    strange = own.filter(~own.is_in(pl.Series(known).implode())).to_list()
    if not strange:
        return codes
    numbers = LabelNumbers(known)
    found = {code: numbers.get(code) for code in strange}
    for code, number in found.items():
        if number < 0:
            row = table.row_of(here & (codes == code))
            zeros = any(name.lstrip("0") == code.lstrip("0") for name in known)
            hint = "one of the two lost leading zeros, keep codes as text" if zeros else "correct it, or the areas"
            more = f", as of {len(strange):,} codes" if len(strange) > 1 else ""
            raise ValueError(f"row {row}: no leaf has the {level} {shown(code)}{more}: {hint}")
    return codes.replace({code: known[number] for code, number in found.items()})


def _in_words(areas: Areas, columns: Mapping[str, Sequence[str]], repeated: int) -> str:
    """The layers with their sizes and columns, and how many rows of all areas were there before."""
    named = {level: f" by {own[0]!r}" for level, own in columns.items() if len(own) == 1 and own[0] != level}
    sizes = {level: areas.layer(level).size for level in areas.levels if level != LEAF or LEAF in columns}
    found = ", ".join(f"{size:,} {level}{named.get(level, '')}" for level, size in sizes.items())
    rows = "a row" if repeated == 1 else f"{repeated:,} rows"
    again = f"; {rows} of all areas repeat{'s' * (repeated == 1)} others and count{'s' * (repeated == 1)} once"
    return found + again * (repeated > 0)
