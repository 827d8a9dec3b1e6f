"""Certificates of many overlapping tables whose joint table is out of reach: contrasts, each judged once.

What residuals say of the counts splits into parts, one for each set T of variables: functions of the cells of T that
sum to zero along each of its axes. Parts do not mix, and every measured table S that contains T bears on T's with
information 1 / (largest variance in S * levels of S outside T). The size of a part in this information is exact where
variances are equal within tables, and a bound otherwise.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from blue_solvers.verification.weighed_noise import ROUNDING, NotCertifiedError, WeighedNoise
from constraint_builders import Problem
from constraint_builders.arrays import Float

Key = tuple[int, ...]
EXTENDED = float(np.finfo(np.longdouble).eps)
MOST_CELLS = 4.0  # of all tables that some observed table contains, for each observed cell
EXACT_TO = 1e-13


class Separated:
    """All tables that some observed table contains, by their variables.

    Raises
    ------
    NotCertifiedError
        Where there are recodes, places, exact knowledge about single cells, or too many tables.
    """

    def __init__(self, problem: Problem, noise: WeighedNoise) -> None:
        if noise.correlated is not None:
            raise NotCertifiedError("its noise is correlated and its counts are too many to list")
        one_place = problem.is_tabular and problem.spine is None
        special = not one_place or problem.equalities is not None or problem.zeros is not None
        factors = {factor for table in problem.observed_tables for factor in table.factors}
        if special or not factors.issubset(problem.domain.schema.names):
            raise NotCertifiedError("its counts are too many to list, and it is more than plain tables of one place")
        self.shape = problem.domain.schema.shape
        self.observed = {table.axes: i for i, table in enumerate(problem.observed_tables)}
        self.steepest: dict[Key, float] = {}  # largest standard deviation; none where nothing was measured
        self.least: dict[Key, float] = {}
        budget = MOST_CELLS * problem.observed.size + 1e6
        keys: set[Key] = set()
        for key, i in self.observed.items():
            cells = problem.observed.block(i)
            keys.update(sub for k in range(len(key) + 1) for sub in combinations(key, k))
            if len(keys) > budget:
                raise NotCertifiedError("its tables contain too many others")
            unmeasured, exact = problem.unmeasured[cells], problem.exact[cells]
            if (unmeasured.any() and not unmeasured.all()) or (exact.any() and not exact.all()):
                raise NotCertifiedError(
                    "a table is measured, or known exactly, in part, and its counts are too many to list"
                )
            if not unmeasured.all():
                self.steepest[key] = float(noise.sd[cells].max())
                self.least[key] = float(noise.least[cells].min())
        self.keys = sorted(keys, key=lambda key: (len(key), key), reverse=True)
        if sum(self.size(key) for key in self.keys) > budget:
            raise NotCertifiedError("its tables contain too many others")
        self.density = self.densities(self.steepest)

    def size(self, key: Key) -> int:
        """Cells of a table."""
        return int(np.prod([self.shape[axis] for axis in key], dtype=np.int64))

    def densities(self, sd: dict[Key, float]) -> dict[Key, float]:
        """Information about every set's part, for each table that contains it 1 / (variance * levels outside)."""
        found = dict.fromkeys(self.keys, 0.0)
        for key, value in sd.items():
            found[key] = np.inf if value == 0 else 1 / value**2
        for axis, n in enumerate(self.shape):
            for key in self.keys:
                if axis in key:
                    found[_without(key, axis)] += found[key] / n
        return found

    def least_variances(self) -> dict[Key, float]:
        """Of a cell of every table, were all variances within each table as small as the least."""
        density, found = self.densities(self.least), {}
        for key in self.keys:
            share = float(np.prod([1 - 1 / self.shape[axis] for axis in key]))
            found[key] = 0.0 if not share else share / density[key] if density[key] else np.inf
        for axis, n in enumerate(self.shape):
            for key in reversed(self.keys):
                if axis in key:
                    found[key] += found[_without(key, axis)] / n**2
        return found


def _without(key: Key, axis: int) -> Key:
    return tuple(other for other in key if other != axis)


def certify_wide(problem: Problem, noise: WeighedNoise, family: Separated, y: Float, x: Float) -> tuple[float, float]:
    """Bound and violation, both in standard errors."""
    rho, off = noise.weighted(y - x)
    optimality = _parts(problem, family, rho)
    sizes, violation = _disagreements(problem, noise, family, y, x)
    variances = family.least_variances()
    apart, figures, scale = 0.0, 0.0, float(np.nanmax(abs(x), initial=0.0))
    for key, (size, worst) in sizes.items():
        if variances[key] == 0 and worst > EXACT_TO * scale:
            raise NotCertifiedError(f"a figure that is known exactly is off by {worst:.3g}")
        if variances[key] > 0:
            figures = max(figures, worst / float(np.sqrt(variances[key])) * (1 + 1e-9))
        if family.least.get(key, 0.0) > 0:
            apart += (size / family.least[key]) ** 2
    return optimality + off + float(np.sqrt(apart)) + figures, violation


