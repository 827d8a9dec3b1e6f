"""Published tables: shipped lines against the facts that they were written from, and against one another."""

import csv
import gzip
import json
import tomllib
from importlib import resources
from itertools import combinations

import numpy as np
import pytest

from constraint_builders import Schema
from constraint_builders.files import production_settings
from constraint_builders.files.published_tables import PRODUCTS, product_of, published_name, published_tables
from tests.helpers.every import cases, every
from tests.helpers.places import DHC_SETTINGS, TABLE_CATALOGUE
from tests.helpers.refused import refuses

SETTINGS = {
    "pl94_persons": "pl94_us_persons",
    "pl94_units": "pl94_us_units",
    "dhc_persons": "dhc_us_persons",
    "dhc_households": "dhc_us_units",
    "dhc_tenvacgq": "dhc_us_units_tenvacgq",
}
Factors = dict[str, tuple[str, dict[str, set[int]]]]  # of each variable and recode its variable, and levels by label


def ranges(text: str) -> set[int]:
    pieces = [piece.strip().split("-") for piece in text.split(",")]
    return {level for piece in pieces for level in range(int(piece[0]), int(piece[-1]) + 1)}


def factors_of(product: str) -> Factors:
    """Variables and recodes as the production settings write them, and those that the facts suggest for households."""
    file = resources.files("constraint_builders.files") / "production" / f"{SETTINGS[product]}.toml"
    told = tomllib.loads(file.read_text())
    found: Factors = {}
    for name, levels in told["variables"].items():
        labels = levels if isinstance(levels, list) else [str(i) for i in range(levels)]
        found[name] = name, {label: {i} for i, label in enumerate(labels)}
    for variable, recodes in told.get("recodes", {}).items():
        for name, text in recodes.items():
            if isinstance(text, list):  # a label for every level
                found[name] = variable, {own: {i for i, label in enumerate(text) if label == own} for own in text}
                continue
            parts = [" ".join(part.split()) for part in text.split("|")]
            found[name] = variable, {part: ranges(part) for part in parts}
    if product == "dhc_households":
        suggested = json.loads(DHC_SETTINGS.read_text())["dhc_us_units"]["suggested_recodes"]["hhtype_dhch"]
        for name, groups in suggested.items():
            found[name] = "hhtype_dhch", {label: ranges(part) for label, part in groups.items()}
    return found


def counted(selection: str, factors: Factors) -> dict[str, set[int]]:
    """The levels that a selection of the facts counts."""
    levels: dict[str, set[int]] = {}
    for part in selection.split(",") if selection not in ("", "total") else ():
        factor, _, labels = part.partition("=")
        variable, known = factors[factor]
        own = set().union(*(known[label] for label in labels.split("|")))
        levels[variable] = levels.get(variable, own) & own
    return levels


@every("product", PRODUCTS)
def test_every_line_is_that_of_the_facts(product: str) -> None:
    """Label, confidence, cells, and the measured table with fewest cells that tells it."""
    with gzip.open(TABLE_CATALOGUE, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["product"] == product]
    published, factors = published_tables(product), factors_of(product)
    assert sum(len(table.lines) for table in published.tables.values()) == len(rows)
    schema, budget = production_settings(SETTINGS[product]).schema, production_settings(SETTINGS[product]).variances()
    measured = {name for tables in budget.values() for name in tables}
    partitions = {name: measured_partitions(schema, name) for name in measured}
    for row in rows:
        line = published.line(row["line"])
        assert (line.label, line.confidence) == (row["label"], row["confidence"]), row["line"]
        if not row["selection"]:
            assert line.adds
            assert not line.levels
            continue
        levels = counted(row["selection"], factors)
        assert {name: set(np.flatnonzero(own).tolist()) for name, own in line.levels.items()} == levels, row["line"]
        telling = [name for name, parts in partitions.items() if tells(parts, levels)]
        assert cells(partitions[row["coarsest_query"]]) == min(cells(partitions[name]) for name in telling)
        assert row["coarsest_query"] in telling


def measured_partitions(schema: Schema, table: str) -> dict[str, list[set[int]]]:
    """For each variable that a table keeps the sets of levels that it keeps apart."""
    names = schema.names if table == "detailed" else () if table == "total" else table.split(" * ")
    found = {}
    for name in names:
        groups = np.array(schema.groups_of(name))
        found[schema.names[schema.axis_of(name)]] = [set(np.flatnonzero(groups == i).tolist()) for i in set(groups)]
    return found


def tells(partitions: dict[str, list[set[int]]], levels: dict[str, set[int]]) -> bool:
    if not levels.keys() <= partitions.keys():
        return False
    return all(not part & own or part <= own for name, own in levels.items() for part in partitions[name])


def cells(partitions: dict[str, list[set[int]]]) -> int:
    return int(np.prod([len(parts) for parts in partitions.values()]))


