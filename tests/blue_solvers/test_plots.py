"""What the pictures show, read back from their Axes."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure

from blue_solvers import blue, plots
from blue_solvers.uncertainty import intervals
from constraint_builders import Problem, Schema, gallery


@pytest.fixture
def ax():
    return Figure().subplots()


def test_noisy_against_estimated(ax):
    P = blue(gallery.toy())
    y = np.array([6.0, 9, 17, 29])
    assert plots.noisy_against_estimated(ax, P, y, confidence_level=0.9) is ax
    lower, upper = intervals(P, y, 0.9)
    points, _, (bars,) = ax.containers[0]
    np.testing.assert_array_equal(points.get_xdata(), y[:3])
    np.testing.assert_allclose(points.get_ydata(), (P @ y)[:3])
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, np.stack([lower[:3], upper[:3]], axis=1))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["B", "total"]
    with pytest.raises(ValueError, match="some lower one is above"):
        plots.noisy_against_estimated(ax, P, y, bounds=(upper, lower))


def test_many_counts_have_no_bars(ax, monkeypatch):
    monkeypatch.setattr(plots, "MOST_ERROR_BARS", 3)
    plots.noisy_against_estimated(ax, blue(gallery.toy()), [6, 9, 17, 29])
    assert not ax.containers[0][2]
    assert ax.get_ylabel() == "estimate"


def test_variance_reduction(ax):
    problem = Problem(Schema({"a": 3}), {"total": 1.0, "a": [1.0, np.inf, 1.0]})
    P = blue(problem)
    assert plots.variance_reduction(ax, P) is ax
    variances = P.variances()
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(widths, [100 * (1 - variances[0]), 100 * (1 - variances[[1, 3]].mean())], atol=1e-9)


def test_exact_tables_have_no_reduction(ax):
    plots.variance_reduction(ax, blue(Problem(Schema({"a": 3}), {"total": 0.0, "a": 1.0})))
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [0, 100 / 3])


def test_sparsity(ax):
    problem = gallery.cube(2, 2)
    assert plots.sparsity(ax, problem) is ax
    A = problem.constraint_matrix()
    assert len(ax.lines[0].get_xdata()) == A.nnz
    borders = sorted(line.get_xdata()[0] for line in ax.lines[1:])
    np.testing.assert_array_equal(borders, problem.observed.offsets[1:-1] - 0.5)
    assert [label.get_text() for label in ax.get_xticklabels()] == list(problem.observed.names)


def test_tables_are_found_under_any_spelling(ax):
    problem = Problem(Schema({"a": 2, "b": 2}), {"b * a": 1.0, "total": 1.0}, desired=["a * b"])
    plots.variance_reduction(ax, blue(problem))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b * a"]


def test_nothing_to_compare_is_refused(ax):
    problem = Problem(Schema({"a": 2}), {"a": 1.0}, desired=["total"])
    with pytest.raises(ValueError, match="no table is both observed and desired"):
        plots.variance_reduction(ax, blue(problem))
