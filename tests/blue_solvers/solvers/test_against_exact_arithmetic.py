"""Every solver against 600-bit arithmetic on problems that seeds invent, in every mixture and up to twelve decades."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest

from blue_solvers import SOLVERS, Solver
from tests.helpers.effort import lengths
from tests.helpers.oracles.compare import Tolerance, differences
from tests.helpers.oracles.invent import Kind, all_kinds, invent

DIRECT = {name: SOLVERS[name] for name in ("two_pass", "sea_blue", "cholesky", "dense", "auto")}
ITERATIVE = {name: SOLVERS[name] for name in ("cg", "multigrid")}
WEIGHTS = [("floats", "whole"), ("large", "whole"), ("large", "floats"), ("", "floats"), ("", "decades")]
MOST_REFUSED = 0.25  # of the problems, by all solvers


def trial(kind: Kind, seeds: range, solvers: dict[str, type[Solver]], tolerance: Tolerance) -> None:
    """No solver is wrong on what it takes, and few problems are refused by all, or not called exact."""
    wrong, taken, invented = [], 0, 0
    for seed in seeds:
        found = invent(seed, kind)
        if found is None:
            continue
        invented += 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                said = {name: differences(found, solver(), tolerance) for name, solver in solvers.items()}
            except ValueError as error:
                if "not estimable" not in str(error):
                    raise
                continue
        taken += any(own is not None for own in said.values())
        wrong += [(seed, name, own) for name, own in said.items() if own]
    assert not wrong
    assert taken >= (1 - MOST_REFUSED) * invented > 0


def tolerance_of(kind: Kind) -> Tolerance:
    """Of direct solvers: to 1e-8 standard errors, but where twelve decades meet correlation and counts of a million."""
    hard = kind.decades > 6 and kind.count > 1e3 and kind.covariance
    return Tolerance(estimate=1e-6) if hard else Tolerance(estimate=1e-7) if kind.covariance else Tolerance()


@pytest.mark.few(1)
@lengths("number", 5, 12)
@pytest.mark.parametrize("kind", all_kinds(), ids=str)
def test_direct_solvers(kind: Kind, number: int) -> None:
    trial(kind, range(number), DIRECT, tolerance_of(kind))


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [kind for kind in all_kinds() if kind.decades <= 6 and kind.count < 1e3], ids=str)
@lengths("number", 5, 12)
def test_iterations(kind: Kind, number: int) -> None:
    trial(kind, range(number), ITERATIVE, Tolerance())


@pytest.mark.few(1)
@lengths("number", 4, 12)
@pytest.mark.parametrize("decades", [2.0, 12.0])
@pytest.mark.parametrize("cellwise", [False, True])
@pytest.mark.parametrize(("areas", "coefficients"), WEIGHTS)
def test_weights_of_any_size(areas: str, coefficients: str, cellwise: bool, decades: float, number: int) -> None:
    """Right, or refused by name, or not called exact, as where weights go to 123,456."""
    kind = Kind(areas=areas, coefficients=coefficients, cellwise=cellwise, decades=decades)
    solvers = DIRECT | ITERATIVE | {"areas": SOLVERS["areas"]}
    trial(kind, range(200, 200 + number), solvers, Tolerance(estimate=1e-7))


@pytest.mark.few(1)
@lengths("number", 16, 40)
@pytest.mark.parametrize("decades", [2.0, 6.0, 8.0, 12.0])
def test_plain_tables_and_recodes_at_large_counts(decades: float, number: int) -> None:
    kind = Kind(decades=decades, count=1e6, equalities=False)
    trial(kind, range(100, 100 + number), {name: DIRECT[name] for name in ("two_pass", "sea_blue")}, Tolerance())


@pytest.mark.slow
@pytest.mark.parametrize("kind", all_kinds(), ids=str)
def test_direct_solvers_at_length(kind: Kind) -> None:
    trial(kind, range(1_000, 1_250), DIRECT, replace(tolerance_of(kind), estimate=1e-5 if kind.decades > 6 else 1e-7))
