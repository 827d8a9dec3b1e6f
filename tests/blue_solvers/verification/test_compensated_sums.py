"""Sums that certificates rest on, against exact fractions: no further off than what is charged for their rounding."""

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest

from blue_solvers.verification import moved_residuals, reaches
from blue_solvers.verification.by_sums import ProblemToProve, certify_by_sums
from blue_solvers.verification.certificate_sums import judge
from blue_solvers.verification.compensated_sums import sum_rounding, walk
from blue_solvers.verification.reaches import NO_MAP, Reach, add, spread
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders.compiled import has_numba
from tests.helpers.oracles.invent import Kind, invent


def invented(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of thirty decades in two doubles, most of which cancel."""
    high = rng.standard_normal(shape) * 10.0 ** rng.uniform(-15, 15, shape)
    high[: shape[0] // 2] = -high[shape[0] - shape[0] // 2 :][::-1]
    return np.stack([high, high * rng.uniform(-1, 1, shape) * 2.0**-54])


def fractions_of(cells: np.ndarray) -> list[Fraction]:
    """The cells that two doubles stand for."""
    return [Fraction(high) + Fraction(low) for high, low in zip(*cells.reshape(2, -1).tolist(), strict=True)]


@pytest.mark.parametrize("by", ["loops", "numpy"])
def test_what_sums_lose_is_at_most_what_is_charged_and_never_nothing(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, lost = np.random.default_rng(1), []
    if by == "numpy":
        monkeypatch.setattr(reaches, "walk", walk.reference)
    elif not has_numba():
        pytest.skip("needs the extra 'fast'")
    for rows, width, areas in ((2, 1, 1), (30, 3, 2), (300, 4, 1), (500, 1, 3)):
        area, cells = rng.integers(-(rows == 300), areas, rows), invented(rng, rows, width)  # -1 is none
        reach = Reach.of_sets(area, NO_MAP)
        total, said = np.zeros((2, areas, width)), cells.copy()
        add(cells, reach, total)
        spread(total, reach, said)
        exact, given = fractions_of(cells), fractions_of(total)
        for a in range(areas):
            for cell in range(width):
                own = [exact[row * width + cell] for row in np.flatnonzero(area == a)]
                off = abs(given[a * width + cell] - sum(own))
                assert off <= Fraction(sum_rounding(rows, width)) * sum(map(abs, own)), (rows, width, a, cell)
                lost.append(off)
        for place, found in enumerate(fractions_of(said)):
            above = area[place // width] * width + place % width
            own = [exact[place], given[above] if above >= 0 else Fraction(0)]
            off = abs(found - sum(own))
            assert off <= Fraction(sum_rounding(2, 1)) * sum(map(abs, own)), (rows, width, place)
            lost.append(off)
    assert any(lost)
    assert sum_rounding(2, 1) < 2.0**-89  # few rows are not charged as many


def test_loops_of_proofs_are_given_arrays_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each type is compiled for itself, which takes half a second."""
    given: dict[str, set] = {}

    def watched(name: str, loop: Callable) -> Callable:
        def call(*arguments: object) -> None:
            flat = [part for own in arguments for part in (own if isinstance(own, tuple) else (own,))]
            arrays = [own for own in flat if isinstance(own, np.ndarray)]
            types = tuple((own.dtype, own.ndim, own.flags.c_contiguous, own.flags.writeable) for own in arrays)
            given.setdefault(name, set()).add(types)
            loop(*arguments)

        return call

    monkeypatch.setattr(reaches, "walk", watched("walk", walk))
    monkeypatch.setattr(moved_residuals, "judge", watched("judge", judge))
    for kind in (Kind(), Kind(areas="sets")):
        for seed in range(40):
            found = invent(seed, kind)
            with suppress(ValueError, NotCertifiedError):
                if found is not None:
                    problem = found.description.problem().observing()
                    measured = np.where(problem.unmeasured, 0.0, found.y)
                    certify_by_sums(ProblemToProve(problem), measured, measured)
    assert {name: len(types) for name, types in given.items()} == {"walk": 1, "judge": 1}
