"""TOML and JSON files read into types that describe them, every refusal naming the key; small and shallow ones only."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from constraint_builders.files.naming import naming, shown
from constraint_builders.opening import open_file

LARGEST = 8 << 20  # bytes
TOO_DEEP = "it is nested too deeply"
_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_LONG_PATH = re.compile(rf"(?:^|[{{,])[ \t\[]*{_KEY}(?:[ \t]*\.[ \t]*{_KEY}){{16}}", re.MULTILINE)

T = TypeVar("T")


def read_document(path: str | os.PathLike[str], kind: type[T]) -> tuple[T, str]:
    """Read a ``.json`` file, or any other as TOML.

    Parameters
    ----------
    path : path
    kind : type
        What the file must be: a `msgspec.Struct`, or any other type that msgspec knows. A description in
        ``Annotated[..., msgspec.Meta(description=...)]`` says in words what a key must be.

    Returns
    -------
    document : kind
    text : str

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
        text = data.decode()
        parse = parse_json if Path(path).suffix == ".json" else parse_toml
        return parse(text, kind), text


def parse_toml(text: str, kind: type[T]) -> T:
    """Read TOML; `ValueError` if it is none, or not of that type."""
    if _LONG_PATH.search(text):  # its parser takes time in the square of their length
        raise ValueError(TOO_DEEP)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    return checked(document, kind)


def parse_json(text: str, kind: type[T]) -> T:
    """Read JSON; `ValueError` if it is none, or not of that type."""
    try:
        document = msgspec.json.decode(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    return checked(document, kind)


def checked(value: Any, kind: type[T], key: str = "") -> T:
    """A value as a type describes it, or a `ValueError` that names the key and says what it must be.

    Parameters
    ----------
    value
        What a parser gave: numbers, text, lists and mappings.
    kind : type
        As of `read_document`.
    key : str
        What messages call the value itself.
    """
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        raise ValueError(_objection(value, kind, key)) from None


def _objection(value: Any, kind: Any, key: str) -> str:
    """What is wrong with the first and innermost part of a value that is not of its kind."""
    plain, words = _described(kind)
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct) and isinstance(value, Mapping):
        where = f"[{key}]" if key else "the file"
        fields = {field.encode_name: field for field in msgspec.structs.fields(plain)}
        for name in value:
            if name not in fields:
                return f"unknown key {shown(name)} in {where}: there are {', '.join(fields)}"
        for name, field in fields.items():
            if name not in value and field.required:
                return f"{_section_or_key(f'{key}.{name}' if key else name, field.type)} is missing"
    for name, part, own in _parts(value, plain):
        if not _fits(part, own):
            return _objection(part, own, f"{key}.{name}" if key else name)
    return f"{key or 'it'} must be {words or _words(plain, key)}: got {shown(value)}"


def _parts(value: Any, kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """The name, value and kind of every part."""
    if isinstance(value, Mapping):
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            for field in msgspec.structs.fields(kind):
                if field.encode_name in value:
                    yield field.encode_name, value[field.encode_name], field.type
        elif get_origin(kind) is dict:
            yield from ((str(name), part, get_args(kind)[1]) for name, part in value.items())
    elif isinstance(value, list) and get_origin(kind) is list:
        yield from ((str(number), part, get_args(kind)[0]) for number, part in enumerate(value, 1))


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _described(kind: Any) -> tuple[Any, str]:
    """A type without its annotation, and what that says in words."""
    if get_origin(kind) is not Annotated:
        return kind, ""
    plain, *notes = get_args(kind)
    return plain, next((note.description for note in notes if isinstance(note, msgspec.Meta) and note.description), "")


def _is_section(kind: Any) -> bool:
    plain, _ = _described(kind)
    return get_origin(plain) is dict or (isinstance(plain, type) and issubclass(plain, msgspec.Struct))


def _section_or_key(key: str, kind: Any) -> str:
    return f"[{key}]" if _is_section(kind) else repr(key)


def _words(kind: Any, key: str) -> str:
    if _is_section(kind):
        return f"a section [{key}]" if key else "a table of keys"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is list:
        return "a list"
    return {str: "text", int: "a whole number", float: "a number", bool: "true or false"}.get(kind, str(kind))
