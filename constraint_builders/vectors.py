"""Vectors of measurements that no table can hold are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.description.reals import LARGEST_VALUE
from constraint_builders.relations.closed_tables import ClosedTables, TooManyTablesError
from constraint_builders.relations.equations import Equations

if TYPE_CHECKING:
    from constraint_builders.measured import Measured
    from constraint_builders.record import Record

MOST_CELLS = 4.0  # of all tables that some observed table contains, for each observed cell
PIECE = 1 << 20  # values looked at together
MOST_NAMED = 5  # cells of one table in a message
CONTRADICTION_TOLERANCE = 1e-9  # relative to what is added up: rounding of sums of doubles stays well below
SURE_SUM = 2.0**50  # up to which sums of whole numbers have no rounding at all
ROUNDED = 1e-13  # of the largest value: what rounding may leave of one that is 0


class Gap(NamedTuple):
    """The largest difference between the sums of two observed tables, and their numbers."""

    size: float
    first: int
    second: int


def largest_gap(measured: Measured, values: Float) -> Gap | None:
    """Of values over the observed layout, (n,); None where more is known than the sums of whole plain tables."""
    if not (measured.is_tabular and measured.has_only_tables):
        return None
    layout, schema = measured.observed, measured.domain.schema
    lacking = np.add.reduceat(measured.unmeasured.astype(int), layout.offsets[:-1])
    names = set(schema.names)
    plain = all(names.issuperset(table.factors) and not table.is_turned for table in measured.observed_tables)
    if not plain or ((lacking > 0) & (lacking < layout.sizes)).any():
        return None
    keys = tuple(table.axes for table in measured.observed_tables)
    try:
        tables = ClosedTables.of(schema.shape, keys, MOST_CELLS * layout.size + 1e6)
    except TooManyTablesError:
        return None
    cells, source = np.zeros(tables.cells), np.full(tables.sizes.size, -1)
    cells[: values.size] = values
    source[: lacking.size] = np.where(lacking == 0, np.arange(lacking.size), -1)
    worst = Gap(0.0, 0, 0)
    for table, without, _, before, levels, after in tables.up.tolist():
        if source[table] < 0:
            continue
        start, end, size = tables.offsets[table], tables.offsets[without], before * after
        sums = cells[start : start + size * levels].reshape(before, levels, after).sum(axis=1).ravel()
        known = cells[end : end + size]
        if source[without] < 0:
            known[...], source[without] = sums, source[table]
        elif (gap := float(abs(sums - known).max())) > worst.size:
            worst = Gap(gap, int(source[table]), int(source[without]))
    return worst


def refuse_unreadable(measured: Measured, y: Float) -> None:
    """Raise `ValueError` for a vector (n,) over the observed layout with values that are missing or unusable."""
    y = measured.observed.flat(y, "y")
    if all_usable(y):
        return
    bad = ~np.isfinite(y)
    bad[measured.unmeasured & np.isnan(y).reshape(y.shape[0], -1).all(axis=1)] = False
    if bad.any():
        position = int(np.flatnonzero(bad.reshape(y.shape[0], -1).any(axis=1))[0])
        value = "NaN" if np.isnan(y[position]).any() else "infinite"
        raise ValueError(f"{measured.observed.describe(position)} is {value}: give a finite number")
    refuse_large_values(measured, y)


def refuse_impossible(record: Record, y: Float) -> None:
    """Raise `ValueError` for values, (n,) or (n, K), that no count leads to by the law of the noise.

    Of the combination of what several sources say each of these is asked.
    """
    law = record.noise.law
    if isinstance(law, str):
        return
    sources = record.sources_of(y) if y.ndim == 1 else None
    cell, values = np.arange(len(y)), y
    if sources is not None:
        cell, values = sources.cell[sources.variances > 0], sources.values[sources.variances > 0]
    noisy = ~(record.exact | record.unmeasured)[cell]
    if sources is None and record.sources is not None:  # whose combination has other variances now
        noisy[record.sources.cell[record.sources.repeated]] = False
    wrong = (law.impossible(values).T & noisy).T
    if wrong.any():
        position = int(np.flatnonzero(wrong.reshape(len(values), -1).any(axis=1))[0])
        value = np.ravel(values[position])[np.ravel(wrong[position])][0]
        raise ValueError(
            f"{record.observed.describe(int(cell[position]))} is {value:g}, which no count is published as by {law!r}: "
            "correct it, or declare another law"
        )
    if sources is not None and law.copies_are_independent:
        why = "{}: there is no count that all of its figures may be published of by {!r}"
        record.observed.refuse(law.contradicted(cell, values), why, law)


def refuse_copies(record: Record) -> None:
    """Raise `ValueError` for sources of one cell where the law of the noise makes them copies of one measurement."""
    law = record.noise.law
    if record.sources is None or isinstance(law, str) or law.copies_are_independent:
        return
    cell = int(record.sources.cell[record.sources.repeated][0])
    raise ValueError(
        f"{record.observed.describe(cell)} has figures of several sources, which by {law!r} are copies of one "
        "measurement: read one of them, or merge them (blue_solvers.rounded.merged_copies)"
    )


def refuse_not_finite(measured: Measured, Y: Float) -> None:
    """Raise `ValueError` for columns over the observed layout, (n, K), with values that are NaN or infinite."""
    finite = np.isfinite(Y)
    if not finite.all():
        position = int(np.flatnonzero(~finite.all(axis=1))[0])
        where = measured.observed.describe(position)
        raise ValueError(f"{where} is {Y[position][~finite[position]][0]}: give a finite number")


def refuse_unusable(measured: Measured, Y: Float) -> None:
    """As `refuse_not_finite` and `refuse_large_values`, of (n,) or (n, K)."""
    refuse_not_finite(measured, Y)
    refuse_large_values(measured, Y)


def refuse_large_values(measured: Measured, y: Float, what: str = "") -> None:
    """Raise `ValueError` for values, (n,), of measured cells whose squares, in units of noise, would not be numbers."""
    if all_usable(y):
        return
    large = abs(y) > LARGEST_VALUE
    large[measured.unmeasured] = False
    if large.any():
        position = int(np.flatnonzero(large.reshape(len(y), -1).any(axis=1))[0])
        raise ValueError(
            f"{what}{measured.observed.describe(position)} is {y[position][large[position]].flat[0]:g}, beyond "
            f"{LARGEST_VALUE:g}: give values in larger units"
        )


def all_usable(y: Float) -> bool:
    """Whether all values, (n,) or (n, K), are numbers, none too large; mostly one look at their squares says so."""
    if np.vdot(y, y) <= LARGEST_VALUE**2:
        return True
    return all((abs(y[start : start + PIECE]) <= LARGEST_VALUE).all() for start in range(0, len(y), PIECE))


def refuse_contradictions(measured: Measured, between_exact: Equations, y: Float) -> None:
    """Raise `ValueError` for exact values, (n,) or (n, K), that do not satisfy the equations between them."""
    values = np.where(measured.exact.reshape(-1, *[1] * (y.ndim - 1)), y, 0)
    wrong = "values known exactly contradict one another"
    _refuse_missed(measured, between_exact, values, y, wrong, "correct them, or give one a variance above 0")


def refuse_disagreement(measured: Measured, y: Float, gap: float) -> None:
    """Raise `ValueError` where combinations without noise keep the estimate from values y, (n,), from adding up."""
    if measured.noise.is_singular and gap > CONTRADICTION_TOLERANCE * _largest(measured, y):
        raise ValueError(
            f"combinations of measurements that have no noise contradict one another by {gap:.6g}: correct them, or "
            "give every combination some noise"
        )


def refuse_untrue(measured: Measured, equations: Callable[[], Equations], truth: Float) -> None:
    """Raise `ValueError` for true values, (n,), of measured cells that do not satisfy the equations between them."""
    wrong = "truth does not add up"
    instead = "sum all of them from the same cells, as problem.marginal_matrix() @ counts does"
    values = np.where(measured.unmeasured, 0, truth)
    gap = largest_gap(measured, values)
    if gap is None:
        _refuse_missed(measured, equations(), values, values, wrong, instead)
    elif gap.size > CONTRADICTION_TOLERANCE * _largest(measured, values):
        first, second = (measured.observed.names[number] for number in sorted((gap.first, gap.second)))
        raise ValueError(f"{wrong} by {gap.size:.6g} between {first!r} and {second!r}: {instead}")


def _refuse_missed(measured: Measured, equations: Equations, values: Float, y: Float, wrong: str, instead: str) -> None:
    """Raise `ValueError` for values, (n,) or (n, K), among y, that miss equations by more than rounding."""
    A, b = equations
    if not A.shape[0]:
        return
    columns, right = values.reshape(A.shape[1], -1), b[:, None]
    residual = abs(A @ columns - right)
    weights = abs(A).max(axis=1).toarray().reshape(-1, 1)
    added = abs(A) @ abs(columns) + abs(right)
    allowed = CONTRADICTION_TOLERANCE * added + ROUNDED * _largest(measured, y) * weights
    whole = all(np.array_equal(own, np.rint(own)) for own in (columns, A.data, right)) and added.max() <= SURE_SUM
    missed = residual > (0.0 if whole else allowed)
    if missed.any():
        residual = np.where(missed, residual, 0) / np.where(weights > 0, weights, 1)  # rows may be in any unit
        row = int(residual.max(axis=1).argmax())
        cells = np.sort(A.indices[A.indptr[row] : A.indptr[row + 1]])
        blocks = dict.fromkeys(measured.observed.locate(int(cell))[0] for cell in cells)
        places = [measured.observed.describe(int(cell)) for cell in cells[:MOST_NAMED]]
        between = [repr(name) for name in blocks] if len(blocks) > 1 else places
        raise ValueError(f"{wrong} by {residual.max():.6g} between {' and '.join(between)}: {instead}")


def _largest(measured: Measured, y: Float) -> float:
    """The largest of all values y, (n,) or (n, K), NaN where unmeasured, and of the standard deviations of noise."""
    noise = measured.noise.different_variances
    spread = float(np.sqrt(noise[np.isfinite(noise)].max(initial=0.0)))
    return float(np.fmax.reduce(abs(y), axis=None, initial=spread))
