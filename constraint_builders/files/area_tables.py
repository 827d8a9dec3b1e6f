"""Areas from a table with a row for each leaf, and the rows of another table put into them.

The areas need not nest. Of what is written of the leaves those columns are used that the other table counts in, or that
are named. ``-`` says that a leaf lies in no area of a column; an empty cell is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from scipy import sparse

from constraint_builders.arrays import Flags, Index
from constraint_builders.description.area_layers import BETWEEN
from constraint_builders.description.areas import LEAF, Areas
from constraint_builders.files.columns import GEOCODE, GEOLEVEL, PARENT, SUMMED_OUT, Columns, plain_name
from constraint_builders.files.labels import LabelNumbers, is_total, plain_label
from constraint_builders.files.naming import naming, shown
from constraint_builders.files.numbers import read_labels
from constraint_builders.files.source import Source, open_source
from constraint_builders.files.spine_of_codes import ROOTS

LEVEL_NAMES, CODE_NAMES = (GEOLEVEL, "level"), (GEOCODE, "code", "geoid")
NOWHERE, DIGITS = "-", r"^[0-9]*$"
POSITION = "position"


@dataclass(frozen=True)
class LeafTable:
    """The areas that every leaf lies in.

    Attributes
    ----------
    frame : polars.DataFrame
        A row for each leaf, text; null where it lies in no area of a column.
    leaf : str
        The column that names the leaves.
    rows : ndarray of int, (leaves,)
        The number of every row where it was found.
    named : tuple of str
        Columns that are layers whether a table counts in them or not.
    empty : mapping of str to int
        Of columns with empty cells the first row that has one.
    areas : Areas or None
        What it was made from, if not from a table.
    """

    frame: pl.DataFrame
    leaf: str
    rows: Index
    named: tuple[str, ...] = ()
    empty: Mapping[str, int] = field(default_factory=dict)
    areas: Areas | None = None

    @classmethod
    def read(cls, given: Any, names: Mapping[str, str]) -> LeafTable:
        """From a file, a data frame or `Areas`.

        Parameters
        ----------
        given : path, data frame or Areas
        names : mapping of str to str
            What columns are called otherwise.

        Raises
        ------
        ValueError
            If no column names the leaves, or a leaf is given twice; it is named.
        """
        if isinstance(given, Areas):
            return cls._of_areas(given)
        source = open_source(given)
        frame = source.frame
        if frame.is_empty():
            raise ValueError("there are no rows: give one for each leaf")
        own = {name: names[name] for name in frame.columns if name in names}
        twice = next((role for name, role in own.items() if role in frame.columns and role != name), None)
        if twice is not None or len(set(own.values())) < len(own):
            raise ValueError(f"columns calls two columns of the areas {twice or next(iter(own.values()))!r}: keep one")
        frame = frame.rename(own)
        labels = [name for name in frame.columns if name in own.values() or not frame[name].dtype.is_float()]
        if not labels:
            raise ValueError("no column holds the names of leaves, as text or whole numbers")
        frame = frame.select(read_labels(frame[name]).str.strip_chars().replace("", None) for name in labels)
        leaf = max(labels, key=lambda name: frame[name].n_unique())
        found = cls(frame, leaf, source.rows, tuple(own.values()))
        found._refuse_leaves()
        partly = [name for name in labels if frame[name].null_count()]
        empty = {name: int(source.rows[int(frame[name].is_null().arg_max() or 0)]) for name in partly}
        used = frame.with_columns(pl.col(name).replace(NOWHERE, None) for name in labels if name != leaf)
        return replace(found, frame=used, empty=empty)

    @classmethod
    def _of_areas(cls, areas: Areas) -> LeafTable:
        """The layers of which every leaf lies in one area at most."""
        columns = {}
        for name in areas.levels:
            layer = areas.layer(name)
            if layer.area_of_leaf is not None:
                number = pl.Series(layer.area_of_leaf, dtype=pl.Int64)
                columns[name] = pl.Series(layer.names, dtype=pl.String).gather(number.replace(-1, None))
        return cls(pl.DataFrame(columns), LEAF, np.arange(areas.leaves), areas=areas)

    def _refuse_leaves(self) -> None:
        names = self.frame[self.leaf]
        if names.null_count():
            row = self.rows[int(names.is_null().arg_max() or 0)]
            raise ValueError(f"column {self.leaf!r} is empty in row {row}: name the leaf")
        twice = names.is_duplicated()
        if twice.any():
            name = names.filter(twice)[0]
            first, second = self.rows[(names == name).to_numpy()][:2]
            raise ValueError(
                f"leaf {shown(name)} of column {self.leaf!r} is given twice, in rows {first} and {second}: give each "
                "leaf one row, and all leaves a column of names"
            )

    @cached_property
    def codes(self) -> Mapping[str, pl.Series]:
        """The areas of every column, each once."""
        return {name: self.frame[name].unique(maintain_order=True).drop_nulls() for name in self.frame.columns}

    def named_so(self, name: str) -> str | None:
        """The column of a name, or of the only one that differs in capitals, spaces and hyphens alone."""
        alike = [own for own in self.frame.columns if plain_name(own) == plain_name(name)]
        return name if name in self.frame.columns else alike[0] if len(alike) == 1 else None

    def column_of(self, level: str, codes: pl.Series) -> str:
        """The column that a level is: of its name, or whose name it begins, or that has all of its codes.

        Raises
        ------
        ValueError
            If there is none, or several may be meant.
        """
        found = self.named_so(level)
        if found is not None:
            return found
        begun = [own for own in self.frame.columns if plain_name(own).startswith(f"{plain_name(level)}_")]
        asked = begun or ([] if self.areas else self.frame.columns)
        holding = [own for own in asked if codes.is_in(self.codes[own].implode()).all()] or begun
        say = f"say which it is by columns={{'NAME': {level!r}}}"
        if not holding:
            there = ", ".join(map(repr, self.frame.columns))
            hint = "" if self.areas else f"; none has all of its codes, such as {shown(codes[0])}: {say}"
            raise ValueError(f"level {level!r} is no column of the areas: there are {there}{hint}")
        other = next((own for own in holding[1:] if not self._is_same(holding[0], own)), None)
        if other is not None:
            raise ValueError(f"level {level!r} may be column {holding[0]!r} or {other!r} of the areas: {say}")
        return holding[0]

    def is_within(self, inner: str, outer: str) -> bool:
        """Whether every area of one column lies in one of another."""
        return self.frame.select(inner, outer).unique().height == self.frame[inner].n_unique()

    def _is_same(self, one: str, other: str) -> bool:
        return self.is_within(one, other) and self.is_within(other, one)

    def layers(self, levels: Mapping[str, Sequence[str]], whole: str) -> Areas:
        """Areas of these leaves with a layer for each of some levels, those with fewer areas first.

        Parameters
        ----------
        levels : mapping of str to sequence of str
            The column of each; of intersections several.
        whole : str
            The name of a layer of all leaves; empty for none.

        Raises
        ------
        ValueError
            If two levels are one column, or a column has an empty cell.
        """
        areas = self.areas or Areas(self.frame[self.leaf].to_list(), {})
        if whole and whole not in areas.levels:
            areas = areas.with_layer(whole, [SUMMED_OUT] * areas.leaves)
        level_of: dict[str, str] = {}
        for level, own in levels.items():
            if len(own) == 1 and level_of.setdefault(own[0], level) != level:
                raise ValueError(f"levels {level_of[own[0]]!r} and {level!r} are one column of the areas, {own[0]!r}")
        parts = [name for own in levels.values() for name in own]
        for name in self.named if self.areas else sorted({*parts, *self.named}, key=self._size):
            level = level_of.get(name, name)
            if self.codes[name].len() and not (name == self.leaf and level == LEAF):
                areas = self._with_layer(areas, level, name)
        for level, own in levels.items():
            if len(own) > 1 and level not in areas.levels:
                areas = areas.cross(*(level_of.get(name, name) for name in own), name=level)
        return areas

    def _size(self, name: str) -> tuple[int, str]:
        return self.codes[name].len(), name

    def _with_layer(self, areas: Areas, level: str, name: str) -> Areas:
        column = self.frame[name]
        if name in self.empty:
            row = self.empty[name]
            leaf = shown(self.frame[self.leaf][int((self.rows == row).argmax())])
            raise ValueError(
                f"areas: leaf {leaf}, row {row}, has no {name!r}: give its code, or {NOWHERE!r} if it lies in none"
            )
        if not column.null_count():
            return areas.with_layer(level, column.to_list())
        codes = self.codes[name]
        number = column.replace_strict(codes, pl.Series(range(codes.len())), default=None, return_dtype=pl.Int64)
        inside = number.is_not_null().to_numpy()
        entries = np.ones(inside.sum()), (number.drop_nulls().to_numpy(), np.flatnonzero(inside))
        return areas.with_layer(level, sparse.csr_array(entries, shape=(codes.len(), column.len())), codes.to_list())


@dataclass(frozen=True)
class AreaGeography:
    """Areas, and where among them the rows of a table belong.

    Attributes
    ----------
    places : Areas
    geounits : ndarray of int, (rows,)
        Position among all areas of every row's.
    said : str
        What the areas were taken for.
    """

    places: Areas
    geounits: Index
    said: str

    def __str__(self) -> str:
        return self.said


@dataclass(frozen=True)
class TableAreas:
    """The areas that a table counts in, and what they were taken for."""

    areas: Areas
    said: str

    def geography(self, table: Source, columns: Columns) -> AreaGeography:
        """Where rows with a level and the code of an area belong."""
        known = [
            pl.DataFrame({GEOCODE: self.areas.names(level)}).with_columns(
                pl.lit(level).alias(GEOLEVEL), pl.Series(POSITION, own, dtype=pl.Int64)
            )
            for level, own in zip(self.areas.levels, self.areas.members, strict=True)
        ]
        rows = table.frame.select(pl.col(columns.keys[key]).alias(key) for key in (GEOLEVEL, GEOCODE))
        found = rows.join(pl.concat(known), on=[GEOLEVEL, GEOCODE], how="left", maintain_order="left")
        return AreaGeography(self.areas, found[POSITION].to_numpy().astype(np.intp), self.said)


def in_areas(
    table: Source, given: Any, names: Mapping[str, str], totals: Sequence[str]
) -> tuple[Source, TableAreas, list[str]]:
    """A table whose rows have ``geolevel`` and ``geocode``, those of areas; the areas; the totals that are none of them.

    A row says where it counts in two columns, or by a column for each partition: the intersection of those that it does not sum out.

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
        there = ", ".join(map(repr, leaves.frame.columns))
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
    if labels.null_count():
        row = table.rows[int(labels.is_null().arg_max() or 0)]
        raise ValueError(f"column {name!r} is empty in row {row}: say where it counts, {SUMMED_OUT!r} for all areas")
    return labels


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
    return _Said(pl.Series(levels, dtype=pl.String), pl.Series(codes, dtype=pl.String), columns, tuple(partitions))


def _finest(leaves: LeafTable, partitions: Mapping[str, str], kept: Sequence[str]) -> list[str]:
    """Those of some partitions whose intersection is that of all, without those that hold the areas of another."""
    found = list(kept)
    for name in kept:
        if any(leaves.is_within(partitions[other], partitions[name]) for other in found if other != name):
            found.remove(name)
    return found


def _refuse_apart(table: Source, leaves: LeafTable, labels: Mapping[str, pl.Series], here: Flags) -> None:
    """Refuse a row of which no leaf lies in all areas, by the columns of the leaves."""
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
    first = frame.select(pl.struct(pl.all()).is_first_distinct()).to_series()
    kept = (~everywhere | first).to_numpy()
    table = replace(table, frame=frame.filter(kept), rows=table.rows[kept])
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
            row = table.rows[int((here & (codes == code)).arg_max() or 0)]
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
