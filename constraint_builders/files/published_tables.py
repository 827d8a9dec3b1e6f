"""The tables that the Census Bureau published of 2020, line by line, as sums of the cells that were measured.

The files in ``published/`` say which levels of which variables each line counts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.files.schema_file import build_schema, levels_in, parse_document
from constraint_builders.opening import SHIPPED

PRODUCTS = ("pl94_persons", "pl94_units", "dhc_persons", "dhc_households", "dhc_tenvacgq")
OF_SETTINGS = {
    f"{family}_{place}_{kind}": product
    for place in ("us", "pr")
    for (family, kind), product in {
        ("pl94", "persons"): "pl94_persons",
        ("pl94", "units"): "pl94_units",
        ("dhc", "persons"): "dhc_persons",
        ("dhc", "units"): "dhc_households",
        ("dhc", "housing"): "dhc_households",
        ("dhc", "units_tenvacgq"): "dhc_tenvacgq",
    }.items()
}
BELOW = " > "  # between the labels of a path
_LINE = re.compile(r"(?P<table>[A-Z]+\d+[A-Z]?)_(?P<number>\d{3})N", re.ASCII)
_TABLE = re.compile(r"[A-Z]+\d+[A-Z]?", re.ASCII)
_IN_FILES = re.compile(r"([A-Z]+)(\d{3})(?:([A-Z])0?|0)(\d{3})", re.ASCII)  # P0120003 and P012A003

MOST_LINES = 1000  # of a table, whose codes have three digits
LevelsCounted = Mapping[str, NDArray[np.bool_]]


def published_name(name: str) -> str:
    """The name of a published table or line as the interface has it, or "" if it is written as neither.

    Parameters
    ----------
    name : str
        A table ``"P12"``, a line ``"P12_003N"``, one as the Census Bureau's files name it, ``"P0120003"``, or a path of
        labels, ``"P12 > Male > Under 5 years"``.

    Examples
    --------
    >>> published_name("P0120003"), published_name("p12 > Male"), published_name("sex * age")
    ('P12_003N', 'P12 > Male', '')
    """
    table, below, labels = str(name).strip().partition(BELOW.strip())
    code = table.strip().upper()
    if below and _TABLE.fullmatch(code):
        return f"{code}{BELOW}{labels.strip()}"
    if below or _LINE.fullmatch(code):
        return "" if below else code
    match = _IN_FILES.fullmatch(code)
    if match is not None:
        letters, number, iteration, line = match.groups()
        return f"{letters}{int(number)}{iteration or ''}_{line}N"
    return code if _TABLE.fullmatch(code) else ""


@dataclass(frozen=True)
class PublishedLine:
    """One line of a published table.

    Attributes
    ----------
    code : str
        As the Census Bureau's interface names it, such as ``"P12_003N"``.
    label : str
    confidence : str
        ``"A"`` where the Census Bureau's list of fields has the line by this number, as it has all that are here.
    levels : mapping of str to ndarray of bool
        For each variable that the line restricts which of its levels are counted.
    adds : tuple of str
        Instead of cells, the lines that this one adds up, where some people count in several.
    """

    code: str
    label: str
    confidence: str
    levels: LevelsCounted
    adds: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedTable:
    """A published table: its lines in order, their codes, and the variables that they need; a note, or none."""

    name: str
    title: str
    product: str
    lines: tuple[PublishedLine, ...]
    note: str = ""

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of its lines."""
        return tuple(line.code for line in self.lines)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that some line restricts."""
        return tuple(dict.fromkeys(name for line in self.lines for name in line.levels))

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """For every line the number, from 0, of the line above it of which it is a part, -1 for the first."""
        parents: list[int] = []
        for number, line in enumerate(self.lines):
            above = number - 1
            while above >= 0 and not _is_part(line, self.lines[above]):
                above = parents[above]
            parents.append(above)
        return tuple(parents)

    def path(self, number: int) -> str:
        """Where a line, by its number from 0, stands: ``"P12 > Male > Under 5 years"``; the first is ``"P12"``."""
        above = self.parents[number]
        return self.name if above < 0 else f"{self.path(above)}{BELOW}{self.lines[number].label}"


@dataclass(frozen=True)
class PublishedTables:
    """All published tables of one product.

    Attributes
    ----------
    product : str
        One of `PRODUCTS`.
    schema : Schema
        The variables, and the recodes by which lines are written.
    tables : mapping of str to PublishedTable
    """

    product: str
    schema: Schema
    tables: Mapping[str, PublishedTable]

    def table(self, name: str) -> PublishedTable:
        """A table by its name, in any case.

        Raises
        ------
        ValueError
            If the product has no such table; names that are near are told.
        """
        wanted = str(name).strip().upper()
        if wanted not in self.tables:
            raise ValueError(self._unknown_table(str(name), wanted))
        return self.tables[wanted]

    def line(self, code: str) -> PublishedLine:
        """A line by its code, such as ``"P12_003N"``.

        Raises
        ------
        ValueError
            If the product has no such line.
        """
        match = _LINE.fullmatch(str(code).strip().upper())
        if match is None:
            raise ValueError(f"{code!r} is no line of a published table: lines are written such as 'P12_003N'")
        table = self.table(match["table"])
        number = int(match["number"])
        if not 1 <= number <= len(table.lines):
            raise ValueError(
                f"table {table.name} has no line {code!r}: its lines are {table.codes[0]} to {table.codes[-1]}"
            )
        return table.lines[number - 1]

    def path(self, line: PublishedLine) -> str:
        """Where a line stands: ``"P12 > Male > Under 5 years"``."""
        table, _, number = line.code.removesuffix("N").partition("_")
        return self.tables[table].path(int(number) - 1)

    def named(self, name: str) -> tuple[PublishedLine, ...]:
        """The lines of a table, or one line, by any of the names of `published_name`.

        Raises
        ------
        ValueError
            If the product has no such table or line; names that are near are told.
        """
        code = published_name(name)
        if BELOW in code:
            return (self._at(code),)
        return (self.line(code or name),) if "_" in (code or str(name)) else self.table(code or name).lines

    def _at(self, path: str) -> PublishedLine:
        """The line at a path of labels, in any case."""
        table = self.table(path.partition(BELOW)[0])
        wanted = _plain(path)
        paths = [table.path(number) for number in range(len(table.lines))]
        found = [line for line, own in zip(table.lines, paths, strict=True) if _plain(own) == wanted]
        if not found:
            near = difflib.get_close_matches(wanted, map(_plain, paths), 1, 0.0)
            shown = next(own for own in paths if _plain(own) == near[0])
            raise ValueError(f"table {table.name} has no line {path!r}: near it is {shown!r}")
        return found[0]

    def _unknown_table(self, name: str, wanted: str) -> str:
        elsewhere = [own for own in PRODUCTS if own != self.product and wanted in _document(own).tables]
        if elsewhere:
            return f"table {name!r} is of {' and '.join(elsewhere)}, and this result is of {self.product}"
        near = difflib.get_close_matches(wanted, self.tables, 4, 0.6)
        there = ", ".join(near or [*list(self.tables)[:8], "..."])
        return f"no published table {name!r} in {self.product}: {'near it are' if near else 'there are'} {there}"


def _plain(path: str) -> str:
    return BELOW.join(label.strip().casefold() for label in path.split(BELOW.strip()))


def _is_part(line: PublishedLine, above: PublishedLine) -> bool:
    """Whether all that a line counts is counted by another."""
    if above.adds or line.adds:
        return line.code in above.adds
    return all(name in line.levels and not (line.levels[name] & ~own).any() for name, own in above.levels.items())


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    lines: str = ""
    of: str = ""
    cells: str = ""
    first: str = ""
    confidence: str = ""
    note: str = ""


class _Product(Struct, frozen=True, forbid_unknown_fields=True):
    variables: dict[str, int | list[str]]
    tables: dict[str, _Table]
    recodes: dict[str, dict[str, str]] = {}


@cache
def published_tables(product: str) -> PublishedTables:
    """The published tables of a product.

    Parameters
    ----------
    product : str
        One of `PRODUCTS`.

    Raises
    ------
    ValueError
        If there is no such product.

    Examples
    --------
    >>> line = published_tables("dhc_persons").line("P12_003N")
    >>> line.label, line.confidence, {name: int(counted.sum()) for name, counted in line.levels.items()}
    ('Under 5 years', 'A', {'sex': 1, 'age': 5})
    """
    document = _document(product)
    schema = build_schema(document.variables, document.recodes)
    tables: dict[str, PublishedTable] = {}
    for name, told in document.tables.items():
        lines = _iteration(name, told, tables[told.of], schema) if told.of else _lines(name, told, schema)
        tables[name] = PublishedTable(name, told.title, product, tuple(lines), told.note)
    return PublishedTables(product, schema, MappingProxyType(tables))


def product_of(schema: Schema, settings: str = "") -> str | None:
    """Which of `PRODUCTS` has all variables of a schema, by their names or those of recodes; None if there is none.

    Parameters
    ----------
    schema : Schema
    settings : str
        Name of a production run, whose product is meant where several have these variables; else the first is.
    """
    own = OF_SETTINGS.get(settings)
    products = PRODUCTS if own is None else (own, *PRODUCTS)
    found = (name for name in products if set(schema.names) <= _document(name).variables.keys())
    return next(found, None) or next((name for name in products if _has_recodes(name, schema)), None)


def _has_recodes(product: str, schema: Schema) -> bool:
    """Whether a product has every variable of a schema, or a recode of it in its place."""
    variables = _document(product).variables.keys()
    return all(any(own in variables for own in schema.factors_of(name)) for name in schema.names)


@cache
def _document(product: str) -> _Product:
    if product not in PRODUCTS:
        raise ValueError(f"no product {product!r} with published tables: there are {', '.join(PRODUCTS)}")
    return parse_document((SHIPPED / "published" / f"{product}.toml").read_text(encoding="utf-8"), _Product)


def _lines(name: str, told: _Table, schema: Schema) -> Iterator[PublishedLine]:
    for number, text in enumerate(told.lines.strip().splitlines(), 1):
        confidence, label, *cells = (part.strip() for part in text.split("|"))
        written = cells[0] if cells else ""
        if written.startswith("sum "):
            adds = tuple(_code(name, i) for i in levels_in(written.removeprefix("sum ").replace("+", ","), MOST_LINES))
            yield PublishedLine(_code(name, number), label, confidence, {}, adds)
        else:
            yield PublishedLine(_code(name, number), label, confidence, _levels(written, schema))


def _iteration(name: str, told: _Table, base: PublishedTable, schema: Schema) -> Iterator[PublishedLine]:
    """The lines of a table for some people or households only."""
    own = _levels(told.cells, schema)
    for number, line in enumerate(base.lines, 1):
        levels = MappingProxyType({**line.levels, **own})
        label, confidence = (told.first, told.confidence[0]) if number == 1 else (line.label, told.confidence[1])
        yield PublishedLine(_code(name, number), label, confidence, levels)


def _code(table: str, number: int) -> str:
    return f"{table}_{number:03}N"


def _levels(text: str, schema: Schema) -> LevelsCounted:
    """For each variable which of its levels are counted, of text such as ``"sex=0 age=0-4"``."""
    levels: dict[str, NDArray[np.bool_]] = {}
    for part in text.split():
        factor, _, numbers = part.partition("=")
        variable = schema.names[schema.axis_of(factor)]
        counted = np.isin(schema.groups_of(factor), list(levels_in(numbers.replace("+", ","), schema.size_of(factor))))
        levels[variable] = levels.get(variable, True) & counted
    return MappingProxyType(levels)
