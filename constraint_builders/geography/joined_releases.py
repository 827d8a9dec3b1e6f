"""Releases of several products over the same blocks, read into one problem: blocks are matched by their GEOIDs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.description.common_leaves import CommonLeaves, LeavesByGroup, by_layer
from constraint_builders.description.common_schema import CommonSchema, CountedParts, require_known_factors
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import make_table, parse_table
from constraint_builders.files.kept_variables import settings_over
from constraint_builders.files.noisy_measurements import Progress, Release, read_noisy_measurements
from constraint_builders.files.settings import Settings
from constraint_builders.geography.geoids import by_tabulation
from constraint_builders.joint_problem import joint
from constraint_builders.problem import Problem

ALL = "all"


@dataclass(frozen=True)
class JoinedReleases:
    """What several folders of noisy measurements say together.

    Attributes
    ----------
    releases : mapping of str to Release
        By the names of the products, each on a spine of its own.
    stored : str
        The product at whose geolevels tables are desired, in terms of its variables.
    settings : Settings
        Of this product; of the one whose schema refines those of the others with their recodes.
    recodes : mapping of str to str
        Which factors of the finer schema those of the others are, as `joint` takes them.
    parts : CountedParts
        Which products count some people alone.
    answers : tuple of (str, str)
        The geolevel and table of this product that every desired table of the problem is.
    problem : Problem
        Of all measurements; see `joint`.
    y : ndarray, (n,)
        The measurements, one product after another, NaN where there is none.
    """

    releases: Mapping[str, Release]
    stored: str
    settings: Settings
    recodes: Mapping[str, str]
    parts: CountedParts
    answers: tuple[tuple[str, str], ...]
    problem: Problem
    y: Float


def read_joined_releases(
    folders: Mapping[str, str | os.PathLike[str]],
    settings: Mapping[str, Settings],
    *,
    recodes: Mapping[str, str] | None = None,
    desired: Sequence[str] | str | None = None,
    within: Sequence[str] | None = None,
    variables: Sequence[str] | None = None,
    parts: CountedParts | None = None,
    at: str | None = None,
    progress: Progress | None = None,
) -> JoinedReleases:
    """Read several folders of noisy measurements of the same blocks into one problem.

    Parameters
    ----------
    folders, settings : mapping of str to path, to Settings
        Of every product by its name; see `read_noisy_measurements`.
    recodes : mapping of str to str, optional
        As in `joint`: which recodes of the finer schema variables of the others are.
    desired : sequence of str or str, optional
        Tables of the product `at`, at its geolevels, by default those that it measured there.
    within, progress
        As in `read_noisy_measurements`.
    variables : sequence of str, optional
        Those of the finer schema to keep; of the others those that are one of these or a recode of one are kept.
    parts : CountedParts, optional
        Which products count some people alone, as `joint` takes it, and their own variables.
    at : str, optional
        The product whose tables are desired; by default the one whose schema refines those of the others, which has the
        recodes of these.

    Returns
    -------
    JoinedReleases

    Raises
    ------
    ValueError
        As `read_noisy_measurements` and `joint`; or if a product has none of the variables.
    OSError
        If a folder cannot be opened.
    """
    same, parts = dict(recodes or {}), CountedParts() if parts is None else parts
    schemas = {name: own.schema for name, own in settings.items()}
    require_known_factors(same, schemas)
    common = parts.common(schemas, same)
    finest = _finest(settings, common, parts)
    stored = finest if at is None else at
    if stored not in settings:
        raise ValueError(f"at= names product {stored!r}: there are {', '.join(map(repr, settings))}")
    releases = {
        name: read_noisy_measurements(
            folder,
            settings[name],
            desired=["total"],
            within=within,
            variables=_kept(name, settings[name], common, variables, parts),
            progress=progress,
        )
        for name, folder in folders.items()
    }
    if variables is not None:
        parts = replace(parts, own=tuple(name for name in parts.own if name in variables))
    schemas = {name: own.settings.schema for name, own in releases.items()}
    same = {factor: own for factor, own in same.items() if any(factor in had.factor_names for had in schemas.values())}
    common = parts.common(schemas, same)
    over = releases[stored].settings
    if stored == finest:
        plain = Schema({own.name: own.levels for own in over.schema.variables})
        over = settings_over(over, plain.with_recodes_of(common.schema))
    spines = {name: by_tabulation(own.problem.domain.spine) for name, own in releases.items()}
    leaves = CommonLeaves(spines, [])
    layers = {level: leaves.layer(stored, level) for level in spines[stored].levels}
    asked: Mapping[str, Sequence[str] | str]
    if desired == ALL:
        asked = _all(layers, parts)
    else:
        asked = _asked(stored, releases[stored].problem, over.schema, desired, layers, common)
    problem = joint(
        *(own.problem.replace(spine=spines[name]) for name, own in releases.items()),
        schema=common.schema,
        recodes=same,
        names=list(releases),
        desired=asked,
        only=parts.only or None,
        beside=parts.beside or None,
    )
    y = np.concatenate([own.y for own in releases.values()])
    problem.check_vector(y)
    answers = _answers(problem, parts.apart(common.schema, leaves), layers, common.factors[stored])
    return JoinedReleases(releases, stored, over, same, parts, answers, problem, y)


def _kept(
    name: str, settings: Settings, common: CommonSchema, variables: Sequence[str] | None, parts: CountedParts
) -> tuple[str, ...] | None:
    """The variables of a product that are among those of the finer schema, or recodes of them."""
    if variables is None:
        return None
    known, of = common.schema.names, common.factors[name]
    unknown = [variable for variable in variables if variable not in known]
    if unknown:
        raise ValueError(f"there is no variable {unknown[0]!r}: there are {', '.join(known)}")
    lost = [variable for variable in parts.variables(common.schema) if variable not in variables]
    if lost:
        raise ValueError(f"variable {lost[0]!r} tells apart what products count: keep it too")
    kept = tuple(own for own in settings.schema.names if known[common.schema.axis_of(of[own])] in variables)
    if not kept:
        told = " and ".join(dict.fromkeys(known[common.schema.axis_of(of[own])] for own in settings.schema.names))
        raise ValueError(f"product {name!r} tells nothing of {', '.join(variables)}: keep one of {told} too")
    return kept


def _finest(settings: Mapping[str, Settings], common: CommonSchema, parts: CountedParts) -> str:
    """The first product whose variables are those of the schema that refines all others, but for others' own ones."""
    schemas = {name: own.schema for name, own in settings.items()}
    own, whole = parts.own_variables(schemas), common.schema
    variables = [variable for variable in whole.variables if variable.name not in own]
    shape = [(variable.name, variable.size) for variable in variables]
    return next(
        name
        for name, schema in schemas.items()
        if name not in parts.only and [(variable.name, variable.size) for variable in schema.variables] == shape
    )


