"""Covariance of an estimate: columns, blocks, and all variances, exactly or by random probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.contract import variances_from_weights
from blue_solvers.normal_equations.cell_variances import variances_by_selected_inversion
from blue_solvers.operator import BlueOperator, blue
from blue_solvers.solvers import SeaBlue
from blue_solvers.uncertainty.functionals import as_operator, cell_weights, dense_weights, observed_weights
from blue_solvers.uncertainty.monte_carlo import Progress, Seed, Streams
from blue_solvers.verification.variance_bounds import VarianceBounds, bounds_at_once, certify_variances, unit_noise
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import whole_number

Cells = Sequence[int] | ArrayLike


def covariance_columns(P: BlueOperator, cells: Cells) -> Float:
    """Columns of P Sigma P', the covariance of every desired cell with some of them.

    Parameters
    ----------
    P : BlueOperator
    cells : sequence of int, (K,)
        Positions in the desired layout.

    Returns
    -------
    ndarray, (m, K)
        Two applies a column.
    """
    return P.covariance @ dense_weights(P, cell_weights(P, cells))


def covariance_block(P: BlueOperator, rows: Cells, columns: Cells) -> Float:
    """Covariance between two sets of desired cells, (R, C), as that of functionals, one for every cell in either set.

    Parameters
    ----------
    P : BlueOperator
    rows, columns : sequence of int, (R,) and (C,)
        Positions in the desired layout.

    Returns
    -------
    ndarray, (R, C)
        In squared units of the counts.
    """
    positions = [cell_weights(P, cells).indices for cells in (rows, columns)]
    cells, number = np.unique(np.concatenate(positions), return_inverse=True)
    row, column = np.split(number, [positions[0].size])
    return P.functional_covariance(cell_weights(P, cells))[np.ix_(row, column)]


def variances(P: BlueOperator, method: str = "solver") -> Float:
    """Exact variance of every desired cell.

    Parameters
    ----------
    P : BlueOperator
    method : {"solver", "closed_form", "selected_inversion", "applies"}
        The solver's own way; the closed form under assumptions A1 to A3; entries of the inverse of A Sigma A'; or one
        adjoint apply for every cell, which serves every operator.

    Returns
    -------
    ndarray, (m,)
        Diagonal of P Sigma P', in squared units of the counts.

    Raises
    ------
    ValueError
        If there is no such method, or it does not give the variances of this operator, with the reason.
    MemoryError
        If it would not fit.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}: got {method!r}")
    return METHODS[method](P)


def proved_variances(P: BlueOperator | Problem, cells: Cells) -> VarianceBounds:
    """Two numbers between which the variance of every chosen cell of the best estimate is proved to be.

    Those of plain tables of one place or on a spine, and of few counts, are all worked out at once. Elsewhere a cell's
    covariances with all cells are worked out by the solver, refined once, and proved without it.

    Parameters
    ----------
    P : BlueOperator or Problem
    cells : sequence of int, (K,)
        Positions in the desired layout, ``problem.desired.slice(name)`` for instance finds a table's.

    Returns
    -------
    VarianceBounds
        Where not all at once: three applies over the observed layout, and a certificate, for every cell.

    Raises
    ------
    ValueError
        If a position lies outside the layout.

    Examples
    --------
    >>> from constraint_builders import gallery
    >>> found = proved_variances(gallery.toy(), [0, 3])
    >>> print(found)
    proved of 2 of 2 variances to 1e-07 of themselves
    >>> found.lower.round(9), found.upper.round(9)
    (array([0.75, 0.75]), array([0.75, 0.75]))
    """
    P = as_operator(P)
    positions = cell_weights(P, cells).indices
    if (found := bounds_at_once(P.problem, positions)) is not None:
        return found
    observed, sums = P.over_observed, unit_noise(P.problem, positions)
    known = np.nan_to_num(sums)
    columns = observed @ known
    columns += observed @ (known - columns)
    if P.problem.desired is P.problem.observed:
        return certify_variances(P.problem, positions, columns)
    problem = P.problem if P.problem.undetermined is None else P.problem.determined
    return certify_variances(P.problem, positions, problem.tabulate(columns), columns)


