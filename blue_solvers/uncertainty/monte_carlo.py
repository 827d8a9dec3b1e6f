"""Simulated errors of an estimate, in batches that can be drawn again or continued.

Batch i of a seed is drawn from a stream derived from the seed and i, and its width from the problem's size alone: the
same seed always gives the same replicates, however the work was cut or interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Protocol, TypeVar

import numpy as np

from blue_solvers.operator import BlueOperator
from blue_solvers.quantiles import read_level
from blue_solvers.uncertainty.largest_errors import keep_largest
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import whole_number
from constraint_builders.memory import require_memory
from noise_mechanisms import draw_noise

Seed = np.random.Generator | int | None
Progress = Callable[[int, int], None]

BATCH_ENTRIES = 2**23  # counts in one batch of replicates
MOST_COLUMNS = 64
KEPT_ENTRIES = 2**27  # largest errors held at once, 1 GiB


class Streams:
    """Independent random streams of one seed.

    Parameters
    ----------
    rng : Generator, int or None
        The seed, or where to draw one.
    size : int
        Length of the vectors that are drawn, which decides how many make a batch.
    """

    def __init__(self, rng: Seed, size: int) -> None:
        if isinstance(rng, np.random.Generator):
            rng = int(rng.integers(2**63))
        self.seed = None if rng is None else whole_number(rng, "rng", 0)
        self._entropy = np.random.SeedSequence(self.seed).entropy
        self.width = max(1, min(MOST_COLUMNS, BATCH_ENTRIES // max(size, 1)))

    def batches(self, start: int, stop: int) -> Iterator[tuple[int, np.random.Generator, int]]:
        """First replicate, fresh stream and width of every batch that holds some replicate of start to stop."""
        for batch in range(start // self.width, -(-stop // self.width)):
            sequence = np.random.SeedSequence(self._entropy, spawn_key=(batch,))
            yield batch * self.width, np.random.default_rng(sequence), self.width


class Statistic(Protocol):
    """What is kept of the replicates that have been seen."""

    count: int

    def add(self, errors: Float) -> None:
        """Take in replicates, (cells, K)."""


@dataclass
class SecondMoments:
    """Mean squares about zero, the errors' known mean.

    Attributes
    ----------
    count : int
        Replicates seen.
    sums : ndarray, (cells,)
    """

    count: int = 0
    sums: Float = field(default_factory=lambda: np.zeros(()))

    def add(self, errors: Float) -> None:
        """Take in replicates, (cells, K).

        Parameters
        ----------
        errors : ndarray, (cells, K)
            In units of the counts.
        """
        self.sums = self.sums + np.einsum("ij,ij->i", errors, errors)
        self.count += errors.shape[1]

    @property
    def variances(self) -> Float:
        """Estimated variances, (cells,), in squared units of the counts."""
        return self.sums / self.count


@dataclass
class LargestErrors:
    """The largest absolute errors of every cell.

    Attributes
    ----------
    keep : int
        How many of each cell.
    count : int
        Replicates seen.
    values : ndarray, (cells, keep)
        Ascending; -1 where fewer were seen.
    """

    keep: int
    count: int = 0
    values: Float = field(default_factory=lambda: np.zeros((0, 0)))

    def add(self, errors: Float) -> None:
        """Take in replicates, (cells, K)."""
        if not self.count:
            needed = 8.0 * errors.shape[0] * self.keep
            require_memory(needed, f"keeping the {self.keep:,} largest errors of every cell", "give fewer draws")
            self.values = np.full((errors.shape[0], self.keep), -1.0)
        keep_largest(self.values, errors)
        self.count += errors.shape[1]

    @property
    def smallest(self) -> Float:
        """The smallest of the largest errors, (cells,)."""
        return self.values[:, 0].copy()


S = TypeVar("S", bound=Statistic)


class Replicates:
    """Independent replicates of P N, the error of an estimate, N being noise of the problem's law.

    Parameters
    ----------
    P : BlueOperator
    rng : Generator, int or None
        Source of randomness, or its seed. With a seed, replicate j is the same whenever it is asked for.
    weights : ndarray, (n, K), optional
        Simulate the errors weights' N instead, of functionals with P' W = weights.

    Examples
    --------
    Continue after an interruption, in another process too if the statistic was pickled:

    >>> from blue_solvers import blue
    >>> from constraint_builders import gallery
    >>> replicates, moments = Replicates(blue(gallery.toy()), rng=1), SecondMoments()
    >>> replicates.accumulate(moments, 100).count
    100
    >>> replicates.accumulate(moments, 200).count
    200
    """

    def __init__(self, P: BlueOperator, rng: Seed = None, weights: Float | None = None) -> None:
        self._problem: Problem = P.problem
        self._apply = (lambda noise: P @ noise) if weights is None else (lambda noise: weights.T @ noise)
        self._streams = Streams(rng, max(P.shape))

    def columns(self, start: int, stop: int) -> Iterator[Float]:
        """Replicates start to stop in batches, (cells, K) each.

        Parameters
        ----------
        start, stop : int

        Returns
        -------
        iterator of ndarray, (cells, K)
            In units of the counts.
        """
        for first, stream, width in self._streams.batches(start, stop):
            yield self._apply(draw_noise(self._problem, width, stream)[:, max(start - first, 0) : stop - first])

    def accumulate(self, statistic: S, draws: int, progress: Progress | None = None, cells: slice = slice(None)) -> S:
        """Add replicates to a statistic until it has seen `draws`, beginning where it stopped.

        Parameters
        ----------
        statistic : SecondMoments or LargestErrors
        draws : int
        progress : callable, optional
            Called after every batch with the replicates done, and all of them.
        cells : slice
            Which cells the statistic is of, by default all.

        Returns
        -------
        S
            The statistic.
        """
        for errors in self.columns(statistic.count, draws):
            statistic.add(errors[cells])
            if progress is not None:
                progress(statistic.count, draws)
        return statistic


def order_statistic(level: float, draws: int) -> int:
    """Rank ceil(level (draws + 1)) of the replicate that bounds an error with probability `level` or more.

    The error and the replicates are exchangeable: each of the draws + 1 is as likely as any other to have any rank, so
    that the error is at most the r-th smallest replicate with probability r / (draws + 1) or more.

    Raises
    ------
    ValueError
        If there are too few replicates for any to do (Proposition 26: fewer than level / (1 - level)), or the level is
        none.
    """
    exact = Fraction(str(read_level(level)))
    rank = ceil(exact * (draws + 1))
    if rank > draws:
        least = ceil(exact / (1 - exact))
        raise ValueError(
            f"{draws} draws are too few for a distribution-free statement at level {level:g}: give {least} or more"
        )
    return rank


def order_statistics(
    replicates: Replicates, size: int, level: float, draws: int, progress: Progress | None = None
) -> Float:
    """The order statistic of every cell's absolute errors that `order_statistic` ranks, (size,).

    Where what must be kept is large, cells are taken in several passes over the same draws.
    """
    keep = draws + 1 - order_statistic(level, draws)
    rows = max(1, KEPT_ENTRIES // keep)
    passes = [slice(start, start + rows) for start in range(0, size, rows)]
    found = []
    for i, cells in enumerate(passes):

        def report(done: int, total: int, before: int = i) -> None:
            if progress is not None:
                progress(before * total + done, len(passes) * total)

        found.append(replicates.accumulate(LargestErrors(keep), draws, report, cells).smallest)
    return np.concatenate(found)


def read_draws(draws: int) -> int:
    """A number of replicates; `ValueError` for what is none."""
    return whole_number(draws, "draws", 1)
