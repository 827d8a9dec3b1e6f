"""The passes over an synthetic nation give the estimate of the whole, also when they are killed on the way."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.country import main
from bench.nation_passes import RESULT, Passes, Reduced
from bench.synthetic_nation import BLOCK, GEOUNITS, LEVELS, STATE, Nation, State, all_states, states_within
from blue_solvers import estimate
from constraint_builders import Problem, Spine
from tests.helpers.effort import first_of
from tests.helpers.places import ROOT

SMALL = [State("01", 400, 1, 2, 3, 8), State("02", 900, 3, 5, 8, 21), State("04", 600, 2, 4, 6, 13)]
LIMIT = 60e3


class Remembered(Passes):
    """Passes that also keep what was estimated, geounit by geounit."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.parts: dict[str, tuple[Any, ...]] = {}

    def reduce(self, own: Any, result: Any, handed: Any, kept: Any) -> Reduced:
        self.parts[own.part.geocodes[0].rsplit("-", 1)[0]] = (own, result, kept.tolist())
        return super().reduce(own, result, handed, kept)


def whole(nation: Nation, parts: dict[str, tuple[Any, ...]]) -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    """The nation as one problem, with its measurements and what the passes said of it: estimates and variances."""
    tables = nation.design.observed
    names, levels, above = ["00-0-0"], ["US"], [""]
    found: dict[tuple[str, int], tuple[np.ndarray, ...]] = {}

    def keep(name: str, part_name: str, row: int) -> None:
        own, result, _ = parts[part_name]
        for i, (level, _) in enumerate(tables):
            if own.part.level_of[row] == level:
                rank = row - own.part.members(level).start
                found[name, i] = tuple(of[i][rank] for of in (own.part.values, result.cells, result.variances))

    def add(name: str, part_name: str, row: int, parent: str) -> None:
        keep(name, part_name, row)
        names.append(name)
        levels.append(LEVELS[parts[part_name][0].part.level_of[row]])
        above.append(parent)

    keep("00-0-0", "00-0", 0)
    for state in nation.states:
        cut = nation.cut(state)
        state_top = f"{state.code}-{len(cut.members)}"

        def of(geounit: int, code: str = state.code) -> str:
            return "00-0-0" if geounit < 0 else f"{code}/{geounit}"

        if not cut.is_whole:
            for row in parts[state_top][2]:
                add(of(cut.top[row]), state_top, row, of(cut.spine.parent[cut.top[row]]))
        for number, members in enumerate(cut.members):
            piece = f"{state.code}-{number}"
            part = parts[piece][0].part
            for row in range(part.parent.size):
                if row < members.size:
                    add(of(members[row]), piece, row, of(cut.spine.parent[members[row]]))
                else:
                    add(f"{piece}/{row}", piece, row, of(members[part.parent[row]]))
    position = {name: i for i, name in enumerate(names)}
    spine = Spine([position.get(name, -1) for name in above], levels, names)
    problem = Problem(nation.design.schema, nation.measured, spine=spine)
    said = np.empty((3, problem.observed.size))
    for i, (level, table) in enumerate(tables):
        block = problem.observed.index((LEVELS[level], table.name))
        own = [found[spine.geocodes[geounit], i] for geounit in spine.members[level].tolist()]
        said[:, problem.observed.block(block)] = np.moveaxis(np.array(own), 1, 0).reshape(3, -1)
    return problem, said[0], said[1], said[2]


