"""Proofs by sums of a part of a tree, which tells the tree above what all its leaves have in common."""

from __future__ import annotations

import numpy as np

from blue_solvers.verification.certificate_sums import CertificateSums
from blue_solvers.verification.leaf_cells import hand_on
from blue_solvers.verification.moved_back import known_in_all, under_exact
from blue_solvers.verification.moved_residuals import MovedResiduals
from blue_solvers.verification.placed_tables import ChildSummary
from blue_solvers.verification.reaches import plus


class PartResiduals(MovedResiduals):
    """What is left, and what disagrees, in all places of a part."""

    def hand_over(self) -> tuple[CertificateSums, ChildSummary]:
        """Of a part, with what the tree above has to know of its root."""
        below = self._below()
        self._move_back(1)
        if self._taken.of_root.size:
            below.share = below.share + self._taken.of_root
        below.slack[:] = self._slack
        return self.totals, below

    def _below(self) -> ChildSummary:
        """What the tree above has to know; what all leaves have in common is no longer theirs."""
        said, total = self._said[0], self.cells.total[0]
        if not said.size:
            self._handed = hand_on(self.places.levels, self._said)
            (moved, variance, _), (total, error) = self._residuals(0), self.cells.of(0)
            if 0 in self._free.cells:
                variance = np.array(variance)
                variance[self._free.cells[0]] = np.inf
            share = moved[0].copy()
            moved[0] = 0.0
            self._kept[0] = moved
        else:
            free = not all(under_exact(self.places, some, 1).all() for some in self.places.leaves)
            share = self._means([0], free)[0][0][0]
            plus(said, -share)
            variance, error = self._means([0])[0][1].copy(), self.cells.error
            costs = np.where(np.isfinite(self._free.root_costs), self._free.root_costs, 0.0)
            if costs.any():  # together at most twice the sum of both
                variance = np.where(costs > 0, 2 * (variance + np.count_nonzero(costs) * costs**2), variance)
            variance[:, self._free.left_to_root] = np.inf
        whole = total.sum(axis=0, dtype=np.longdouble)
        return ChildSummary(
            share,
            variance[:, :1] if (variance == variance[:, :1]).all() else variance,
            total[0] if np.array_equal(total[0], whole, equal_nan=True) else whole,
            np.array([error]),
            known_in_all(self.places),
        )
