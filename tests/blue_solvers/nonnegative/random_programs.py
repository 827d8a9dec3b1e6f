"""Programs at random that have a solution."""

import numpy as np
from scipy import sparse

from blue_solvers.nonnegative.bounded_sums import with_bounds_on, without_rows
from blue_solvers.nonnegative.cell_bounds import Ranges
from blue_solvers.nonnegative.quadratic_program import QuadraticProgram, csc


def random_program(seed, exact=True, bounded=True):
    """A feasible program: the cells that the answers are sums of lie within all bounds."""
    rng = np.random.default_rng(seed)
    rows, cells = int(rng.integers(1, 8)), int(rng.integers(1, 15))
    M = csc(sparse.csc_array((rng.random((rows, cells)) < 0.5).astype(float)))
    inside = np.where(rng.random(cells) < 0.5, 0.0, rng.integers(0, 20, cells))
    variance = 10 ** rng.uniform(-1, 2, rows)
    if exact:
        variance[rng.random(rows) < 0.3] = 0.0
    noise = rng.normal(size=rows) * np.sqrt(variance)
    radius = np.where(bounded & (rng.random(rows) < 0.3), 1.5 * abs(noise), np.inf)
    upper = np.where(bounded & (rng.random(cells) < 0.3), inside + rng.integers(0, 3, cells), np.inf)
    p = QuadraticProgram(
        M=M,
        target=inside + 3 * rng.normal(size=cells),
        weight=10 ** rng.uniform(-3, 1, cells),
        lower=np.zeros(cells),
        upper=upper,
        answer=M @ inside + noise,
        variance=variance,
    )
    near = np.flatnonzero(np.isfinite(radius) & (variance > 0))
    ends, tied = Ranges((p.answer - radius)[near], (p.answer + radius)[near]), p.M.tocsr()[near]
    alone = np.diff(tied.indptr) < 2  # whose bounds are those of a cell, beside the row
    p = without_rows(p, near[~alone])
    return with_bounds_on(p, tied, ends, (M @ inside + noise)[near], np.where(alone, 0.0, 1 / variance[near]))
