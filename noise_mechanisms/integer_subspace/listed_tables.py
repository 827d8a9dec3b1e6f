"""Every table of non-negative whole numbers, or of 0 and 1, with the same invariants, listed by a search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Integers
from noise_mechanisms.integer_subspace.invariants import Invariants

_MOST_RECORDS = 500
_DEAD_ENDS = 20  # for every table that may be listed
_INSTEAD = (
    "fix more, or give up the bounds and use GeneralizedLaplace or GeneralizedGaussian, which need no list; "
    "BoundedMechanism.sample_by_chain simulates without one"
)


def equivalent_tables(invariants: Invariants, table: ArrayLike, binary: bool = False, limit: int = 100_000) -> Integers:
    """List every table of non-negative whole numbers with the same invariants.

    Parameters
    ----------
    invariants : Invariants
        What must be the same; every record must be in some set, unless tables are binary.
    table : array_like of whole numbers, (d,)
        Not negative.
    binary : bool
        List tables of 0 and 1 only.
    limit : int
        The most tables to list.

    Returns
    -------
    ndarray of int64, (tables, d)
        In lexicographic order.

    Raises
    ------
    ValueError
        If the table is itself not allowed, a record is in no set and so has no largest value, there are more than 500
        records, more than `limit` tables are equivalent, or the search for them meets too many dead ends.
    """
    values = allowed_table(invariants, table, binary)
    top = 1 if binary else int(values.sum())
    by_record = invariants.matrix.tocsc()
    held = [by_record.indices[by_record.indptr[j] : by_record.indptr[j + 1]] for j in range(invariants.records)]
    if not binary and any(sets.size == 0 for sets in held):
        free = next(j for j, sets in enumerate(held) if sets.size == 0)
        raise ValueError(f"record {free} is in no set: it can grow without end, and the tables cannot be listed")
    if invariants.records > _MOST_RECORDS:
        raise ValueError(
            f"a table of {invariants.records:,} records: at most {_MOST_RECORDS} can be searched; {_INSTEAD}"
        )
    found = []
    for searched, allowed in enumerate(_complete(invariants.apply(values), held, top)):
        if allowed is not None:
            found.append(allowed)
        if len(found) > limit:
            raise ValueError(f"more than {limit:,} tables are equivalent: listing them is refused; {_INSTEAD}")
        dead_ends = searched + 1 - len(found)
        if dead_ends > _DEAD_ENDS * limit:
            raise ValueError(f"{dead_ends:,} dead ends and {len(found):,} tables: the search is given up; {_INSTEAD}")
    return np.array(found, dtype=np.int64)


def _complete(remaining: Integers, held: list[Integers], top: int) -> Iterator[list[int] | None]:
    """Depth-first search over the records, with what each set still lacks; a set's last record takes all of it.

    Yields tables, and None at every dead end.
    """
    last = {int(row): j for j, sets in enumerate(held) for row in sets}
    table = [0] * len(held)

    def extend(j: int) -> Iterator[list[int] | None]:
        if j == len(held):
            yield table.copy()
            return
        sets = held[j]
        low, high = 0, min([top, *(int(remaining[row]) for row in sets)])
        closing = [int(remaining[row]) for row in sets if last[int(row)] == j]
        if closing:
            low, high = max(closing), min(high, *closing)
        if low > high:
            yield None
        for value in range(low, high + 1):
            table[j] = value
            remaining[sets] -= value
            yield from extend(j + 1)
            remaining[sets] += value

    yield from extend(0)


def allowed_table(invariants: Invariants, table: ArrayLike, binary: bool) -> Integers:
    """A table (d,), refused where it is itself out of bounds."""
    values = invariants.read_vector(table)
    if values.min(initial=0) < 0 or (binary and values.max(initial=0) > 1):
        needed = "0 or 1" if binary else "0 or more"
        raise ValueError(f"the table holds values from {values.min()} to {values.max()}: they must be {needed}")
    return values
