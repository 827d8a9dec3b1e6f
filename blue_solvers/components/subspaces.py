"""Subspaces of small matrices, in batches (..., m, m): ranges, and inverses on them, at one tolerance.

Everything that decides a rank is unweighted: sums of projectors and of 0/1 rows, whose nonzero eigenvalues are of order
one. Variances never take part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float

RANK_TOLERANCE = 1e-9  # relative to the largest eigenvalue there can be


def range_projector(matrix: Float, scale: Float | None = None) -> Float:
    """Orthogonal projectors on the ranges of positive semidefinite matrices; not to be written to.

    Eigenvalues count from `RANK_TOLERANCE` times `scale`, (...), by default 1 as fits sums of projectors.
    """
    least = RANK_TOLERANCE * (np.ones(matrix.shape[:-2]) if scale is None else scale)
    if matrix.shape[-1] == 1:
        return (matrix > least[..., None, None]).astype(float)
    flat, bounds = matrix.reshape(-1, *matrix.shape[-2:]), np.broadcast_to(least, matrix.shape[:-2]).ravel()
    runs = _runs(flat, bounds)
    first = np.flatnonzero(runs)
    values, vectors = np.linalg.eigh(flat[first])
    counts = values > bounds[first, None]
    if counts.all():
        return np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape)
    kept = vectors * counts[:, None, :]
    return (kept @ kept.swapaxes(-1, -2))[np.cumsum(runs) - 1].reshape(matrix.shape)


def _runs(matrices: Float, bounds: Float) -> NDArray[np.bool_]:
    """Which of a batch differ from the one before: geounits that were measured alike come one after another."""
    new = np.ones(len(matrices), dtype=bool)
    new[1:] = (matrices[1:] != matrices[:-1]).any(axis=(1, 2)) | (bounds[1:] != bounds[:-1])
    return new


def complement(*projectors: Float) -> Float:
    """Projectors on what is orthogonal to some subspaces, these to one another; exactly 0 where nothing is."""
    identity = np.eye(projectors[0].shape[-1])
    if not any(own.any() for own in projectors):
        return np.broadcast_to(identity, projectors[0].shape)
    rest = identity - sum(projectors)
    return np.where(trace(rest)[..., None, None] < 0.5, 0.0, rest)


def inverse_on(projector: Float, matrix: Float) -> Float:
    """Inverse of symmetric matrices restricted to the ranges of orthogonal projectors."""
    m = matrix.shape[-1]
    if m == 1:
        return np.divide(projector, matrix, out=np.zeros_like(matrix), where=projector > 0.5)
    rest = np.eye(m) - projector
    restricted = projector @ matrix @ projector
    size = trace(restricted)[..., None, None] / m
    empty = trace(projector)[..., None, None] < 0.5  # no direction at all, up to rounding
    inverse = np.linalg.inv(np.where(empty, np.eye(m), restricted + size * rest))
    return np.where(empty, 0.0, projector @ inverse @ projector)


def trace(matrix: Float) -> Float:
    """Traces of a batch of matrices."""
    return np.einsum("...ii->...", matrix)


def kronecker(matrices: list[Float]) -> Float:
    """Kronecker product of any number of matrices."""
    result: NDArray = np.ones((1, 1))
    for matrix in matrices:
        shape = len(result) * len(matrix), result.shape[1] * matrix.shape[1]
        result = (result[:, None, :, None] * matrix[None, :, None, :]).reshape(shape)
    return result
