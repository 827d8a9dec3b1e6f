"""A synthetic nation with the real numbers of geounits, whose counts and noise are made a part at a time from seeds.

Known of 2020 are the persons of every state, and of the nation how many counties, tracts, block groups and blocks it
has. Each of these is shared out among the states in proportion to their persons, by largest remainder; inside a state
every geounit has one child, and the others fall to parents by chance. States, and what is in them, are cut into parts
that keep to a limit of memory, as `streaming` cuts. Noise is Gaussian and has the variances of the 2020 redistricting
release; the nation's total is known exactly. Nothing is bypassed and no cell is a structural zero.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.problems import redistricting
from blue_solvers.components.table_sums import TableSums
from blue_solvers.streaming.cutting import cut_with_siblings, members_of_parts
from blue_solvers.streaming.manifest import TOP, PartEntry
from blue_solvers.streaming.part_data import Design, Part
from blue_solvers.streaming.part_files import Partitions
from blue_solvers.streaming.subtrees import part_bytes
from constraint_builders import Spine
from constraint_builders.arrays import Float, Index
from constraint_builders.description.table import parse_table

LEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")
GEOUNITS = {"County": 3_143, "Tract": 84_414, "Block_Group": 239_780, "Block": 8_132_968}
SEED = 2020
LIMIT = 1.2e9  # bytes that the two passes over a part may take
RESOLUTION = 1 << 16  # of the distribution of persons over cells


@dataclass(frozen=True)
class State:
    """A state: its code, its persons, and how many geounits it has."""

    code: str
    persons: int
    counties: int
    tracts: int
    groups: int
    blocks: int


def all_states() -> list[State]:
    """The 50 states and the District of Columbia, in the order of their codes."""
    text = (resources.files("constraint_builders.files") / "production" / "state_totals_2020.csv").read_text("utf-8")
    known = {code: int(total) for code, total in (line.split(",") for line in text.split()[1:])}
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
    """States under one root, in parts as `streaming` reads them; each is made whenever it is read.

    Parameters
    ----------
    cells : str
        ``"16"`` or ``"2016"`` in every geounit.
    states : sequence of State
    limit : float
        Bytes that the two passes over a part may take. How states are cut decides what is drawn.

    Attributes
    ----------
    design, parts, top, digest
        As of `Partitions`.
    measured : dict
        Variances by geolevel and table.
    roots : list of ndarray
        True counts of the roots of the parts, which have to be there before the top is read.
    """

    to_split, together, bytes_of = Partitions.to_split, Partitions.together, Partitions.bytes_of

    def __init__(self, cells: str, states: Sequence[State], limit: float = LIMIT) -> None:
        self.states, self.roots = tuple(states), list[Float]()
        schema, self.measured = redistricting(cells, LEVELS)
        self.measured["US"] = {"total": 0.0, **self.measured["US"]}
        observed = tuple(
            (level, parse_table(schema, name).in_schema_order())
            for level, tables in enumerate(self.measured.values())
            for name in tables
        )
        self._variances = [variance for tables in self.measured.values() for variance in tables.values()]
        design = Design(schema, LEVELS, observed, observed)
        spine, state_of, blocks = self._above_blocks()
        one = np.ones(spine.size, dtype=bool)
        own = part_bytes(design, spine.level_of, one) + blocks * part_bytes(design, np.array([5]), ~one[:1])
        cut = cut_with_siblings(spine, own, limit, at="State")
        self._tree, put_in = cut.tree, np.array([lot[0] for lot in cut.together], dtype=np.intp)
        self._blocks, state_of = np.append(blocks, np.zeros_like(put_in)), np.append(state_of, state_of[put_in])
        numbers = np.append(cut.level_numbers, len(cut.tree.levels))
        self.design = design.with_levels((*cut.tree.levels, LEVELS[-1]), numbers)
        every = members_of_parts(cut.tree, cut.roots)
        by_level = [members[np.argsort(cut.tree.level_of[members], kind="stable")] for members in every]
        names = [f"{self.states[state_of[members[0]]].code}-{number}" for number, members in enumerate(by_level[:-1])]
        self._members = dict(zip([*names, TOP], by_level, strict=True))
        leaves = np.argsort(by_level[-1])[np.searchsorted(np.sort(by_level[-1]), [own[0] for own in by_level[:-1]])]
        self.parts = {name: self._entry(name, leaf) for name, leaf in zip(names, leaves.tolist(), strict=True)}
        self.top, self._last = self._entry(TOP, -1), ("", None)
        said = [[own.code, own.persons, own.counties, own.tracts, own.groups, own.blocks] for own in self.states]
        self.identity = {"cells": cells, "states": said, "limit": limit, "seed": SEED}
        sources = b"".join(
            Path(__file__).with_name(name).read_bytes() for name in ("synthetic_nation.py", "country.py")
        )
        self.digest = hashlib.sha256(json.dumps(self.identity).encode() + sources).hexdigest()

    def _above_blocks(self) -> tuple[Spine, Index, Index]:
        """The spine without its blocks; the number of every geounit's state, and how many blocks it has, (G,) each."""
        rngs = [np.random.default_rng([SEED, int(state.code)]) for state in self.states]
        counts = np.array([(1, own.counties, own.tracts, own.groups, own.blocks) for own in self.states]).T
        fan_outs = [
            np.concatenate([_fan_outs(rng, *own) for rng, *own in zip(rngs, above, below, strict=True)])
            for above, below in pairwise(counts)
        ]
        sizes = [1, *counts[:-1].sum(axis=1).tolist()]
        above = np.repeat(np.arange(sum(sizes[:-1])), np.concatenate([sizes[1:2], *fan_outs[:-1]]))
        spine = Spine(np.append(-1, above), np.repeat(LEVELS[:-1], sizes).tolist())
        state_of = np.concatenate([[0], *(np.repeat(np.arange(len(rngs)), own) for own in counts[:-1])])
        return spine, state_of, np.concatenate([np.zeros(sum(sizes[:-1]), dtype=int), fan_outs[-1]])

    def _entry(self, name: str, leaf: int) -> PartEntry:
        members = self._members[name]
        level, size = self._tree.levels[self._tree.level_of[members[0]]], members.size
        return PartEntry(name, level, name, leaf, int(size + (leaf >= 0) * self._blocks[members].sum()), 0)

    def read(self, name: str, tables: Sequence[int] | None = None) -> Part:
        """As `Partitions.read`, of all tables."""
        return self.made(name).part

    def made(self, name: str) -> Measured:
        """A part, what was measured in it, and the truth; the last one is kept."""
        if self._last[0] != name:
            self._last = "", None  # one at a time
            self._last = name, self._make(name)
        return self._last[1]

    def _make(self, name: str) -> Measured:
        members, place = self._members[name], np.full(self._tree.size, -1)
        place[members] = np.arange(members.size)
        parent, level_of = place[self._tree.parent[members]], self._tree.level_of[members]
        parent[0] = -1
        if name == TOP:
            counts, leaves = np.zeros((parent.size, self._size)), [entry.leaf for entry in self.parts.values()]
            counts[leaves] = self.roots
            return self._measured(name, np.random.default_rng([SEED, 0, 1]), parent, level_of, counts)
        code, number = name.split("-")
        state, fan_outs = next(own for own in self.states if own.code == code), self._blocks[members]
        parent = np.append(parent, np.repeat(np.arange(members.size), fan_outs))
        level_of = np.append(level_of, np.full(fan_outs.sum(), len(self.design.levels) - 1))
        rng, counts = np.random.default_rng([SEED, int(code), 1 + int(number)]), np.zeros((parent.size, self._size))
        counts[members.size :] = self._persons(rng, int(fan_outs.sum()), state.persons / state.blocks)
        return self._measured(name, rng, parent, level_of, counts)

    @cached_property
    def _size(self) -> int:
        """Cells of the finest table."""
        return self.design.finest.size

    @cached_property
    def _sums(self) -> list[TableSums]:
        """Of every level."""
        tables = [[own for at, own in self.design.observed if at == level] for level in range(len(self.design.levels))]
        return [TableSums(self.design.schema, self.design.finest, own) for own in tables]

    @cached_property
    def _cell_of_draw(self) -> Index:
        """A cell for every one of equally probable draws: lower levels of every variable are the likelier ones."""
        along = (1.0 / np.arange(1, levels + 1) ** 2 for levels in self.design.finest.shape)
        weights = reduce(np.multiply.outer, along).ravel()
        return np.searchsorted(np.cumsum(weights) / weights.sum(), (np.arange(RESOLUTION) + 0.5) / RESOLUTION)

    def _persons(self, rng: np.random.Generator, blocks: int, mean: float) -> Index:
        """Persons of some blocks, cell by cell, (blocks, cells)."""
        persons = rng.poisson(rng.exponential(mean, blocks))
        cell = self._cell_of_draw[rng.integers(RESOLUTION, size=persons.sum(), dtype=np.uint16)]
        cell += np.repeat(np.arange(blocks) * self._size, persons)
        return np.bincount(cell, minlength=blocks * self._size).reshape(blocks, self._size)

    def _measured(self, name: str, rng: np.random.Generator, parent: Index, level_of: Index, counts: Float) -> Measured:
        """Noise on all tables of geounits, of which those without children have their counts."""
        bounds = np.searchsorted(level_of, np.arange(len(self.design.levels) + 1)).tolist()
        levels = [slice(*own) for own in pairwise(bounds)]
        for level in reversed(levels[level_of[0] + 1 :]):
            if level.start < level.stop:
                starts = np.flatnonzero(np.diff(parent[level], prepend=-1))
                np.add.at(counts, parent[level][starts], np.add.reduceat(counts[level], starts, axis=0))
        truth: list[Float] = [np.zeros((0, table.size)) for _, table in self.design.observed]
        for number in np.unique(level_of).tolist():
            tables = self._sums[number](counts[levels[number]].reshape(-1, *self.design.finest.shape, 1))
            own = [i for i, (level, _) in enumerate(self.design.observed) if level == number]
            for i, table in zip(own, tables, strict=True):
                truth[i] = table.reshape(len(table), -1)
        values, variances = [], []
        for table, variance in zip(truth, self._variances, strict=True):
            noise = rng.standard_normal(table.shape)
            noise *= np.sqrt(variance)
            noise += table
            values.append(noise)
            variances.append(np.full(len(table), variance))
        geocodes, nothing = tuple(f"{name}-{i}" for i in range(parent.size)), np.zeros((parent.size, 1), dtype=bool)
        return Measured(Part(parent, level_of, geocodes, variances, values, nothing), truth, counts[0].copy())


def _fan_outs(rng: np.random.Generator, parents: int, children: int) -> Index:
    """Numbers of children, each at least 1."""
    if children < parents:
        raise ValueError(f"{parents} geounits cannot share {children} children: each has one at least")
    return 1 + rng.multinomial(children - parents, rng.dirichlet(np.full(parents, 2.0)))
