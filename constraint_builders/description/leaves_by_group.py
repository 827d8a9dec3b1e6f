"""Leaves of areas told apart by a variable: so a product may count some of its levels alone.

Households are counted by their householders: what a product of households says of a block is said of those persons
there who are householders. With leaves such as "block 1, householder" in the place of "block 1" that is an area like
any other, and no table has cells that were not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.area_layers import AreaLayer
from constraint_builders.description.areas import LEAF, Areas
from constraint_builders.description.common_leaves import CommonLeaves
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import parse_table

BY = " by "


class LeavesByGroup:
    """A schema without one of its variables, whose levels are told apart by the leaves.

    Parameters
    ----------
    schema : Schema
    leaves : CommonLeaves
    only : mapping of str to mapping of str to sequence of str
        For products that count some persons alone the labels that these have, all of factors of one variable.

    Attributes
    ----------
    schema : Schema
        Of the other variables.

    Raises
    ------
    ValueError
        If there is no such factor or label, or they are of several variables.
    """

    def __init__(self, schema: Schema, leaves: CommonLeaves, only: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        self._whole, self._leaves = schema, leaves
        counted = {name: [self._counted(factor, said[factor]) for factor in said] for name, said in only.items()}
        axes = {schema.axis_of(factor) for said in only.values() for factor in said}
        if len(axes) != 1:
            named = ", ".join(repr(schema.names[axis]) for axis in sorted(axes)) or "none"
            raise ValueError(f"only= must name labels of one variable of the finer schema: got {named}")
        self._axis = axes.pop()
        self._only = {name: np.logical_and.reduce(flags) for name, flags in counted.items()}
        self.schema = _without(schema, self._axis)
        self._layers: dict[str, tuple[AreaLayer, Float, tuple[str, ...]]] = {}

    def _counted(self, factor: str, labels: Sequence[str]) -> Float:
        """1 for the levels of its variable that have one of some labels of a factor."""
        known, asked = self._whole.labels_of(factor), [labels] if isinstance(labels, str) else list(labels)
        unknown = [label for label in asked if label not in known]
        if unknown or not asked:
            raise ValueError(f"{factor!r} has no label {unknown[:1] or labels!r}: there are {', '.join(known[:8])}")
        return np.isin(known, asked)[list(self._whole.groups_of(factor))].astype(float)

    def place(self, layer: str, table: str) -> tuple[str, str, int]:
        """The layer and the table over the other variables that a table at a layer is, cells in its order.

        Returns
        -------
        layer, table : str
        groups : int
            How many areas of the layer every area has become.

        Raises
        ------
        ValueError
            If the table has a factor of the variable that is not its first, or the product counts some levels alone.
        """
        own, variable = parse_table(self._whole, table), self._whole.names[self._axis]
        name, areas = self._leaves.geography_of(layer), self._leaves.areas.layer(layer)
        called = f"{LEAF} ({name or 'all'})" if layer == LEAF else layer
        if self._axis not in own.axes:
            weights = self._only.get(name or "", np.ones(self._whole.shape[self._axis]))
            self._layers.setdefault(called, (areas, weights[None], areas.names))
            return called, _named(own.factors), 1
        if own.axes[0] != self._axis:
            raise ValueError(f"table {table!r}: the factor of {variable!r} must come first in its name")
        if name in self._only:
            raise ValueError(f"table {table!r} of problem {name!r} tells {variable!r} apart, of which it counts a part")
        first = own.factors[0]
        labels, called = self._whole.labels_of(first), f"{called}{BY}{first}"
        weights = np.eye(len(labels))[list(self._whole.groups_of(first))].T
        names = tuple(f"{area}, {label}" for area in areas.names for label in labels)
        self._layers.setdefault(called, (areas, weights, names))
        return called, _named(own.factors[1:]), len(labels)

    def first(self, table: str, cells: NDArray) -> tuple[str, NDArray]:
        """A table with the factor of the variable, if it has one, first; its cells are (areas, *shape)."""
        own = parse_table(self._whole, table)
        if self._axis not in own.axes:
            return table, cells
        place = own.axes.index(self._axis)
        factors = (own.factors[place], *own.factors[:place], *own.factors[place + 1 :])
        return _named(factors), np.moveaxis(cells, 1 + place, 1)

    def areas(self) -> Areas:
        """All layers in use, over the leaves by what the layers tell apart of the variable."""
        told = np.vstack([weights for _, weights, _ in self._layers.values()])
        kinds = np.sort(np.unique(told, axis=1, return_index=True)[1])
        labels = self._whole.labels_of(self._whole.names[self._axis])
        found = Areas(
            [f"{leaf}, {labels[kind]}" for leaf in self._leaves.areas.names(LEAF) for kind in kinds.tolist()], {}
        )
        for layer, (own, weights, called) in self._layers.items():
            incidence = sparse.csr_array(sparse.kron(own.incidence, weights[:, kinds]))
            found = found.with_layer(layer, incidence, called)
        return found


def _named(factors: Sequence[str]) -> str:
    return " * ".join(factors) or "total"


def _without(schema: Schema, axis: int) -> Schema:
    """A schema without one of its variables; of one variable that has a single level where there is no other."""
    names = [name for i, name in enumerate(schema.names) if i != axis]
    recodes: dict[str, dict[str, list]] = {}
    for recode in schema.recodes:
        if recode.axis != axis:
            counted = recode.labels == tuple(map(str, range(recode.size)))
            groups = [group if counted else recode.labels[group] for group in recode.groups]
            recodes.setdefault(schema.names[recode.axis], {})[recode.name] = groups
    return Schema({name: schema.labels_of(name) for name in names} or {"all": 1}, recodes)
