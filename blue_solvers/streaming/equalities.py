"""Linear combinations of measured cells that are known exactly, over the parts of a problem.

A best estimate x of measurements y with noise Sigma has Cov(x, y) = Cov(x), so that Cov(x) E' is what x would be if the
measurements were Sigma E': as many columns more, which go up and down with these. With E x = b the estimate becomes
x - Cov(x) E' (E Cov(x) E')^+ (E x - b). E x is a sum over parts; so is E Cov(x) E', of squares: with C = Cov(x) E' over
all measured cells it is C' Sigma^-1 C, which keeps its digits however small it is beside the noise of measurements.

Which combinations say something new, and which cells they determine, is decided in passes of their own, where all noise
has one variance: it is a matter of the tables alone. A combination that says nothing new must agree with the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import qr

from blue_solvers.components.conditioning import orthonormal, pivots
from blue_solvers.streaming.part_data import Design, Downward, Estimates, Part, Upward
from blue_solvers.streaming.subtrees import SubtreeForm
from constraint_builders.arrays import Float, Index

CONTRADICTION_TOLERANCE = 1e-11  # relative to the sizes of the cells that a combination adds
ROUNDING = 1e-12  # share of a variance that is left by rounding where nothing is
REFINED = 1e-6  # share of what is missing that may be shared out once more; more would make cells known well worse
HIDDEN = 1e-9  # share of a variance below which rounding could make more of what is left than there is


@dataclass(frozen=True)
class SharedEqualities:
    """The combinations of some parts' estimates; those of several are added.

    Attributes
    ----------
    values : ndarray, (k, 1 + k)
        E x, and E Cov(x) E' as its cells have it.
    root : ndarray, (k, k)
        Upper triangular R with R'R = E Cov(x) E'.
    squares : ndarray, (k,)
        Sum of the squared coefficients of each combination.
    noise : ndarray, (k,)
        Variance of each combination of the measurements themselves, E Sigma E': estimates have no more.
    sizes : ndarray, (k,)
        Sum of the sizes of what each combination adds.
    """

    values: Float
    root: Float
    squares: Float
    noise: Float
    sizes: Float

    @classmethod
    def of(cls, design: Design, part: Part, below: Mapping[int, Upward], above: Downward | None) -> SharedEqualities:
        """The share of one part, once what lies around it is known."""
        first, k = len(design.desired), len(design.equal_to)
        both = replace(design, desired=(*design.desired, *design.observed))
        wanted = range(first, len(both.desired))
        result = SubtreeForm(both, part, below, above, wanted, read=()).estimates(variances=False)
        values, root = np.zeros((k, 1 + k)), np.zeros((0, k))
        squares, noise, sizes = np.zeros((3, k))
        for i, (level, _) in enumerate(design.observed):
            if first + i not in result.cells:
                continue
            own, cells, responses = part.combined(i), result.cells[first + i].ravel(), result.responses[first + i]
            values[:, 0] += own @ cells
            values[:, 1:] += own @ responses.reshape(-1, k)
            squares += own.power(2).sum(axis=1)
            noise += own.power(2) @ part.noise(i)
            sizes += abs(own) @ abs(cells)
            root = _stacked(root, _whitened(responses, part.variances[i], part.numbers(level, list(below))))
        return cls(values, root, squares, noise, sizes)

    def __add__(self, other: SharedEqualities) -> SharedEqualities:
        return SharedEqualities(
            self.values + other.values,
            _stacked(self.root, other.root),
            self.squares + other.squares,
            self.noise + other.noise,
            self.sizes + other.sizes,
        )


def _whitened(responses: Float, variances: Float, others: Index) -> Float:
    """Responses of the noisy cells of a table in units of their noise, (cells, k): their squares add up to E V E'."""
    noisy = np.isfinite(variances) & (variances > 0)
    noisy[others] = False
    return (responses[noisy] / np.sqrt(variances[noisy])[:, None, None]).reshape(-1, responses.shape[-1])


def _stacked(root: Float, rows: Float) -> Float:
    """R with R'R the sum of both squares, (rows, k); the largest rows first, so that none loses digits to others."""
    both = np.concatenate([root, rows])
    return np.asarray(qr(both[np.argsort(-abs(both).max(axis=1, initial=0), kind="stable")], mode="r")[0])[
        : both.shape[1]
    ]


