"""Schemas as TOML files, which are read, as other TOML and JSON files are, into types that describe them.

Every refusal names the key; files that are large or deep are refused.

::

    [variables]
    sex = ["female", "male"]    # labels of the levels
    age = 4                     # or their number

    [recodes.age]
    adult = ["minor", "minor", "adult", "adult"]    # for every level its group, by label or by number
young = {groups = [1, 1, 0, 0], labels = ["no", "yes"]}    # or by number, with the labels in order

    [problem]                   # all optional
    desired = ["total", "sex * adult"]    # or "all"
    noise = "discrete_gaussian"
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from constraint_builders.description.noise import require_law
from constraint_builders.description.schema import Recode, Schema, Variable
from constraint_builders.description.table import parse_table
from constraint_builders.files.naming import naming, shown
from constraint_builders.files.new_files import replacing
from constraint_builders.opening import open_file

LARGEST = 8 << 20  # bytes
TOO_DEEP = "it is nested too deeply"
_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_LONG_PATH = re.compile(rf"(?:^|[{{,])[ \t\[]*{_KEY}(?:[ \t]*\.[ \t]*{_KEY}){{16}}", re.MULTILINE)

T = TypeVar("T")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
EXAMPLE = (
    """a schema is TOML, such as the two lines [variables] and sex = ["female", "male"]; --write-schema writes one"""
)
GROUPS = "a list with one group a level, all text or all numbers"


def read_document(path: str | os.PathLike[str], kind: type[T]) -> tuple[T, str]:
    """Read a ``.json`` file, or any other as TOML.

    Parameters
    ----------
    path : path
    kind : type
        What the file must be: a `msgspec.Struct`, or any other type that msgspec knows.

    Returns
    -------
    document : kind
    text : str
        Of a TOML file; empty of another.

    Raises
    ------
    ValueError
        If the file is larger than 8 MiB, not of its format, or not of that type; the message names the file and key.
    OSError
        If the file cannot be opened.
    """
    with open_file(path) as file, naming(path):
        data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError(f"it is larger than {LARGEST >> 20} MiB: give a smaller file")
        text, is_json = data.decode(), Path(path).suffix == ".json"
        return parse_document(text, kind, is_json=is_json), "" if is_json else text


def parse_document(text: str, kind: type[T], *, is_json: bool = False) -> T:
    """Read TOML or JSON; `ValueError` if it is none, or not of that type."""
    if not is_json and _LONG_PATH.search(text):  # its parser takes time in the square of their length
        raise ValueError(TOO_DEEP)
    try:
        document = msgspec.json.decode(text) if is_json else tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(_objection(document, kind, "", error)) from None


def _objection(value: Any, kind: Any, key: str, error: Exception) -> str:
    """What msgspec says of the innermost part that is not of its kind, after the key, which it does not say of all."""
    for name, part, own in _parts(value, kind):
        try:
            msgspec.convert(part, own)
        except (msgspec.ValidationError, RecursionError) as inner:
            return _objection(part, own, f"{key}.{name}" if key else name, inner)
    return f"{key or 'the file'}: {error}"


def _parts(value: Any, kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """The name, value and kind of every key."""
    if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if field.encode_name in value:
                yield field.encode_name, value[field.encode_name], field.type
    elif isinstance(value, Mapping) and get_origin(kind) is dict:
        yield from ((str(name), part, get_args(kind)[1]) for name, part in value.items())


Levels = int | list[str | int]  # their number, or their labels


class LabelledGroups(Struct, frozen=True, forbid_unknown_fields=True):
    """Groups of levels by number, with their labels, where these do not come in the order of the levels."""

    groups: list[int]
    labels: list[str]


Groups = list[str | int] | LabelledGroups
Desired = list[str] | str | None  # or "all"


class ProblemSection(Struct, frozen=True, forbid_unknown_fields=True):
    """The section ``[problem]``."""

    desired: Desired = None
    noise: str = "gaussian"


class SchemaDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    variables: dict[str, Levels]
    recodes: dict[str, dict[str, Groups]] = {}
    problem: ProblemSection = ProblemSection()


@dataclass(frozen=True)
class SchemaFile:
    """What a schema file says.

    Attributes
    ----------
    schema : Schema
    desired : list of str, "all" or None
        The wanted tables; None for the observed ones.
    noise : str
        Law of the noise.
    """

    schema: Schema
    desired: list[str] | str | None = None
    noise: str = "gaussian"


def read_schema_file(path: str | os.PathLike[str]) -> SchemaFile:
    """Read a schema, and what else is said about the problem, from a TOML file.

    Parameters
    ----------
    path : path

    Returns
    -------
    SchemaFile

    Raises
    ------
    ValueError
        If the file is not TOML or not a schema; the message names the file and the key.
    OSError
        If the file cannot be opened.
    """
    try:
        document, _ = read_document(path, SchemaDocument)
    except ValueError as error:
        raise ValueError(f"{error}; {EXAMPLE}") from None
    with naming(path):
        return _read(document)


def write_schema_file(
    path: str | os.PathLike[str],
    schema: Schema,
    *,
    desired: Sequence[str] | str | None = None,
    noise: str | None = None,
) -> None:
    """Write a schema to a TOML file, whole or not at all; the inverse of `read_schema_file`.

    Parameters
    ----------
    path : path
    schema : Schema
    desired, noise
        As for `format_schema`.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_text(format_schema(schema, desired=desired, noise=noise), encoding="utf-8", newline="\n")


