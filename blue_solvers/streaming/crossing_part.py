"""A part in which areas cross: what it tells of its root, and its estimates once the root is known.

The root is a geounit of the tree above, so that what goes up and down is the same as for a part that is a tree. Inside,
the estimate is that over areas, of which the part factorises its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from scipy import sparse

from blue_solvers.components.grouping import Grouping, groupings_of
from blue_solvers.contract.table_variances import NOTHING, without_rounding
from blue_solvers.crossing_areas.anchored_form import AnchoredForm
from blue_solvers.crossing_areas.table_slots import Component
from blue_solvers.streaming.part_data import Design, Downward, Estimates, Part, Upward
from blue_solvers.streaming.siblings import names_not_in
from blue_solvers.streaming.subtrees import SubtreeForm
from constraint_builders import Areas, Problem
from constraint_builders.arrays import Float
from constraint_builders.description.areas import LEAF

ANCHOR = "anchor"


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


class CrossingForm:
    """The estimate of a part in which areas cross.

    Parameters
    ----------
    design : Design
    part : Part
    areas : csr_array, (G, leaves)
        Its areas, of which the first, the root, has all leaves.
    above : Downward, optional
        What all measurements tell of the root: it then stands in for the root's own measurements, as if it were exact.
    """

    def __init__(self, design: Design, part: Part, areas: sparse.csr_array, above: Downward | None = None) -> None:
        self._design, self._part, self._weights, self._above = design, part, areas.data, above
        self._anchor = next(names_not_in(design.levels, ANCHOR))
        groupings = groupings_of(design.schema, [table for _, table in (*design.observed, *design.desired)])
        self._components = list(_components(groupings))
        self._inside = [i for i, (level, _) in enumerate(design.observed) if part.count(level)]
        final = above is not None
        self._wanted = [i for i, (level, _) in enumerate(design.desired) if final and part.count(level)]
        self._variance = 0.0 if final else self._least_variance()
        self._problem = self._problem_of(areas)
        roots = None if above is None else dict(zip(self._components, map(np.asarray, above.roots), strict=True))
        self._form = AnchoredForm(self._problem, groupings, self._anchor, roots)

    def message(self) -> Upward:
        """What the part knows of its root."""
        cells, told = self._form.told(self._variance, self._lay_out(0.0))
        return Upward(cells, [told[component] for component in self._components], self._part.least)

    def estimates(self, variances: bool) -> Estimates:
        """The part's tables, the root being what all measurements tell of it."""
        assert self._above is not None
        cells = self._cut(self._form.apply(self._lay_out(self._above.cells))[:, 0])
        nothing = NOTHING * self._above.least * float(abs(self._weights).min()) ** 2
        spreads = self._cut(without_rounding(self._form.variances(), nothing)) if variances else {}
        return Estimates(cells, spreads, {}, {})

    def _problem_of(self, areas: sparse.csr_array) -> Problem:
        """The part's problem with an anchor; which is desired where no table is."""
        design, part, finest = self._design, self._part, self._design.finest.name
        observed: dict[str, dict[str, Float]] = {self._anchor: {finest: np.full(1, self._variance)}}
        for i in self._inside:
            level, table = design.observed[i]
            at_root = self._above is not None and level == part.level_of[0]  # where the anchor has it
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

    def _lay_out(self, anchor: Float | float) -> Float:
        """What was measured, and the root's cells, over the observed layout, (n, 1)."""
        y, layout = np.zeros((self._problem.observed.size, 1)), self._problem.observed
        for i in self._inside:
            level, table = self._design.observed[i]
            y[layout.slice((self._design.levels[level], table.name)), 0] = self._part.values[i].ravel()
        y[self._problem.unmeasured] = 0
        y[layout.slice((self._anchor, self._design.finest.name))] = anchor
        return y

    def _cut(self, vector: Float) -> dict[int, Float]:
        """Tables by their number in the design, (areas, cells), of a vector over the desired layout."""
        tables = {i: self._design.desired[i] for i in self._wanted}
        names = {i: (self._design.levels[level], table.name) for i, (level, table) in tables.items()}
        return {i: vector[self._problem.desired.slice(names[i])].reshape(-1, tables[i][1].size) for i in tables}

    def _least_variance(self) -> float:
        """Not much more than the least variance that a table can give a group sum."""
        least = np.inf
        for i in self._inside:
            known = self._part.variances[i]
            known = known[(known > 0) & np.isfinite(known)]
            least = min(least, known.min(initial=np.inf) * self._design.observed[i][1].size)
        weight = float(abs(self._weights).max())
        return float(least / self._design.finest.size / weight**2) if np.isfinite(least) else 1.0


def _components(groupings: Sequence[Grouping]) -> Iterator[Component]:
    """All components, in the order of the tree's plan."""
    for chosen in product(*([False, True] if own.has_contrasts else [False] for own in groupings)):
        yield frozenset(grouping.axis for grouping, own in zip(groupings, chosen, strict=True) if own)
