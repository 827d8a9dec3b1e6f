"""What the pictures show, read back from their Axes."""

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("matplotlib")
from matplotlib import rc_params_from_file
from matplotlib.figure import Figure

from blue_solvers import pictures
from constraint_builders import Spine
from tests.helpers.places import ROOT
from tests.helpers.refused import refused


@pytest.fixture
def ax():
    return Figure().subplots()


def test_dots_lie_in_their_intervals(ax):
    readings = {"noisy": ([1.0, 5.0], [0.0, 3.0], [4.0, 6.0]), "estimate": ([2.0, 4.0], [1.5, 3.5], [2.5, 5.0])}
    assert pictures.dots_and_intervals(ax, ["a", "b"], readings, truth=[2.0, 4.5]) is ax
    for bars, (centre, lower, upper) in zip(ax.containers, readings.values(), strict=True):
        points, _, (ends,) = bars
        np.testing.assert_array_equal(points.get_xdata(), centre)
        spans = np.array([segment[:, 0] for segment in ends.get_segments()])
        np.testing.assert_array_equal(spans, np.stack([lower, upper], axis=1))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first row is on top"
    assert ax.get_legend_handles_labels()[1] == ["truth", "noisy", "estimate"]


@refused(
    ({}, "no readings"),
    ({"y": ([1.0], [0.0], [2.0])}, "y has shape"),
    ({"y": ([1.0, 3.0], [0.0, 0.0], [2.0, 2.0])}, "must lie in its interval"),
)
def test_readings_that_cannot_be_drawn(readings, ax) -> None:
    pictures.dots_and_intervals(ax, ["a", "b"], readings)


def test_quantiles_are_sorted_and_named(ax):
    residuals = [0.3, np.nan, -4.0, 1.0]
    pictures.normal_quantiles(ax, residuals, ["a", "b", "c", "d"], named=1)
    points = ax.lines[-1]
    np.testing.assert_array_equal(points.get_ydata(), [-4.0, 0.3, 1.0])
    np.testing.assert_allclose(points.get_xdata(), stats.norm.ppf([1 / 6, 0.5, 5 / 6]), atol=1e-15)
    assert [text.get_text() for text in ax.texts] == ["c"]


def test_band_holds_its_share_of_normal_residuals(ax):
    """Each order statistic is in its band in 80 % of samples."""
    samples = np.sort(np.random.default_rng(1).normal(size=(4000, 15)), axis=1)
    pictures.normal_quantiles(ax, samples[0], confidence_level=0.8)
    outline = ax.collections[0].get_paths()[0].vertices
    for k, x in enumerate(ax.lines[-1].get_xdata()):
        low, high = np.sort(np.unique(outline[np.isclose(outline[:, 0], x), 1]))[[0, -1]]
        inside = np.mean((samples[:, k] >= low) & (samples[:, k] <= high))
        assert abs(inside - 0.8) < 4 * np.sqrt(0.8 * 0.2 / 4000)


@refused(
    ({"residuals": [np.nan]}, "nothing checks"),
    ({"residuals": [1.0], "confidence_level": 1.0}, "level is 1"),
    ({"residuals": [1.0], "named": 1}, "names must be given"),
)
def test_quantiles_that_cannot_be_drawn(arguments, ax) -> None:
    pictures.normal_quantiles(ax, **arguments)


def test_parents_stand_over_their_children(ax):
    spine = Spine.from_geoids(["11", "12", "13", "21"], {"County": 1, "Block": 2}, root="State")
    pictures.hierarchy(ax, spine, np.arange(7.0), "number")
    (dots,) = (found for found in ax.collections if found.get_array() is not None and len(found.get_array()))
    places = {code: tuple(place) for code, place in zip(spine.geocodes, dots.get_offsets(), strict=True)}
    assert [places[code][0] for code in ("11", "12", "13", "21")] == [0, 1, 2, 3]
    assert places["1"] == (1, 1)
    assert places["2"] == (3, 1)
    assert places[""] == (2, 0)
    np.testing.assert_array_equal(dots.get_array(), np.arange(7.0))
    assert ax.figure.axes[1].get_ylabel() == "number"


def test_geounits_stand_at_their_levels_whatever_lies_between(ax):
    spine = Spine([-1, 0, 1, 0], ["US", "State", "County", "County"])
    pictures.hierarchy(ax, spine, np.arange(4.0), "number")
    np.testing.assert_array_equal(ax.collections[1].get_offsets()[:, 1], [0, 1, 2, 2])


def test_a_geounit_without_a_number_is_hollow(ax):
    spine = Spine.from_geoids(["11", "12"], {"County": 1, "Block": 2})
    pictures.hierarchy(ax, spine, [1.0, np.nan, 3.0], "number")
    hollow, full = ax.collections
    assert len(hollow.get_offsets()) == 1
    assert not len(hollow.get_facecolors())
    np.testing.assert_array_equal(full.get_array(), [1.0, 3.0])


@pytest.mark.parametrize("values", [[1.0], np.zeros((3, 1))])
def test_numbers_of_other_geounits_are_refused(ax, values):
    with pytest.raises(ValueError, match="one for each of the 3 geounits"):
        pictures.hierarchy(ax, Spine.from_geoids(["11", "12"], {"County": 1, "Block": 2}), values, "number")


def square(left, name, kind="Polygon"):
    ring = [[left, 0], [left + 1, 0], [left + 1, 1], [left, 1], [left, 0]]
    coordinates = [ring] if kind == "Polygon" else [[ring]]
    return {"properties": {"geoid": name}, "geometry": {"type": kind, "coordinates": coordinates}}


MAP = {"type": "FeatureCollection", "features": [square(0, "a"), square(1, "b", "MultiPolygon"), square(2, "c")]}


def test_regions_have_their_colours(ax):
    pictures.region_map(ax, MAP, {"b": 5.0, "a": 2.0, "c": np.nan}, "people", limits=(0, 10))
    hatched, coloured = ax.collections
    assert [path.get_extents().x0 for path in hatched.get_paths()] == [2]
    assert [path.get_extents().x0 for path in coloured.get_paths()] == [1, 0]
    np.testing.assert_array_equal(coloured.get_array(), [5.0, 2.0])
    assert coloured.get_clim() == (0, 10)
    assert ax.get_xlim()[0] <= 0 < 3 <= ax.get_xlim()[1]


@refused(
    ([square(0, "a")], {"z": 1.0}, {}, "no feature has geoid 'z'"),
    ([square(0, "a")], {}, {"key": "name"}, "no property 'name'"),
    ([square(0, "a"), square(1, "a")], {"a": 1.0}, {}, "geoid 'a' is of several features"),
    ([square(0, "a", "Point")], {}, {}, "'a' is a Point"),
)
def test_maps_that_cannot_be_drawn(features, values, options, ax) -> None:
    pictures.region_map(ax, {"features": features}, values, "people", **options)


def luminance(colour):
    digits = colour.lstrip("#")
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    return np.dot(
        [0.2126, 0.7152, 0.0722], [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    )


def test_colours_stand_out_from_light_and_dark():
    """3 to 1 with white and with near black: WCAG 2.2, 1.4.11."""
    style = rc_params_from_file(ROOT / "blue_solvers" / "pictures" / "clear.mplstyle", use_default_template=False)
    colours = style["axes.prop_cycle"].by_key()["color"]
    assert len(colours) == len(set(style["axes.prop_cycle"].by_key()["marker"])) == 5
    for colour in colours:
        assert 1.05 / (luminance(colour) + 0.05) >= 3
        assert (luminance(colour) + 0.05) / (luminance("131416") + 0.05) >= 3
