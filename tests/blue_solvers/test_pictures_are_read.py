"""Pictures can be read: no text collides or is clipped, no table vanishes without a word, colours are told apart."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from blue_solvers import blue, estimate, plots
from blue_solvers.cli import main
from blue_solvers.spine_design import spine_plots as spine_plots
from blue_solvers.spine_design.report import SpineReport
from constraint_builders import Problem, Schema, Spine, gallery
from constraint_builders.files import measurements_frame, write_frame
from constraint_builders.geography import Entities
from constraint_builders.pictures import COLOURS, logarithmic
from noise_mechanisms import add_noise
from tests.helpers.drawn_text import texts, unreadable
from tests.helpers.effort import first_of
from tests.helpers.every import every
from tests.helpers.refused_commands import refusal

SIZES = [(5.0, 4.0), (10.0, 7.0)]
SCHEMA = Schema({"sex": 2, "age": 3, "race": 4})
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "berkeley": gallery.berkeley,
    "cube of 6": lambda: gallery.cube(6, 2),
    "some tables": lambda: Problem(
        SCHEMA,
        {"total": 0.0, "sex": 1.0, "age": 2.0, "race": np.inf, "detailed": 9.0},
        desired=["total", "sex", "race", "sex * race"],
    ),
    "long names": lambda: Problem(
        Schema({"the highest level of schooling completed": 2, "language spoken at home": 3}),
        {"detailed": 1.0, "language spoken at home": 1.0, "the highest level of schooling completed": 2.0},
    ),
}


def measured(problem: Problem) -> np.ndarray:
    truth = np.zeros(problem.observed.size) if problem.truth is None else problem.truth
    return np.where(problem.unmeasured, 0.0, add_noise(problem, truth, 1))


def draw(problem: Problem, what: str, ax: Axes) -> None:
    y = measured(problem)
    if what == "residuals":
        plots.residuals_by_table(ax, estimate(problem, y).goodness_of_fit(draws=0))
    elif what == "quantiles":
        plots.quantiles_by_table(ax, estimate(problem, y).goodness_of_fit(draws=0))
    elif what == "noisy":
        plots.noisy_against_estimated(ax, blue(problem), y)
    elif what == "reduction":
        plots.variance_reduction(ax, blue(problem))
    else:
        plots.sparsity(ax, problem)


@pytest.mark.few(7)
@pytest.mark.parametrize("size", first_of(SIZES, 1))
@pytest.mark.parametrize("what", ["residuals", "quantiles", "noisy", "reduction", "sparsity"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_text_neither_collides_nor_is_clipped(name: str, what: str, size: tuple[float, float]) -> None:
    figure = Figure(figsize=size, layout="constrained")
    draw(PROBLEMS[name](), what, figure.subplots())
    assert unreadable(figure) == []


def test_the_check_sees_text_that_collides_or_is_clipped() -> None:
    figure = Figure(figsize=(3, 3))
    ax = figure.subplots()
    ax.text(0.5, 0.5, "one", transform=ax.transAxes)
    ax.text(0.52, 0.51, "two", transform=ax.transAxes)
    ax.text(1.1, 0.5, "far away", transform=ax.transAxes)
    found = unreadable(figure)
    assert "'one' collides with 'two'" in found
    assert "'far away' leaves the figure" in found


def said(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text() for text in texts(figure)).split())


@pytest.mark.few(0)
@every("name", PROBLEMS)
@every("what", ["residuals", "noisy", "reduction"])
def test_no_table_vanishes_without_a_word(name: str, what: str) -> None:
    problem = PROBLEMS[name]()
    figure = Figure(figsize=(12, 20), layout="constrained")
    draw(problem, what, figure.subplots())
    words = said(figure)
    if " more" in words:  # more than can be named are counted
        assert name == "cube of 6"
        return
    tables = problem.observed.names if what == "residuals" else {*problem.observed.names, *problem.desired.names}
    if "too many to name" not in words:
        assert [table for table in tables if str(table) not in words] == []


def test_tables_without_residuals_are_named_with_the_reason() -> None:
    figure = Figure(figsize=(9, 4), layout="constrained")
    draw(PROBLEMS["some tables"](), "residuals", figure.subplots())
    words = said(figure)
    assert "not drawn, known exactly: total" in words
    assert "not drawn, not measured: race" in words


def test_named_nodes_have_a_row_each() -> None:
    names = ["all", "north", "south", "n1", "n2", "s1", "s2", "s3"]
    S = np.vstack([np.ones(5), [1, 1, 0, 0, 0], [0, 0, 1, 1, 1], np.eye(5)])
    variances = np.array([1, 4, 2, 1, 1, np.inf, 3, 1.0])
    problem = Problem.from_summing_matrix(pd.DataFrame(S, index=names), variances)
    y = S @ [5.0, 3, 8, 1, 2] + [0, 1, 0, 9, 0, 0, 1, 0]
    est = estimate(problem, y)
    figure = Figure(figsize=(12, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    plots.residuals_by_table(left, est.goodness_of_fit(draws=0))
    plots.variance_reduction(right, blue(problem))
    assert unreadable(figure) == []
    assert [text.get_text() for text in left.get_yticklabels()] == names[:5]
    assert "not drawn, not measured: s1" in said(figure)
    assert "s2, s3" in said(figure)  # s1 takes up whatever they say
    assert [text.get_text() for text in right.get_yticklabels()] == names
    sizes = [bar.get_width() for bar in right.patches]
    measured = np.isfinite(variances)
    expected = 100 * (1 - blue(problem).variances() / variances)[measured]
    np.testing.assert_allclose(np.array(sizes)[measured], expected, rtol=1e-9)
    residuals = {line.get_ydata()[0]: line.get_xdata()[0] for line in left.lines if len(line.get_xdata()) == 1}
    found = est.goodness_of_fit(draws=0).residuals
    np.testing.assert_allclose([residuals[row] for row in sorted(residuals)], found[np.isfinite(found)])


def test_where_there_is_no_room_the_largest_residuals_are_drawn() -> None:
    problem = gallery.cube(6, 2)
    fit = estimate(problem, measured(problem)).goodness_of_fit(draws=0)
    figure = Figure(figsize=(5, 4), layout="constrained")
    ax = plots.residuals_by_table(figure.subplots(), fit)
    drawn = [label.get_text().replace("\n", " ") for label in ax.get_yticklabels()]
    largest = {name: np.nanmax(abs(fit.residuals[problem.observed.slice(name)])) for name in problem.observed.names}
    assert set(drawn) == set(sorted(largest, key=lambda name: -largest[name])[: len(drawn)])
    assert 3 < len(drawn) < len(largest)
    assert f"and {len(largest) - len(drawn) - 6} more" in said(figure)


def test_residuals_are_drawn_as_they_are_and_unlikely_ones_apart() -> None:
    problem = gallery.berkeley()
    y = measured(problem)
    y[40] += 60
    fit = estimate(problem, y).goodness_of_fit(draws=0)
    ax = plots.residuals_by_table(Figure().subplots(), fit)
    points = np.concatenate([np.asarray(line.get_xdata(), dtype=float) for line in ax.lines[1:]])
    assert np.allclose(np.sort(points), np.sort(fit.residuals[np.isfinite(fit.residuals)]))
    apart = np.concatenate([line.get_xdata() for line in ax.lines if line.get_marker() == "D"])
    assert fit.residuals[40] in apart
    assert ax.get_xlim()[1] > abs(fit.residuals[40])


def test_quantiles_show_the_table_whose_noise_is_larger_and_the_cell_that_is_off() -> None:
    problem = Problem(Schema({"a": 30, "b": 20}), {"a": 100.0, "b": 100.0, "a * b": 1.0, "total": 900.0})
    y = add_noise(problem, np.zeros(problem.observed.size), 1)
    y[problem.observed.slice("a")] *= 3
    place = problem.observed.slice("a * b").start + 77
    y[place] += 40
    fit = estimate(problem, y).goodness_of_fit(draws=0)
    ax = plots.quantiles_by_table(Figure().subplots(), fit)
    drawn = {line.get_label(): np.array(line.get_xydata()) for line in ax.lines}
    assert {"a", "a * b"} <= set(drawn)
    slopes = {name: np.polyfit(*drawn[name].T, 1)[0] for name in ("a", "b")}
    assert slopes["a"] > 2 > slopes["b"]
    assert fit.residuals[place] in drawn["a * b"][-3:, 1]
    assert np.allclose(drawn["a"][:, 1], np.sort(fit.residuals[problem.observed.slice("a")]))
    assert len(drawn["a * b"]) <= plots.MOST_POINTS < 600


@every("name", PROBLEMS)
def test_quantiles_say_what_is_grey_and_what_is_not_drawn(name: str) -> None:
    problem = PROBLEMS[name]()
    fit = estimate(problem, measured(problem)).goodness_of_fit(draws=0)
    figure = Figure(figsize=(9, 6), layout="constrained")
    ax = plots.quantiles_by_table(figure.subplots(), fit)
    checked = [own for own in problem.observed.names if np.isfinite(fit.residuals[problem.observed.slice(own)]).any()]
    marks = [(line.get_color(), line.get_marker()) for line in ax.lines if not line.get_label().startswith("_")]
    assert len(marks) == len(set(marks)) == min(plots.MOST_APART, len(checked))
    assert {colour for colour, _ in marks} <= set(COLOURS)
    assert (f"{len(checked) - len(marks):,} other tables" in said(figure)) == (len(checked) > len(marks))
    if name == "some tables":
        assert "not drawn, known exactly: total" in said(figure)


def test_large_tables_are_drawn_by_their_quartiles() -> None:
    problem = Problem(Schema({"a": 600, "b": 2}), {"a": 1.0, "a * b": 1.0}, desired=["a"])
    fit = estimate(problem, measured(problem)).goodness_of_fit(draws=0)
    ax = plots.residuals_by_table(Figure().subplots(), fit)
    own = fit.residuals[:600]
    ends = [collection.get_segments()[0][:, 0] for collection in ax.collections[:2]]
    assert np.allclose(ends, [np.percentile(own, [1, 99]), np.percentile(own, [25, 75])])
    beyond = sum(len(line.get_xdata()) for line in ax.lines[1:3])
    assert beyond == 12  # one per cent at either end


@pytest.mark.few(1)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_command_draws_a_picture_that_can_be_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = PROBLEMS[name]()
    write_frame(measurements_frame(problem, measured(problem)), tmp_path / "noisy.csv")
    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda own, *args, **kw: (figures.append(own), save(own, *args, **kw)))
    picture = str(tmp_path / "picture.png")
    assert main(["estimate", str(tmp_path / "noisy.csv"), "--out", str(tmp_path / "out.csv"), "--plot", picture]) == 0
    assert unreadable(figures[0]) == []
    assert "in standard errors" in said(figures[0])


def test_residuals_of_answers_that_are_not_the_best_are_not_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    problem = Problem(Schema({"a": 2, "b": 2}), {"a * b": [[1, 2.0], [3, 4]], "a": 1.0})
    write_frame(measurements_frame(problem, np.arange(6.0)), tmp_path / "noisy.csv")
    out, picture = str(tmp_path / "out.csv"), str(tmp_path / "picture.png")
    asked = ["estimate", str(tmp_path / "noisy.csv"), "--solver", "sea_blue", "--out", out, "--plot", picture]
    assert "--solver sea_blue does not give" in refusal(capsys, *asked)
    assert [path.name for path in tmp_path.iterdir()] == ["noisy.csv"]


def spine_figure() -> Figure:
    counties = [f"1{county}" for county in range(5)]
    blocks = [f"{county}{block:02}" for county in counties for block in range(20)]
    tree = Spine.from_geocodes({"State": ["1"], "County": counties, "Block": blocks})
    inside = np.zeros(len(blocks))
    inside[10:39] = 1
    entities = Entities(["a place across county lines"], [inside])
    figure = Figure(figsize=(10, 9), layout="constrained")
    above, below, curves = figure.subplots(3, 1)
    for axes in (above, below):
        spine_plots.spine(axes, tree, entities, "a place across county lines", whole=axes is below)
    spine_plots.same_scale(above, below)
    ranks = {
        "plain": np.geomspace(1, 1e7, 30),
        "optimised": np.geomspace(0.5, 1e6, 30),
        "ours": np.geomspace(1, 5e6, 30),
    }
    spine_plots.accuracy(curves, SpineReport(entities, {}, ranks))
    return figure


def test_spines_are_aligned_and_say_what_is_not_outlined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spine_plots, "MOST_OUTLINES", 50)
    figure = spine_figure()
    assert unreadable(figure) == []
    above, below, curves = figure.axes
    assert np.allclose(
        [above.get_position().x0, above.get_position().x1], [below.get_position().x0, below.get_position().x1]
    )
    assert np.isclose(curves.get_position().x0, above.get_position().x0)
    assert np.isclose(np.diff(above.get_xlim()), np.diff(below.get_xlim()))
    assert [label.get_text() for label in above.get_yticklabels()] == [
        "State", "County", "Block\n(100, not outlined)", "entity",
    ]  # fmt: skip


@every("limits", [(1, 50), (3, 4e6), (0.02, 0.9), (100, 120)])
def test_ticks_of_logarithmic_axes_are_words(limits: tuple[float, float]) -> None:
    figure = Figure(figsize=(5, 3), layout="constrained")
    ax = figure.subplots()
    ax.plot([0, 1], limits)
    ax.set(xlabel="x", ylabel="y")
    logarithmic(ax, "y")
    labels = [text.get_text() for text in texts(figure)]
    assert not any("$" in label or "^" in label for label in labels)
    assert unreadable(figure) == []
    inside = [t.get_loc() for t in ax.yaxis.get_major_ticks() if limits[0] <= t.get_loc() <= limits[1]]
    assert inside or limits == (100, 120)


def seen_by(matrix: np.ndarray, colour: str) -> np.ndarray:
    """A colour in linear light, as somebody sees who lacks one kind of cone."""
    srgb = np.array(to_rgb(colour))
    return matrix @ np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


# Viénot, Brettel and Mollon (1999), "Digital video colourmaps for checking the legibility of displays by dichromats"
PROTAN = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])
DEUTAN = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])


def lightness(light: np.ndarray) -> np.ndarray:
    return np.cbrt(np.clip(light, 0, 1))


@every("matrix", [np.eye(3), PROTAN, DEUTAN])
def test_colours_are_told_apart_by_everybody(matrix: np.ndarray) -> None:
    pairs = [*itertools.combinations(COLOURS, 2), (spine_plots.ADDED, spine_plots.SUBTRACTED)]
    apart = [np.linalg.norm(lightness(seen_by(matrix, a)) - lightness(seen_by(matrix, b))) for a, b in pairs]
    assert min(apart) > 0.12


def test_the_check_of_colours_sees_red_and_green() -> None:
    red, green = (lightness(seen_by(DEUTAN, colour)) for colour in ("#bc007c", "#007e7c"))
    assert np.linalg.norm(red - green) < 0.12
