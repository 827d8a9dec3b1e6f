"""The passes on a cluster of worker processes: the same answer, also when a worker is killed midway."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from blue_solvers import UnsupportedProblemError, blue
from blue_solvers.streaming import PartitionError, Partitions, partition, stream
from blue_solvers.streaming.job import Job
from blue_solvers.streaming.run import work_through
from constraint_builders import Areas, Problem, Schema, Spine
from tests.blue_solvers.streaming.split_counties import write_counties
from tests.helpers.effort import first_of
from tests.helpers.partitioned import assert_same, digests, invented_problem
from tests.helpers.places import ROOT
from tests.helpers.spines import consistent_measurements

distributed = pytest.importorskip("distributed", reason="a cluster needs Dask: pip install 'blue-solvers[cluster]'")
import blue_solvers.streaming.cluster  # noqa: E402  after the test for Dask
from blue_solvers.streaming.cluster import ClusterError, estimate  # noqa: E402


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A worker process that imports this checkout."""
    with local_cluster(tmp_path_factory.mktemp("worker"), 1) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory):
    """Two of them, for what needs several or is no part of the default run."""
    with local_cluster(tmp_path_factory.mktemp("workers")) as cluster, distributed.Client(cluster) as client:
        yield client


@contextmanager
def local_cluster(space: Path, workers: int = 2, connect: str = "30s") -> Iterator[Any]:
    """Processes that are spawned: a fork of a process with polars' threads would wait for them for ever."""
    import dask

    options = {
        "distributed.admin.tick.limit": "30s",
        "distributed.comm.timeouts.connect": connect,
        "distributed.worker.multiprocessing-method": "spawn",
    }
    with pytest.MonkeyPatch.context() as patch, dask.config.set(options):
        patch.setenv("PYTHONPATH", str(ROOT))
        with distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", local_directory=space, silence_logs=50
        ) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A partitioned problem and its measurements."""
    folder = tmp_path_factory.mktemp("job")
    problem = invented_problem()
    y = consistent_measurements(problem, 1)
    partition(folder / "in", problem, y, at=problem.spine.levels[3])
    return folder, problem, y


@pytest.mark.parametrize("level", [0, 1, 3, 4])
@pytest.mark.slow
def test_equals_the_passes_in_memory(two_workers, level: int, tmp_path: Path) -> None:
    problem = invented_problem(3, 30)
    y = consistent_measurements(problem, level)
    partition(tmp_path / "in", problem, y, at=problem.spine.levels[level])
    steps: list[tuple[str, int, int]] = []
    estimate(two_workers, tmp_path / "in", tmp_path / "out", progress=lambda *step: steps.append(step))
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
    assert {step for step, _, _ in steps} == {"up", "down"}
    assert steps[-1][1] == steps[-1][2]


def test_areas_give_the_bytes_of_one_process(two_workers, tmp_path: Path) -> None:
    """Parts are estimated together, and counted one by one."""
    block = np.arange(24)
    layers = {"Tract": block // 6, "Group": block // 2, "Other": 10 * (block // 6) + (block % 6 + 1) // 3}
    tables = {"Tract": {"total": 1.0}, "Group": {"sex": 2.0}, "Other": {"sex": 3.0}, "Leaf": {"sex": 4.0}}
    problem = Problem(Schema({"sex": 2}), tables, areas=Areas(block.size, layers))
    partition(tmp_path / "in", problem, np.random.default_rng(0).normal(9, 1, problem.observed.size), at="Tract")
    stream(tmp_path / "in", tmp_path / "one")
    steps: list[tuple[str, int, int]] = []
    estimate(two_workers, tmp_path / "in", tmp_path / "out", progress=lambda *step: steps.append(step))
    assert digests(tmp_path / "out") == digests(tmp_path / "one")
    assert steps == [("up", 4, 4), ("down", 4, 4)]
    path = tmp_path / "in" / "parts" / "00002.npz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PartitionError, match="1 of 4 parts cannot be read: part 00002") as caught:
        estimate(two_workers, tmp_path / "in", tmp_path / "other")
    assert caught.value.parts.keys() == {"00002"}


def test_equalities_are_refused(client, tmp_path: Path) -> None:
    spine = Spine([-1, 0, 0], ["A", "B", "B"])
    schema = Schema({"a": 2})
    problem = Problem(schema, {"A": {"a": 1.0}, "B": {"a": 1.0}}, spine=spine, equalities=(np.ones((1, 6)), [5.0]))
    partition(tmp_path / "in", problem, np.arange(6.0), at="B")
    with pytest.raises(UnsupportedProblemError, match=r"equalities are for `streaming\.stream`"):
        estimate(client, tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("moment", ["up", "down"])
@pytest.mark.slow
def test_a_worker_killed_midway(two_workers, job, tmp_path: Path, moment: str) -> None:
    folder, problem, y = job
    killed: list[int] = []

    def kill(step: str, done: int, count: int) -> None:
        if step == moment and done == count // 3 and not killed:
            killed.append(next(iter(two_workers.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    estimate(two_workers, folder / "in", tmp_path / "out", progress=kill)
    assert len(killed) == 1
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
    two_workers.wait_for_workers(2, timeout=30)
    assert killed[0] not in two_workers.run(os.getpid).values()


@pytest.mark.few(0)
def test_a_geounit_too_large_for_a_task_is_split_by_table(two_workers, tmp_path: Path) -> None:
    schema = Schema({"a": 4, "b": 5, "c": 6})
    spine = Spine([-1, 0, 0], ["State", "County", "County"], ["44", "44001", "44003"])
    tables = {"a * b": 1.0, "a * c": 2.0, "b * c": 3.0, "detailed": [4.0, np.inf], "a": [0.0, 5.0]}
    problem = Problem(schema, {"State": {"detailed": 2.0}, "County": tables}, spine=spine)
    y = consistent_measurements(problem, 4)
    cut = partition(tmp_path / "in", problem, y, at="County")
    largest = max(entry.bytes for entry in cut.parts.values())
    estimate(two_workers, tmp_path / "in", tmp_path / "out", memory=largest - 2000)
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
    assert len(list((tmp_path / "out" / "County.parquet").iterdir())) == 2 * len(tables)
    with pytest.raises(MemoryError, match=r"part 00000 \(County '44001'\) needs .* and the limit is 1 KiB"):
        estimate(two_workers, tmp_path / "in", tmp_path / "other", memory=1024)


def test_damaged_parts_are_named(client, job, tmp_path: Path) -> None:
    folder, problem, y = job
    shutil.copytree(folder / "in", tmp_path / "in")
    entry = list(Partitions.open(tmp_path / "in").parts.values())[2]
    path = tmp_path / "in" / next(iter(entry.files))
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(PartitionError, match=f"1 of .* parts cannot be read: .*{path} is missing") as caught:
        estimate(client, tmp_path / "in", tmp_path / "out")
    assert set(caught.value.parts) == {entry.name}
    (tmp_path / "elsewhere").rename(path)
    estimate(client, tmp_path / "in", tmp_path / "out")
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")


def files(out: Path) -> dict[str, str]:
    """SHA-256 of every file of estimates, and what says so."""
    return {**digests(out), "checksums": (out / "checksums.json").read_text()}


@pytest.mark.few(0)
def test_the_bytes_are_those_of_streaming(two_workers, job, tmp_path: Path) -> None:
    folder, _, _ = job
    stream(folder / "in", tmp_path / "streamed")
    estimate(two_workers, folder / "in", tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "streamed")


def test_parts_split_by_table_give_the_bytes_of_streaming(client, tmp_path: Path) -> None:
    problem, y, limit = write_counties(tmp_path / "in")
    estimate(client, tmp_path / "in", tmp_path / "out", memory=limit)
    job = Job(tmp_path / "in", tmp_path / "streamed", memory=limit)
    assert len(job.split) == 2
    with job.held():
        work_through(job)
    assert files(tmp_path / "out") == files(tmp_path / "streamed")
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")


def test_contradictions_in_parts_split_by_table_are_refused(client, tmp_path: Path) -> None:
    *_, limit = write_counties(tmp_path / "in", off=1.0)
    with pytest.raises(ValueError, match=r"contradict one another: others put table .* of County '44001' off"):
        estimate(client, tmp_path / "in", tmp_path / "out", memory=limit)


@pytest.mark.parametrize("parts", first_of([8, 2, 15], 1))
@pytest.mark.slow
def test_a_lost_scheduler_is_an_error_and_not_an_end(job, parts: int, tmp_path: Path) -> None:
    folder, _, _ = job
    told: list[float] = []
    with local_cluster(tmp_path / "workers", connect="5s") as cluster, distributed.Client(cluster) as client:

        def close(step: str, done: int, count: int) -> None:
            told.append(time.monotonic())
            if len(told) == parts:
                cluster.sync(cluster.scheduler.close)

        reason = ""
        try:
            estimate(client, folder / "in", tmp_path / "out", progress=close)
        except ClusterError as error:
            reason = str(error)
        assert time.monotonic() - told[parts - 1] < 20
    complete = reason == ""  # all parts may have been done, though not all had been told
    assert complete or f"What is done is in {tmp_path / 'out'}: start a cluster and run again" in reason
    assert not complete or parts > 8
    stream(folder / "in", tmp_path / "streamed")
    assert (tmp_path / "out" / "checksums.json").exists() == complete
    if not complete:
        stream(folder / "in", tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "streamed")


@pytest.mark.slow
def test_without_workers_it_says_so(job, tmp_path: Path) -> None:
    folder, _, _ = job
    with local_cluster(tmp_path / "workers", 1) as cluster, distributed.Client(cluster) as client:

        def retire(step: str, done: int, count: int) -> None:
            if step == "up" and done == 3:
                cluster.scale(0)

        start = time.monotonic()
        with pytest.raises(ClusterError, match="there was no worker for 2 s"):
            estimate(client, folder / "in", tmp_path / "out", patience=2.0, progress=retire)
        assert time.monotonic() - start < 30
        cluster.scale(1)
        estimate(client, folder / "in", tmp_path / "out", patience=30.0)
    stream(folder / "in", tmp_path / "streamed")
    assert files(tmp_path / "out") == files(tmp_path / "streamed")


def test_a_scheduler_that_does_not_answer_is_an_error(job, tmp_path: Path) -> None:
    folder, _, _ = job
    frozen = SimpleNamespace(status="running", nthreads=lambda: time.sleep(60))
    tasks = blue_solvers.streaming.cluster._Tasks(frozen, Job(folder / "in", tmp_path / "out"), 0.1, print)
    with pytest.raises(ClusterError, match=r"the cluster was lost: its scheduler does not answer\."):
        tasks._next(SimpleQueue())


@pytest.mark.few(0)
def test_workers_with_other_packages_are_refused(
    two_workers, job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, _ = job
    other = {**blue_solvers.streaming.cluster.versions(), "numpy": "0.9"}
    monkeypatch.setattr(blue_solvers.streaming.cluster, "versions", lambda: other)
    with pytest.raises(ClusterError, match=rf"a worker has numpy {np.__version__} instead of 0\.9"):
        estimate(two_workers, folder / "in", tmp_path / "out")


@pytest.mark.slow
def test_a_worker_does_not_remember_what_was_at_the_same_place_before(two_workers, tmp_path: Path) -> None:
    for seed in (3, 4):
        problem = invented_problem(seed, 20)
        y = consistent_measurements(problem, 1)
        for name in ("in", "out"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        partition(tmp_path / "in", problem, y, at=problem.spine.levels[1])
        estimate(two_workers, tmp_path / "in", tmp_path / "out")
        assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")


@pytest.mark.few(0)
def test_two_runs_into_one_folder(two_workers, job, tmp_path: Path) -> None:
    folder, _, _ = job
    refused = []

    def again(step: str, done: int, count: int) -> None:
        if step == "up" and done == 1:
            with pytest.raises(BlockingIOError, match=f"process {os.getpid()} on ") as caught:
                stream(folder / "in", tmp_path / "out")
            refused.append(caught)

    estimate(two_workers, folder / "in", tmp_path / "out", progress=again)
    assert refused
