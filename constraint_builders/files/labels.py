"""Labels as people write them, matched with those of a schema.

Those that count everybody have many names, in several languages, and are asked about where they may be levels.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.cell_keys import SUMMED_OUT
from constraint_builders.files.naming import shown
from constraint_builders.files.numbers import read_labels
from constraint_builders.files.source import Source

_ALIKE = str.maketrans("‐‑‒–—−‘’‛ʼ", "------''''")  # dashes and apostrophes
_WHOLE_FLOAT = re.compile(r"([0-9]+)\.0+")


class LabelNumbers:
    """The numbers of labels: of the very label, or of the only one whose `plain_label` is the same.

    Parameters
    ----------
    labels : sequence of str
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._exact = {label: number for number, label in enumerate(labels)}
        self._alike: dict[str, int | None] = {}
        for number, label in enumerate(labels):
            self._alike[plain_label(label)] = None if plain_label(label) in self._alike else number

    def get(self, label: str) -> int:
        """Its number, or -1."""
        found = self._exact.get(label, self._alike.get(plain_label(label)))
        return -1 if found is None else found


def plain_label(label: str) -> str:
    """A label without what makes no difference: capitals, kinds of spaces, dashes, accents, what nobody sees, 1.0."""
    seen = "".join(c for c in unicodedata.normalize("NFKC", label) if unicodedata.category(c) != "Cf")
    plain = " ".join(seen.translate(_ALIKE).casefold().split())
    return _WHOLE_FLOAT.sub(r"\1", plain) if _WHOLE_FLOAT.fullmatch(plain) else plain


def refuse_alike(labels: Iterable[str], what: str) -> None:
    """Raise `ValueError` for two labels of one `plain_label`."""
    first: dict[str, str] = {}
    for label in labels:
        other = first.setdefault(plain_label(label), label)
        if other != label:
            raise ValueError(f"{what} has both {other!a} and {label!a}: write one of them")