def with_equal_noise(part: Part) -> Part:
    """A part where all noise has one variance: what determines what is a matter of the tables alone."""
    alike = [np.where(np.isfinite(own) & (own > 0), 1.0, own) for own in part.variances]
    return replace(part, variances=alike)


@dataclass(frozen=True)
class Correction:
    """What makes estimates satisfy the combinations.

    Attributes
    ----------
    root : ndarray, (k, r)
        H with H H' = (E Cov(x) E')^+, of the independent combinations.
    gain : ndarray, (k,)
        The same times E x - b.
    alike : ndarray, (k, r)
        `root` where all noise has one variance.
    """

    root: Float
    gain: Float
    alike: Float

    @classmethod
    def of(cls, combined: SharedEqualities, alike: SharedEqualities, b: Float) -> Correction:
        """From the combinations of all parts, with their noise and with equal noise, and b, (k,).

        Raises
        ------
        ValueError
            If one contradicts what is known exactly, or cannot be kept as exactly as its variance asks.
        """
        chosen = _independent(alike)
        root, alike_root = (_inverse_root(own.root, chosen) for own in (combined, alike))
        excess = combined.values[:, 0] - b
        allowed = CONTRADICTION_TOLERANCE * (np.sqrt(combined.squares) + combined.sizes + abs(b))
        gain, left = _gain(combined, root, excess, allowed)
        if (abs(left) > allowed).any():
            told = [i for i in chosen if not _is_hidden(combined, i) or abs(excess[i]) > allowed[i]]
            gain, left = _gain(combined, _inverse_root(combined.root, np.array(told, dtype=np.intp)), excess, allowed)
        left = abs(left)
        if (left > allowed).any():
            row = int((left / allowed).argmax())
            raise ValueError(
                f"the equalities contradict one another, or what is known otherwise, exactly or nearly so, by "
                f"{left[row]:.6g} in row {row}: correct their right-hand side, or estimate in memory"
            )
        return cls(root, gain, alike_root)

    def applied(self, result: Estimates, alike: Estimates) -> Estimates:
        """Corrected estimates and variances of a part; `alike` is of the part with equal noise.

        Raises
        ------
        ValueError
            If rounding hides what variance is left to a cell.
        """
        cells = {i: own - result.responses[i] @ self.gain for i, own in result.cells.items()}
        variances = {}
        for i, own in result.variances.items():
            left = own - _squares(result.responses[i] @ self.root)
            open_ = alike.variances[i] - _squares(alike.responses[i] @ self.alike) > ROUNDING * alike.variances[i]
            if (open_ & (left <= HIDDEN * own) & (own > 0)).any():
                raise ValueError(
                    f"the equalities leave a cell of table number {i} less than {HIDDEN:g} of its variance, which "
                    "rounding hides here: estimate in memory"
                )
            variances[i] = np.where(open_, left, 0.0)
        return replace(result, cells=cells, variances=variances)


def _gain(combined: SharedEqualities, root: Float, excess: Float, allowed: Float) -> tuple[Float, Float]:
    """What to multiply responses with, (k,), and what the rounding of these leaves of the excess."""
    gain = root @ (root.T @ excess)
    left = excess - combined.values[:, 1:] @ gain
    if (abs(left) > allowed).any() and (abs(left) <= REFINED * abs(excess) + allowed).all():
        gain = gain + root @ (root.T @ left)
        left = excess - combined.values[:, 1:] @ gain
    return gain, left


def _squares(columns: Float) -> Float:
    """Sums of the squares of every cell's columns, (G, cells, k) to (G, cells)."""
    return np.einsum("gck,gck->gc", columns, columns)


def _independent(alike: SharedEqualities) -> Index:
    """Combinations that say something new where all noise counts alike: variances have no part in this."""
    lengths = np.sqrt(alike.squares)
    return pivots(alike.root / np.where(lengths > 0, lengths, 1.0))[0]


def _inverse_root(root: Float, chosen: Index) -> Float:
    """H, (k, r), zero but for the chosen rows, (r,), with H H' the inverse of the chosen square of R'R."""
    inverse = np.zeros((root.shape[1], chosen.size))
    inverse[chosen] = orthonormal(root[:, chosen])[1].T
    return inverse


def _is_hidden(combined: SharedEqualities, row: int) -> bool:
    """Whether a combination of estimates has so little noise that rounding hides it beside the measurements' own."""
    return bool(np.sum(combined.root[:, row] ** 2) <= ROUNDING * combined.noise[row])
