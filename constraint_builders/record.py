"""All that a problem holds: what was measured, and which tables are wanted from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.described import equal
from constraint_builders.description.layout import Layout
from constraint_builders.description.noise import NoiseLaw
from constraint_builders.description.source_values import SourceValues, Understood
from constraint_builders.description.table import NamedTables, Table, factors_of
from constraint_builders.measured import Measured
from constraint_builders.relations.tabulation import Tabulation
from constraint_builders.vectors import refuse_copies, refuse_impossible

NOTHING_ASSUMED: Mapping[str, Any] = MappingProxyType({"assumed": np.zeros(0, dtype=np.intp), "undetermined": None})


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Record(Measured):
    """The fields of a `Problem`, which are explained there."""

    desired: Layout
    desired_tables: tuple[Table, ...] = ()
    desired_levels: tuple[int, ...] = ()
    truth: Float | None = None
    undetermined: NDArray[np.bool_] | None = None
    assumed: NDArray[np.intp] = field(default_factory=lambda: NOTHING_ASSUMED["assumed"])
    understood: Understood = field(default_factory=Understood, compare=False)
    sources: SourceValues | None = field(default=None, compare=False)

    @classmethod
    def of(cls, measured: Measured, wanted: NamedTables, **others: Any) -> Record:
        """Measurements, with what they have worked out already, the tables that are wanted from them, other fields."""
        desired, tables, levels = wanted
        own = {"desired": desired, "desired_tables": tables, "desired_levels": levels, **others}
        record = cls(**_values(measured, Measured), **own)
        vars(record).update(vars(measured))
        return record

    def replaced(self, **changes: Any) -> Record:
        """The same with other values of some fields; of the noise also by the name of its law."""
        if isinstance(law := changes.get("noise"), str | NoiseLaw):
            changes["noise"] = self.noise.of_law(law if isinstance(law, str) else law.declared)
        if equalities := changes.get("equalities"):
            E, b = equalities
            changes["equalities"] = (E := sparse.csr_array(E, copy=True)), b
            E.sum_duplicates()  # and says so: whoever uses it would note that on it, and in its pickle
        return Record(**_values(self, Record) | changes)

    def sources_of(self, y: Float) -> SourceValues | None:
        """What every source measured, of which values, (n,), are the combination; None where nothing is known of it."""
        if self.sources and self.sources.are_of(self.noise, y):
            return self.sources.completed(self.noise, y)
        return None

    def check_vector(self, y: Float) -> None:
        """As of `Measured`, of (n,) or (n, K); and for values that no count leads to, by the law of the noise."""
        super().check_vector(y)
        refuse_impossible(self, y)
        refuse_copies(self)

    @property
    def lost(self) -> NDArray[np.bool_]:
        """Desired cells that are not estimable, (m,)."""
        return np.zeros(self.desired.size, dtype=bool) if self.undetermined is None else self.undetermined

    @cached_property
    def has_turned_tables(self) -> bool:
        """Whether some table's name has its factors in another order than the schema's."""
        same = self.desired_tables is self.observed_tables
        return any(table.is_turned for table in (*self.observed_tables, *(() if same else self.desired_tables)))

    @cached_property
    def factors(self) -> frozenset[str]:
        """What observed and desired tables keep: names of variables and recodes."""
        same = self.desired_tables is self.observed_tables
        return factors_of(self.observed_tables if same else self.observed_tables + self.desired_tables)

    @cached_property
    def sums(self) -> Tabulation:
        """How desired cells are summed from observed ones."""
        return Tabulation(self, NamedTables(self.desired, self.desired_tables, self.desired_levels))

    @property
    def tabulation(self) -> sparse.csr_array | None:
        """Desired cells in terms of measured ones, (m, n), for consistent values.

        None where every desired table is summed from one observed table.
        """
        return self.sums.matrix

    def tabulate(self, X: Float) -> Float:
        """Sum consistent values over the observed layout, (n, K), to the desired layout, (m, K)."""
        return self.sums.apply(self.observed.flat(X, "X"))

    def tabulate_transpose(self, V: Float) -> Float:
        """The transpose of `tabulate`: (m, K) over the desired layout to (n, K) over the observed one."""
        return self.sums.transpose(self.desired.flat(V, "V"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return all(equal(getattr(self, own.name), getattr(other, own.name)) for own in fields(Record) if own.compare)

    def __hash__(self) -> int:
        return hash((self.observed.names, self.desired.names, self.noise.law))


def _values(record: Measured, kind: type[Measured]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in kind.__dataclass_fields__}
