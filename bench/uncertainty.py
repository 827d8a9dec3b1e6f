"""What variances and replicates cost, in units of what they are measured against.

    python -m bench uncertainty            all
    python -m bench uncertainty --quick    small sizes

1. Exact variances of a 14,641-count cube with a variance of its own in every cell by selected inversion, beside the
   sparse Cholesky factorisation of A Sigma A': the inversion alone, and all of it from the constraint matrix on, that
   factorisation included.
2. 199 Monte Carlo replicates of PL94 by 55 counties, beside one apply, drawing the noise not counted.

What variances in closed form, by a factor and behind iterations cost, `bench solvers` says. Times are CPU
times, the best of several runs: the machine may have other work.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from bench.measuring import is_quick, print_table, shortest
from bench.problems import cellwise
from blue_solvers import BlueOperator, blue
from blue_solvers.normal_equations.factorisation import factorise
from blue_solvers.normal_equations.noisy_equations import equations_of
from blue_solvers.selected_inverse import SelectedInverse
from blue_solvers.uncertainty import half_widths, variances_by_selected_inversion
from blue_solvers.uncertainty.monte_carlo import Streams
from constraint_builders import Problem, gallery
from noise_mechanisms import draw_noise

SEED = 7
DRAWS = 199
Rows = Iterator[list[object]]


def main(argv: list[str]) -> None:
    """Print both."""
    quick = is_quick(argv, "uncertainty", __doc__, "a smaller cube, and fewer counties")
    print_table(["what", "seconds", "beside", "seconds", "ratio", "target", ""], rows(quick))


def rows(quick: bool) -> Rows:
    """The printed rows."""
    yield from selected_inversion(gallery.cube(4, 5 if quick else 10))
    yield from monte_carlo(gallery.pl94_counties(5 if quick else 55))


def selected_inversion(problem: Problem) -> Rows:
    """Variances of cellwise noise beside the factorisation of A Sigma A'."""
    own = cellwise(problem)
    N = equations_of(own, "independent")[-1].normal_matrix()
    inversion = partial(SelectedInverse, *factorise(N).triangle())
    whole = partial(variances_by_selected_inversion, own)
    factorisation, inverse, all_of_it = shortest(lambda: factorise(N), inversion, whole)
    yield _row("selected inversion alone", inverse, "factorisation", factorisation, 3)
    yield _row("all variances with it", all_of_it, "factorisation", factorisation, 3)


def monte_carlo(problem: Problem) -> Rows:
    """Replicates beside an apply, less the time that drawing their noise takes by itself."""
    P, y = blue(problem), np.random.default_rng(SEED).standard_normal(problem.observed.size)
    (apply,) = shortest(lambda: P @ y, rounds=20)
    (drawing,) = shortest(partial(_draw, P), rounds=3)
    for method in ("t", "distribution_free"):
        (seconds,) = shortest(partial(half_widths, P, 0.95, method, DRAWS, SEED), rounds=4)
        yield _row(f"{DRAWS} replicates, {method}", seconds - drawing, "apply", apply, 250)


def _draw(P: BlueOperator) -> None:
    """The noise of all replicates, and nothing else."""
    for _, stream, width in Streams(SEED, max(P.shape)).batches(0, DRAWS):
        draw_noise(P.problem, width, stream)


def _row(what: str, seconds: float, beside: str, unit: float, target: float) -> list[object]:
    ratio = seconds / unit
    missed = "" if ratio <= target else "MISSED"
    return [what, seconds, beside, unit, ratio, target, missed]
