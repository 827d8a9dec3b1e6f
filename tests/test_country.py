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

from bench.country import CHECKSUMS, RESULT, Passes, main
from bench.synthetic_nation import GEOUNITS, LEVELS, Nation, State, all_states, states_within
from blue_solvers import estimate
from blue_solvers.streaming.manifest import TOP
from constraint_builders import Problem, Spine
from tests.helpers.effort import first_of
from tests.helpers.places import ROOT

SMALL = [State("01", 400, 1, 2, 3, 8), State("02", 900, 3, 5, 8, 21), State("04", 600, 2, 4, 6, 13)]
LIMIT = 50e3  # by which siblings go together


class Remembered(Passes):
    """Passes that also keep what was estimated, part by part."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.made: dict[str, tuple[Any, ...]] = {}

    def _store(self, output: str, part: Any, result: Any, kept: Any) -> dict[str, str]:
        self.made[output] = (part, result, kept.tolist(), self.nation.made(output).truth)
        return super()._store(output, part, result, kept)


def whole(nation: Nation, made: dict[str, tuple[Any, ...]]) -> tuple[Problem, np.ndarray]:
    """The nation as one problem; its measurements and what the passes say, estimates and variances, and the truth."""
    design = nation.design

    def above(name: str, row: int) -> tuple[str, int] | None:
        """The geounit that a row of a part lies in: what stands for siblings is none."""
        while (parent := int(made[name][0].parent[row])) >= 0 or name != TOP:
            name, row = (name, parent) if parent >= 0 else (TOP, nation.parts[name].leaf)
            if parent >= 0 and made[name][0].level_of[row] not in design.put_in:
                return name, row
        return None

    places = [(name, row) for name, (part, _, kept, _) in made.items() for row in kept
              if part.level_of[row] not in design.put_in]  # fmt: skip
    places.sort(key=lambda own: int(made[own[0]][0].level_of[own[1]]))
    number = {place: i for i, place in enumerate(places)}
    found = [above(*place) for place in places]
    levels = [int(made[name][0].level_of[row]) for name, row in places]
    spine = Spine([-1 if own is None else number[own] for own in found], [design.levels[own] for own in levels])
    problem = Problem(design.schema, nation.measured, spine=spine)
    said = np.empty((4, problem.observed.size))
    for i, (level, table) in enumerate(design.observed):
        rows = []
        for name, row in (own for own, at in zip(places, levels, strict=True) if at == level):
            part, result, _, truth = made[name]
            rank = row - part.members(level).start
            rows.append([of[i][rank] for of in (part.values, result.cells, result.variances, truth)])
        block = problem.observed.block(problem.observed.index((design.levels[level], table.name)))
        said[:, block] = np.moveaxis(np.array(rows), 1, 0).reshape(4, -1)
    return problem, said


@pytest.mark.parametrize("limit", first_of([LIMIT, 1e9], 1))
def test_the_passes_give_the_estimate_of_the_whole(tmp_path: Path, limit: float) -> None:
    nation = Nation("16", SMALL, limit)
    assert (len(nation.parts) > len(SMALL)) == bool(nation.design.put_in) == (limit == LIMIT)
    passes = Remembered(nation, tmp_path / "nation")
    said = passes.run()
    problem, (y, x, variances, truth) = whole(nation, passes.made)
    geounits = sum(1 + own.counties + own.tracts + own.groups + own.blocks for own in SMALL)
    assert problem.spine.size == 1 + geounits
    expected = estimate(problem, y, "dense", certify=False)
    np.testing.assert_allclose(x, expected.values, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(variances, expected.std_errors**2, rtol=1e-9, atol=1e-9)
    fit = expected.goodness_of_fit()
    assert sum(own["statistic"] for own in said["fit"].values()) == pytest.approx(fit.statistic)
    assert said["certificate"]["bound"] < 1e-6
    within = abs(x - truth) <= 1.959963984540054 * np.sqrt(variances)
    covered = sum(own["covered"] for own in said["errors"].values())
    assert covered == np.count_nonzero(within[variances > 0])


def test_errors_and_residuals_are_what_their_variances_say(tmp_path: Path) -> None:
    """Of some 40,000 blocks, whose million cells are not independent."""
    said = Passes(Nation("16", states_within(0.006)), tmp_path / "nation").run()
    block = said["errors"][LEVELS[-1]]
    assert block["cells"] > 1e6
    assert block["squares"] / block["cells"] == pytest.approx(1, abs=0.01)
    assert block["covered"] / block["cells"] == pytest.approx(0.95, abs=0.002)
    assert said["p-value"] > 1e-4
    for fit in said["fit"].values():
        assert abs(fit["statistic"] - fit["expectation"]) < 5 * (2 * fit["expectation"]) ** 0.5


def test_two_thousand_cells_cut_below_counties_are_certified(tmp_path: Path) -> None:
    nation = Nation("2016", [State("11", 3000, 1, 3, 6, 30), State("56", 900, 2, 2, 2, 9)], 6e6)
    assert len(nation.parts) > 2
    said = Passes(nation, tmp_path / "nation").run()
    assert said["certificate"]["bound"] < 1e-5
    assert 0.9 < said["errors"]["Block"]["covered"] / said["errors"]["Block"]["cells"] < 1


WORK = """
import sys
from pathlib import Path
from bench.country import Passes
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


@pytest.mark.parametrize("wrong", [["--share", "0"], ["--share", "0.0001"], ["--cells", "17"]])
def test_wrong_options_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_the_folder_keeps_small_records_of_parts_only(tmp_path: Path) -> None:
    Passes(Nation("16", SMALL, LIMIT), tmp_path / "nation").run()
    files = (path for path in tmp_path.rglob("*") if path.is_file())
    kept = {path.relative_to(tmp_path / "nation").as_posix(): path.stat().st_size for path in files}
    parts = Nation("16", SMALL, LIMIT).parts
    steps = ("up", "down", "roots", "seconds", "proofs")
    records = {*(f"{step}/{name}" for step in steps for name in parts), "claimed"}
    records |= {f"{step}/{name}" for step in ("done", "reduced") for name in (*parts, TOP)}
    expected = {*(f".work/{name}" for name in records), ".work/run.json", RESULT, CHECKSUMS}
    assert set(kept) - {".work/lock"} == expected
    assert max(kept.values()) < 20_000
    assert json.loads((tmp_path / "nation" / RESULT).read_text())["nation"]["seed"] == 2020
