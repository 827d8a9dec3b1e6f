"""Near-empty tables, where the BLUE loses: the posterior of whole counts beside non-negative fits and the BLUE.

    python -m bench near_empty             5 draws of 3 kinds of truth, some ten minutes
    python -m bench near_empty --quick     three variables, one draw

Five variables of five levels, 3,125 cells of mean 0.3; measured are all tables of up to three variables and the
detailed one, each with Gaussian noise of variance 3.75. Root mean squared errors over all measured cells.

Then redistricting tables, 2,016 cells, of a block with 100 people and a county with 60,000: CPU seconds until chains
agree.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.measuring import parser_of, print_table, timed
from bench.problems import margins
from blue_solvers import blue
from blue_solvers.nonnegative import counts_posterior, nnls
from constraint_builders import Problem, gallery
from noise_mechanisms import draw_noise

VARIANCE = 3.75
LEVEL = 0.9
HEADER = ["truth", "BLUE", "nnls", "posterior", "of detail", "90% intervals cover", "width", "least effective",
          "seconds"]  # fmt: skip
KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "Poisson": lambda rng, size: rng.poisson(0.3, size),
    "geometric": lambda rng, size: rng.geometric(1 / 1.3, size) - 1,
    "a tenth of mean 3, others empty": lambda rng, size: rng.poisson(3.0, size) * (rng.random(size) < 0.1),
}


def main(argv: list[str]) -> None:
    """Print one table."""
    parser = parser_of("near_empty", __doc__, "three variables, one draw of each kind")
    parser.add_argument("--draws", type=int, help="draws of each kind of truth (default 5)")
    options = parser.parse_args(argv)
    variables, draws = (3, 1) if options.quick else (5, options.draws or 5)
    problem = near_empty(variables)
    print_table(HEADER, ([kind, *measure(problem, draw, draws)] for kind, draw in KINDS.items()), KINDS)
    if not options.quick:
        people = {"block": (gallery.pl94_block(), 100), "county": (gallery.pl94(), 60_000)}
        rows = ([name, *redistricting(*own)] for name, own in people.items())
        print_table(["redistricting tables of a", "least effective", "apart", "seconds"], rows)


def near_empty(variables: int) -> Problem:
    """All tables of up to three variables, and the detailed one."""
    base = margins([5] * variables, min(3, variables - 1))
    return Problem(base.schema, dict.fromkeys([*sorted(map(str, base.observed.names)), "detailed"], VARIANCE))


def redistricting(problem: Problem, people: int) -> list[object]:
    """Effort over one draw of counts that spread over many orders of magnitude."""
    rng, M = np.random.default_rng(0), problem.marginal_matrix()
    mean = np.exp(rng.normal(-3, 2.5, M.shape[1]))
    truth = M @ rng.poisson(mean * people / mean.sum())
    found, seconds = timed(partial(counts_posterior, problem, truth + draw_noise(problem, 1, rng)[:, 0], rng=1))
    return [found.effective_sizes.min(), found.scale_reduction.max(), seconds]


def measure(problem: Problem, draw: Callable[[np.random.Generator, int], np.ndarray], draws: int) -> list[object]:
    """Errors, coverage and effort over several draws of counts and of noise."""
    P, M = blue(problem), problem.marginal_matrix()
    squares, found = np.zeros(4), []
    for seed in range(1, draws + 1):
        rng = np.random.default_rng(seed)
        counts = draw(rng, M.shape[1])
        truth = M @ counts
        y = truth + draw_noise(problem, 1, rng)[:, 0]
        posterior, seconds = timed(partial(counts_posterior, problem, y, effective=100, rng=seed))
        for i, x in enumerate((P @ y + P.offset, nnls(problem, y).observed, posterior.observed)):
            squares[i] += np.square(x - truth).mean() / draws
        squares[3] += np.square(posterior.detail.ravel() - counts).mean() / draws
        low, high = posterior.intervals(LEVEL)
        held = ((low <= truth) & (truth <= high)).mean()
        found.append((held, (high - low).mean(), posterior.effective_sizes.min(), seconds))
    return [*np.sqrt(squares), *np.mean(found, axis=0)]
