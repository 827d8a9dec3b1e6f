"""Which combinations of noisy cells are known for every possible truth, in rational numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr

from blue_solvers.verification.time_limit import require_time
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders.arrays import Index

MOST_OPERATIONS = 3_000_000
MOST_DENSE = 1_000_000  # entries of a matrix whose columns are sorted by what they tell
Row = dict[int, "int | Fraction"]


def relations(noisy: sparse.csr_array, free: sparse.csr_array) -> sparse.csr_array:
    """Combinations of the rows of `noisy` that lie in the span of the rows of `free`.

    Parameters
    ----------
    noisy : csr_array, (n, N)
    free : csr_array, (k, N)

    Returns
    -------
    csr_array of longdouble, (relations, n)
        One row a combination, exact but for one rounding of each entry.

    Raises
    ------
    NotCertifiedError
        If it would take too long.
    """
    single = _single_counts(noisy)
    if not free.shape[0] and (single >= 0).all():
        return _beside_single_counts(noisy, single)
    rows = [_read(row) for row in (*_rows(noisy), *_rows(free))]
    chosen = _telling_columns(sparse.csr_array(sparse.vstack([noisy, free], format="csr")))
    found = _relations_of([{j: row[j] for j in row if j in chosen} for row in rows] if chosen else rows)
    if chosen and not all(_is_relation(own, rows) for own in found):
        found = _relations_of(rows)
    of_noisy = ({i: value for i, value in own.items() if i < noisy.shape[0]} for own in found)
    return _matrix([own for own in of_noisy if own], noisy.shape[0])


def _telling_columns(matrix: sparse.csr_array) -> set[int]:
    """As many counts as rows at most, of which rows are combinations of one another if they are of all; or none."""
    rows, columns = matrix.shape
    if columns <= rows or rows * columns > MOST_DENSE:
        return set()
    *_, order = qr(matrix.toarray().astype(float), mode="r", pivoting=True)
    return set(order[:rows].tolist())


def _is_relation(combination: Row, rows: list[Row]) -> bool:
    total: Row = {}
    for i, value in combination.items():
        _subtract(total, rows[i], value)
    return not total


def _relations_of(rows: list[Row]) -> list[Row]:
    """Combinations of rows that are 0 and make up all others, by elimination."""
    counts = Counter(j for row in rows for j in row)
    pivots: dict[int, tuple[Row, Row]] = {}
    found: list[Row] = []
    operations = 0
    for i in sorted(range(len(rows)), key=lambda i: len(rows[i])):
        row: Row = dict(rows[i])
        own: Row = {i: 1}
        waiting = list(row)
        while waiting:
            hit = waiting.pop()
            if hit not in row or hit not in pivots:
                continue
            require_time()
            other, others = pivots[hit]
            factor = _ratio(row[hit], other[hit])
            _subtract(row, other, factor)
            _subtract(own, others, factor)
            waiting.extend(other)
            operations += len(other) + len(others)
            if operations > MOST_OPERATIONS:
                raise NotCertifiedError("working out which cells must agree in rational numbers takes too long")
        if row:
            pivots[min(row, key=lambda j: counts[j])] = row, own
        else:
            found.append(own)
    return found


def _single_counts(noisy: sparse.csr_array) -> Index:
    """For every count the first row that is this count alone, or -1."""
    rows = np.flatnonzero(np.diff(noisy.indptr) == 1)[::-1]
    rows = rows[noisy.data[noisy.indptr[rows]] == 1]
    found = np.full(noisy.shape[1], -1)
    found[noisy.indices[noisy.indptr[rows]]] = rows
    return found


def _beside_single_counts(noisy: sparse.csr_array, single: Index) -> sparse.csr_array:
    """Every row but those of single counts, less what these say of it."""
    others = np.setdiff1d(np.arange(noisy.shape[0]), single)
    entries = sparse.coo_array(noisy[others])
    rows, values = np.arange(others.size), np.ones(others.size, dtype=np.longdouble)
    pairs = np.concatenate([rows, entries.row]), np.concatenate([others, single[entries.col]])
    values = np.concatenate([values, -entries.data.astype(np.longdouble)])
    return sparse.csr_array((values, pairs), shape=(others.size, noisy.shape[0]))


def _rows(matrix: sparse.csr_array) -> Iterable[tuple[NDArray, NDArray]]:
    for start, stop in pairwise(matrix.indptr.tolist()):
        yield matrix.indices[start:stop], matrix.data[start:stop]


def _read(entries: tuple[NDArray, NDArray]) -> Row:
    row: Row = {}
    for j, value in zip(entries[0].tolist(), entries[1].tolist(), strict=True):
        row[j] = row.get(j, 0) + (int(value) if value.is_integer() else Fraction(value))
    return {j: value for j, value in row.items() if value}


def _ratio(a: int | Fraction, b: int | Fraction) -> int | Fraction:
    if b == 1:
        return a
    ratio = Fraction(a) / b
    return ratio.numerator if ratio.denominator == 1 else ratio


def _subtract(row: Row, other: Row, factor: int | Fraction) -> None:
    for j, value in other.items():
        left = row.get(j, 0) - factor * value
        if left:
            row[j] = left
        else:
            row.pop(j, None)


def _matrix(found: list[Row], size: int) -> sparse.csr_array:
    indptr = np.cumsum([0, *(len(row) for row in found)])
    indices = np.array([i for row in found for i in sorted(row)], dtype=np.intp)
    entries = [row[i] for row in found for i in sorted(row)]
    values = np.array([np.longdouble(v) if isinstance(v, int) else _rounded(v) for v in entries], dtype=np.longdouble)
    return sparse.csr_array((values, indices, indptr), shape=(len(found), size))


def _rounded(value: Fraction) -> np.longdouble:
    high = float(value)
    return np.longdouble(high) + np.longdouble(float(value - Fraction(high)))
