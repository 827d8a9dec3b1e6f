"""Pieces of a component that no table ties together, at any geounit.

With rows W of a table about group sums u, orthogonal subspaces of u fall apart if W'W keeps each of them to itself, for
every table. Most tables of many groups have W'W that commute: along their common eigenspaces they say the same of every
direction. Tables that do not commute with them have few rows, whose projections on an eigenspace span what is tied
together; all the rest of the eigenspace is as many copies of one number. Nothing here depends on variances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from math import prod

import numpy as np
from scipy.linalg import qr

from blue_solvers.components.orthogonal import SMALL, compress
from blue_solvers.components.subspaces import kronecker
from blue_solvers.components.tree.messages import Message
from blue_solvers.components.tree.piecewise import PieceMessages, PieceRoots
from constraint_builders.arrays import Float, Index

WORTH = SMALL  # group sums up to which a component is left whole
TIED = 0.7  # of the group sums: beyond, taking the rest apart saves little
TOLERANCE = 1e-11  # of unweighted rows of length one, of eigenvalues relative to the largest

Axes = list[Float]  # rows of a table along every variable that is no contrast; their Kronecker product is W


class Piece:
    """What is worked out by itself, in b numbers: here all of a component.

    Attributes
    ----------
    rows : dict of str to ndarray, (q, b)
        What each table, by name, says of these numbers.
    size : int
        b.
    """

    def __init__(self, rows: Mapping[str, Float], size: int) -> None:
        self.rows, self.size = dict(rows), size

    def of_root(self, root: Float | PieceRoots) -> Float:
        """The piece's square root of a covariance, (b, b), from the component's, (m, m)."""
        assert isinstance(root, np.ndarray)  # roots of pieces are those of `ZeroPiece`
        return self._of_root(root)

    def _of_root(self, root: Float) -> Float:
        return root

    def of_projector(self, projector: Float) -> Float:
        """The piece's projector from the component's."""
        return projector

    def of_weights(self, weights: Float) -> Float:
        """Weights on the piece's numbers, (b, rest, K), from those on the component's group sums, (m, rest, K)."""
        return weights

    def of_message(self, message: Message | PieceMessages) -> Message:
        """What a message (1, m, m) about the component says of the piece."""
        assert isinstance(message, Message)
        arrays = (
            self.of_root(message.root[0]),
            self.of_root(message.information_root[0].T).T,
            self.of_projector(message.unknown[0]),
            self.of_projector(message.exact[0]),
        )
        return Message(*(array[None] for array in arrays))


class Tied(Piece):
    """A subspace with an orthonormal basis, (m, b)."""

    def __init__(self, rows: Mapping[str, Float], basis: Float) -> None:
        super().__init__(rows, basis.shape[1])
        self._basis = basis

    def _of_root(self, root: Float) -> Float:
        return compress((self._basis.T @ root)[None])[0]

    def of_projector(self, projector: Float) -> Float:
        return self._basis.T @ projector @ self._basis

    def of_weights(self, weights: Float) -> Float:
        return np.tensordot(self._basis.T, weights, axes=1)


class Copies(Piece):
    """A subspace along which every table says the same of every direction: one number.

    Parameters
    ----------
    squares : mapping of str to float
        W'W there of tables for which it is not 0.
    space : ndarray, (m, e)
        Orthonormal basis of an eigenspace.
    tied : ndarray, (m, b)
        Orthonormal basis of the part of it that does not belong here.
    """

    def __init__(self, squares: Mapping[str, float], space: Float, tied: Float) -> None:
        super().__init__({name: np.full((1, 1), np.sqrt(square)) for name, square in squares.items()}, 1)
        self._space, self._tied = space, tied

    @cached_property
    def _basis(self) -> Float:
        rank = self._tied.shape[1]
        return self._space @ qr(self._space.T @ self._tied)[0][:, rank:] if rank else self._space

    def _of_root(self, root: Float) -> Float:
        own = self._basis.T @ root
        return np.full((1, 1), np.sqrt((own**2).sum() / len(own)))

    def of_projector(self, projector: Float) -> Float:
        own = self._basis.T @ projector @ self._basis
        return np.full((1, 1), float(np.trace(own) > len(own) / 2))

    def of_weights(self, weights: Float) -> Float:
        """Every direction of the space has the one number: a further place along all else."""
        own = np.tensordot(self._basis.T, weights, axes=1)
        return own.reshape(1, -1, weights.shape[-1])


class Undivided:
    """A component that is one piece.

    Attributes
    ----------
    pieces : list of Piece
    size : int
        Number of group sums, m.
    seeing : dict of str to int
        Rows of the tables that see the component.
    """

    pieces: Sequence[Piece]

    def __init__(self, tables: Mapping[str, Axes], size: int) -> None:
        self.size = size
        self.seeing = {name: prod(map(len, axes)) for name, axes in tables.items()}
        self.pieces = [Piece({name: kronecker(axes) for name, axes in tables.items()}, size)]

    def square(self, matrices: Sequence[Float]) -> Float:
        """Of the component, (entries, m, m), from those of every piece, (entries, b, b)."""
        return matrices[0]

    def gains(self, table: str, matrices: Mapping[int, Float]) -> Float:
        """What multiplies the rows of a table, (entries, m, k), from what multiplies those of the pieces it sees."""
        return matrices[0]


class Divided(Undivided):
    """A component that is taken apart: what is tied together first, if there is such, then what is left of eigenspaces.

    Parameters
    ----------
    tables : mapping of str to list of ndarray
        Rows along every variable.
    bases : list of ndarray, (r, r)
        Orthonormal bases along every variable, whose Kronecker product has the eigenspaces' directions as its columns.
    space_of : ndarray of int, (m,)
        The eigenspace of every direction.
    squares : list of dict of str to float
        For every eigenspace W'W of the tables that commute, where it is not 0.
    tied : list of ndarray, (m, b)
        For every eigenspace an orthonormal basis of what is tied together.
    """

    def __init__(
        self,
        tables: Mapping[str, Axes],
        bases: list[Float],
        space_of: Index,
        squares: list[dict[str, float]],
        tied: list[Float],
    ) -> None:
        self.size = space_of.size
        self.seeing = {name: prod(map(len, axes)) for name, axes in tables.items()}
        self._bases, self._tied = bases, np.concatenate(tied, axis=1)
        self._frames: dict[str, Float] = {}
        self._tied_rows: dict[str, Float] = {}
        self.pieces = []
        if self._tied.shape[1]:
            for name, axes in tables.items():
                self._tie(name, kronecker(axes) @ self._tied)
            self.pieces.append(Tied(self._tied_rows, self._tied))
        self._first = len(self.pieces)
        directions, counts = kronecker(bases), np.bincount(space_of)
        left = [n for n, own in enumerate(tied) if own.shape[1] < counts[n]]
        self.pieces += [Copies(squares[n], directions[:, space_of == n], tied[n]) for n in left]
        number = np.full(counts.size, len(left))  # of those that are tied altogether one more, which is 0
        number[left] = np.arange(len(left))
        self._number_of = number[space_of]
        self._number_of_tied = np.repeat(number, [own.shape[1] for own in tied])
        self._squares = [squares[n] for n in left]
        alike = {name for own in squares for name in own}
        self._turned = {n: [W @ Q for W, Q in zip(tables[n], bases, strict=True)] for n in alike}

    def _tie(self, name: str, rows: Float) -> None:
        if len(rows) > rows.shape[1]:
            self._frames[name], rows = np.linalg.qr(rows)
        self._tied_rows[name] = rows

    def square(self, matrices: Sequence[Float]) -> Float:
        numbers = [own[:, 0, 0] for own in matrices[self._first :]]
        total = self._spread(numbers, len(matrices[0]), self._bases)
        if self._first:
            own = matrices[0].copy()
            places = np.arange(own.shape[1])
            own[:, places, places] -= self._padded(numbers, len(own))[:, self._number_of_tied]
            total += self._tied @ own @ self._tied.T
        return total

    def gains(self, table: str, matrices: Mapping[int, Float]) -> Float:
        entries = len(next(iter(matrices.values())))
        numbers = [
            matrices[i][:, 0, 0] / np.sqrt(squares[table]) if i in matrices else np.zeros(entries)
            for i, squares in enumerate(self._squares, self._first)
        ]
        if not self._first:
            return self._spread(numbers, entries, self._turned[table])
        given = self._padded(numbers, entries)[:, self._number_of_tied]
        lifted = self._tied @ (matrices[0] - given[:, :, None] * self._tied_rows[table].T)
        lifted = lifted @ self._frames[table].T if table in self._frames else lifted
        if table not in self._turned:
            return lifted
        total = self._spread(numbers, entries, self._turned[table])
        return np.add(total, lifted, out=total)

    def _padded(self, numbers: Sequence[Float], entries: int) -> Float:
        """Of every eigenspace, (entries, spaces + 1)."""
        return np.stack([*numbers, np.zeros(entries)], axis=1)

    def _spread(self, numbers: Sequence[Float], entries: int, others: list[Float]) -> Float:
        """Sum over directions of their number times the outer product of bases and others, (entries, m, k)."""
        lengths = [len(Q) for Q in self._bases]
        result = self._padded(numbers, entries)[:, self._number_of].reshape(entries, *lengths)
        for Q, other in zip(self._bases, others, strict=True):
            outer = Q[:, None, :] * other[None, :, :]  # (r, k, directions)
            result = np.tensordot(result, outer, axes=([1], [2]))  # the axis in front goes, two come at the end
        places = range(1, result.ndim)
        shape = entries, self._number_of.size, prod(map(len, others))
        return np.ascontiguousarray(result.transpose(0, *places[::2], *places[1::2])).reshape(shape)


def split(tables: Mapping[str, Axes], size: int) -> Undivided:
    """How a component of so many group sums falls apart, by what tables tell of it; one piece if that saves little."""
    whole = Undivided(tables, size)
    if size <= WORTH or not tables:
        return whole
    rows = whole.pieces[0].rows
    commuting = _commuting(tables)
    tying = [rows[name] / np.linalg.norm(rows[name], axis=1)[:, None] for name in tables if name not in commuting]
    if sum(map(len, tying)) > size:
        return whole
    per_axis = zip(*(tables[name] for name in commuting), strict=True)
    found = [_diagonalised([W.T @ W for W in matrices]) for matrices in per_axis]
    known = [own for own in found if own is not None]
    if len(known) < len(found):
        return whole
    bases = [basis for basis, _ in known]
    values = np.stack([reduce(np.kron, own) for own in zip(*(values for _, values in known), strict=True)])
    space_of, first = _eigenspaces(values)
    squares = [{name: float(v) for name, v in zip(commuting, values[:, i], strict=True) if v > 0} for i in first]
    directions = kronecker(bases)
    tied = [_tied_in(directions[:, space_of == n], tying) for n in range(first.size)]
    if sum(own.shape[1] for own in tied) > TIED * size:
        return whole
    return Divided(tables, bases, space_of, squares, tied)


def _commuting(tables: Mapping[str, Axes]) -> list[str]:
    """Tables, those of most rows first, whose W'W commute along every variable with those before."""
    chosen: list[str] = []
    for name in sorted(tables, key=lambda own: (-np.prod([len(W) for W in tables[own]]), own)):
        if all(_commute(one, other) for own in chosen for one, other in zip(tables[own], tables[name], strict=True)):
            chosen.append(name)
    return chosen


