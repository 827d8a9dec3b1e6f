"""Messages between parts, in bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from blue_solvers.components.tree.messages import Message
from blue_solvers.streaming.part_data import Downward, Upward
from constraint_builders.arrays import Float

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
    """Arrays in bytes; the inverse of `unpack_arrays`."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack_arrays(data: bytes) -> dict[str, Float]:
    """The arrays that `pack_arrays` wrote."""
    with np.load(io.BytesIO(data)) as arrays:
        return {name: arrays[name] for name in arrays.files}
