"""Totals that are stated beside the measurements, compared with all that these and their bounds say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table
from constraint_builders.files.exact_totals import ExactTotal

ByTable = Mapping[str, Mapping[str, Float]]
BELOW = 2  # generations below a geounit that are looked at: those further down tell little of its total
MOST_DEVIATIONS = {"gaussian": 6.0, "discrete_gaussian": 6.0}  # so far from one total its noise does not come
OF_OTHER_LAWS = 20.0


def refuse_doubtful(
    schema: Schema,
    known: ExactTotal,
    position: int,
    spine: Spine,
    variances: ByTable,
    totals: ByTable,
    implied: Mapping[str, Mapping[int, int]],
    noise: str,
) -> None:
    """Refuse a total that cannot be that of its geounit, by what was measured or is known there and below.

    Parameters
    ----------
    schema : Schema
    known : ExactTotal
    position : int
        The geounit, in the spine.
    spine : Spine
    variances, totals : mapping of geolevel to mapping of table to ndarray (geounits of the level,)
        Of every cell, infinite where it was not measured; and the sum of all cells.
    implied : mapping of geolevel to mapping of int to int
        Totals that bounds imply, by number of geounit, which are not believed where what was measured contradicts them.
    noise : str
        The law.

    Raises
    ------
    ValueError
        If it is not what is known exactly or is implied, or is further from the weighted mean of all tables' sums than
        their noise comes.
    """
    precision = weighted = 0.0
    derived: set[int] = set()
    units = np.array([position])
    for _ in range(1 + BELOW):
        ranks = {level: spine.rank_in_level[units[here]] for level, here in _by_level(spine, units)}
        for count, variance in _sums(schema, ranks, variances, totals):
            if variance > 0:
                precision, weighted = precision + 1 / variance, weighted + count / variance
            elif count != known.total:
                raise _refusal(known, f"what is known exactly adds up to {count:,.0f}")
        said = [implied.get(level, {}).get(rank) for level, own in ranks.items() for rank in own.tolist()]
        whole = [own for own in said if own is not None]
        derived |= {sum(whole)} if said and len(whole) == len(said) else set()
        units = np.flatnonzero(np.isin(spine.parent, units))
    mean, error = (weighted / precision, precision**-0.5) if precision else (known.total, np.inf)
    far = MOST_DEVIATIONS.get(noise, OF_OTHER_LAWS) * error + 0.5
    if abs(known.total - mean) > far:
        raise _refusal(known, f"it was measured as {mean:,.1f} with a standard error of {error:.1f}")
    for total in sorted(derived - {int(known.total)}):
        if abs(total - mean) <= far:
            raise _refusal(known, f"the bounds on persons of every type imply {total:,}")


def _by_level(spine: Spine, units: Index) -> Iterator[tuple[str, Flags]]:
    for number in np.unique(spine.level_of[units]).tolist():
        yield spine.levels[number], spine.level_of[units] == number


def _sums(
    schema: Schema, ranks: Mapping[str, Index], variances: ByTable, totals: ByTable
) -> Iterator[tuple[float, float]]:
    """The sum over some geounits, by rank in their levels, of every table that all of them have; and its variance."""
    for name in set.intersection(*(set(variances.get(level, {})) for level in ranks)) if ranks else ():
        variance = sum(float(variances[level][name][own].sum()) for level, own in ranks.items())
        if np.isfinite(variance):
            count = sum(float(totals[level][name][own].sum()) for level, own in ranks.items())
            yield count, parse_table(schema, name).size * variance


def _refusal(known: ExactTotal, found: str) -> ValueError:
    return ValueError(
        f"{known.place}: the total is {known.total:,.0f}, and {found}: no noise explains that; is the total of these "
        "measurements, and of this year, and is all in the folder that it counts?"
    )
