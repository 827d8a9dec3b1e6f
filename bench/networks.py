"""Least squares for leaves: beside one factorisation, and within bounds beside general solvers.

    python -m bench networks            all, a grid of a million leaves among them: a minute and some 4 GB
    python -m bench networks --quick    small ones

1. Grids of differences and power flows: CPU seconds of one sparse factorisation of the normal equations, of the leaves,
   of all exact standard errors, both together as multiples of the factorisation, and of the proof with its bound.
2. Small networks of differences whose nodes are within bounds, some of them at one: how often 90 % intervals by
   inverted tests hold the node, and how long they are, beside those without bounds.

The hour of the grid that ships is measured by `bench peers`.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bench.measuring import is_quick, print_table, timed
from blue_solvers.least_squares import least_squares
from blue_solvers.nonnegative import inverted_intervals
from blue_solvers.normal_equations.factorisation import factorise
from tests.helpers.designs import differences, edges, grid_of_differences

ROUNDS, DRAWS = 3, 200
PLACES = ("at the lower bound", "at the upper bound", "between", "half an error from one")  # of the first nodes
Design = tuple[str, sparse.csr_array, NDArray]


def main(argv: list[str]) -> None:
    """Print both."""
    quick = is_quick(argv, "networks", __doc__, "small ones")
    head = ["design", "rows", "leaves", "one factorisation", "leaves", "standard errors", "together", "proof", "bound"]
    print_table(head, (beside_a_factorisation(*own) for own in designs(quick)), ["power flows, 50,000 nodes"])
    head = ["node", "held", "without bounds", "length", "without bounds"]
    print_table(head, held_within_bounds(4 if quick else 100), ["half an error from one"])


def designs(quick: bool) -> Iterator[Design]:
    """Their names, rows by leaves, and variances."""
    rng = np.random.default_rng(1)
    for side in (60, 300) if quick else (60, 300, 1_000):
        S = sparse.vstack([grid_of_differences(side, side), np.eye(1, side * side)], format="csr")
        yield f"grid, {side} x {side}", sparse.csr_array(S), rng.uniform(0.5, 2, S.shape[0])
    for nodes in (2_000,) if quick else (2_000, 50_000):
        above = np.maximum(np.arange(1, nodes) - rng.integers(1, 30, nodes - 1), 0)
        near = rng.integers(0, nodes - 40, nodes // 2)
        shorter, longer = (
            np.stack([np.arange(1, nodes), above]),
            np.stack([near, near + rng.integers(1, 40, near.size)]),
        )
        pairs = np.hstack([shorter, longer]).T
        flows = sparse.csr_array(sparse.diags_array(rng.uniform(1, 50, len(pairs))) @ differences(pairs, nodes))
        S = sparse.vstack([flows, differences(pairs, nodes).T @ flows, np.eye(1, nodes)], format="csr")
        yield f"power flows, {nodes:,} nodes", sparse.csr_array(S), rng.uniform(0.5, 2, S.shape[0])


def beside_a_factorisation(name: str, S: sparse.csr_array, variances: NDArray) -> list[object]:
    """A row of the first table."""
    y = np.random.default_rng(0).standard_normal(S.shape[0])
    least_squares(S, y, variances, certify=False).std_errors  # noqa: B018  what is compiled, is
    normal = sparse.csr_array(S.T @ sparse.diags_array(1 / variances) @ S)
    times = []
    for _ in range(ROUNDS):
        _, once = timed(lambda: factorise(normal))
        found, leaves = timed(lambda: least_squares(S, y, variances, certify=False))
        errors = timed(lambda own=found: own.std_errors)[1]
        proof, proving = timed(found.certificate)
        times.append((once, leaves, errors, proving))
    once, leaves, errors, proving = np.min(times, axis=0)
    return [name, *S.shape, once, leaves, errors, (leaves + errors) / once, proving, proof.bound]


def held_within_bounds(runs: int) -> Iterator[list[object]]:
    """Rows of the second table, of so many networks of 8 nodes; coverage has a standard error of 0.03 of 100."""
    rng, nodes, first = np.random.default_rng(4), 8, np.arange(len(PLACES))
    near, ends = np.array([0.0, 4.0, 2.0, 0.3]), np.empty((2, 2, runs, len(PLACES)))  # lower and upper ones, both ways
    for run in range(runs):
        network = differences(edges(rng, nodes, 6), nodes)
        S = sparse.csr_array(sparse.vstack([network, np.eye(2, nodes, nodes - 2)]))
        y = S @ np.concatenate([near, rng.uniform(0, 4, nodes - near.size)]) + rng.standard_normal(S.shape[0])
        found = least_squares(S, y, 1.0, certify=False)
        within = inverted_intervals(found, y, first.tolist(), 0.9, draws=DRAWS, rng=rng, bounds=(0.0, 4.0))
        ends[:, :, run] = (within.lower, within.upper), [own[first] for own in found.interval(0.9)]
    low, high = ends.swapaxes(0, 1)
    held = ((low <= near + 1e-6) & (near <= high + 1e-6)).mean(axis=1)
    yield from map(list, zip(PLACES, *held, *(high - low).mean(axis=1), strict=True))
