"""Which column of a long table holds what, by the names that people give, and what it says in every table.

Some say what one of several sources measured, such as ``value (register)``. A variable's column holds a label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from constraint_builders.arrays import Integers
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table
from constraint_builders.files.naming import listed

TABLE, GEOLEVEL, GEOCODE, PARENT, SOURCE = "table", "geolevel", "geocode", "parent", "source"
KEYS = (TABLE, GEOLEVEL, GEOCODE, PARENT, SOURCE)
VALUES = ("value", "estimate")
NOTES = ("note", "notes", "comment", "comments", "remark", "remarks", "footnote", "footnotes")
BOUNDS = ("lower", "upper")
VARIANCE, STD_ERROR, MARGIN, CV_PERCENT = "variance", "std_error", "margin", "cv_percent"
SPREADS = {
    VARIANCE: ("variance", "var"),
    STD_ERROR: ("std_error", "standard_error", "stderr", "std_err", "se"),
    CV_PERCENT: ("cv", "coefficient_of_variation", "rse", "relative_standard_error"),
}
MARGINS = re.compile(r"(?:moe|margin_of_error)_?(\d\d(?:_\d+)?)?", re.ASCII)
UNIT = re.compile(r"_(in_)?(percent|pct)")
PERCENT_SIGN = re.compile(r"(?<![\d\s])\s*%")  # that is no level of confidence's
LEAST_LEVEL = 50  # of a margin of error, in percent: smaller ones say how often it is missed
HOW_PRECISE = "variance, std_error, moe_90 (a margin of error of 90 %) or cv_percent"
MEASURED = ("value", "variance", "adjustment", "adjustment_z")
OF_SOURCE = re.compile(rf"({'|'.join(MEASURED)}) \((.*)\)", re.DOTALL)
SUMMED_OUT = "*"


@dataclass(frozen=True)
class Spread:
    """How a column says how precise the values are.

    Attributes
    ----------
    column : str
    kind : str
        "variance", "std_error", "margin" (of error) or "cv_percent" (coefficient of variation).
    level : float
        Of a margin of error, between 0 and 1.
    """

    column: str
    kind: str
    level: float = 0.0


@dataclass(frozen=True)
class Columns:
    """Names of a table's columns by what they hold.

    Attributes
    ----------
    keys : mapping of str to str
        Of ``table``, and where there are ones of ``geolevel``, ``geocode``, ``parent`` and ``source``.
    value : str
    spread : Spread
    variables : mapping of str to str
        For each variable of the schema.
    ignored : tuple of str
        Notes.
    """

    keys: Mapping[str, str]
    value: str
    spread: Spread
    variables: Mapping[str, str]
    ignored: tuple[str, ...]


def find_columns(frame: pl.DataFrame, schema: Schema | None, named: bool = True) -> Columns:
    """Tell columns apart by their names; capitals, spaces and hyphens make no difference.

    Parameters
    ----------
    frame : polars.DataFrame
    schema : Schema or None
        Without one every column that is nothing else is a variable, ``source`` too where it is summed out, and
        ``parent`` without ``geocode``.
    named : bool
        Whether a column must name the table of every row.

    Raises
    ------
    ValueError
        If a column is missing, two are the same thing, or one is nothing that is known.
    """
    names = frame.columns
    if set(BOUNDS) <= set(map(plain_name, names)):
        if not any(map(read_spread, names)):
            raise ValueError(
                "columns 'lower' and 'upper' do not say how precise values are: give std_error, (upper - lower) / 3.92 "
                "where they are intervals of 95 %"
            )
        raise ValueError(
            "columns 'lower' and 'upper': it holds estimates, whose errors are correlated, no measurements"
        )
    variables = _variables(names, schema) if schema else _variables_like_keys(frame)
    roles: dict[str, str] = {}
    spreads: list[Spread] = []
    ignored, strange = [], []
    for name in names:
        if name in variables.values():
            continue
        role = plain_name(name)
        spread = read_spread(name)
        if role in VALUES:
            role = "value"
        if spread is not None:
            spreads.append(spread)
        elif role in (*KEYS, "value"):
            if role in roles:
                raise ValueError(f"columns {roles[role]!r} and {name!r} are both the {role}: keep one")
            roles[role] = name
        elif role in NOTES:
            ignored.append(name)
        else:
            strange.append(name)
    _require(roles, spreads, frame, strange, named)
    if schema:
        _require_variables(schema, variables, names, strange)
    else:
        variables = {name: name for name in names if name in (*variables, *strange)}
    keys = {role: name for role, name in roles.items() if role != "value"}
    return Columns(keys, roles["value"], spreads[0], variables, tuple(ignored))


def plain_name(name: str) -> str:
    """A name in small letters, its words joined by underscores."""
    return re.sub(r"[\W_]+", "_", name.casefold()).strip("_")


def is_role(name: str) -> bool:
    """Whether a name says what a column is: a key, a value, how precise one is, or a note."""
    return plain_name(name) in (*KEYS, *VALUES, *NOTES) or read_spread(name) is not None


def names_measurements(names: Sequence[str | None]) -> bool:
    """Whether one of some names is that of a value, or of how precise it is."""
    known = {*VALUES, *SPREADS[VARIANCE], *SPREADS[STD_ERROR]}
    return any((plain := plain_name(name or "")) in known or MARGINS.fullmatch(plain) for name in names)


def _variables_like_keys(frame: pl.DataFrame) -> dict[str, str]:
    """Columns that have the name of a key, and are variables."""
    roles = {plain_name(name): name for name in frame.columns}
    found = []
    if PARENT in roles and GEOCODE not in roles:
        found.append(roles[PARENT])
    if SOURCE in roles and frame[roles[SOURCE]].dtype == pl.String:
        found += [roles[SOURCE]] if (frame[roles[SOURCE]].str.strip_chars() == SUMMED_OUT).any() else []
    return {name: name for name in found}


def _variables(names: Sequence[str], schema: Schema) -> dict[str, str]:
    """The column of every variable that has one: of its very name, or else the only one much like it."""
    found = {}
    for variable in schema.names:
        alike = [name for name in names if plain_name(name) == plain_name(variable)]
        if variable in names:
            found[variable] = variable
        elif len(alike) == 1 and alike[0] not in schema.names:
            found[variable] = alike[0]
    return found


def read_spread(name: str) -> Spread | None:
    """What a column says of precision by its name; None where it says nothing.

    Raises
    ------
    ValueError
        If it is one that does not say its level or unit.
    """
    role = plain_name(with_unit(name))
    plain, in_percent = UNIT.subn("", role)
    kind = next((kind for kind, spellings in SPREADS.items() if plain in spellings), None)
    margin = MARGINS.fullmatch(role)
    if in_percent and (kind in (VARIANCE, STD_ERROR) or (margin is None and MARGINS.fullmatch(plain))):
        raise ValueError(
            f"column {name!r} is in percent: name it cv_percent where 12 means a standard error of 12 % of the value, "
            f"else {plain} and give it in the unit of the values"
        )
    if kind == CV_PERCENT and not in_percent:
        raise ValueError(f"column {name!r} does not say its unit: name it cv_percent where 12 means 12 %")
    if margin is None:
        return None if kind is None else Spread(name, kind)
    level = float((margin[1] or "0").replace("_", "."))
    if level < LEAST_LEVEL:
        right = f"{100 - level:g}" if level else "90"
        acs = ", as the ACS's are" if right == "90" else ""
        raise ValueError(f"column {name!r} does not say its level: name it moe_{right} if it is of {right} %{acs}")
    return Spread(name, MARGIN, level / 100)


def spreads_by_stem(names: Iterable[str], what: str) -> dict[str, tuple[str, Spread]]:
    """For every stem, of names such as ``female_moe_90``, the words that say how precise it is, and what they say.

    Raises
    ------
    ValueError
        If two say how precise one is; `what` messages call them.
    """
    found: dict[str, tuple[str, Spread]] = {}
    for name in names:
        words = plain_name(with_unit(name)).split("_")
        for first in range(1, len(words)):
            stem, alone = "_".join(words[:first]), "_".join(words[first:])
            spread = read_spread(alone)
            if spread is None:
                continue
            if stem in found:
                both = f"{found[stem][1].column!r} and {name!r}"
                raise ValueError(f"{what} {both} both say how precise {stem!r} is: keep one")
            found[stem] = alone, replace(spread, column=name)
            break
    return found


def stem_of(name: str) -> str:
    """A name of a cell or an array, without a last word that says it is a value."""
    for word in VALUES:
        if plain_name(name).endswith(f"_{word}"):
            return name[: -len(word)].rstrip("_ -.")
    return name


def with_unit(name: str) -> str:
    """A name with a percent sign, other than that of a level of confidence, in words."""
    return PERCENT_SIGN.sub("_in_percent", name)


def _require(
    roles: Mapping[str, str], spreads: Sequence[Spread], frame: pl.DataFrame, strange: Sequence[str], named: bool
) -> None:
    there = f"there are {listed(frame.columns)}"
    if named and TABLE not in roles:
        raise ValueError(f"column 'table' is missing: {there}; it says what a row counts, 'total' or 'sex * age'")
    if "value" not in roles:
        raise ValueError(f"column 'value' is missing: {there}{_hint_for_wide(frame, strange, named)}")
    if not spreads:
        raise ValueError(f"column 'variance' is missing: {there}; give {HOW_PRECISE}")
    if len(spreads) > 1:
        both = " and ".join(repr(spread.column) for spread in spreads[:2])
        raise ValueError(f"columns {both} both say how precise the values are: keep one")
    for role, other in ((GEOLEVEL, GEOCODE), (GEOCODE, GEOLEVEL), (PARENT, GEOCODE)):
        if role in roles and other not in roles:
            raise ValueError(f"column {other!r} is missing beside {roles[role]!r}: a geounit has a level and a code")


def _hint_for_wide(frame: pl.DataFrame, strange: Sequence[str], named: bool) -> str:
    """What to do with a table that has numbers in several columns."""
    numbers = [name for name in strange if holds_numbers(frame[name])]
    if len(numbers) < 2:
        return "".join(f"; if it is {name!r}, say so in columns=" for name in numbers)
    if not named:
        return f"; call one 'value' in columns=, or give names_to=, the variable of which {numbers[0]!r} is a level"
    return f"; give each number of {listed(numbers)} a row of its own, these names in one column more"


def holds_numbers(column: pl.Series) -> bool:
    """Whether a column holds numbers alone where it holds anything."""
    said = column.drop_nulls()
    return bool(said.len() and said.cast(pl.String, strict=False).cast(pl.Float64, strict=False).is_not_null().all())


def _require_variables(
    schema: Schema, variables: Mapping[str, str], names: Sequence[str], strange: Sequence[str]
) -> None:
    recodes = {plain_name(recode.name): schema.names[recode.axis] for recode in schema.recodes}
    for name in strange:
        if variable := recodes.get(plain_name(name)):
            raise ValueError(f"column {name!r} is a recode: write its groups in the column {variable!r}, and drop it")
    for variable in schema.names:
        if variable not in variables:
            alike = [repr(name) for name in names if plain_name(name) == plain_name(variable)]
            several = f"{' and '.join(alike)} are much alike"
            seen = several if len(alike) > 1 else f"there are {listed(names)}"
            raise ValueError(f"column {variable!r} is missing: {seen}")
    if strange:
        raise ValueError(f"column {strange[0]!r} is no variable of the schema: it has {', '.join(schema.names)}")


def with_source(name: str, source: str) -> str:
    """The name of a column of `MEASURED` of one source, the plain one where it has no name.

    Examples
    --------
    >>> with_source("value", "register"), without_source("value (register)"), without_source("value")
    ('value (register)', ('value', 'register'), ('value', ''))
    """
    return f"{name} ({source})" if source else name


def without_source(name: str) -> tuple[str, str]:
    """What a column holds and of which source, empty where its name does not say one; see `with_source`."""
    found = OF_SOURCE.fullmatch(name)
    return (found[1], found[2]) if found else (name, "")


@dataclass(frozen=True)
class CellKeys:
    """What every column says in every table.

    Attributes
    ----------
    labels : tuple
        ``labels[axis][factor]`` are the labels that the column of variable `axis` takes where a table has that factor
        of it: factor 0 is summed out, with the one label ``*``; 1 is the variable's levels, later ones its recodes.
    factors : ndarray, (tables, variables)
        Which factor of every variable every table has.
    """

    tables: tuple[Table, ...]
    labels: tuple[tuple[tuple[str, ...], ...], ...]
    factors: Integers

    @cached_property
    def strides(self) -> Integers:
        """By how much the position in a table grows with a cell along every variable, (tables, variables)."""
        strides = np.zeros_like(self.factors)
        for row, table in zip(strides, self.tables, strict=True):
            stride = 1
            for axis, size in zip(reversed(table.axes), reversed(table.shape), strict=True):
                row[axis] = stride
                stride *= size
        return strides

    def numbers(self, axis: int, table_of_cell: Integers, position_in_table: Integers) -> Integers:
        """For every cell, (n,), the number of its label in ``labels[axis]``, all factors laid end to end."""
        extents = np.array([len(labels) for labels in self.labels[axis]])
        starts = np.cumsum(extents) - extents
        factors = self.factors[:, axis]
        along = position_in_table // np.maximum(self.strides[:, axis], 1)[table_of_cell]
        return starts[factors][table_of_cell] + along % extents[factors][table_of_cell]


def cell_keys(schema: Schema, tables: Sequence[Table]) -> CellKeys:
    """Work out what every column says in every one of `tables`.

    Raises
    ------
    ValueError
        If a level or a recode's group is labelled ``*``, which says that a variable is summed out.
    """
    labels: list[list[tuple[str, ...]]] = [[(SUMMED_OUT,), variable.levels] for variable in schema.variables]
    numbers = dict.fromkeys(schema.names, 1)
    for recode in schema.recodes:
        numbers[recode.name] = len(labels[recode.axis])
        labels[recode.axis].append(recode.labels)
    for name, factors in zip(schema.names, labels, strict=True):
        if any(SUMMED_OUT in factor for factor in factors[1:]):
            raise ValueError(
                f"variable {name!r} has the label {SUMMED_OUT!r}, in files the sign of summed out: rename it"
            )
    found = np.zeros((len(tables), len(labels)), dtype=np.int64)
    for row, table in zip(found, tables, strict=True):
        row[list(table.axes)] = [numbers[factor] for factor in table.factors]
    return CellKeys(tuple(tables), tuple(tuple(factors) for factors in labels), found)
