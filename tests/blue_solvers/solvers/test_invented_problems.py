"""Every solver on invented problems of every feature: values, variances, transpose, functionals, proofs and fits."""

import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from tests.helpers.effort import lengths
from tests.helpers.oracles.compare import Tolerance
from tests.helpers.oracles.description import Description
from tests.helpers.oracles.invent import Kind, all_kinds, some_with
from tests.soak.__main__ import EVERY
from tests.soak.judge import judged
from tests.soak.problems import Posed, RefusedError, by_matrix


class NothingExactError(AssertionError):
    """No solver calls its answer exact."""


DIRECT = {"auto", "areas", "cholesky", "dense", "sea_blue", "two_pass"}
STRUCTURED = ("auto", "areas", "sea_blue", "two_pass")
EQUATIONS = [name for name in EVERY if name not in STRUCTURED]
CLOSE, NEAR = Tolerance(estimate=1e-9, variance=1e-9), Tolerance(estimate=1e-8, variance=1e-8)  # the iterations stop

FLAT = Kind(spine=False, nested=True, turned=True)
TREE = Kind(nested=True, turned=True)
SETS = Kind(areas="sets", nested=True, turned=True)
WEIGHED = Kind(areas="weights")


def in_a_tree(described: Description) -> bool:
    return described.parent is not None


def with_zeros_alone(described: Description) -> bool:
    return bool(described.zeros) and described.equalities is None


def with_both(described: Description) -> bool:
    return bool(described.zeros) and described.equalities is not None


def exact_in_part(described: Description) -> bool:
    """Whether some table is known exactly in some of its cells and measured with noise in others."""
    return any((own.values == 0).any() and (own.values > 0).any() for own in described.observed)


def with_an_empty_place(described: Description) -> bool:
    """Whether all cells of a leaf are known to be empty, and not those of all leaves."""
    empty = described.empty_cells().reshape(described.leaves.size, -1).all(axis=1)
    return bool(empty.any()) and not bool(empty.all())


FEATURES: dict[str, tuple[Kind, Callable[[Description], bool]]] = {
    "tables": (FLAT, lambda own: True),
    "variances of cells": (replace(FLAT, cellwise=True), lambda own: True),
    "over eight decades": (replace(FLAT, cellwise=True, decades=8.0, count=1e6), lambda own: True),
    "exact in part": (replace(FLAT, cellwise=True, decades=2.0), exact_in_part),
    "zeros": (FLAT, with_zeros_alone),
    "equalities": (FLAT, lambda own: own.equalities is not None),
    "correlated": (replace(FLAT, covariance="sparse", decades=2.0), lambda own: True),
    "shared noise": (replace(FLAT, covariance="shared", decades=2.0), lambda own: True),
    "a spine": (TREE, in_a_tree),
    "a spine, variances of cells": (replace(TREE, cellwise=True), in_a_tree),
    "a spine, exact in part": (TREE, lambda own: in_a_tree(own) and exact_in_part(own)),
    "a spine, zeros": (TREE, lambda own: in_a_tree(own) and with_zeros_alone(own)),
    "a spine, zeros and equalities": (TREE, lambda own: in_a_tree(own) and with_both(own)),
    "a spine, zeros and equalities, variances of cells": (
        replace(TREE, cellwise=True, decades=2.0),
        lambda own: in_a_tree(own) and with_both(own),
    ),
    "a spine, correlated": (replace(TREE, covariance="sparse", decades=2.0), in_a_tree),
    "a spine, shared noise": (replace(TREE, covariance="shared", decades=2.0), in_a_tree),
    "areas": (SETS, lambda own: own.equalities is None),
    "areas, an empty one": (SETS, with_an_empty_place),
    "areas, zeros": (WEIGHED, with_zeros_alone),
    "areas, equalities": (WEIGHED, lambda own: own.equalities is not None),
    "areas, zeros and equalities": (WEIGHED, with_both),
    "areas, variances of cells": (replace(WEIGHED, cellwise=True, decades=2.0), lambda own: True),
    "areas, correlated": (replace(WEIGHED, covariance="sparse", decades=2.0), lambda own: True),
    "areas, shared noise": (replace(SETS, covariance="shared", decades=2.0), lambda own: True),
    "areas inside others": (Kind(areas="cut", nested=True), lambda own: True),
}
MATRICES = {  # of which kinds: sums of counts, and equations between them
    "a tree of sums": ("summing", replace(TREE, equalities=False), in_a_tree),
    "sums that cross": ("summing", replace(WEIGHED, equalities=False), lambda own: True),
    "equations": ("equations", FLAT, lambda own: True),
    "correlated equations": ("equations", replace(FLAT, covariance="sparse", decades=2.0), lambda own: True),
}


