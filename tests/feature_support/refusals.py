"""Feature support: for every part and feature, supported or refused by name; checked pair by pair."""

from functools import cache

from blue_solvers import SOLVERS, Solver
from blue_solvers.contract import Refusal, plain_problem
from tests.feature_support import kept_by_rooms
from tests.feature_support.instances import FEATURES
from tests.feature_support.parts import PARTS, part_of

NO_SPINE = [feature for feature in FEATURES if "spine" not in feature]
SPINE = [feature for feature in FEATURES if "spine" in feature]
AREAS = [feature for feature in FEATURES if feature.startswith("areas")]
SUMS = ["a tree of sums", "crossed sums"]
EQUATIONS = ["equations A x = b", *SUMS]
CORRELATED = [feature for feature in FEATURES if "correlated" in feature]
OPERATOR = ["correlated noise, an operator"]
UNEVEN_CELLS = ["a variance for every cell", "cells known exactly", "cells not measured"]
KNOWN_SUMS = [f for f in NO_SPINE if f == "structural zeros" or f.startswith("equalities")]
FIT = "a non-negative fit needs uncorrelated noise"
DRAWN = "cannot be drawn from an operator"
PLAIN_ONLY = "needs tables of one schema, without a spine, whose noise is uncorrelated and of equal variance"
WHOLE = "holds whole tables"
ONE = "needs tables with one variance each"
PARTITION = {"is no partition of the cells": ["areas with weights"]}

Refusals = dict[str, list[str]]

# For every part but solvers, which say it themselves, the features that it refuses; all others it supports.
REFUSED: dict[str, Refusals] = {part: {} for part in PARTS} | {
    'intervals(method="t")': {DRAWN: OPERATOR},
    'intervals(method="distribution_free")': {DRAWN: OPERATOR},
    "confidence_ellipsoid(draws=...)": {DRAWN: OPERATOR},
    "distribution_free_band": {DRAWN: OPERATOR},
    "distribution_free_ellipsoid": {DRAWN: OPERATOR},
    "Replicates": {DRAWN: OPERATOR},
    "add_noise, draw_noise": {DRAWN: OPERATOR},
    'variances(method="closed_form")': {
        PLAIN_ONLY: [*UNEVEN_CELLS, *SPINE, *AREAS, *[f for f in CORRELATED if f not in SPINE], *EQUATIONS],
        "knows nothing of structural zeros": ["structural zeros"],
        "knows nothing of equalities": [f for f in KNOWN_SUMS if f.startswith("equalities")],
    },
    'variances(method="selected_inversion")': {
        "selected inversion needs the entries of the covariance": [
            f for f in CORRELATED if "operator" in f or "low-rank" in f
        ]
    },
    **{
        part: {FIT: CORRELATED}
        for part in ("ols", "nnls", "max_fit", "anchored_fit", "movements", "counts_posterior", "inverted_intervals")
    },
    "sequential_fit": {
        FIT: CORRELATED,
        WHOLE: [
            "cells known exactly",
            "cells not measured",
            "a spine with exact totals",
            "a spine with a table not measured",
        ],
        "holds tables, not equations": [f for f in FEATURES if "equalities" in f or f.startswith("equations")],
        "does not cover all detailed cells": ["an uneven spine"],
        "is no partition of the cells": ["areas with weights", *SUMS],
    },
    "reweighted_fit": {
        FIT: CORRELATED,
        ONE: [
            *UNEVEN_CELLS,
            "a spine, a variance for every cell",
            "a spine, a variance for every geounit",
            "a spine with a table not measured",
            "a spine with exact totals",
            "areas that nest",
            *EQUATIONS,
        ],
        "does not cover all detailed cells": ["an uneven spine"],
        **PARTITION,
    },
    "coverage": {FIT: [f for f in CORRELATED if f not in OPERATOR], DRAWN: OPERATOR},
    "controlled_rounding": {
        "keeps tables, not equalities": [f for f in KNOWN_SUMS if f.startswith("equalities")],
        "are of one geounit: this problem has a spine": SPINE,
        "are of one geounit: this problem has areas": AREAS,
        "has no schema": EQUATIONS,
    },
    **{
        part: {
            "are of one geounit: this problem has a spine": SPINE,
            "are of one geounit: this problem has areas": AREAS,
            "has no schema": EQUATIONS,
        }
        for part in ("weighted_rows", "unit_records")
    },
    "conflicts": {
        "a problem made from a matrix has none": EQUATIONS,
        "does not cover all detailed cells": ["an uneven spine"],
        **PARTITION,
    },
    **{
        part: {
            "only a problem on a spine, or of areas, can be cut into parts": [f for f in NO_SPINE if f not in AREAS],
            "cut at a layer that holds it": ["areas that cross"],
            "whose areas do not hold every leaf once": ["areas with weights"],
            "it has structural zeros, over areas": ["areas that cross, with zeros and equalities"],
            "variances differ within a table": ["a spine, a variance for every cell"],
            "its noise is correlated": ["a spine with correlated noise", "a spine with low-rank correlated noise"],
        }
        for part in ("streaming", "cluster")
    },
    "spine reports": {
        "entities need a problem with a spine": NO_SPINE,
        "workload variances need uncorrelated noise": [f for f in SPINE if f in CORRELATED],
    },
}
REFUSED["cluster"]["equalities are for `streaming.stream`"] = ["a spine with equalities"]