def _all(layers: Mapping[str, str], parts: CountedParts) -> dict[str, str]:
    if parts.only:
        raise ValueError("all tables are not told by name where products count some people alone: name those desired")
    return dict.fromkeys(layers.values(), ALL)


def _asked(
    name: str,
    problem: Problem,
    schema: Schema,
    desired: Sequence[str] | str | None,
    layers: Mapping[str, str],
    common: CommonSchema,
) -> dict[str, list[str]]:
    """The tables that are desired of a product, in its schema's order, as the finer schema calls them, by layer."""
    if desired is None:
        levels = problem.domain.spine.levels
        observed = zip(problem.observed_levels, problem.observed_tables, strict=True)
        pairs = [(levels[level], table) for level, table in observed]
    else:
        named = [desired] if isinstance(desired, str) else desired
        try:
            tables = [make_table(schema, parse_table(schema, table).factors) for table in named]
        except ValueError as error:
            raise ValueError(f"product {name!r}: {error}") from None
        pairs = [(level, table) for level in layers for table in tables]
    of = common.factors[name]
    called = [" * ".join(of.get(factor, factor) for factor in table.factors) or "total" for _, table in pairs]
    return by_layer((layers[level], own) for (level, _), own in zip(pairs, called, strict=True))


def _answers(
    problem: Problem, apart: LeavesByGroup | None, layers: Mapping[str, str], factors: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """The geolevel of a product, and the table of its schema, that every desired table is."""
    levels = {layer: level for level, layer in layers.items()}
    own = {factor: name for name, factor in factors.items()}
    found = []
    for index, table in zip(problem.desired_levels, problem.desired_tables, strict=True):
        layer, first = problem.domain.places.levels[index], ""
        if apart is not None:
            layer, first = apart.part(layer)
        named = [first, *table.factors] if first else table.factors
        found.append((levels[layer], " * ".join(own.get(factor, factor) for factor in named) or "total"))
    return tuple(found)
