"""Linear combinations of measured cells that are known exactly, over the parts of a problem.

A best estimate x of measurements y with noise Sigma has Cov(x, y) = Cov(x), so that Cov(x) E' is what x would be if the
measurements were Sigma E': as many columns more, which go up and down with these. With E x = b the estimate becomes
x - Cov(x) E' (E Cov(x) E')^+ (E x - b), as in `components.corrections`; E x and E Cov(x) E' are sums over parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from blue_solvers.components.subtrees import Design, Downward, Estimates, Index, Part, SubtreeForm, Upward
from blue_solvers.solver import Float
from constraint_builders import Spine

RANK_TOLERANCE = 1e-10  # relative to what the combinations' cells could vary: implied and repeated ones drop out
CONTRADICTION_TOLERANCE = 1e-6  # relative; rounding in the squares of what rows make of values stays below its square
MOST_DEVIATIONS = 10.0  # that noise moves what is known almost exactly


class Shares:
    """The combinations, to be cut into shares of parts.

    Parameters
    ----------
    design : Design
    spine : Spine
    matrix : csr_array, (k, observed cells)
        Over the observed layout: every table with all geounits of its level.
    """

    def __init__(self, design: Design, spine: Spine, matrix: sparse.csr_array) -> None:
        self._design, self._spine, self._rows = design, spine, matrix.shape[0]
        sizes = np.array([table.size for _, table in design.observed])
        levels = np.array([level for level, _ in design.observed])
        counts = np.array([spine.members[level].size for level in levels.tolist()])
        offsets = np.concatenate([[0], np.cumsum(sizes * counts)])
        entries = matrix.tocoo()
        self._row, self._weight = entries.coords[0], entries.data
        self._table = np.searchsorted(offsets, entries.coords[1], side="right") - 1
        place = entries.coords[1] - offsets[self._table]
        self._cell = place % sizes[self._table]
        starts = np.concatenate([[0], np.cumsum([members.size for members in spine.members])])
        self._geounit = np.concatenate(spine.members)[starts[levels[self._table]] + place // sizes[self._table]]

    def of(self, ordered: Index, own: Index) -> sparse.csr_array:
        """The share of a part, (k, cells of its tables); of the geounits that it has, those that are its own."""
        levels = self._spine.level_of[ordered]
        counts = [np.count_nonzero(levels == level) for level, _ in self._design.observed]
        sizes = np.array([table.size for _, table in self._design.observed])
        offsets = np.concatenate([[0], np.cumsum(sizes * counts)])
        chosen = np.flatnonzero(np.isin(self._geounit, own))
        by_number = np.argsort(ordered)
        position = by_number[np.searchsorted(ordered, self._geounit[chosen], sorter=by_number)]
        rank = position - np.searchsorted(levels, self._spine.level_of[self._geounit[chosen]])
        table = self._table[chosen]
        column = offsets[table] + rank * sizes[table] + self._cell[chosen]
        entries = (self._weight[chosen], (self._row[chosen], column))
        return sparse.csr_array(entries, shape=(self._rows, int(offsets[-1])))


@dataclass(frozen=True)
class Combined:
    """The combinations of some parts' estimates; those of several are added.

    Attributes
    ----------
    values : ndarray, (k, 1 + k)
        E x, and E Cov(x) E'.
    deviations : ndarray, (k,)
        The most that each could deviate.
    """

    values: Float
    deviations: Float

    @classmethod
    def of(cls, design: Design, part: Part, below: Mapping[int, Upward], above: Downward | None) -> Combined:
        """The share of one part, once what lies around it is known."""
        assert part.combinations is not None
        places = np.cumsum([0, *(values.size for values in part.values)])
        spoken_of = np.unique(np.searchsorted(places, np.unique(part.combinations.indices), side="right") - 1).tolist()
        first, k = len(design.desired), part.combinations.shape[0]
        both = replace(design, desired=(*design.desired, *design.observed))
        result = SubtreeForm(both, part, below, above, [first + i for i in spoken_of]).estimates()
        values, deviations = np.zeros((k, 1 + k)), np.zeros(k)
        for i in spoken_of:
            own = part.combinations[:, places[i] : places[i + 1]]
            values[:, 0] += own @ result.cells[first + i].ravel()
            values[:, 1:] += own @ result.responses[first + i].reshape(-1, k)
            deviations += abs(own) @ np.sqrt(result.variances[first + i].ravel())
        return cls(values, deviations)


@dataclass(frozen=True)
class Correction:
    """What makes estimates satisfy the combinations.

    Attributes
    ----------
    inverse : ndarray, (k, k)
        (E Cov(x) E')^+.
    excess : ndarray, (k,)
        E x - b.
    """

    inverse: Float
    excess: Float

    @classmethod
    def of(cls, combined: Iterable[Combined], b: Float) -> Correction:
        """From the combinations of all parts; `ValueError` if their right-hand sides contradict what is exact."""
        shares = list(combined)
        values = sum((own.values for own in shares), start=np.zeros((b.size, 1 + b.size)))
        deviations = sum((own.deviations for own in shares), start=np.zeros(b.size))
        covariance, excess = values[:, 1:], values[:, 0] - b
        inverse = covariance_inverse(covariance, deviations)
        fixed = excess - covariance @ (inverse @ excess)  # of combinations that count as exact
        allowed = CONTRADICTION_TOLERANCE * np.maximum(1.0, np.maximum(abs(values[:, 0]), abs(b)))
        if (abs(fixed) > allowed + MOST_DEVIATIONS * np.sqrt(RANK_TOLERANCE) * deviations).any():
            row = int(abs(fixed).argmax())
            raise ValueError(
                f"the equalities contradict one another, or other values known exactly, by {abs(fixed[row]):.6g} in "
                f"row {row}: correct their right-hand side"
            )
        return cls(inverse, excess)

    def applied(self, result: Estimates) -> Estimates:
        """Corrected estimates and variances of a part."""
        gain = self.inverse @ self.excess
        cells = {i: own - result.responses[i] @ gain for i, own in result.cells.items()}
        variances = {
            i: np.maximum(own - np.einsum("gck,kl,gcl->gc", result.responses[i], self.inverse, result.responses[i]), 0)
            for i, own in result.variances.items()
        }
        return replace(result, cells=cells, variances=variances)


def covariance_inverse(covariance: Float, deviations: Float) -> Float:
    """Pseudo-inverse of the combinations' covariance, scaled by the most that each could deviate."""
    scale = np.where(deviations > 0, deviations, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > RANK_TOLERANCE
    scaled = vectors[:, kept] / scale[:, None]
    return (scaled / values[kept]) @ scaled.T
