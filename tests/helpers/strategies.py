"""Problems that hypothesis makes up: any schema, any tables, variances over eight decades."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from scipy import sparse

from constraint_builders import Problem, Schema

MOST_CELLS = 90  # of all observed tables: keeps the exact rationals fast
# a * 2^k: eight decades, and 1/variance keeps small denominators in the exact reference.
VARIANCES = st.builds(lambda a, k: a * 2.0**k, st.sampled_from([1, 1.25, 1.5, 1.75]), st.integers(-13, 13))


@dataclass(frozen=True)
class Case:
    """What a problem is made from, kept apart for the independent reference."""

    schema: Schema
    observed: dict[str, Any]
    desired: list[str]
    covariance: np.ndarray | None = None

    def problem(self) -> Problem:
        """The problem of the package."""
        if self.covariance is None:
            return Problem(self.schema, self.observed, self.desired)
        return Problem(
            self.schema, dict.fromkeys(self.observed), self.desired, covariance=sparse.csr_array(self.covariance)
        )

    @property
    def variances(self) -> np.ndarray:
        """One variance for every observed cell."""
        if self.covariance is not None:
            return self.covariance.diagonal().copy()
        return np.concatenate(
            [np.broadcast_to(v, shape_of(self.schema, name)).ravel() for name, v in self.observed.items()]
        ).astype(float)


def shape_of(schema: Schema, name: str) -> tuple[int, ...]:
    """Shape of a table, its axes in the order of its name."""
    if name == "total":
        return ()
    if name == "detailed":
        return schema.shape
    return tuple(schema.size_of(factor.strip()) for factor in name.split("*"))


@st.composite
def schemas(draw, most_variables: int = 5, most_levels: int = 7, recodes: bool = True) -> Schema:
    """1 to 5 variables of 1 to 7 levels; sometimes a recode, or two that nest."""
    sizes = draw(st.lists(st.integers(1, most_levels), min_size=1, max_size=most_variables))
    found: dict[str, dict[str, list[int]]] = {}
    for i, size in enumerate(sizes):
        if recodes and size >= 3 and draw(st.integers(0, 3)) == 0:
            groups = draw(partitions(size, size - 1))
            found[f"v{i}"] = {f"r{i}": groups}
            if max(groups) >= 2 and draw(st.booleans()):
                coarse = draw(partitions(max(groups) + 1, max(groups)))
                found[f"v{i}"][f"q{i}"] = [coarse[g] for g in groups]
    return Schema({f"v{i}": size for i, size in enumerate(sizes)}, found)


@st.composite
def partitions(draw, size: int, most_groups: int) -> list[int]:
    """A partition of some levels into 2 to `most_groups` groups, none empty."""
    count = draw(st.integers(2, most_groups))
    rest = draw(st.lists(st.integers(0, count - 1), min_size=size - count, max_size=size - count))
    return draw(st.permutations([*range(count), *rest]))


@st.composite
def table_names(draw, schema: Schema) -> str:
    """Some table, its factors in any order."""
    choices = []
    for axis, name in enumerate(schema.names):
        own = [name, *(recode.name for recode in schema.recodes if recode.axis == axis)]
        choices.append(draw(st.sampled_from([None, *own])))
    factors = draw(st.permutations([choice for choice in choices if choice is not None]))
    return " * ".join(factors) or "total"


def canonical(schema: Schema, name: str) -> frozenset[str]:
    """The factors of a table, whatever their order."""
    if name in ("total", "detailed"):
        return frozenset() if name == "total" else frozenset(schema.names)
    return frozenset(part.strip() for part in name.split("*"))


@st.composite
def cases(
    draw,
    kind: str = "equal",
    recodes: bool = True,
    special: bool = True,
    most_cells: int = MOST_CELLS,
    most_variables: int = 5,
) -> Case:
    """A problem to be.

    Parameters
    ----------
    kind : {"equal", "unequal", "covariance"}
        Equal variances within tables, unequal ones, or a sparse covariance.
    recodes : bool
    special : bool
        Whether some tables are exact, some not measured, and with `kind` "unequal" some cells.
    """
    schema = draw(schemas(most_variables=most_variables, recodes=recodes))
    names: dict[frozenset[str], str] = {}
    cells = 0
    for name in draw(st.lists(table_names(schema), min_size=1, max_size=7)):
        size = prod(shape_of(schema, name))
        if canonical(schema, name) not in names and cells + size <= most_cells:
            names[canonical(schema, name)] = name
            cells += size
    assume(names)
    covariance = draw(covariances(cells)) if kind == "covariance" else None
    observed = {
        name: None if kind == "covariance" else draw(table_variance(shape_of(schema, name), kind, special))
        for name in names.values()
    }
    sources = [name for name, v in observed.items() if v is None or not np.isinf(v).all()]
    assume(sources)
    desired = draw(desired_tables(schema, list(observed), sources))
    return Case(schema, observed, desired, covariance)


@st.composite
def desired_tables(draw, schema: Schema, observed: list[str], sources: list[str]) -> list[str]:
    """The observed tables, or some that can be summed from them."""
    if len(sources) == len(observed) and draw(st.booleans()):
        return list(observed)
    wanted: dict[frozenset[str], str] = {}
    for _ in range(draw(st.integers(1, 4))):
        factors = sorted(canonical(schema, draw(st.sampled_from(sources))))
        kept = [factor for factor in factors if draw(st.booleans())]
        wanted.setdefault(frozenset(kept), " * ".join(draw(st.permutations(kept))) or "total")
    return list(wanted.values())


@st.composite
def table_variance(draw, shape: tuple[int, ...], kind: str, special: bool) -> Any:
    """A variance for a table: a number, or an array of its shape."""
    if special and draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from([0.0, np.inf]))
    if kind == "equal":
        return draw(VARIANCES)
    size = prod(shape)
    cell = st.one_of(VARIANCES, st.sampled_from([0.0, np.inf])) if special and draw(st.booleans()) else VARIANCES
    return np.array(draw(st.lists(cell, min_size=size, max_size=size))).reshape(shape)


@st.composite
def covariances(draw, size: int) -> np.ndarray:
    """Diagonally dominant, with a few whole-number entries off the diagonal."""
    matrix = np.zeros((size, size))
    if size > 1:
        for _ in range(draw(st.integers(1, 6))):
            i, j = draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))
            matrix[i, j] = matrix[j, i] = draw(st.integers(-3, 3))
    extra = draw(st.lists(st.sampled_from([1, 2, 5, 40]), min_size=size, max_size=size))
    return matrix + np.diag(abs(matrix).sum(axis=1) + extra)