def refused_by(solver: Solver) -> Refusals:
    """The features that a solver says it does not take, or not exactly, by its reasons."""
    found: Refusals = {}
    for feature, make in FEATURES.items():
        problem = make().problem
        reason = solver.supports(problem) or solver.why_inexact(plain_problem(problem))
        if reason is not None:
            found.setdefault(reason.reason if isinstance(reason, Refusal) else reason, []).append(feature)
    return found


@cache
def refused() -> dict[str, Refusals]:
    """Of every part."""
    return REFUSED | {part_of(name): refused_by(solver()) for name, solver in SOLVERS.items()}


def refusal(part: str, feature: str) -> str | None:
    """What the refusal of a pair says; None where it is supported."""
    said = [message for message, features in refused()[part].items() if feature in features]
    assert len(said) <= 1, (part, feature, said)
    return said[0] if said else None


def as_markdown() -> str:
    """The table as a page: the features, the functions that support all of them, and what the others raise."""
    numbers = {feature: i for i, feature in enumerate(FEATURES, start=1)}
    alike: dict[str, list[str]] = {}
    for part in PARTS:
        said = [
            f'"{message}" ({_ranges([numbers[feature] for feature in FEATURES if feature in features])})'
            for message, features in refused()[part].items()
        ]
        alike.setdefault("; ".join(said), []).append(part)
    everything = ", ".join(f"`{part}`" for part in alike.pop("", []))
    lines = [
        "# Feature support",
        "",
        "A problem can have many features besides tables of equal variance. Every function either supports a",
        "feature or raises an error that names it; no input is ignored silently. The tests in `tests/feature_support`",
        "check every pair: where a feature is supported, the result is compared with dense algebra written out",
        "from the problem's description; elsewhere a `ValueError` with the text below is required. This page is",
        "generated from those tests. Which features can be streamed, run on a cluster and stored is in",
        "[scaling](scaling.md#supported-problems).",
        "",
        "## Features",
        "",
        *(f"{number}. {feature}" for feature, number in numbers.items()),
        "",
        "## Functions that support every feature",
        "",
        everything,
        "",
        "## Functions that raise an error for some features",
        "",
        "Part of the message, and the numbers of the features that it is raised for; all other features are supported.",
        "",
        *(f"- {', '.join(f'`{part}`' for part in parts)}: {said}" for said, parts in alike.items()),
    ]
    return "\n".join(lines) + "\n" + kept_by_rooms.as_markdown()


def _ranges(numbers: list[int]) -> str:
    """Increasing numbers, three or more in a row as the first and the last: 1 to 3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
