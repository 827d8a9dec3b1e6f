"""Areas that all lie in one, the root, which is a geounit of a tree: what they tell of it, and what they are told.

The root is anchored: a measurement of its finest table is added. With a component's orthonormal group sums u of the
root, let the added noise have variance s, and B = V (V + s)^-1 be what the estimate of u takes of it, V being the
covariance of u given what was measured inside. What the estimate takes of the real measurements, U' with U' Sigma U =
(1 - B) V (1 - B)', gives the inverse of V by sums of positive terms:

    V^-1 = (U B^-1)' Sigma (U B^-1) / s^2,

where nothing is exact (B = 0 along what is) and zero along what nothing inside determines. The estimate of u without
the added measurement has the shares U (1 + V / s) in the real ones. Told the root's final
estimate, the anchor is that, as if it were exact; with its covariance L L', and K what the estimates take of the
anchor, (K L) (K L)' is added to their covariance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from blue_solvers.components.grouping import Grouping
from blue_solvers.components.tree.messages import Message
from blue_solvers.crossing_areas.area_form import AreaForm
from blue_solvers.crossing_areas.component_problem import ComponentEstimate
from blue_solvers.crossing_areas.table_slots import Component
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout

TAKEN = 1e-9  # share of the anchor that is taken along a direction, below which that is known exactly
UNKNOWN = 1e-10  # root of the information about a direction, times the anchor's deviation, below which nothing is known


class AnchoredForm(AreaForm):
    """The estimate of areas with an anchored root.

    Parameters
    ----------
    problem : Problem
        In which one layer, of one area with all leaves, has one measured table: the finest of the root.
    groupings : sequence of Grouping
        How all tables of the tree divide the variables.
    anchor : str
        That layer.
    above : mapping of frozenset of int to ndarray (m, m), optional
        For every component a root of the final covariance of the root's group sums, where the anchor is final.
    """

    def __init__(
        self,
        problem: Problem,
        groupings: Sequence[Grouping],
        anchor: str,
        above: Mapping[Component, Float] | None = None,
    ) -> None:
        super().__init__(problem, groupings)
        self._anchor, self._above = anchor, above
        place = problem.domain.areas.level_index(anchor)
        self._table = problem.observed_tables[problem.observed_levels.index(place)]

    def _scales(self, component: Component) -> Float:
        """What turns orthonormal group sums into sums over groups, (m,)."""
        return self._slots[self._table.name].roots(component)

    def _anchored(self, layout: Layout) -> slice:
        """The anchor in a layout of a component's problem."""
        (name,) = (name for name in layout.names if isinstance(name, tuple) and name[0] == self._anchor)
        return layout.slice(name)

    def _component_variances(self, own: ComponentEstimate) -> Float:
        found, layout = super()._component_variances(own), own.estimate.problem.observed
        if self._above is None:
            return found
        above = self._above[own.component]
        anchors = np.zeros((layout.size, len(above)))
        anchors[self._anchored(layout)] = self._scales(own.component)[:, None] * above
        return found + (own.estimate.apply(anchors)[0] ** 2).sum(axis=1)

    def told(self, variance: float, Y: Float) -> tuple[Float, dict[Component, Message]]:
        """What all else tells of the root.

        Parameters
        ----------
        variance : float
            Of the anchor's noise; not much more than the least that is told of any group sum.
        Y : ndarray, (n, K)
            Measurements, the anchor's being 0.

        Returns
        -------
        ndarray, (cells, K)
            The root's estimate, zero along directions that nothing determines.
        dict of frozenset of int to Message
            What is known of its group sums, by component.
        """
        slots, given = self._slots[self._table.name], self._observed.slots(Y)
        array = np.zeros((1, *self._table.shape, Y.shape[1]))
        found: dict[Component, Message] = {}
        by_key: dict[tuple[ConstrainedEstimate, bytes], tuple[Message, Float]] = {}
        for own in self._components:
            key = own.estimate, self._scales(own.component).tobytes()
            if key not in by_key:
                by_key[key] = self._told(own, variance)
            found[own.component], shares = by_key[key]
            slots.put(array, own.component, shares.T @ self._observed.gathered(given, own))
        return slots.cells(array).reshape(-1, Y.shape[1]), found

    def _told(self, own: ComponentEstimate, variance: float) -> tuple[Message, Float]:
        """What a component tells of the root's group sums, and the shares of its measurements in their estimate."""
        problem, scales = own.estimate.problem, self._scales(own.component)
        pulls = np.zeros((problem.desired.size, scales.size))
        pulls[self._anchored(problem.desired)] = np.diag(1 / scales)
        U, anchor = own.estimate.adjoint(pulls), self._anchored(problem.observed)
        taken = U[anchor] * scales[:, None]
        noise = np.where(np.isfinite(problem.variances), problem.variances, 0.0)
        noise[anchor] = 0
        shares, directions = np.linalg.eigh((taken + taken.T) / 2)
        exact, rest = directions[:, shares < TAKEN], directions[:, shares >= TAKEN]
        learnt = np.sqrt(noise)[:, None] * U @ (rest / shares[shares >= TAKEN]) / variance
        values, turned = np.linalg.svd(np.linalg.qr(learnt, mode="r"), full_matrices=True)[1:]
        values = np.concatenate([values, np.zeros(rest.shape[1] - values.size)])
        known = values * np.sqrt(variance) > UNKNOWN
        finite, roots, unknown = rest @ turned[known].T, values[known], rest @ turned[~known].T
        message = Message(
            ((finite / roots) @ finite.T)[None],
            ((finite * roots) @ finite.T)[None],
            (unknown @ unknown.T)[None],
            (exact @ exact.T)[None],
        )
        # U (1 + V / s) direction by direction: rounding of so large a matrix would reach what is exact
        along = (U @ finite) * (1 + 1 / (roots**2 * variance))
        return message, (U @ exact) @ exact.T + along @ finite.T