def inferred_levels(labels: pl.Series, rows: NDArray[np.int64]) -> list[str]:
    """The levels that labels name, without outer spaces, in order as `in_order` puts them.

    Parameters
    ----------
    labels : polars.Series
        A column of a table.
    rows : ndarray of int
        The number of every row there, for messages.

    Raises
    ------
    ValueError
        If two have one `plain_label`.
    """
    stripped = labels.str.strip_chars()
    levels = [label for label in stripped.unique(maintain_order=True) if label != SUMMED_OUT]
    first: dict[str, str] = {}
    for level in levels:
        other = first.setdefault(plain_label(level), level)
        if other != level:
            places = [rows[int((stripped == label).arg_max() or 0)] for label in (other, level)]
            as_shown = ascii if unicodedata.normalize("NFC", other) == unicodedata.normalize("NFC", level) else repr
            seen = f"{as_shown(other)} (row {places[0]}) and {as_shown(level)} (row {places[1]})"
            raise ValueError(f"column {labels.name!r} has both {seen}: write one of them, or give a schema with both")
    return in_order(levels)


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels sorted: numbers by size, others by the alphabet, digits inside of them as numbers."""
    return sorted(labels, key=_natural)


def _natural(label: str) -> tuple[bool, float, list[tuple[int, str]], str]:
    """A key to sort labels by: 2 before 10, ``0-4`` and ``5-9`` before ``10-14``."""
    try:
        number = float(label)
    except ValueError:
        number = np.nan
    digits = [part.lstrip("0") if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", plain_label(label)))]
    text = [(len(part) if i % 2 else 0, part) for i, part in enumerate(digits)]
    return (True, 0.0, text, label) if np.isnan(number) else (False, number, text, label)


def read_table_name(schema: Schema, name: str) -> tuple[str, Table]:
    """A table by its name, or one that differs from it in capitals and spaces alone, and the name put right.

    Raises
    ------
    ValueError
        If there is none.
    """
    try:
        return name, parse_table(schema, name)
    except ValueError:
        factors = [*schema.names, *(recode.name for recode in schema.recodes), "total", "detailed"]
        numbers = LabelNumbers(factors)
        found = [numbers.get(factor) for factor in name.split("*")]
        if min(found) < 0:
            raise
        right = " * ".join(factors[number] for number in found)
        return right, parse_table(schema, right)


_LISTED = """
all, all total, everybody, everyone, grand total, overall, overall total, sum, sum total, tot, total, total sum, totals,
alle, gesamt, gesamtergebnis, gesamtsumme, gesamtzahl, insgesamt, insg, summe, zusammen, zus,
ensemble, somme, total general, totales, tous, toutes, complessivo, somma, totale, totale generale, totali, tutte,
tutti, soma, suma, suma total, todas, todos, total geral, eindtotaal, totaal, totalt, i alt, ialt, sammanlagt, samtals,
yhteensa, kaikki, tổng số, tổng cộng,
lacznie, ogolem, razem, celkem, spolu, uhrnem, osszesen, mindosszesen, skupaj, ukupno, укупно, общо, всего, итого,
усього, разом, συνολο, toplam, jumlah, kokku, kopa, is viso, guztira,
合計, 総数, 総計, 合计, 总计, 总数, 合計數, 總計, 합계, 총계, 전체, รวม, المجموع, الاجمالي, סה כ, कुल
"""
_MAY_BE = """
t, any, both, combined, together, aggregate, subtotal, sub total, subtotals, zwischensumme, sous total,
people, person, persons, population, inhabitants, residents, individuals, households, universe, total population,
personen, bevolkerung, einwohner, haushalte, personnes, population totale, personas, poblacion, persone, popolazione,
pessoas, populacao, osoby, ludnosc,
state, statewide, nation, national, nationwide, country, countrywide, world, worldwide, whole country
"""
SDMX_TOTAL = "_t"
OTHERS = (
    r"(?!.*\b(others?|else|rest|remaining|autres?|ander\w*|ubrig\w*|sonstig\w*|otr[ao]s|demas|altr[ie]|outr[ao]s)\b)"
)
ALL_OF = re.compile(
    rf"(all|total|totale?s?|totaa?l|alle[rs]?|tous|toutes|tod[ao]s|tutt[ei]) {OTHERS}\w.*"
    r"|.* (totals?|totale|insgesamt|zusammen|combined)|(sub ?totals?|sum of) .*"
    r"|(both|ambos|beiderlei|beide|les deux|deux) (sexes|genders|sexos|geschlechts?|geschlechter)"
)
NO_COUNTS = re.compile(
    r"%|\b(median|mean|average|avg|durchschnitt|mittelwert|moyenne|promedio|ø|minimum|maximum|percent(age)?|pct|ratio|"
    r"rate|per capita|density|(net )?change (since|from|between|in)|difference|margin of error|moe|standard error|"
    r"sample size|number of cases|unweighted)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")


def _words(label: str) -> str:
    """The words of a label, in small letters without accents, with one space between them."""
    letters = unicodedata.normalize("NFKD", label.casefold().replace("ł", "l"))
    return " ".join(_WORD.findall("".join(c for c in letters if not unicodedata.combining(c))))


TOTALS, MAY_BE_TOTALS = (frozenset(map(_words, text.split(","))) for text in (_LISTED, _MAY_BE))


def is_total(label: str) -> bool:
    """Whether a label says that all are counted, in one of several languages."""
    return _words(label) in TOTALS or label.strip().casefold() == SDMX_TOTAL


def may_be_total(label: str) -> bool:
    """Whether a label may say that all are counted, and may be a level."""
    words = _words(label)
    return not words or words in MAY_BE_TOTALS or ALL_OF.fullmatch(words) is not None


def with_totals(
    table: Source, variables: Mapping[str, str], schema: Schema | None, marks: Sequence[str]
) -> tuple[Source, tuple[str, ...]]:
    """Put ``*`` for every label that counts everybody.

    Parameters
    ----------
    table : Source
    variables : mapping of str to str
        The column of every variable.
    schema : Schema or None
        Its labels are no totals, unless a mark is one. Without it what may be a total is asked about.
    marks : sequence of str
        The labels that count everybody, if they are said: where one of them is, or ``*`` is among them, no others do.

    Returns
    -------
    table : Source
    found : tuple of str
        Columns and labels, other than ``*``, such as ``"sex 'Total:'"``.

    Raises
    ------
    ValueError
        If a label may be a total, or a mark is none of the labels.
    """
    found: list[str] = []
    columns = []
    said = {plain_label(mark) for mark in marks}
    missing = said - {SUMMED_OUT}
    for variable, column in variables.items():
        labels = read_labels(table.frame[column])
        there = labels.drop_nulls().unique(maintain_order=True).to_list()
        missing -= set(map(plain_label, there))
        taken = {plain_label(label) for label in _labels_of(schema, variable)} if schema else set()
        totals = [label for label in there if plain_label(label) in said]
        if not totals and SUMMED_OUT not in said:
            totals = [label for label in there if is_total(label) and plain_label(label) not in taken]
            if not schema:
                _ask(column, [label for label in there if label not in totals])
        totals = [label for label in totals if label.strip() != SUMMED_OUT]
        if totals:
            found += [f"{column} {label!r}" for label in totals]
            columns.append(labels.replace(totals, [SUMMED_OUT] * len(totals)).alias(column))
    if missing:
        mark = next(mark for mark in marks if plain_label(mark) in missing)
        raise ValueError(f"{mark!r} is said to count everybody by total= and is no label of {', '.join(variables)}")
    return (replace(table, frame=table.frame.with_columns(columns)) if columns else table), tuple(found)


def _labels_of(schema: Schema, variable: str) -> list[str]:
    """The labels of a variable's levels and of the groups of its recodes."""
    axis = schema.axis_of(variable)
    groups = [label for recode in schema.recodes if recode.axis == axis for label in recode.labels]
    return [*schema.labels_of(variable), *groups]


def _ask(column: str, labels: Sequence[str]) -> None:
    is_level = f"where it is a level, say total= '{SUMMED_OUT}' or give a schema"
    for label in labels:
        if not label.strip():
            raise ValueError(f"column {column!r} has an empty label: write {SUMMED_OUT!r} where all are counted")
        if NO_COUNTS.search(label.replace("_", " ")):
            raise ValueError(f"column {column!r}: is {shown(label)} a count? leave its rows out or, {is_level}")
        if label.strip() != SUMMED_OUT and may_be_total(label):
            raise ValueError(
                f"column {column!r}: does {shown(label)} count everybody? write 'total' in its place, or name it by "
                f"total= or, {is_level}"
            )
