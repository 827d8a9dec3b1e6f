"""Messages between parts, in bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from blue_solvers.components.messages import Message
from blue_solvers.components.subtrees import Downward, Upward
from blue_solvers.solver import Float


def pack_upward(message: Upward) -> bytes:
    """A message in bytes; the inverse of `unpack_upward`."""
    arrays = {"cells": message.cells}
    for i, own in enumerate(message.messages):
        arrays |= {f"V{i}": own.V, f"unknown{i}": own.unknown, f"exact{i}": own.exact}
    return pack_arrays(arrays)


def unpack_upward(data: bytes) -> Upward:
    """The message that `pack_upward` wrote."""
    arrays = unpack_arrays(data)
    count = len(arrays) // 3
    messages = [Message(arrays[f"V{i}"], arrays[f"unknown{i}"], arrays[f"exact{i}"]) for i in range(count)]
    return Upward(arrays["cells"], messages)


def pack_downward(message: Downward) -> bytes:
    """A message in bytes; the inverse of `unpack_downward`."""
    return pack_arrays({"cells": message.cells} | {f"C{i}": C for i, C in enumerate(message.covariances)})


def unpack_downward(data: bytes) -> Downward:
    """The message that `pack_downward` wrote."""
    arrays = unpack_arrays(data)
    return Downward(arrays["cells"], [arrays[f"C{i}"] for i in range(len(arrays) - 1)])


def pack_arrays(arrays: Mapping[str, Float]) -> bytes:
    """Arrays in bytes; the inverse of `unpack_arrays`."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack_arrays(data: bytes) -> dict[str, Float]:
    """The arrays that `pack_arrays` wrote."""
    with np.load(io.BytesIO(data)) as arrays:
        return {name: arrays[name] for name in arrays.files}
