"""Spines and problems on them that hypothesis invents, and their estimate by dense linear algebra."""

from contextlib import suppress

import numpy as np
from hypothesis import strategies as st

from constraint_builders import Problem, Schema, Spine

SCHEMA = Schema({"a": 2, "b": 4, "c": 3}, recodes={"b": {"g": [0, 1, 1, 1], "h": [0, 1, 1, 2]}, "c": {"q": [0, 0, 1]}})
TABLES = ("total", "a", "b", "g", "h", "c", "q", "a * b", "a * g", "g * c", "h * q", "a * c", "detailed")


@st.composite
def spines(draw, most_levels: int = 4, most_children: int = 3) -> Spine:
    """Trees of uneven depth and branching: single children, geounits without children above the lowest level."""
    parent, level = [-1], [0]
    for depth in range(1, draw(st.integers(1, most_levels))):
        for above in [i for i, own in enumerate(level) if own < depth]:
            skips = level[above] < depth - 1
            count = draw(st.integers(0, 1 if skips else most_children))
            parent += [above] * count
            level += [depth] * count
    return Spine(parent, [f"L{depth}" for depth in level])


@st.composite
def spine_problems(draw, special: bool = True) -> Problem:
    """Any tables at any level; variances per geounit over four decades, some exact, some not measured."""
    spine = draw(spines())
    observed: dict[str, dict[str, np.ndarray]] = {}
    for number, level in enumerate(spine.levels):
        names = draw(st.lists(st.sampled_from(TABLES), max_size=3, unique=True))
        count = spine.members[number].size
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        for name in names:
            variances = 10.0 ** rng.uniform(-2, 2, count)
            kind = draw(st.sampled_from(["all", "all", "some", "exact"])) if special else "all"
            if kind == "some":
                variances[rng.random(count) < 0.5] = np.inf
            if kind == "exact":
                variances[rng.random(count) < 0.5] = 0
            observed.setdefault(level, {})[name] = variances
    if not observed:
        observed = {spine.levels[0]: {"total": 1.0}}
    with suppress(ValueError):  # where nothing that was measured determines anything
        return Problem(SCHEMA, observed, spine=spine, desired="all")
    return Problem(SCHEMA, {level: {"detailed": 1.0} for level in spine.levels}, spine=spine)


def measurement_matrices(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """From the detailed cells of all leaves to the observed and to the desired cells."""
    wanted: dict[str, dict[str, float]] = {}
    for level, table in problem.desired.names:
        wanted.setdefault(level, {})[table] = 1.0
    everything = Problem(problem.schema, wanted, spine=problem.spine)
    rows = everything.marginal_matrix().toarray()
    numbers = everything.observed.tables(np.arange(len(rows)))
    order = np.concatenate([numbers[name].ravel() for name in problem.desired.names])
    return problem.marginal_matrix().toarray(), rows[order]


def dense_covariance(problem: Problem) -> np.ndarray:
    """Covariance of the desired cells by generalised least squares, (m, m)."""
    M, D = measurement_matrices(problem)
    noisy, free = ~problem.exact & ~problem.unmeasured, np.eye(M.shape[1])
    if problem.exact.any():
        _, singular, right = np.linalg.svd(M[problem.exact])
        free = right[int((singular > 1e-10 * singular[0]).sum()) :].T
    precision = 1 / problem.variances[noisy]
    # The rank is that of the unweighted rows: precisions differ by decades.
    _, singular, right = np.linalg.svd(M[noisy] @ free)
    seen = free @ right[: int((singular > 1e-9).sum())].T
    # Orthogonal factors of the weighted rows, the heaviest first: normal equations would square their condition.
    heaviest = np.argsort(-precision, kind="stable")
    R = np.linalg.qr(np.sqrt(precision[heaviest])[:, None] * (M[noisy] @ seen)[heaviest], mode="r")
    spread = D @ seen @ np.linalg.inv(R)
    return spread @ spread.T


def consistent_measurements(problem: Problem, seed: int) -> np.ndarray:
    """Noisy measurements of invented counts whose exact cells agree."""
    rng = np.random.default_rng(seed)
    M = problem.marginal_matrix()
    sd = np.sqrt(np.where(np.isfinite(problem.variances), problem.variances, 0))
    y = M @ rng.poisson(5, M.shape[1]) + sd * rng.standard_normal(M.shape[0])
    y[problem.unmeasured] = 0
    return y
