"""One problem of products that were measured apart, each with a schema and a geography of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import linalg, sparse

from constraint_builders.arrays import Flags, Float, kinds_of_rows
from constraint_builders.description.areas import LEAF
from constraint_builders.description.common_leaves import CommonLeaves, LeavesByGroup, by_layer
from constraint_builders.description.common_schema import (
    CommonSchema,
    CountedParts,
    Parts,
    common_schema,
    require_known_factors,
)
from constraint_builders.description.labelled import read_texts
from constraint_builders.description.low_rank import LowRankPlusDiagonal
from constraint_builders.description.noise import Noise
from constraint_builders.description.schema import Schema
from constraint_builders.description.source_values import SourceValues, Understood
from constraint_builders.description.table import TableNames, make_table, parse_table
from constraint_builders.problem import Problem
from constraint_builders.reading import read_measured_tables

Name: TypeAlias = tuple[str, str]
Measured: TypeAlias = tuple[str, str, Float]


def joint(
    *problems: Problem,
    schema: Schema | None = None,
    recodes: Mapping[str, str] | None = None,
    names: Sequence[str] | None = None,
    desired: Mapping[str, Any] | Sequence[str] | str | None = None,
    only: Parts | None = None,
    beside: Parts | None = None,
    undetermined: Literal["error", "nan"] = "error",
) -> Problem:
    """One problem of products that were measured apart: what all of them say about the same people.

    One schema refines the others: each of their variables is one of its variables, or a recode of one. Places are over
    the same leaves, which are matched by name; above them each product may have areas or a spine of its own, and these
    may cross. Zeros, equalities and exact values go along.

    The observed layout is those of the problems, one after another, so that ``np.concatenate([y_1, y_2])`` are the
    measurements of the joint problem.

    Parameters
    ----------
    *problems : Problem
        Two or more, of tables, with noise of one law, each independent of the others.
    schema : Schema, optional
        The finer schema, by default that of the problems that refines all others.
    recodes : mapping of str to str, optional
        For variables and recodes of the other schemas which variable or recode of the finer one they are, with as many
        levels in the same order. By default those of the same name and labels. Recodes of a variable that is a recode
        are added.
    names : sequence of str, optional
        Of the products, by default ``"1"``, ``"2"`` and so on.
    desired, undetermined
        As in `Problem`, by default the tables that each problem desires, in its own layers.
    only : mapping of str to mapping of str to sequence of str, optional
        For problems that count some people alone, by name, the labels that these have of factors of one variable of the
        finer schema: ``{"units": {"householder": ["yes"]}}`` where occupied units are counted by their householders.
        This variable is told apart by the leaves then: tables with a factor of it, which must come first in their
        names, are tables of the others in layers such as ``"County by relgq"``. Desired tables are given by layer.
    beside : mapping of str to mapping of str to sequence of str, optional
        For problems in `only` that count something else too, the labels of one variable of their own whose counts are
        of no people: ``{"units": {"h1": ["vacant"]}}`` where vacant units are counted beside occupied ones. The finer
        schema has this variable too, and it comes first in the names of tables as well.

    Returns
    -------
    Problem
        Over the finer schema, and over `Areas` with every product's geolevels or layers; those of a name that several
        have are called ``"County (1)"``, ``"County (2)"``. Tables are named by the finer schema's factors.

    Raises
    ------
    ValueError
        If no schema refines the others, `recodes` names a factor that none has, levels or leaves differ, noise is of
        several laws, or correlated in ways that cannot be joined, or figures of two problems are copies of one
        measurement by their law; or as `Problem`. The problem is named.

    Examples
    --------
    >>> people = Schema({"sex": 2, "age": ["0", "1", "2"]}, recodes={"age": {"adult": ["no", "no", "yes"]}})
    >>> fine = Problem(people, {"sex * age": 4.0})
    >>> coarse = Problem(Schema({"adult": ["no", "yes"]}), {"adult": 1.0, "total": 0.0})
    >>> joint(coarse, fine, names=["PL94", "DHC"]).observed.names
    (('all (PL94)', 'adult'), ('all (PL94)', 'total'), ('all (DHC)', 'sex * age'))
    """
    products = _products(problems, names)
    schemas = {name: own.domain.schema for name, own in products.items()}
    require_known_factors(recodes or {}, schemas, schema)
    common = common_schema(schemas, schema, recodes or {})
    return _joined(
        products, common, _leaves_of(products), desired, CountedParts(only or {}, beside or {}), undetermined
    )[0]


def joint_parts(
    problems: Sequence[Problem],
    names: Sequence[str],
    parts: CountedParts,
    *,
    recodes: Mapping[str, str],
    desired: Sequence[str] | None,
) -> tuple[Problem, LeavesByGroup]:
    """As `joint`, where `parts` says what is counted and the schema follows; also which layers tell what apart.

    Cells that are not estimable are NaN. A desired table is one of every problem that has its variables.

    Raises
    ------
    ValueError
        As `joint`; or if no problem has the variables of a desired table.
    """
    products = _products(problems, names)
    schemas = {name: own.domain.schema for name, own in products.items()}
    common, leaves = parts.common(schemas, recodes), _leaves_of(products)
    require_known_factors(recodes, schemas, common.schema)
    asked = None if desired is None else _asked_of_each(products, common, leaves, desired)
    problem, apart = _joined(products, common, leaves, asked, parts, "nan")
    if apart is None:
        raise ValueError("only= names no product")
    return problem, apart


def _leaves_of(products: Mapping[str, Problem]) -> CommonLeaves:
    """The leaves that all products have, and the layers of each."""
    places = {name: own.domain.places for name, own in products.items()}
    return CommonLeaves(places, [name for name, own in products.items() if _speaks_of_leaves(own)])


def _asked_of_each(
    products: Mapping[str, Problem], common: CommonSchema, leaves: CommonLeaves, desired: Sequence[str]
) -> dict[str, list[str]]:
    """Desired tables, named by the factors of the finer schema or of the problems, in the layers of these."""
    found: list[Name] = []
    for table in desired:
        pairs = []
        for name, own in products.items():
            of = common.factors[name]
            known = {common.schema.axis_of(factor) for factor in of.values()}
            factors = [of.get(factor, factor) for factor in parse_table(common.schema, table).factors]
            if known.issuperset(map(common.schema.axis_of, factors)):
                levels = dict.fromkeys(own.domain.places.levels[level] for level in own.desired_levels)
                pairs += [(leaves.layer(name, level), " * ".join(factors) or "total") for level in levels]
        if not pairs:
            raise ValueError(f"no input has all variables of the desired table {table!r}: ask for others")
        found += pairs
    return by_layer(found)


def _joined(
    products: Mapping[str, Problem],
    common: CommonSchema,
    leaves: CommonLeaves,
    desired: Mapping[str, Any] | Sequence[str] | str | None,
    parts: CountedParts,
    undetermined: Literal["error", "nan"],
) -> tuple[Problem, LeavesByGroup | None]:
    """The joint problem, and which of its layers tell apart what products count, if some count a part."""
    problems = list(products.values())
    observed: list[Measured] = []
    wanted: list[Name] = []
    for name, own in products.items():
        levels = own.domain.places.levels
        for level, table, variances in zip(own.observed_levels, own.observed_tables, _variances(own), strict=True):
            observed.append((leaves.layer(name, levels[level]), common.table(name, table), variances))
        for level, table in zip(own.desired_levels, own.desired_tables, strict=True):
            wanted.append((leaves.layer(name, levels[level]), common.table(name, table)))
    asked = by_layer(wanted) if desired is None else desired
    zeros, over = _zeros(products, common, leaves), TableNames.of(common.schema, leaves.areas)
    parts.require(products)
    apart = parts.apart(common.schema, leaves)
    if apart is not None:
        observed = [apart.measured(*own) for own in observed]
        asked = _asked_apart(apart, asked)
        zeros = apart.empty(zeros)
        over = TableNames.of(apart.schema, apart.areas())
    rows = [own.equality_rows for own in problems]
    E, b = sparse.block_diag([own for own, _ in rows], format="csr"), np.concatenate([own for _, own in rows])
    together = Problem(
        read_measured_tables(
            over,
            {(layer, table): variances for layer, table, variances in observed},
            asked,
            None,
            zeros or None,
            (E, b) if b.size else None,
            problems[0].noise.law,
            None if any(own.truth is None for own in problems) else np.concatenate([own.truth for own in problems]),
            undetermined,
        )
    )
    together = together.replace(understood=_understood(products), sources=_sources(products))
    _refuse_copies(together, [len(own.observed_tables) for own in problems])
    covariance = joined_covariance({name: own.noise for name, own in products.items()})
    return together if covariance is None else together.with_covariance(covariance), apart


def _refuse_copies(together: Problem, counts: Sequence[int]) -> None:
    """Raise `ValueError` where products, of so many tables, measured one cell by a law that makes figures copies."""
    law, tables, levels = together.noise.law, together.observed_tables, together.observed_levels
    if isinstance(law, str) or law.copies_are_independent:
        return
    noisy, product = ~(together.exact | together.unmeasured), np.repeat(np.arange(len(counts)), counts)
    for pair in combinations(range(len(tables)), 2):
        if product[pair[0]] == product[pair[1]] or tables[pair[0]].name != tables[pair[1]].name:
            continue
        areas = [together.leaves_of(levels[i]) for i in pair]
        kinds = kinds_of_rows(sparse.csr_array(sparse.vstack(areas)))
        measured = np.zeros((2, kinds.max() + 1, tables[pair[0]].size), dtype=bool)
        for own, i, numbers in zip(measured, pair, np.split(kinds, [areas[0].shape[0]]), strict=True):
            np.logical_or.at(own, numbers, noisy[together.observed.block(i)].reshape(numbers.size, -1))
        if measured.all(axis=0).any():
            names = " and ".join(repr(together.observed.names[i]) for i in pair)
            raise ValueError(
                f"tables {names} have figures of one place, which by {law!r} are copies of one measurement: leave one "
                "of them out"
            )


def _understood(products: Mapping[str, Problem]) -> Understood:
    """What was understood of all products, which are the sources."""
    known = [own.understood for own in products.values()]
    said = ("totals", "notes", "left_out")
    totals, *rest = (tuple(dict.fromkeys(one for own in known for one in getattr(own, what))) for what in said)
    return Understood(tuple(products), totals, "", *rest)


def _sources(products: Mapping[str, Problem]) -> SourceValues | None:
    """What each source within a product measured, over the products' layouts one after another."""
    if all(own.sources is None for own in products.values()):
        return None
    found, start = [], 0
    for name, own in products.items():
        known = own.sources or SourceValues.unknown(np.flatnonzero(~own.unmeasured))
        found.append(known.within(name, start))
        start += own.observed.size
    return SourceValues.joined(found)


