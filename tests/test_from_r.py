"""The page for users of R: its scripts run where R and its packages are, and its files are what R's arrow reads."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from polars.testing import assert_frame_equal

from blue_solvers import estimate, read_tables
from blue_solvers.cli import main
from tests.helpers.places import ROOT

R = shutil.which("Rscript")
BY_CSV, BY_ARROW, IN_ONE_PROCESS = re.findall(r"^```r\n(.*?)^```", (ROOT / "docs/r.md").read_text(), re.M | re.S)
NOISY = pl.DataFrame({"sex": ["total", "f", "m"], "value": [20.0, 9, 12], "std_error": [1.0, 2, 2]})
COLUMNS = ["table", "sex", "estimate", "std_error", "lower", "upper"]
KEPT = 'write.csv(estimates, "kept.csv", row.names = FALSE)\n'


def best() -> pl.DataFrame:
    return estimate(*read_tables(NOISY)).to_frame().select(COLUMNS)


def run(folder: Path, script: str, needs: str) -> pl.DataFrame:
    """What a script leaves in ``estimates``; the test is skipped where R, or a package of it, is not there."""
    if R is None:
        pytest.skip("there is no R")
    if needs and subprocess.run([R, "-e", f"library({needs})"], capture_output=True).returncode:
        pytest.skip(f"R has no package {needs}")
    command = folder / "blue-solvers"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m blue_solvers.cli "$@"\n')
    command.chmod(0o755)
    (folder / "script.R").write_text(script + KEPT)
    paths = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment = os.environ | paths | {"RETICULATE_PYTHON": sys.executable}
    done = subprocess.run([R, "script.R"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return pl.read_csv(folder / "kept.csv").select(COLUMNS)


@pytest.mark.few(0)  # two Pythons and R: some seconds
@pytest.mark.parametrize(
    ("script", "needs"),
    [(BY_CSV, ""), (BY_CSV + BY_ARROW, "arrow"), (BY_CSV.splitlines()[0] + "\n" + IN_ONE_PROCESS, "reticulate")],
    ids=["csv", "arrow", "reticulate"],
)
def test_the_scripts_of_the_page_estimate(tmp_path: Path, script: str, needs: str) -> None:
    assert_frame_equal(run(tmp_path, script, needs), best())


def test_what_arrow_writes_in_r_is_read_and_what_is_written_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without R: compressed, as its default is, factors as dictionaries of small integers, and a note of R's own."""
    monkeypatch.chdir(tmp_path)
    factor = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), ["total", "f", "m"])
    columns = {"sex": factor, "value": [20.0, 9, 12], "std_error": [1.0, 2, 2]}
    table = pa.table(columns).replace_schema_metadata({"r": "A\n3\n262658\n197888\n5\nUTF-8\n531\n2"})
    feather.write_feather(table, "noisy.arrow", compression="lz4")
    ((name, words),) = re.findall(r'system2\("([^"]*)", c\((.*?)\)\)', BY_ARROW)
    assert name == "blue-solvers"
    assert main(re.findall(r'"([^"]*)"', words)) == 0
    found = feather.read_table("estimates.arrow")
    assert {str(kind) for kind in found.schema.types} <= {"string", "large_string", "double"}
    assert_frame_equal(pl.DataFrame(found).select(COLUMNS), best())
