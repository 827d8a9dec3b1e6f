"""Linear combinations of measured cells that are known exactly, over the parts of a problem.

A best estimate x of measurements y with noise Sigma has Cov(x, y) = Cov(x), so that Cov(x) E' is what x would be if the
measurements were Sigma E': as many columns more, which go up and down with these. With E x = b the estimate becomes
x - Cov(x) E' (E Cov(x) E')^+ (E x - b); E x and E Cov(x) E' are sums over parts.

A combination whose variance rounding could hide, being less than 1e-10 of that of the same combination of measurements,
must agree with the estimate as it is: then it says nothing new. Otherwise it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from blue_solvers.contract import Float
from blue_solvers.streaming.subtrees import Design, Downward, Estimates, Index, Part, SubtreeForm, Upward
from constraint_builders import Spine

RANK_TOLERANCE = 1e-10  # share of the noise of a combination of measurements that counts as none
CONTRADICTION_TOLERANCE = 1e-11  # relative to the sizes of the cells that a combination adds
ROUNDING = 1e-12  # share of a variance that is left by rounding where nothing is


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
    noise : ndarray, (k,)
        Variance of each combination of the measurements themselves, E Sigma E': estimates have no more.
    sizes : ndarray, (k,)
        Sum of the sizes of what each combination adds.
    """

    values: Float
    noise: Float
    sizes: Float

    @classmethod
    def of(cls, design: Design, part: Part, below: Mapping[int, Upward], above: Downward | None) -> Combined:
        """The share of one part, once what lies around it is known."""
        assert part.combinations is not None
        places = np.cumsum([0, *(values.size for values in part.values)])
        spoken_of = np.unique(np.searchsorted(places, np.unique(part.combinations.indices), side="right") - 1).tolist()
        first, k = len(design.desired), part.combinations.shape[0]
        both = replace(design, desired=(*design.desired, *design.observed))
        result = SubtreeForm(both, part, below, above, [first + i for i in spoken_of]).estimates()
        values, noise, sizes = np.zeros((k, 1 + k)), np.zeros(k), np.zeros(k)
        for i in spoken_of:
            own = part.combinations[:, places[i] : places[i + 1]]
            cells = result.cells[first + i].ravel()
            values[:, 0] += own @ cells
            values[:, 1:] += own @ result.responses[first + i].reshape(-1, k)
            noise += own.power(2) @ np.repeat(part.variances[i], cells.size // max(part.variances[i].size, 1))
            sizes += abs(own) @ abs(cells)
        return cls(values, noise, sizes)


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
        """From the combinations of all parts; `ValueError` if one contradicts what is known exactly, or nearly so."""
        shares = list(combined)
        values = sum((own.values for own in shares), start=np.zeros((b.size, 1 + b.size)))
        noise = sum((own.noise for own in shares), start=np.zeros(b.size))
        sizes = sum((own.sizes for own in shares), start=np.zeros(b.size))
        covariance, excess = values[:, 1:], values[:, 0] - b
        inverse = _inverse(covariance, noise)
        fixed = excess - covariance @ (inverse @ excess)  # of combinations without noise of their own
        if (abs(fixed) > CONTRADICTION_TOLERANCE * (1 + sizes + abs(b))).any():
            row = int(abs(fixed).argmax())
            raise ValueError(
                f"the equalities contradict one another, or what is known otherwise, exactly or nearly so, by "
                f"{abs(fixed[row]):.6g} in row {row}: correct their right-hand side, or estimate in memory"
            )
        return cls(inverse, excess)

    def applied(self, result: Estimates) -> Estimates:
        """Corrected estimates and variances of a part."""
        gain = self.inverse @ self.excess
        cells = {i: own - result.responses[i] @ gain for i, own in result.cells.items()}
        variances = {}
        for i, own in result.variances.items():
            left = own - np.einsum("gck,kl,gcl->gc", result.responses[i], self.inverse, result.responses[i])
            variances[i] = np.where(left > ROUNDING * own, left, 0.0)
        return replace(result, cells=cells, variances=variances)


def _inverse(covariance: Float, noise: Float) -> Float:
    """Pseudo-inverse of the combinations' covariance, on those directions that have noise."""
    scale = np.sqrt(np.where(noise > 0, noise, 1.0))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > RANK_TOLERANCE
    scaled = vectors[:, kept] / scale[:, None]
    return (scaled / values[kept]) @ scaled.T
