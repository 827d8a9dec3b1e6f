"""What a subtree tells about group sums of one component, and how messages combine.

A message has three parts, kept apart as projectors: directions that nothing below determines (unknown), directions
known exactly, and the rest with a finite covariance V. All functions work on batches (..., m, m).

The limits that define them (a variance M to infinity for unknown directions, to zero for exact ones) were worked out by
hand; `tests` compare them with dense least squares.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from blue_solvers.solver import Float

RANK_TOLERANCE = 1e-9  # of sums of projectors, whose nonzero eigenvalues are of order one


class Batch:
    """Arrays of equal length, indexed together."""

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Self:
        """A batch of zero matrices."""
        return cls(*(np.zeros(shape) for _ in fields(cls)))  # type: ignore[arg-type]

    def __getitem__(self, index: object) -> Self:
        return type(self)(*(getattr(self, field.name)[index] for field in fields(self)))  # type: ignore[arg-type]

    def __setitem__(self, index: object, values: Self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            getattr(self, field.name)[index] = getattr(values, field.name)


@dataclass(frozen=True)
class Message(Batch):
    """What is known of group sums u, for a batch of geounits.

    Attributes
    ----------
    V : ndarray, (..., m, m)
        Covariance along the directions that are neither unknown nor exact.
    unknown, exact : ndarray, (..., m, m)
        Orthogonal projectors.
    """

    V: Float
    unknown: Float
    exact: Float


@dataclass(frozen=True)
class Total(Batch):
    """Messages of children, added up.

    Attributes
    ----------
    V : ndarray, (..., m, m)
        Sum of the children's covariances.
    precision : ndarray
        Its inverse along the finite directions of the sum.
    exact : ndarray
        Projector on directions that are exact in every child.
    unknown_inverse : ndarray
        Pseudo-inverse of the sum of the children's unknown projectors.
    """

    V: Float
    precision: Float
    exact: Float
    unknown_inverse: Float


@dataclass(frozen=True)
class Update:
    """Own measurements combined with the children's total s: the estimate is own h + own_exact h_exact + children s."""

    message: Message
    own: Float
    own_exact: Float | None
    children: Float | None


def add_up(V: Float, unknown: Float, finite_or_unknown: Float) -> Total:
    """Combine children.

    Parameters
    ----------
    V, unknown : ndarray, (..., m, m)
        Sums over children of their covariances and unknown projectors.
    finite_or_unknown : ndarray
        Sum over children of the projectors on directions that are not exact.
    """
    identity = np.eye(V.shape[-1])
    unknown_range = range_projector(unknown)
    exact = identity - range_projector(finite_or_unknown)
    finite = identity - unknown_range - exact
    return Total(V, inverse_on(finite, V), exact, inverse_on(unknown_range, unknown))


def update(J: Float, seen: Float, J_exact: Float | None, total: Total | None) -> Update:
    """Combine a geounit's own measurements with what its children tell.

    Parameters
    ----------
    J : ndarray, (..., m, m)
        Information of its noisy measurements.
    seen : ndarray
        The same with all precisions 1: its range is what they measure.
    J_exact : ndarray or None
        Information of its exact measurements, with weights 1.
    total : Total or None
        Of its children; None for geounits without any.
    """
    identity = np.eye(J.shape[-1])
    own_exact = None if J_exact is None else range_projector(J_exact, 1 + _trace(J_exact))
    sources = [p for p in (own_exact, None if total is None else total.exact) if p is not None]
    weights = sum(sources, start=np.zeros_like(J))
    exact = range_projector(weights) if sources else np.zeros_like(J)
    precision = J if total is None else J + total.precision
    informed = seen if total is None else seen + _finite_range(total)
    open_ = identity - exact
    determined = range_projector(open_ @ informed @ open_, 1 + _trace(seen))
    V = inverse_on(determined, precision)
    message = Message(V, open_ - determined, exact)
    reconciled = (identity - V @ precision) @ inverse_on(exact, weights) if sources else np.zeros_like(J)
    return Update(
        message,
        V,
        None if J_exact is None or own_exact is None else reconciled @ own_exact @ inverse_on(own_exact, J_exact),
        None if total is None else V @ total.precision + reconciled @ total.exact,
    )


def _finite_range(total: Total) -> Float:
    identity = np.eye(total.V.shape[-1])
    return identity - total.exact - range_projector(total.unknown_inverse)


def gain(child: Message, total: Total) -> Float:
    """How a child takes part in what its parent learns: x_c = m_c + A (x_p - s_p)."""
    return child.V @ total.precision + _unknown_gain(child, total)


def _unknown_gain(child: Message, total: Total) -> Float:
    identity = np.eye(child.V.shape[-1])
    return child.unknown @ total.unknown_inverse @ (identity - total.V @ total.precision)


def conditional_covariance(child: Message, total: Total) -> Float:
    """Covariance of a child's group sums given the total of all children."""
    Y = _unknown_gain(child, total)
    cross = Y @ child.V
    taken = child.V @ total.precision @ child.V + cross + cross.swapaxes(-1, -2)
    return child.V - taken + child.unknown @ total.unknown_inverse @ total.V @ Y.swapaxes(-1, -2)


def range_projector(matrix: Float, scale: Float | None = None) -> Float:
    """Orthogonal projectors on the ranges of positive semidefinite matrices.

    Eigenvalues count from `RANK_TOLERANCE` times `scale`, (...), by default 1 as fits sums of projectors.
    """
    least = RANK_TOLERANCE * (np.ones(matrix.shape[:-2]) if scale is None else scale)
    if matrix.shape[-1] == 1:
        return (matrix > least[..., None, None]).astype(float)
    values, vectors = np.linalg.eigh(matrix)
    kept = vectors * (values > least[..., None])[..., None, :]
    return kept @ kept.swapaxes(-1, -2)


def inverse_on(projector: Float, matrix: Float) -> Float:
    """Inverse of symmetric matrices restricted to the ranges of orthogonal projectors."""
    m = matrix.shape[-1]
    if m == 1:
        return np.divide(projector, matrix, out=np.zeros_like(matrix), where=projector > 0.5)
    rest = np.eye(m) - projector
    restricted = projector @ matrix @ projector
    size = _trace(restricted)[..., None, None] / m
    empty = _trace(projector)[..., None, None] < 0.5  # no direction at all, up to rounding
    inverse = np.linalg.inv(np.where(empty, np.eye(m), restricted + size * rest))
    return np.where(empty, 0.0, projector @ inverse @ projector)


def _trace(matrix: Float) -> Float:
    return np.trace(matrix, axis1=-2, axis2=-1)
