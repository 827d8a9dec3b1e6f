"""What the mechanisms promise, against losses computed on enumerated laws."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.compiled import has_numba
from noise_mechanisms.integer_subspace import (
    GeneralizedGaussian,
    GeneralizedLaplace,
    Guarantee,
    Invariants,
    Lattice,
    gaussian_sigma,
    stopping_delta,
)
from noise_mechanisms.integer_subspace.guarantee import Norm
from tests.helpers.every import cases, every
from tests.helpers.refused import refused
from tests.noise_mechanisms.integer_subspace.enumeration import (
    INTERSECTING,
    TWO_BY_THREE,
    enumerate_law,
    gaussian_cost,
    l1_cost,
    l2_cost,
    margins,
)


def shifted_costs(invariants: Invariants, shift: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the outputs of two tables that differ by a lattice point, on the same list of outputs."""
    points, first = enumerate_law(Lattice(invariants), gaussian_cost(sigma), 40)
    second = np.exp(-gaussian_cost(sigma)(points + shift))
    return first, second * first.max() / np.exp(-gaussian_cost(sigma)(points)).max()


@every("sigma", [0.4, 0.8, 2.0])
@every("invariants", [TWO_BY_THREE, margins((3,), "total")])
def test_gaussian_renyi_divergence_is_alpha_rho(invariants: Invariants, sigma: float) -> None:
    for shift in (Lattice(invariants).basis.toarray() @ np.array([[1, 0], [1, 1], [2, -1]]).T).T:
        first, second = shifted_costs(invariants, shift, sigma)
        rho = GeneralizedGaussian(invariants, sigma).guarantee.loss_at(float(np.linalg.norm(shift)))
        for alpha in (1.3, 2.0, 2.5, 3.0):
            seen = (first > 0) & (second > 0)
            terms = alpha * np.log(first[seen]) + (1 - alpha) * np.log(second[seen])
            divergence = np.logaddexp.reduce(terms) / (alpha - 1)
            # The window of outputs leaves out less than 1e-12.
            assert divergence <= alpha * rho + 1e-9
            if alpha == int(alpha):
                assert divergence == pytest.approx(alpha * rho, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-2), (1.0, 1e-3)])
def test_gaussian_sigma_keeps_the_smooth_definition(epsilon: float, delta: float) -> None:
    invariants, sigma = margins((3,), "total"), gaussian_sigma(epsilon, delta)
    points = Lattice(invariants).basis.toarray() @ np.mgrid[-90:91, -90:91].reshape(2, -1)
    probability = np.exp(-np.square(points).sum(axis=0) / (2 * sigma**2))
    probability /= probability.sum()
    for shift in (Lattice(invariants).basis.toarray() @ np.array([[1, 0], [3, -1], [4, 6]]).T).T:
        distance = float(np.linalg.norm(shift))
        log_loss = (2 * shift @ points + shift @ shift) / (2 * sigma**2)
        excess = np.maximum(0, probability * -np.expm1(epsilon * distance - log_loss)).sum()
        assert excess <= delta * math.expm1(epsilon * distance) / math.expm1(epsilon)


def test_gaussian_sigma_inverts_the_approximate_form() -> None:
    mechanism = GeneralizedGaussian.from_approximate(TWO_BY_THREE, epsilon=0.7, delta=1e-5)
    promise = mechanism.guarantee.approximate(1e-5)
    assert promise.loss == pytest.approx(0.7, rel=1e-12)
    assert promise.delta == 1e-5
    assert (promise.measure, promise.norm) == ("pure", 2)


@every("norm", [1, 2])
@every("invariants", [TWO_BY_THREE, INTERSECTING])
def test_laplace_loss_is_epsilon_times_the_distance(invariants: Invariants, norm: Norm) -> None:
    mechanism = GeneralizedLaplace(invariants, 0.5, norm)
    cost = l1_cost(0.5) if norm == 1 else l2_cost(0.5)
    basis = Lattice(invariants).basis.toarray()
    points = np.random.default_rng(0).integers(-30, 30, (2000, basis.shape[1])) @ basis.T
    for shift in basis.T:
        loss = abs(cost(points + shift) - cost(points)).max()
        promised = mechanism.guarantee.loss_at(float(np.linalg.norm(shift, norm)))
        assert loss <= promised + 1e-12
    assert mechanism.guarantee.smallest_loss <= promised


def test_composition_holds_on_the_intersection_of_the_equivalences() -> None:
    rows = GeneralizedLaplace(margins((2, 3), "a"), 0.5).guarantee
    columns = GeneralizedLaplace(margins((2, 3), "b"), 0.25).guarantee
    joint = rows.compose(columns)
    assert joint.loss == Fraction(3, 4)
    assert joint.measure == "pure"
    assert joint.invariants.equivalent([1, 0, 2, 0, 3, 0], [0, 1, 2, 1, 2, 0])
    assert not joint.invariants.equivalent([1, 0, 2, 0, 3, 0], [0, 1, 2, 0, 3, 0])
    assert rows.smallest_loss == 1.0
    assert joint.smallest_loss == 3.0


