"""Every cell its own variance: iterations, seconds and memory of the exact solvers that take it.

    python -m bench beyond             all cases, Table 3 and the hierarchies, an hour or so
    python -m bench beyond --quick     4^4 and the redistricting tables in ratio 3, and less of the rest
    python -m bench beyond --case dhc --ratio 3 --law log-uniform

Variances lie between 1 and the ratio, independently in every cell: uniform, or with a uniform logarithm. Each solver
runs in a process of its own, so that its peak memory is its own. "x equal" is the time of an apply in units of the
closed form's (or two passes') for equal variances on the same tables; "difference" is the largest from the two-pass
preconditioner at a hundredth of its tolerance, the least standard deviation of the noise being 1. Plain and Jacobi
iterations use all rows, multigrid the independent ones. "dhc persons" has all query groups of the product at one
geounit, age groups that cross included.

Without --case follow Table 3 of the SEA BLUE paper, where every solver's BLUE is compared with the dense one, and
`python -m bench hierarchies`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from bench import hierarchies, solvers
from bench.measuring import best_seconds, in_own_process, peak_bytes, print_table
from bench.printed_figures import TABLE_3
from bench.spine import problem_of_a_state
from bench.unequal_variances import random_variances
from blue_solvers import Auto, Cholesky, ConjugateGradient, Solver, blue
from constraint_builders import Problem
from constraint_builders.files.settings import production_settings


def dhc_persons() -> Problem:
    """Every query group of the persons' demographic and housing characteristics, at one state."""
    settings = production_settings("dhc_us_persons")
    return Problem(settings.schema, settings.variances()["State"])


CASES: dict[str, Callable[[], Problem]] = {
    **{name: solvers.CASES[name] for name in ("4^4", "5^5", "6^6", "pl94", "pl94 x 55", "dhc")},
    "Rhode Island": lambda: problem_of_a_state("16", 1),
    "dhc persons": dhc_persons,
}
SOLVERS: dict[str, Solver] = {
    "two_pass": ConjugateGradient(preconditioner="two_pass"),
    "jacobi": ConjugateGradient(),
    "plain": ConjugateGradient(preconditioner=None),
    "multigrid": ConjugateGradient(preconditioner="multigrid"),
    "cholesky": Cholesky(),
    "auto": Auto(),
}
RATIOS = (3.0, 100.0, 10_000.0)
LAWS = ("uniform", "log-uniform")
QUICK = ("4^4", "pl94")
TIMEOUT = 120.0
SEED = 2024


def cellwise(problem: Problem, ratio: float, law: str) -> Problem:
    """The same tables with a variance for every noisy cell."""
    rng = np.random.default_rng(SEED)
    share = rng.random(problem.observed.size)
    drawn = 1 + (ratio - 1) * share if law == "uniform" else ratio**share
    noisy = ~problem.exact & ~problem.unmeasured
    return problem.with_variances(np.where(noisy, drawn, problem.variances))


def measure(case: str, law: str, ratio: float, solver: str) -> dict[str, float | str]:
    """Figures of one solver on one case, in this process."""
    equal = CASES[case]()
    problem = cellwise(equal, ratio, law)
    deviations = np.sqrt(np.where(problem.unmeasured, 0.0, problem.variances))
    y = np.random.default_rng(SEED).standard_normal(problem.observed.size) * deviations
    before = peak_bytes()
    start = time.perf_counter()
    P = blue(problem, SOLVERS[solver])
    prepare = time.perf_counter() - start
    x, info = P.apply(y)
    figures: dict[str, float | str] = {
        "by": P.info.solver,
        "prepare": prepare,
        "apply": best_seconds(lambda: P @ y, repeats=2, least=0),
        "memory": float(peak_bytes() - before),
        "iterations": float(info.iterations),
    }
    closed_form = blue(equal, "two_pass" if equal.spine else "sea_blue")
    figures["equal"] = best_seconds(lambda: closed_form @ y)
    reference = blue(problem, ConjugateGradient(rtol=1e-12, preconditioner="two_pass"))
    figures["difference"] = float(abs(x - reference @ y).max())
    return figures


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = argparse.ArgumentParser(prog="python -m bench beyond", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small cases in ratio 3 only")
    parser.add_argument("--case", action="append", choices=CASES, help="one case, may be repeated")
    parser.add_argument("--solver", action="append", choices=SOLVERS, help="one solver, may be repeated")
    parser.add_argument("--ratio", action="append", type=float, help="of the variances; may be repeated")
    parser.add_argument("--law", action="append", choices=LAWS, help="of the variances; may be repeated")
    options = parser.parse_args(argv)
    cases = options.case or (QUICK if options.quick else tuple(CASES))
    header = ["case", "law", "ratio", "solver", "prepare s", "apply s", "x equal", "peak MiB", "iterations",
              "difference"]  # fmt: skip
    for case in cases:
        rows = []
        for law in options.law or LAWS:
            for ratio in options.ratio or (RATIOS[:1] if options.quick else RATIOS):
                for solver in options.solver or SOLVERS:
                    output = in_own_process("bench.beyond", case, law, str(ratio), solver, timeout=TIMEOUT)
                    rows.append([case, law, f"{ratio:g}", *_row(solver, output)])
                    if sys.stderr.isatty():
                        print(f"\r{case}: {law} {ratio:g} {solver}".ljust(60), end="\r", file=sys.stderr, flush=True)
        print_table(header, rows)
        print()
    if not options.case:
        print_table(["Table 3", "solver", "differs from dense"], table_3(2 if options.quick else 20))
        print()
        hierarchies.main(["--quick"] if options.quick else [])


def table_3(replicates: int) -> list[list[str]]:
    """Largest difference of every BLUE from the dense one, in the designs of the paper's Table 3."""
    rng = np.random.default_rng(SEED)
    iterating = {"two_pass": ConjugateGradient(rtol=1e-12, preconditioner="two_pass"), "jacobi": SOLVERS["jacobi"]}
    exact: dict[str, Solver] = {"cholesky": Cholesky(), **iterating}
    rows = []
    for row in TABLE_3:
        worst = dict.fromkeys(exact, 0.0)
        for _ in range(replicates):
            problem = random_variances(row, rng)
            y = rng.standard_normal(problem.observed.size) * np.sqrt(problem.variances)
            dense = blue(problem, "dense") @ y
            for name, solver in exact.items():
                worst[name] = max(worst[name], float(abs(blue(problem, solver) @ y - dense).max()))
        rows += [[row, name, f"{difference:.1e}"] for name, difference in worst.items()]
    return rows


def _row(solver: str, output: str) -> list[str]:
    try:
        figures = json.loads(output)
    except json.JSONDecodeError:
        return [solver, output.strip()[-110:], *[""] * 5]
    return [
        f"auto: {figures['by']}" if solver == "auto" else solver,
        f"{figures['prepare']:.3f}",
        f"{figures['apply']:.4f}",
        f"{figures['apply'] / figures['equal']:.1f}",
        f"{figures['memory'] / 2**20:.1f}",
        f"{figures['iterations']:.0f}",
        f"{figures['difference']:.1e}",
    ]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])))