@every("product", PRODUCTS)
def test_lines_are_numbered_and_count_something(product: str) -> None:
    published = published_tables(product)
    for name, table in published.tables.items():
        assert [line.code for line in table.lines] == [f"{name}_{i:03}N" for i in range(1, len(table.lines) + 1)]
        assert all(line.confidence in set("ABC") and line.label for line in table.lines)
        for line in table.lines:
            assert all(own.any() and not own.all() for own in line.levels.values()), line.code
            assert all(published.line(code) in table.lines for code in line.adds)
            assert published.line(line.code.lower()) == line


IN_PART = {"Living alone": {"65 years and over"}}  # the one kind of line of which not all parts are lines


@every("product", PRODUCTS)
def test_the_lines_below_a_line_are_disjoint_and_add_up_to_it(product: str) -> None:
    """Cells counted with nothing of how parents are found: each line's own, less those of the lines below it, is 0."""
    published = published_tables(product)
    for table in published.tables.values():
        assert [number for number, above in enumerate(table.parents) if above < 0] == [0]
        names = [name for name in published.schema.names if name in table.variables]
        every_level = {name: np.ones(published.schema.size_of(name), dtype=bool) for name in names}
        cells = [[line.levels.get(name, every_level[name]) for name in names] for line in table.lines]
        for above, line in enumerate(table.lines):
            below = [number for number, own in enumerate(table.parents) if own == above]
            if line.adds:
                assert [table.codes[number] for number in below] == list(line.adds)
                continue
            if not below or {table.lines[number].label for number in below} == IN_PART.get(line.label):
                continue
            for number, other in combinations(below, 2):
                assert any(not (one & two).any() for one, two in zip(cells[number], cells[other], strict=True))
            counts = [np.prod([own.sum() for own in cells[number]]) for number in (above, *below)]
            assert counts[0] == sum(counts[1:]), line.code


def test_paths_say_where_lines_stand() -> None:
    published = published_tables("dhc_persons")
    assert published.path(published.line("P12_003N")) == "P12 > Male > Under 5 years"
    assert published.path(published.line("P12_001N")) == "P12"
    for table in published.tables.values():
        paths = [published.path(line) for line in table.lines[1:]]
        assert [line for path in paths for line in published.named(path)] == list(table.lines[1:])
    races = published_tables("pl94_persons").table("P1")
    assert [races.path(number).count(" > ") for number in (0, 1, 2, 8, 9, 10, 69, 70)] == [0, 1, 2, 1, 2, 3, 2, 3]
    with pytest.raises(ValueError, match="has no line 'P12 > Mal > 20 years': near it is 'P12 > Male > 20 years'"):
        published.named("P12 > Mal > 20 years")


@cases(
("p12", "P12"), ("P0120003", "P12_003N"), ("PCT012A209", "PCT12A_209N"), ("P012A0003", "P12A_003N"),
        ("H0010001", "H1_001N"), ("P0010071", "P1_071N"), ("P12>Male", "P12 > Male"), ("sex * age", ""),
        ("total", ""), ("P12_003N > Male", ""), ("a > b", ""), ("P", ""), ("12", ""),
)  # fmt: skip
def test_names_of_the_files_are_those_of_the_interface(name: str, said: str) -> None:
    assert published_name(name) == said


def test_variables_are_those_of_the_production_settings() -> None:
    for product, name in SETTINGS.items():
        schema, own = production_settings(name).schema, published_tables(product).schema
        assert {v: schema.size_of(v) for v in schema.names} == {v: own.size_of(v) for v in own.names}
        assert product_of(schema) == product


def test_the_product_of_a_schema_is_the_first_that_has_its_variables() -> None:
    assert product_of(Schema({"sex": 2, "age": 116})) == "dhc_persons"
    assert product_of(Schema({"hispanic": 2, "cenrace": 63})) == "pl94_persons"
    assert product_of(Schema({"sex": 2, "hhage": 9})) == "dhc_households"
    assert product_of(Schema({"sex": 2, "income": 3})) is None


@cases(
    ("P99", "no published table 'P99' in dhc_persons: near it are P9"),
    ("PCT12Z", "near it are PCT12, "),
    ("H13", "'H13' is of dhc_households, and this result is of dhc_persons"),
    ("H1", "'H1' is of pl94_units and dhc_tenvacgq"),
    ("", "no published table ''"),
)
def test_unknown_tables_are_refused(name: str, said: str) -> None:
    refuses(said.replace("(", r"\("), published_tables("dhc_persons").table, name)


@every(
    ("code", "said"),
    [("P12_050N", "no line"), ("P12_000N", "no line"), ("P12", "is no line"), ("P12_00٣N", "is no line")],
)
def test_unknown_lines_are_refused(code: str, said: str) -> None:
    refuses(said, published_tables("dhc_persons").line, code)
    refuses("no product 'dhc'", published_tables, "dhc")
