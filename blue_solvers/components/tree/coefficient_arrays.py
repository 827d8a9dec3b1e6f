"""What a component is estimated with, and what is known of it from outside a part of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from blue_solvers.components.tree.messages import Message
from blue_solvers.components.tree.piecewise import PieceMessages, PieceRoots
from constraint_builders.arrays import Float

Matrices: TypeAlias = Any  # an array (entries, r, q), Ragged or Composed: all are taken from, turned, multiplied by


@dataclass
class Coefficients:
    """Coefficients of one component, arrays (entries, m, m).

    Attributes
    ----------
    own, own_exact : by class; empty but for components of one group sum
        What multiplies the information of all noisy, or exact, tables.
    measured : for other components, for every observed table what multiplies its rows, by class of its level
        (classes, m, k).
    children : by geounit with children
    gain : by pair
    root : by class
        Square roots of the covariance of the estimate from a geounit and from below.
    posterior : by geounit of `posterior_of`
        Square roots of the covariance of the estimate.
    message : Message
        What the tree tells of its root, (1, m, m).
    """

    children: Matrices
    gain: Matrices
    root: Matrices
    posterior: Matrices
    message: Message | PieceMessages
    own: Float = field(default_factory=lambda: np.zeros((0, 1, 1)))
    own_exact: Float = field(default_factory=lambda: np.zeros((0, 1, 1)))
    measured: dict[int, Matrices] = field(default_factory=dict)

    def of_piece(self, number: int) -> Coefficients:
        """Gains and roots of one of the pieces that a component is never put together from."""
        assert isinstance(self.message, PieceMessages)
        whole = self.children, self.gain, self.root, self.posterior
        children, gain, root, posterior = (own.pieces[number] for own in whole)
        return Coefficients(children, gain, root, posterior, self.message.pieces[number])


@dataclass(frozen=True)
class Boundary:
    """What is known from outside a part of a tree.

    Attributes
    ----------
    below : mapping of geounit to sequence of Message (1, m, m), one for every component
        Stands in for what some geounits without children were measured.
    above : sequence of ndarray (m, m), or None
        Square roots of the root's final covariance, for every component.
    """

    below: Mapping[int, Sequence[Message | PieceMessages]] = field(default_factory=dict)
    above: Sequence[Float | PieceRoots] | None = None
