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
from blue_solvers.streaming.subtrees import SubtreeForm
from constraint_builders import Areas, Problem
from constraint_builders.arrays import Float
from constraint_builders.description.areas import LEAF

ANCHOR = "anchor"


def message_of_part(design: Design, part: Part) -> Upward:
    """What a part with nothing cut off below it, a tree or not, tells of its root."""
    if part.areas is None:
        return SubtreeForm(design, part).message()
    return CrossingForm(design, part, part.areas).message()


def estimates_of_part(
    design: Design,
    part: Part,
    above: Downward,
    wanted: Sequence[int] | None,
    read: Sequence[int] | None,
    variances: bool,
) -> Estimates:
    """Estimates of a part with nothing cut off below it, a tree or not; see `SubtreeForm`."""
    if part.areas is None:
        return SubtreeForm(design, part, above=above, wanted=wanted, read=read).estimates(variances)
    return CrossingForm(design, part, part.areas).estimates(above, variances)


class CrossingForm:
    """The estimate of a part in which areas cross.

    Parameters
    ----------
    design : Design
    part : Part
    areas : csr_array, (G, leaves)
        Its areas, of which the first, the root, has all leaves.
    """

    def __init__(self, design: Design, part: Part, areas: sparse.csr_array) -> None:
        self._design, self._part, self._incidence = design, part, areas
        self._anchor = next(name for name in _names(ANCHOR) if name not in design.levels)
        tables = [table for _, table in (*design.observed, *design.desired)]
        self._groupings = groupings_of(design.schema, tables)
        self._components = list(_components(self._groupings))
        self._inside = [i for i, (level, _) in enumerate(design.observed) if part.count(level)]

    def message(self) -> Upward:
        """What the part knows of its root."""
        variance = self._least_variance()
        problem = self._problem(variance, [])
        form = AnchoredForm(problem, self._groupings, self._anchor)
        cells, told = form.told(variance, self._lay_out(problem, None))
        return Upward(cells, [told[component] for component in self._components], self._part.least)

    def estimates(self, above: Downward, variances: bool) -> Estimates:
        """The part's tables, the root being what all measurements tell of it."""
        wanted = [i for i, (level, _) in enumerate(self._design.desired) if self._part.count(level)]
        problem = self._problem(0.0, wanted)
        roots = dict(zip(self._components, (np.asarray(own) for own in above.roots), strict=True))
        form = AnchoredForm(problem, self._groupings, self._anchor, roots)
        x = form.apply(self._lay_out(problem, above.cells))[:, 0]
        cells = self._cut(problem, x, wanted)
        nothing = NOTHING * above.least * float(abs(self._incidence.data).min()) ** 2
        spreads = self._cut(problem, without_rounding(form.variances(), nothing), wanted) if variances else {}
        return Estimates(cells, spreads, {}, {})

    def _problem(self, anchored: float, wanted: Sequence[int]) -> Problem:
        """The part's problem with an anchor of some variance, 0 if it is final; which is desired where no table is."""
        design, part = self._design, self._part
        finest = design.finest.name
        observed: dict[str, dict[str, Float]] = {self._anchor: {finest: np.full(1, anchored)}}
        for i in self._inside:
            level, table = design.observed[i]
            known = part.variances[i]
            if level == part.level_of[0] and anchored == 0:  # the anchor has it already
                known = np.full(1, np.inf)
            observed.setdefault(design.levels[level], {})[table.name] = known
        desired: dict[str, list[str]] = {} if wanted else {self._anchor: [finest]}
        for i in wanted:
            level, table = design.desired[i]
            desired.setdefault(design.levels[level], []).append(table.name)
        return Problem(design.schema, observed, desired, areas=self._areas())

    def _areas(self) -> Areas:
        part, leaves = self._part, self._incidence.shape[1]
        levels = {self._design.levels[level]: part.members(level) for level in np.unique(part.level_of).tolist()}
        layers = {name: self._incidence[place] for name, place in levels.items() if name != LEAF}
        return Areas(leaves, {**layers, self._anchor: np.zeros(leaves, dtype=np.intp)})

    def _lay_out(self, problem: Problem, anchor: Float | None) -> Float:
        """What was measured, and the root's cells, over the observed layout, (n, 1)."""
        y = np.zeros((problem.observed.size, 1))
        for i in self._inside:
            level, table = self._design.observed[i]
            y[problem.observed.slice((self._design.levels[level], table.name)), 0] = self._part.values[i].ravel()
        y[problem.unmeasured] = 0
        if anchor is not None:
            y[problem.observed.slice((self._anchor, self._design.finest.name))] = anchor
        return y

    def _cut(self, problem: Problem, vector: Float, wanted: Sequence[int]) -> dict[int, Float]:
        """Tables by their number in the design, (areas, cells), of a vector over the desired layout."""
        found = {}
        for i in wanted:
            level, table = self._design.desired[i]
            own = vector[problem.desired.slice((self._design.levels[level], table.name))]
            found[i] = own.reshape(-1, table.size)
        return found

    def _least_variance(self) -> float:
        """Not much more than the least variance that a table can give a group sum."""
        least = np.inf
        for i in self._inside:
            known = self._part.variances[i]
            known = known[(known > 0) & np.isfinite(known)]
            least = min(least, known.min(initial=np.inf) * self._design.observed[i][1].size)
        weight = float(abs(self._incidence.data).max())
        return float(least / self._design.finest.size / weight**2) if np.isfinite(least) else 1.0


def _names(name: str) -> Iterator[str]:
    while True:
        yield name
        name += "'"


def _components(groupings: Sequence[Grouping]) -> Iterator[Component]:
    """All components, in the order of the tree's plan."""
    for chosen in product(*([False, True] if own.has_contrasts else [False] for own in groupings)):
        yield frozenset(grouping.axis for grouping, own in zip(groupings, chosen, strict=True) if own)
