"""Estimates of several products together, stored as those of one, with what the others measured beside it.

The folder is that of `store`, at the geolevels of one product, and::

    <folder>/joined/<number>/            settings.toml, spine.parquet, variances.parquet, zeros.parquet of every other
                                         product; result.json says their names, which factors are the same, and who
                                         counts some people alone
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from blue_solvers.operator import BlueOperator
from blue_solvers.results.proof import StoredProof
from blue_solvers.results.store import (
    PARTS,
    Progress,
    errors_of,
    joined_folder,
    not_answered,
    seal_result,
    write_product,
    write_tables,
)
from constraint_builders.arrays import Float
from constraint_builders.description.table import parse_table
from constraint_builders.files.new_files import new_folder
from constraint_builders.files.noisy_measurements import Release
from constraint_builders.geography.joined_releases import JoinedReleases


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
    layout, schema = joined.problem.desired, joined.settings.schema
    tables = [(spine.levels.index(level), parse_table(schema, table)) for level, table in joined.answers]
    with new_folder(folder) as temporary:
        zero_axes = write_product(temporary, joined.settings, own.problem, own.facilities)
        said = [_told(name, joined.releases[name], temporary, number) for number, name in enumerate(others)]
        errors = errors_of(layout, tables, std_error)
        write_tables(temporary, spine, layout, tables, estimate, errors, progress)
        together = {
            "name": joined.stored,
            "order": list(joined.releases),
            "recodes": dict(joined.recodes),
            **({PARTS: joined.parts.to_json()} if joined.parts.only else {}),
            "others": said,
        }
        seal_result(temporary, joined.settings, spine.levels, tables, P.info, zero_axes, proof, own.read, together)


def _told(name: str, release: Release, temporary: Path, number: int) -> dict[str, Any]:
    """Write what another product measured, and what is said of it."""
    place = temporary / joined_folder(number)
    place.mkdir(parents=True)
    zeros = write_product(place, release.settings, release.problem, release.facilities)
    names = [release.settings.schema.names[axis] for axis in zeros]
    return {"name": name, "settings": release.settings.name, "zeros": names, "read": release.read.to_json()}
