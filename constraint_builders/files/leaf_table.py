"""Areas from a table with a row for each leaf, and a column for each partition.

The areas need not nest. Those columns are used that another table counts in, or that are named. ``-`` says that a leaf
lies in no area of a column; an empty cell is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from scipy import sparse

from constraint_builders.description.areas import LEAF, Areas
from constraint_builders.files.block_tables import says_shares
from constraint_builders.files.columns import SUMMED_OUT, plain_name
from constraint_builders.files.labels import is_total
from constraint_builders.files.naming import listed, shown
from constraint_builders.files.numbers import TEXT, read_labels
from constraint_builders.files.source import open_whole
from constraint_builders.files.titles import Source

NOWHERE = "-"


@dataclass(frozen=True)
class LeafTable:
    """The areas that every leaf lies in.

    Attributes
    ----------
    frame : polars.DataFrame
        A row for each leaf, text; null where it lies in no area of a column.
    leaf : str
        The column that names the leaves.
    named : tuple of str
        Columns that are layers whether a table counts in them or not.
    empty : mapping of str to (str, int)
        Of columns with empty cells the first leaf that has one, and its row.
    areas : Areas or None
        What it was made from, if not from a table.
    unread : tuple of str
        Columns that hold no labels: decimal numbers, dates, truth values.
    """

    frame: pl.DataFrame
    leaf: str
    named: tuple[str, ...] = ()
    empty: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    areas: Areas | None = None
    unread: tuple[str, ...] = ()

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
        source = open_whole(given)
        frame = source.frame
        if frame.is_empty():
            raise ValueError("there are no rows: give one for each leaf")
        own = {name: names[name] for name in frame.columns if name in names}
        twice = next((role for name, role in own.items() if role in frame.columns and role != name), None)
        if twice is not None or len(set(own.values())) < len(own):
            raise ValueError(f"columns calls two columns of the areas {twice or next(iter(own.values()))!r}: keep one")
        shares = next((name for name in frame.columns if name not in own and says_shares(frame[name])), None)
        if shares is not None:
            raise ValueError(
                f"column {shares!r} says what share of a leaf lies in an area, and leaves are counted whole: give "
                "Areas with weights, or leave the column out"
            )
        frame = frame.rename(own)
        types = frame.schema.items()
        labels = [name for name, kind in types if name in own.values() or kind.is_integer() or kind in TEXT]
        if not labels:
            raise ValueError("no column holds the names of leaves, as text or whole numbers")
        unread = tuple(name for name in frame.columns if name not in labels and frame[name].drop_nulls().len())
        frame = frame.select(read_labels(frame[name]).str.strip_chars().replace("", None) for name in labels)
        leaf = max(labels, key=lambda name: frame[name].n_unique())
        _refuse_leaves(source, frame[leaf])
        partly = {name: frame[name].is_null() for name in labels if frame[name].null_count()}
        empty = {name: (frame[leaf].filter(own)[0], source.row_of(own)) for name, own in partly.items()}
        used = frame.with_columns(pl.col(name).replace(NOWHERE, None) for name in labels if name != leaf)
        return cls(used, leaf, tuple(own.values()), empty, unread=unread)

    @classmethod
    def _of_areas(cls, areas: Areas) -> LeafTable:
        """The layers of which every leaf lies in one area at most."""
        columns = {}
        for name in areas.levels:
            layer = areas.layer(name)
            if layer.area_of_leaf is not None:
                number = pl.Series(layer.area_of_leaf, dtype=pl.Int64)
                columns[name] = pl.Series(layer.names, dtype=pl.String).gather(number.replace(-1, None))
        return cls(pl.DataFrame(columns), LEAF, areas=areas)

    @cached_property
    def codes(self) -> Mapping[str, pl.Series]:
        """The areas of every column, each once."""
        return {name: self.frame[name].unique(maintain_order=True).drop_nulls() for name in self.frame.columns}

    def named_so(self, name: str) -> str | None:
        """The column of a name, or of the only one that differs in capitals, spaces and hyphens alone."""
        alike = [own for own in self.frame.columns if plain_name(own) == plain_name(name)]
        return name if name in self.frame.columns else alike[0] if len(alike) == 1 else None

    def refuse_unread(self, names: Iterable[str]) -> None:
        """Refuse names of columns without labels: decimal numbers, as frames make of codes where one is missing."""
        for own in self.unread:
            if any(plain_name(name) == plain_name(own) for name in names):
                raise ValueError(f"areas: column {own!r} holds neither text nor whole numbers: give codes as text")

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
            there = listed(self.frame.columns)
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
            leaf, row = self.empty[name]
            raise ValueError(
                f"areas: leaf {shown(leaf)}, row {row}, has no {name!r}: give its code, or {NOWHERE!r} if it lies in "
                "none"
            )
        if not column.null_count():
            return areas.with_layer(level, column.to_list())
        codes = self.codes[name]
        number = column.replace_strict(codes, pl.Series(range(codes.len())), default=None, return_dtype=pl.Int64)
        inside = number.is_not_null().to_numpy()
        entries = np.ones(inside.sum()), (number.drop_nulls().to_numpy(), np.flatnonzero(inside))
        return areas.with_layer(level, sparse.csr_array(entries, shape=(codes.len(), column.len())), codes.to_list())


def _refuse_leaves(source: Source, names: pl.Series) -> None:
    """Refuse names of leaves, (rows,), of which one is empty, counts all leaves or is given twice."""
    source.filled(names, ": name the leaf")
    of_all = next((name for name in names if name.strip() == SUMMED_OUT or is_total(name)), None)
    if of_all is not None:
        row = source.row_of(names == of_all)
        raise ValueError(f"leaf {shown(of_all)}, row {row}, counts all leaves: leave its row out")
    twice = names.is_duplicated()
    if twice.any():
        name = names.filter(twice)[0]
        first, second = source.rows[(names == name).to_numpy()][:2]
        raise ValueError(
            f"leaf {shown(name)} of column {names.name!r} is given twice, in rows {first} and {second}: give each "
            "leaf one row, and all leaves a column of names"
        )
