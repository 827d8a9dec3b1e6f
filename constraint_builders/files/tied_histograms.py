"""Two histograms of the same geounits, tied by tenure: households by householder, and units by tenure and vacancy.

Both count households by tenure, so both are one problem. Its schema is that of households, with the tenure of units,
of which that of households is a recode. What was measured of units becomes two tables of it:

- units by tenure, with their own variance: the tenured cells come first in the histogram of units;
- where the number N of housing units is known exactly, households altogether: N less all vacant units, with the sum of
  their variances. Cells of one table have independent noise, so both are independent.

Vacant units one by one and facilities tell nothing more of households: given their sum, and exact numbers of
facilities, their contrasts are problems of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import make_table, parse_table
from constraint_builders.files.settings import Settings, derived, production_settings, with_recodes_of

TIED = {"dhc_us_housing": "dhc_us_units", "dhc_pr_housing": "dhc_pr_units"}
UNITS_SUFFIX = "_tenvacgq"
UNITS = "tenvacgq"
OF_HOUSEHOLDS, TENURE = "hhtenshort_3lev", "tenure"
TENURES, VACANCIES = 4, 7
GROUPS = {"hhtenshort_3lev": (0, 1, 2, 2), "hhtenshort_2lev": (0, 0, 1, 1)}


@dataclass(frozen=True)
class Histograms:
    """Settings of the two histograms of one run.

    Attributes
    ----------
    households, units : Settings
    """

    households: Settings
    units: Settings


def tied_settings(name: str) -> tuple[Settings, Histograms]:
    """Settings of households and units in one problem, and those of the two histograms as files have them.

    Parameters
    ----------
    name : str
        One of `TIED`.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name not in TIED:
        raise ValueError(f"no settings {name!r} of two histograms: there are {', '.join(TIED)}")
    households = production_settings(TIED[name])
    units = production_settings(f"{TIED[name]}{UNITS_SUFFIX}")
    schema = _schema(households.schema, units.schema)
    rows: dict[str, dict[str, Fraction]] = {}
    for level, losses in households.budget.losses.items():
        for table, loss in losses.items():
            rows.setdefault(make_table(schema, parse_table(households.schema, table).factors).name, {})[level] = loss
    for level, losses in units.budget.losses.items():
        rows.setdefault(TENURE, {})[level] = losses[UNITS]
        rows.setdefault("total", {})[level] = losses[UNITS] / VACANCIES
    return derived(households, name, schema, rows), Histograms(households, units)


def _schema(households: Schema, units: Schema) -> Schema:
    """The schema of households, with the tenure of units."""
    variables: dict[str, tuple[str, ...]] = {}
    for name in households.names:
        if name == OF_HOUSEHOLDS:
            variables[TENURE] = units.labels_of(UNITS)[:TENURES]
        else:
            variables[name] = households.labels_of(name)
    recodes = {TENURE: {name: [households.labels_of(name)[group] for group in own] for name, own in GROUPS.items()}}
    return with_recodes_of(Schema(variables, recodes), households)


def types_of_facilities(units: Settings) -> tuple[str, ...]:
    """Labels of the cells of the histogram of units that count facilities: those after tenures and vacancies."""
    return units.schema.labels_of(UNITS)[TENURES + VACANCIES :]


def tenure_of_units(cells: NDArray) -> NDArray:
    """The tenured cells of the histogram of units, (rows, cells)."""
    return cells[:, :TENURES]


def added(cells: NDArray) -> NDArray:
    """The sum of all cells, (rows, 1), whatever the width of the numbers."""
    return cells.sum(axis=1, keepdims=True, dtype=np.float64 if cells.dtype.kind == "f" else np.int64)


def households_of_units(cells: NDArray, housing_units: Float) -> Float:
    """Households, (rows, 1): the exact number of housing units, (rows,), less those that are vacant."""
    vacant = added(cells[:, TENURES : TENURES + VACANCIES])[:, 0]
    return (housing_units - vacant)[:, None]
