"""The packages in a Python for browsers, as far as it can be told apart from here: what is absent there is absent.

The real runtime is run in `tests/test_in_a_browser.py` where there is one.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.places import ROOT
from tests.helpers.run_in_browsers import ESTIMATES

ABSENT = """
import importlib.metadata, os, sys, threading, time, _thread

ABSENT = {
    "psutil", "threadpoolctl", "polars", "pyarrow", "msgspec", "numba", "llvmlite", "sksparse", "pyamg", "pandas",
    "xarray", "matplotlib", "dask", "distributed", "opendp", "fcntl", "resource", "termios", "_multiprocessing",
}

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in ABSENT else self.finder.find_spec(name, path, target)

def no_thread(*given, **named):
    raise RuntimeError("can't start new thread")

sys.meta_path[:] = map(Without, sys.meta_path)
import numpy, scipy.sparse.linalg, scipy.stats  # which look at the system while they are loaded

threading._start_new_thread = _thread.start_new_thread = _thread.start_joinable_thread = no_thread
vars(os).pop("sched_getaffinity", None)
vars(time).pop("thread_time", None)
os.cpu_count = lambda: 8
sys.platform = "emscripten"
"""


def ran(folder: Path, script: str) -> str:
    """What a script prints where all that a browser lacks is absent."""
    (folder / "script.py").write_text(ABSENT + script)
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_ten_lines_of_the_readme_run(tmp_path: Path) -> None:
    (ten_lines,) = re.findall(r"^## Ten lines\n+```python\n(.*?)```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert "proved, at most" in ran(tmp_path, ten_lines)


@pytest.mark.few(0)
def test_every_solver_estimates(tmp_path: Path) -> None:
    assert ran(tmp_path, ESTIMATES) == "estimated\n"
