"""The noise of several products together: theirs, independent of one another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import linalg, sparse

from constraint_builders.description.low_rank import LowRankPlusDiagonal
from constraint_builders.description.noise import Noise


def joined_covariance(noises: Mapping[str, Noise]) -> sparse.csr_array | LowRankPlusDiagonal | None:
    """The covariance of the measurements of several products, one after another; None where none is correlated.

    Parameters
    ----------
    noises : mapping of str to Noise
        By the names of the products.

    Raises
    ------
    ValueError
        If the noise of one is given by an operator without a known form, or of one by a matrix and of another by
        shared sources, exact values, or cells that were not measured. The product is named.
    """
    correlated = {name: own for name, own in noises.items() if own.covariance is not None}
    if not correlated:
        return None
    for name, own in correlated.items():
        if own.shared is None and not own.has_entries:
            raise ValueError(
                f"problem {name!r} has correlated noise of which only products with vectors are known: give a matrix, "
                "or LowRankPlusDiagonal"
            )
    if all(own.covariance is None or own.shared is not None for own in noises.values()):
        shared = {name: own.shared for name, own in noises.items()}
        diagonals = [noises[name].variances if own is None else own.diagonal for name, own in shared.items()]
        factors = [
            np.zeros((noises[name].variances.size, 0)) if own is None else own.factor for name, own in shared.items()
        ]
        return LowRankPlusDiagonal(np.concatenate(diagonals), linalg.block_diag(*factors))
    blocks = [_entries(name, own, next(iter(correlated))) for name, own in noises.items()]
    return sparse.csr_array(sparse.block_diag(blocks))


def _entries(name: str, noise: Noise, correlated: str) -> sparse.csr_array:
    """The covariance of a product that is to be one block of a matrix that can be inverted."""
    found = noise.entries()
    why = "noise of shared sources"
    if noise.covariance is None:
        lost = np.isinf(noise.variances).any()
        why = "cells that were not measured" if lost else "values known exactly"
        found = found if (noise.variances > 0).all() and not lost else None
    if found is None:
        raise ValueError(
            f"problem {name!r} has {why}, which cannot stand in one matrix beside the covariance of problem "
            f"{correlated!r}: give covariances as LowRankPlusDiagonal, or leave such cells out"
        )
    return found
