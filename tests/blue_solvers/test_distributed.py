"""The passes on a cluster of worker processes: the same answer, also when a worker is killed midway."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from partitioned import assert_same, invented_problem
from spines import consistent_measurements

from blue_solvers import UnsupportedProblemError, blue
from blue_solvers.streaming import PartitionError, Partitions, partition
from constraint_builders import Problem, Schema, Spine

distributed = pytest.importorskip("distributed", reason="a cluster needs Dask: pip install 'blue-solvers[cluster]'")
from blue_solvers.distributed import estimate  # noqa: E402  after the test for Dask

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Two worker processes that import this checkout."""
    options = {"distributed.admin.tick.limit": "30s", "distributed.comm.timeouts.connect": "30s"}
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests"), before or ""])
    space = tmp_path_factory.mktemp("workers")
    import dask

    with (
        dask.config.set(options),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=space, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A partitioned problem and its measurements."""
    folder = tmp_path_factory.mktemp("job")
    problem = invented_problem()
    y = consistent_measurements(problem, 1)
    partition(folder / "in", problem, y, at=problem.spine.levels[3])
    return folder, problem, y


@pytest.mark.parametrize("level", [0, 1, 3, 4])
def test_equals_the_passes_in_memory(client, level: int, tmp_path: Path) -> None:
    problem = invented_problem(3, 30)
    y = consistent_measurements(problem, level)
    partition(tmp_path / "in", problem, y, at=problem.spine.levels[level])
    steps: list[tuple[str, int, int]] = []
    estimate(client, tmp_path / "in", tmp_path / "out", progress=lambda *step: steps.append(step))
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
    assert {step for step, _, _ in steps} == {"up", "down"}
    assert steps[-1][1] == steps[-1][2]


def test_equalities_are_refused(client, tmp_path: Path) -> None:
    spine = Spine([-1, 0, 0], ["A", "B", "B"])
    schema = Schema({"a": 2})
    problem = Problem(schema, {"A": {"a": 1.0}, "B": {"a": 1.0}}, spine=spine, equalities=(np.ones((1, 6)), [5.0]))
    partition(tmp_path / "in", problem, np.arange(6.0), at="B")
    with pytest.raises(UnsupportedProblemError, match=r"equalities are for `streaming\.stream`"):
        estimate(client, tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("moment", ["up", "down"])
def test_a_worker_killed_midway(client, job, tmp_path: Path, moment: str) -> None:
    folder, problem, y = job
    killed: list[int] = []

    def kill(step: str, done: int, count: int) -> None:
        if step == moment and done == count // 3 and not killed:
            workers = client.run(os.getpid)
            killed.append(next(iter(workers.values())))
            os.kill(killed[0], signal.SIGKILL)

    estimate(client, folder / "in", tmp_path / "out", progress=kill)
    assert len(killed) == 1
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
    client.wait_for_workers(2, timeout=30)
    assert killed[0] not in client.run(os.getpid).values()


def test_a_geounit_too_large_for_a_task_is_split_by_table(client, tmp_path: Path) -> None:
    schema = Schema({"a": 4, "b": 5, "c": 6})
    spine = Spine([-1, 0, 0], ["State", "County", "County"], ["44", "44001", "44003"])
    tables = {"a * b": 1.0, "a * c": 2.0, "b * c": 3.0, "detailed": [4.0, np.inf], "a": [0.0, 5.0]}
    problem = Problem(schema, {"State": {"detailed": 2.0}, "County": tables}, spine=spine)
    y = consistent_measurements(problem, 4)
    cut = partition(tmp_path / "in", problem, y, at="County")
    largest = max(entry.bytes for entry in cut.parts.values())
    estimate(client, tmp_path / "in", tmp_path / "out", memory=largest - 2000)
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
    assert len(list((tmp_path / "out" / "County.parquet").iterdir())) == 2 * len(tables)
    with pytest.raises(MemoryError, match=r"part 00000 \(County '44001'\) needs .* and the limit is 1 KiB"):
        estimate(client, tmp_path / "in", tmp_path / "other", memory=1024)


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
