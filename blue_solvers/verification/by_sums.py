"""Certificates by sums over leaves: of problems whose leaves' tables hold all others, and of parts of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from blue_solvers.verification.certificate_sums import CertificateSums
from blue_solvers.verification.exact_combinations import ExactCombinations
from blue_solvers.verification.known_exactly import KnownExactly
from blue_solvers.verification.moved_residuals import MovedResiduals
from blue_solvers.verification.placed_tables import ChildSummary, LevelTable
from blue_solvers.verification.problem_places import Claim, problem_places, tree_places
from blue_solvers.verification.weighed_noise import EXACT_TO, ROUNDING, DisprovedError, NotCertifiedError, WeighedNoise
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float, Index
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table


def certify_by_sums(problem: Problem, y: Float, x: Float, made: Sequence[Claim] = ()) -> tuple[float, float]:
    """Bound and violation, from y and x, (n,), where tables of the leaves hold all others, both in standard errors.

    Raises
    ------
    NotCertifiedError
        If there are none, it would be too large, or what is known exactly is contradicted.
    """
    schema, has_equalities = problem.domain.schema, problem.has_equalities
    if has_equalities and problem.areas is None and problem.noise.covariance is not None:
        raise NotCertifiedError("its noise is correlated and equalities hold, and its counts are too many to list")
    places = problem_places(problem, y, x, made)
    by_combinations = places.nest or not (problem.exact.any() or problem.has_zeros or has_equalities)
    if by_combinations and not has_equalities and problem.noise.covariance is None:
        sums = MovedResiduals(places).finish()
        return sums.bound(places.tables, schema, sums.all_left()), sums.violation
    noise, off, remains = WeighedNoise.of(problem), 0.0, np.zeros(y.size)
    known = KnownExactly(problem, noise, places, y) if has_equalities or not by_combinations else None
    pulls = known is not None and known.values.size > 0
    if noise.correlated is not None or pulls:
        rho, off = noise.weighted(y - x)
        if known is not None and pulls:
            rows, multipliers = known.rows, known.multipliers(rho)
            if by_combinations:  # cells take theirs while residuals are moved
                rows = problem.equality_rows[0]
                multipliers = multipliers[multipliers.size - rows.shape[0] :]
            off += ROUNDING * noise.size(abs(rho) + 4 * (abs(rows).T @ abs(multipliers)))
            rho = rho - rows.T @ multipliers
        for placed in places.level_tables:
            shape, own = (-1, placed.table.size), placed.place
            if own.stop <= y.size:  # the others are claims
                placed.rho = rho[own].reshape(shape)
                if noise.correlated is not None:
                    placed.least, placed.left = np.square(noise.least[own]).reshape(shape), remains[own].reshape(shape)
    figures = np.concatenate([x, *(claim.figures for claim in made)])
    proof = MovedResiduals(places, 0 if by_combinations else figures.size)
    sums = proof.finish()
    left = sums.all_left() + off
    if noise.correlated is not None:
        left = noise.size(remains, ROUNDING * abs(remains)) + sums.moved() * (1 + float(np.sqrt(y.size))) + off
    if known is None or by_combinations:
        combinations = ExactCombinations.of(problem, places, places.tables) if has_equalities else None
        return sums.bound(places.tables, schema, left, combinations), sums.violation
    scale = max(float(np.nanmax(abs(figures), initial=0.0)), float(abs(y).max(initial=0.0)))
    apart = _disagreement(noise, known, proof, scale)
    return left + float(np.sqrt(sums.found[5]) + np.sqrt(sums.apart)) + apart, sums.violation


def _disagreement(noise: WeighedNoise, known: KnownExactly, proof: MovedResiduals, scale: float) -> float:
    """The most that a figure is off the sums of cells that satisfy what is known exactly, and how far these are moved.

    Both in standard errors, from lower bounds of them.
    """
    size = noise.sd.size
    missed = (known.rows.astype(np.longdouble) @ proof.sums[:size] - known.values).astype(float)
    off = max(float(abs(missed).max(initial=0.0)), float(proof.totals.found[1]))
    if off > EXACT_TO * scale * max(1.0, float(abs(known.rows).sum(axis=1).max(initial=0.0))):
        raise DisprovedError(f"x contradicts what is known exactly by {off:.3g}")
    least = known.least_standard_errors()
    fixed = least <= 0
    if (proof.apart[fixed] > EXACT_TO * scale).any():
        raise NotCertifiedError(f"a figure that is known exactly is off by {proof.apart[fixed].max():.3g}")
    moved = abs(known.sums.figures_of(known.move(missed)))
    apart = np.divide(proof.apart + moved, least, out=least, where=~fixed)
    return noise.inverse_size(moved[:size]) + float(apart.max(initial=0.0, where=~fixed))


@np.errstate(over="ignore")  # of a bound that is beyond float64
def sum_up_part(
    schema: Schema,
    levels: tuple[str, ...],
    finest: Sequence[Table],
    parent: Index,
    level_of: Index,
    level_tables: Sequence[LevelTable],
    zeros: StructuralZeros | None,
    summaries: Mapping[int, ChildSummary],
    finish: bool,
) -> tuple[CertificateSums, ChildSummary | None]:
    """What is left, and what disagrees, in a subtree, or in a tree whose lower branches were cut off.

    Parameters
    ----------
    schema : Schema
    levels : tuple of str
        All geolevels of the spine, from the root down.
    finest : sequence of Table
        For every geolevel a table that holds all of it and above; see `places.finest_tables`.
    parent, level_of : ndarray of int, (G,)
        As `LevelledTree` takes them; geounits by level, the root first.
    level_tables : sequence of LevelTable
        Their levels are those of `levels`.
    zeros : StructuralZeros or None
        Of these geounits.
    summaries : mapping of int to ChildSummary
        What branches that were cut off told, by the position of their roots, which stand in this tree again.
    finish : bool
        Whether there is nothing above.

    Returns
    -------
    sums : CertificateSums
    below : ChildSummary or None
        What a tree above has to know of the root; None if there is none.
    """
    first = int(level_of[0])
    tree = LevelledTree(parent, level_of - first, levels[first:])
    for placed in level_tables:
        placed.level -= first
    proof = MovedResiduals(tree_places(schema, tree, finest[first:], level_tables, zeros, summaries))
    return (proof.finish(), None) if finish else proof.hand_over()
