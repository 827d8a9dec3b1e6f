"""Files that notice their own damage: SHA-256 beside the file, before its content, or within it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from constraint_builders.opening import open_file, read_bytes

SEAL = "sha256"
DIGEST_BYTES = 32


class DamagedError(ValueError):
    """A file is missing or is not what was written; the message names it."""


def sha256(path: Path) -> str:
    """SHA-256 of a file, in constant memory."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_intact(path: Path, digest: str) -> None:
    """Raise `DamagedError` unless a file is there with this SHA-256."""
    if not path.is_file():
        raise DamagedError(f"{path} is missing")
    if sha256(path) != digest:
        raise DamagedError(f"{path} is not what was written: its checksum differs")


def is_intact(path: Path, digest: str) -> bool:
    """Whether a file is there with this SHA-256."""
    return path.is_file() and sha256(path) == digest


def untouched(now: os.stat_result, before: os.stat_result | None) -> bool:
    """Whether a file is the one that was seen before; nothing that a program can do leaves the last time as it was."""
    keys = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    return before is not None and all(getattr(now, key) == getattr(before, key) for key in keys)


def seal_bytes(name: str, payload: bytes) -> bytes:
    """Bytes after their SHA-256, which covers the file's name too: one file cannot stand in for another."""
    return _digest(name, payload) + payload


def unseal_bytes(name: str, data: bytes) -> bytes | None:
    """What `seal_bytes` was given; None if it is damaged, or another file's."""
    payload = data[DIGEST_BYTES:]
    return payload if _digest(name, payload) == data[:DIGEST_BYTES] else None


def _digest(name: str, payload: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + payload).digest()


def seal_json(said: Mapping[str, Any]) -> str:
    """A JSON object with its own SHA-256 as the last entry."""
    return json.dumps({**said, SEAL: _json_digest(said)}, indent=1) + "\n"


def read_sealed_json(path: Path) -> dict[str, Any]:
    """The JSON object that `seal_json` was given.

    Raises
    ------
    DamagedError
        If it is no JSON object, or not what was written.
    OSError
        If the file cannot be opened.
    """
    return unsealed(path, read_json_object(path))


def unsealed(path: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says, without its seal; `DamagedError` if it is not what was written."""
    own = {name: value for name, value in said.items() if name != SEAL}
    if said.get(SEAL) != _json_digest(own):
        raise DamagedError(f"{path} is not what was written: its checksum differs")
    return own


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object, whatever it says; raises as `read_sealed_json`."""
    try:
        said = json.loads(read_bytes(path), parse_int=_int64)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from None
    if not isinstance(said, dict):
        raise DamagedError(f"{path} is damaged: it holds no JSON object")
    return said


def _int64(digits: str) -> int:
    number = int(digits)
    if abs(number) >= 1 << 63:
        raise ValueError(f"{digits[:20]} is no number of 64 bits")
    return number


def _json_digest(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
