"""Small problems, each with one feature, and what they mean in dense matrices written out from their description alone.

Nothing here calls the package's matrices: rows are built from geounits, groups and cells one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from constraint_builders import LowRankPlusDiagonal, Problem
from tests.helpers.oracles.description import Block
from tests.helpers.oracles.description import Description as Described

Matrix = np.ndarray

VARIABLES = {"a": 2, "b": 3}
RECODES = {"adult": ("b", (0, 1, 1)), "odd": ("b", (0, 1, 0))}
PARENTS = [-1, 0, 0]
LEVELS = ["US", "State", "State"]


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem, measurements of it, and what it means.

    Attributes
    ----------
    problem : Problem
    y : ndarray, (n,)
        NaN where nothing was measured.
    counts : ndarray, (d,)
        True cells: detailed counts, or leaves of sums, or nodes of equations.
    M, D : ndarray, (n, d) and (m, d)
        From the cells to the observed and the desired layout.
    Sigma : ndarray, (n, n)
        Covariance of the noise; zero in rows that are exact or were not measured.
    known, values : ndarray, (k, d) and (k,)
        What is known exactly: equalities, zeros, and cells of variance 0, ``known x = values``.
    """

    problem: Problem
    y: Matrix
    counts: Matrix
    M: Matrix
    D: Matrix
    Sigma: Matrix
    known: Matrix
    values: Matrix

    @property
    def noisy(self) -> Matrix:
        """Observed cells that were measured with noise."""
        return np.flatnonzero(np.isfinite(self.y) & (self.Sigma.diagonal() > 0))

    @cached_property
    def operator(self) -> tuple[Matrix, Matrix]:
        """The BLUE of the desired layout as G y + g, by least squares over the cells that what is known leaves free."""
        start = np.linalg.pinv(self.known, rcond=1e-10) @ self.values if len(self.known) else np.zeros(self.M.shape[1])
        free = _null_space(self.known, self.M.shape[1])
        rows = self.noisy
        white = np.linalg.inv(np.linalg.cholesky(self.Sigma[np.ix_(rows, rows)]))
        seen = white @ self.M[rows] @ free
        fit = free @ np.linalg.pinv(seen, rcond=1e-11) @ white
        G = np.zeros((len(self.D), self.y.size))
        G[:, rows] = self.D @ fit
        return G, self.D @ (start - fit @ (self.M[rows] @ start))

    def estimate(self) -> Matrix:
        """The BLUE, (m,)."""
        G, g = self.operator
        return G @ np.nan_to_num(self.y) + g

    @cached_property
    def covariance(self) -> Matrix:
        """Its covariance, (m, m)."""
        G = self.operator[0]
        return G @ self.Sigma @ G.T

    def std_errors(self) -> Matrix:
        """Its standard errors, (m,)."""
        return np.sqrt(np.maximum(self.covariance.diagonal(), 0))


def _null_space(matrix: Matrix, size: int) -> Matrix:
    if not len(matrix):
        return np.eye(size)
    _, singular, right = np.linalg.svd(matrix)
    return right[int((singular > 1e-10).sum()) :].T


Area = list[int] | dict[int, float]  # leaves, or leaves with weights


def weights_of(area: Area, leaves: int) -> Matrix:
    """Of every leaf in an area."""
    found = np.zeros(leaves)
    found[list(area)] = list(area.values()) if isinstance(area, dict) else 1.0
    return found


def block_of(place: int, table: str) -> Block:
    """A table of the geounits of a level."""
    return Block(place, {"total": (), "detailed": tuple(VARIABLES)}.get(table, tuple(table.split(" * "))))


