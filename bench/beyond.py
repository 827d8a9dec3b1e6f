"""Every cell its own variance: iterations, seconds and memory of the exact solvers that take it.

    python -m bench beyond                all cases, an hour or so
    python -m bench beyond --quick        4^4 and the redistricting tables in ratio 3
    python -m bench beyond --case dhc     one case, may be repeated

Variances lie between 1 and the ratio, independently in every cell: uniform, or with a uniform logarithm. Measured as
`python -m bench solvers` measures, in a process of its own each; "x equal" is the time of an apply in units of the
closed form's (or two passes') for equal variances on the same tables; "error" is what is proved, in standard errors.
Plain and Jacobi iterations use all rows, multigrid the independent ones. "dhc persons" has all query groups of the
product at one geounit, age groups that cross included.
"""

from collections.abc import Iterator
from typing import Any

from bench import solvers
from bench.measuring import parser_of, print_figures
from bench.problems import PROBLEMS, cellwise
from blue_solvers import Auto, Cholesky, ConjugateGradient, SeaBlue, Solver, TwoPass

CASES = ("4^4", "5^5", "6^6", "pl94", "pl94 x 55", "dhc", "16 cells", "dhc persons")
SOLVERS: dict[str, Solver] = {
    "two_pass": ConjugateGradient(preconditioner="two_pass"),
    "jacobi": ConjugateGradient(),
    "plain": ConjugateGradient(preconditioner=None),
    "multigrid": ConjugateGradient(preconditioner="multigrid"),
    "cholesky": Cholesky(),
    "auto": Auto(),
}
RATIOS, LAWS, QUICK = (3.0, 100.0, 10_000.0), ("uniform", "log-uniform"), ("4^4", "pl94")
TIMEOUT = 120.0


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = parser_of("beyond", __doc__, "small cases in ratio 3 only")
    parser.add_argument("--case", action="append", choices=CASES, help="one case, may be repeated")
    options = parser.parse_args(argv)
    ratios = RATIOS[:1] if options.quick else RATIOS
    cases = options.case or (QUICK if options.quick else CASES)
    print_figures(figures for case in cases for figures in _figures(case, ratios))


def _figures(case: str, ratios: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    equal = PROBLEMS[case]()
    closed_form = {"closed form": TwoPass() if equal.spine else SeaBlue()}
    unit = next(solvers.measured(case, equal, closed_form, timeout=TIMEOUT))["apply"]
    for law in LAWS:
        for ratio in ratios:
            problem = cellwise(equal, ratio, law)
            for own in solvers.measured(case, problem, SOLVERS, columns=1, timeout=TIMEOUT):
                times = unit and own["apply"] and own["apply"] / unit
                yield {"law": law, "ratio": ratio, **own, "x equal": times}