@pytest.mark.parametrize("limit", first_of([LIMIT, 1e9], 1))
def test_the_passes_give_the_estimate_of_the_whole(tmp_path: Path, limit: float) -> None:
    nation = Nation("16", SMALL, limit)
    assert {nation.cut(state).is_whole for state in SMALL} == ({True, False} if limit == LIMIT else {True})
    passes = Remembered(nation, tmp_path / "nation")
    said = passes.run()
    problem, y, x, variances = whole(nation, passes.parts)
    assert problem.spine is not None
    assert problem.spine.size == 1 + sum(state.geounits for state in SMALL)
    expected = estimate(problem, y, "dense", certify=False)
    np.testing.assert_allclose(x, expected.values, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(variances, expected.std_errors**2, rtol=1e-9, atol=1e-9)
    fit = expected.goodness_of_fit()
    assert sum(own["statistic"] for own in said["fit"].values()) == pytest.approx(fit.statistic)
    assert said["certificate"]["bound"] < 1e-6
    rank = problem.spine.members[STATE].tolist().index(problem.spine.geocodes.index("02/0"))
    votingage = problem.observed.tables(expected.values)["State", "votingage"].reshape(len(SMALL), -1)[rank]
    np.testing.assert_allclose(said["tables"]["02"]["votingage"][0], votingage)


def test_errors_and_residuals_are_what_their_variances_say(tmp_path: Path) -> None:
    """Of some 40,000 blocks, whose million cells are not independent."""
    said = Passes(Nation("16", states_within(0.006)), tmp_path / "nation").run()
    block = said["errors"][LEVELS[BLOCK]]
    assert block["cells"] > 1e6
    assert block["squares"] / block["cells"] == pytest.approx(1, abs=0.01)
    assert block["covered"] / block["cells"] == pytest.approx(0.95, abs=0.002)
    assert said["p-value"] > 1e-4
    for fit in said["fit"].values():
        assert abs(fit["statistic"] - fit["expectation"]) < 5 * (2 * fit["expectation"]) ** 0.5


def test_two_thousand_cells_cut_below_counties_are_certified(tmp_path: Path) -> None:
    nation = Nation("2016", [State("11", 3000, 1, 3, 6, 30), State("56", 900, 2, 2, 2, 9)], 6e6)
    assert not nation.cut(nation.states[0]).is_whole
    said = Passes(nation, tmp_path / "nation").run()
    assert said["certificate"]["bound"] < 1e-5
    assert 0.9 < said["errors"]["Block"]["covered"] / said["errors"]["Block"]["cells"] < 1


WORK = """
import sys
from pathlib import Path
from bench.nation_passes import Passes
from tests.test_country import LIMIT, Nation, SMALL
Passes(Nation("16", SMALL, LIMIT), Path(sys.argv[1]), lambda line: print(line, flush=True)).run()
"""


@pytest.mark.few(0)
def test_killed_at_random_and_started_again_it_ends_with_the_same_checksums(tmp_path: Path) -> None:
    Passes(Nation("16", SMALL, LIMIT), tmp_path / "undisturbed").run()
    rng, killed, ended = np.random.default_rng(17), 0, False
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WORK, str(tmp_path / "killed")]
    while not ended:
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as work:
            assert work.stdout is not None
            ended = work.stdout.readline() == ""
            if not ended and killed < 4:
                time.sleep(rng.uniform(0, 0.01))
                work.send_signal(signal.SIGKILL)
                killed += 1
            else:
                ended = True
                work.stdout.read()
        assert work.returncode in (0, -signal.SIGKILL)
    assert killed >= 2
    Passes(Nation("16", SMALL, LIMIT), tmp_path / "killed").run()
    assert (tmp_path / "killed" / RESULT).read_bytes() == (tmp_path / "undisturbed" / RESULT).read_bytes()


def test_the_work_of_another_nation_is_not_taken_up(tmp_path: Path) -> None:
    Passes(Nation("16", SMALL[:1], LIMIT), tmp_path / "nation").run()
    with pytest.raises(ValueError, match="holds the work of another input"):
        Passes(Nation("16", SMALL[1:], LIMIT), tmp_path / "nation").run()


def test_a_folder_of_something_else_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        main(["--quick", "--folder", str(tmp_path)])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(
        f"error: {tmp_path}: it is there already: remove it, or choose another name\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_states_share_the_nations_geounits_in_proportion_to_their_persons() -> None:
    states = all_states()
    assert len(states) == 51
    persons = np.array([state.persons for state in states])
    assert persons.sum() == 331_449_281
    for name, count in GEOUNITS.items():
        own = np.array([getattr(state, {"County": "counties", "Tract": "tracts", "Block_Group": "groups",
                                        "Block": "blocks"}[name]) for state in states])  # fmt: skip
        assert own.sum() == count
        assert abs(own - count * persons / 331_449_281).max() < 1
    assert 0.098 < sum(state.blocks for state in states_within(0.1)) / GEOUNITS["Block"] <= 0.1


def test_quick_prints_seconds_a_projection_and_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick"])
    printed = capsys.readouterr().out
    assert re.search(r"^projected to the country: 0\.\d\d hours of one processor$", printed, re.MULTILINE)
    assert re.search(r"^country +8,132,968 ", printed, re.MULTILINE)
    assert re.search(r"p = 0\.\d{3}; at most \d+e-\d+ standard errors off; sha256", printed)


@pytest.mark.parametrize("wrong", [["--share", "0"], ["--share", "0.0001"], ["--states", "52"], ["--cells", "17"]])
def test_wrong_options_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_the_folder_keeps_small_records_of_states_only(tmp_path: Path) -> None:
    Passes(Nation("16", SMALL, LIMIT), tmp_path / "nation").run()
    kept = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    records = {f"nation/.work/{step}/{state.code}" for step in ("up", "down") for state in SMALL}
    assert kept - {"nation/.work/lock"} == {*records, "nation/.work/run.json", f"nation/{RESULT}"}
    assert json.loads((tmp_path / "nation" / RESULT).read_text())["nation"]["seed"] == 2020
