"""Measurement files read for some variables alone: every table is summed over the others as it is read.

The sum over a variable that no table recodes and no structural zero speaks of loses nothing for the tables of the
others: contrasts along it are problems of their own. Sums over other variables are unbiased too, with exact variances,
but estimates are then the best from these sums, not from all that was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table, parse_table
from constraint_builders.files.settings import Settings, derived, with_recodes_of
from constraint_builders.files.tied_histograms import TIED, tied_settings


@dataclass(frozen=True)
class KeptVariables:
    """How tables of all variables are summed to tables of some.

    Attributes
    ----------
    source, target : Settings
        Of all variables, as files have them, and of those that are kept.
    units : Settings or None
        Of a second histogram of the same geounits, tied by tenure; see `tied_histograms`.
    """

    source: Settings
    target: Settings
    units: Settings | None = None

    @property
    def summed_out(self) -> tuple[str, ...]:
        """The other variables."""
        return tuple(name for name in self.source.schema.names if not self._keeps(name))

    def _keeps(self, variable: str) -> bool:
        """Whether a variable of the files is one of those that are kept, or a recode of one."""
        schema = self.target.schema
        return variable in schema.names or any(recode.name == variable for recode in schema.recodes)

    def table(self, table: Table) -> Table:
        """What a table of the source's schema becomes."""
        return make_table(self.target.schema, tuple(table.factors[i] for i in self._kept(table)))

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

    def _kept(self, table: Table) -> list[int]:
        names = self.source.schema.names
        return [i for i, axis in enumerate(table.axes) if self._keeps(names[axis])]

    def _others(self, table: Table) -> tuple[int, ...]:
        kept = self._kept(table)
        return tuple(1 + i for i in range(len(table.axes)) if i not in kept)


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
        if settings.text == tied.text:  # and no file of that name
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
    schema = with_recodes_of(plain, settings.schema)
    return KeptVariables(source, settings_over(settings, schema), units)


def settings_over(settings: Settings, schema: Schema) -> Settings:
    """The same settings over a schema of some of the variables, or with more recodes; without constraints.

    Parameters
    ----------
    settings : Settings
    schema : Schema
        With the variables and recodes of the settings' schema that tables have, but those that are summed out.
    """
    losses: dict[
        str, dict[str, Fraction]
    ] = {}  # a sum of k cells has k times the variance; of the same sum they add up
    for level, row in settings.budget.losses.items():
        for name, loss in row.items():
            table = parse_table(settings.schema, name)
            factors = zip(table.axes, table.factors, strict=True)
            own = tuple(factor for axis, factor in factors if settings.schema.names[axis] in schema.names)
            target = make_table(schema, own).in_schema_order()
            by_level = losses.setdefault(target.name, {})
            by_level[level] = by_level.get(level, Fraction(0)) + loss / Fraction(table.size, target.size)
    return derived(settings, settings.name, schema, losses)


def blended(new: NDArray, before: Float, share: Float) -> tuple[NDArray, Float]:
    """Values of some geounits, (G, cells), of which the new ones have a share, (G,); squares of what they differ by."""
    weight, apart = share[:, None], new - before
    mean = np.where(weight == 1, new, weight * new + (1 - weight) * before)
    return mean, np.einsum("gc,gc->g", apart, apart, dtype=np.float64)
