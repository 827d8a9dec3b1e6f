"""What variances and replicates cost, in units of what they are measured against.

    python -m bench uncertainty            all
    python -m bench uncertainty --quick    small sizes

1. Exact variances of the DHC shape under A1 to A3, beside one apply.
2. Exact variances of a 14,641-count cube with a variance of its own in every cell by selected inversion, beside the
   sparse Cholesky factorisation of A Sigma A': the inversion alone, and all of it from the constraint matrix on, that
   factorisation included.
3. Exact variances of PL94 where every cell has a variance of its own between 1 and 3, by a factor of A Sigma A' and
   behind iterations around equal variances, each beside its own apply, and beside that of the closed form for equal
   variances, all applies in runs of 50.
4. 199 Monte Carlo replicates of PL94 by 55 counties, beside one apply, drawing the noise not counted.
5. The covariance of minors and adults of five districts of Rhode Island at 2,016 cells a geounit, beside the adjoint
   applies that would give it: of the fewest geounits that compose the districts, and of all their blocks. Where the
   file of its blocks is at hand.

Times are processor times, the best of several runs: the machine may have other work.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bench.invented_state import BLOCKS
from bench.measuring import print_table
from bench.spine import problem_of_a_state as rhode_island
from blue_solvers import BlueOperator, ConjugateGradient, blue
from blue_solvers.normal_equations.factorisation import factorise
from blue_solvers.normal_equations.inverses import inverse_on_factor
from blue_solvers.normal_equations.noisy_equations import equations_of
from blue_solvers.spine_design.report import entity_workload
from blue_solvers.uncertainty import half_widths, variances_by_selected_inversion
from blue_solvers.uncertainty.monte_carlo import Streams
from constraint_builders import Problem, Spine, gallery
from constraint_builders.geography import Entities, leaves
from noise_mechanisms import draw_noise

SEED = 7
DRAWS = 199
DISTRICTS = 5


def best(run: Callable[[], object], repeats: int = 5) -> float:
    """Least processor time of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def closed_form(problem: Problem) -> list[list[str]]:
    """Variances beside an apply."""
    P = blue(problem)
    y = np.random.default_rng(SEED).standard_normal(problem.observed.size)
    apply, variances = best(lambda: P @ y), best(P.variances)
    return [_row(f"all exact variances, {problem.desired.size:,} cells", variances, "apply", apply, 1)]


def selected_inversion(problem: Problem) -> list[list[str]]:
    """Variances of cellwise noise beside the factorisation of A Sigma A'."""
    assert problem.schema is not None
    rng = np.random.default_rng(SEED)
    sizes = {str(name): rng.uniform(1, 3, problem.observed.shape(name)) for name in problem.observed.names}
    cellwise = Problem(problem.schema, sizes)
    equations = equations_of(cellwise, "independent")[-1]
    N = equations.normal_matrix()
    factorisation = best(lambda: factorise(N))
    L = factorise(N, shown=True).triangle()[0]
    inverse = best(partial(inverse_on_factor, L))
    whole = best(partial(variances_by_selected_inversion, cellwise))
    return [
        _row("selected inversion alone", inverse, "factorisation", factorisation, 3),
        _row("all variances with it", whole, "factorisation", factorisation, 3),
    ]


def of_every_cell(problem: Problem) -> list[list[str]]:
    """Variances of cellwise noise beside applies."""
    rng = np.random.default_rng(SEED)
    cellwise = problem.with_variances(rng.uniform(1, 3, problem.observed.size))
    y = rng.standard_normal(problem.observed.size)
    equal = blue(problem)
    closed = _in_runs(equal, y)
    found = []
    for name, solver in {"cholesky": "cholesky", "iterations": ConjugateGradient(preconditioner="two_pass")}.items():
        P = blue(cellwise, solver)
        apply, seconds = _in_runs(P, y), best(P.variances)
        what = f"all exact variances, {problem.desired.size:,} cells in ratio 3, {name}"
        found.append(_row(what, seconds, "its apply", apply, 200))
        found.append(_row(what, seconds, "apply of equal variances", closed, 200))
    return found


def _in_runs(P: BlueOperator, y: NDArray, number: int = 50) -> float:
    """Least processor time of an apply among others like it."""
    return best(lambda: [P @ y for _ in range(number)]) / number


def monte_carlo(problem: Problem) -> list[list[str]]:
    """Replicates beside an apply, less the time that drawing their noise takes by itself."""
    P = blue(problem)
    y = np.random.default_rng(SEED).standard_normal(problem.observed.size)
    apply = best(lambda: P @ y, repeats=20)
    drawing = best(lambda: _draw(P), repeats=3)
    found = []
    for method in ("t", "distribution_free"):
        seconds = best(partial(half_widths, P, 0.95, method, DRAWS, SEED), repeats=4) - drawing
        found.append(_row(f"{DRAWS} replicates, {method}", seconds, "apply", apply, 250))
    return found


def _draw(P: BlueOperator) -> None:
    """The noise of all replicates, and nothing else."""
    for _, stream, width in Streams(SEED, max(P.shape)).batches(0, DRAWS):
        draw_noise(P.problem, width, stream)


def functionals_on_a_spine(base: Problem) -> list[list[str]]:
    """Functionals of districts by a pass up their branches, beside one adjoint apply for each of them."""
    assert base.spine is not None
    assert base.schema is not None
    observed: dict[str, dict[str, NDArray]] = {}
    for (level, table), variances in zip(base.observed.names, base.geounit_variances or [], strict=True):  # type: ignore[misc]
        observed.setdefault(level, {})[table] = variances
    found = []
    for name, levels in {"fewest geounits": base.spine.levels, "all blocks": base.spine.levels[-1:]}.items():
        problem = Problem(base.schema, observed, {level: ["votingage"] for level in levels}, spine=base.spine)
        P = blue(problem, "two_pass")
        W = entity_workload(problem, _districts(base.spine), "votingage")
        column = W[:, [0]].toarray()
        adjoint = W.shape[1] * best(partial(P.T.dot, column), repeats=2)
        seconds = best(partial(P.functional_covariance, W))
        what = f"covariance of {W.shape[1]} functionals, {W.nnz:,} weights: {name}"
        found.append(_row(what, seconds, "adjoint applies", adjoint, 0.1))
    return found


def _districts(spine: Spine) -> Entities:
    """Five runs of blocks, which cross county and tract lines."""
    district = np.arange(leaves(spine).size) * DISTRICTS // leaves(spine).size
    return Entities([f"district {k}" for k in range(DISTRICTS)], district == np.arange(DISTRICTS)[:, None])


def _row(what: str, seconds: float, beside: str, unit: float, target: float) -> list[str]:
    ratio = seconds / unit
    return [
        what,
        f"{seconds:.4g}",
        beside,
        f"{unit:.4g}",
        f"{ratio:.3g}",
        f"{target:g}",
        "" if ratio <= target else "MISSED",
    ]


def main(argv: list[str]) -> None:
    """Print the five."""
    parser = argparse.ArgumentParser(prog="python -m bench uncertainty", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller cube, and fewer counties")
    options = parser.parse_args(argv)
    rows = closed_form(gallery.pl94() if options.quick else gallery.dhc())
    rows += selected_inversion(gallery.cube(4, 5 if options.quick else 10))
    rows += of_every_cell(gallery.pl94())
    rows += monte_carlo(gallery.pl94_counties(5 if options.quick else 55))
    if BLOCKS.exists():
        rows += functionals_on_a_spine(rhode_island("16" if options.quick else "2016", 1))
    print_table(["what", "seconds", "beside", "seconds", "ratio", "target", ""], rows)
