"""The door: leaves from rows, with or without bounds."""

from __future__ import annotations

from typing import Any, overload

from scipy.sparse.linalg import LinearOperator

from blue_solvers.least_squares.bounded_leaves import BoundedLeaves, within_bounds
from blue_solvers.least_squares.leaf_estimates import LeafEstimate, entries_of, operator_of_leaves
from constraint_builders import Problem
from constraint_builders.reading import read_leaves


@overload
def least_squares(
    S: Any, y: Any, variances_or_covariance: Any, names: Any = None, bounds: None = None,
    *, row_names: Any = None, certify: bool | None = None,
) -> LeafEstimate: ...  # fmt: skip


@overload
def least_squares(
    S: Any, y: Any, variances_or_covariance: Any, names: Any = None,
    *, bounds: Any, row_names: Any = None, certify: bool | None = None,
) -> BoundedLeaves: ...  # fmt: skip


def least_squares(
    S: Any,
    y: Any,
    variances_or_covariance: Any,
    names: Any = None,
    bounds: Any = None,
    *,
    row_names: Any = None,
    certify: bool | None = None,
) -> LeafEstimate | BoundedLeaves:
    """The best linear unbiased estimate of leaves, y = S leaves + noise, with exact errors, a test and a proof.

    Parameters
    ----------
    S : sparse array, array_like, data frame or LinearOperator, (n, k)
        How each measured row weighs the leaves, by any real numbers; of any rank. A frame's index names the rows, its
        columns the leaves. The entries of an operator are found by applying it to all unit vectors.
    y : array_like, (n,)
        What was measured; NaN where nothing was.
    variances_or_covariance : array_like () or (n,), or sparse array, ndarray (n, n) or LowRankPlusDiagonal
        Of the noise. A variance of 0 says that a row is known exactly, ``inf`` that it was not measured.
    names : sequence of str, (k,), optional
        Of the leaves.
    bounds : (lower, upper) or mapping, optional
        Between which leaves are to be, or rows: ``{"leaves": (lower, upper), "rows": (lower, upper)}``; each a number
        or an array, of any sign, ``-inf`` and ``inf`` where there is none.
    row_names : sequence of str, (n,), optional
        Of the rows.
    certify : bool, optional
        Whether to prove how far the values are from the best ones; by default where that takes about a second. It
        takes about as long as the values; ``certificate()`` of what is returned is the same later.

    Returns
    -------
    LeafEstimate
        Its values are the leaves, NaN where rows do not determine them. With bounds `BoundedLeaves`: the least squares
        within them, proved by duality, and the estimate without bounds.

    Raises
    ------
    ValueError
        If a shape does not fit, a value is no usable number, names are repeated, or exact rows contradict one another.
    UnsupportedProblemError
        If the covariance is singular or an operator without entries, or rounding decides the rank of very many leaves,
        or what rows say that are nearly combinations of exact ones.
    MemoryError
        If the factor would not fit.

    See Also
    --------
    blue_solvers.blue : The same for tables, areas and hierarchies, whose sums are the answer.

    Examples
    --------
    Three heights above a benchmark by four levelled differences, in metres, and how well each is known.

    >>> found = least_squares(
    ...     [[1, 0, 0], [-1, 1, 0], [0, -1, 1], [0, 0, -1]], [1.02, 0.49, -0.48, -1.0], 1e-4, ["a", "b", "c"]
    ... )
    >>> found.values.round(4), found.std_errors.round(5)
    (array([1.0125, 1.495 , 1.0075]), array([0.00866, 0.01   , 0.00866]))
    >>> found.goodness_of_fit().degrees_of_freedom
    1
    """
    if isinstance(S, LinearOperator):
        S = entries_of(S)
    problem = Problem(read_leaves(S, variances_or_covariance, names, row_names))
    found = operator_of_leaves(problem).estimate(y, certify=certify)
    return found if bounds is None else within_bounds(found, bounds)
