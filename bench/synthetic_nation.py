"""An synthetic nation with the real numbers of geounits, whose counts and noise are made a piece at a time from seeds.

Known of 2020 are the persons of every state, and of the nation how many counties, tracts, block groups and blocks it
has. Each of these is shared out among the states in proportion to their persons, by largest remainder; inside a state
every geounit has one child, and the others fall to parents by chance. A state is cut into the largest subtrees that
keep to a limit of memory, and the top above them. Noise is Gaussian and has the variances of the 2020 redistricting
release; the nation's total is known exactly. Nothing is bypassed and no cell is a structural zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import pairwise

import numpy as np

from bench.problems import redistricting
from blue_solvers.components.table_sums import TableSums
from blue_solvers.streaming.cutting import choose_cut, members_of_parts
from blue_solvers.streaming.part_data import Design, Part
from blue_solvers.streaming.subtrees import part_bytes
from constraint_builders import Spine
from constraint_builders.arrays import Float, Index
from constraint_builders.description.table import parse_table

LEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")
US, STATE, GROUP, BLOCK = 0, 1, 4, 5
GEOUNITS = {"County": 3_143, "Tract": 84_414, "Block_Group": 239_780, "Block": 8_132_968}
SEED = 2020
LIMIT = 2.0e9  # bytes that the two passes over a piece may take
RESOLUTION = 1 << 16  # of the distribution of persons over cells


@dataclass(frozen=True)
class State:
    """A state.

    Attributes
    ----------
    code : str
    persons : int
    counties, tracts, groups, blocks : int
        How many it has.
    """

    code: str
    persons: int
    counties: int
    tracts: int
    groups: int
    blocks: int

    @property
    def geounits(self) -> int:
        """How many there are in all, itself among them."""
        return 1 + self.counties + self.tracts + self.groups + self.blocks


def persons_of_states() -> dict[str, int]:
    """Persons of the 50 states and the District of Columbia in 2020, by code."""
    lines = (resources.files("constraint_builders.files") / "production" / "state_totals_2020.csv").read_text("utf-8")
    return {code: int(total) for code, total in (line.split(",") for line in lines.split()[1:])}


def all_states() -> list[State]:
    """All 51, in the order of their codes."""
    known = persons_of_states()
    shares = [_shared_out(count, np.array(list(known.values()))) for count in GEOUNITS.values()]
    return [State(code, persons, *own) for (code, persons), *own in zip(known.items(), *shares, strict=True)]


def _shared_out(count: int, persons: Index) -> list[int]:
    """So many geounits in proportion to persons, by largest remainder."""
    exact = count * persons / persons.sum()
    found = np.floor(exact).astype(int)
    found[np.argsort(found - exact, kind="stable")[: count - found.sum()]] += 1
    return found.tolist()


def states_within(share: float) -> list[State]:
    """States that have together at most this share of the blocks: in order of their codes, each that still fits."""
    found, left = [], share * GEOUNITS["Block"]
    for state in all_states():
        if state.blocks <= left:
            found.append(state)
            left -= state.blocks
    return found


@dataclass(frozen=True)
class Cut:
    """How a state is cut.

    Attributes
    ----------
    state : State
    spine : Spine
        The state without its blocks.
    blocks : ndarray of int
        How many blocks every geounit of the spine has as children.
    members : list of ndarray of int
        Geounits of the spine that every piece has, its root first.
    top : ndarray of int
        Geounits of the top, the roots of all pieces among them; of a state that is whole itself.
    """

    state: State
    spine: Spine
    blocks: Index
    members: list[Index]
    top: Index

    @property
    def is_whole(self) -> bool:
        """Whether the state is a single piece."""
        return self.top.size == 1

    @property
    def leaves(self) -> Index:
        """Position of every piece's root within the top."""
        return np.searchsorted(self.top, [own[0] for own in self.members])


@dataclass(frozen=True)
class Measured:
    """What was measured in a part, and the truth.

    Attributes
    ----------
    part : Part
    truth : list of ndarray, (geounits of its level, cells)
        Of every observed table of the design.
    root : ndarray, (cells of the finest table,)
        True counts of its root.
    """

    part: Part
    truth: list[Float]
    root: Float


