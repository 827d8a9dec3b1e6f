"""What describes a part of a tree, what it tells upwards, what it is told, and what is worked out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.components.tree.messages import Message
from blue_solvers.components.tree.tree_plan import Divisions
from blue_solvers.verification.exact_combinations import ExactCombinations
from blue_solvers.verification.placed_tables import TableAtLevel
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float, Index
from constraint_builders.description.domain import EmptyCells
from constraint_builders.description.table import Table, make_table
from constraint_builders.description.tails import GAUSSIAN_TAILS, Tails
from constraint_builders.estimability import lacks
from noise_mechanisms.laws.named_laws import tails_in


@dataclass(frozen=True)
class Design:
    """What all parts of a problem share.

    Attributes
    ----------
    schema : Schema
    levels : tuple of str
        Geolevels, from the root down.
    observed, desired : tuple of (int, Table)
        The tables at every geolevel, by its number.
    zero_axes : tuple of int
        The variables by which structural zeros are told apart.
    equal_to : tuple of float
        The values of linear combinations of measured cells that are known exactly. Everything that is linear in the
        measurements has as many columns more: what it would be if the measurements were their covariances with one
        combination.
    checked : tuple of (int, Table)
        Observed tables that are not desired, but estimated all the same: for the proof and the fit.
    combinations : ExactCombinations or None
        What those combinations leave free: for the proof.
    zero_kinds : tuple of int
        Of every cell of `zero_axes` the kind of those that are empty in the same geounits of the whole tree; -1 for
        cells that are empty in all.
    put_in : tuple of int
        Numbers of the levels whose geounits stand for siblings below them and are none of the problem's.
    tails : Tails
        Of the noise of the observed tables: for the fit.
    """

    schema: Schema
    levels: tuple[str, ...]
    observed: tuple[TableAtLevel, ...]
    desired: tuple[TableAtLevel, ...]
    zero_axes: tuple[int, ...] = ()
    equal_to: tuple[float, ...] = ()
    checked: tuple[TableAtLevel, ...] = ()
    combinations: ExactCombinations | None = None
    zero_kinds: tuple[int, ...] = (0,)
    put_in: tuple[int, ...] = ()
    tails: Tails = GAUSSIAN_TAILS

    @classmethod
    def of(cls, problem: Problem, levels: tuple[str, ...]) -> Design:
        """What the parts of a problem share, whose geolevels, or layers, are among these."""
        number = {i: levels.index(name) for i, name in enumerate(problem.domain.places.levels) if name in levels}
        observed = list(zip(problem.observed_levels, problem.observed_tables, strict=True))
        desired = list(zip(problem.desired_levels, problem.desired_tables, strict=True))
        checked = [own for own in observed if own not in desired and lacks(problem, *own) is None]
        equal_to = tuple(problem.equality_rows[1].tolist())
        tables = tuple(observed), tuple(desired), (), equal_to, tuple(checked)
        own = cls(problem.domain.schema, levels, *tables, tails=tails_in(problem))
        return own._renumbered(number).with_zeros(problem.known_empty)

    def with_zeros(self, zeros: EmptyCells) -> Design:
        """The design with what tells structural zeros apart."""
        return replace(self, zero_axes=zeros.axes, zero_kinds=tuple(zeros.kinds.tolist()))

    def with_levels(self, levels: tuple[str, ...], numbers: Index) -> Design:
        """The design with levels put in; `numbers`, (levels,), says where every level is now."""
        put_in = tuple(sorted({*range(len(levels))} - {*numbers.tolist()}))
        return replace(self._renumbered(numbers), levels=levels, put_in=put_in)

    def without_put_in(self) -> Design:
        """The design of the problem as it was before levels were put in."""
        kept = np.setdiff1d(np.arange(len(self.levels)), self.put_in)
        levels = tuple(self.levels[level] for level in kept.tolist())
        return replace(self._renumbered(np.searchsorted(kept, np.arange(len(self.levels)))), levels=levels, put_in=())

    def _renumbered(self, numbers: Index | Mapping[int, int]) -> Design:
        """The design with levels renumbered, by `numbers`, (levels,), or a mapping."""

        def moved(tables: Sequence[TableAtLevel]) -> tuple[TableAtLevel, ...]:
            return tuple((int(numbers[level]), table) for level, table in tables)

        return replace(self, observed=moved(self.observed), desired=moved(self.desired), checked=moved(self.checked))

    @property
    def estimated(self) -> tuple[TableAtLevel, ...]:
        """The desired tables, then those that are checked."""
        return (*self.desired, *self.checked)

    def key(self, table: TableAtLevel) -> str:
        """What tells a table of a geolevel from all others."""
        return f"{self.levels[table[0]]} {table[1].name}"

    @cached_property
    def finest(self) -> Table:
        """The table of all variables in use."""
        axes = {axis for _, table in (*self.observed, *self.desired) for axis in table.axes} | set(self.zero_axes)
        return make_table(self.schema, tuple(self.schema.names[axis] for axis in sorted(axes)))

    def empty_cells(self, empty: NDArray[np.bool_]) -> EmptyCells:
        """Structural zeros of a part, handed down already, (G, cells) in C order of `zero_axes`."""
        cells = empty.reshape(len(empty), *(self.schema.shape[axis] for axis in self.zero_axes))
        return EmptyCells(self.zero_axes, cells, np.array(self.zero_kinds, dtype=np.intp))

    @cached_property
    def divisions(self) -> Divisions:
        """How components fall apart, the same everywhere: the plan that first needs it adds it."""
        return {}


@dataclass(frozen=True)
class Part:
    """Geounits of a part, and what was measured there.

    Attributes
    ----------
    parent : ndarray of int, (G,)
        Position of every geounit's parent within the part; -1 for its root, which comes first.
    level_of : ndarray of int, (G,)
        Number of every geounit's geolevel among those of the design, increasing.
    geocodes : tuple of str
    variances : list of ndarray, (geounits of its level,)
        Of every observed table of the design; 0 exact, ``inf`` not measured.
    values : list of ndarray, (geounits of its level, cells)
    empty : ndarray of bool, (G, cells)
        Structural zeros, in C order of the design's `zero_axes`.
    combinations : csr_array, (k, cells of all `values`), or None
        The part's share of linear combinations that are known exactly.
    areas : csr_array, (G, leaves), or None
        Of a part in which areas cross with which weight every leaf counts in each; None of a tree.
    """

    parent: Index
    level_of: Index
    geocodes: tuple[str, ...]
    variances: list[Float]
    values: list[Float]
    empty: NDArray[np.bool_]
    combinations: sparse.csr_array | None = None
    areas: sparse.csr_array | None = None

    def combined(self, i: int) -> sparse.csr_array:
        """What combinations take of the cells of a table by its number, (k, cells)."""
        first, count = sum(values.size for values in self.values[:i]), self.values[i].size
        return sparse.csr_array(
            (0, count) if self.combinations is None else self.combinations[:, first : first + count]
        )

    def noise(self, i: int) -> Float:
        """Variance of the noise of every cell of a table by its number, (cells,); 0 where it was not measured."""
        known = np.where(np.isfinite(self.variances[i]), self.variances[i], 0.0)
        return np.repeat(known, self.values[i].shape[1])

    @property
    def least(self) -> float:
        """The least variance of noise in it, in units of the leaves that are weighed; infinite without noise."""
        noisy = (own.min(initial=np.inf, where=own > 0) for own in self.variances)
        weight = 1.0 if self.areas is None else float(abs(self.areas.data).max())
        return float(min(noisy, default=np.inf)) / weight**2

    def own(self, design: Design) -> Index:
        """Positions of the geounits that are the problem's."""
        return np.flatnonzero(~np.isin(self.level_of, design.put_in))

    @cached_property
    def _firsts(self) -> list[int]:
        """The first position of every geolevel, and the end."""
        return [0, *np.bincount(self.level_of).cumsum().tolist()]

    def members(self, level: int) -> slice:
        """Positions of the geounits of a geolevel."""
        last = len(self._firsts) - 1
        return slice(self._firsts[min(level, last)], self._firsts[min(level + 1, last)])

    def count(self, level: int) -> int:
        """Number of geounits of a geolevel."""
        place = self.members(level)
        return place.stop - place.start

    def numbers(self, level: int, positions: Sequence[int] | Index) -> Index:
        """Numbers within a geolevel of those geounits at some positions, (k,), that are of it."""
        place, positions = self.members(level), np.asarray(positions, dtype=np.intp)
        return positions[(positions >= place.start) & (positions < place.stop)] - place.start


