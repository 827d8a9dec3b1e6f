"""Noise for cells of differing variances, by the name of its law: drawn for simulation, or added for publication."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float
from constraint_builders.description.noise import LawOrName
from constraint_builders.description.reals import random_generator, real_array, whole_number
from constraint_builders.memory import require_memory
from noise_mechanisms.laws.base_law import BLOCK, Seed, blocks, check_variances, fill
from noise_mechanisms.laws.named_laws import kind_of


def draw(name: LawOrName, variance: ArrayLike, rng: Seed = None, columns: int | None = None) -> Float:
    """Draw independent noise for cells of differing variances, simulation only: not differentially private.

    Parameters
    ----------
    name : str or Law
        The kind of noise, a name in `LAWS`; or a law that a variance does not describe.
    variance : array_like, any shape
        Actual variance of every cell, finite and not negative. Variance 0 gives noise 0.
    rng : numpy.random.Generator, SeedSequence, int or None
        Source of randomness. The same seed, variances and columns give the same noise.
    columns : int, optional
        Number K of independent replicates of all cells. None draws one, without the trailing axis.

    Returns
    -------
    ndarray of float64, shape variance.shape, or variance.shape + (K,)
        Whole numbers for a discrete law. Memory beyond this array is a few megabytes.

    Raises
    ------
    ValueError
        If there is no law of that name, or a variance is NaN, infinite, negative, or too large for a
        discrete law.
    """
    kind = kind_of(name)
    variance = real_array(variance, f"{kind.name}: variance")
    check_variances(kind, variance)
    cells = np.ravel(variance)
    replicates = 1 if columns is None else whole_number(columns, f"{kind.name}: columns", 0)
    require_memory(8.0 * cells.size * replicates, f"noise of {cells.size:,} x {replicates:,} cells", "draw fewer")
    rng = random_generator(rng)
    noise = np.empty((cells.size, replicates))
    for rows in blocks(cells.size, BLOCK // max(replicates, 1)):
        fill(kind._draw, kind._parameter_of(cells[rows]), noise[rows], rng)
    return noise.reshape(variance.shape if columns is None else (*variance.shape, columns))


def release(name: LawOrName, variance: ArrayLike, values: ArrayLike) -> Float:
    """Values with noise of release grade, one draw for every cell, each of its own variance; for publication.

    Parameters
    ----------
    name : str or Law
        The kind of noise, a name in `LAWS`; or a law that a variance does not describe.
    variance : array_like, any shape
        Actual variance of every cell, finite and not negative. A cell of variance 0 stays as it is.
    values : array_like, of the same shape
        Confidential; see `Law.release`.

    Returns
    -------
    ndarray of float64, shape variance.shape
        Cells of one variance go to OpenDP together, about 10 microseconds each; every further variance costs about 0.2
        ms.

    Raises
    ------
    ImportError
        If OpenDP is not installed (extra ``release``), or older than 0.14.2: its samplers were biased.
    ValueError
        If there is no law of that name; a variance is NaN, infinite, negative or too large for a discrete law; the
        values have another shape, or are not what `Law.release` takes.
    """
    kind = kind_of(name)
    variance, confidential = real_array(variance, f"{kind.name}: variance"), real_array(values, "values")
    if confidential.shape != variance.shape:
        raise ValueError(f"values must have the shape {variance.shape} of the variances: got {confidential.shape}")
    check_variances(kind, variance)
    cells, released = confidential.ravel(), confidential.ravel().copy()
    distinct, place = np.unique(variance.ravel(), return_inverse=True)
    order = np.argsort(place.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(place.ravel(), minlength=distinct.size))
    for value, end, start in zip(distinct.tolist(), ends, [0, *ends[:-1]], strict=True):
        if value:
            group = order[start:end]
            released[group] = kind.from_variance(value).release(cells[group])
    return released.reshape(variance.shape)