def format_schema(schema: Schema, *, desired: Sequence[str] | str | None = None, noise: str | None = None) -> str:
    """The text of a schema file.

    Parameters
    ----------
    schema : Schema
    desired : sequence of str or str, optional
        Tables to estimate, kept in the file.
    noise : str, optional
        The law of the noise, kept in the file.

    Returns
    -------
    str
        In TOML.

    Examples
    --------
    >>> print(format_schema(Schema({"sex": ["f", "m"], "age": 3}, {"age": {"adult": [0, 1, 1]}})), end="")
    [variables]
    sex = ["f", "m"]
    age = 3
    <BLANKLINE>
    [recodes.age]
    adult = [0, 1, 1]
    """
    sections = [toml_section("variables", {variable.name: _levels(variable) for variable in schema.variables})]
    for axis, name in enumerate(schema.names):
        own = {recode.name: _groups(recode) for recode in schema.recodes if recode.axis == axis}
        if own:
            sections.append(toml_section(f"recodes.{_key(name)}", own))
    wanted = desired if desired is None or isinstance(desired, str) else list(desired)
    said = {key: value for key, value in (("desired", wanted), ("noise", noise)) if value is not None}
    if said:
        sections.append(toml_section("problem", said))
    return "\n\n".join(sections) + "\n"


def _read(document: SchemaDocument) -> SchemaFile:
    require_law(document.problem.noise, "problem.noise")
    schema = build_schema(document.variables, document.recodes)
    _require_tables(schema, document.problem.desired)
    return SchemaFile(schema, document.problem.desired, document.problem.noise)


def _require_tables(schema: Schema, desired: list[str] | str | None) -> None:
    if isinstance(desired, str) and desired != "all":
        raise ValueError(f"problem.desired must be a list of tables, or 'all': got {shown(desired)}")
    if desired == []:
        raise ValueError("problem.desired is empty: name a table, or leave it out for the tables of the input")
    if isinstance(desired, list):
        for table in desired:
            parse_table(schema, table)


