"""Nodes of a summing matrix that form a tree, as the geounits of a spine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table
from constraint_builders.relations.spine_constraints import SpineConsistency
from constraint_builders.relations.spine_tables import undetermined
from constraint_builders.relations.summing import NestedNodes


@dataclass(frozen=True)
class NodeTree:
    """A spine of nodes, each with one cell, the total; besides them it may hold leaves that were not measured.

    Attributes
    ----------
    schema : Schema
        Of the one cell.
    spine : Spine
    variances : list of ndarray, (nodes of the depth,)
        Of the total at every depth.
    places : ndarray of int, (n,)
        Where every node sits in a layout of these tables.
    """

    schema: Schema
    spine: Spine
    variances: list[Float]
    places: NDArray[np.intp]

    def structure(self, variances: list[Float]) -> SpineConsistency:
        """Consistency of the nodes with some variances of theirs."""
        total = parse_table(self.schema, "total")
        return SpineConsistency(self.schema, self.spine, range(len(variances)), [total] * len(variances), variances)

    @property
    def between_exact(self) -> sparse.csr_array:
        """The equations A x = 0 that hold between exactly known nodes alone, (rows, n)."""
        exact = [np.where(variances == 0, 1.0, np.inf) for variances in self.variances]
        return sparse.csr_array(self.structure(exact).matrix()[:, self.places])


def tree_of_nodes(nested: NestedNodes, variances: Float) -> NodeTree:
    """Nodes below a root of their own if they have several, and the leaves that no node stands for.

    Raises
    ------
    ValueError
        If a node was not measured and no others determine it.
    """
    n = nested.parent.size
    parent = np.concatenate([nested.parent, np.flatnonzero(nested.rest)])
    roots = np.flatnonzero(parent < 0)
    if roots.size > 1:
        parent[roots] = parent.size
        parent = np.append(parent, -1)
    spine = Spine(parent)
    spread = np.full(spine.size, np.inf)
    spread[:n] = variances
    starts = np.cumsum([0, *(members.size for members in spine.members)])
    places = (starts[spine.level_of[:n]] + spine.rank_in_level[:n]).astype(np.intp)
    tree = NodeTree(Schema({"node": 1}), spine, [spread[members] for members in spine.members], places)
    lost = undetermined(tree.structure(tree.variances), parse_table(tree.schema, "total"), np.arange(n))
    if lost is not None:
        raise ValueError(f"row {lost} of S is not estimable: it was not measured, and no other rows determine it")
    return tree
