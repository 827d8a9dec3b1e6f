"""The Markov chains: their laws, their compiled loops against numpy, and the evidence for convergence."""

import math
from itertools import pairwise

import numpy as np
import pytest

from constraint_builders import compiled
from constraint_builders.compiled import has_numba
from noise_mechanisms.integer_subspace import (
    ChainSampler,
    CouplingWarning,
    GeneralizedLaplace,
    HeatBathKernel,
    Invariants,
    JumpKernel,
    Lattice,
    MeetingTimes,
    dispersed_starts,
    heat_bath,
    jumps,
    meeting_times,
    potential_scale_reduction,
)
from noise_mechanisms.integer_subspace.chains import Kernel
from noise_mechanisms.integer_subspace.guarantee import Norm
from noise_mechanisms.integer_subspace.heat_bath import draw_steps, kinks
from noise_mechanisms.integer_subspace.jumps import own_norm
from tests.helpers.effort import lengths
from tests.helpers.every import cases
from tests.helpers.refused import refuses
from tests.noise_mechanisms.integer_subspace.enumeration import (
    FALSE_ALARM,
    INTERSECTING,
    LARGE_STEPS,
    enumerate_law,
    l1_cost,
    l2_cost,
    margins,
    p_value,
)

FOUR_BY_FOUR = Lattice(margins((4, 4), "a", "b"))
THREE_WAY = Lattice(margins((3, 4, 2), "a * b", "c"))
LATTICES = {
    "two-way": FOUR_BY_FOUR,
    "intersecting": Lattice(INTERSECTING),
    "large steps": Lattice(LARGE_STEPS),
    "three-way": THREE_WAY,
}


def advanced(kernel: Kernel, chains: int, iterations: int, seed: int) -> np.ndarray:
    states = np.zeros((chains, kernel.lattice.records), dtype=np.int64)
    kernel.advance(states, iterations, np.random.default_rng(seed))
    return states


def test_lengths_whose_squares_leave_64_bits() -> None:
    assert own_norm(np.array([2**32, -(2**32)]), 2) == pytest.approx(2**32.5)


@cases(
    ([3, -2, 7, 0], [1, -1, -1, 1], 0.25),
    ([0, 0, 0, 0], [1, -1, -1, 1], 1.5),
    ([5, 5, -9], [1, 1, -1], 0.4),
    ([10], [1], 0.3),
    ([4, -7, 3, 2], [3, -4, 1, -2], 0.15),
    ([4, -7, 0, 0], [3, -4, 0, 0], 0.15),
)
def test_one_redraw_follows_the_enumerated_law(values: list[int], steps: list[int], epsilon: float) -> None:
    unit = set(map(abs, steps)) == {1}
    z, a = np.tile(values, (100_000, 1)), np.tile(steps, (100_000, 1))
    drawn = draw_steps(*kinks(z, a, unit), epsilon, np.random.default_rng(1).random(100_000))
    t = np.arange(-400, 401)
    weight = np.exp(-epsilon * abs(np.array(values) + t[:, None] * np.array(steps)).sum(axis=1))
    assert p_value(drawn[:, None], t[:, None], weight / weight.sum()) > FALSE_ALARM


def test_redraws_increase_with_the_uniform_number() -> None:
    uniform = np.linspace(0, 1, 5001)[:-1]
    z, a = np.tile([3, -2, 7, 0], (5000, 1)), np.tile([1, -1, -1, 1], (5000, 1))
    assert (np.diff(draw_steps(*kinks(z, a, True), 0.25, uniform)) >= 0).all()


def test_kinks_restore_the_absolute_values() -> None:
    rng = np.random.default_rng(2)
    z, a = rng.integers(-20, 20, (50, 5)), rng.integers(-4, 5, (50, 5))
    places, weights = kinks(z, a, False)
    for t in range(-30, 31):
        direct = abs(z + a * t).sum(axis=1) - abs(z).sum(axis=1)
        assert np.array_equal(direct, (weights * (abs(t - places) - abs(places))).sum(axis=1))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["two-way", "intersecting", "large steps"])
def test_heat_bath_converges_to_the_enumerated_law(name: str) -> None:
    lattice = Lattice(margins((3, 3), "a", "b")) if name == "two-way" else LATTICES[name]
    epsilon, reach = {"two-way": (0.6, 10), "intersecting": (0.6, 22), "large steps": (0.05, 60)}[name]
    draws = ChainSampler(HeatBathKernel(lattice, epsilon)).sample(8_000, rng=3)
    assert not (lattice.invariants.matrix @ draws.T).any()
    assert p_value(draws, *enumerate_law(lattice, l1_cost(epsilon), reach)) > FALSE_ALARM


