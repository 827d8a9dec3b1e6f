"""A part in which areas cross: what it tells of its root, and its estimates once the root is known.

The root is a geounit of the tree above, so that what goes up and down is the same as for a part that is a tree. Inside,
the estimate is that over areas, of which the part factorises its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np

from blue_solvers.components.grouping import Grouping, groupings_of
from blue_solvers.crossing_areas.alike_leaves import AlikeLeavesForm
from blue_solvers.crossing_areas.anchored_form import AnchoredForm
from blue_solvers.crossing_areas.clusters import Clusters
from blue_solvers.crossing_areas.table_slots import Component
from blue_solvers.streaming.part_data import Design, Downward, Estimates, Part, Upward
from blue_solvers.streaming.subtrees import CONTRADICTION_TOLERANCE, SubtreeForm
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
    """The estimate of a part with nothing cut off below it, a tree or not; see `SubtreeForm`."""
    if part.areas is None:
        return SubtreeForm(design, part, above=above, wanted=wanted, read=read)
    return CrossingForm(design, part, above)


class CrossingForm:
    """The estimate of a part in which areas cross.

    Parameters
    ----------
    design : Design
    part : Part
        With its areas, of which the first, the root, has all leaves.
    above : Downward, optional
        What all measurements tell of the root.
    """

    def __init__(self, design: Design, part: Part, above: Downward | None = None) -> None:
        self._design, self._part, self._above = design, part, above
        self._anchor = next(name for name in _names(ANCHOR) if name not in design.levels)
        tables = [table for _, table in (*design.observed, *design.desired)]
        self._groupings = groupings_of(design.schema, tables)
        self._components = list(_components(self._groupings))
        self._inside = [i for i, (level, _) in enumerate(design.observed) if part.count(level)]

    def message(self) -> Upward:
        """What the part knows of its root."""
        s = self._least_variance()
        problem = self._problem(s, [])
        form = self._form(problem)
        anchored = form.form if isinstance(form, AlikeLeavesForm) else form
        told = anchored.told(s)
        cells = form.apply(self._lay_out(problem, None)).reshape(1, *anchored.finest.shape, 1)
        cells = anchored.corrected(cells, told, s)
        return Upward(cells.reshape(-1, 1), [told[component] for component in self._components])

    def estimates(self, variances: bool = True) -> Estimates:
        """The part's tables, the root being what it is told."""
        assert self._above is not None
        wanted = [i for i, (level, _) in enumerate(self._design.desired) if self._part.count(level)]
        problem = self._problem(0.0, wanted)
        roots = dict(zip(self._components, (np.asarray(own) for own in self._above.roots), strict=True))
        form = self._form(problem, roots)
        x = form.apply(self._lay_out(problem, self._above.cells))[:, 0]
        cells = self._cut(problem, x, wanted)
        spreads = self._cut(problem, form.variances(), wanted) if variances else {}
        return Estimates(cells, spreads, {}, {}, next(self._contradictions(cells), ""))

    def _form(
        self, problem: Problem, above: Mapping[Component, Float] | None = None
    ) -> AlikeLeavesForm | AnchoredForm:
        make = partial(AnchoredForm, groupings=self._groupings, anchor=self._anchor, above=above)
        clusters = Clusters.of(problem)
        return make(problem) if clusters is None else AlikeLeavesForm(problem, clusters, make)

    def _problem(self, anchored: float, wanted: Sequence[int]) -> Problem:
        """The part's problem, with an anchor of some variance; 0 says that it is final. Nothing but it if none wanted."""
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
        part = self._part
        assert part.areas is not None
        levels = {self._design.levels[level]: part.members(level) for level in np.unique(part.level_of).tolist()}
        layers = {name: part.areas[place] for name, place in levels.items() if name != LEAF}
        return Areas(part.areas.shape[1], {**layers, self._anchor: np.zeros(part.areas.shape[1], dtype=np.intp)})

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
        return float(least / self._design.finest.size) if np.isfinite(least) else 1.0

    def _contradictions(self, cells: Mapping[int, Float]) -> Iterator[str]:
        """Tables that are known exactly and that the final estimate differs from."""
        numbers = {own: i for i, own in enumerate(self._design.desired)}
        for i in self._inside:
            level, table = self._design.observed[i]
            exact = np.flatnonzero(self._part.variances[i] == 0)
            found = cells.get(numbers.get((level, table), -1))
            if found is None or not exact.size:
                continue
            values = self._part.values[i][exact]
            gaps = abs(found[exact] - values).max(axis=1)
            worst = int(gaps.argmax())
            if gaps[worst] > CONTRADICTION_TOLERANCE * max(1.0, abs(values).max()):
                code = self._part.geocodes[self._part.members(level).start + int(exact[worst])]
                where = f"{self._design.levels[level]} {code!r}"
                yield f"others put table {table.name!r} of {where} off by {gaps[worst]:.6g}"


def _names(name: str) -> Iterator[str]:
    while True:
        yield name
        name += "'"


def _components(groupings: Sequence[Grouping]) -> Iterator[Component]:
    """All components, in the order of the tree's plan."""
    for chosen in product(*([False, True] if own.has_contrasts else [False] for own in groupings)):
        yield frozenset(grouping.axis for grouping, own in zip(groupings, chosen, strict=True) if own)
