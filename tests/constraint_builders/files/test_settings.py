"""Settings: the production ones are those of the published facts, and wrong files are refused by key."""

import csv
import json
import tomllib
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from constraint_builders import Schema
from constraint_builders.budget import Budget
from constraint_builders.description.schema import Recode
from constraint_builders.description.table import parse_table
from constraint_builders.files import PRODUCTION, production_settings, read_settings
from constraint_builders.files.kept_variables import TIED, keep_variables, settings_over, tied_settings
from constraint_builders.files.schema_file import parse_partition
from constraint_builders.files.settings import EXAMPLES, find_settings, parse_settings
from constraint_builders.relations.marginals import refines
from tests.helpers.every import cases, every
from tests.helpers.places import DHC_SETTINGS, HOUSEHOLD_TYPES, PRODUCTION_SETTINGS

SMALL = """
geolevels = ["State", "Block"]
[variables]
sex = ["female", "male"]
age = 5
[recodes]
age.adult = "0-1 | 2-4"
[selections]
age.old = [3, 4]
[budget]
total = "1/2"
[budget.geolevels]
State = "1/5"
Block = "4/5"
[budget.tables]
total = [1, "1/4"]
detailed = [0, "3/4"]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


def facts(path: Path = PRODUCTION_SETTINGS) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", ["pl94_us_persons", "pl94_pr_persons"])
def test_variances_are_the_published_ones(name: str) -> None:
    published = facts()[name]["variance_unbypassed"]
    measured = {
        level: {table: variance for table, variance in row.items() if variance is not None}
        for level, row in published.items()
    }
    assert production_settings(name).variances() == measured


@every("name", [name for name in PRODUCTION if name.startswith("pl94")])
def test_shares_are_the_published_fractions(name: str) -> None:
    settings = production_settings(name)
    assert list(settings.budget.losses) == list(settings.geolevels)
    published = facts()[name]
    assert settings.budget.total == Fraction(published["rho"])
    expected = {level: Fraction(share) for level, share in published["geolevel_share"].items()}
    assert settings.budget.geolevel_shares == expected


@every("name", [name for name in PRODUCTION if name.startswith("dhc")])
def test_dhc_losses_are_those_of_the_published_code(name: str) -> None:
    settings, run = production_settings(name), name.removesuffix("_tenvacgq")
    published = facts(DHC_SETTINGS)[run]
    households = "tenvacgq" not in name
    expected: dict[str, dict[str, Fraction]] = {}
    for level, row in published["rho_per_geolevel_query_x1e4"].items():
        own = zip(published["queries"], row, published["query_cells"], strict=True)
        for query, rho, cells in ((q, r, c) for q, r, c in own if (q != "tenvacgq") == households):
            assert parse_table(settings.schema, query).size == cells
            expected.setdefault(level, {})[query] = Fraction(rho, 10_000)
    assert {level: dict(row) for level, row in settings.budget.losses.items()} == expected
    assert list(settings.geolevels) == published["geolevels"]
    both = [n for n in PRODUCTION if n.startswith(run)]
    assert sum(production_settings(n).budget.total for n in both) == Fraction(published["rho_total"])


def test_recodes_of_households_are_those_of_their_attributes() -> None:
    with HOUSEHOLD_TYPES.open(newline="") as file:
        rows = list(csv.DictReader(file))
    schema = production_settings("dhc_us_units").schema
    recodes = {
        "multig": ["multigenerational"],
        "coupled_hh_type": ["couple"],
        "DetailedCoupleTypeMultGenDetOwnChildSize": ["couple", "multigenerational", "own_children", "size"],
    }
    for name, attributes in recodes.items():
        groups = [tuple(row[attribute] for attribute in attributes) for row in rows]
        number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
        expected = {frozenset(i for i, own in enumerate(groups) if own == group) for group in number}
        found = np.asarray(next(recode.groups for recode in schema.recodes if recode.name == name))
        assert {frozenset(np.flatnonzero(found == group).tolist()) for group in set(found.tolist())} == expected


def test_sizes_of_the_tables_are_the_published_ones() -> None:
    pl94 = production_settings("pl94_us_persons")
    sizes = [parse_table(pl94.schema, name).size for name in pl94.budget.losses["State"]]
    assert sizes == [1, 63, 2, 2, 3, 8, 126, 126, 4, 252, 2016]


def test_the_recodes_nest_as_published() -> None:
    schema = production_settings("dhc_us_persons").schema
    for fine, coarse in [
        ("age_40_groups", "age_38_groups"),
        ("age_38_groups", "age_18_64_116"),
        ("age_40_groups", "age_10_groups"),
        ("relship_and_eight_level_GQ", "popSehsdTargetsRelship"),
        ("relship_and_eight_level_GQ", "hhgq8lev"),
        ("age_18_64_116", "votingage"),
    ]:
        assert refines(schema, parse_table(schema, fine), parse_table(schema, coarse)), (fine, coarse)
    assert not refines(schema, parse_table(schema, "age_38_groups"), parse_table(schema, "age_10_groups"))
    assert schema.groups_of("gq_constr_groups")[17:42] == (
        0,
        *[2] * 5,
        4,
        *[5] * 7,
        4,
        1,
        3,
        4,
        4,
        5,
        *[3] * 5,
    )  # as listed
    assert schema.labels_of("hhgq8lev")[4] == "28-32"
    pl94 = production_settings("pl94_us_persons").schema
    assert pl94.groups_of("hhinstlevels") == (0, 1, 1, 1, 1, 2, 2, 2)
    races = pl94.labels_of("cenrace")
    assert [label.count("+") for label in races] == sorted(label.count("+") for label in races)
    assert [races[i] for i in (0, 5, 6, 21, 41, 56, 62)] == [
        "white", "sor", "white+black", "white+black+aian", "white+black+aian+asian", "white+black+aian+asian+nhopi",
        "white+black+aian+asian+nhopi+sor",
    ]  # fmt: skip


def test_a_file_is_read_and_found(tmp_path: Path) -> None:
    settings = read_settings(write(tmp_path, SMALL))
    assert settings.name == "small"
    assert settings.geolevels == ("State", "Block")
    assert settings.variances() == {
        "State": {"total": 10.0},
        "Block": {"total": 10.0, "detailed": pytest.approx(10 / 3)},
    }
    assert settings.selections == {"age": {"old": (3, 4)}}
    assert find_settings(str(tmp_path / "small.toml")).text == settings.text
    assert find_settings("pl94_pr_units") == production_settings("pl94_pr_units")


@every("name", [*PRODUCTION, *EXAMPLES, *TIED])
def test_the_text_of_settings_says_them_and_nothing_else(name: str) -> None:
    """Also of settings that were changed after they were read; levels at which nothing is measured say so."""
    settings = tied_settings(name)[0] if name in TIED else find_settings(name)
    level, table = settings.geolevels[-1], next(iter(settings.budget.losses[settings.geolevels[-1]]))
    changed = replace(settings, budget=Budget({level: {table: Fraction(1, 3)}}), noise="gaussian")
    assert settings.text == settings.written or name in TIED
    for own in (settings, replace(settings, written=""), changed):
        again = parse_settings(own.text, name)
        assert {level: row for level, row in again.budget.losses.items() if row} == {
            level: row for level, row in own.budget.losses.items() if row
        }
        assert replace(again, budget=own.budget) == own
        assert again.text == own.text


def test_settings_of_json_have_a_text_of_toml(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text(json.dumps(tomllib.loads(SMALL)))
    settings = read_settings(tmp_path / "small.json")
    assert settings == parse_settings(settings.text, "small") == parse_settings(SMALL, "small")


def test_losses_may_be_given_instead_of_shares(tmp_path: Path) -> None:
    head, _, _ = SMALL.partition("total = ")
    settings = read_settings(write(tmp_path, head + '[budget.losses]\ntotal = ["1/4", 0]\ndetailed = [0, "1/8"]\n'))
    assert settings.variances() == {"State": {"total": 4.0}, "Block": {"detailed": 8.0}}


@cases(
    ("[variables]", "[variable]", "the file: Object contains unknown field `variable`"),
    ('geolevels = ["State", "Block"]', "", "the file: Object missing required field `geolevels`"),
    ('["State", "Block"]', '["Block", "Block"]', "different names"),
    ('"0-1 | 2-4"', '"0-1 | 2-5"', r"recodes\.age\.adult: '2-5' is not a range within the levels 0 to 4"),
    ('"0-1 | 2-4"', '"0-1 | 1-4"', "level 1 is in both '0-1' and '1-4'"),
    ('"0-1 | 2-4"', '"0-1 | 3-4"', "level 2 is in no part"),
    ('"0-1 | 2-4"', '"young | old"', "'young' is not a level nor a range"),
    ("[3, 4]", "[7]", r"selections\.age\.old: no level 7"),
    ("age.old", "height.old", r"selections\.height: there is no such variable"),
    ('State = "1/5"', 'State = "1/4"', "geolevels: the shares sum to 21/20"),
    ('State = "1/5"', 'Sate = "1/5"', r"budget\.geolevels\.Sate: there is no such geolevel"),
    ('"3/4"]', '"2/4"]', "geolevel 'Block': the shares sum to 3/4"),
    ('"3/4"]', "0.75]", "is the float 0.75"),
    ('[0, "3/4"]', '["3/4"]', r"budget\.tables\.detailed must list 2 numbers"),
    ("detailed =", "hight =", "table 'hight'"),
    ('total = "1/2"\n', "", "either losses, or total, geolevels and tables"),
    ("[budget]", '[budget]\nmeasure = "zcpd"', "measure 'zcpd' is unknown"),
)
def test_a_wrong_file_is_refused_by_name_and_key(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert SMALL.count(old) == 1
    with pytest.raises(ValueError, match=message) as refusal:
        read_settings(write(tmp_path, SMALL.replace(old, new)))
    assert "small.toml: " in str(refusal.value)


def test_settings_that_are_not_there_are_named() -> None:
    with pytest.raises(ValueError, match="no settings 'acs': there are pl94_us_persons"):
        production_settings("acs")


def test_partitions_may_be_scattered() -> None:
    assert parse_partition("0, 2 | 1,3-4", 5) == ["0,2", "1,3-4", "0,2", "1,3-4", "1,3-4"]


def test_groups_are_numbered_in_the_order_written() -> None:
    assert parse_partition("1,3-4 | 0,2", 5) == [1, 0, 1, 0, 0]


@every("groups", list(permutations(range(3))))
def test_groups_keep_their_order_where_variables_are_summed_out(groups: tuple[int, ...]) -> None:
    """Labels in any order: those of a joint problem's recodes come in that of another product's variable."""
    labels = ["p", "q", "r"]
    text = f"""
        geolevels = ["State"]
        [variables]
        sex = 2
        age = 4
        [recodes.age]
        three = {{groups = {[*groups, 0]}, labels = {labels}}}
        [budget]
        measure = "zcdp"
        neighbours = "bounded"
        losses."sex * three" = ["1/2"]
        losses.detailed = ["1/2"]
    """
    settings = parse_settings(text, "ours")
    expected = Recode("three", 1, (*groups, 0), tuple(labels))
    assert settings.schema.recodes == (expected,)
    assert keep_variables(settings, ["age"]).target.schema.recodes == (replace(expected, axis=0),)
    finer = Schema({"sex": 2, "age": 4}).with_recode(expected)
    assert settings_over(settings, finer).schema.recodes == (expected,)