@pytest.mark.few(1)
@pytest.mark.parametrize("norm", [1, 2])
def test_jumps_converge_to_the_enumerated_law(norm: Norm) -> None:
    lattice = LATTICES["intersecting"]
    epsilon, reach = (0.6, 22) if norm == 1 else (1.0, 16)
    cost = l1_cost(epsilon) if norm == 1 else l2_cost(epsilon)
    draws = ChainSampler(JumpKernel(lattice, epsilon, norm)).sample(6_000, rng=4)
    assert p_value(draws, *enumerate_law(lattice, cost, reach)) > FALSE_ALARM


@pytest.mark.skipif(not has_numba(), reason="compiled chains need numba (extra 'fast')")
@pytest.mark.parametrize("name", LATTICES)
@lengths("steps", 80, 400)
def test_compiled_heat_bath_equals_numpy(steps: int, name: str) -> None:
    lattice, epsilon = LATTICES[name], 0.05 if name == "large steps" else 0.25  # of which few are taken otherwise
    by_numpy = advanced(HeatBathKernel(lattice, epsilon), 20, steps, seed=5)
    assert np.array_equal(by_numpy, advanced(HeatBathKernel(lattice, epsilon, compiled=True), 20, steps, seed=5))
    assert by_numpy.any()


@pytest.mark.skipif(not has_numba(), reason="compiled chains need numba (extra 'fast')")
@pytest.mark.parametrize("norm", [1, 2])
@lengths("steps", 80, 400)
def test_compiled_jumps_equal_numpy(steps: int, norm: Norm) -> None:
    by_numpy = advanced(JumpKernel(THREE_WAY, 0.25, norm), 20, steps, seed=6)
    assert np.array_equal(by_numpy, advanced(JumpKernel(THREE_WAY, 0.25, norm, compiled=True), 20, steps, seed=6))
    assert by_numpy.any()


