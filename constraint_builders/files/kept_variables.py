"""Measurement files read for some variables alone: every table is summed over the others as it is read.

The sum over a variable that no table recodes and no structural zero speaks of loses nothing for the tables of the
others: contrasts along it are problems of their own. Sums over other variables are unbiased too, with exact variances,
but estimates are then the best from these sums, not from all that was measured.

Two histograms of the same geounits are tied by tenure: households by householder, and units by tenure and vacancy.

Both count households by tenure, so both are one problem. Its schema is that of households, with the tenure of units,
of which that of households is a recode. What was measured of units becomes two tables of it:

- units by tenure, with their own variance: the tenured cells come first in the histogram of units;
- where the number N of housing units is known exactly, households altogether: N less all vacant units, with the sum of
  their variances. Cells of one table have independent noise, so both are independent.

Vacant units one by one and facilities tell nothing more of households: given their sum, and exact numbers of
facilities, their contrasts are problems of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Flags
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table, parse_table
from constraint_builders.files.settings import Settings, derived, production_settings

TIED = {"dhc_us_housing": "dhc_us_units", "dhc_pr_housing": "dhc_pr_units"}
UNITS_SUFFIX = "_tenvacgq"
UNITS = "tenvacgq"
OF_HOUSEHOLDS, TENURE = "hhtenshort_3lev", "tenure"
TENURES, VACANCIES = 4, 7  # cells of the histogram of units, tenures first; then come facilities by type
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
    return Schema(variables, recodes).with_recodes_of(households)


def added(cells: NDArray) -> NDArray:
    """The sum of all cells, (rows, 1), whatever the width of the numbers."""
    return cells.sum(axis=1, keepdims=True, dtype=np.float64 if cells.dtype.kind == "f" else np.int64)


def vacant_units(cells: NDArray) -> NDArray:
    """The sum of the vacant cells of the histogram of units, (rows,)."""
    return added(cells[:, TENURES : TENURES + VACANCIES])[:, 0]


@dataclass(frozen=True)
class KeptVariables:
    """How tables of all variables are summed to tables of some.

    Attributes
    ----------
    source, target : Settings
        Of all variables, as files have them, and of those that are kept.
    units : Settings or None
        Of a second histogram of the same geounits, tied by tenure; see `tied_settings`.
    """

    source: Settings
    target: Settings
    units: Settings | None = None

    @property
    def summed_out(self) -> tuple[str, ...]:
        """The other variables."""
        kept = self.target.schema.factor_names  # a variable of the files may be a recode of one that is kept
        return tuple(name for name in self.source.schema.names if name not in kept)

    def table(self, table: Table) -> Table:
        """What a table of the source's schema becomes."""
        return table.over(self.target.schema)

    def cells_summed(self, table: Table) -> int:
        """How many of its cells add up to one."""
        return table.size // self.table(table).size

    def sums(self, table: Table, values: NDArray) -> NDArray:
        """Its cells, (rows, cells), summed."""
        axes = self._others(table)
        if not axes:
            return values
        cells = values.reshape(len(values), *table.shape).astype(np.float64 if values.dtype.kind == "f" else np.int64)
        return cells.sum(axis=axes).reshape(len(values), -1)

    def empty(self, table: Table, cells: Flags) -> Flags:
        """Which sums are empty, (rows, cells), by which of its cells are: a sum is if all that it adds are."""
        axes = self._others(table)
        if not axes:
            return cells
        flags: Flags = cells.reshape(len(cells), *table.shape).all(axis=axes).reshape(len(cells), -1)
        return flags

    def _others(self, table: Table) -> tuple[int, ...]:
        names, summed_out = self.source.schema.names, self.summed_out
        return tuple(1 + i for i, axis in enumerate(table.axes) if names[axis] in summed_out)


def keep_variables(settings: Settings, variables: Sequence[str] | None) -> KeptVariables:
    """Settings of some variables alone, by default of all.

    Parameters
    ----------
    settings : Settings
    variables : sequence of str, optional

    Raises
    ------
    ValueError
        If there is no variable of a name, or the privacy loss of sums is none that settings can say.
    """
    source, units = settings, None
    if settings.name in TIED:
        tied, histograms = tied_settings(settings.name)
        if settings == tied:  # and no file of that name
            source, units = histograms.households, histograms.units
    if variables is None:
        return KeptVariables(source, settings, units)
    names = settings.schema.names
    unknown = [name for name in variables if name not in names]
    if unknown or not variables:
        what = f"there is no variable {unknown[0]!r}" if unknown else "no variable is named"
        raise ValueError(f"{what}: there are {', '.join(names)}")
    if set(variables) == set(names):
        return KeptVariables(source, settings, units)
    if settings.budget.measure != "zcdp":
        raise ValueError(f"sums of tables of settings {settings.name!r} have no noise of their law: keep all variables")
    plain = Schema({name: settings.schema.labels_of(name) for name in names if name in variables})
    return KeptVariables(source, settings_over(settings, plain.with_recodes_of(settings.schema)), units)


def settings_over(settings: Settings, schema: Schema) -> Settings:
    """The same settings over a schema of some of the variables, or with more recodes; without constraints.

    Parameters
    ----------
    settings : Settings
    schema : Schema
        With the variables and recodes of the settings' schema that tables have, but those that are summed out.
    """
    losses: dict[str, dict[str, Fraction]] = {}  # a sum of k cells has k times the variance; of one sum they add up
    for level, row in settings.budget.losses.items():
        for name, loss in row.items():
            table = parse_table(settings.schema, name)
            target = table.over(schema)
            by_level = losses.setdefault(target.name, {})
            by_level[level] = by_level.get(level, Fraction(0)) + loss / Fraction(table.size, target.size)
    return derived(settings, settings.name, schema, losses)
