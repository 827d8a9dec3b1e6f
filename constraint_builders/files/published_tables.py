"""The tables that the Census Bureau published of 2020, line by line, as sums of the cells that were measured.

The files in ``published/`` say which levels of which variables each line counts, and how sure its number is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.files.schema_file import build_schema, parse_document

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
UNSURE = "C"  # confidence of a line whose number is from memory
_LINE = re.compile(r"(?P<table>[A-Z]+\d+[A-Z]?)_(?P<number>\d{3})N", re.ASCII)

LevelsCounted = Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class PublishedLine:
    """One line of a published table.

    Attributes
    ----------
    code : str
        As the Census Bureau's interface names it, such as ``"P12_003N"``.
    label : str
    confidence : str
        ``"A"`` if public code confirms that the line has this number, ``"B"`` if the number of lines and some of them
        do, ``"C"`` if it is from memory of 2010: the cells are right for the label, the number may be another.
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

    def _unknown_table(self, name: str, wanted: str) -> str:
        elsewhere = [product for product in PRODUCTS if product != self.product and wanted in _names(product)]
        if elsewhere:
            return f"table {name!r} is of {' and '.join(elsewhere)}, and this result is of {self.product}"
        near = difflib.get_close_matches(wanted, self.tables, 4, 0.6)
        there = ", ".join(near or [*list(self.tables)[:8], "..."])
        return f"no published table {name!r} in {self.product}: {'near it are' if near else 'there are'} {there}"


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
    return all(
        name in variables or any(recode.axis == axis and recode.name in variables for recode in schema.recodes)
        for axis, name in enumerate(schema.names)
    )


@cache
def _document(product: str) -> _Product:
    if product not in PRODUCTS:
        raise ValueError(f"no product {product!r} with published tables: there are {', '.join(PRODUCTS)}")
    file = resources.files("constraint_builders.files") / "published" / f"{product}.toml"
    return parse_document(file.read_text(encoding="utf-8"), _Product)


def _names(product: str) -> frozenset[str]:
    return frozenset(_document(product).tables)


def _lines(name: str, told: _Table, schema: Schema) -> Iterator[PublishedLine]:
    for number, text in enumerate(told.lines.strip().splitlines(), 1):
        confidence, label, *cells = (part.strip() for part in text.split("|"))
        written = cells[0] if cells else ""
        if written.startswith("sum "):
            adds = tuple(_code(name, i) for i in _numbers(written.removeprefix("sum ")))
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
        counted = np.isin(schema.groups_of(factor), _numbers(numbers))
        levels[variable] = levels.get(variable, True) & counted
    return MappingProxyType(levels)


def _numbers(text: str) -> list[int]:
    """Whole numbers of text such as ``"0-4+7"``."""
    ranges = (piece.partition("-") for piece in text.split("+"))
    return [number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)]
