"""How counts of a table are spread, from the figures that were published of them: a mixture of Poisson distributions.

The most likely mixture (Kiefer and Wolfowitz) over rates that are laid out beforehand, by expectation maximisation.
"""

from __future__ import annotations

import numpy as np
import scipy

from constraint_builders.arrays import Float
from noise_mechanisms.laws import PublishedCount

MOST = 400  # count up to which the distribution is told
BEYOND = 8.0  # standard deviations of the law, that a figure lies below that
RATES = np.concatenate([[0.0], np.geomspace(0.1, 1.05 * MOST, 80)])
ROUNDS = 300
LEAST = 1e-12  # of a probability, so that a logarithm can be taken


def log_distribution(law: PublishedCount, figures: Float) -> Float:
    """Logarithms of the probabilities of the counts from 0 to `MOST`, (MOST + 1,), among counts of at most that.

    Parameters
    ----------
    law : PublishedCount
    figures : ndarray, (k,)
        As they were published; at least one below `MOST` by `BEYOND` standard deviations of the law.

    Returns
    -------
    ndarray, (MOST + 1,)

    References
    ----------
    Kiefer and Wolfowitz, "Consistency of the maximum likelihood estimator in the presence of infinitely many incidental
    parameters", 1956.
    """
    values, times = np.unique(figures[is_small(law, figures)], return_counts=True)
    counts = np.arange(MOST + 1.0)
    of_counts = np.exp(scipy.special.xlogy(counts[:, None], RATES) - RATES - scipy.special.gammaln(counts + 1)[:, None])
    of_figures = np.exp(law.log_probability(values[:, None], counts)) @ of_counts
    weights = np.full(RATES.size, 1 / RATES.size)
    for _ in range(ROUNDS):
        share = of_figures * weights
        total = share.sum(axis=1)
        weights = (times / np.maximum(total, LEAST**2)) @ share / times.sum()
    return np.log(np.maximum(of_counts @ weights, LEAST))


def is_small(law: PublishedCount, figures: Float) -> np.ndarray:
    """Which figures, (k,), are surely of counts of at most `MOST`."""
    small: np.ndarray = figures < MOST - BEYOND * np.sqrt(law.variance)
    return small
