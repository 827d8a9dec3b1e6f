"""Problems that a seed invents: every mixture of spine, recodes, zeros, equalities, exact and unmeasured cells."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from constraint_builders import Problem
from tests.helpers.oracles.description import Block, Description
from tests.helpers.oracles.exact import Reference, solve


@dataclass(frozen=True)
class Size:
    """How large an invented problem may be; what is so of the smallest keeps the exact reference fast.

    Attributes
    ----------
    rows, columns : int
        Observed cells, and detailed cells of all leaves.
    variables, levels, places, leaves, tables : int
        Variables and their levels, geounits, leaves of areas, tables of a geolevel; one more than there may be.
    least : int
        Observed cells that there have to be.
    """

    rows: int = 70
    columns: int = 110
    variables: int = 4
    levels: int = 6
    places: int = 10
    leaves: int = 8
    tables: int = 5
    least: int = 1


@dataclass(frozen=True)
class Kind:
    """What an invented problem may have.

    Attributes
    ----------
    decades : float
        How far variances spread.
    count : float
        Mean count of a detailed cell.
    cellwise : bool
        Whether variances differ within tables.
    nested : bool
        Whether a second recode of a variable may be one of the first.
    turned : bool
        Whether names of tables, observed and desired, give their factors in any order.
    """

    spine: bool = True
    areas: str = ""  # "", "sets", "weights", "floats", "large", "cut"; instead of a spine
    coefficients: str = "whole"  # "whole", "floats", "decades"; of equalities
    recodes: bool = True
    zeros: bool = True
    equalities: bool = True
    exact: bool = True
    unmeasured: bool = True
    cellwise: bool = False
    covariance: str = ""  # "", "sparse", "shared"
    decades: float = 4.0
    count: float = 20.0
    nested: bool = False
    turned: bool = False
    size: Size = Size()


@dataclass(frozen=True)
class Invented:
    """A problem with its data and its answer."""

    description: Description
    y: np.ndarray
    truth: np.ndarray
    reference: Reference


@lru_cache(maxsize=512)
def invent(
    seed: int,
    kind: Kind = Kind(),
    wanted: Callable[[Description], bool] = lambda described: True,
) -> Invented | None:
    """The problem of a seed, or None where it is not `wanted` or the seed leads to nothing that can be estimated."""
    rng = np.random.default_rng(seed)
    sizes, groups = _variables(rng, kind)
    parent, level = _tree(rng, kind.size) if kind.spine and rng.random() < 0.6 else (None, None)
    shell = Description(sizes, groups, parent, level, (), ())
    if kind.areas:
        cut = kind.areas == "cut"
        incidence, level = (
            areas_within_areas(rng, kind.size) if cut else invented_areas(rng, kind.areas == "weights", kind.size)
        )
        above = level < level.max()
        incidence[above] = incidence[above] * _weights(rng, kind.areas, incidence[above].shape)
        shell = Description(sizes, groups, None, level, (), (), incidence=incidence)
    if shell.leaves.size * prod(sizes.values()) > kind.size.columns:
        return None
    observed = _observed(rng, kind, shell)
    if sum(block.values.size for block in observed) < kind.size.least:
        return None
    zeros = _zeros(rng, shell) if kind.zeros and rng.random() < 0.35 else ()
    described = replace(shell, observed=observed, zeros=zeros)
    counts = rng.poisson(kind.count, shell.leaves.size * prod(sizes.values())).astype(float)
    counts[described.empty_cells()] = 0
    truth = described.marginal_matrix() @ counts
    if kind.equalities and rng.random() < 0.4:
        described = replace(described, equalities=_equalities(rng, kind, described, truth))
    if kind.covariance:
        described = _correlated(rng, described, kind.covariance)
    if not wanted(described):  # before the answer is worked out, which takes longest
        return None
    y = _measure(rng, described, truth)
    desired, reference = _desired(rng, described, y, kind.turned)
    if not desired:
        return None
    y.flags.writeable = truth.flags.writeable = False  # tests share it
    return Invented(replace(described, desired=desired), y, truth, reference)


def some_with(
    seed: int,
    kind: Kind,
    wanted: Callable[[Description], bool] = lambda described: True,
) -> Invented:
    """The first of a seed and those after it that is `wanted` and that the package takes as a problem."""
    for found, _ in taken(range(seed, seed + 1000), kind, wanted):
        return found
    raise AssertionError("no invention is wanted")


def taken(
    seeds: Iterable[int],
    kind: Kind,
    wanted: Callable[[Description], bool] = lambda described: True,
) -> Iterator[tuple[Invented, Problem]]:
    """Of the inventions of some seeds those that are `wanted` and that the package takes as a problem, and this."""
    for seed in seeds:
        found, problem = invent(seed, kind, wanted), None
        if found is not None:
            with suppress(ValueError):  # what equalities alone determine is refused
                problem = found.description.problem()
            if problem is not None:
                yield found, problem


def _variables(rng: np.random.Generator, kind: Kind) -> tuple[dict[str, int], dict]:
    sizes = {f"v{i}": int(rng.integers(1, kind.size.levels)) for i in range(rng.integers(1, kind.size.variables))}
    groups: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, size in sizes.items():
        for k in range(int(rng.choice([0, 1, 2], p=[0.4, 0.35, 0.25])) if kind.recodes and size >= 3 else 0):
            count = int(rng.integers(2, size))
            found = rng.permutation(np.concatenate([np.arange(count), rng.integers(0, count, size - count)]))
            if kind.nested and k and rng.random() < 0.5:  # the one before, coarser
                found = np.minimum(np.array(groups.get(f"r{name[1:]}a", (name, found))[1]), 1)
            if not any(_same(found, np.array(other)) for _, other in groups.values() if len(other) == size):
                groups[f"r{name[1:]}{'abc'[k]}"] = (name, tuple(int(g) for g in found))
    return sizes, groups


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return len({*zip(one.tolist(), other.tolist(), strict=True)}) == one.max() + 1 == other.max() + 1


def _tree(rng: np.random.Generator, size: Size) -> tuple[np.ndarray, np.ndarray]:
    parent, level = [-1], [0]
    for depth in range(1, int(rng.integers(2, 5))):
        for above in [i for i, own in enumerate(level) if own < depth]:
            if len(parent) >= size.places - 1:
                break
            skips = level[above] < depth - 1
            count = int(rng.integers(0, 2)) if skips else int(rng.integers(0, 4))
            parent += [above] * count
            level += [depth] * count
    levels = {old: new for new, old in enumerate(sorted(set(level)))}
    return np.array(parent), np.array([levels[own] for own in level])


def invented_areas(rng: np.random.Generator, weighted: bool, size: Size = Size()) -> tuple[np.ndarray, np.ndarray]:
    """Areas over a few leaves: partitions, overlapping and empty ones, of one leaf, twice the same; the leaves last."""
    leaves = int(rng.integers(1, size.leaves))
    rows, level = [], []
    for layer in range(int(rng.integers(1, 4))):
        count = int(rng.integers(1, 4))
        if rng.random() < 0.6:
            own = np.eye(count)[:, rng.integers(0, count, leaves)]
        else:
            own = (rng.random((count, leaves)) < rng.choice([0.2, 0.5, 0.9])).astype(float)
        if weighted and rng.random() < 0.6:
            own = own * rng.choice([1.0, 2.0, 0.5, -1.0, 3.0], own.shape)
        if rows and rng.random() < 0.3:
            own[0] = rows[-1][rng.integers(len(rows[-1]))]
        rows.append(own)
        level += [layer] * count
    rows.append(np.eye(leaves))
    return np.vstack(rows), np.array(level + [len(rows) - 1] * leaves)


def areas_within_areas(rng: np.random.Generator, size: Size = Size()) -> tuple[np.ndarray, np.ndarray]:
    """A tree of one to three layers, and inside each of its lowest areas others that cross; the leaves last."""
    leaves = int(rng.integers(2, size.leaves + 1))
    lowest = np.sort(rng.integers(0, int(rng.integers(1, 4)), leaves))
    lowest = np.unique(lowest, return_inverse=True)[1]
    layers = [np.eye(lowest.max() + 1)[:, lowest]]
    for _ in range(int(rng.integers(0, 3))):
        above = np.unique(rng.integers(0, 3, len(layers[0])), return_inverse=True)[1]
        layers.insert(0, np.eye(above.max() + 1)[:, above] @ layers[0])
    for _ in range(int(rng.integers(1, 3))):
        rows = []
        for own in np.eye(lowest.max() + 1)[:, lowest]:
            for _ in range(int(rng.integers(0, 4))):
                weights = rng.choice([1.0, 1.0, 1.0, 2.0, 0.5, -1.0], leaves)
                rows.append(own * (rng.random(leaves) < 0.6) * weights)
        layers += [np.array(rows)] if rows else []
    layers.append(np.eye(leaves))
    return np.vstack(layers), np.concatenate([np.full(len(own), i) for i, own in enumerate(layers)])


def _weights(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of few bits, so that sums of counts that they weigh are exact."""
    if kind == "floats":
        return rng.integers(1, 256, shape) / 256 * rng.choice([1.0, 1.0, -1.0], shape)
    if kind == "large":
        return np.rint(rng.uniform(1, 123_456, shape))
    if kind == "decades":
        return rng.integers(1, 16, shape) * 2.0 ** rng.integers(-12, 9, shape) * rng.choice([1.0, -1.0], shape)
    return np.ones(shape)