def test_composition_of_pure_and_concentrated_promises() -> None:
    laplace = GeneralizedLaplace(TWO_BY_THREE, 0.5, norm=1).guarantee
    gaussian = GeneralizedGaussian(TWO_BY_THREE, 2.0).guarantee
    both = laplace.compose(gaussian)
    assert (both.measure, both.norm, both.loss) == ("zcdp", 1, Fraction(1, 8) + Fraction(1, 8))
    twice = gaussian.compose(gaussian)
    assert (twice.measure, twice.norm, twice.loss) == ("zcdp", 2, Fraction(1, 4))
    stopped = Guarantee(TWO_BY_THREE, "pure", 0.5, 1, delta=1e-6)
    assert stopped.compose(stopped).delta == 2e-6
    with pytest.raises(ValueError, match="delta > 0 does not compose"):
        stopped.compose(gaussian)


def test_the_promise_states_its_caution() -> None:
    text = str(GeneralizedLaplace(margins((4, 4), "a", "b"), 0.25).guarantee)
    assert "distance 4 or more" in text
    assert "smallest loss that matters is 1" in text


@given(st.floats(0.01, 5), st.floats(0, 1))
def test_stopping_delta_covers_every_event(epsilon: float, eta: float) -> None:
    assert stopping_delta(epsilon, eta) == min(1.0, (1 + math.exp(epsilon)) * eta)


@cases(
    (margins((5, 6), "total"), 1, "blocks"),
    (margins((4, 4), "a", "b"), 1, "rows"),
    (margins((2, 9), "a", "b"), 1, "rows"),
    (INTERSECTING, 1, "free_cells"),
    (Invariants.from_subsets([range(40), range(30, 60)], 60), 1, "heat_bath"),
    (margins((9, 24), "a", "b"), 1, "heat_bath"),
    (margins((9, 24), "a", "b"), 2, "l2_ladder"),
    (margins((2, 2), "detailed"), 1, "blocks"),
)
def test_the_automatic_sampler_and_its_reason(invariants: Invariants, norm: Norm, sampler: str) -> None:
    choice = GeneralizedLaplace(invariants, 0.25, norm).automatic
    assert choice.sampler.name == sampler
    assert choice.sampler.exact == ("not exact" not in choice.reason)
    assert choice.sampler.exact or choice.reason.endswith("compiled") == has_numba()
    if sampler in ("rows", "free_cells"):
        assert f" {1 / choice.sampler.acceptance:,.3g} tries for one draw" in choice.reason


@every("sampler", ["auto", "rows", "free_cells", "heat_bath", "jumps"])
def test_simulations_come_without_a_guarantee(sampler: str) -> None:
    """Seeded noise in floating point promises nothing, however exact its sampler."""
    mechanism = GeneralizedLaplace(TWO_BY_THREE, 0.5)
    drawn, chosen = mechanism.add_noise(np.arange(6), rng=2, sampler=sampler), mechanism.choose(sampler)
    assert (drawn.sampler, drawn.reason) == (chosen.sampler.name, chosen.reason)
    assert sampler in ("auto", drawn.sampler)
    np.testing.assert_array_equal(drawn.table - np.arange(6), chosen.sampler.sample(1, 2)[0])
    assert drawn.guarantee is None
    assert drawn.grade == "simulation"
    assert str(drawn).startswith("simulation only, not to be published")


def test_every_mechanism_keeps_its_promise_for_releases() -> None:
    pytest.importorskip("opendp", reason="release-grade draws need OpenDP (extra 'release')")
    for mechanism in (GeneralizedLaplace(TWO_BY_THREE, 0.5), GeneralizedGaussian(TWO_BY_THREE, 2.0)):
        assert mechanism.add_noise(np.arange(6), rng=1).guarantee is None
        released = mechanism.release(np.arange(6))
        assert released.sampler == mechanism.automatic.sampler.name
        assert released.guarantee == mechanism.guarantee
        assert released.table.dtype == np.int64
        assert TWO_BY_THREE.equivalent(released.table, np.arange(6))
        assert (released.grade, "exact" in released.reason) == ("release", True)
        assert str(released).startswith("release: ")
    laplace = GeneralizedLaplace(TWO_BY_THREE, 0.5)
    assert laplace.release(np.arange(6), "free_cells").sampler == "free_cells" != laplace.automatic.sampler.name


@refused(
    (lambda: GeneralizedLaplace(TWO_BY_THREE, 0.0), "epsilon is 0.0"),
    (lambda: GeneralizedLaplace(TWO_BY_THREE, 1.0, norm=3), "norm is 3"),  # type: ignore[arg-type]
    (lambda: GeneralizedGaussian(TWO_BY_THREE, -1.0), "sigma is -1.0"),
    (lambda: GeneralizedLaplace(TWO_BY_THREE, 1.0).choose("gibbs"), "'gibbs' is unknown"),
    (lambda: GeneralizedLaplace(TWO_BY_THREE, 1.0).choose("klein_mixture"), "under the L2 norm"),
    (lambda: GeneralizedGaussian(TWO_BY_THREE, 1.0).choose("rows"), "'rows' does not draw Gaussian"),
    (lambda: GeneralizedLaplace(TWO_BY_THREE, 1.0).add_noise([1, 2]), "must hold 6 records"),
    (lambda: GeneralizedLaplace(TWO_BY_THREE, 1.0).add_noise(np.zeros((6, 2))), "vector of 6 records"),
    (lambda: gaussian_sigma(0.0, 0.1), "epsilon is 0"),
    (lambda: gaussian_sigma(1.0, 1.0), "delta is 1.0"),
    (lambda: GeneralizedLaplace(TWO_BY_THREE, 1.0).guarantee.approximate(0.1), "pure already"),
)
def test_bad_arguments_of_mechanisms_are_refused(act: object) -> None:
    act()  # type: ignore[operator]
