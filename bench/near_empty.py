"""Near-empty tables, where the BLUE loses: the posterior of whole counts beside non-negative fits and the BLUE.

    python -m bench near_empty             5 draws of 3 kinds of truth, some ten minutes
    python -m bench near_empty --quick     three variables, one draw

Five variables of five levels, 3,125 cells of mean 0.3; measured are all tables of up to three variables and the
detailed one, each with Gaussian noise of variance 3.75. Root mean squared errors over all measured cells.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import combinations

import numpy as np

from bench.measuring import print_table
from blue_solvers import blue
from blue_solvers.nonnegative import counts_posterior, nnls
from constraint_builders import Problem, Schema
from noise_mechanisms import draw_noise

VARIANCE = 3.75
LEVEL = 0.9
KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "Poisson": lambda rng, size: rng.poisson(0.3, size),
    "geometric": lambda rng, size: rng.geometric(1 / 1.3, size) - 1,
    "a tenth of mean 3, others empty": lambda rng, size: rng.poisson(3.0, size) * (rng.random(size) < 0.1),
}


def main(argv: list[str]) -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench near_empty", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three variables, one draw of each kind")
    parser.add_argument("--draws", type=int, help="draws of each kind of truth (default 5)")
    options = parser.parse_args(argv)
    variables, draws = (3, 1) if options.quick else (5, options.draws or 5)
    problem = near_empty(variables)
    rows = []
    for kind, draw in KINDS.items():
        rows.append([kind, *measure(problem, draw, draws)])
    header = ["truth", "BLUE", "nnls", "posterior", "of detail", f"{LEVEL:.0%} intervals cover", "width"]
    print_table([*header, "least effective", "seconds"], rows)


def near_empty(variables: int) -> Problem:
    """All tables of up to three variables, and the detailed one."""
    names = [f"v{i}" for i in range(variables)]
    tables = {" * ".join(chosen) or "total" for way in range(min(4, variables)) for chosen in combinations(names, way)}
    return Problem(Schema(dict.fromkeys(names, 5)), dict.fromkeys([*sorted(tables), "detailed"], VARIANCE))


def measure(problem: Problem, draw: Callable[[np.random.Generator, int], np.ndarray], draws: int) -> list[str]:
    """Errors, coverage and effort over several draws of counts and of noise."""
    P, M = blue(problem), problem.marginal_matrix()
    squares, found = np.zeros(4), []
    for seed in range(1, draws + 1):
        rng = np.random.default_rng(seed)
        counts = draw(rng, M.shape[1])
        truth = M @ counts
        y = truth + draw_noise(problem, 1, rng)[:, 0]
        start = time.perf_counter()
        posterior = counts_posterior(problem, y, effective=100, rng=seed)
        seconds = time.perf_counter() - start
        for i, x in enumerate((P @ y + P.offset, nnls(problem, y).observed, posterior.observed)):
            squares[i] += np.square(x - truth).mean() / draws
        squares[3] += np.square(posterior.detail.ravel() - counts).mean() / draws
        low, high = posterior.intervals(LEVEL)
        held = ((low <= truth) & (truth <= high)).mean()
        found.append((held, (high - low).mean(), posterior.effective_sizes.min(), seconds))
    held, width, least, seconds = np.mean(found, axis=0)
    return [
        *(f"{error:.3f}" for error in np.sqrt(squares)),
        f"{held:.3f}",
        f"{width:.2f}",
        f"{least:.0f}",
        f"{seconds:.0f}",
    ]
