"""What the measurements determine: which tables, and which of their cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.measured import Measured
from constraint_builders.record import Record
from constraint_builders.relations.bases import factors_cross
from constraint_builders.relations.constraints import SelfConsistency
from constraint_builders.relations.equations import TableRelations
from constraint_builders.relations.marginals import refines
from constraint_builders.relations.placed import consistency_of
from constraint_builders.relations.tabulation import compose, is_small

INSTEAD = "leave its table out of desired= or choose undetermined= 'nan', NaN there and estimates elsewhere"
ASSUMED_VARIANCE = 1.0  # of cells that are not estimable: any is right, each being new information
CHANGE = 1e-9  # relative: what changes by less with the cells that are not estimable does not rest on them


def lacks(measured: Measured, level: int, table: Table) -> int | None:
    """A geounit of a geolevel where the measurements do not determine a table, or None.

    Where recodes cross, only tables that single measured tables can be summed to count as determined: of the geounit,
    of all its children, or of its parent and of all the parent's other children.
    """
    schema, members = measured.domain.schema, measured.domain.places.members[level]
    if not factors_cross(schema, [*measured.observed_tables, table]):
        return _components_with(measured, table.factors).undetermined(table, members)
    places = measured.domain.places
    known = np.zeros(places.size, dtype=bool)
    observed = zip(measured.observed_levels, measured.observed_tables, measured.typical_variances(), strict=True)
    for own, other, typical in observed:
        if refines(schema, other, table):
            known[places.members[own]] |= np.isfinite(typical)
    if isinstance(places, Spine):
        known = compose(places, known)[1]
    lacking = members[~known[members]]
    return int(lacking[0]) if lacking.size else None


def _components_with(measured: Measured, factors: Sequence[str]) -> SelfConsistency:
    """Components of the measurements that suit other factors too."""
    if {factor for table in measured.observed_tables for factor in table.factors}.issuperset(factors):
        assert isinstance(measured.relations, TableRelations)
        return measured.relations.structure
    levels, tables, variances = measured.observed_levels, measured.observed_tables, measured.typical_variances()
    return consistency_of(measured.domain.schema, measured.domain.places, levels, tables, variances, factors)


def refuse_unestimable(record: Record) -> None:
    """Refuse, by name, desired tables and cells that nothing observed determines.

    Raises
    ------
    ValueError
    """
    if record.desired is record.observed and not record.has_unmeasured:
        return
    if not record.is_placed:
        record.tabulation  # noqa: B018  refuses, by name, what no observed tables contain
        _refuse_undetermined_cells(record)
    elif _some_lack(record) or record.is_measured_in_part:
        record.tabulation  # noqa: B018  refuses, by name, what rests on undetermined cells


def _some_lack(record: Record) -> bool:
    """Whether measurements alone leave a desired table open somewhere, which only elimination can then tell.

    Raises
    ------
    ValueError
        If neither structural zeros nor crossing recodes leave anything to tell.
    """
    schema, places, found = record.domain.schema, record.domain.places, False
    for level, table in zip(record.desired_levels, record.desired_tables, strict=True):
        geounit = lacks(record, level, table)
        if geounit is None:
            continue
        found = factors_cross(schema, [*record.observed_tables, table]) or (record.has_zeros and is_small(record))
        if not found:
            where = f"{places.levels[level]} {places.geocodes[geounit]!r}"
            raise ValueError(
                f"table {table.name!r} is not estimable at {where}: no measurement there, below or above "
                "determines it, and equalities between observed cells do not count towards it"
            )
    return found


def _refuse_undetermined_cells(record: Record) -> None:
    """Refuse desired cells of one place that depend on some which neither were measured nor follow from the others.

    Arbitrary values in the cells that are not estimable show which cells change with them. A desired cell may
    still be determined where cells that it is summed from are not.
    """
    if not record.relations.partly_measured:
        return
    if record.is_tree_of_sums:
        lost = np.flatnonzero(~record.relations.tree.determined(~record.unmeasured))
        if lost.size:
            raise ValueError(
                f"row {lost[0]} of S is not estimable: it was not measured, and no other rows determine it"
            )
        return
    elimination = record.relations.elimination("independent")
    arbitrary = np.zeros(record.observed.size)
    arbitrary[elimination.free_columns] = np.random.default_rng(0).uniform(1, 2, elimination.free_columns.size)
    change = arbitrary.copy()
    change[elimination.solved_columns] = -(elimination.solved[:, : record.observed.size] @ arbitrary)
    moved = abs(record.tabulate(change[:, None])[:, 0]) > CHANGE * record.tabulate(abs(change)[:, None])[:, 0]
    if moved.any():
        position = int(np.flatnonzero(moved)[0])
        name, cell = record.desired.locate(position)
        where = f"its cell {record.desired.labels(position)}" if cell else "it"
        raise ValueError(
            f"table {name!r} is not estimable: {where} rests on cells that were not measured and that nothing "
            f"observed determines; {INSTEAD}"
        )


def undetermined_cells(measured: Measured, determined: Record, assumed: NDArray[np.intp]) -> NDArray[np.bool_] | None:
    """Desired cells that change with what is assumed of some cells, (m,); None without any.

    Parameters
    ----------
    measured : Measured
    determined : Record
        The same, had those cells been measured, and what is desired.
    assumed : ndarray of int
        The cells.
    """
    elimination, n = measured.relations.open_elimination, measured.observed.size
    change = np.zeros(n)
    change[assumed] = np.random.default_rng(0).uniform(1, 2, assumed.size)
    change[elimination.solved_columns] = -(elimination.solved[:, :n] @ change)
    size = np.zeros(n)
    size[assumed] = 2.0
    size[elimination.solved_columns] = abs(elimination.solved[:, :n]) @ size
    moved = abs(determined.tabulate(change[:, None])[:, 0])
    largest = abs(determined.tabulate(size[:, None])[:, 0])
    found = moved > CHANGE * np.maximum(largest, 1)
    return found if found.any() else None


def why_undetermined(record: Record, position: int) -> str:
    """Why a cell of the desired layout is not estimable, in one line that names it."""
    name, cell = record.desired.locate(position)
    own = "it was not measured" if _is_unmeasured(record, name, cell) else "it rests on cells that were not measured"
    return f"{record.desired.describe(position)}: {own}, and no other measurements determine it"


def _is_unmeasured(record: Record, name: Any, cell: tuple[int, ...]) -> bool:
    """Whether a desired cell is an observed one, and has no measurement of its own."""
    try:
        record.observed.index(name)
    except ValueError:
        return False
    place = np.ravel_multi_index(cell, record.desired.shape(name)) if cell else 0
    return bool(np.isinf(record.observed.turned(record.variances, name)[place]))


def undetermined_refusal(record: Record) -> str | None:
    """Why what has no place for NaN refuses a problem with cells that are not estimable, or None without any."""
    if record.undetermined is None:
        return None
    return f"{why_undetermined(record, int(record.undetermined.argmax()))}: leave its table out of desired="
