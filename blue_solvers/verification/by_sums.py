"""Certificates by sums over leaves: of problems whose leaves' tables hold all others, and of parts of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from blue_solvers.verification.known_exactly import KnownExactly
from blue_solvers.verification.moved_residuals import MovedResiduals
from blue_solvers.verification.placed_tables import Below, Sheet
from blue_solvers.verification.problem_places import Claim, problem_places, tree_places
from blue_solvers.verification.tally import Tally
from blue_solvers.verification.ties import Ties
from blue_solvers.verification.weighed_noise import EXACT_TO, ROUNDING, DisprovedError, NotCertifiedError, WeighedNoise
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float, Index
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table


def certify_by_sums(problem: Problem, y: Float, x: Float, made: Sequence[Claim] = ()) -> tuple[float, float]:
    """Bound and violation of a problem in which tables of the leaves hold all others, both in standard errors.

    Raises
    ------
    NotCertifiedError
        If there are none, it would be too large, or what is known exactly is contradicted.
    """
    schema, tied = problem.domain.schema, problem.has_equalities
    if tied and problem.areas is None and problem.noise.covariance is not None:
        raise NotCertifiedError("its noise is correlated and equalities hold, and its counts are too many to list")
    places = problem_places(problem, y, x, made)
    by_ties = places.nest or not (problem.exact.any() or problem.has_zeros or tied)
    if by_ties and not tied and problem.noise.covariance is None:
        tally = MovedResiduals(places).finish()
        return tally.bound(places.tables, schema, tally.all_left()), tally.violation
    noise, off, remains = WeighedNoise.of(problem), 0.0, np.zeros(y.size)
    known = KnownExactly(problem, noise, places, y) if tied or not by_ties else None
    pulls = known is not None and known.values.size > 0
    if noise.correlated is not None or pulls:
        rho, off = noise.weighted(y - x)
        if known is not None and pulls:
            rows, multipliers = known.rows, known.multipliers(rho)
            if by_ties:  # cells take theirs while residuals are moved
                rows = problem.equality_rows[0]
                multipliers = multipliers[multipliers.size - rows.shape[0] :]
            off += ROUNDING * noise.size(abs(rho) + 4 * (abs(rows).T @ abs(multipliers)))
            rho = rho - rows.T @ multipliers
        for sheet in places.sheets:
            shape, own = (-1, sheet.table.size), sheet.place
            if own.stop <= y.size:  # the others are claims
                sheet.rho = rho[own].reshape(shape)
                if noise.correlated is not None:
                    sheet.least, sheet.left = np.square(noise.least[own]).reshape(shape), remains[own].reshape(shape)
    figures = np.concatenate([x, *(claim.figures for claim in made)])
    proof = MovedResiduals(places, 0 if by_ties else figures.size)
    tally = proof.finish()
    left = tally.all_left() + off
    if noise.correlated is not None:
        left = noise.size(remains, ROUNDING * abs(remains)) + tally.moved() * (1 + float(np.sqrt(y.size))) + off
    if known is None or by_ties:
        ties = Ties.of(problem, places, places.tables) if tied else None
        return tally.bound(places.tables, schema, left, ties), tally.violation
    scale = max(float(np.nanmax(abs(figures), initial=0.0)), float(abs(y).max(initial=0.0)))
    apart = _disagreement(noise, known, proof, scale)
    return left + float(np.sqrt(tally.found[5]) + np.sqrt(tally.apart)) + apart, tally.violation


def _disagreement(noise: WeighedNoise, known: KnownExactly, proof: MovedResiduals, scale: float) -> float:
    """The most that a figure is off the sums of cells that satisfy what is known exactly, and how far these are moved.

    Both in standard errors, from lower bounds of them.
    """
    size = noise.sd.size
    missed = (known.rows.astype(np.longdouble) @ proof.sums[:size] - known.values).astype(float)
    off = max(float(abs(missed).max(initial=0.0)), float(proof.tally.found[1]))
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
    sheets: Sequence[Sheet],
    zeros: StructuralZeros | None,
    handed: Mapping[int, Below],
    finish: bool,
) -> tuple[Tally, Below | None]:
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
    sheets : sequence of Sheet
        Their levels are those of `levels`.
    zeros : StructuralZeros or None
        Of these geounits.
    handed : mapping of int to Below
        What branches that were cut off told, by the position of their roots, which stand in this tree again.
    finish : bool
        Whether there is nothing above.

    Returns
    -------
    tally : Tally
    below : Below or None
        What a tree above has to know of the root; None if there is none.
    """
    first = int(level_of[0])
    tree = LevelledTree(parent, level_of - first, levels[first:])
    for sheet in sheets:
        sheet.level -= first
    proof = MovedResiduals(tree_places(schema, tree, finest[first:], sheets, zeros, handed))
    return (proof.finish(), None) if finish else proof.hand_over()
