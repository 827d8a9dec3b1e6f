"""Query groups of the persons' demographic and housing characteristics: two passes over 1 and over 9 geounits.

    python -m bench query_groups             without the detailed table, and with it at one geounit
    python -m bench query_groups --quick     one geounit

All age groups and relationship groups cross: 1,160 groups, one matrix of that size for every combination of the other
variables. Each case runs in a process of its own; seconds are of one processor, memory is the largest that the process
had beyond what it had once the problem was described. Targets: 5 s and 1 GB for one geounit, 0.2 s for each further.
"""

from __future__ import annotations

import numpy as np

from bench.measuring import is_quick, peak_bytes, print_apart, timed
from bench.problems import dhc_persons
from blue_solvers import TwoPass, blue, projected_work
from constraint_builders import Problem, Spine
from constraint_builders.files.settings import production_settings

SPINES = {
    "1 geounit": ([-1], ["State"]),
    "1 + 8 geounits": ([-1] + [0] * 8, ["State"] + ["County"] * 8),
    "1 + 2 + 6 alike": ([-1, 0, 0, 1, 1, 1, 2, 2, 2], ["State"] + ["County"] * 2 + ["Prim"] * 6),
    "1 + 2 + 6 not alike": ([-1, 0, 0, 1, 1, 2, 2, 2, 2], ["State"] + ["County"] * 2 + ["Prim"] * 6),
}
DETAILED = "1 geounit, detailed"


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    quick = is_quick(argv, "query_groups", __doc__, "one geounit only")
    cases = list(SPINES)[:1] if quick else [*SPINES, DETAILED]
    print_apart("query_groups", {name: [name] for name in cases})


def problem_of(case: str) -> Problem:
    """The production run's tables at each geolevel."""
    if case == DETAILED:
        return dhc_persons()
    settings = production_settings("dhc_us_persons")
    variances = settings.variances()
    parent, levels = SPINES[case]
    observed = {
        level: {name: own for name, own in variances[level].items() if name != "detailed"}
        for level in dict.fromkeys(levels)
    }
    return Problem(settings.schema, observed, spine=Spine(parent, levels))


def measure(case: str) -> dict[str, float]:
    """Figures of one case, in this process."""
    problem = problem_of(case)
    y = np.random.default_rng(0).standard_normal(problem.observed.size)
    projected = projected_work(problem).seconds
    before = peak_bytes()
    P, plan = timed(lambda: blue(problem, TwoPass()))
    apply, variances = (timed(run)[1] for run in (lambda: P @ y, P.variances))
    return {
        "cells in": y.size,
        "projected s": projected,
        "plan s": plan,
        "apply s": apply,
        "variances s": variances,
        "peak MB": (peak_bytes() - before) / 1e6,
    }