def _parts(problem: Problem, family: Separated, rho: Float) -> float:
    """The residuals' parts in the norm of the information about each, with the rounding of splitting them."""
    held: dict[Key, Float] = {}
    added: dict[Key, float] = dict.fromkeys(family.keys, 0.0)  # sizes of what was added up in every table
    square, rounding = 0.0, 0.0
    for key in family.keys:
        cells = held.pop(key) if key in held else np.zeros([family.shape[axis] for axis in key])
        if key in family.observed:
            own = rho[problem.observed.block(family.observed[key])].reshape(cells.shape)
            added[key] += float(np.linalg.norm(own))
            cells = cells + own
        for place, axis in enumerate(key):
            mean = cells.mean(axis=place)
            cells -= np.expand_dims(mean, place)
            rest = key[:place] + key[place + 1 :]
            size = float(np.linalg.norm(mean))
            added[key] += size * np.sqrt(family.shape[axis])
            added[rest] += size
            held[rest] = held[rest] + mean if rest in held else mean
        density = family.density[key]
        if density == np.inf or not cells.any():
            continue
        square += float(np.vdot(cells, cells)) / density
        adds = len(key) + len(family.shape) + 2
        rounding += (adds * ROUNDING * added[key]) ** 2 / density
    return float(np.sqrt(square)) * (1 + rho.size * ROUNDING) + float(np.sqrt(rounding))


def _disagreements(
    problem: Problem, noise: WeighedNoise, family: Separated, y: Float, x: Float
) -> tuple[dict[Key, tuple[float, float]], float]:
    """How far every observed table is from tables that agree, in norm and in its worst cell; and the latter in errors.

    The tables that agree have each set's part from its own table, in extended precision.
    """
    certain = _certain(problem, family, x, y, float(np.nanmax(abs(x), initial=0.0)))
    agreeing: dict[Key, NDArray] = {}
    rounding: dict[Key, float] = {}
    unobserved: dict[Key, NDArray] = {}
    for key in family.keys:
        given = _given(problem, family, x, key)
        found = certain.get(key), given, unobserved.pop(key, None)
        table = next(own for own in found if own is not None)
        part = table.astype(np.longdouble)
        for place in range(len(key)):
            rest = key[:place] + key[place + 1 :]
            if rest not in certain and rest not in unobserved and _given(problem, family, x, rest) is None:
                unobserved[rest] = table.sum(axis=place, dtype=np.longdouble)
            part -= part.mean(axis=place, keepdims=True)
        agreeing[key] = part
        operations = sum(family.shape[axis] + 4 for axis in key) + 2
        rounding[key] = operations * EXTENDED * float(np.linalg.norm(table.astype(float)))
    for axis, n in enumerate(family.shape):
        for key in family.keys:
            if axis in key:
                rest = _without(key, axis)
                agreeing[key] += np.expand_dims(agreeing[rest], key.index(axis)) / n
                rounding[key] += rounding[rest] / np.sqrt(n)
    sizes, violation = {}, 0.0
    for key in family.observed:
        given = _given(problem, family, x, key)
        if given is not None:
            gap = abs(given - agreeing[key]).astype(float)
            sizes[key] = float(np.linalg.norm(gap)) + rounding[key], float(gap.max()) + rounding[key]
            if family.steepest.get(key, 0.0) > 0:
                violation = max(violation, sizes[key][1] / family.steepest[key])
    return sizes, violation


def _certain(problem: Problem, family: Separated, x: Float, y: Float, scale: float) -> dict[Key, NDArray]:
    """Tables that follow from one that is known exactly, as the values known say."""
    found: dict[Key, NDArray] = {}
    for key in family.keys:
        exact = _given(problem, family, y, key) if family.steepest.get(key) == 0 else None
        if exact is not None:
            found.setdefault(key, exact.astype(np.longdouble))
            if abs(exact - found[key]).max() > EXACT_TO * scale:
                raise NotCertifiedError("values known exactly contradict one another")
            given = _given(problem, family, x, key)
            off = float("inf") if given is None else float(abs(given - exact).max())
            if off > EXACT_TO * scale:
                raise NotCertifiedError(f"x contradicts what is known exactly by {off:.3g}")
        if key in found:
            for place in range(len(key)):
                found.setdefault(key[:place] + key[place + 1 :], found[key].sum(axis=place))
    return found


def _given(problem: Problem, family: Separated, vector: Float, key: Key) -> Float | None:
    """A table of a vector, if it was observed and has values."""
    i = family.observed.get(key)
    if i is None or not np.isfinite(vector[problem.observed.block(i)]).all():
        return None
    return vector[problem.observed.block(i)].reshape([family.shape[axis] for axis in key])
