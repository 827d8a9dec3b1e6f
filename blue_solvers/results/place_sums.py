"""Sums of cells over places: estimates from what is stored, covariances from the variances of measurements alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, reduce

import numpy as np
from scipy import sparse

from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.covariances import PlaceCovariances
from blue_solvers.components.tree.tree_plan import TreePlan
from blue_solvers.operator import BlueOperator, blue
from blue_solvers.results.store import Progress, reported
from blue_solvers.results.stored import Levels, StoredResult
from blue_solvers.solvers import TwoPass
from constraint_builders import Spine
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.layout import Layout
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table
from constraint_builders.geography import Entities, NotComposableError, compositions
from constraint_builders.relations.marginals import Variances, sum_out

Source = tuple[Table, list[Float]]  # a table, and what is counted of each of its factors
Covariance = Callable[[sparse.csr_array], Float]  # of signs, (P, N), that of all sums over the places, (P K, P K)


class PlaceSums:
    """K sums of cells over each of P places, which are composed of the fewest geounits, added and subtracted.

    Parameters
    ----------
    result : StoredResult
    places : Entities
        Of the leaves of its spine.
    counted : sequence of Levels, (K,)
        Which levels of the variables each sum counts.
    told : sequence of str, (K,)
        What the sums are called where one cannot be told.
    levels : collection of int
        Numbers of the geolevels at which one is to be stored, for the message that it is not.
    adds : ndarray, (L, K), optional
        How often each of L lines counts each sum: what is asked for then are the lines, in place of the sums.

    Raises
    ------
    ValueError
        If no table was estimated from which a sum can be taken.
    """

    def __init__(
        self,
        result: StoredResult,
        places: Entities,
        counted: Sequence[Levels],
        told: Sequence[str],
        levels: Collection[int],
        adds: Float | None = None,
    ) -> None:
        self.result, self.names, self._counted = result, places.names, counted
        self._adds = np.eye(len(counted)) if adds is None else adds
        self._operators: dict[tuple[str, ...], tuple[BlueOperator, list[tuple[str, Float]]]] = {}
        spine = result.spine
        self._sources = {level: sources_at(result, level, counted) for level in spine.levels}
        usable = np.array([None not in self._sources[level] for level in spine.levels])
        try:
            self._signs = compositions(spine, places, usable[spine.level_of])
        except NotComposableError:
            geolevel = spine.levels[next(level for level in sorted(levels) if not usable[level])]
            lacking = told[self._sources[geolevel].index(None)]
            raise ValueError(_not_stored(lacking, geolevel, result.stored_tables(geolevel))) from None

    @cached_property
    def estimates(self) -> Float:
        """Stored estimates, (P, K)."""
        sums = np.sum([self._estimates_at(level, found) for level, found in self._sources.items()], axis=0)
        return np.asarray(sums @ self._adds.T)

    def covariance(self, places: Sequence[int] | Index) -> Float:
        """Covariance of all sums over some places together, (places * K, places * K), sums of a place together."""
        return self._covariance(self._signs[np.asarray(places)])

    def std_errors(self, progress: Progress | None = None) -> Float:
        """Standard errors, (P, K).

        Parameters
        ----------
        progress : callable, optional
            Called with each place, its number from 0, and how many there are.
        """
        found = np.stack(list(self._of_each(lambda covariance: covariance.diagonal().copy(), progress)))
        return np.sqrt(np.maximum(found, 0.0))  # 0 may come out as -1e-20

    def covariances(self, progress: Progress | None = None) -> Iterator[Float]:
        """Covariance of the sums over each place by itself, (K, K); `progress` as for `std_errors`."""
        return self._of_each(lambda covariance: covariance, progress)

    def _of_each(self, part: Callable[[Float], Float], progress: Progress | None) -> Iterator[Float]:
        """Part of the covariance over each place; geounits that are alike in all that was measured share it."""
        known: dict[int, Float] = {}
        for number in reported(self.names, progress):
            kind = self._alike[number]
            found = known[kind] if kind in known else part(self.covariance([number]))
            if kind >= 0:
                known[kind] = found
            yield found

    def _estimates_at(self, geolevel: str, sources: Sequence[Source | None]) -> Float:
        """What the geounits of a level add and subtract, (P, K)."""
        own = sparse.csc_array(self._signs)[:, self.result.members(geolevel)]
        geounits = np.flatnonzero(np.diff(own.indptr))
        if not geounits.size:
            return np.zeros((len(self.names), len(sources)))
        tables = {table.name: table for table, _ in filter(None, sources)}
        totals = {
            name: own[:, geounits] @ self.result.stored_estimates(geolevel, table, geounits)
            for name, table in tables.items()
        }
        return np.stack([sum_counted(totals[table.name], shares) for table, shares in filter(None, sources)], axis=1)

    @cached_property
    def _table(self) -> tuple[Schema, Variances, Table]:
        """The smallest problem that tells the counted levels apart, and the table of these in it."""
        needed = dict.fromkeys(variable for levels in self._counted for variable in levels)
        measured = self.result.measured
        counted = {variable for levels in self._counted for variable in measured.counted(measured.schema, levels)}
        schema, observed = sum_out(measured.schema, measured.observed, counted | measured.kept_variables)
        return schema, observed, measured.table(schema, needed)

    @cached_property
    def _taken(self) -> sparse.csr_array:
        """What every sum, or line, takes of the cells of that table, (cells, K)."""
        schema, _, table = self._table
        measured = self.result.measured
        cells = [cells_counted(schema, table, measured.counted(schema, levels)) for levels in self._counted]
        return sparse.csr_array(np.stack([own for own in cells if own is not None], axis=1) @ self._adds.T)

    @cached_property
    def _plan(self) -> TreePlan | None:
        """The plan of the two passes, which needs no vector of all cells; None for other solvers and areas."""
        if self.result.description.solver != TwoPass.name or not isinstance(self.result.measured.places, Spine):
            return None
        schema, observed, table = self._table
        level = next(level for level, found in self._sources.items() if None not in found)
        problem = StructuredProblem.of(self.result.problem_of(schema, observed, {level: ["total"]}))
        return TreePlan(replace(problem, desired=Layout([], []), desired_tables=(table,), desired_levels=(0,)))

    @cached_property
    def _alike(self) -> Index:
        """For every place that is one geounit a number that those share whose errors are alike, else -1, (P,)."""
        single = np.diff(self._signs.indptr) == 1
        if self._plan is None or not single.any():
            return np.full(len(self.names), -1)
        geounits = self._signs.indices[self._signs.indptr[:-1][single]]
        alike = np.full(len(self.names), -1)
        alike[single] = self._plan.posterior_of[geounits]
        return alike

    @cached_property
    def _covariance(self) -> Covariance:
        if self._plan is None:
            return self._by_operator
        return PlaceCovariances(self._plan, self._table[2], self._taken).of

    def _by_operator(self, signs: sparse.csr_array) -> Float:
        """That of sums over places, of signs (P, N), by an operator for each choice of geolevels that they have."""
        own = {level: sparse.csc_array(signs)[:, self.result.members(level)] for level in self.result.spine.levels}
        levels = tuple(level for level, members in own.items() if members.nnz)
        if levels not in self._operators:
            schema, observed, _ = self._table
            taken = {level: self._taken_at(level) for level in levels}
            desired = {level: list(tables) for level, tables in taken.items()}
            P = blue(self.result.problem_of(schema, observed, desired))
            starts = [P.problem.desired.slice(name).start for name in self.result.measured.asked(schema, desired)]
            weights = [(level, cells) for level, tables in taken.items() for cells in tables.values()]
            self._operators[levels] = P, [weights[number] for number in np.argsort(starts)]
        P, weights = self._operators[levels]
        parts = [sparse.kron(own[level].T, cells) for level, cells in weights]
        return P.functional_covariance(sparse.csc_array(sparse.vstack(parts)))

    def _taken_at(self, geolevel: str) -> dict[str, Float]:
        """What every sum, or line, takes of tables that are estimable at a geolevel, (cells, K) by name."""
        schema, measured, found = self._table[0], self.result.measured, dict[str, Float]()
        for number, (stored, shares) in enumerate(filter(None, self._sources[geolevel])):
            variables = [self.result.schema.names[axis] for axis in stored.axes]
            told = {
                factor: share
                for factor, variable, share in zip(stored.factors, variables, shares, strict=True)
                if variable in self._counted[number]
            }
            table = measured.table(schema, told)
            counted = {measured.factors.get(factor, factor): share for factor, share in told.items()}
            cells = reduce(np.multiply.outer, [counted[factor] for factor in table.factors], np.ones(())).ravel()
            own = found.setdefault(" * ".join(table.factors) or table.name, np.zeros((cells.size, len(self._counted))))
            own[:, number] = cells
        return {name: own @ self._adds.T for name, own in found.items()}


def sources_at(result: StoredResult, geolevel: str, counted: Sequence[Levels]) -> list[Source | None]:
    """For every sum the smallest table stored at a geolevel that it can be taken from."""
    stored = result.stored_tables(geolevel)
    found: list[Source | None] = []
    for levels in counted:
        shares = ((table, factors_counted(result.schema, table, levels)) for table in stored)
        found.append(next(((table, own) for table, own in shares if own is not None), None))
    return found


def _not_stored(told: str, geolevel: str, stored: Sequence[Table]) -> str:
    names = ", ".join(repr(table.name) for table in stored) or "none"
    return f"no table stored at {geolevel!r} counts {told}: there are {names}; estimate again with --desired"


def factors_counted(schema: Schema, table: Table, levels: Levels) -> list[Float] | None:
    """For every factor of a table 1 for its groups that are counted, 0 for the others; None if one is in part."""
    if not levels.keys() <= {schema.names[axis] for axis in table.axes}:
        return None
    shares = []
    for axis, factor in zip(table.axes, table.factors, strict=True):
        shares.append(_share_counted(schema, factor, levels.get(schema.names[axis])))
        if not np.isin(shares[-1], (0, 1)).all():
            return None
    return shares


def cells_counted(schema: Schema, table: Table, levels: Levels) -> Float | None:
    """1 for the cells of a table that are counted, 0 for the others, (cells,), or None if some is counted in part."""
    shares = factors_counted(schema, table, levels)
    return None if shares is None else reduce(np.multiply.outer, shares, np.ones(())).ravel()


def sum_counted(cells: Float, shares: list[Float]) -> Float:
    """Sums of the cells that are counted, (n,), of cells (n, cells) and what `factors_counted` gives."""
    left = cells.reshape(len(cells), *(share.size for share in shares))
    for share in reversed(shares):
        left = left @ share
    return left.reshape(len(cells))


def _share_counted(schema: Schema, factor: str, levels: Flags | None) -> Float:
    """Which share of each group of a factor, (groups,), is counted, by its variable's levels that are, (levels,)."""
    groups = np.array(schema.groups_of(factor))
    counted = np.ones(groups.size) if levels is None else levels
    return np.bincount(groups, weights=counted) / np.bincount(groups)
