"""``blue-solvers spine`` and its pictures."""

import csv
import gzip
import sys
from fractions import Fraction

import numpy as np
import pytest

from blue_solvers.cli import main
from blue_solvers.spine_design.report import SpineReport
from constraint_builders import Spine
from constraint_builders.geography import Entities, Strategy, compositions, leaves, regroup_blocks
from tests.helpers.refused_commands import refusal


def block_table(states=("44",)):
    rng = np.random.default_rng(12)
    geoids = [f"{state}00{county}00{tract}100{group}0{block:02d}" for state in states for county in "13"
              for tract in "12" for group in "12" for block in range(8)]  # fmt: skip
    return geoids, rng.choice(["", "a", "b"], len(geoids)).tolist(), rng.choice(["", "0012"], len(geoids)).tolist()


def write_blocks(path, states=("44",)):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("geoid", "place", "aian"))
        writer.writerows(zip(*block_table(states), strict=True))
    return str(path)


def read_spine(path):
    rows = read_rows(path)
    place = {(row["geolevel"], row["geocode"]): i for i, row in enumerate(rows)}
    levels = list(dict.fromkeys(row["geolevel"] for row in rows))
    parents = []
    for row in rows:
        above = levels[levels.index(row["geolevel"]) - 1]
        parents.append(-1 if row["geolevel"] == levels[0] else place[above, row["parent"]])
    spine = Spine(parents, [row["geolevel"] for row in rows], [row["geocode"] for row in rows])
    return spine, tuple(Fraction(row["share"]) for row in rows)


@pytest.mark.parametrize("extra", [[], ["--optimise", "mean"], ["--optimise", "worst", "--tract-groups"]])
def test_the_spine_written_holds_all_blocks_and_spends_the_budget(tmp_path, capsys, extra):
    blocks, out = write_blocks(tmp_path / "blocks.csv"), tmp_path / "spine.csv"
    assert main(["design", blocks, "--entity", "place", "--out", str(out), *extra]) == 0
    spine, shares = read_spine(out)
    assert [spine.geocodes[i] for i in leaves(spine)] == block_table()[0]
    assert set(Strategy(spine, shares, {level: {"total": 1} for level in spine.levels}, Fraction(1)).path_sums()) == {1}
    printed = capsys.readouterr().out
    assert "64 blocks, 2 entities" in printed
    assert ("ours" in printed) == bool(extra)


def test_the_summary_is_that_of_the_report(tmp_path, capsys):
    blocks = write_blocks(tmp_path / "blocks.csv.gz")
    assert (
        main(["design", blocks, "--entity", "place", "--share", "Block=1/2", "--share", "State=1/2", "--loss", "3"])
        == 0
    )
    geoids, places, _ = block_table()
    entities = Entities.from_labels({"place": places}, outside=False)
    plain = Spine.from_geoids(geoids)
    worst = 64 / (3 / 2)  # a total over all blocks, were it an entity: an upper bound on either variance
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("optimised"))
    _, measured, mean_distance, worst_distance, mean, most, loss = line.split()
    distances = [len(compositions(regroup_blocks(plain, entities), entities)[[k]].data) for k in range(2)]
    assert (int(measured), float(mean_distance), int(worst_distance)) == (65, np.mean(distances), max(distances))
    assert 0 < float(mean) <= float(most) < worst
    assert loss == "3"


def test_several_states_get_a_root_and_areas_split_it(tmp_path):
    blocks, out = write_blocks(tmp_path / "blocks.csv", ("04", "44")), tmp_path / "spine.csv"
    assert main(["design", blocks, "--entity", "place", "--aian", "aian", "--out", str(out)]) == 0
    spine, _ = read_spine(out)
    assert spine.levels[0] == "US"
    assert {spine.geocodes[i] for i in spine.members[1]} == {"004", "104", "044", "144"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--entity", "school"], "no column 'school': there are geoid, place, aian"),
        (["--entity", "place", "--share", "Tract"], "'Tract' is not GEOLEVEL=SHARE"),
        (["--entity", "place", "--share", "Tract=1/2"], "the shares sum to 1/2"),
        (["--entity", "place", "--loss", "0"], "must be positive"),
        (["--entity", "place", "--aian", "place"], "'a' is not four digits"),
    ],
)
def test_bad_input_is_refused_in_one_line(tmp_path, capsys, arguments, message):
    error = refusal(capsys, "design", write_blocks(tmp_path / "blocks.csv"), *arguments)
    assert message in error
    assert error.count("\n") == 1


