"""Free memory is that of the container and of the process; what does not fit is refused before it is allocated."""

import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema, Spine, memory
from constraint_builders.description.layout import Layout
from constraint_builders.memory import format_bytes, free_memory, free_now, require_cells, require_limit
from tests.helpers.every import cases, every
from tests.helpers.places import ROOT
from tests.helpers.refused import refuses

HOST = 10**12
UNLIMITED = 9223372036854771712  # what version 1 says where there is no limit


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, said in files.items():
        (folder / name.replace("__", ".")).write_text(f"{said}\n")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "SYSTEM", tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=HOST))
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path


def test_version_2_with_limits_at_several_heights(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("0::/a/b\n")
    root = system / "sys/fs/cgroup"
    write(root / "a", memory__max=9000, memory__current=3000, memory__stat="anon 2000\ninactive_file 500")
    write(root / "a/b", memory__max="max", memory__current=100)
    assert free_now() == 6500
    write(root / "a/b", memory__high=700, memory__current=100)
    assert free_now() == 600
    write(root / "a/b", memory__current=900)
    assert free_now() == 0


def test_version_2_in_a_container_that_does_not_see_its_own_path(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("0::/kubepods/pod1/x\n")
    write(system / "sys/fs/cgroup", memory__max=5000, memory__current=1000)
    assert free_now() == 4000


def test_version_1(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("5:devices:/\n4:cpu,memory:/docker/1\n0::/\n")
    root = system / "sys/fs/cgroup/memory"
    files = {"memory__limit_in_bytes": 8000, "memory__usage_in_bytes": 7000}
    write(root / "docker/1", **files, memory__stat="inactive_file 1\ntotal_inactive_file 2500")
    write(root, memory__limit_in_bytes=UNLIMITED, memory__usage_in_bytes=123456)
    assert free_now() == 3500


@pytest.mark.parametrize("said", ["0::/\n", "4:memory:/\n", ""])
def test_without_limits_the_machine_counts(system: Path, said: str) -> None:
    (system / "proc/self/cgroup").write_text(said)
    assert free_now() == HOST


def test_without_psutil_the_system_says_what_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_psutil", lambda: None)
    monkeypatch.setattr(memory, "SYSTEM", tmp_path)
    assert memory.free_now() == float(sys.maxsize)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal:  16000 kB\nMemAvailable:   9000 kB\n")
    assert memory.free_now() == 9000 * 1024


@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_AS"), reason="limits of the process are read on Linux")
@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_limits_of_the_process(limit: str) -> None:
    script = (
        "import numpy, psutil, resource\n"
        "from constraint_builders.memory import free_now\n"
        f"resource.setrlimit(resource.{limit}, (8 << 30, 8 << 30))\n"
        "psutil.virtual_memory = lambda: type('Memory', (), {'available': 1 << 50})\n"
        "left = free_now()\n"
        "assert (4 << 30) < left < (8 << 30), left\n"
        "numpy.empty(int(left) - (64 << 20), dtype='u1')\n"  # what is said to be free can be had
        "try:\n"
        "    numpy.empty(int(left) + (64 << 20), dtype='u1')\n"
        "except MemoryError:\n"
        "    print('no more')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "no more\n"


def test_it_is_asked_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(memory, "free_now", lambda: float(len(asked) or asked.append(1) or 1))
    monkeypatch.setattr(memory, "monotonic", lambda: -10.5)
    assert [free_memory() for _ in range(3)] == [1.0] * 3
    assert len(asked) == 1


@given(st.integers(0, 10**400))
def test_any_number_of_cells_is_held_or_refused_by_name(count: int) -> None:
    patch = pytest.MonkeyPatch()
    with patch.context() as own:
        own.setattr(memory, "free_memory", lambda: 1e9)
        if count <= memory.SURE_CELLS or memory.CELL_BYTES * count <= 10**9:
            require_cells(count, "table 'x'")
        else:
            with pytest.raises(MemoryError, match=r"^table 'x' has .{1,40} cells, which need .* and .* are free: give"):
                require_cells(count, "table 'x'")


BINARY = Schema({f"v{i}": 2 for i in range(64)})
DECADES = Schema({f"v{i}": 10 for i in range(12)})
MANY = Schema({f"v{i}": 10 for i in range(5000)})
SPINE = Spine([-1, *[0] * 999], ["A", *["B"] * 999])


@cases(
    (BINARY, {"detailed": 1.0}, None, "table 'detailed' has 10^19 cells"),
    (DECADES, {"detailed": 1.0}, None, "table 'detailed' has 1,000,000,000,000 cells, which need 29.1 TiB"),
    (MANY, {"total": 1.0, "detailed": 1.0}, None, "table 'detailed' has 10^"),
    (BINARY, {"A": {"detailed": 1.0}}, SPINE, r"table ('A', 'detailed') has 10^19 cells"),
    (DECADES, {"B": {" * ".join(f"v{i}" for i in range(9)): 1.0}}, SPINE, "has 999,000,000,000 cells"),
)
def test_a_problem_too_large_to_hold_is_refused_at_once(
    schema: Schema, observed: dict, spine: Spine | None, name: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MemoryError) as caught:
            Problem(schema, observed, spine=spine)
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()
    assert name in str(caught.value)
    assert len(str(caught.value)) < 300


def test_tables_that_fit_one_by_one_and_not_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 1e9)
    assert Layout(["a"], [(3000, 8000)]).size == 24_000_000
    with pytest.raises(MemoryError, match=r"a layout of 2 tables has 48,000,000 cells, which need 1\.43"):
        Layout(["a", "b"], [(3000, 8000), (3000, 8000)])


@every("limit", [0, -1.0, float("nan")])
def test_a_limit_is_a_number_of_bytes(limit: float) -> None:
    refuses("a limit of memory must be a number of bytes above 0", require_limit, limit)


def test_a_limit_above_what_is_free_is_refused() -> None:
    refuses(r"the limit of 909\.5 TiB is more than the .* that are free", require_limit, 1e15, error=MemoryError)
    refuses("the limit of infinitely many bytes is more than", require_limit, float("inf"), error=MemoryError)


def test_bytes_for_a_person() -> None:
    assert [format_bytes(count) for count in (0, 1023, 1536, 5 << 30, 3 << 50)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "5 GiB",
        "3 PiB",
    ]
    assert format_bytes(1 << 72) == "4,096 EiB"
    assert format_bytes(10**5000).endswith(" EiB")