def _asked_apart(apart: LeavesByGroup, desired: Any) -> dict[str, list[str]]:
    if not isinstance(desired, Mapping) or any(isinstance(tables, str) for tables in desired.values()):
        raise ValueError("with only= desired tables are named by layer: desired={layer: [table, ...]}")
    return by_layer(apart.place(layer, table)[:2] for layer, tables in desired.items() for table in tables)


def _products(problems: Sequence[Problem], names: Sequence[str] | None) -> dict[str, Problem]:
    """The problems by name, if they can be joined."""
    if len(problems) < 2:
        raise ValueError(f"joint estimates are of two problems or more: got {len(problems)}")
    numbers = range(1, len(problems) + 1)
    known = list(map(str, numbers)) if names is None else read_texts(names, "names")
    if len(known) != len(problems) or len(set(known)) < len(known):
        raise ValueError(f"names must be one for each of the {len(problems)} problems, all different: got {known}")
    products = dict(zip(known, problems, strict=True))
    for name, own in products.items():
        if not isinstance(own, Problem):
            raise TypeError(f"problem {name!r} must be a Problem: got {type(own).__name__}")
        if not own.is_tabular:
            raise ValueError(
                f"problem {name!r} has no tables, only a matrix: joint estimates are of tables of a schema"
            )
    laws = sorted({own.noise.law for own in problems}, key=str)
    if len(laws) > 1:
        raise ValueError(f"problems have noise of several laws, {laws}: give all of them one, problem.replace(noise=)")
    return products


