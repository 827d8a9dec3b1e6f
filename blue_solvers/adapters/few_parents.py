"""Reconciliation of many leaves below few other nodes, by one dense matrix of these: nothing else is prepared."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from constraint_builders.arrays import Float

_MOST = 512  # parents
_MOST_UNEQUAL = 1e8  # variance of a parent by the leaves that it sums, over its own: beyond, rounding would show


def has_few_parents(S: sparse.csr_array, variances: Float | None) -> bool:
    """Whether `through_parents` serves: leaves are last, few are above, variances, (n,), are positive and near."""
    leaves = S.shape[1]
    parents = S.shape[0] - leaves
    if variances is None or not 0 < parents <= _MOST or not (np.isfinite(variances) & (variances > 0)).all():
        return False
    of_leaves = leaves * variances[parents:].max() * np.square(S.data).max(initial=0)
    if of_leaves > _MOST_UNEQUAL * variances[:parents].min():
        return False
    starts = S.indptr[parents:]  # of the last rows, each of which is to have one entry
    last = slice(starts[0], None)
    return (
        np.array_equal(starts, starts[0] + np.arange(leaves + 1))
        and np.array_equal(S.indices[last], np.arange(leaves))
        and bool((S.data[last] == 1).all())
    )


def through_parents(S: sparse.csr_array, variances: Float, Y: Float) -> Float:
    """Reconciled forecasts (n, K) of uncorrelated errors.

    Parents are sums C b of the leaves b, so that x = y - D A' (A D A')^-1 A y with A = (1, -C), which has as many rows
    as there are parents.
    """
    parents = S.shape[0] - S.shape[1]
    C, above, below = S[:parents], variances[:parents], variances[parents:]
    between = ((C * below) @ C.T).toarray()
    between[np.diag_indices(parents)] += above
    apart = cho_solve(cho_factor(between, overwrite_a=True), Y[:parents] - C @ Y[parents:])
    return np.asarray(S @ (Y[parents:] + below[:, None] * (C.T @ apart)))