def _commute(one: Float, other: Float) -> bool:
    G, H = one.T @ one, other.T @ other
    return bool(abs(G @ H - H @ G).max() <= TOLERANCE * abs(G).max() * abs(H).max())


def _diagonalised(matrices: Sequence[Float]) -> tuple[Float, list[Float]] | None:
    """A basis (r, r) in which commuting symmetric matrices are all diagonal, and these diagonals; None if it fails."""
    generic = np.zeros_like(matrices[0])
    for number, matrix in enumerate(matrices):
        generic += np.sqrt(2 + number) / (1 + number) * matrix / abs(matrix).max()
    is_diagonal = not (generic - np.diag(generic.diagonal())).any()
    basis = np.eye(len(generic)) if is_diagonal else np.linalg.eigh(generic)[1]
    values = []
    for matrix in matrices:
        turned = basis.T @ matrix @ basis
        own, least = turned.diagonal(), TOLERANCE * abs(matrix).max()
        if abs(turned - np.diag(own)).max() > least:
            return None
        values.append(np.where(abs(own) > least, own, 0.0))
    return basis, values


def _eigenspaces(values: Float) -> tuple[Index, Index]:
    """The eigenspace of every direction by its eigenvalues (tables, m), and a direction of each."""
    largest = values.max(axis=1, keepdims=True)
    labels = np.round(values / largest / (10 * TOLERANCE))
    _, first, own = np.unique(labels, axis=1, return_index=True, return_inverse=True)
    return own.ravel(), first


def _tied_in(space: Float, tying: list[Float]) -> Float:
    """An orthonormal basis of the projections of some rows on a space, (m, rank)."""
    if not tying:
        return space[:, :0]
    Q, R, _ = qr(space.T @ np.concatenate(tying).T, mode="economic", pivoting=True)
    return space @ Q[:, : int(np.count_nonzero(abs(R.diagonal()) > TOLERANCE))]
