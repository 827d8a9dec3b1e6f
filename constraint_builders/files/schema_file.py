"""Schemas as TOML files.

::

    [variables]
    sex = ["female", "male"]    # labels of the levels
    age = 4                     # or their number

    [recodes.age]
    adult = ["minor", "minor", "adult", "adult"]    # for every level its group, by label or by number

    [problem]                   # all optional
    desired = ["total", "sex * adult"]    # or "all"
    noise = "discrete_gaussian"
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from constraint_builders.files.replacing import replacing
from constraint_builders.measurements import NOISE_LAWS
from constraint_builders.schema import Recode, Schema, Variable

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


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

    Raises
    ------
    ValueError
        If the file is not TOML or not a schema; the message names the file and the key.
    OSError
        If the file cannot be opened.
    """
    text = Path(path).read_bytes()
    try:
        return _read(tomllib.loads(text.decode()))
    except (ValueError, TypeError) as error:  # of which tomllib's and the decoder's are kinds
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def write_schema_file(
    path: str | os.PathLike[str],
    schema: Schema,
    *,
    desired: Sequence[str] | str | None = None,
    noise: str | None = None,
) -> None:
    """Write a schema to a TOML file, whole or not at all; the inverse of `read_schema_file`.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_text(format_schema(schema, desired=desired, noise=noise), encoding="utf-8", newline="\n")


def format_schema(schema: Schema, *, desired: Sequence[str] | str | None = None, noise: str | None = None) -> str:
    """The text of a schema file.

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
    sections = ["\n".join(["[variables]", *map(_format_variable, schema.variables)])]
    for axis, name in enumerate(schema.names):
        lines = [_format_recode(recode) for recode in schema.recodes if recode.axis == axis]
        if lines:
            sections.append("\n".join([f"[recodes.{_key(name)}]", *lines]))
    said = {"desired": desired if desired is None or isinstance(desired, str) else list(desired), "noise": noise}
    lines = [f"{key} = {_value(value)}" for key, value in said.items() if value is not None]
    if lines:
        sections.append("\n".join(["[problem]", *lines]))
    return "\n\n".join(sections) + "\n"


def _read(document: Mapping[str, Any]) -> SchemaFile:
    _refuse_unknown_keys(document, ("variables", "recodes", "problem"), "the file")
    if "variables" not in document:
        raise ValueError("[variables] is missing: give each variable its levels, as in  sex = ['female', 'male']")
    variables = dict(_section(document, "variables"))
    for name, levels in variables.items():
        if not _is_count(levels):
            _require_labels(levels, f"variables.{name}", "a number of levels, or a list of labels")
    recodes = _section(document, "recodes")
    for name in recodes:
        for recode, groups in _section(recodes, name, "recodes.").items():
            key = f"recodes.{name}.{recode}"
            _require_labels(groups, key, "a list with one group a level, all text or all numbers", alike=True)
    return SchemaFile(Schema(variables, recodes), **_read_problem(_section(document, "problem")))


def _read_problem(section: Mapping[str, Any]) -> dict[str, Any]:
    _refuse_unknown_keys(section, ("desired", "noise"), "[problem]")
    desired = section.get("desired")
    if desired not in (None, "all") and not (isinstance(desired, list) and all(isinstance(t, str) for t in desired)):
        raise ValueError(f"problem.desired must be a list of tables, or 'all': got {desired!r}")
    if section.get("noise", "gaussian") not in NOISE_LAWS:
        raise ValueError(f"problem.noise must be one of {', '.join(NOISE_LAWS)}: got {section['noise']!r}")
    return dict(section)


def _refuse_unknown_keys(section: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in section:
        if key not in known:
            raise ValueError(f"unknown key {key!r} in {where}: there are {', '.join(known)}")


def _section(document: Mapping[str, Any], key: str, prefix: str = "") -> Mapping[str, Any]:
    section = document.get(key, {})
    if not isinstance(section, Mapping):
        raise ValueError(f"{prefix}{key} must be a section [{prefix}{key}]: got {section!r}")
    return section


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _require_labels(value: Any, key: str, expected: str, alike: bool = False) -> None:
    kinds = {type(label) for label in value} if isinstance(value, list) else {None}
    if not kinds <= {str, int} or (alike and len(kinds) > 1):
        raise ValueError(f"{key} must be {expected}: got {value!r}")


def _format_variable(variable: Variable) -> str:
    counted = variable.levels == tuple(map(str, range(variable.size)))
    return f"{_key(variable.name)} = {_value(variable.size if counted else list(variable.levels))}"


def _format_recode(recode: Recode) -> str:
    counted = recode.labels == tuple(map(str, range(recode.size)))
    return f"{_key(recode.name)} = {_value([group if counted else recode.labels[group] for group in recode.groups])}"


def _key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """JSON's numbers, lists and strings are TOML's, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