@dataclass
class Description:
    """What an instance is made from."""

    tables: dict[Any, Any]
    desired: list[str]
    spine: tuple[list[int], list[str]] | None = None
    areas: dict[str, list[Area]] | None = None  # of every layer
    zeros: dict[Any, Any] | None = None
    equalities: Callable[[dict[Any, slice], int], Matrix] | None = None
    covariance: Callable[[int], Any] | None = None
    noise: str = "gaussian"
    recodes: list[str] = field(default_factory=list)

    def instance(self, seed: int = 0) -> Instance:
        """The problem, its matrices, and measurements of invented counts."""
        rng = np.random.default_rng(seed)
        described = self._described()
        M, variances, empty = described.marginal_matrix(), described.variances, described.empty_cells()
        counts = np.where(empty, 0.0, rng.poisson(4.0, M.shape[1]))
        truth = M @ counts
        given = None if self.covariance is None else self.covariance(len(M))
        Sigma = np.diag(np.where(np.isinf(variances), 0, variances)) if given is None else dense(given)
        cuts = np.cumsum([0, *(block.values.size for block in described.observed)])
        names = [(level, table) for level, own in self._by_level(self.tables).items() for table in own]
        places = {name: slice(a, b) for name, (a, b) in zip(names, pairwise(cuts.tolist()), strict=True)}
        E = np.zeros((0, len(M))) if self.equalities is None else self.equalities(places, len(M))
        exact = variances == 0
        known = np.vstack([M[exact], np.eye(M.shape[1])[empty], E @ M])
        values = np.concatenate([truth[exact], np.zeros(int(empty.sum())), E @ truth])
        y = truth + self._noise(Sigma, rng)
        y[np.isinf(variances)] = np.nan
        if self.equalities is not None:
            described = replace(described, equalities=(E, E @ truth))
        problem = described.problem(noise=self.noise, **({} if given is None else {"covariance": given}))
        return Instance(problem, y, counts, M, described.desired_matrix(), Sigma, known, values)

    def _by_level(self, tables: dict[Any, Any]) -> dict[Any, Any]:
        return tables if self.spine is not None or self.areas is not None else {"": tables}

    def _described(self) -> Described:
        """What the tables mean."""
        parent = level = incidence = None
        levels = dict.fromkeys(self.areas or (self.spine[1] if self.spine else [""]))
        numbers = {name: number for number, name in enumerate(levels)}
        if self.spine is not None:
            parent, level = np.array(self.spine[0]), np.array([numbers[name] for name in self.spine[1]])
        if self.areas is not None:
            leaves = len(self.areas["Leaf"])
            level = np.repeat(np.arange(len(self.areas)), [len(own) for own in self.areas.values()])
            incidence = np.array([weights_of(area, leaves) for own in self.areas.values() for area in own])
        groups = {name: RECODES[name] for name in self.recodes}
        shell = Described(VARIABLES, groups, parent, level, (), (), incidence=incidence, names=tuple(levels))

        def block(name: str, table: str, given: Any = 0.0) -> Block:
            own, values = block_of(numbers[name], table), np.asarray(given)
            shape = (shell.members(own.level).size, *shell.shape(own.factors))
            if shell.has_places and values.shape == shape[:1]:
                values = values.reshape(-1, *[1] * len(own.factors))
            return replace(own, values=np.broadcast_to(values, shape))

        zeros = self.zeros or {}
        return replace(
            shell,
            observed=tuple(
                block(name, t, v) for name, own in self._by_level(self.tables).items() for t, v in own.items()
            ),
            desired=tuple(block(name, table) for name in levels for table in self.desired),
            zeros=tuple(block(*(key if shell.has_places else ("", key)), flags) for key, flags in zeros.items()),
        )

    def _noise(self, Sigma: Matrix, rng: np.random.Generator) -> Matrix:
        values, vectors = np.linalg.eigh(Sigma)
        noise = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(len(Sigma)))
        return np.round(noise) if self.noise.startswith("discrete") else noise


def dense(covariance: Any) -> Matrix:
    """A covariance of any kind as a matrix."""
    if isinstance(covariance, LowRankPlusDiagonal):
        return np.diag(covariance.diagonal) + covariance.factor @ covariance.factor.T
    return np.asarray(covariance.matrix if isinstance(covariance, Solvable) else covariance, dtype=float)