def _speaks_of_leaves(problem: Problem) -> bool:
    """Whether it has tables of the layer of areas that is always there."""
    places = problem.domain.places
    used = {*problem.observed_levels, *problem.desired_levels}
    zeros = problem.known_empty.empty[places.members[-1]]
    return places.levels[-1] == LEAF and (len(places.levels) - 1 in used or bool(zeros.any()))


def _variances(problem: Problem) -> list[Float]:
    """Of every observed table, one for each of its areas where they are equal."""
    if problem.geounit_variances is not None:
        return problem.geounit_variances
    cells = [problem.variances[problem.observed.block(i)] for i in range(len(problem.observed_tables))]
    return [own.reshape(-1, *table.shape) for own, table in zip(cells, problem.observed_tables, strict=True)]


def _zeros(products: Mapping[str, Problem], common: CommonSchema, leaves: CommonLeaves) -> dict[tuple[str, str], Flags]:
    """Cells of areas that some problem knows to be empty, as `Problem` takes them."""
    found = {}
    for name, own in products.items():
        schema, places, zeros = own.domain.schema, own.domain.places, own.known_empty
        table = make_table(schema, tuple(schema.names[axis] for axis in zeros.axes))
        for level, members in zip(places.levels, places.members, strict=True):
            if (empty := zeros.empty[members]).any():
                found[leaves.layer(name, level), common.table(name, table)] = empty
    return found


