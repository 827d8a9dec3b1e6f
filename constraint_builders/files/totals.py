"""Labels that count everybody: of whatever name, of several languages, or asked about where they may be levels."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace

from constraint_builders.description.schema import Schema
from constraint_builders.files.cell_keys import SUMMED_OUT
from constraint_builders.files.labels import plain_label
from constraint_builders.files.naming import shown
from constraint_builders.files.numbers import read_labels
from constraint_builders.files.source import Source

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
