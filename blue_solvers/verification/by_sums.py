"""Certificates of problems in which a measured table holds all others: a pass of sums, and one for each equality."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from blue_solvers.verification.claims import Claim
from blue_solvers.verification.layers import holds_all, problem_layers
from blue_solvers.verification.sweep import sweep
from blue_solvers.verification.ties import Ties
from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise
from constraint_builders import Problem
from constraint_builders.arrays import Float

MOST_EQUALITIES = 20  # each takes a pass, and room for its cells


def certify_by_sums(problem: Problem, y: Float, x: Float, made: Sequence[Claim] = ()) -> tuple[float, float]:
    """Bound and violation of a problem in which a table holds all others, both in standard errors."""
    ties = multipliers = None
    if problem.covariance is None:
        if problem.equalities is not None:
            ties, multipliers = _ties(problem, made), _multipliers(problem, y, x)
        layers = problem_layers(problem, y, x, multipliers=multipliers, made=made)
        tally = sweep(layers)
        left = float(np.sqrt(tally.left)) + tally.moved()
    else:
        noise, remains = WeighedNoise.of(problem), np.zeros(y.size)
        rho, off = noise.weighted(y - x)
        layers = problem_layers(problem, y, x, (noise, rho, remains), made=made)
        tally = sweep(layers)
        left = noise.size(remains) + tally.moved() * float(np.sqrt(remains.size)) + off
    tables = {sheet.key: (level, sheet.table) for level, layer in enumerate(layers) for sheet in layer.sheets}
    return tally.bound(tables, problem.domain.schema, left, ties), tally.violation


def _ties(problem: Problem, made: Sequence[Claim]) -> Ties:
    own = zip(problem.observed_levels, problem.observed_tables, strict=True)
    figures = {f"{level} {table.name}": (level, table) for level, table in own}
    figures |= {f"claim {claim.index}": (claim.level, claim.table) for claim in made}
    return Ties.of(problem, holds_all(problem, made) or [], figures)


def _multipliers(problem: Problem, y: Float, x: Float) -> Float:
    """Of equalities, those that leave the least of the residuals: what is left is linear in the residuals."""
    E, noise = problem.equalities[0] if problem.equalities else sparse.csr_array((0, y.size)), WeighedNoise.of(problem)
    if E.shape[0] > MOST_EQUALITIES:
        raise NotCertifiedError(f"more than {MOST_EQUALITIES} equalities, and its counts are too many to list")
    if abs(E)[:, problem.unmeasured].sum():
        raise NotCertifiedError("its equalities speak of cells that were not measured, and its counts are too many")

    def left(rho: Float) -> Float:
        remains = np.zeros(y.size)
        sweep(problem_layers(problem, y, x, (noise, np.where(noise.noisy, rho, 0.0), remains)))
        return noise.sd * remains

    rho, found = noise.weighted(y - x)[0], np.zeros(E.shape[0])
    each = np.stack([left(row) for row in E.toarray()], axis=1)
    size = np.linalg.norm(each, axis=0)
    each /= np.where(size > 0, size, 1.0)
    for _ in range(2):
        found += np.linalg.lstsq(each, left(rho - E.T @ found))[0] / np.where(size > 0, size, 1.0)
    return found