def joined_covariance(noises: Mapping[str, Noise]) -> sparse.csr_array | LowRankPlusDiagonal | None:
    """The covariance of the measurements of several products, one after another; None where none is correlated.

    Parameters
    ----------
    noises : mapping of str to Noise
        By the names of the products.

    Raises
    ------
    ValueError
        If the noise of one is given by an operator without a known form, or of one by a matrix and of another by
        shared sources, exact values, or cells that were not measured. The product is named.
    """
    correlated = {name: own for name, own in noises.items() if own.covariance is not None}
    if not correlated:
        return None
    for name, own in correlated.items():
        if not (own.is_shared or own.has_entries):
            raise ValueError(
                f"problem {name!r} has correlated noise of which only products with vectors are known: give a matrix, "
                "or LowRankPlusDiagonal"
            )
    if all(own.covariance is None or own.is_shared for own in noises.values()):
        diagonals, factors = [own.own.variances for own in noises.values()], [own.sources for own in noises.values()]
        return LowRankPlusDiagonal(np.concatenate(diagonals), linalg.block_diag(*factors))
    a_matrix = next(name for name, own in correlated.items() if not own.is_shared)
    blocks = [_entries(name, own, a_matrix) for name, own in noises.items()]
    return sparse.csr_array(sparse.block_diag(blocks))


def _entries(name: str, noise: Noise, correlated: str) -> sparse.csr_array:
    """The covariance of a product that is to be one block of a matrix that can be inverted."""
    found = noise.entries()
    why = "noise of shared sources"
    if noise.covariance is None:
        lost = np.isinf(noise.variances).any()
        why = "cells that were not measured" if lost else "values known exactly"
        found = found if (noise.variances > 0).all() and not lost else None
    if found is None:
        raise ValueError(
            f"problem {name!r} has {why}, which cannot stand in one matrix beside the covariance of problem "
            f"{correlated!r}: give covariances as LowRankPlusDiagonal, or leave such cells out"
        )
    return found