@pytest.mark.parametrize("kind", [HeatBathKernel, JumpKernel])
def test_compiling_without_numba_names_the_extra(
    kind: type[HeatBathKernel | JumpKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "has_numba", lambda: False)
    for module, loop in ((heat_bath, heat_bath.redraw_chains), (jumps, jumps.jump_chains)):
        monkeypatch.setattr(module, loop.loop.__name__, compiled.CompiledLoop(loop.loop, loop.reference))
    with pytest.raises(ImportError, match=r"need numba: pip install 'blue-solvers\[fast\]', or use compiled=False"):
        kind(FOUR_BY_FOUR, 0.25, compiled=True)


def test_coupled_jumps_have_the_right_law_and_meet_as_often_as_possible() -> None:
    kernel = JumpKernel(Lattice(margins((2, 2), "a", "b")), 0.25, a=0.5)
    rng = np.random.default_rng(7)
    jump = kernel._law.sample(50_000, rng)[:, None]
    other = kernel._coupled_jump(jump, np.full_like(jump, 2), rng)
    k = np.arange(-40, 41)
    law = 0.5 ** abs(k) / 3
    assert p_value(other, k[:, None], law) > FALSE_ALARM
    overlap = np.minimum(0.5 ** abs(k) / 3, 0.5 ** abs(k - 2) / 3).sum()
    # Five standard errors.
    assert (other + 2 == jump).mean() == pytest.approx(overlap, abs=5 * math.sqrt(overlap / 50_000))


@pytest.mark.parametrize("kernel", [HeatBathKernel(FOUR_BY_FOUR, 0.25), JumpKernel(FOUR_BY_FOUR, 0.25)])
def test_coupled_chains_stay_together_and_keep_the_invariants(kernel: Kernel) -> None:
    rng = np.random.default_rng(8)
    first, second = advanced(kernel, 200, 300, seed=9), advanced(kernel, 200, 300, seed=10)
    second[:100] = first[:100]
    kernel.advance_together(first, second, rng)
    assert np.array_equal(first[:100], second[:100])
    assert not (kernel.lattice.invariants.matrix @ np.concatenate([first, second]).T).any()


def test_meeting_times_of_the_heat_bath_on_the_delinquent_children() -> None:
    meetings = meeting_times(HeatBathKernel(FOUR_BY_FOUR, 0.25), lag=200, runs=200, max_iterations=20_000, rng=11)
    assert meetings.met.all()
    bounds = [meetings.bound(t) for t in range(0, 1000, 50)]
    assert all(later[0] <= earlier[0] for earlier, later in pairwise(bounds))
    assert bounds[0][0] == 1.0 or bounds[0][1] > 0
    # Other seeds gave 300 to 450.
    assert 200 < meetings.iterations_for(0.05) < 700
    assert meetings.bound(meetings.iterations_for(0.05))[0] <= 0.05


def test_bound_by_hand() -> None:
    meetings = MeetingTimes(lag=10, times=np.array([15, 25, 45]), met=np.ones(3, dtype=bool))
    assert meetings.bound(0) == (1.0, pytest.approx(np.std([1, 2, 4], ddof=1) / math.sqrt(3)))
    assert meetings.bound(25) == (pytest.approx(1 / 3), pytest.approx(np.std([0, 0, 1], ddof=1) / math.sqrt(3)))
    assert meetings.bound(35) == (0.0, 0.0)
    assert meetings.iterations_for(0.4) == 25


def test_the_bound_warns_where_it_cannot_inform() -> None:
    with pytest.warns(CouplingWarning, match="practically never meet"):
        meetings = meeting_times(HeatBathKernel(Lattice(margins((8, 8), "a", "b")), 0.25), 10, 4, 40, rng=12)
    with pytest.warns(CouplingWarning, match="did not meet"):
        assert meetings.bound(1000) == (1.0, 0.0)
    refuses("did not meet", meetings.iterations_for, 0.1)


@pytest.mark.few(0)
def test_chains_from_dispersed_starts_come_to_agree() -> None:
    kernel = HeatBathKernel(FOUR_BY_FOUR, 0.25)
    states = dispersed_starts(kernel, chains=8, rng=13)
    assert abs(states).sum(axis=1).mean() > 2 * 35
    at_once = potential_scale_reduction(kernel.trace(states.copy(), 10, 1, np.random.default_rng(14)))
    later = potential_scale_reduction(kernel.trace(states, 400, 20, np.random.default_rng(14)))
    assert at_once.max() > 1.5
    assert later.max() < 1.02


def test_scale_reduction_by_hand() -> None:
    traces = np.array([[[0.0, 5.0], [2.0, 5.0]], [[4.0, 5.0], [6.0, 5.0]]])
    # Within 2, between (variance of the means 1 and 5) 8, length 2: sqrt((2 / 2 + 8) / 2).
    np.testing.assert_allclose(potential_scale_reduction(traces), [math.sqrt(4.5), 1.0])
    refuses("shape", potential_scale_reduction, traces[:1])
    with pytest.raises(ValueError, match="traces hold NaN or infinite numbers"):
        potential_scale_reduction(np.where(traces == traces.max(), np.nan, traces))


def distance_of_norms(noise: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """Total variation between the laws of the L1 norm of two samples, (n, d) each, and what equal laws would show."""
    counts = [np.bincount(abs(sample).sum(axis=1)) for sample in (noise, reference)]
    longest = max(count.size for count in counts)
    first, second = (np.pad(count, (0, longest - count.size)) / count.sum() for count in counts)
    common = (first * len(noise) + second * len(reference)) / (len(noise) + len(reference))
    spread = np.sqrt(2 / np.pi * common * (1 - common) * (1 / len(noise) + 1 / len(reference)))
    return float(abs(first - second).sum() / 2), float(spread.sum() / 2)


@pytest.mark.few(0)
def test_the_chain_agrees_with_the_exact_sampler() -> None:
    exact = GeneralizedLaplace(FOUR_BY_FOUR.invariants, 0.25).sample(5000, rng=16)
    started, settled = (
        ChainSampler(HeatBathKernel(FOUR_BY_FOUR, 0.25), burn_in).sample(5000, rng=17) for burn_in in (20, 512)
    )
    distance, floor = distance_of_norms(settled, exact)
    assert distance < 1.6 * floor
    assert distance_of_norms(started, exact)[0] > 3 * floor


def test_jumps_are_as_many_as_wide_noise_needs() -> None:
    mechanism = GeneralizedLaplace(Invariants.from_subsets([[0, 1, 2], [2, 3]], 4), 0.03)
    exact, jumped = abs(mechanism.sample(20_000, 1)).mean(), mechanism.choose("jumps").sampler.sample(500, 1)
    assert abs(jumped).mean() == pytest.approx(exact, rel=0.15)
    with pytest.raises(ValueError, match=r"'jumps' would take .* of them: take 'auto'"):
        _ = JumpKernel(FOUR_BY_FOUR, 1e-9).burn_in


@pytest.mark.parametrize("kernel", [HeatBathKernel(FOUR_BY_FOUR, 0.25), JumpKernel(FOUR_BY_FOUR, 0.25)])
def test_no_draw_is_none(kernel: Kernel) -> None:
    assert ChainSampler(kernel).sample(0).shape == (0, 16)


def test_bad_arguments_are_refused() -> None:
    refuses("a is 1", JumpKernel, FOUR_BY_FOUR, 0.25, a=1.0)
    refuses("lag is 0", meeting_times, HeatBathKernel(FOUR_BY_FOUR, 0.25), 0, 10, 100)
