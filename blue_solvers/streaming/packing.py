"""What is kept between steps, in bytes: dataclasses, containers and numbers by `msgspec`, arrays as they lie."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

Kept = TypeVar("Kept")
CHUNK = 1 << 30  # bytes that stand together: MessagePack has none longer than 2**32 - 1


def pack(thing: Any) -> bytes:
    """A thing in bytes; the inverse of `unpack`."""
    return msgspec.msgpack.encode(thing, enc_hook=_plain)


def unpack(data: bytes, kind: type[Kept]) -> Kept:
    """The thing that `pack` was given, of this type."""
    return msgspec.msgpack.decode(data, type=kind, dec_hook=_array)


def _plain(thing: Any) -> Any:
    if isinstance(thing, np.generic):
        return thing.item()
    if not isinstance(thing, np.ndarray):
        raise NotImplementedError(f"{type(thing).__name__} is not kept")
    cells = thing.tobytes()
    return thing.dtype.str, thing.shape, [cells[i : i + CHUNK] for i in range(0, len(cells), CHUNK)]


def _array(_: Any, said: Any) -> NDArray:
    dtype, shape, chunks = said
    return np.frombuffer(bytearray().join(chunks), dtype).reshape(shape)
