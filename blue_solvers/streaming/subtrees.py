"""Both passes over a part of a tree, with what the rest of the tree tells at its boundary.

A part is a subtree, or a tree whose lower branches were cut off. What was cut off below a geounit arrives there as a
message (`Upward`), what lies above its root as the root's final estimate (`Downward`). Both are small: the
cells of one geounit, and one small matrix for every component. Inside the part the two passes are those of `TreeForm`.

At the boundary a geounit is anchored: the cells that were worked out elsewhere stand in for its own measurements, as if
they were exact. Their covariance is then put in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.component_products import PUT_TOGETHER
from blue_solvers.components.grouping import Grouping, groupings_of
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.table_sums import TableSums
from blue_solvers.components.tree.coefficients import Boundary
from blue_solvers.components.tree.tree_form import TreeForm
from blue_solvers.components.tree.tree_plan import TreePlan
from blue_solvers.contract.prepared import NOTHING
from blue_solvers.streaming.part_data import Design, Downward, Estimates, Part, Upward
from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Layout
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table, factors_of
from constraint_builders.memory import format_bytes

TableAtLevel = tuple[int, Table]

ANCHOR = "anchor"
CONTRADICTION_TOLERANCE = 1e-8  # relative to the largest exact value: estimates round more than sums do
ROUNDED = 1e-12  # of the largest cell: what rounding may leave of one that is 0
COEFFICIENT_ARRAYS = 12  # held at once while a plan is made


@dataclass(frozen=True)
class Subproblem(StructuredProblem):
    """The problem of a part, as the tree form reads one: tables known to be estimable, variances by geounit only.

    Attributes
    ----------
    inside, wanted : list of int
        Numbers in the design of the part's own observed and desired tables.
    """

    inside: list[int]
    wanted: list[int]

    @classmethod
    def of_part(cls, design: Design, part: Part, anchored: Sequence[int], wanted: Sequence[int]) -> Subproblem:
        """The problem of a part.

        Parameters
        ----------
        design : Design
        part : Part
        anchored : sequence of int
            Geounits whose finest table stands in for what was measured there.
        wanted : sequence of int
            Numbers of the desired tables that are wanted; those of which the part has no geounit are passed over.
        """
        present = np.unique(part.level_of).tolist()
        number = {level: i for i, level in enumerate(present)}
        inside = [i for i, (level, _) in enumerate(design.observed) if part.count(level)]
        wanted = [i for i in wanted if part.count(design.desired[i][0])]
        desired = [design.desired[i] for i in wanted]
        measured = [design.observed[i] for i in inside]
        # All tables take part in how recodes divide the variables: others are listed, never measured.
        # Components fall apart the same in all of them, whatever these have.
        own_names = {table.name for _, table in measured}
        listed = [*(table for _, table in (*design.observed, *design.desired)), design.finest]
        others = {table.name: table for table in listed if table.name not in own_names}
        anchor_levels = np.unique(part.level_of[[0, *anchored]]).tolist()
        observed = [*measured, *((present[0], table) for table in others.values())]
        observed += [(level, design.finest) for level in anchor_levels]
        names = [(level, table.name) for level, table in measured] + [(-1, name) for name in others]
        own = [_anchored(part.variances[i], np.inf, part, design.observed[i][0], anchored) for i in inside]
        anchors = [_anchored(np.full(part.count(level), np.inf), 0.0, part, level, anchored) for level in anchor_levels]
        levels = np.searchsorted(present, part.level_of).astype(np.intp)
        return cls(
            schema=design.schema,
            spine=LevelledTree(part.parent, levels, tuple(design.levels[level] for level in present)),
            zeros=design.empty_cells(part.empty),
            observed=_layout([*names, *((level, ANCHOR) for level in anchor_levels)], observed, part),
            observed_tables=tuple(table for _, table in observed),
            observed_levels=tuple(number[level] for level, _ in observed),
            geounit_variances=own + [np.full(1, np.inf)] * len(others) + anchors,
            desired=_layout([(level, table.name) for level, table in desired], desired, part),
            desired_tables=tuple(table for _, table in desired),
            desired_levels=tuple(number[level] for level, _ in desired),
            inside=inside,
            wanted=wanted,
        )

    def lay_out(self, part: Part, anchors: Mapping[int, Float], columns: int) -> Float:
        """Measurements and the cells of anchored geounits over the observed layout, (n, columns)."""
        y = np.zeros((self.observed.size, columns))
        for block, i in enumerate(self.inside):
            y[self.observed.block(block), 0] = part.values[i].ravel()
            if columns > 1:
                y[self.observed.block(block), 1:] = part.combined(i).T.toarray() * part.noise(i)[:, None]
        for position, cells in anchors.items():
            level = int(part.level_of[position])
            place = y[self.observed.slice((level, ANCHOR))].reshape(part.count(level), -1, columns)
            place[position - part.members(level).start] = cells
        return y


def _silent(design: Design) -> frozenset[str]:
    """Tables that are listed in every part though nothing measures them."""
    measured = {table.name for _, table in design.observed} | {design.finest.name}
    return frozenset(table.name for _, table in design.desired) - measured


def _layout(names: Sequence[tuple[int, str]], tables: Sequence[TableAtLevel], part: Part) -> Layout:
    return Layout(names, [(part.count(level), *table.shape) for level, table in tables])


def _anchored(variances: Float, at_anchors: float, part: Part, level: int, anchored: Sequence[int]) -> Float:
    """Variances of a table of a level, (G,), with others in anchored geounits."""
    changed = variances.copy()
    changed[part.numbers(level, anchored)] = at_anchors
    return changed


class SubtreeForm(TreeForm):
    """The two passes over a part.

    Parameters
    ----------
    design : Design
    part : Part
    below : mapping of int to Upward
        What was cut off below geounits without children, by their position.
    above : Downward, optional
        What all measurements tell of the root; without it the part is all there is.
    wanted : sequence of int, optional
        Numbers of the desired tables that are wanted, by default all.
    read : sequence of int, optional
        Numbers of the observed tables whose values the part has, by default all; others are not compared.
    """

    def __init__(
        self,
        design: Design,
        part: Part,
        below: Mapping[int, Upward] | None = None,
        above: Downward | None = None,
        wanted: Sequence[int] | None = None,
        read: Sequence[int] | None = None,
    ) -> None:
        self._design, self._part = design, part
        self._compared = range(len(design.observed)) if read is None else read
        self._columns = 1 + len(design.equal_to)
        self._anchors = {position: message.cells for position, message in (below or {}).items()}
        if above is not None:
            self._anchors[0] = above.cells
        self._below = sorted(below or {})
        chosen = range(len(design.desired)) if wanted is None else wanted
        self._subproblem = Subproblem.of_part(design, part, sorted(self._anchors), chosen)
        messages = {position: message.messages for position, message in (below or {}).items()}
        told = (message.least for message in (below or {}).values())
        self._least = min(part.least, *told, np.inf) if above is None else above.least
        plan = TreePlan(self._subproblem, design.divisions, not messages, _silent(design))
        super().__init__(self._subproblem, plan, Boundary(messages, () if above is None else above.roots))

    def message(self) -> Upward:
        """Go up, and tell what the part knows of its root."""
        Y = self._subproblem.lay_out(self._part, self._anchors, self._columns)
        _, root = next(self._passes(Y, np.empty((self._subproblem.desired.size, self._columns))))
        told = [[own.message for _, own in each.pieces] for each in self.coefficients]
        return Upward(root.reshape(-1, self._columns), told, self._least)

    def estimates(self, variances: bool = True) -> Estimates:
        """Go up and down; `ValueError` if values known exactly contradict one another."""
        Y = self._subproblem.lay_out(self._part, self._anchors, self._columns)
        X = np.empty((self._subproblem.desired.size, self._columns))
        below = {}
        levels = np.unique(self._part.level_of).tolist()
        for number, cells in self._passes(Y, X):
            place = self._part.members(levels[number])
            for position in self._below:
                if place.start <= position < place.stop:
                    own = cells[position - place.start].reshape(-1, self._columns).copy()
                    entry = int(self.plan.posterior_of[position])
                    roots = [coefficients.matrices["posterior"].at(entry) for coefficients in self.coefficients]
                    below[position] = Downward(own, roots, self._least)
            self._refuse_contradictions(levels[number], cells)
        return Estimates(
            self._cut(X[:, 0]),
            self._cut(self.variances(NOTHING * self._least)) if variances else {},
            below,
            self._cut(X[:, 1:]) if self._columns > 1 else {},
        )

    def _refuse_contradictions(self, level: int, cells: Float) -> None:
        """Refuse tables of a level that are known exactly and that its final cells, (G, ..., columns), differ from."""
        for i, (own, table) in enumerate(self._design.observed):
            exact = np.flatnonzero(self._part.variances[i] == 0)
            if own != level or i not in self._compared or not exact.size:
                continue
            values = self._part.values[i][exact]
            (found,) = TableSums(self._design.schema, self.plan.finest, [table])(cells[exact, ..., :1])
            gaps = abs(found.reshape(values.shape) - values).max(axis=1)
            worst = int(gaps.argmax())
            if gaps[worst] > max(CONTRADICTION_TOLERANCE * abs(values).max(), ROUNDED * abs(cells[..., 0]).max()):
                code = self._part.geocodes[self._part.members(level).start + int(exact[worst])]
                raise ValueError(
                    f"values known exactly contradict one another: others put table {table.name!r} of "
                    f"{self._design.levels[level]} {code!r} off by {gaps[worst]:.6g}: correct them, or give one a "
                    "variance above 0"
                )

    def _cut(self, vectors: Float) -> dict[int, Float]:
        """The wanted tables by their number in the design, (geounits, cells, ...) of vectors (m, ...)."""
        found = {}
        for block, i in enumerate(self._subproblem.wanted):
            own = vectors[self._subproblem.desired.block(block)]
            found[i] = own.reshape(-1, self._design.desired[i][1].size, *vectors.shape[1:])
        return found


def part_bytes(
    design: Design, levels: Index, has_children: NDArray[np.bool_], empty: NDArray[np.bool_] | None = None
) -> Float:
    """Bytes that both passes over a part take, as a sum over its geounits, (G,).

    Parameters
    ----------
    design : Design
    levels : ndarray of int, (G,)
        Every geounit's geolevel.
    has_children : ndarray of bool, (G,)
    empty : ndarray of bool, (G, cells), optional
        Structural zeros, in C order of the design's `zero_axes`; by default as if there were none.
    """
    if empty is None:
        empty = np.zeros((levels.size, len(design.zero_kinds)), dtype=bool)
    slots = prod(grouping.levels for grouping in _groupings(design))
    observed, desired = np.zeros(len(design.levels)), np.zeros(len(design.levels))
    for level, table in design.observed:
        observed[level] += table.size
    for level, table in design.estimated:
        desired[level] += table.size
    columns = 1 + len(design.equal_to)
    cells = slots * (1.0 + 2 * has_children.astype(np.float64)) * columns
    cells += (3 + columns) * observed[levels] + (4 + columns) * desired[levels]  # files are copies too
    return 8 * (cells + COEFFICIENT_ARRAYS * _coefficients(design, empty))


def _groupings(design: Design) -> tuple[Grouping, ...]:
    tables = [table for _, table in (*design.observed, *design.desired)]
    return groupings_of(design.schema, factors_of(tables), design.zero_axes)


def plan_of(design: Design) -> TreePlan:
    """The plan of one geounit with all tables: how components fall apart, in every part."""
    zeros = design.empty_cells(np.zeros((1, len(design.zero_kinds)), dtype=bool))
    tables = list({table.name: table for table in (*(own for _, own in design.observed), design.finest)}.values())
    problem = StructuredProblem(
        schema=design.schema,
        spine=LevelledTree(np.array([-1]), np.array([0]), ("all",)),
        zeros=zeros,
        observed=Layout([], []),
        observed_tables=tuple(tables),
        observed_levels=(0,) * len(tables),
        geounit_variances=[np.full(1, np.inf)] * len(tables),
        desired=Layout([], []),
        desired_tables=tuple(table for _, table in design.desired),
        desired_levels=(0,) * len(design.desired),
    )
    return TreePlan(problem, design.divisions)


def _coefficients(design: Design, empty: NDArray[np.bool_]) -> Float:
    """Numbers in one coefficient of all components, (G,), of geounits with these structural zeros, (G, cells)."""
    plan, zeros = plan_of(design), design.empty_cells(empty)
    total = np.zeros(len(empty))
    for key in set(plan.design_keys):
        division = plan.division(key)
        if division.size <= PUT_TOGETHER:
            total += division.size**2
            continue
        for piece in division.pieces:
            kinds, counts = np.unique(piece.kinds, return_counts=True)
            total += (~zeros.empty_kinds(np.arange(len(empty)))[:, kinds] @ counts.astype(float)) ** 2
    return total


def table_bytes(design: Design, level: int) -> float:
    """Bytes of a step that takes one table of a geounit of a level."""
    bare = replace(design, observed=(), desired=((level, design.finest),), checked=(), equal_to=())
    largest = max(table.size for own, table in (*design.observed, *design.desired) if own == level)
    return float(part_bytes(bare, np.array([level]), np.array([False]))[0]) + 8.0 * 4 * largest


def require_within(memory: float, needed: float, what: str) -> None:
    """Raise `MemoryError` if something needs more than a limit."""
    if needed > memory:
        raise MemoryError(
            f"{what} needs {format_bytes(needed)} and the limit is {format_bytes(memory)}: raise it, or partition anew "
            "with this memory"
        )
