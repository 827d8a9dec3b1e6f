"""Marginal rows and their ranks in exact arithmetic; shares no numerics with the package."""

from collections.abc import Sequence

import numpy as np
from flint import nmod_mat

from constraint_builders import Schema

PRIME = (1 << 61) - 1  # a rank modulo a large prime is the rank, unless the prime divides a minor


def marginal_rows(schema: Schema, name: str) -> np.ndarray:
    """The 0/1 matrix (cells of the table in the order of its name, detailed cells), from the schema's groups alone."""
    factors = {"total": (), "detailed": schema.names}.get(name.strip())
    if factors is None:
        factors = tuple(part.strip() for part in name.split("*"))
    levels = np.indices(schema.shape).reshape(len(schema.shape), -1)
    cell, size = np.zeros(levels.shape[1], dtype=int), 1
    for factor in factors:
        cell = cell * schema.size_of(factor) + np.array(schema.groups_of(factor))[levels[schema.axis_of(factor)]]
        size *= schema.size_of(factor)
    rows = np.zeros((size, levels.shape[1]))
    rows[cell, np.arange(levels.shape[1])] = 1
    return rows


def stacked(schema: Schema, names: Sequence[str]) -> np.ndarray:
    """Marginal rows of several tables, in their order."""
    return np.vstack([marginal_rows(schema, name) for name in names])


def rational_rank(matrix: np.ndarray) -> int:
    """Rank of an integer matrix, exactly up to the modulus."""
    if 0 in matrix.shape:
        return 0
    return nmod_mat(*matrix.shape, [int(value) % PRIME for value in np.asarray(matrix).ravel()], PRIME).rank()


def exact_rank(schema: Schema, names: Sequence[str]) -> int:
    """Rank of the consistency relations between tables: cells less dimension of the consistent ones."""
    M = stacked(schema, names)
    return len(M) - rational_rank(M @ M.T)
