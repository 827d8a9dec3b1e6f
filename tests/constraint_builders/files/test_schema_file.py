"""Schemas to TOML and back, and what a schema file is refused for."""

import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Schema
from constraint_builders.description.schema import Recode
from constraint_builders.files import SchemaFile, format_schema, read_schema_file, write_schema_file
from tests.helpers.every import cases

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
seen = partial(unicodedata.normalize, "NFC")
names = st.lists(text.map(lambda t: f"n{t}x".replace("*", "")), min_size=4, max_size=4, unique=True)


@st.composite
def schemas(draw: Any) -> Schema:
    first, second, coarse, other = draw(names)
    labels = draw(st.lists(text, min_size=1, max_size=6, unique_by=seen))
    groups = draw(st.sampled_from([[0, 0, 1], [1, 0, 0], ["a", "b", "a"], ["1", "0", "0"]]))
    schema = Schema({first: labels, second: 3}, {second: {coarse: groups, other: [0, 1, 1]}})
    more = draw(st.sampled_from([None, (0, 1, 0), (1, 0, 1), (1, 1, 0)]))
    called = tuple(draw(st.lists(text, min_size=2, max_size=2, unique_by=seen)))
    return schema if more is None else schema.with_recode(Recode("more", 1, more, called))


@given(schema=schemas())
def test_schemas_round_trip(schema: Schema, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    write_schema_file(path, schema)
    assert read_schema_file(path) == SchemaFile(schema)


@pytest.mark.parametrize("desired", [None, "all", ["total", "sex"]])
def test_the_problem_round_trips(desired: Any, tmp_path: Path) -> None:
    schema = Schema({"sex": ["f", "m"]})
    write_schema_file(tmp_path / "s.toml", schema, desired=desired, noise="laplace")
    assert read_schema_file(tmp_path / "s.toml") == SchemaFile(schema, desired, "laplace")


def test_whole_numbers_may_be_labels(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("variables.year = [2010, 2020]")
    assert read_schema_file(tmp_path / "s.toml").schema == Schema({"year": ["2010", "2020"]})


def test_a_plain_schema_is_pleasant_to_read() -> None:
    schema = Schema({"sex": ["f", "m"], "age group": 3}, {"age group": {"adult": ["no", "yes", "yes"]}})
    assert format_schema(schema, desired=["sex"]) == (
        '[variables]\nsex = ["f", "m"]\n"age group" = 3\n\n'
        '[recodes."age group"]\nadult = ["no", "yes", "yes"]\n\n'
        '[problem]\ndesired = ["sex"]\n'
    )


@cases(
    ("", "the file: Object missing required field `variables`"),
    ("variables = 3", "variables: Expected `object`, got `int`"),
    ("[variables]\nsex = 1.5", r"variables\.sex: Expected `int \| array`, got `float`"),
    ("[variables]\nsex = true", r"variables\.sex: Expected `int \| array`, got `bool`"),
    ("[variables]\nsex = [['a']]", r"variables\.sex: Expected `int \| str`, got `array` - at `\$\[0\]`"),
    ("[variables]\nsex = ['a', 'a']", "variable 'sex' has the level 'a' twice"),
    ("[variables]\nsex = 0", "variable 'sex' has no levels"),
    ("[variables]\ntotal = 2", "'total' is reserved"),
    ("[variables]\nupper = 2", "'upper' is reserved"),
    ("[variables]\nsex = 2\n[recodes.age]\nold = [0, 1]", "recodes are given for 'age', which is not a variable"),
    ("[variables]\nsex = 2\n[recodes]\nsex = [0, 1]", r"recodes\.sex: Expected `object`, got `array`"),
    ("[variables]\nage = 3\n[recodes.age]\nold = {groups = [0, 1, 1], labels = ['a']}", r"recodes\.age\.old: labels"),
    (
        "[variables]\nage = 3\n[recodes.age]\nold = {groups = [0, 1, 1], labels = ['a', 'a']}",
        r"recodes\.age\.old: labels must be one for each of its 2 groups",
    ),
    ("[variables]\nage = 3\n[recodes.age]\nold = 'x'", r"recodes\.age\.old: Expected `object \| array`, got `str`"),
    ("[variables]\nage = 3\n[recodes.age]\nold = [0, 'a', 1]", r"recodes\.age\.old must be a list"),
    ("[variables]\nage = 3\n[recodes.age]\nold = [0, 1]", "recode 'old' gives 2 groups for the 3 levels"),
    ("[variables]\nsex = 2\n[recode.sex]\na = [0]", "the file: Object contains unknown field `recode`"),
    ("[variables]\nsex = 2\n[problem]\nnoise = 'loud'", r"problem\.noise must be one of gaussian, .*: got 'loud'"),
    ("[variables]\nsex = 2\n[problem]\ndesired = 'sex'", r"problem\.desired must be a list of tables, or 'all'"),
    ("[variables]\nsex = 2\n[problem]\nwanted = 1", "problem: Object contains unknown field `wanted`"),
    ("[variables\n", "line 1"),
)
def test_bad_files_are_refused_by_key(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"bad\.toml: .*{message}"):
        read_schema_file(path)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"bad\.toml: .*decode"):
        read_schema_file(tmp_path / "bad.toml")
    with pytest.raises(FileNotFoundError):
        read_schema_file(tmp_path / "none.toml")