def test_pictures(tmp_path):
    figure_module = pytest.importorskip("matplotlib.figure", reason="pictures need the extra 'plots'")
    from matplotlib.colors import to_rgba

    from blue_solvers.spine_design import spine_plots

    spine = Spine.from_geocodes({"State": ["1"], "County": ["11", "12"], "Block": ["11a", "11b", "11c", "12a", "12b"]})
    entities = Entities(["county less a block"], [[1, 1, 0, 0, 0]])
    axes = figure_module.Figure().add_subplot()
    assert spine_plots.spine(axes, spine, entities, "county less a block", whole=True) is axes
    colours = spine_plots.ADDED, spine_plots.SUBTRACTED, spine_plots.INSIDE
    drawn = dict.fromkeys(colours, 0)
    for colour, bars in ((c, bars) for c in colours for bars in axes.collections):
        drawn[colour] += len(bars.get_paths()) * bool((bars.get_facecolor() == to_rgba(colour)).all())
    assert drawn == {spine_plots.ADDED: 1, spine_plots.SUBTRACTED: 1, spine_plots.INSIDE: 2}
    assert axes.get_title() == "county less a block: 2 geounits"
    assert axes.get_xlim() == (0, 5)
    with pytest.raises(ValueError, match="no entity 'moon'"):
        spine_plots.spine(axes, spine, entities, "moon")
    report = SpineReport(entities, {"plain": np.array([2])}, {"plain": np.array([4.0])})
    curves = spine_plots.accuracy(figure_module.Figure().add_subplot(), report)
    assert curves.lines[0].get_ydata().tolist() == [2.0]
    blocks = write_blocks(tmp_path / "blocks.csv")
    assert main(["design", blocks, "--entity", "place", "--plot", str(tmp_path / "spine.png")]) == 0
    assert (tmp_path / "spine.png").read_bytes().startswith(b"\x89PNG")


def test_blocks_stand_below_their_geounits_though_groups_are_scattered():
    from constraint_builders.geography.entities import walk_of_leaves

    geoids, places, _ = block_table()
    tree = regroup_blocks(Spine.from_geoids(geoids), Entities.from_labels({"place": places}))
    start, stop = walk_of_leaves(tree)
    for geounit, parent in enumerate(tree.parent):
        assert parent < 0 or start[parent] <= start[geounit] < stop[geounit] <= stop[parent]
    for members in tree.members:
        order = np.argsort(start[members])
        assert (stop[members][order][:-1] == start[members][order][1:]).all()


def test_without_matplotlib_nothing_is_begun(tmp_path, capsys, monkeypatch):
    blocks = write_blocks(tmp_path / "blocks.csv")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    options = ["--out", str(tmp_path / "spine.csv"), "--plot", str(tmp_path / "spine.png")]
    assert "--plot needs matplotlib: pip install 'blue-solvers[plots]'" in refusal(
        capsys, "design", blocks, "--entity", "place", *options
    )
    assert [path.name for path in tmp_path.iterdir()] == ["blocks.csv"]


def test_places_of_strangers_run_nowhere(tmp_path, capsys):
    path, out = tmp_path / "blocks.csv", tmp_path / "spine.csv"
    geoids = [f"=4001000100100{block}" for block in range(4)]
    path.write_text("geoid,place\n" + "".join(f"{geoid},@sum\n" for geoid in geoids))
    assert "geoid '=40010001001000' is not of the digits 0 to 9 alone" in refusal(
        capsys, "design", str(path), "--entity", "place", "--out", str(out)
    )
    assert not out.exists()


def read_rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))
