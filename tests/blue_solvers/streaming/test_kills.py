"""Whatever happens to a streamed run, it ends with the bytes of an undisturbed one or is refused in one line."""

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from blue_solvers.cli import main
from blue_solvers.results.checksums import sha256
from blue_solvers.streaming import partition, stream
from tests.blue_solvers.streaming.small_release import TIGHT, write_release
from tests.helpers.disturbances import ONE_LINE, SIGNALS, begin, damage, digests, end, files_of, replace_unseen, seconds
from tests.helpers.effort import first_of, lengths
from tests.helpers.partitioned import invented_problem
from tests.helpers.spines import consistent_measurements


@dataclass(frozen=True)
class Job:
    """A release, an undisturbed run, and files of other measurements.

    Attributes
    ----------
    folder : Path
    whole : dict of str to str
        SHA-256 of every file of an undisturbed run.
    seconds : float
        Of an undisturbed run.
    others : dict of Path to Path
        For every file of measurements one of the same size with other values.
    """

    folder: Path
    whole: dict[str, str]
    seconds: float
    others: dict[Path, Path]

    def command(self, out: Path) -> list[str]:
        """The arguments of a run."""
        return ["estimate", str(self.folder / "release"), "--out", str(out), "--memory", str(TIGHT)]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("job")
    for seed, name in enumerate(("release", "other")):
        write_release(folder / name, seed)
    files = [path for path in files_of(folder / "release") if path.suffix == ".parquet"]
    others = {path: folder / "other" / path.relative_to(folder / "release") for path in files}
    others = {path: other for path, other in others.items() if path.stat().st_size == other.stat().st_size}
    assert len(others) > 1
    assert all(path.read_bytes() != other.read_bytes() for path, other in others.items())
    bare = Job(folder, {}, 0.0, others)
    taken = seconds(bare.command(folder / "whole"))
    return Job(folder, digests(folder / "whole"), taken, others)


def disturb(job: Job, out: Path, seed: int, kills: int) -> int:
    """Kill, damage and replace, run after run, until one is done or refused; tells how many were killed."""
    rng = random.Random(seed)
    killed, story = 0, []
    for attempt in range(kills + 1):
        replaced = None
        if attempt and (out / ".work" / "run.json").exists():
            what = rng.choice(["nothing", "nothing", "damage", "replace"])
            if what == "damage":
                story.append(damage(out, rng))
            if what == "replace":
                replaced = rng.choice(list(job.others))
                shutil.copyfile(replaced, out.with_suffix(".kept"))
                story.append(f"replace {replaced}")
        if replaced is not None:
            replace_unseen(replaced, job.others[replaced])
            try:
                ended = end(begin(job.command(out)))
            finally:
                shutil.copyfile(out.with_suffix(".kept"), replaced)
            ended.require_ordinary()
            assert ended.code == 2, story
            assert "holds the work of another input" in ended.said or "damaged" in ended.said, (ended, story)
        number = rng.choice(SIGNALS) if attempt < kills else None
        moment = rng.uniform(0.2, 1.1) * job.seconds
        ended = end(begin(job.command(out)), moment, number)
        story.append(str(ended))
        ended.require_ordinary()
        if ended.code not in (0, 2):
            killed += 1
            continue
        assert ended.code == 0 or str(out) in ended.said, story
        if ended.code == 0 or "it is there already" in ended.said:  # the run before was killed when all was done
            assert digests(out) == job.whole, story
        break
    assert not [path for path in out.parent.iterdir() if path.name.startswith(".")], story
    return killed


@pytest.mark.few(0)
@pytest.mark.parametrize("seed", first_of([*range(7), *range(1000, 1060)], 1))
def test_a_disturbed_run_ends_as_an_undisturbed_one_or_is_refused(job: Job, seed: int, tmp_path: Path) -> None:
    disturb(job, tmp_path / "out", seed, 3 if seed < 7 else 5)


@pytest.fixture(scope="module")
def killed_runs(job: Job) -> list[Path]:
    """What runs would leave that were killed just before, or in the middle of, some of their steps."""
    out = job.folder / "running"
    steps: list[Path] = []
    taken = {"replace": os.replace, "rename": os.rename}

    def counted(name: str) -> Callable[[Path, Path], None]:
        def step(source: Path, target: Path) -> None:
            steps.append(shutil.copytree(out, job.folder / f"killed{len(steps)}"))
            taken[name](source, target)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in taken:
            patch.setattr(os, name, counted(name))
        assert main(job.command(out)) == 0
    assert digests(out) == job.whole
    last = shutil.copytree(steps[-1], job.folder / "killed last")
    shutil.copy(out / "result.json", last)
    return [*steps, last]


