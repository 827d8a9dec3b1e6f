"""Messages between parts, in bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from math import prod

import numpy as np

from blue_solvers.components.tree.messages import Message
from blue_solvers.streaming.part_data import Downward, Upward
from constraint_builders.arrays import Float

ALIGNED = 16  # bytes at whose multiples arrays begin
NAMES = tuple(field.name for field in fields(Message))


def pack_upward(message: Upward) -> bytes:
    """A message in bytes; the inverse of `unpack_upward`."""
    arrays = {"cells": message.cells}
    for i, own in enumerate(message.messages):
        arrays |= {f"{name}{i}": array for name, array in zip(NAMES, own.arrays, strict=True)}
    return pack_arrays(arrays)


def unpack_upward(data: bytes) -> Upward:
    """The message that `pack_upward` wrote."""
    arrays = unpack_arrays(data)
    count = len(arrays) // len(NAMES)
    messages = [Message(*(arrays[f"{name}{i}"] for name in NAMES)) for i in range(count)]
    return Upward(arrays["cells"], messages)


def pack_downward(message: Downward) -> bytes:
    """A message in bytes; the inverse of `unpack_downward`."""
    return pack_arrays({"cells": message.cells} | {f"root{i}": root for i, root in enumerate(message.roots)})


def unpack_downward(data: bytes) -> Downward:
    """The message that `pack_downward` wrote."""
    arrays = unpack_arrays(data)
    return Downward(arrays["cells"], [arrays[f"root{i}"] for i in range(len(arrays) - 1)])


def pack_arrays(arrays: Mapping[str, Float]) -> bytes:
    """Arrays of numbers or text in bytes, what they are before their cells; the inverse of `unpack_arrays`."""
    plain = {name: np.asarray(array) for name, array in arrays.items()}
    said = json.dumps([(name, array.dtype.str, array.shape) for name, array in plain.items()]).encode()
    parts = [len(said).to_bytes(ALIGNED, "little"), said, *(array.tobytes() for array in plain.values())]
    return b"".join(part + bytes(-len(part) % ALIGNED) for part in parts)


def unpack_arrays(data: bytes) -> dict[str, Float]:
    """The arrays that `pack_arrays` wrote."""
    start = ALIGNED + int.from_bytes(data[:ALIGNED], "little")
    found: dict[str, Float] = {}
    for name, kind, shape in json.loads(data[ALIGNED:start]):
        start += -start % ALIGNED
        dtype = np.dtype(kind)
        found[name] = np.frombuffer(data, dtype, prod(shape), start).reshape(shape).copy()
        start += found[name].nbytes
    return found
