"""The fit of a spine by pieces of tables, against all cells at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from blue_solvers.verification import FitOfParts, fit_of_geography, fit_of_parts
from blue_solvers.verification.fit_of_parts import Residual, TableFit
from blue_solvers.verification.goodness_of_fit import LEAST_CHECKED
from constraint_builders import Problem, Schema, Spine
from tests.helpers.spines import consistent_measurements, spine_problems


@given(spine_problems(), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_pieces_of_tables_add_up_to_all_cells(problem: Problem, seed: int, piece: int) -> None:
    rng = np.random.default_rng(seed)
    exact = consistent_measurements(problem, seed)
    noise = np.where(
        problem.unmeasured | problem.exact, 0.0, np.sqrt(np.where(problem.unmeasured, 0, problem.variances))
    )
    y = np.where(problem.unmeasured, 0.0, exact) + noise * rng.standard_normal(exact.size)
    P = blue(problem.observing())
    x, spread = P @ y, P.variances()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_of_parts, "PIECE", piece)
        found = fit_of_geography(problem, y, x, P.variances_by_table().of)
    noisy = noise > 0
    weight = np.divide(1.0, problem.variances, out=np.zeros_like(y), where=noisy)
    redundancy = np.where(noisy, np.clip(1 - spread * weight, 0, 1), 0.0)
    squares = np.where(noisy, (y - x) ** 2 * weight, 0.0)
    checked = redundancy > LEAST_CHECKED
    assert found.statistic == pytest.approx(squares.sum(), rel=1e-9, abs=1e-12)
    assert found.degrees_of_freedom == round(float(redundancy.sum()))
    assert sum(own.checked for own in found.tables.values()) == checked.sum()
    assert sum(own.noisy for own in found.tables.values()) == noisy.sum()
    assert sum(own for own, _ in found.unchecked.values()) == (noisy & ~checked).sum()
    sizes = np.sort(np.sqrt(squares[checked] / redundancy[checked]))[::-1][: fit_of_parts.KEPT]
    np.testing.assert_allclose([abs(own.residual) for own in found.largest], sizes, rtol=1e-9, atol=1e-12)
    for own in found.largest:
        table = problem.observed.slice((own.geolevel, own.table))
        row = int(problem.spine.rank_in_level[problem.spine.position(own.geolevel, own.geocode)])
        size = next(t.size for t in problem.observed_tables if t.name == own.table)
        position = table.start + row * size + own.cell
        assert own.value == y[position]
        assert abs(own.residual) == pytest.approx(np.sqrt(squares[position] / redundancy[position]))
        assert np.sign(own.residual) == np.sign(y[position] - x[position])


def test_many_small_tables_of_right_noise_fit() -> None:
    """The squares of few residuals have longer tails than the normal law."""
    rng, share, wrong = np.random.default_rng(0), 0.8, 0
    for _ in range(1_000):
        tables = {("US", str(i)): TableFit(share * rng.chisquare(1), share, 1, 1) for i in range(100)}
        wrong += not FitOfParts(tables).fits
    assert wrong <= 3  # one in ten thousand, twice
    assert not FitOfParts({("US", str(i)): TableFit(40.0 if i == 7 else 0.8, share, 1, 1) for i in range(100)}).fits


@pytest.mark.parametrize("variance", [1.0, 25.0])
def test_whole_noise_that_happens_to_cancel_fits(variance: float) -> None:
    """A total that is the sum of its parts, as a tenth of right data say it; many cells that leave nothing do not."""
    spine = Spine([-1, 0, 0, 0], ["State", "County", "County", "County"])
    tables = {level: {"total": variance} for level in spine.levels}
    problem = Problem(Schema({"a": 1}), tables, spine=spine, noise="discrete_gaussian")
    P, y = blue(problem), np.array([60.0, 10.0, 20.0, 30.0])
    found = fit_of_geography(problem, y, P @ y, P.variances_by_table().of)
    assert found.statistic < 1e-20
    assert found.fits
    assert not (found + FitOfParts({("County", "total"): TableFit(60.0 * 0.2, 60.0, 60, 60)})).fits
    assert not FitOfParts({("US", "total"): TableFit(0.0, 30.0, 30, 30)}).fits


def test_residuals_of_nought_are_as_likely_as_any() -> None:
    fit = FitOfParts({("US", "total"): TableFit(0.0, 1.0, 1, 1)}, [Residual("US", "", "total", 0, 9.0, 9.0, 0.0)])
    assert fit.probability == 1
    assert FitOfParts.from_json(fit.to_json()) == fit


def test_parts_have_the_face_of_a_whole_fit() -> None:
    """The property was a method, which for one release still answers."""
    fit = FitOfParts({("US", "total"): TableFit(2.0, 1.0, 1, 1), ("US", "sex"): TableFit(3.0, 2.0, 2, 2)})
    assert fit.by_table["US", "sex"].expectation == 2
    assert fit.by_geolevel == {"US": TableFit(5.0, 3.0, 3, 3)}
    with pytest.warns(DeprecationWarning, match="property"):
        assert fit.by_geolevel() == fit.by_geolevel