def resume_damaged(job: Job, state: Path, out: Path, rng: random.Random, capsys: pytest.CaptureFixture) -> bool:
    """Damage what a killed run left, and run again; whether that gave the right bytes, and did not refuse."""
    shutil.copytree(state, out)
    done = f"{state.name}: {damage(out, rng)}"
    capsys.readouterr()
    code = main(job.command(out))
    said = capsys.readouterr().err
    if code == 0:
        assert digests(out) == job.whole, done
    else:
        assert code == 2, (done, said)
        assert ONE_LINE.fullmatch(said), (done, said)
        assert str(out) in said, (done, said)
    shutil.rmtree(out, ignore_errors=True)
    return code == 0


@pytest.mark.few(0)
@lengths("every", 4, 1)
def test_what_killed_runs_left_is_believed_only_if_it_is_intact(
    every: int, job: Job, killed_runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    rng, damages = random.Random(1), 1 if every > 1 else 30
    states = killed_runs[::every] * damages
    right = [resume_damaged(job, state, tmp_path / state.name, rng, capsys) for state in states]
    assert sum(right) > len(right) / 2


@pytest.mark.few(1)
@lengths("damages", 5, 40)
@pytest.mark.parametrize("place", ["in", "out"])
def test_damaged_parts_give_the_right_bytes_or_an_error(place: str, damages: int, tmp_path: Path) -> None:
    problem = invented_problem(2, 25)
    partition(tmp_path / "in", problem, consistent_measurements(problem, 1), at=problem.spine.levels[1])
    stream(tmp_path / "in", tmp_path / "out")
    right = {**digests(tmp_path / "out" / "L0.parquet"), "all": (tmp_path / "out" / "checksums.json").read_text()}
    rng = random.Random(3)
    refused = 0
    for number in range(damages):
        folder = tmp_path / str(number)
        for name in ("in", "out"):
            shutil.copytree(tmp_path / name, folder / name)
        done = damage(folder / place, rng)
        if place == "in":
            shutil.rmtree(folder / "out")
        reason = ""
        try:
            stream(folder / "in", folder / "out")
        except ValueError as error:
            reason = str(error)
        if reason:
            assert str(folder) in reason, done
            refused += 1
            continue
        found = {**digests(folder / "out" / "L0.parquet"), "all": (folder / "out" / "checksums.json").read_text()}
        assert found == right, done
        files = json.loads(found["all"])["files"]
        assert all(sha256(folder / "out" / path) == digest for path, digest in files.items()), done
    assert refused > damages / 4 if place == "in" else refused < damages / 4


@pytest.mark.parametrize("seed", first_of(range(3), 1))
@pytest.mark.slow
def test_of_two_runs_into_one_folder_one_is_refused(job: Job, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    out = tmp_path / "out"
    first = begin(job.command(out))
    time.sleep(rng.uniform(0, 0.8) * job.seconds)
    ends = [end(run) for run in (begin(job.command(out)), first)]
    for ended in ends:
        ended.require_ordinary()
    assert sorted(ended.code for ended in ends) == [0, 2]
    refused = next(ended for ended in ends if ended.code == 2)
    assert f"process {first.pid} on " in refused.said or "is at work" in refused.said or "already" in refused.said
    assert digests(out) == job.whole


def ask(result: Path, capsys: pytest.CaptureFixture) -> tuple[int, str, str]:
    """Exit code, answer and complaint of a question."""
    capsys.readouterr()
    asked = ["--count", "total", "--count", "sex=male,adult=2-4", "--geolevel", "Block", "--geounits"]
    code = main(["query", str(result), *asked, *(f"44001{number:04}" for number in range(9)), "440030004"])
    said = capsys.readouterr()
    return code, said.out, said.err


@lengths("damages", 3, 60)
@pytest.mark.parametrize("kind", ["memory", "streamed"])
def test_a_damaged_result_answers_as_before_or_not_at_all(
    job: Job, kind: str, damages: int, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    whole = job.folder / "whole"
    if kind == "memory":
        whole = tmp_path / "memory"
        assert main(["estimate", str(job.folder / "release"), "--out", str(whole)]) == 0
    right = ask(whole, capsys)
    assert right[0] == 0
    rng = random.Random(5)
    refused = 0
    for number in range(damages):
        result = tmp_path / str(number)
        shutil.copytree(whole, result)
        done = damage(result, rng)
        code, answer, complaint = ask(result, capsys)
        if code == 0:
            assert (answer, complaint) == right[1:], done
        else:
            refused += 1
            assert code == 2, (done, complaint)
            assert ONE_LINE.fullmatch(complaint), (done, complaint)
            assert str(result) in complaint, (done, complaint)
    assert refused > damages / 3


def tampered(column: str, change, name: str = "estimates/Block.parquet"):
    def tamper(result: Path) -> None:
        path = next(path for path in (result / name, *sorted((result / name).glob("*"))) if path.is_file())
        pl.read_parquet(path).with_columns(change(pl.col(column)).alias(column)).write_parquet(path)

    return tamper


def repeat_geounits(result: Path) -> None:
    path = result / "variances.parquet"
    frame = pl.read_parquet(path)
    pl.concat([frame, frame.with_columns(variance=pl.col("variance") / 9)]).write_parquet(path)


def swap_labels(result: Path) -> None:
    path = result / "settings.toml"
    text = path.read_text().replace('"female", "male"', '"male", "female"')
    assert text != path.read_text()
    path.write_text(text)


TAMPERINGS = {
    "nan": tampered("estimate", lambda own: own.list.eval(pl.element() * float("nan"))),
    "shifted": tampered("estimate", lambda own: own.list.eval(pl.element() + 100)),
    "swapped": tampered("estimate", lambda own: own.reverse()),
    "renamed": tampered("geocode", lambda own: own.reverse()),
    "negative variance": tampered("variance", lambda own: own * 0 - 1, "variances.parquet"),
    "other variance": tampered("variance", lambda own: own / 4, "variances.parquet"),
    "spine": tampered("geocode", lambda own: own.reverse(), "spine.parquet"),
    "repeated geounits": repeat_geounits,
    "swapped labels": swap_labels,
}


@pytest.mark.few(9)
@pytest.mark.parametrize("kind", ["memory", "whole"])  # worked out at once, and streamed
@pytest.mark.parametrize("how", TAMPERINGS)
def test_a_tampered_result_is_refused(
    job: Job, kind: str, how: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    result = tmp_path / "result"
    if not (job.folder / kind).exists():
        assert main(["estimate", str(job.folder / "release"), "--out", str(job.folder / kind)]) == 0
    shutil.copytree(job.folder / kind, result)
    assert ask(result, capsys)[0] == 0
    TAMPERINGS[how](result)
    code, answer, complaint = ask(result, capsys)
    assert (code, answer) == (2, "")
    assert ONE_LINE.fullmatch(complaint)
    assert "is not what was written: its checksum differs" in complaint


def test_a_refused_input_leaves_nothing_in_the_way_of_the_right_one(job: Job, tmp_path: Path) -> None:
    shutil.copytree(job.folder / "release", tmp_path / "release")
    path = next(path for path in files_of(tmp_path / "release") if "Block" in str(path))
    right = path.read_bytes()
    frame = pl.read_parquet(path, hive_partitioning=False)
    wrong = {
        "negative variance": frame.with_columns(variance=-pl.col("variance")),
        "no column": frame.drop("variance"),
        "given twice": pl.concat([frame, frame]),
        "too few values": frame.with_columns(pl.col("value").list.head(1)),
        "far off": frame.with_columns(pl.col("value").list.eval(pl.element() + 10**6)),
    }
    out = tmp_path / "out"
    command = ["estimate", str(tmp_path / "release"), "--out", str(out), "--memory", str(TIGHT)]
    for reason, other in wrong.items():
        other.write_parquet(path)
        assert main(command) == 2, reason
        assert sorted(os.listdir(tmp_path)) == ["release"], reason
    path.write_bytes(right)
    assert main(command) == 0
    assert digests(out) == job.whole


def test_what_a_run_left_that_was_killed_as_it_ended_is_removed(job: Job, tmp_path: Path) -> None:
    """All is done, and of its folder of work the file that says whose it is has been removed, the rest not."""
    out = tmp_path / "out"
    assert main(job.command(out)) == 0
    (out / ".work" / "parts").mkdir(parents=True)
    (out / ".work" / "parts" / "manifest.json").write_text("{}")
    assert main(job.command(out)) == 2  # it is there already
    assert digests(out) == job.whole
    assert not (out / ".work").exists()
