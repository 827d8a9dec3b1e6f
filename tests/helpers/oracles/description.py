"""A problem described in plain data, apart from the package: what the oracle reads and the package is given."""

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from scipy import sparse

from constraint_builders import Areas, LowRankPlusDiagonal, Problem, Schema, Spine


@dataclass(frozen=True)
class Block:
    """A table at a geolevel: its factors in the order of its axes, and an array over (geounits, *cells)."""

    level: int
    factors: tuple[str, ...]
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Description:
    """Variables and recodes, a tree, what was measured, what is wanted, what is known.

    Attributes
    ----------
    sizes : dict of str to int
    groups : dict of str to (variable, groups)
        Recodes.
    parent : ndarray of int or None
    level : ndarray of int or None
        Depth number of every geounit; geolevels are called L0, L1, ... or by `names`.
    incidence : ndarray (areas, leaves) or None
        Instead of a tree the weights of leaves in areas; `level` then numbers their layers, called L0, L1, ..., of
        which the last is of the leaves one by one.
    observed : tuple of Block
        With variances.
    desired : tuple of Block
    zeros : tuple of Block
        With truth values.
    equalities : (E, b) or None
    covariance : ndarray (n, n) or None
    shared : (D, U) or None
        Low rank plus diagonal; `covariance` is then D + U U'.
    """

    sizes: dict[str, int]
    groups: dict[str, tuple[str, tuple[int, ...]]]
    parent: np.ndarray | None
    level: np.ndarray | None
    observed: tuple[Block, ...]
    desired: tuple[Block, ...]
    zeros: tuple[Block, ...] = ()
    equalities: tuple[np.ndarray, np.ndarray] | None = None
    covariance: np.ndarray | None = None
    shared: tuple[np.ndarray, np.ndarray] | None = None
    incidence: np.ndarray | None = None
    names: tuple[str, ...] = ()

    # ---- geometry

    @property
    def leaves(self) -> np.ndarray:
        """Geounits without children."""
        if self.incidence is not None:
            return np.arange(self.incidence.shape[1])
        if self.parent is None:
            return np.zeros(1, dtype=int)
        return np.setdiff1d(np.arange(self.parent.size), self.parent)

    def members(self, level: int) -> np.ndarray:
        """Geounits of a level."""
        return np.zeros(1, dtype=int) if self.level is None else np.flatnonzero(self.level == level)

    def holds(self, geounit: int) -> np.ndarray:
        """Which leaves lie in a geounit, of an area with their weights."""
        if self.incidence is not None:
            return self.incidence[geounit]
        if self.parent is None:
            return np.ones(1, dtype=bool)
        found = []
        for leaf in self.leaves:
            g = int(leaf)
            while g not in (-1, geounit):
                g = int(self.parent[g])
            found.append(g == geounit)
        return np.array(found)

    def variable(self, factor: str) -> str:
        """The variable that a factor groups."""
        return self.groups[factor][0] if factor in self.groups else factor

    def group_of(self, factor: str) -> np.ndarray:
        """For every level of its variable the factor's cell."""
        return np.array(self.groups[factor][1]) if factor in self.groups else np.arange(self.sizes[factor])

    def shape(self, factors: tuple[str, ...]) -> tuple[int, ...]:
        """Cells along every factor."""
        return tuple(int(self.group_of(f).max()) + 1 for f in factors)

    @cached_property
    def detailed_shape(self) -> tuple[int, ...]:
        """Levels of all variables."""
        return tuple(self.sizes.values())

    def cell_of(self, factors: tuple[str, ...]) -> np.ndarray:
        """For every detailed cell the cell of a table, its axes in the order of `factors`."""
        names = list(self.sizes)
        levels = np.indices(self.detailed_shape).reshape(len(names), -1)
        cell = np.zeros(levels.shape[1], dtype=int)
        for factor, length in zip(factors, self.shape(factors), strict=True):
            cell = cell * length + self.group_of(factor)[levels[names.index(self.variable(factor))]]
        return cell

    def rows(self, block: Block) -> np.ndarray:
        """The 0/1 rows of a table in every geounit of its level, over (leaves, detailed cells)."""
        cell, count = self.cell_of(block.factors), prod(self.shape(block.factors))
        one = np.zeros((count, cell.size))
        one[cell, np.arange(cell.size)] = 1
        return np.kron(np.array([self.holds(int(g)) for g in self.members(block.level)], dtype=float), one)

    def marginal_matrix(self) -> np.ndarray:
        """M, (n, leaves * detailed cells)."""
        return np.vstack([self.rows(block) for block in self.observed])

    def desired_matrix(self) -> np.ndarray:
        """The same of the desired tables."""
        return np.vstack([self.rows(block) for block in self.desired])

    def empty_cells(self) -> np.ndarray:
        """Detailed cells of leaves that are structural zeros."""
        empty = np.zeros(self.leaves.size * prod(self.detailed_shape), dtype=bool)
        for block in self.zeros:
            empty |= (self.rows(block)[block.values.ravel()] != 0).any(axis=0)
        return empty

    @cached_property
    def variances(self) -> np.ndarray:
        """Of every observed cell."""
        if self.covariance is not None:
            v = np.diag(self.covariance).copy()
            own = np.concatenate([b.values.ravel() for b in self.observed])
            v[np.isinf(own)] = np.inf
            return v
        return np.concatenate([block.values.ravel() for block in self.observed])

    # ---- the package's problem

    def name(self, factors: tuple[str, ...]) -> str:
        """A table's name, its factors in the given order."""
        return " * ".join(factors) or "total"

    def schema(self) -> Schema:
        """The package's."""
        recodes: dict[str, dict[str, list[int]]] = {}
        for name, (variable, groups) in self.groups.items():
            recodes.setdefault(variable, {})[name] = list(groups)
        return Schema(dict(self.sizes), recodes)

    def problem(self, **options: Any) -> Problem:
        """The package's."""
        if self.zeros:
            options["zeros"] = {self._key(b): self._cut(b) for b in self.zeros}
        if self.equalities is not None:
            options["equalities"] = (sparse.csr_array(self.equalities[0]), self.equalities[1])
        if self.shared is not None:
            options["covariance"] = LowRankPlusDiagonal(*self.shared)
        elif self.covariance is not None:
            options["covariance"] = sparse.csr_array(self.covariance)
        correlated = "covariance" in options
        if not self.has_places:
            observed: dict[Any, Any] = {
                self.name(b.factors): None if correlated else self._given(b) for b in self.observed
            }
            return Problem(self.schema(), observed, [self.name(b.factors) for b in self.desired], **options)
        if self.incidence is None:
            options["spine"] = Spine(self.parent, [self._called(own) for own in self.level])
        else:
            options["areas"] = self.areas()
        observed, desired = {}, {}
        for b in self.observed:
            given = None if correlated else self._given(b)
            observed.setdefault(self._level(b), {})[self.name(b.factors)] = given
        for b in self.desired:
            desired.setdefault(self._level(b), []).append(self.name(b.factors))
        return Problem(self.schema(), observed, desired, **options)

    def areas(self) -> Areas:
        """The package's."""
        rows = {self._called(own): self.incidence[self.level == own] for own in range(int(self.level.max()))}
        return Areas(self.incidence.shape[1], rows)

    @property
    def has_places(self) -> bool:
        """Whether there are geounits or areas."""
        return self.level is not None

    def _level(self, block: Block) -> str:
        is_leaf = self.incidence is not None and block.level == self.level.max()
        return "Leaf" if is_leaf else self._called(block.level)

    def _called(self, number: int) -> str:
        return self.names[number] if self.names else f"L{number}"

    def _key(self, block: Block) -> Any:
        return (self._level(block), self.name(block.factors)) if self.has_places else self.name(block.factors)

    def _cut(self, block: Block) -> np.ndarray:
        return block.values if self.has_places else block.values[0]

    def _given(self, block: Block) -> np.ndarray:
        return block.values if self.has_places else block.values[0]


def of_tables(problem: Problem) -> Description:
    """What a problem of plain tables, all of them wanted, is."""
    measured = problem.observed.tables(problem.variances)
    sizes = {name: problem.schema.size_of(name) for name in problem.schema.names}
    factors = {"total": (), "detailed": tuple(sizes)}
    blocks = [Block(0, factors.get(name, tuple(name.split(" * "))), own[None]) for name, own in measured.items()]
    return Description(sizes, {}, None, None, tuple(blocks), tuple(blocks))
