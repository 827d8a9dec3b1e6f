"""With the extra ``cluster``: passes on workers of Dask."""

from pathlib import Path

from distributed import Client

from blue_solvers import blue
from blue_solvers.streaming import partition
from blue_solvers.streaming.cluster import estimate
from tests.helpers.partitioned import assert_same, invented_problem
from tests.helpers.spines import consistent_measurements


def test_the_passes_in_memory_again(tmp_path: Path) -> None:
    problem = invented_problem(3, 30)
    y = consistent_measurements(problem, 1)
    partition(tmp_path / "in", problem, y, at=problem.spine.levels[1])
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        estimate(client, tmp_path / "in", tmp_path / "out", progress=lambda *step: None)
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
