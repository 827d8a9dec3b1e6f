"""Invented problems with structural zeros on spines, and dense least squares on them, from what was drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraint_builders import Problem, Schema, Spine

LEVELS = ("A", "B", "C")
Zeros = dict[tuple[str, str], NDArray[np.bool_]]


@dataclass(frozen=True)
class Invented:
    """What was drawn.

    Attributes
    ----------
    shape : tuple of int
    recodes : dict of str to list of int
        By name the group of every level; the name begins with the variable's.
    parent, level : list of int
        Of every geounit.
    variances : dict of str to dict of str to ndarray
        By geolevel and table, of every geounit of the level.
    zeros : dict of (geolevel, table) to ndarray of bool
    desired : dict of str to list of str
    """

    shape: tuple[int, ...]
    recodes: dict[str, list[int]]
    parent: list[int]
    level: list[int]
    variances: dict[str, dict[str, NDArray]]
    zeros: Zeros
    desired: dict[str, list[str]]

    @property
    def names(self) -> list[str]:
        """Of the variables."""
        return list("abcd"[: len(self.shape)])

    def problem(self) -> Problem:
        """As the package takes it."""
        by_variable = {v: {n: g for n, g in self.recodes.items() if n[0] == v} for v in self.names}
        schema = Schema(
            dict(zip(self.names, self.shape, strict=True)), recodes={v: own for v, own in by_variable.items() if own}
        )
        codes = [str(number) for number in range(len(self.parent))]
        spine = Spine(self.parent, [LEVELS[own] for own in self.level], codes)
        return Problem(schema, self.variances, self.desired, spine=spine, zeros=self.zeros)

    def dense(self, problem: Problem) -> tuple[NDArray, NDArray]:
        """Of the possible cells of all leaves the observed and the desired figures."""
        possible = self._possible()
        observed = [self._rows(*name) for name in problem.observed.names]
        desired = [self._rows(*name) for name in problem.desired.names]
        return np.concatenate(observed)[:, possible], np.concatenate(desired)[:, possible]

    def _cells(self, table: str) -> NDArray:
        """The table's cell of every detailed cell."""
        places = np.indices(self.shape).reshape(len(self.shape), -1)
        factors = [] if table == "total" else self.names if table == "detailed" else table.split(" * ")
        code = np.zeros(places.shape[1], dtype=int)
        for factor in factors:
            axis = self.names.index(factor[0])
            groups = np.array(self.recodes.get(factor, range(self.shape[axis])))
            code = code * (groups.max() + 1) + groups[places[axis]]
        return code

    def _members(self, level: int) -> list[int]:
        return [number for number, own in enumerate(self.level) if own == level]

    def _leaves(self) -> list[int]:
        return [number for number in range(len(self.parent)) if number not in self.parent]

    def _above(self, geounit: int) -> list[int]:
        found = [geounit]
        while self.parent[found[-1]] >= 0:
            found.append(self.parent[found[-1]])
        return found

    def _rows(self, level: str, table: str) -> NDArray:
        code, leaves = self._cells(table), self._leaves()
        found = []
        for geounit in self._members(LEVELS.index(level)):
            rows = np.zeros((code.max() + 1, len(leaves), code.size))
            for number, leaf in enumerate(leaves):
                if geounit in self._above(leaf):
                    rows[code, number, np.arange(code.size)] = 1
            found.append(rows.reshape(len(rows), -1))
        return np.concatenate(found)

    def _possible(self) -> NDArray[np.bool_]:
        found = np.ones((len(self._leaves()), int(np.prod(self.shape))), dtype=bool)
        for (level, table), flags in self.zeros.items():
            members, code = self._members(LEVELS.index(level)), self._cells(table)
            for number, leaf in enumerate(self._leaves()):
                for rank, geounit in enumerate(members):
                    if geounit in self._above(leaf):
                        found[number] &= ~flags[rank].ravel()[code]
        return found.ravel()


def invented(seed: int, decades: float = 1.5, largest: int = 5) -> Invented:
    """A schema of two or three variables with recodes that nest or cross, three geolevels, and zeros by rules.

    Some rules are the same everywhere, some differ by geounit; they overlap, empty whole levels, and geounits; some
    tables were not measured in some geounits.
    """
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.integers(2, largest)) for _ in range(rng.integers(2, 4)))
    names = list("abc"[: len(shape)])
    recodes = {}
    for name, count in zip(names, shape, strict=True):
        for number in range(rng.integers(0, 3)):
            groups = np.unique(rng.integers(0, max(2, count - 1), count), return_inverse=True)[1].ravel()
            if 0 < groups.max() < count - 1:
                recodes[f"{name}{number}"] = groups.tolist()
    parent, level = [-1], [0]
    for _ in range(rng.integers(1, 4)):
        parent, level = [*parent, 0], [*level, 1]
    for above in range(1, len(parent)):
        for _ in range(rng.integers(1, 4)):
            parent, level = [*parent, above], [*level, 2]
    factors = [[None, name, *(own for own in recodes if own[0] == name)] for name in names]
    tables = ["total"]
    for _ in range(8):
        picked = [own[rng.integers(len(own))] for own in factors]
        tables.append(" * ".join(name for name in picked if name) or "total")
    tables = [table for table in dict.fromkeys(tables) if table != " * ".join(names)]
    variances: dict[str, dict[str, NDArray]] = {}
    for number, name in enumerate(LEVELS):
        count = level.count(number)
        chosen = ["detailed"] if number == 2 or rng.random() < 0.7 else []
        chosen += [table for table in tables if rng.random() < 0.5]
        variances[name] = {}
        for table in chosen or ["total"]:
            own = 10.0 ** rng.uniform(-decades, decades, count if rng.random() < 0.3 else 1) * np.ones(count)
            if number < 2 or table != "detailed":
                own[rng.random(count) < 0.15] = np.inf
            variances[name][table] = own
    zeros: Zeros = {}
    for _ in range(rng.integers(1, 4)):
        number = int(rng.integers(3))
        kept = [names, [names[0]], [names[-1]], names[:2]][rng.integers(4)]
        table = "detailed" if len(kept) == len(names) else " * ".join(kept)
        flags = rng.random((level.count(number), *(shape[names.index(own)] for own in kept))) < 0.35
        if rng.random() < 0.5:
            flags[:] = flags[0]
        if rng.random() < 0.1:
            flags[0] = True
        zeros[LEVELS[number], table] = flags
    desired = {name: list(dict.fromkeys(["detailed", names[0], *own])) for name, own in variances.items()}
    return Invented(shape, recodes, parent, level, variances, zeros, desired)