def drawn_factors(rng: np.random.Generator, d: Description) -> tuple[str, ...]:
    """Some table."""
    chosen = []
    for name in d.sizes:
        own = [None, name, *(g for g, (variable, _) in d.groups.items() if variable == name)]
        chosen.append(own[rng.integers(len(own))])
    return tuple(f for f in chosen if f is not None)


def _levels(d: Description) -> list[int]:
    return [0] if d.level is None else sorted(set(d.level.tolist()))


def _observed(rng: np.random.Generator, kind: Kind, d: Description) -> tuple[Block, ...]:
    found: list[Block] = []
    rows = 0
    for level in _levels(d):
        tables: set[tuple[str, ...]] = set()
        for _ in range(int(rng.integers(1, kind.size.tables))):
            tables.add(drawn_factors(rng, d))
        if rng.random() < 0.5:
            tables.add(tuple(d.sizes))
        for factors in sorted(tables):
            if kind.turned:
                factors = tuple(rng.permutation(factors).tolist())
            shape = (d.members(level).size, *d.shape(factors))
            if rows + prod(shape) <= kind.size.rows:
                found.append(Block(level, factors, _variances(rng, kind, shape)))
                rows += prod(shape)
    if any(np.isfinite(b.values).any() for b in found):
        return tuple(found)
    return ()


