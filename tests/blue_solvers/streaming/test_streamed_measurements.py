"""Noisy measurement files streamed to a stored result: as in memory, in limited memory, and again after a kill."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main
from blue_solvers.results.questions import Result
from blue_solvers.streaming import PartitionError, Partitions, estimate_measurements
from blue_solvers.streaming.measured_folder import READER, InputFiles
from blue_solvers.streaming.value_files import ValueFiles
from constraint_builders import Problem, Spine
from constraint_builders.files import measured_level, read_settings, write_noisy_measurements
from tests.blue_solvers.streaming.uneven_release import SETTINGS, TIGHT, invented_release, settings_of
from tests.helpers.disturbances import digests
from tests.helpers.effort import first_of
from tests.helpers.partitioned import peak_of_the_second
from tests.helpers.refused import refuses
from tests.helpers.refused_commands import refusal


def stored(result: Path) -> dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]:
    """Estimates and standard errors by geolevel, table and geocode."""
    return {
        (place.stem, table, code): (np.array(estimate), np.array(error))
        for place in (result / "estimates").glob("*.parquet")
        for table, code, estimate, error in pl.read_parquet(place).iter_rows()
    }


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job") / "release"
    invented_release(folder, 0)
    return folder


@pytest.fixture(scope="module")
def whole(release: Path) -> Path:
    """An undisturbed run."""
    settings = read_settings(release / "settings.toml")
    estimate_measurements(release, settings, release.parent / "whole", memory=TIGHT)
    return release.parent / "whole"


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", first_of(range(4), 1))
@pytest.mark.parametrize("desired", [None, "all", ["total", "adult"]])
def test_answers_are_those_in_memory(
    seed: int, desired: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(measured_level, "LARGEST_BATCH", 8 * 10 * 7)  # seven rows of a file at a time
    invented_release(tmp_path / "release", seed)
    wanted = [] if desired is None else [f"--desired={name}" for name in ([desired] if desired == "all" else desired)]
    said = []
    for name, memory in {"memory": [], "streamed": ["--memory", str(TIGHT)]}.items():
        capsys.readouterr()
        assert main(["estimate", str(tmp_path / "release"), "--out", str(tmp_path / name), *wanted, *memory]) == 0
        printed = capsys.readouterr().out.splitlines()
        said.append([line for line in printed if line.startswith(("observed", "empty", "not used"))])
    assert said[0] == said[1]
    assert len(list((tmp_path / "streamed" / "estimates" / "Block.parquet").iterdir())) > 3
    expected, found = stored(tmp_path / "memory"), stored(tmp_path / "streamed")
    assert found.keys() == expected.keys()
    for key, (estimate, error) in expected.items():
        # Rounding, as in test_streaming: messages pass through cells once more.
        assert (abs(found[key][0] - estimate) <= 1e-9 * error + 1e-9).all()
        np.testing.assert_allclose(found[key][1] ** 2, error**2, rtol=1e-8, atol=1e-9)
    first, second = Result(tmp_path / "memory"), Result(tmp_path / "streamed")
    blocks = np.arange(0, 60, 7)
    adults: dict[str, list[str]] = {"adult": ["2-4"]}
    answers = [result.ask("Block", blocks, [{}, adults]) for result in (first, second)]
    refuses("geounits of 'Block' are numbered from 0 to", first.ask, "Block", np.array([-1]), [{}])
    np.testing.assert_allclose(answers[0].estimate, answers[1].estimate, rtol=1e-9)
    np.testing.assert_array_equal(answers[0].covariance, answers[1].covariance)


def test_a_part_of_the_country_and_what_is_told_of_it(release: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    asked = ["estimate", str(release), "--within", "14", "--out"]
    assert main([*asked, str(tmp_path / "memory")]) == 0
    estimate_measurements(
        release,
        settings_of(),
        tmp_path / "streamed",
        memory=TIGHT,
        within=["14"],
        progress=lambda *step: told.append(step),
    )
    expected, found = stored(tmp_path / "memory"), stored(tmp_path / "streamed")
    assert found.keys() == expected.keys()
    assert all(np.allclose(found[key][0], expected[key][0], rtol=1e-9, atol=1e-8) for key in expected)
    assert {code[:2] for _, _, code in found} == {"14"}
    reading = [f"reading {level}" for level in ("US", "State", "County", "Block")]
    assert told[:4] == [(step, number, 4) for number, step in enumerate(reading)]
    assert told[-1] == ("done", told[-1][2], told[-1][2])


def test_damaged_parts_are_named_and_made_anew(release: Path, whole: Path, tmp_path: Path) -> None:
    out, parts = tmp_path / "out", tmp_path / "out" / ".work" / "parts"

    def damage(step: str, done: int, count: int) -> None:
        if step.startswith("up part 00000"):
            path = parts / next(iter(Partitions.open(parts).parts["00002"].files))
            path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(PartitionError, match=r"part 00002 .* is not what was written.* or remove .*parts") as caught:
        estimate_measurements(release, settings_of(), out, memory=TIGHT, progress=damage)
    assert list(caught.value.parts) == ["00002"]
    refuses(r"result\.json", Result, out, error=FileNotFoundError)
    shutil.rmtree(parts)
    estimate_measurements(release, read_settings(release / "settings.toml"), out, memory=TIGHT)
    assert digests(out) == digests(whole)


@pytest.mark.parametrize("change", ["written to", "as long as before", "replaced", "gone"])
def test_files_that_change_while_they_are_read_are_refused(tmp_path: Path, change: str) -> None:
    kept, changed = tmp_path / "kept", tmp_path / "changed"
    for path in (kept, changed):
        path.write_bytes(b"as it was")
    files = InputFiles({}, {path: path.stat() for path in (kept, changed)})
    files.require_unchanged()
    if change in ("replaced", "gone"):
        changed.rename(tmp_path / "away")
    if change == "replaced":
        shutil.copy2(kept, changed)
    elif change != "gone":
        changed.write_bytes(b"as it is!" if change == "as long as before" else b"longer than before")
    refuses("changed: it changed while it was read", files.require_unchanged)


def test_damaged_files_are_named(release: Path, tmp_path: Path) -> None:
    shutil.copytree(release, tmp_path / "release")
    path = next((tmp_path / "release" / "Block.parquet").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=f"{path}: not readable as a table"):
        estimate_measurements(tmp_path / "release", settings_of(), tmp_path / "out", memory=TIGHT)


def test_refusals(release: Path, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="it is there already"):
        estimate_measurements(release, settings_of(), whole, memory=TIGHT)
    with pytest.raises(MemoryError, match=r"the spine, the variances and the zeros need .* or more and the limit is"):
        estimate_measurements(release, settings_of(), tmp_path / "out", memory=READER + 5e4)
    with pytest.raises(MemoryError, match=r"alone needs .* and the limit is 40\.95 MiB"):
        estimate_measurements(release, settings_of(), tmp_path / "out", memory=READER + 1e6)
    with pytest.raises(MemoryError, match="reading files alone needs 40 MiB and the limit is 20 MiB"):
        estimate_measurements(release, settings_of(), tmp_path / "out", memory=20 << 20)
    assert not (tmp_path / "out").exists()

    def interrupt(step: str, done: int, count: int) -> None:
        if step.startswith("top"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimate_measurements(release, settings_of(), tmp_path / "out", memory=TIGHT, progress=interrupt)
    with pytest.raises(
        ValueError, match=r"holds the work of another input, or of other wishes \(desired tables differ"
    ):
        estimate_measurements(release, settings_of(), tmp_path / "out", memory=TIGHT, desired=["total"])
    with pytest.raises(ValueError, match="adults"):
        estimate_measurements(release, settings_of(), tmp_path / "other", memory=TIGHT, desired=["adults"])
    estimate_measurements(release, settings_of(), tmp_path / "out", memory=TIGHT)


def test_the_command_refuses_other_solvers(release: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    asked = ["estimate", str(release), "--out", str(tmp_path / "out"), "--memory", "1e9", "--solver", "cholesky"]
    assert "--memory streams the passes of 'two_pass': leave --solver cholesky out" in refusal(capsys, *asked)
    with pytest.raises(SystemExit):
        main(["estimate", str(release), "--out", str(tmp_path / "out"), "--memory", "much"])
    assert "must be a number of bytes, 4e9 for instance: got much" in capsys.readouterr().err


def test_values_are_kept_in_any_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values, kept = rng.integers(-9, 9, (50, 3)), ValueFiles(tmp_path)
    for ranks in np.array_split(rng.permutation(40), 7):
        kept.write("A", "t", ranks, values[ranks])
        kept.write("B", "t", ranks, 2.0 * values[ranks, :1])
    assert np.array_equal(kept.read("A", "t", np.arange(40)), values[:40])
    chosen = rng.permutation(40)[:9]
    assert np.array_equal(kept.read("B", "t", chosen), 2 * values[chosen, :1])
    assert np.array_equal(kept.read("A", "t", np.array([45, 3])), [[0, 0, 0], values[3]])


@pytest.mark.parametrize("odd", [0.5, -(2.0**31) - 1, 2.0**31, 1e300])
def test_values_that_are_not_small_and_whole_are_kept_as_they_are(tmp_path: Path, odd: float) -> None:
    values, kept = np.arange(-30.0, 30.0).reshape(20, 3), ValueFiles(tmp_path)
    values[0, 0], values[0, 1] = 2**31 - 1, -(2**31)
    kept.write("A", "t", np.arange(10), values[:10])
    assert kept.read("A", "t", np.arange(10)).dtype == np.int32
    values[13, 2] = odd
    kept.write("A", "t", np.arange(10, 15), values[10:15])
    kept.write("A", "t", np.arange(15, 20)[::-1], values[15:][::-1].astype(int))
    assert np.array_equal(kept.read("A", "t", np.arange(20)), values)
    share = np.full(3, 0.25)
    kept.write("A", "t", np.arange(3), np.zeros((3, 3), dtype=int), share)
    assert np.array_equal(kept.read("A", "t", np.arange(3)), 0.75 * values[:3])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc")
@pytest.mark.slow
def test_the_memory_limit_is_kept(release: Path, tmp_path: Path) -> None:
    """Peak memory of a second run in one process, beside that of a small first one, which loads all that is needed."""
    text = SETTINGS.replace("age = 5", "age = 1000").replace("0-1 | 2-4", "0-17 | 18-999")
    settings = settings_of(text)
    counties = [f"04{county:03}" for county in range(55)]
    blocks = [f"{county}{block:04}" for county in counties for block in range(150)]
    spine = Spine.from_geocodes({"State": ["04"], "County": counties, "Block": blocks})
    observed = {level: settings.variances()[level] for level in spine.levels}
    problem = Problem(settings.schema, observed, {"State": ["total"]}, spine=spine, noise=settings.noise)
    y = np.round(np.random.default_rng(1).normal(0, np.sqrt(problem.variances)))
    write_noisy_measurements(tmp_path / "release", problem, y)
    (tmp_path / "release" / "settings.toml").write_text(text)
    limit = 1e8
    assert 8 * y.size > 1.1 * limit

    call = "files, out, memory = arguments; "
    call += "estimate_measurements(files, read_settings(files + '/settings.toml'), out, memory=memory)"

    def taken(run: str) -> int:
        small = [str(release), str(tmp_path / f"small {run}"), TIGHT]
        return peak_of_the_second(call, small, [str(tmp_path / "release"), str(tmp_path / run), limit])

    peak = taken("run")
    if peak > limit:
        peak = taken("with all kernels on disk")
    assert limit / 20 < peak <= limit  # far less would mean that nothing was measured
