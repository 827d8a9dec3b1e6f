"""What is known of all geounits from what is known of some, since parents are the sums of their children."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Flags
from constraint_builders.description.levelled_tree import LevelledTree


def compose(spine: LevelledTree, known: Flags) -> tuple[sparse.csr_array, NDArray[np.bool_]]:
    """Geounits as sums and differences of those of which something is known.

    Parameters
    ----------
    spine : LevelledTree
    known : ndarray of bool, (N,)

    Returns
    -------
    csr_array, (N, N)
        A row for every geounit, of weights on the known ones; empty where these tell nothing of it.
    ndarray of bool, (N,)
        Which geounits are told: all of their children are, or their parent and all of their siblings.
    """
    below = np.flatnonzero(spine.parent >= 0)
    shape = spine.size, spine.size
    children = sparse.csr_array((np.ones(below.size), (spine.parent[below], below)), shape=shape)
    rows = sparse.csr_array(sparse.diags_array(known.astype(float)))
    rows.eliminate_zeros()
    while True:
        open_children = np.bincount(spine.parent[below], ~known[below], minlength=spine.size)
        above = np.where(spine.parent >= 0, spine.parent, 0)
        sums = ~known & (spine.child_counts > 0) & (open_children == 0)
        rest = ~known & ~sums & (spine.parent >= 0) & known[above] & (open_children[above] == 1)
        if not (sums | rest).any():
            return rows, known
        of_children = children @ rows  # of siblings those that are known: the open one has no row yet
        own = np.flatnonzero(rest)
        differences = rows[spine.parent[own]] - of_children[spine.parent[own]]
        spread = sparse.csr_array((np.ones(own.size), (own, np.arange(own.size))), shape=(spine.size, own.size))
        rows = sparse.csr_array(rows + sparse.diags_array(sums.astype(float)) @ of_children + spread @ differences)
        known = known | sums | rest
