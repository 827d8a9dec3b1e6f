"""A part in which areas cross: what it tells of its root, and its estimates once the root is known.

The root is a geounit of the tree above, so that what goes up and down is the same as for a part that is a tree. Inside,
the estimate is that over areas, of which the part factorises its own.

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

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from scipy import sparse

from blue_solvers.components.grouping import Grouping, groupings_of
from blue_solvers.components.tree.messages import Message
from blue_solvers.contract.prepared import NOTHING, without_rounding
from blue_solvers.crossing_areas.area_form import AreaForm
from blue_solvers.crossing_areas.component_problem import ComponentEstimate, Contrasts, gathered
from blue_solvers.streaming.cutting import names_not_in
from blue_solvers.streaming.part_data import Design, Downward, Estimates, Part, Upward
from blue_solvers.streaming.subtrees import SubtreeForm
from blue_solvers.threads import Workers
from constraint_builders import Areas, Problem
from constraint_builders.arrays import Float
from constraint_builders.description.areas import LEAF
from constraint_builders.description.layout import Layout
from constraint_builders.description.table import factors_of

ANCHOR = "anchor"
TAKEN = 1e-9  # share of the anchor that is taken along a direction, below which that is known exactly
UNKNOWN = 1e-10  # root of the information about a direction, times the anchor's deviation, below which nothing is known


def form_of_part(
    design: Design,
    part: Part,
    above: Downward | None = None,
    wanted: Sequence[int] | None = None,
    read: Sequence[int] | None = None,
) -> SubtreeForm | CrossingForm:
    """The passes over a part with nothing cut off below it, a tree or not; see `SubtreeForm`."""
    if part.areas is None:
        return SubtreeForm(design, part, above=above, wanted=wanted, read=read)
    return CrossingForm(design, part, part.areas, above)


class CrossingForm(AreaForm):
    """The estimate of a part in which areas cross.

    Parameters
    ----------
    design : Design
    part : Part
    areas : csr_array, (G, leaves)
        Its areas, of which the first, the root, has all leaves.
    above : Downward, optional
        What all measurements tell of the root: the anchor, in place of the root's own measurements.
    """

    def __init__(self, design: Design, part: Part, areas: sparse.csr_array, above: Downward | None = None) -> None:
        self._design, self._part, self._weights = design, part, areas.data
        self._is_final = above is not None
        self._root_cells: Float | float = 0.0 if above is None else above.cells
        self._roots = () if above is None else above.roots
        self._least = part.least if above is None else above.least
        self._anchor = next(names_not_in(design.levels, ANCHOR))
        groupings = groupings_of(design.schema, factors_of([table for _, table in (*design.observed, *design.desired)]))
        self._order = list(_components(groupings))
        self._inside = [i for i, (level, _) in enumerate(design.observed) if part.count(level)]
        self._wanted = [i for i, (level, _) in enumerate(design.desired) if self._is_final and part.count(level)]
        self._variance = 0.0 if self._is_final else self._usual_variance(areas)
        super().__init__(self._problem_of(areas), groupings)

    def message(self) -> Upward:
        """What the part knows of its root, whose estimate is zero along directions that are not estimable."""
        slots, given = self._slots[self._design.finest.name], self._observed.slots(self._lay_out(), Workers(0))
        array = np.zeros((slots.size, 1))
        told: dict[Contrasts, Message] = {}
        for own in self._shared:
            message, shares = self._told(own)
            told |= dict.fromkeys(own.components, message)
            places = np.concatenate([slots.places(component) for component in own.components], axis=1)
            array[places, 0] = shares.T @ gathered(own.observed, given)
        slots.basis.to_cells(array.reshape(1, *slots.shape, 1))
        return Upward(array.reshape(-1, 1), [[told[own]] for own in self._order], self._part.least)

    def estimates(self, variances: bool) -> Estimates:
        """The part's tables, the root being what all measurements tell of it."""
        cells = self._cut(self.apply(self._lay_out())[:, 0])
        nothing = NOTHING * self._least * float(abs(self._weights).min()) ** 2
        spreads = self._cut(without_rounding(self.variances(), nothing)) if variances else {}
        return Estimates(cells, spreads, {}, {})

    def _scales(self, own: ComponentEstimate) -> Float:
        """What turns orthonormal group sums of the root into those of a component's problem, (m,)."""
        return self._slots[self._design.finest.name].roots(own.components[0])

    def _anchored(self, layout: Layout) -> slice:
        """The anchor in a layout of a component's problem."""
        (name,) = (name for name in layout.names if isinstance(name, tuple) and name[0] == self._anchor)
        return layout.slice(name)

    def _variances_of(self, own: ComponentEstimate) -> Iterator[Float]:
        """With what the root adds to those of measurements inside."""
        layout = own.estimate.problem.observed
        for component, inside in zip(own.components, super()._variances_of(own), strict=True):
            above = self._roots[self._order.index(component)][0]
            anchors = np.zeros((layout.size, len(above)))
            anchors[self._anchored(layout)] = self._scales(own)[:, None] * above
            yield inside + (own.estimate.apply(anchors)[0] ** 2).sum(axis=1)

    def _told(self, own: ComponentEstimate) -> tuple[Message, Float]:
        """What each component tells of the root's group sums, and the shares of its measurements in their estimate."""
        problem, scales, variance = own.estimate.problem, self._scales(own), self._variance
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

    def _problem_of(self, areas: sparse.csr_array) -> Problem:
        """The part's problem, of areas (G, leaves), with an anchor; which is desired where no table is."""
        design, part, finest = self._design, self._part, self._design.finest.name
        observed: dict[str, dict[str, Float]] = {self._anchor: {finest: np.full(1, self._variance)}}
        for i in self._inside:
            level, table = design.observed[i]
            at_root = self._is_final and level == part.level_of[0]  # where the anchor has it
            variances = np.full(1, np.inf) if at_root else part.variances[i]
            observed.setdefault(design.levels[level], {})[table.name] = variances
        desired: dict[str, list[str]] = {} if self._wanted else {self._anchor: [finest]}
        for i in self._wanted:
            level, table = design.desired[i]
            desired.setdefault(design.levels[level], []).append(table.name)
        inner = {design.levels[level]: areas[part.members(level)] for level in np.unique(part.level_of).tolist()}
        inner.pop(LEAF, None)
        layers = {**inner, self._anchor: np.ones((1, areas.shape[1]))}
        return Problem(design.schema, observed, desired, areas=Areas(areas.shape[1], layers))

    def _lay_out(self) -> Float:
        """What was measured, and the root's cells, over the observed layout, (n, 1)."""
        y, layout = np.zeros((self._problem.observed.size, 1)), self._problem.observed
        for i in self._inside:
            level, table = self._design.observed[i]
            y[layout.slice((self._design.levels[level], table.name)), 0] = self._part.values[i].ravel()
        y[self._problem.unmeasured] = 0
        y[layout.slice((self._anchor, self._design.finest.name))] = self._root_cells
        return y

    def _cut(self, vector: Float) -> dict[int, Float]:
        """Tables by their number in the design, (areas, cells), of a vector over the desired layout."""
        tables = {i: self._design.desired[i] for i in self._wanted}
        names = {i: (self._design.levels[level], table.name) for i, (level, table) in tables.items()}
        return {i: vector[self._problem.desired.slice(names[i])].reshape(-1, tables[i][1].size) for i in tables}

    def _usual_variance(self, areas: sparse.csr_array) -> float:
        """Half way, by decades, between the least and the largest variance of a group sum by a table of (G, leaves)."""
        least, largest = np.inf, 0.0
        for i in self._inside:
            level, table = self._design.observed[i]
            weights, known = abs(areas[self._part.members(level)].data), self._part.variances[i]
            known = known[(known > 0) & np.isfinite(known)] * table.size
            if known.size and weights.size:
                least = min(least, known.min() / weights.max() ** 2)
                largest = max(largest, known.max() / weights.min() ** 2)
        return float(np.sqrt(least * largest) / self._design.finest.size) if largest > 0 else 1.0


def _components(groupings: Sequence[Grouping]) -> Iterator[Contrasts]:
    """All components, in the order of the tree's plan."""
    for chosen in product(*([False, True] if own.has_contrasts else [False] for own in groupings)):
        yield frozenset(grouping.axis for grouping, own in zip(groupings, chosen, strict=True) if own)