class Solvable(LinearOperator):
    """A covariance that is known by what it does, with its inverse or without."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        super().__init__(np.dtype(float), matrix.shape)

    def _matmat(self, X: Matrix) -> Matrix:
        return self.matrix @ X

    def _adjoint(self) -> Solvable:
        return self


class WithInverse(Solvable):
    """The same with a method that solves."""

    def solve(self, V: Matrix) -> Matrix:
        """The inverse times V."""
        return np.linalg.solve(self.matrix, V)


def correlated(size: int) -> Matrix:
    """A tridiagonal covariance of unequal variances."""
    scales = np.sqrt(np.linspace(1, 3, size))
    return (np.eye(size) + 0.3 * (np.eye(size, k=1) + np.eye(size, k=-1))) * np.outer(scales, scales)


def shared(size: int) -> LowRankPlusDiagonal:
    """One source of noise that every other cell shares."""
    return LowRankPlusDiagonal(np.full(size, 2.0), np.where(np.arange(size) % 2, 0.0, 1.0)[:, None])


def _pair(name: Any, first: int, second: int) -> Callable[[dict[Any, slice], int], Matrix]:
    """One equality: the difference of two cells of a table."""

    def rows(places: dict[Any, slice], size: int) -> Matrix:
        row = np.zeros((1, size))
        row[0, places[name].start + first], row[0, places[name].start + second] = 1, -1
        return row

    return rows


def _sum_of(name: Any, cells: list[int]) -> Callable[[dict[Any, slice], int], Matrix]:
    def rows(places: dict[Any, slice], size: int) -> Matrix:
        row = np.zeros((1, size))
        row[0, [places[name].start + cell for cell in cells]] = 1
        return row

    return rows


def _equations() -> Instance:
    """An instance whose cells are the nodes of equations."""
    A, b = np.array([[1.0, -1, -1, 0], [0, 0, 1, 2]]), np.array([0.0, 13.0])
    counts, variances = np.array([9.0, 4, 5, 4]), np.array([1.0, 2, 3, 4])
    y = counts + np.sqrt(variances) * np.random.default_rng(0).standard_normal(counts.size)
    eye = np.eye(counts.size)
    return Instance(Problem.from_matrix(A, variances, b), y, counts, eye, eye, np.diag(variances), A, b)


def _sums(S: Matrix) -> Instance:
    """An instance whose cells are leaves."""
    counts, variances = np.array([3.0, 5, 2])[: S.shape[1]], np.linspace(1, 2, len(S))
    y = S @ counts + np.sqrt(variances) * np.random.default_rng(0).standard_normal(len(S))
    nothing = np.zeros((0, counts.size)), np.zeros(0)
    return Instance(Problem.from_summing_matrix(S, variances), y, counts, S, S, np.diag(variances), *nothing)


PLAIN = {"total": 1.0, "a": 2.0, "b": 3.0, "detailed": 4.0}
ON_SPINE = {"US": {"total": 1.0, "a": 2.0}, "State": {"b": 3.0, "detailed": 4.0}}
SPINE = (PARENTS, LEVELS)
NESTED: dict[str, list[Area]] = {"Region": [[0, 1], [2]], "Leaf": [[0], [1], [2]]}
CROSSED: dict[str, list[Area]] = {"Region": [[0, 1], [2]], "Product": [[0, 2], [1]], "Leaf": [[0], [1], [2]]}
WEIGHTED: dict[str, list[Area]] = {
    "Region": [{0: 3.0}, {1: 2.0, 2: 0.5}],
    "Balance": [{0: 1.0, 1: -1.0}],
    "Leaf": [[0], [1], [2]],
}
ON_AREAS = {"Region": {"total": 1.0, "a": 2.0}, "Product": {"b": 3.0}, "Leaf": {"detailed": 4.0}}
CELLWISE = np.arange(1.0, 7.0).reshape(2, 3)
HOLE = np.where(np.arange(6) == 4, np.inf, 4.0).reshape(2, 3)
EMPTY = np.array([[True, False, False], [False, False, True]])

_MADE: dict[str, Callable[[], Instance]] = {
    "equal variances": Description(PLAIN, ["a", "total", "detailed"]).instance,
    "a variance for every cell": Description(PLAIN | {"detailed": CELLWISE}, ["a", "detailed"]).instance,
    "a table known exactly": Description(PLAIN | {"a": 0.0}, ["a", "detailed"]).instance,
    "cells known exactly": Description(PLAIN | {"b": [0.0, 2.0, 0.0]}, ["b", "detailed"]).instance,
    "a table not measured": Description(PLAIN | {"b": np.inf}, ["b", "detailed"]).instance,
    "cells not measured": Description(PLAIN | {"detailed": HOLE}, ["a", "detailed"]).instance,
    "no detailed table": Description({"total": 1.0, "a": 2.0, "b": 3.0}, ["total", "b"]).instance,
    "structural zeros": Description(PLAIN, ["a", "detailed"], zeros={"detailed": EMPTY}).instance,
    "equalities": Description(PLAIN, ["b", "detailed"], equalities=_pair(("", "b"), 0, 2)).instance,
    "equalities on unmeasured cells": Description(
        PLAIN | {"b": np.inf}, ["a", "detailed"], equalities=_sum_of(("", "b"), [0, 1])
    ).instance,
    "equalities that alone determine cells": Description(
        {"total": 1.0, "a": np.inf}, ["total"], equalities=_sum_of(("", "a"), [0])
    ).instance,
    "recodes": Description(PLAIN | {"a * adult": 2.5}, ["adult", "detailed"], recodes=["adult"]).instance,
    "crossing recodes": Description(
        {"total": 1.0, "adult": 2.0, "a * odd": 3.0, "detailed": 4.0}, ["a", "detailed"], recodes=["adult", "odd"]
    ).instance,
    "a spine": Description(ON_SPINE, ["total", "a"], SPINE).instance,
    "a spine, a variance for every cell": Description(
        {"US": {"total": 1.0, "a": 2.0}, "State": {"detailed": np.arange(1.0, 13.0).reshape(2, 2, 3)}},
        ["total", "a"],
        SPINE,
    ).instance,
    "a spine, a variance for every geounit": Description(
        {"US": {"total": 1.0, "b": 2.0}, "State": {"a": [1.0, 3.0], "detailed": [4.0, 2.0]}}, ["total", "a"], SPINE
    ).instance,
    "a spine with recodes": Description(
        {"US": {"adult": 1.0, "total": 2.0}, "State": {"a * adult": 3.0, "detailed": 4.0}},
        ["total", "adult"],
        SPINE,
        recodes=["adult"],
    ).instance,
    "an uneven spine": Description(
        {"US": {"total": 1.0, "a": 2.0}, "State": {"detailed": 4.0, "total": 2.0}, "County": {"detailed": 3.0}},
        ["total"],
        ([-1, 0, 0, 1], ["US", "State", "State", "County"]),
    ).instance,
    "a spine with a table not measured": Description(
        {"US": {"total": 1.0, "b": np.inf}, "State": {"a": [np.inf, 2.0], "detailed": 4.0}}, ["total", "b"], SPINE
    ).instance,
    "a spine with structural zeros": Description(
        ON_SPINE, ["total", "a"], SPINE, zeros={("US", "detailed"): EMPTY[None]}
    ).instance,
    "a spine with equalities": Description(
        ON_SPINE, ["total", "a"], SPINE, equalities=_pair(("State", "b"), 0, 3)
    ).instance,
    "a spine with exact totals": Description(
        {"US": {"total": 0.0, "a": 2.0}, "State": {"total": [0.0, 1.0], "detailed": 4.0}}, ["total", "a"], SPINE
    ).instance,
    "areas that cross": Description(ON_AREAS, ["total", "a"], areas=CROSSED).instance,
    "areas that nest": Description(
        {"Region": {"total": 1.0, "a": [2.0, 3.0]}, "Leaf": {"detailed": 4.0}}, ["total", "a"], areas=NESTED
    ).instance,
    "areas that cross, with zeros and equalities": Description(
        ON_AREAS,
        ["total", "a"],
        areas=CROSSED,
        zeros={("Region", "detailed"): np.array([EMPTY, ~EMPTY & False])},
        equalities=_pair(("Product", "b"), 0, 3),
    ).instance,
    "areas with weights": Description(
        {"Region": {"total": 1.0, "detailed": 2.0}, "Balance": {"a": 0.0}, "Leaf": {"detailed": 4.0}},
        ["total", "a"],
        areas=WEIGHTED,
    ).instance,
    "correlated noise, sparse": Description(PLAIN, ["a", "detailed"], covariance=correlated).instance,
    "a spine with correlated noise": Description(ON_SPINE, ["total", "a"], SPINE, covariance=correlated).instance,
    "a spine with low-rank correlated noise": Description(ON_SPINE, ["total", "a"], SPINE, covariance=shared).instance,
    "correlated noise, an operator": Description(
        PLAIN, ["a", "detailed"], covariance=lambda n: WithInverse(correlated(n))
    ).instance,
    "low-rank correlated noise": Description(PLAIN, ["a", "detailed"], covariance=shared).instance,
    "Laplace noise": Description(PLAIN, ["a", "detailed"], noise="laplace").instance,
    "discrete Gaussian noise": Description(PLAIN, ["a", "detailed"], noise="discrete_gaussian").instance,
    "equations A x = b": _equations,
    "a tree of sums": lambda: _sums(np.array([[1.0, 1, 1], [1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])),
    "crossed sums": lambda: _sums(np.array([[1.0, 1, 0], [0, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])),
}

FEATURES = {feature: cache(make) for feature, make in _MADE.items()}