class Nation:
    """States under one root.

    Parameters
    ----------
    cells : str
        ``"16"`` or ``"2016"`` in every geounit.
    states : sequence of State
    limit : float
        Bytes that the two passes over a piece may take. How states are cut decides what is drawn.
    """

    def __init__(self, cells: str, states: Sequence[State], limit: float = LIMIT) -> None:
        self.cells, self.states, self.limit = cells, tuple(states), limit
        schema, self.measured = redistricting(cells, LEVELS)
        self.measured["US"] = {"total": 0.0, **self.measured["US"]}
        observed = [
            (level, parse_table(schema, name).in_schema_order())
            for level, tables in enumerate(self.measured.values())
            for name in tables
        ]
        self.variances = [variance for tables in self.measured.values() for variance in tables.values()]
        self.design = Design(schema, LEVELS, tuple(observed), tuple(observed))

    @property
    def identity(self) -> dict[str, object]:
        """What tells it from any other."""
        states = [[own.code, own.persons, own.counties, own.tracts, own.groups, own.blocks] for own in self.states]
        return {"cells": self.cells, "states": states, "limit": self.limit, "seed": SEED}

    def cut(self, state: State) -> Cut:
        """How a state is cut."""
        rng = np.random.default_rng([SEED, int(state.code)])
        counts = (1, state.counties, state.tracts, state.groups)
        firsts = np.cumsum([0, *counts])
        parents = [np.array([-1])]
        for above, count in zip(range(3), counts[1:], strict=True):
            parents.append(firsts[above] + np.repeat(np.arange(counts[above]), _fan_outs(rng, counts[above], count)))
        names = np.repeat(LEVELS[STATE:BLOCK], counts)
        spine = Spine(np.concatenate(parents), names.tolist())
        blocks = np.zeros(spine.size, dtype=int)
        blocks[firsts[3] :] = _fan_outs(rng, state.groups, state.blocks)
        has_children = np.ones(spine.size, dtype=bool)
        own = part_bytes(self.design, spine.level_of + STATE, has_children)
        own += blocks * part_bytes(self.design, np.array([BLOCK]), ~has_children[:1])
        members = members_of_parts(spine, choose_cut(spine, own, self.limit))
        return Cut(state, spine, blocks, members[:-1], members[-1])

    def piece(self, cut: Cut, number: int) -> Measured:
        """One of the pieces of a state."""
        state, members = cut.state, cut.members[number]
        fan_outs = cut.blocks[members]
        above = np.searchsorted(members, cut.spine.parent[members])
        above[0] = -1
        parent = np.concatenate([above, np.repeat(np.arange(members.size), fan_outs)])
        level_of = np.concatenate([cut.spine.level_of[members] + STATE, np.full(fan_outs.sum(), BLOCK)])
        rng, counts = self._rng(state.code, number), np.zeros((parent.size, self.size))
        counts[members.size :] = self._persons(rng, int(fan_outs.sum()), state.persons / state.blocks)
        return self._measured(f"{state.code}-{number}", rng, parent, level_of, counts)

    def state_top(self, cut: Cut, cells: Sequence[Float]) -> Measured:
        """What is above the pieces of a state, of whose roots these are the true counts."""
        parent = np.searchsorted(cut.top, cut.spine.parent[cut.top])
        parent[0] = -1
        counts = np.zeros((parent.size, self.size))
        counts[cut.leaves] = cells
        number = len(cut.members)
        name, rng = f"{cut.state.code}-{number}", self._rng(cut.state.code, number)
        return self._measured(name, rng, parent, cut.spine.level_of[cut.top] + STATE, counts)

    def top(self, cells: Sequence[Float]) -> Measured:
        """The nation above its states, of which these are the true counts."""
        parent = np.array([-1] + [0] * len(cells))
        counts = np.stack([np.zeros(self.size), *cells])
        return self._measured("00-0", self._rng("00", 0), parent, np.where(parent < 0, US, STATE), counts)

    @cached_property
    def size(self) -> int:
        """Cells of the finest table."""
        return self.design.finest.size

    @cached_property
    def _sums(self) -> list[TableSums]:
        tables = [[table for own, table in self.design.observed if own == level] for level in range(len(LEVELS))]
        return [TableSums(self.design.schema, self.design.finest, own) for own in tables]

    @cached_property
    def _cell_of_draw(self) -> Index:
        """A cell for every one of equally probable draws: lower levels of every variable are the likelier ones."""
        weights = np.ones(1)
        for levels in self.design.finest.shape:
            weights = np.multiply.outer(weights, 1.0 / np.arange(1, levels + 1) ** 2).ravel()
        return np.searchsorted(np.cumsum(weights) / weights.sum(), (np.arange(RESOLUTION) + 0.5) / RESOLUTION)

    def _rng(self, code: str, number: int) -> np.random.Generator:
        return np.random.default_rng([SEED, int(code), 1 + number])

    def _persons(self, rng: np.random.Generator, blocks: int, mean: float) -> Index:
        """Persons of some blocks, cell by cell, (blocks, cells)."""
        persons = rng.poisson(rng.exponential(mean, blocks))
        cell = self._cell_of_draw[rng.integers(RESOLUTION, size=persons.sum(), dtype=np.uint16)]
        cell += np.repeat(np.arange(blocks) * self.size, persons)
        return np.bincount(cell, minlength=blocks * self.size).reshape(blocks, self.size)

    def _measured(self, name: str, rng: np.random.Generator, parent: Index, level_of: Index, counts: Float) -> Measured:
        """Noise on all tables of geounits, of which those without children have their counts."""
        bounds = np.searchsorted(level_of, np.arange(len(LEVELS) + 1)).tolist()
        levels = [slice(*own) for own in pairwise(bounds)]
        for level in reversed(levels[level_of[0] + 1 :]):
            if level.start < level.stop:
                starts = np.flatnonzero(np.diff(parent[level], prepend=-1))
                counts[parent[level][starts]] += np.add.reduceat(counts[level], starts, axis=0)
        truth: list[Float] = [np.zeros((0, table.size)) for _, table in self.design.observed]
        for number in np.unique(level_of).tolist():
            tables = self._sums[number](counts[levels[number]].reshape(-1, *self.design.finest.shape, 1))
            first = next(i for i, (own, _) in enumerate(self.design.observed) if own == number)
            truth[first : first + len(tables)] = [table.reshape(len(table), -1) for table in tables]
        values, variances = [], []
        for table, variance in zip(truth, self.variances, strict=True):
            noise = rng.standard_normal(table.shape)
            noise *= np.sqrt(variance)
            noise += table
            values.append(noise)
            variances.append(np.full(len(table), variance))
        geocodes = tuple(f"{name}-{i}" for i in range(parent.size))
        nothing = np.zeros((parent.size, 1), dtype=bool)
        return Measured(Part(parent, level_of, geocodes, variances, values, nothing), truth, counts[0].copy())


def _fan_outs(rng: np.random.Generator, parents: int, children: int) -> Index:
    """Numbers of children, each at least 1."""
    if children < parents:
        raise ValueError(f"{parents} geounits cannot share {children} children: each has one at least")
    return 1 + rng.multinomial(children - parents, rng.dirichlet(np.full(parents, 2.0)))