def build_schema(
    variables: Mapping[str, int | list], recodes: Mapping[str, Mapping[str, str | list | LabelledGroups]]
) -> Schema:
    """The schema that sections of a file describe; `ValueError` names the key of what is wrong."""
    plain: dict[str, dict[str, list]] = {}
    labels: dict[str, tuple[str, ...]] = {}
    levels = Schema(variables)
    for variable, named in recodes.items():
        for recode, own in named.items():
            groups = own.groups if isinstance(own, LabelledGroups) else own
            if isinstance(groups, str):
                groups = _partition(levels, variable, recode, groups)
            if len({type(group) for group in groups}) > 1:
                raise ValueError(f"recodes.{variable}.{recode} must be {GROUPS}: got {shown(groups)}")
            plain.setdefault(variable, {})[recode] = groups
            if isinstance(own, LabelledGroups):
                labels[recode] = tuple(own.labels)
    found = Schema(variables, plain)
    return _labelled(found, labels) if labels else found


def _partition(schema: Schema, variable: str, recode: str, text: str) -> list:
    if variable not in schema.names:
        raise ValueError(f"recodes.{variable}: there is no such variable: there are {', '.join(schema.names)}")
    try:
        return parse_partition(text, schema.size_of(variable))
    except ValueError as error:
        raise ValueError(f"recodes.{variable}.{recode}: {error}") from None


def parse_partition(text: str, size: int) -> list[str] | list[int]:
    """Read a partition of the levels 0 to size - 1, such as ``"0-17 | 18-64 | 65-99,110"``.

    Returns
    -------
    list, (size,)
        For every level the part that it falls in: as written, or, where parts are not in the order of their first
        levels, by number, since a `Schema` numbers labelled groups in order of first appearance.

    Raises
    ------
    ValueError
        If a part is not made of ranges of existing levels, or a level is in no part, or in two.
    """
    parts = ["".join(part.split()) for part in text.split("|")]
    groups = [-1] * size
    for number, part in enumerate(parts):
        for level in levels_in(part, size):
            if groups[level] >= 0:
                raise ValueError(f"level {level} is in both {parts[groups[level]]!r} and {part!r}")
            groups[level] = number
    if -1 in groups:
        raise ValueError(f"level {groups.index(-1)} is in no part")
    in_order = list(dict.fromkeys(groups)) == list(range(len(parts)))
    return [parts[group] for group in groups] if in_order else groups


def levels_in(part: str, size: int) -> Iterator[int]:
    """The levels of one part of a partition."""
    for piece in part.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise ValueError(f"{piece!r} is not a level nor a range such as 18-64")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < size:
            raise ValueError(f"{piece!r} is not a range within the levels 0 to {size - 1}")
        yield from range(first, last + 1)


def _labelled(schema: Schema, labels: Mapping[str, tuple[str, ...]]) -> Schema:
    """The same schema with other labels of some recodes' groups."""
    found = Schema({name: schema.labels_of(name) for name in schema.names})
    for recode in schema.recodes:
        own = labels.get(recode.name, recode.labels)
        if len(own) != recode.size or len(set(own)) < len(own):
            raise ValueError(
                f"recodes.{schema.names[recode.axis]}.{recode.name}: labels must be one for each of its {recode.size} "
                f"groups, all different: got {shown(list(own))}"
            )
        found = found.with_recode(replace(recode, labels=own))
    return found


def _levels(variable: Variable) -> Any:
    """The levels of a variable as a file says them."""
    counted = variable.levels == tuple(map(str, range(variable.size)))
    return variable.size if counted else list(variable.levels)


def _groups(recode: Recode) -> Any:
    """The groups of a recode as a file says them."""
    groups = list(recode.groups)
    if recode.labels == tuple(map(str, range(recode.size))):
        return groups
    if list(dict.fromkeys(groups)) == list(range(recode.size)):
        return [recode.labels[group] for group in groups]
    return {"groups": groups, "labels": list(recode.labels)}


def toml_section(name: str, values: Mapping[str, Any]) -> str:
    """A section of TOML."""
    return "\n".join([f"[{name}]", *(f"{_key(key)} = {toml_value(value)}" for key, value in values.items())])


def _key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """A value as TOML: JSON's numbers, lists and strings are TOML's, but for one character."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)} = {toml_value(own)}' for key, own in value.items())}}}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