WEIGHTS = [("floats", "whole"), ("large", "whole"), ("large", "floats"), ("", "floats"), ("", "decades")]
HARD = [
    *all_kinds(),
    *(
        Kind(areas=areas, coefficients=coefficients, cellwise=cellwise, decades=decades)
        for (areas, coefficients), cellwise, decades in product(WEIGHTS, (False, True), (2.0, 12.0))
    ),
]


def tolerance_of(kind: Kind) -> Tolerance:
    """To 1e-8 standard errors, but where twelve decades meet correlation, counts of a million or uneven weights."""
    hard = kind.decades > 6 and kind.count > 1e3 and kind.covariance
    uneven = kind.covariance or kind.areas or kind.coefficients != "whole"
    return Tolerance(estimate=1e-6 if hard else 1e-7 if uneven else 1e-8)


def require_right(
    posed: Posed, close: Tolerance = CLOSE, near: Tolerance = NEAR, names: Collection[str] = tuple(EVERY)
) -> None:
    """No solver is wrong in anything, and some solver calls its answer exact."""
    proved = {"auto", list(names)[posed.problem.observed.size % len(names)]}  # a proof takes as long as all else
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcomes = {
            name: judged(posed, EVERY[name], name == "auto", close if name in DIRECT else near, name in proved)
            for name in names
        }
    wrong = {name: outcome.wrong for name, outcome in outcomes.items() if outcome.wrong}
    assert not wrong, wrong
    if not any(outcome.exact for outcome in outcomes.values()):
        raise NothingExactError(outcomes)


@pytest.mark.parametrize("feature", FEATURES)
@lengths("number", 1, 12)
def test_every_solver_on_every_feature(number: int, feature: str) -> None:
    """By default two of the solvers on the constraint matrix take turns."""
    turn = list(FEATURES).index(feature)
    names = (*STRUCTURED, EQUATIONS[turn % 5], EQUATIONS[(turn + 2) % 5]) if number == 1 else EVERY
    for seed in range(number):
        found = some_with(1_000 * seed, *FEATURES[feature])
        require_right(Posed("tables", found.description.problem(), found), names=names)


@pytest.mark.parametrize("feature", MATRICES)
@lengths("number", 2, 12)
def test_every_solver_on_matrices(number: int, feature: str) -> None:
    how, kind, wanted = MATRICES[feature]
    tried = 0
    for seed in range(200):
        found = some_with(50 * seed, kind, wanted)
        with suppress(RefusedError):
            for posed in by_matrix(found, how):
                require_right(posed)
                tried += 1
        if tried == number:
            return
    pytest.fail("few inventions are matrices")


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", HARD, ids=str)
@lengths("number", 2, 12)
def test_every_solver_over_decades_and_weights(number: int, kind: Kind) -> None:
    """Right, or refused by name, or not called exact; mostly the first."""
    exact = 0
    for seed in range(number):
        found = some_with(200 + seed, kind)
        try:
            require_right(Posed("tables", found.description.problem(), found), *[tolerance_of(kind)] * 2)
        except NothingExactError:
            continue
        exact += 1
    assert exact >= int(0.75 * number)
