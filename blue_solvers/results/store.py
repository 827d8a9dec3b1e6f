"""Estimates on a spine, stored in a folder from which questions about any geounits are answered (`results`).

::

    <folder>/settings.toml               schema, geolevels and law of the noise
    <folder>/spine.parquet               geolevel, geocode, parent (row of this file, -1 for the root)
    <folder>/variances.parquet           geolevel, table, geounit (number within the level), variance
    <folder>/zeros.parquet               geounit (row of spine.parquet), empty (list over the cells of the variables
                                         that result.json names); if there are structural zeros
    <folder>/facilities.parquet          geolevel, geocode, type, facilities: exact numbers, where files say them
    <folder>/estimates/<Geolevel>.parquet table, geocode, estimate and std_error (lists, cells in C order); a file, or a
                                         folder of the files of parts
    <folder>/result.json                 how the estimates were made, what is proved of them, and the SHA-256 of every
                                         file; written last
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from blue_solvers.contract import Info
from blue_solvers.estimates import is_exact
from blue_solvers.operator import BlueOperator
from blue_solvers.results.checksums import SEAL, DamagedError, read_json_object, seal_json, sha256, unsealed
from blue_solvers.results.estimate_rows import TableRows, write_estimates
from blue_solvers.results.proof import Description, StoredProof
from blue_solvers.results.stored_measurements import write_product
from constraint_builders import Spine
from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout
from constraint_builders.description.table import Table, parse_table
from constraint_builders.estimability import undetermined_refusal
from constraint_builders.files.new_files import inside, new_folder, path_component
from constraint_builders.files.noisy_measurements import Release
from constraint_builders.files.reading_report import ReadingReport
from constraint_builders.files.settings import Settings
from constraint_builders.geography.joined_releases import JoinedReleases
from constraint_builders.schema_order import in_schema_order

FORMAT, JOINT_FORMAT, PARTS_FORMAT = 1, 2, 3  # so that versions which do not know joint results do not misread them
OUTLINE, ESTIMATES = "result.json", "estimates"
JOINED = "joined"  # what result.json says of a joint result, and the folder of the other products
PARTS = "parts"  # within it: which products count some people alone

Progress = Callable[[str, int, int], None]
RowsOfTable = Callable[[int, slice], Float]  # of a table by its number, (rows, cells)


def reported(names: Sequence[str], progress: Progress | None) -> Iterator[int]:
    """Numbers of what is worked on, each told before: its name, its number, and how many there are."""
    for number, name in enumerate(names):
        if progress is not None:
            progress(name, number, len(names))
        yield number


def write_result(
    folder: str | os.PathLike[str],
    P: BlueOperator,
    estimate: Float,
    std_error: Float | None,
    settings: Settings,
    progress: Progress | None = None,
    proof: StoredProof | None = None,
    release: Release | None = None,
) -> None:
    """Store estimates, whole or not at all, under canonical names and in the schema's order of the variables.

    Parameters
    ----------
    folder : path
        Made anew.
    P : BlueOperator
        Of a problem on a spine, with one variance for each table of a geounit.
    estimate : ndarray, (m,)
        Over the desired layout.
    std_error : ndarray, (m,), or None
        None for the exact ones, which are then worked out geolevel by geolevel, as they are written.
    settings : Settings
        With the problem's schema.
    progress : callable, optional
        Called with each geolevel, its number from 0, and how many there are, before it is written.
    proof : StoredProof, optional
    release : Release, optional
        Of measurement files, to store what became of every row and what is known exactly beside counts.

    Raises
    ------
    ValueError
        If the problem has no spine, another schema than the settings, a law that has no name there, correlated noise,
        equalities, or unequal variances within a table of a geounit, if the estimates are not the best ones, if a shape
        does not fit, or if a value is not finite.
    OSError
        If there is something at `folder`, or it cannot be written.
    """
    problem = P.problem
    reason = _not_stored(P, settings)
    if reason:
        raise ValueError(f"this result cannot be stored: {reason}")
    estimate = problem.desired.flat(estimate, "estimate")
    std_error = None if std_error is None else problem.desired.flat(std_error, "std_error")
    for what, own in (("estimate", estimate), ("std_error", std_error)):
        if own is not None and own.shape != (problem.desired.size,):
            raise ValueError(f"{what} must have shape ({problem.desired.size},), the desired layout's: got {own.shape}")
    order = in_schema_order(problem)
    if problem.has_turned_tables:
        std_error = np.sqrt(P.variances()) if std_error is None else std_error
        problem, estimate, std_error = order.problem, estimate[order.desired], std_error[order.desired]
    spine, tables = problem.domain.spine, list(zip(problem.desired_levels, problem.desired_tables, strict=True))
    errors = _exact_errors(P) if std_error is None else _rows_of(std_error, problem.desired, tables)
    facilities, read = (None, None) if release is None else (release.facilities, release.read)
    with new_folder(folder) as temporary:
        zero_axes = write_product(temporary, settings, problem, facilities)
        write_tables(temporary, spine, tables, _rows_of(estimate, problem.desired, tables), errors, progress)
        told = partial(describe, settings, spine.levels, tables, P.info, zero_axes, proof=proof, read=read)
        _seal(temporary, told)


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
    cells, errors = _rows_of(estimate, layout, tables), _rows_of(std_error, layout, tables)
    with new_folder(folder) as temporary:
        zero_axes = write_product(temporary, joined.settings, own.problem, own.facilities)
        together = {
            "name": joined.stored,
            "order": list(joined.releases),
            "recodes": dict(joined.recodes),
            **({PARTS: joined.parts.to_json()} if joined.parts.only else {}),
            "others": [_other(name, joined.releases[name], temporary, i) for i, name in enumerate(others)],
        }
        write_tables(temporary, spine, tables, cells, errors, progress)
        told = partial(describe, joined.settings, spine.levels, tables, P.info, zero_axes, proof=proof, read=own.read)
        _seal(temporary, partial(told, joined=together))


def _other(name: str, release: Release, temporary: Path, number: int) -> dict[str, Any]:
    """Write what another product measured, and what is said of it."""
    place = temporary / joined_folder(number)
    place.mkdir(parents=True)
    zeros = write_product(place, release.settings, release.problem, release.facilities)
    names = [release.settings.schema.names[axis] for axis in zeros]
    return {"name": name, "settings": release.settings.name, "zeros": names, "read": release.read.to_json()}


def write_tables(
    folder: Path,
    spine: Spine,
    tables: Sequence[tuple[int, Table]],
    estimate: RowsOfTable,
    errors: RowsOfTable,
    progress: Progress | None,
) -> None:
    """Write tables at geolevels of a spine, and their standard errors, a file for each level."""
    (folder / ESTIMATES).mkdir()
    for number in reported(spine.levels, progress):
        geocodes = [spine.geocodes[i] for i in spine.members[number].tolist()]
        rows: list[TableRows] = [
            (table, partial(estimate, i), partial(errors, i))
            for i, (level, table) in enumerate(tables)
            if level == number
        ]
        if rows:
            write_estimates(folder / estimates_of(spine.levels[number]), geocodes, rows)


def _rows_of(vector: Float, layout: Layout, tables: Sequence[tuple[int, Table]]) -> RowsOfTable:
    """Of a vector over a layout of tables, (m,)."""
    return lambda number, rows: vector[layout.block(number)].reshape(-1, tables[number][1].size)[rows]


def _exact_errors(P: BlueOperator) -> RowsOfTable:
    """Exact standard errors, worked out as they are asked for."""
    variances = P.variances_by_table()

    def of(table: int, rows: slice) -> Float:
        found = variances.of(table, rows)
        return np.sqrt(found, out=found)

    return of


def _seal(folder: Path, described: Callable[[Mapping[str, str]], str]) -> None:
    """Write the last file of a result: what `describe` says, given the SHA-256 of all others."""
    written = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): sha256(path) for path in written}
    (folder / OUTLINE).write_text(described(files), encoding="utf-8")


def _not_stored(P: BlueOperator, settings: Settings) -> str:
    """Why questions to a result could not be answered from the variances of its measurements alone, or ""."""
    problem = P.problem
    if problem.spine is None:
        return "it has no spine of geounits"
    if problem.schema != settings.schema:
        return "its schema is not that of the settings"
    if not isinstance(problem.noise.law, str):
        return f"its noise is {problem.noise.law!r}, which settings have no name for"
    return undetermined_refusal(problem) or not_answered(P)


def not_answered(P: BlueOperator) -> str:
    """Why questions could not be answered from the variances of measurements, if they have a geography; or ""."""
    problem = P.problem
    if problem.covariance is not None:
        return "its noise is correlated (assumption A2)"
    if problem.geounit_variances is None:
        return "variances differ within a table of a geounit (assumption A3)"
    if problem.equalities is not None:
        return "it has equalities: give exact counts the variance 0"
    if not P.info.exact:
        return f"its estimates are not the best ones ({P.info.reason})"
    return ""


def joined_folder(number: int) -> str:
    """Path within a joint result of what another product measured, with a slash at its end."""
    return f"{JOINED}/{number}/"


def estimates_of(geolevel: str) -> str:
    """Path within a result of the estimates of a geolevel, a file or a folder."""
    return f"{ESTIMATES}/{path_component(geolevel, 'geolevel')}.parquet"


def describe(
    settings: Settings,
    levels: Sequence[str],
    desired: Iterable[tuple[int, Table]],
    info: Info,
    zero_axes: Sequence[int],
    files: Mapping[str, str],
    proof: StoredProof | None = None,
    read: ReadingReport | None = None,
    joined: Mapping[str, Any] | None = None,
) -> str:
    """What the last file of a result says, with a checksum of its own.

    Parameters
    ----------
    settings : Settings
    levels : sequence of str
        Geolevels, from the root down.
    desired : iterable of (int, Table)
        The tables that were estimated, each with the number of its geolevel.
    info : Info
        How the estimates were made.
    zero_axes : sequence of int
        The variables that tell structural zeros apart.
    files : mapping of str to str
        SHA-256 of every other file by its path within the folder.
    proof : StoredProof, optional
    read : ReadingReport, optional
        What became of the rows of measurement files.
    joined : mapping, optional
        Of a joint result: the names of its products, and what is said of the others.
    """
    tables: dict[str, list[str]] = {level: [] for level in levels}
    for level, table in desired:
        tables[levels[level]].append(table.name)
    certificate = None if proof is None else proof.certificate  # what is proved goes before what was said
    return seal_json(
        {
            "format": FORMAT if joined is None else PARTS_FORMAT if PARTS in joined else JOINT_FORMAT,
            "settings": settings.name,
            "noise": settings.noise,
            "solver": info.solver,
            "exact": info.exact if certificate is None else is_exact(certificate),
            "reason": info.reason,
            "zeros": [settings.schema.names[axis] for axis in zero_axes],
            "tables": tables,
            "read": {} if read is None else read.to_json(),
            "files": dict(files),
            "proof": {} if proof is None else {**proof.to_json(), "of": estimates_digest(files)},
            **({} if joined is None else {JOINED: dict(joined)}),
        }
    )


def estimates_digest(files: Mapping[str, str]) -> str:
    """SHA-256 of all files of estimates together."""
    own = sorted((name, digest) for name, digest in files.items() if name.startswith(f"{ESTIMATES}/"))
    return hashlib.sha256(json.dumps(own).encode()).hexdigest()


def read_description(folder: Path) -> Description:
    """What `describe` said of a result.

    Raises
    ------
    DamagedError
        If it is not what was written, or a file's name leads out of the folder.
    ValueError
        If it has another format.
    OSError
        If it is missing.
    """
    path = inside(folder, OUTLINE)
    said = read_json_object(path)
    if said.get("format") not in (FORMAT, JOINT_FORMAT, PARTS_FORMAT):
        known = f"{FORMAT}, {JOINT_FORMAT} and {PARTS_FORMAT}"
        raise ValueError(f"{path}: format {said.get('format')!r} is another than {known}: estimate again")
    if SEAL not in said:
        raise DamagedError(f"{path}: it has no checksums: estimate again with this version")
    try:
        found = msgspec.convert(unsealed(path, said), Description)
    except msgspec.ValidationError as error:
        raise DamagedError(f"{path} is damaged: {error}") from None
    joined, proof = found.joined, found.proof
    if joined is not None and sorted(joined.order) != sorted([joined.name, *(own.name for own in joined.others)]):
        raise DamagedError(f"{path} is damaged: the order of products names others than there are")
    for name in found.files:
        inside(folder, name)
    if proof and proof.get("of") != estimates_digest(found.files):
        raise DamagedError(f"{path} is damaged: its certificate is of other estimates")
    return found
