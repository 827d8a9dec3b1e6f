"""The largest values of columns, in long runs: a reduction along few columns costs many times one along many."""

from __future__ import annotations

import numpy as np

from constraint_builders.arrays import Float

RUN = 4096  # cells


def largest_of_columns(X: Float) -> Float:
    """Largest absolute value of every column, (n, K) to (K,); 0 where there are no rows, NaN where one is."""
    rows, columns = X.shape
    together = max(1, RUN // max(1, columns))
    whole = rows // together * together
    found = abs(X[whole:]).max(axis=0, initial=0.0)
    if whole:
        runs = X[:whole].reshape(-1, together * columns)
        extremes = np.maximum(runs.max(axis=0), -runs.min(axis=0))
        found = np.maximum(found, extremes.reshape(together, columns).max(axis=0))
    return found
