"""What a release of rounded or perturbed tables gives away, figure by figure, before it is published."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from blue_solvers.contract import Solver
from blue_solvers.estimates import measured_places
from blue_solvers.operator import blue
from blue_solvers.solvers import SolverName
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import random_generator, whole_number
from noise_mechanisms.laws import PublishedCount
from noise_mechanisms.laws.base_law import Seed
from noise_mechanisms.published_figures import PublishedFigures

LARGE = 5000  # a count whose law is that of large ones
NEAR, FAR = 0.01, 50.0  # standard errors, and times the law's own, of what others say: known, or nothing worth
CLASSES_A_DOUBLING = 12
WIDEST = 500  # counts on either side of the true one that are guessed among


@dataclass(frozen=True)
class Audit:
    """How well counts can be guessed from figures.

    Attributes
    ----------
    problem : Problem
    alone : ndarray, (m,)
        Of every desired cell the chance that the best guess from its own figures is its exact count; 0 where none is
        published.
    together : ndarray, (m,)
        The same from all figures.
    std_errors : ndarray, (m,)
        Of the estimates from all figures; infinite where none tells a count.
    """

    problem: Problem
    alone: Float
    together: Float
    std_errors: Float

    def worst(self, k: int = 10) -> list[tuple[str, float, float]]:
        """The k cells that are guessed best: what they are, the chance alone and together.

        Parameters
        ----------
        k : int

        Returns
        -------
        list of (str, float, float)
        """
        order = np.argsort(-self.together, kind="stable")[:k].tolist()
        return [(self.problem.desired.describe(i), float(self.alone[i]), float(self.together[i])) for i in order]

    def __str__(self) -> str:
        what, alone, together = self.worst(1)[0]
        return (
            f"the best guess is right for {100 * self.together.mean():.0f} % of {self.together.size:,} counts, by own "
            f"figures alone for {100 * self.alone.mean():.0f} %; best of {what}: {100 * together:.0f} % "
            f"({100 * alone:.0f} %)"
        )


def audit(
    problem: Problem, copies: int = 1, solver: SolverName | Solver = "auto", draws: int = 4000, rng: Seed = None
) -> Audit:
    """Work out how often the exact counts behind rounded or perturbed tables would be guessed.

    Of the figures of a cell its own law is used, and what all others say as normal, which is the best linear unbiased
    estimate. Nothing is known beforehand of the counts, which are taken as large.

    Parameters
    ----------
    problem : Problem
        The tables that are to be published, with the law of their figures.
    copies : int
        How often each is published, every time by itself; where the law makes copies the same they tell nothing new.
    solver : str or Solver
    draws : int
        Of figures, for cells about as well known by others.
    rng : Generator, SeedSequence, int or None

    Returns
    -------
    Audit

    Raises
    ------
    ValueError
        If the noise is of no such law, or correlated, several sources measured a cell, or figures are very far from
        their counts.

    Examples
    --------
    >>> from constraint_builders import Schema
    >>> from noise_mechanisms.laws import RandomRounding
    >>> problem = Problem(Schema({"age": 3}), {"age": RandomRounding(3)})
    >>> audit(problem, rng=0).together.round(1), audit(problem, copies=7, rng=0).together.round(1)
    (array([0.3, 0.3, 0.3]), array([0.8, 0.8, 0.8]))
    """
    copies, draws = whole_number(copies, "copies", 1), whole_number(draws, "draws", 100)
    law = PublishedFigures.of(problem, np.zeros(problem.observed.size)).law
    if problem.sources is not None:
        raise ValueError("this problem has figures of several sources: audit one of them, with copies= for the others")
    copies = copies if law.copies_are_independent else 1
    noisy = ~(problem.exact | problem.unmeasured)
    declared = np.where(noisy, law.variance / copies, problem.variances)
    P, place = blue(problem.with_variances(declared), solver), measured_places(problem)
    variances, own = np.nan_to_num(P.variances(), nan=np.inf), np.where(place >= 0, declared[place], np.inf)
    known, published = variances <= 0, np.isfinite(own) & (own > 0)
    left = np.divide(1.0, variances, out=np.full_like(own, np.inf), where=~known)
    left -= np.where(published, 1 / np.where(published, own, 1.0), 0.0)
    with np.errstate(divide="ignore"):
        beside = np.sqrt(1 / np.maximum(left, 0.0))
    generator = random_generator(rng)
    together = np.where(known, 1.0, special.erf(0.5 / np.sqrt(2 * np.where(known, 1.0, variances))))
    alone = np.where(own == 0, 1.0, 0.0)
    by_own = _chance(law, copies, np.inf, draws, generator)
    alone[published] = by_own
    far = FAR * np.sqrt(law.variance)
    classes = np.rint(np.log2(np.clip(beside, NEAR, far)) * CLASSES_A_DOUBLING)
    for number in np.unique(classes[published & ~known]):
        chosen = published & ~known & (classes == number)
        spread = 2.0 ** (number / CLASSES_A_DOUBLING)
        together[chosen] = by_own if spread >= far / 1.1 else _chance(law, copies, spread, draws, generator)
    return Audit(problem, alone, np.maximum(together, alone), np.sqrt(variances))


def _chance(law: PublishedCount, copies: int, spread: float, draws: int, rng: np.random.Generator) -> float:
    """How often the likeliest count is the true one, given figures of it and a normal value of such a spread."""
    true = LARGE + rng.integers(0, LARGE, draws).astype(float)
    figures = [law.publish(true, rng) for _ in range(copies)]
    low, high = law.limits(figures[0])
    window = int((high - low).max())  # the true one and any other are both within
    if window > WIDEST:
        raise ValueError(f"figures of {law!r} are up to {window:,} from their counts: audits are of up to {WIDEST}")
    counts = true[:, None] + np.arange(-window, window + 1.0)
    logs = np.sum([law.log_probability(own[:, None], counts) for own in figures], axis=0)
    if spread < np.inf:
        logs -= (true[:, None] + spread * rng.standard_normal(draws)[:, None] - counts) ** 2 / (2 * spread**2)
    likely = logs >= logs.max(axis=1, keepdims=True) - 1e-9
    return float((likely[:, window] / likely.sum(axis=1)).mean())
