"""Shapes of places in well-known binary."""

import struct

import numpy as np

NAD83 = {"type": "GeographicCRS", "name": "NAD83"}


def polygon(rings: list[list[list[float]]], order: str = "<", height: float | None = None) -> bytes:
    """Well-known binary of a polygon, its points with a height where one is given."""
    shape = struct.pack(f"{order}BII", order == "<", 3 if height is None else 1003, len(rings))
    for ring in rings:
        points = [[*point, *([] if height is None else [height])] for point in ring]
        shape += struct.pack(f"{order}I", len(ring)) + np.array(points, dtype=f"{order}f8").tobytes()
    return shape