@dataclass(frozen=True)
class Upward:
    """What a subtree tells of its root.

    Attributes
    ----------
    cells : ndarray, (cells of the finest table, columns)
        The root's estimate from the subtree alone, zero along directions that nothing there determines.
    messages : list of list of Message, arrays (1, b, b)
        For every component those of its pieces.
    least : float
        The least variance of noise in it; infinite without noise.
    """

    cells: Float
    messages: Sequence[Sequence[Message]]
    least: float


@dataclass(frozen=True)
class Downward:
    """What all measurements tell of a geounit.

    Attributes
    ----------
    cells : ndarray, (cells of the finest table, columns)
        Its estimate.
    roots : list of list of ndarray, (b, b)
        For every component square roots of the covariances of its pieces.
    least : float
        The least variance of noise in the whole problem, beside which variances are nothing.
    """

    cells: Float
    roots: Sequence[Sequence[Float]]
    least: float


@dataclass(frozen=True)
class Estimates:
    """Final estimates of a part.

    Attributes
    ----------
    cells : dict of int to ndarray, (geounits of its level, cells)
        Of the desired tables that the part has, by their number in the design.
    variances : dict of int to ndarray
        Of the same shapes; empty if they were not asked for.
    below : dict of int to Downward
        For every geounit whose branches were cut off, by its position.
    responses : dict of int to ndarray, (geounits of its level, cells, k)
        Covariances with the combinations that are known exactly; empty without any.
    """

    cells: dict[int, Float]
    variances: dict[int, Float]
    below: dict[int, Downward]
    responses: dict[int, Float]


def side_by_side(parts: Sequence[Part], found: Sequence[Estimates]) -> tuple[Part, Estimates]:
    """The geounits of some parts as of one that nothing is measured in, level by level, and all of their estimates."""
    level_of, codes = (np.concatenate(own) for own in zip(*((p.level_of, p.geocodes) for p in parts), strict=True))
    order = np.argsort(level_of, kind="stable")
    whole = replace(parts[0], level_of=level_of[order], geocodes=tuple(codes[order].tolist()), variances=[], values=[])
    cells, variances = (
        {
            i: np.concatenate([own[i] for own in every if i in own])
            for i in dict.fromkeys(i for own in every for i in own)
        }
        for every in ([own.cells for own in found], [own.variances for own in found])
    )
    return whole, Estimates(cells, variances, {}, {})
