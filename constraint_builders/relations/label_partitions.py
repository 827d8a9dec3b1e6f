"""Partitions of cells, each given by a label for every cell: which refines which, what they have in common."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from constraint_builders.arrays import Index


def first_cells(labels: Index) -> Index:
    """One cell of every group, (groups,), in order of the labels."""
    return np.unique(labels, return_index=True)[1]


def refines(fine: Index, coarse: Index) -> bool:
    """Whether every group of `fine` lies within one group of `coarse`, labels (cells,) each."""
    image = np.zeros(fine.max() + 1, dtype=coarse.dtype)
    image[fine] = coarse
    return bool((image[fine] == coarse).all())


def join(first: Index, second: Index) -> Index:
    """The coarsest partition that refines both, (cells,)."""
    return np.unique(first * (second.max() + 1) + second, return_inverse=True)[1]


def meet(first: Index, second: Index) -> Index:
    """The finest partition that both refine, (cells,)."""
    for fine, coarse in ((first, second), (second, first)):
        if refines(fine, coarse):
            return coarse
    size = first.max() + 1
    shape = (size + second.max() + 1,) * 2
    together = sparse.coo_array((np.ones(first.size), (first, size + second)), shape=shape)
    return connected_components(together, directed=False)[1][first].astype(np.intp)


def numbered(labels: Index) -> Index:
    """The same partition, (cells,), its groups numbered by first appearance."""
    _, first, group = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[group]


def sums_matrix(fine: Index, coarse: Index) -> sparse.csr_array:
    """The 0/1 matrix, (coarse groups, fine groups), that sums the groups of `fine` to those of `coarse`."""
    image = coarse[first_cells(fine)]
    shape = (int(coarse.max()) + 1, image.size)
    return sparse.csr_array((np.ones(image.size), (image, np.arange(image.size))), shape=shape)
