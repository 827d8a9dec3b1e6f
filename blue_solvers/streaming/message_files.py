"""Messages between parts, in bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import prod

import numpy as np

from blue_solvers.components.tree.messages import Message
from blue_solvers.components.tree.piecewise import PieceMessages, PieceRoots
from blue_solvers.streaming.part_data import Downward, Upward
from constraint_builders.arrays import Float

ALIGNED = 16  # bytes at whose multiples arrays begin
NAMES = tuple(field.name for field in fields(Message))


def pack_upward(message: Upward) -> bytes:
    """A message in bytes; the inverse of `unpack_upward`."""
    arrays = {"cells": message.cells, "least": np.array(message.least)}
    for i, own in enumerate(message.messages):
        for name in NAMES:
            pieces = own.pieces if isinstance(own, PieceMessages) else None
            found = getattr(own, name) if pieces is None else [getattr(piece, name) for piece in pieces]
            arrays |= _named(f"{name}{i}", found)
    return pack_arrays(arrays)


def unpack_upward(data: bytes) -> Upward:
    """The message that `pack_upward` wrote."""
    arrays = unpack_arrays(data)
    messages: list[Message | PieceMessages] = []
    for parts in zip(*(_found(arrays, name) for name in NAMES), strict=True):
        if any(isinstance(part, list) for part in parts):
            messages.append(PieceMessages([Message(*own) for own in zip(*parts, strict=True)]))
        else:
            messages.append(Message(*(part for part in parts if not isinstance(part, list))))
    return Upward(arrays["cells"], messages, float(arrays["least"]))


def pack_downward(message: Downward) -> bytes:
    """A message in bytes; the inverse of `unpack_downward`."""
    arrays = {"cells": message.cells, "least": np.array(message.least)}
    for i, root in enumerate(message.roots):
        arrays |= _named(f"root{i}", root.pieces if isinstance(root, PieceRoots) else root)
    return pack_arrays(arrays)


def unpack_downward(data: bytes) -> Downward:
    """The message that `pack_downward` wrote."""
    arrays = unpack_arrays(data)
    roots = _found(arrays, "root")
    pieces = [PieceRoots(own) if isinstance(own, list) else own for own in roots]
    return Downward(arrays["cells"], pieces, float(arrays["least"]))


def _named(name: str, found: Float | Sequence[Float]) -> dict[str, Float]:
    """One array, or those of the pieces of a component; one that nobody asks for where all of it is empty."""
    if isinstance(found, np.ndarray):
        return {name: found}
    return {f"{name}.{number}": array for number, array in enumerate(found or [np.zeros((0, 0))])}


def _found(arrays: Mapping[str, Float], name: str) -> list[Float | list[Float]]:
    """The inverse of `_named` for all components."""
    found: list[Float | list[Float]] = []
    while True:
        number = len(found)
        if f"{name}{number}" in arrays:
            found.append(arrays[f"{name}{number}"])
            continue
        pieces: list[Float] = []
        while f"{name}{number}.{len(pieces)}" in arrays:
            pieces.append(arrays[f"{name}{number}.{len(pieces)}"])
        if not pieces:
            return found
        found.append(pieces)


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