def _by_closed_form(P: BlueOperator) -> Float:
    _require_blue(P, "closed_form")
    problem = P.problem
    if problem.table_variances is None:
        raise ValueError(
            "method 'closed_form' needs tables of one schema, without a spine, whose noise is uncorrelated and of "
            "equal variance within each table (A1-A3): use 'selected_inversion' or 'applies'"
        )
    if problem.zeros is not None or problem.equalities is not None:
        what = "structural zeros" if problem.zeros is not None else "equalities"
        raise ValueError(
            f"method 'closed_form' knows nothing of {what}: use 'solver', 'selected_inversion' or 'applies'"
        )
    return blue(problem, SeaBlue()).variances()


def _by_selected_inversion(P: BlueOperator) -> Float:
    _require_blue(P, "selected_inversion")
    return variances_by_selected_inversion(P.problem)


def _require_blue(P: BlueOperator, method: str) -> None:
    if not P.info.exact:
        raise ValueError(
            f"method {method!r} gives the variances of the BLUE, and what {P.solver.name!r} gives is not the BLUE: use "
            "'applies' for those of its own covariance P Sigma P'"
        )


def _by_applies(P: BlueOperator) -> Float:
    size = P.shape[0]
    return variances_from_weights(
        P.problem.noise_covariance, np.arange(size), size, lambda V: observed_weights(P, sparse.csc_array(V))
    )


METHODS: dict[str, Callable[[BlueOperator], Float]] = {
    "solver": BlueOperator.variances,
    "closed_form": _by_closed_form,
    "selected_inversion": _by_selected_inversion,
    "applies": _by_applies,
}


def estimate_variances(
    P: BlueOperator, probes: int, rng: Seed = None, progress: Progress | None = None
) -> tuple[Float, Float]:
    """Estimate the variance of every desired cell, where exact ones cost too much.

    Every probe z of random signs gives z * (P Sigma P' z), which has the diagonal of P Sigma P' as its mean, and as
    its variance in cell i the sum of squares of the cell's covariances with the others. That is little for estimates
    that are nearly uncorrelated, where squared errors of simulated noise have a relative standard deviation of
    sqrt(2).

    Parameters
    ----------
    P : BlueOperator
    probes : int
        At least 2; each costs an apply and an adjoint apply.
    rng : Generator, int or None
        Source of randomness, or its seed.
    progress : callable, optional
        Called after every batch with the probes done, and all of them.

    Returns
    -------
    estimate : ndarray, (m,)
        In squared units of the counts, NaN where nothing determines the cell. Unbiased; it can be negative where its
        error is large.
    std_error : ndarray, (m,)
        Standard deviation of `estimate`, in the same units, from the spread over the probes.

    Raises
    ------
    ValueError
        If there are fewer than 2 probes.

    References
    ----------
    Bekas, Kokiopoulou and Saad, An estimator for the diagonal of a matrix, 2007.
    """
    probes = whole_number(probes, "probes", 2)
    mean, squares = np.zeros(P.shape[0]), np.zeros(P.shape[0])
    for start, generator, width in Streams(rng, max(P.shape)).batches(0, probes):
        signs = generator.choice([-1.0, 1.0], (P.shape[0], width))[:, : probes - start]
        if P.problem.undetermined is not None:
            signs[P.problem.undetermined] = 0
        samples = signs * (P.covariance @ signs)
        count, own = start + samples.shape[1], samples.mean(axis=1)
        squares += ((samples - own[:, None]) ** 2).sum(axis=1)
        squares += (own - mean) ** 2 * start * samples.shape[1] / count
        mean += (own - mean) * samples.shape[1] / count
        if progress is not None:
            progress(count, probes)
    return mean, np.sqrt(squares / (probes * (probes - 1)))