def _variances(rng: np.random.Generator, kind: Kind, shape: tuple[int, ...]) -> np.ndarray:
    def spread(*size: int) -> np.ndarray:
        return 10.0 ** rng.uniform(-kind.decades / 2, kind.decades / 2, size)

    per = shape if kind.cellwise and rng.random() < 0.7 else (shape[0], *[1] * (len(shape) - 1))
    v = np.broadcast_to(spread(*per) if rng.random() < 0.6 else spread(1).reshape([1] * len(shape)), shape).copy()
    for allowed, value in ((kind.exact, 0.0), (kind.unmeasured, np.inf)):
        if allowed and rng.random() < 0.2:
            chosen = rng.random(per) < rng.choice([0.3, 1.0])
            v[np.broadcast_to(chosen, shape)] = value
    return v


def _zeros(rng: np.random.Generator, d: Description) -> tuple[Block, ...]:
    found = {}
    for _ in range(int(rng.integers(1, 3))):
        level, factors = int(rng.choice(_levels(d))), drawn_factors(rng, d)
        shape = (d.members(level).size, *d.shape(factors))
        flags = rng.random(shape) < 0.25
        if d.incidence is not None:  # nothing follows from a difference that is 0
            flags[(d.incidence[d.members(level)] < 0).any(axis=1)] = False
        found[level, factors] = Block(level, factors, flags)
    return tuple(found.values())


