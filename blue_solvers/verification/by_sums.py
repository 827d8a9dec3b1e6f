"""Certificates by sums over leaves: of problems whose leaves' tables hold all others, and of parts of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import sparse

from blue_solvers.verification.known_exactly import LeafSums, least_multipliers, least_standard_errors, moved_to_known
from blue_solvers.verification.moved_residuals import MovedResiduals
from blue_solvers.verification.placed_tables import Below, PlacedTables, Sheet
from blue_solvers.verification.problem_places import Claim, problem_places, tree_places
from blue_solvers.verification.tally import Tally
from blue_solvers.verification.ties import Ties
from blue_solvers.verification.weighed_noise import EXACT_TO, ROUNDING, DisprovedError, NotCertifiedError, WeighedNoise
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table
from constraint_builders.description.zeros import StructuralZeros

MOST_KNOWN = 2_000_000  # cells of leaves, where what is known exactly takes iterations
ROUNDS = 3  # of multipliers of what is known exactly


def certify_by_sums(problem: Problem, y: Float, x: Float, made: Sequence[Claim] = ()) -> tuple[float, float]:
    """Bound and violation of a problem in which tables of the leaves hold all others, both in standard errors.

    Raises
    ------
    NotCertifiedError
        If there are none, it would be too large, or what is known exactly is contradicted.
    """
    noise, E = WeighedNoise.of(problem), sparse.csr_array((0, y.size))
    if problem.equalities is not None:
        E = problem.equalities[0]
        if problem.areas is None and noise.correlated is not None:
            raise NotCertifiedError("its noise is correlated and equalities hold, and its counts are too many to list")
    places = problem_places(problem, y, x, made)
    by_ties = places.nest or not (problem.exact.any() or problem.zeros is not None or E.shape[0])
    sums, known = None, _known(problem, places, E) if E.shape[0] or not by_ties else E
    off, remains = 0.0, np.zeros(y.size)
    if noise.correlated is not None or known.shape[0]:
        rho, off = noise.weighted(y - x)
        if known.shape[0]:
            sums = _leaf_sums(places, y.size)
            multipliers = _multipliers(sums, noise, known, rho)
            taken = (E, multipliers[known.shape[0] - E.shape[0] :]) if places.nest else (known, multipliers)
            off += ROUNDING * noise.size(abs(rho) + 4 * (abs(taken[0]).T @ abs(taken[1])))
            rho = rho - taken[0].T @ taken[1]
        places = problem_places(problem, y, x, made, (noise, rho, remains))
    proof = MovedResiduals(places, 0 if by_ties else y.size + sum(claim.figures.size for claim in made))
    tally = proof.finish()
    left = float(np.sqrt(tally.left))
    if noise.correlated is not None:
        left = noise.size(remains, ROUNDING * abs(remains)) + tally.moved() * float(np.sqrt(remains.size))
    left += tally.moved() + off
    if by_ties:
        ties = Ties.of(problem, places, places.tables) if E.shape[0] else None
        return tally.bound(places.tables, problem.domain.schema, left, ties), tally.violation
    figures = np.concatenate([x, *(claim.figures for claim in made)])
    apart = _disagreement(problem, noise, sums or _leaf_sums(places, y.size), known, proof, y, figures)
    return left + float(np.sqrt(tally.weighted) + np.sqrt(tally.apart)) + apart, tally.violation


def _leaf_sums(places: PlacedTables, observed: int) -> LeafSums:
    sums = LeafSums(places, observed)
    if sums.size > MOST_KNOWN:
        raise NotCertifiedError(
            f"its leaves have {sums.size:,} cells, some of them known exactly in sums, and proofs by sums take "
            f"{MOST_KNOWN:,} at most"
        )
    return sums


def _exact_leaves(problem: Problem, places: PlacedTables) -> Flags:
    """Cells known exactly of a table of the leaves that alone holds all others: these say themselves what they are."""
    found = np.zeros(problem.observed.size, dtype=bool)
    for some in places.leaves:
        level = places.levels[some.level]
        sheet = level.own(0)
        if len(level.tables) == 1 and sheet is not None:
            found[sheet.place].reshape(level.rows, -1)[some.rows] = True
    return found & problem.exact


def _known(problem: Problem, places: PlacedTables, equalities: sparse.csr_array) -> sparse.csr_array:
    """What else is known exactly, as rows over the observed cells, equalities last."""
    cells = np.flatnonzero(problem.exact & ~_exact_leaves(problem, places))
    rows = sparse.csr_array(
        (np.ones(cells.size), (np.arange(cells.size), cells)), shape=(cells.size, problem.exact.size)
    )
    return sparse.csr_array(sparse.vstack([rows, equalities], format="csr"))


def _multipliers(sums: LeafSums, noise: WeighedNoise, known: sparse.csr_array, rho: Float) -> Float:
    """Of what is known exactly, those that leave the least of the residuals."""
    variances = np.where(sums.free, sums.of_holders(noise.sd) ** 2, 0.0)

    def left(multipliers: Float) -> Float:
        return np.where(sums.free, sums.shares_of(rho - known.T @ multipliers), 0.0)

    found = np.zeros(known.shape[0])
    closest = left(found)
    for _ in range(ROUNDS):
        tried = found + least_multipliers(sums, known, variances, closest)
        closer = left(tried)
        if variances @ closer**2 >= variances @ closest**2:
            break
        found, closest = tried, closer
    return found


def _disagreement(
    problem: Problem,
    noise: WeighedNoise,
    sums: LeafSums,
    known: sparse.csr_array,
    proof: MovedResiduals,
    y: Float,
    figures: Float,
) -> float:
    """The most that a figure is off the sums of cells that satisfy what is known exactly, and how far these are moved.

    Both in standard errors, from lower bounds of them.
    """
    free = sums.free & (sums.of_holders(_exact_leaves(problem, proof.places).astype(float)) == 0)
    truth = known @ y
    if problem.equalities is not None:
        truth[known.shape[0] - problem.equalities[1].size :] = problem.equalities[1]
    scale = max(float(np.nanmax(abs(figures), initial=0.0)), float(abs(y).max(initial=0.0)))
    missed = (known.astype(np.longdouble) @ proof.sums[: y.size] - truth).astype(float)
    off = max(float(abs(missed).max(initial=0.0)), proof.tally.wrong)
    if off > EXACT_TO * scale * max(1.0, float(abs(known).sum(axis=1).max(initial=0.0))):
        raise DisprovedError(f"x contradicts what is known exactly by {off:.3g}")
    least = least_standard_errors(sums, noise, free, known)
    fixed = least <= 0
    if (proof.apart[fixed] > EXACT_TO * scale).any():
        raise NotCertifiedError(f"a figure that is known exactly is off by {proof.apart[fixed].max():.3g}")
    moved = moved_to_known(sums, noise, free, known, missed)
    apart = np.divide(proof.apart + moved, least, out=least, where=~fixed)
    return noise.inverse_size(moved[: y.size]) + float(apart.max(initial=0.0, where=~fixed))


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
