"""Pictures hold what they were given."""

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib", reason="pictures need matplotlib (extra 'plots')")
matplotlib.use("Agg")

from matplotlib.figure import Figure  # noqa: E402

from bench.papers.lattice_plots import noise_by_cell, noise_by_size, total_variation  # noqa: E402
from noise_mechanisms.integer_subspace import MeetingTimes  # noqa: E402

NOISE = np.random.default_rng(0).integers(-9, 10, (200, 5))


def test_total_variation_draws_the_bound() -> None:
    meetings = MeetingTimes(10, np.array([15, 25, 45]), np.ones(3, dtype=bool))
    axes = Figure().subplots()
    assert total_variation(axes, {"lag 10": meetings}) is axes
    x, y = axes.lines[0].get_data()
    assert [meetings.bound(int(t))[0] for t in x] == pytest.approx(list(y))
    assert axes.get_legend().get_texts()[0].get_text() == "lag 10"


def test_noise_by_cell_draws_one_box_for_every_cell() -> None:
    axes = Figure().subplots()
    assert noise_by_cell(axes, NOISE, labels=list("vwxyz")) is axes
    assert [label.get_text() for label in axes.get_xticklabels()] == list("vwxyz")
    medians = [line.get_ydata()[0] for line in axes.lines if len(set(line.get_ydata())) == 1]
    assert all(median in medians for median in np.median(NOISE, axis=0))


def test_noise_by_size_orders_by_size() -> None:
    axes = Figure().subplots()
    sizes = np.array([500, 20, 3000, 100, 7])
    assert noise_by_size(axes, sizes, NOISE) is axes
    x, y = axes.lines[0].get_data()
    assert list(x) == [7, 20, 100, 500, 3000]
    assert list(y) == list(np.median(NOISE, axis=0)[np.argsort(sizes)])