def _equalities(
    rng: np.random.Generator, kind: Kind, d: Description, truth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    n = truth.size
    rows = int(rng.integers(1, 4))
    E = np.zeros((rows, n))
    for row in E:
        which = rng.integers(3)
        if which == 0:
            row[rng.integers(n)] = 1
        elif which == 1:
            row[rng.random(n) < 0.3] = 1
        else:
            row[:] = rng.integers(-3, 4, n) * (rng.random(n) < 0.4)
        if kind.coefficients != "whole":
            row *= _weights(rng, kind.coefficients, row.shape)
    if rows > 1 and rng.random() < 0.3:
        E[-1] = E[0] - 2 * E[1] if rows > 2 else 3 * E[0]
    return E, E @ truth


def _correlated(rng: np.random.Generator, d: Description, kind: str) -> Description:
    v = d.variances
    own = np.where(np.isfinite(v), v, 0.0)
    if kind == "shared":
        U = np.sqrt(own)[:, None] * rng.normal(0, 1, (v.size, int(rng.integers(1, 4)))) * (own > 0)[:, None]
        return replace(d, covariance=np.diag(own) + U @ U.T, shared=(v.copy(), U))
    noisy = (own > 0) & np.isfinite(v)
    if not noisy.all():
        usable = [np.where((b.values > 0) & np.isfinite(b.values), b.values, 1.0) for b in d.observed]
        d = replace(d, observed=tuple(replace(b, values=v) for b, v in zip(d.observed, usable, strict=True)))
        own = d.variances
    correlation = np.eye(own.size)
    for _ in range(int(rng.integers(1, 2 * own.size))):
        i, j = rng.integers(0, own.size, 2)
        if i != j:
            correlation[i, j] = correlation[j, i] = rng.uniform(-0.4, 0.4)
    correlation += np.diag(np.maximum(abs(correlation).sum(axis=1) - 1.9, 0))
    root = np.sqrt(own)
    return replace(d, covariance=correlation * np.outer(root, root))


def _measure(rng: np.random.Generator, d: Description, truth: np.ndarray) -> np.ndarray:
    v = d.variances
    noisy = (v > 0) & np.isfinite(v)
    y = truth.copy()
    if d.covariance is None:
        y[noisy] += np.sqrt(v[noisy]) * rng.standard_normal(int(noisy.sum()))
    else:
        S = d.covariance[np.ix_(noisy, noisy)]
        y[noisy] += np.linalg.cholesky(S) @ rng.standard_normal(int(noisy.sum()))
    y[~np.isfinite(v)] = 0
    return y


def _desired(
    rng: np.random.Generator,
    d: Description,
    y: np.ndarray,
    turned: bool = False,
) -> tuple[tuple[Block, ...], Reference]:
    """Tables all of whose cells are determined: the observed ones if they are, and others."""
    pool = [Block(b.level, b.factors) for b in d.observed]
    pool += [Block(int(rng.choice(_levels(d))), drawn_factors(rng, d)) for _ in range(4)]
    if turned:  # with numbers of their own, so that a seed draws the same cells as without
        orders = np.random.default_rng(len(pool))
        pool = [replace(b, factors=tuple(orders.permutation(b.factors).tolist())) for b in pool]
    unique = {(b.level, frozenset(b.factors)): b for b in pool}
    candidates = tuple(unique.values())
    answer = solve(replace(d, desired=candidates), y)
    sizes = [d.members(b.level).size * prod(d.shape(b.factors)) for b in candidates]
    cuts = np.cumsum([0, *sizes])
    kept = [i for i in range(len(candidates)) if answer.determined[cuts[i] : cuts[i + 1]].all()]
    observed = list(range(len(d.observed)))
    if set(observed) <= set(kept) and rng.random() < 0.5:
        kept = observed
    elif kept:
        kept = sorted(rng.permutation(kept)[: int(rng.integers(1, len(kept) + 1))].tolist())
    if d.has_places:  # the package orders desired tables by geolevel as they are given
        kept.sort(key=lambda i: candidates[i].level)
    cells = np.concatenate([np.arange(cuts[i], cuts[i + 1]) for i in kept]) if kept else np.zeros(0, dtype=int)
    part = replace(answer, **{own: values[cells] for own, values in vars(answer).items() if np.ndim(values)})
    return tuple(candidates[i] for i in kept), part


def plain_tables(seed: int, **options: Any) -> Problem:
    """Tables of one place in which nothing is known but by measuring, with variances over eight decades."""
    kind = Kind(spine=False, zeros=False, equalities=False, nested=True, turned=True, decades=8.0)
    return some_with(seed, replace(kind, **options)).description.problem()


def with_equalities(described: Description) -> bool:
    """Whether cells are tied."""
    return described.equalities is not None


def in_a_tree_with_equalities(described: Description) -> bool:
    """Whether there are geounits, and equalities between their cells."""
    return described.parent is not None and described.equalities is not None


def all_kinds() -> list[Kind]:
    """One of each mixture that a seed may draw from."""
    return [
        Kind(decades=decades, count=count, cellwise=cellwise, covariance=covariance)
        for decades, count, (cellwise, covariance) in product(
            (2.0, 6.0, 12.0), (20.0, 1e6), ((False, ""), (True, ""), (False, "sparse"), (False, "shared"))
        )
    ]
