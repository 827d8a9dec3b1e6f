"""Invented surveys of the same people, and every single measurement of theirs as a row over the finest cells."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from constraint_builders import Schema, Spine

SCHEMA = Schema({"a": 2, "b": 3})
SPINE = Spine([-1, 0, 0], ["S", "C", "C"])
COUNTS = {
    "total": np.ones((1, 6)),
    "a": np.kron(np.eye(2), np.ones((1, 3))),
    "b": np.tile(np.eye(3), (1, 2)),
    "a * b": np.eye(6),
    "b * a": np.eye(6).reshape(2, 3, 6).transpose(1, 0, 2).reshape(6, 6),
}
SHAPES: dict[str, tuple[int, ...]] = {"total": (), "a": (2,), "b": (3,), "a * b": (2, 3), "b * a": (3, 2)}
CANONICAL = {"b * a": "a * b"}


@dataclass
class Surveys:
    """What surveys say, as `problem_of_sources` takes it, and as rows.

    Attributes
    ----------
    sources : list of (observed, values)
    M : ndarray, (measurements, finest cells)
    y, v : ndarray, (measurements,)
        ``inf`` in v where nothing was measured.
    keys : list of (survey, (geolevel, table), row of M as bytes)
        What each measurement is of.
    """

    sources: list[tuple[dict[Any, Any], dict[Any, Any]]]
    M: np.ndarray
    y: np.ndarray
    v: np.ndarray
    keys: list[tuple[str, tuple[str, str], bytes]]


def invented_surveys(seed: int, geography: bool, exact: bool = False) -> Surveys:
    """Two or three surveys, each with tables and an order of factors of its own, and some cells known exactly."""
    rng = np.random.default_rng(seed)
    geounits = {"S": np.ones((1, 2)), "C": np.eye(2)} if geography else {"": np.ones((1, 1))}
    truth = rng.integers(5, 30, 6 * len(geounits.get("C", [0]))).astype(float)
    sources, rows, y, v, keys = [], [], [], [], []
    for number in range(int(rng.integers(2, 4))):
        finest = str(rng.choice(["a * b", "b * a"]))
        wanted = [name for name in ("total", "a", "b") if rng.random() < 0.5] + [finest]
        observed: dict[Any, Any] = {}
        values: dict[Any, Any] = {}
        for level, members in geounits.items():
            for name in wanted:
                shape = (len(members), *SHAPES[name]) if geography else SHAPES[name]
                M = np.kron(members, COUNTS[name])
                spread = rng.uniform(1, 4, shape)
                if number and rng.random() < 0.3:
                    spread = np.where(rng.random(shape) < 0.3, np.inf, spread)
                if exact and rng.random() < 0.3:
                    spread = np.where(rng.random(shape) < 0.3, 0.0, spread)
                noise = rng.normal(0, 3, shape) * np.sqrt(np.where(np.isinf(spread), np.nan, spread))
                value = (M @ truth).reshape(shape) + noise
                (observed.setdefault(level, {}) if geography else observed)[name] = spread
                values[(level, name) if geography else name] = value
                rows.append(M)
                y.append(value.ravel())
                v.append(spread.ravel())
                keys += [(str(number + 1), (level, CANONICAL.get(name, name)), row.tobytes()) for row in M]
        sources.append((observed, values))
    return Surveys(sources, np.vstack(rows), np.concatenate(y), np.concatenate(v), keys)
