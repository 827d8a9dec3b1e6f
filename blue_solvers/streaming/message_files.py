"""Messages between parts, in bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
    arrays = {"cells": message.cells, "least": np.array(message.least)}
    for name in NAMES:
        arrays |= _named(name, [[getattr(piece, name) for piece in own] for own in message.messages])
    return pack_arrays(arrays)


def unpack_upward(data: bytes) -> Upward:
    """The message that `pack_upward` wrote."""
    arrays = unpack_arrays(data)
    found = zip(*(_found(arrays, name) for name in NAMES), strict=True)
    messages = [[Message(*piece) for piece in zip(*parts, strict=True)] for parts in found]
    return Upward(arrays["cells"], messages, float(arrays["least"]))


def pack_downward(message: Downward) -> bytes:
    """A message in bytes; the inverse of `unpack_downward`."""
    arrays = {"cells": message.cells, "least": np.array(message.least)}
    return pack_arrays(arrays | _named("root", message.roots))


def unpack_downward(data: bytes) -> Downward:
    """The message that `pack_downward` wrote."""
    arrays = unpack_arrays(data)
    return Downward(arrays["cells"], _found(arrays, "root"), float(arrays["least"]))


def _named(name: str, found: Sequence[Sequence[Float]]) -> dict[str, Float]:
    """Arrays of all components and their pieces; one that nobody asks for where all of a component is empty."""
    return {
        f"{name}{i}.{number}": array
        for i, own in enumerate(found)
        for number, array in enumerate(own or [np.zeros((0, 0))])
    }


def _found(arrays: Mapping[str, Float], name: str) -> list[list[Float]]:
    """The inverse of `_named`."""
    found: list[list[Float]] = []
    while f"{name}{len(found)}.0" in arrays:
        pieces: list[Float] = []
        while (own := f"{name}{len(found)}.{len(pieces)}") in arrays:
            pieces.append(arrays[own])
        found.append(pieces)
    return found


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
