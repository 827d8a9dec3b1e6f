"""Forecasts that add up over series and over time, such as of months, quarters and years, reconciled together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.adapters.forecasts import ExactMinTrace
from constraint_builders.arrays import Float
from constraint_builders.description.labelled import read_names, refuse_labels
from constraint_builders.description.reals import read_matrix, real_array, whole_number


def reconcile_over_time(
    S: Any,
    periods: Sequence[int],
    y_hat: ArrayLike,
    y_insample: ArrayLike | None = None,
    y_hat_insample: ArrayLike | None = None,
    level: Sequence[float] | None = None,
    intervals_method: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> dict[str, Float]:
    """Reconcile forecasts of every series for every period, whose sums over both must agree.

    Parameters
    ----------
    S : sparse array or ndarray, (n, leaves)
        How series sum leaves.
    periods : sequence of int
        Lengths of the periods that are forecast, each a divisor of the longest, the shortest 1: ``[12, 3, 1]`` for a
        year, its quarters and its months.
    y_hat : array_like, (n, columns)
        Of every series all periods of the first length, then those of the second, and so on: 1 + 4 + 12 columns.
    y_insample, y_hat_insample : array_like, (n, columns, T), optional
        The same of T spans of the longest period before, and what was forecast.
    level, intervals_method, seed
        As in `ExactMinTrace.predict`.
    **options
        Of `ExactMinTrace`; by default its method is "wls_struct".

    Returns
    -------
    dict of str to ndarray
        ``"mean"``, (n, columns), and with levels ``"sigmah"`` and ``"quantiles"``, (n, columns, 2 levels).

    Raises
    ------
    ValueError
        If periods do not divide one another so, a shape does not fit, or as `ExactMinTrace`.

    Examples
    --------
    A total and two stores, the half-year and its quarters.

    >>> S = [[1, 1], [1, 0], [0, 1]]
    >>> reconcile_over_time(S, [2, 1], [[100, 55, 50], [60, 28, 30], [45, 21, 22]])["mean"].round(1)
    array([[102.8,  51.9,  50.9],
           [ 58.9,  29.4,  29.4],
           [ 43.9,  22.4,  21.4]])
    """
    refuse_labels(S, "S")
    own, over_time = read_matrix(S, "S"), sums_over_time(periods)
    shape = own.shape[0], over_time.shape[0]
    before = [
        None if values is None else _columns(values, name, shape)
        for name, values in (("y_insample", y_insample), ("y_hat_insample", y_hat_insample))
    ]
    crossed = sparse.csr_array(sparse.kron(own, over_time, format="csr"))
    reconciler = ExactMinTrace(**{"method": "wls_struct", **options})
    fitted = reconciler.fit(crossed, _columns(y_hat, "y_hat", shape), *before)
    found = fitted.predict(level=level, intervals_method=intervals_method, seed=seed)
    return {name: values.reshape(*shape, *values.shape[2:]) for name, values in found.items()}


def sums_over_time(periods: Sequence[int]) -> sparse.csr_array:
    """The matrix of 0 and 1 that sums the shortest periods to those of each length, the lengths in their order.

    Raises
    ------
    ValueError
        If a length is no divisor of the longest, or none is 1.
    """
    lengths = [whole_number(own, "a period", 1) for own in read_names(periods, "periods")]
    longest = max(lengths, default=0)
    wrong = [own for own in lengths if longest % own]
    if wrong or 1 not in lengths:
        raise ValueError(
            f"periods must be divisors of the longest, 1 among them, as [12, 3, 1] are: got {list(lengths)}"
        )
    blocks = [sparse.kron(sparse.eye_array(longest // own), np.ones((1, own))) for own in lengths]
    return sparse.csr_array(sparse.vstack(blocks, format="csr"))


def _columns(values: ArrayLike, name: str, shape: tuple[int, int]) -> Float:
    """Numbers of every series and period, (n, columns) or (n, columns, T), as one row each, (n columns, T)."""
    own = real_array(values, name)
    if own.shape[:2] != shape or own.ndim != (2 if name == "y_hat" else 3):
        wanted = str(shape) if name == "y_hat" else f"({shape[0]}, {shape[1]}, T)"
        raise ValueError(f"{name} must have shape {wanted}: got {own.shape}")
    return own.reshape(shape[0] * shape[1], -1)
