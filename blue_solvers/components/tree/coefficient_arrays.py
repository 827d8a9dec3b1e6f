"""What a component is estimated with, and what is known of it from outside a part of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from blue_solvers.components.tree.messages import Message
from blue_solvers.components.tree.piecewise import Composed, Ragged
from blue_solvers.components.tree.splitting import Piece
from constraint_builders.arrays import Float


@dataclass(frozen=True)
class PieceCoefficients:
    """Coefficients of b numbers that are a copy of a piece.

    Attributes
    ----------
    matrices : dict of Ragged, (entries, b, b)
        By name, with entries as `TreePlan` counts them: ``"children"``, what multiplies the sum of children's
        estimates; ``"gain"``, what a child takes of what its parent learnt; ``"root"``, square roots of the
        covariance of the estimate from a geounit and from below; ``"posterior"``, those of the final one. By number
        of an observed table that says something, what multiplies its rows, (entries, b, k).
    message : Message
        What the tree tells of its root, (1, b, b), or of the numbers that are not empty there.
    """

    matrices: Mapping[str | int, Ragged]
    message: Message


@dataclass(frozen=True)
class Coefficients:
    """The same of a component, put together from its pieces."""

    pieces: Sequence[tuple[Piece, PieceCoefficients]]
    matrices: Mapping[str | int, Composed]

    @property
    def message(self) -> list[Message]:
        """What the tree tells of every piece at its root."""
        return [own.message for _, own in self.pieces]


@dataclass(frozen=True)
class Boundary:
    """What is known from outside a part of a tree.

    Attributes
    ----------
    below : mapping of geounit to sequence of sequence of Message (1, b, b), for every component and piece
        Stands in for what some geounits without children were measured.
    above : sequence of sequence of ndarray (b, b), or None
        Square roots of the root's final covariance, for every component and piece.
    """

    below: Mapping[int, Sequence[Sequence[Message]]] = field(default_factory=dict)
    above: Sequence[Sequence[Float]] | None = None
