"""Estimates of several products together, stored as those of one, with what the others measured beside it.

The folder is that of `store`, at the geolevels of one product, and::

    <folder>/joined/<number>/            settings.toml, spine.parquet, variances.parquet, zeros.parquet of every other
                                         product; result.json says their names, which factors are the same, and who
                                         counts some people alone
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.operator import BlueOperator
from blue_solvers.results.estimate_rows import TableRows, write_estimates
from blue_solvers.results.proof import StoredProof
from blue_solvers.results.store import (
    ESTIMATES,
    PARTS,
    Progress,
    estimates_of,
    joined_folder,
    not_answered,
    observed_of,
    seal_result,
    write_measured,
)
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.new_folder import new_folder
from constraint_builders.files.noisy_measurements import Release
from constraint_builders.files.settings import Settings
from constraint_builders.geography.joined_releases import JoinedReleases
from constraint_builders.schema_order import in_schema_order


def write_joint_result(
    folder: str | os.PathLike[str],
    P: BlueOperator,
    estimate: Float,
    std_error: Float,
    joined: JoinedReleases,
    progress: Progress | None = None,
    proof: StoredProof | None = None,
) -> None:
    """Store estimates of several products, whole or not at all, at the geolevels of one of them.

    Parameters
    ----------
    folder : path
        Made anew.
    P : BlueOperator
        Of `joined.problem`.
    estimate, std_error : ndarray, (m,)
        Over its desired layout.
    joined : JoinedReleases
    progress, proof
        As in `write_result`.

    Raises
    ------
    ValueError
        If the estimates are not the best ones, variances differ within a table of a geounit, or a value is not finite.
    OSError
        If there is something at `folder`, or it cannot be written.
    """
    reason = not_answered(P)
    if reason:
        raise ValueError(f"this result cannot be stored: {reason}")
    not_canonical = [table for _, table in joined.answers if parse_table(joined.settings.schema, table).is_turned]
    if not_canonical:
        raise ValueError(f"this result cannot be stored: table {not_canonical[0]!r} is not in its schema's order")
    own = joined.releases[joined.stored]
    spine, others = own.problem.domain.spine, [name for name in joined.releases if name != joined.stored]
    with new_folder(folder) as temporary:
        zeros = _write_product(temporary, own, joined.settings)
        said = [_told(name, joined.releases[name], temporary, number) for number, name in enumerate(others)]
        for number, level in enumerate(spine.levels):
            if progress is not None:
                progress(level, number, len(spine.levels))
            geocodes = [spine.geocodes[i] for i in spine.members[number].tolist()]
            tables: list[TableRows] = [
                (table, cells.__getitem__, errors.__getitem__)
                for table, cells, errors in _tables_at(level, joined, estimate, std_error)
            ]
            if tables:
                (temporary / ESTIMATES).mkdir(exist_ok=True)
                write_estimates(temporary / estimates_of(level), geocodes, tables)
        schema = joined.settings.schema
        desired = [(spine.levels.index(level), parse_table(schema, table)) for level, table in joined.answers]
        together = {
            "name": joined.stored,
            "order": list(joined.releases),
            "recodes": dict(joined.recodes),
            **({PARTS: joined.parts.to_json()} if joined.parts.only else {}),
        }
        seal_result(
            temporary,
            joined.settings,
            spine.levels,
            desired,
            P.info,
            zeros,
            proof,
            own.read,
            {**together, "others": said},
        )


def _tables_at(
    geolevel: str, joined: JoinedReleases, estimate: Float, std_error: Float
) -> Iterator[tuple[Table, Float, Float]]:
    """Tables of a geolevel with estimates and standard errors, (geounits, cells) each."""
    for index, (level, name) in enumerate(joined.answers):
        if level == geolevel:
            table, block = parse_table(joined.settings.schema, name), joined.problem.desired.block(index)
            yield table, estimate[block].reshape(-1, table.size), std_error[block].reshape(-1, table.size)


def _told(name: str, release: Release, temporary: Path, number: int) -> dict[str, Any]:
    """Write what another product measured, and what is said of it."""
    place = temporary / joined_folder(number)
    place.mkdir(parents=True)
    zeros = _write_product(place, release, release.settings)
    names = [release.settings.schema.names[axis] for axis in zeros]
    return {"name": name, "settings": release.settings.name, "zeros": names, "read": release.read.to_json()}


def _write_product(place: Path, release: Release, settings: Settings) -> tuple[int, ...]:
    """Write what a product measured; gives the variables that tell its structural zeros apart."""
    order = in_schema_order(release.problem)
    problem = release.problem if order is None else order.problem
    observed = observed_of(StructuredProblem.of(problem))
    write_measured(place, settings, problem.domain.spine, observed, problem.zeros, release.facilities)
    return () if problem.zeros is None else problem.zeros.axes
