"""Releases of several products over the same blocks, read into one problem: blocks are matched by their GEOIDs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.description.common_leaves import CommonLeaves
from constraint_builders.description.common_schema import CommonSchema, common_schema
from constraint_builders.files.kept_variables import settings_over
from constraint_builders.files.measurement_outline import Progress
from constraint_builders.files.noisy_measurements import Release, read_noisy_measurements
from constraint_builders.files.settings import Settings
from constraint_builders.geography.geoids import by_tabulation
from constraint_builders.joint_problem import joint
from constraint_builders.problem import Problem


@dataclass(frozen=True)
class JoinedReleases:
    """What several folders of noisy measurements say together.

    Attributes
    ----------
    releases : mapping of str to Release
        By the names of the products, each on a spine of its own.
    finest : str
        The product whose schema refines the others; at its geolevels tables are desired.
    settings : Settings
        Of this product, with the recodes of the others.
    recodes : mapping of str to str
        Which factors of this schema those of the others are, as `joint` takes them.
    layers : mapping of str to str
        What its geolevels are called in the problem.
    problem : Problem
        Of all measurements; see `joint`.
    y : ndarray, (n,)
        The measurements, one product after another, NaN where there is none.
    """

    releases: Mapping[str, Release]
    finest: str
    settings: Settings
    recodes: Mapping[str, str]
    layers: Mapping[str, str]
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
    progress: Progress | None = None,
) -> JoinedReleases:
    """Read several folders of noisy measurements of the same blocks into one problem.

    Parameters
    ----------
    folders, settings : mapping of str to path, to Settings
        Of every product by its name; see `read_noisy_measurements`.
    recodes : mapping of str to str, optional
        As in `joint`: which recodes of the finest schema variables of the others are.
    desired : sequence of str or str, optional
        Tables of the finest schema at the geolevels of its product, by default those that it measured there.
    within, progress
        As in `read_noisy_measurements`.
    variables : sequence of str, optional
        Those of the finest schema to keep; of the others those that are one of these or a recode of one are kept.

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
    same = dict(recodes or {})
    common = common_schema({name: own.schema for name, own in settings.items()}, None, same)
    releases = {
        name: read_noisy_measurements(
            folder,
            settings[name],
            desired=["total"],
            within=within,
            variables=_kept(name, settings[name], common, variables),
            progress=progress,
        )
        for name, folder in folders.items()
    }
    finest = _finest(settings, common)
    spines = {name: by_tabulation(own.problem.domain.spine) for name, own in releases.items()}
    leaves = CommonLeaves(spines, [])
    layers = {level: leaves.layer(finest, level) for level in spines[finest].levels}
    problem = joint(
        *(own.problem.replace(spine=spines[name]) for name, own in releases.items()),
        schema=releases[finest].settings.schema,
        recodes=same,
        names=list(releases),
        desired={layers[level]: tables for level, tables in _desired(releases[finest].problem, desired).items()},
    )
    y = np.concatenate([own.y for own in releases.values()])
    problem.check_vector(y)
    over = settings_over(releases[finest].settings, problem.domain.schema)
    return JoinedReleases(releases, finest, over, same, layers, problem, y)


def _kept(
    name: str, settings: Settings, common: CommonSchema, variables: Sequence[str] | None
) -> tuple[str, ...] | None:
    """The variables of a product that are among those of the finest schema, or recodes of them."""
    if variables is None:
        return None
    known, of = common.schema.names, common.factors[name]
    unknown = [variable for variable in variables if variable not in known]
    if unknown:
        raise ValueError(f"there is no variable {unknown[0]!r}: there are {', '.join(known)}")
    kept = tuple(own for own in settings.schema.names if known[common.schema.axis_of(of[own])] in variables)
    if not kept:
        told = " and ".join(dict.fromkeys(known[common.schema.axis_of(of[own])] for own in settings.schema.names))
        raise ValueError(f"product {name!r} tells nothing of {', '.join(variables)}: keep one of {told} too")
    return kept


def _finest(settings: Mapping[str, Settings], common: CommonSchema) -> str:
    """The first product whose variables are those of the schema that refines all others."""
    whole = common.schema
    return next(
        name for name, own in settings.items() if (own.schema.names, own.schema.shape) == (whole.names, whole.shape)
    )


def _desired(problem: Problem, desired: Sequence[str] | str | None) -> dict[str, Sequence[str] | str]:
    levels = problem.domain.spine.levels
    if desired is not None:
        return dict.fromkeys(levels, desired)
    found: dict[str, list[str]] = {}
    for level, table in zip(problem.observed_levels, problem.observed_tables, strict=True):
        found.setdefault(levels[level], []).append(table.name)
    return dict(found)
