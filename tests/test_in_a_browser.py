"""The page of the site that runs lines in a browser: with a stand-in for its Python, and with the real one.

The real one, a Pyodide, is no package that we can name: where `PYODIDE_FOLDER` names a folder with `pyodide.mjs` it is
run; with the wheels of NumPy and SciPy beside it the ten lines of the README and every solver are, without them our
code is compiled there, and imported as far as NumPy.
"""

import html
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blue_solvers import Problem, Schema, Spine, estimate
from tests.helpers.browser import Browser, chromium
from tests.helpers.places import DOCS, ROOT
from tests.helpers.run_in_browsers import ESTIMATES
from tests.helpers.served import served

for tool in ("sphinx", "hatchling"):
    pytest.importorskip(tool, reason="the tools of the site are not installed")
sys.path.append(str(DOCS / "_extensions"))

NODE = shutil.which("node")
RUNTIME = Path(os.environ.get("PYODIDE_FOLDER") or "/nonexistent")
IS_THERE, IS_WHOLE = (
    (RUNTIME / "pyodide.mjs").is_file(),
    bool([*RUNTIME.glob("numpy-*")] and [*RUNTIME.glob("scipy-*")]),
)
SCRIPTS = DOCS / "_static" / "browser"
STUB = ROOT / "tests" / "helpers" / "stub_pyodide.mjs"
TEN_LINES = re.compile(r"^## Ten lines\n+```python\n(.*?)```", re.MULTILINE | re.DOTALL)

needs_node = pytest.mark.skipif(NODE is None, reason="there is no node: apt-get install nodejs")
needs_chromium = pytest.mark.skipif(chromium() is None, reason="there is no Chromium: apt-get install chromium")
NO_RUNTIME = "PYODIDE_FOLDER names no folder with pyodide.mjs"
NOT_WHOLE = f"{NO_RUNTIME} and with the wheels of NumPy and SciPy"
NODE_RUN = """
import { readFileSync } from "node:fs";
const { runtime, wheel, answers, codes } = JSON.parse(readFileSync(0, "utf8"));
const { loadPyodide } = await import(runtime.endsWith("mjs") ? runtime : `${runtime}pyodide.mjs`);
const { run, start } = await import(RUNNER);
const heard = [];
try {
  const python = await start(loadPyodide, { runtime, wheel, answers }, (text) => heard.push(["status", text]));
  for (const code of codes) {
    try {
      heard.push(["tables", await run(python, code, (text) => heard.push(["text", text]))]);
    } catch (error) {
      heard.push(["failed", error.message]);
    }
  }
} catch (error) {
  heard.push(["failed", error.message]);
}
process.stdout.write(`\\n${JSON.stringify(heard)}`);
"""


def in_node(runtime: str, wheel: str, *codes: str) -> list[tuple[str, Any]]:
    """What the page would hear, run by node."""
    script = NODE_RUN.replace("RUNNER", json.dumps((SCRIPTS / "runner.mjs").as_uri()))
    given = {"runtime": runtime, "wheel": wheel, "answers": (SCRIPTS / "answers.py").read_text(), "codes": codes}
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", script], input=json.dumps(given), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [(kind, what) for kind, what in json.loads(done.stdout.splitlines()[-1])]


@pytest.fixture(scope="module")
def ten_lines() -> str:
    (found,) = TEN_LINES.findall((ROOT / "README.md").read_text())
    return str(found)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from browser_page import wheel_in

    return Path(wheel_in(tmp_path_factory.mktemp("wheel")))


@needs_node
def test_every_step_and_every_line_is_said() -> None:
    first, second, third, *rest = in_node(STUB.as_uri(), "blue.whl", "print('printed')", "1/0")
    assert [first, second] == [("status", "Starting Python …"), ("status", "Loading NumPy …")]
    assert third == ("status", "Loading SciPy …")
    assert rest[:2] == [("status", "Loading blue-solvers …"), ("text", "printed")]
    (kind, (table,)), failed = rest[2:]
    assert (kind, table["name"], table["left"]) == ("tables", "est", 3)
    kind, text = failed
    assert kind == "failed"
    assert text.startswith("Traceback")
    assert text.endswith("division by zero")
    assert '"<exec>", line 1' in text
    assert "/lib/base.py" not in text


@needs_node
@pytest.mark.parametrize("lacking", ["numpy", "scipy", "blue_solvers"])
def test_what_is_not_served_is_named(tmp_path: Path, lacking: str) -> None:
    folder = tmp_path / f"without-{lacking}"
    folder.mkdir()
    shutil.copy(STUB, folder / "pyodide.mjs")
    *_, (kind, text) = in_node(f"{folder.as_uri()}/", "blue_solvers.whl", "print(1)")
    title = {"numpy": "NumPy", "scipy": "SciPy", "blue_solvers": "blue-solvers"}[lacking]
    assert kind == "failed"
    assert text.splitlines()[0] == f"{title} could not be loaded."
    assert f"Failed to load {lacking}" in text
    assert "ModuleNotFoundError" in text


def shown(names: dict[str, Any]) -> list[dict[str, Any]]:
    own: dict[str, Any] = {}
    exec((SCRIPTS / "answers.py").read_text(), own)
    found: list[dict[str, Any]] = json.loads(own["answers"](names))
    return found


def test_the_table_shows_what_the_estimate_holds() -> None:
    problem = Problem(Schema({"sex": ["f", "m"]}), {"total": 4.0, "sex": [4.0, np.inf]}, desired=["sex", "total"])
    est = estimate(problem, {"total": 1100, "sex": [57, np.nan]})
    (table,) = shown({"est": est, "same": est, "other": 3})
    assert table["columns"] == ["table", "cell", "measured", "estimate", "standard error"]
    rows = [["sex", "sex=f", "57.0", "57.0", "2"], ["sex", "sex=m", "", "1,043.0", "2.8"]]
    assert table["rows"] == [*rows, ["total", "", "1,100.0", "1,100.0", "2"]]
    assert (table["name"], table["left"]) == ("est", 0)


def test_long_tables_are_cut_and_exact_cells_shown() -> None:
    spine = Spine.from_geoids([f"440010000{block:06}" for block in range(300)])
    problem = Problem(Schema({"a": 2}), {level: {"total": 0.0} for level in spine.levels}, spine=spine, desired="all")
    values = {(level, "total"): np.ones(len(spine.members[i])) for i, level in enumerate(spine.levels)}
    values = {key: 300.0 * own if len(own) == 1 else own for key, own in values.items()}
    (table,) = shown({"e": estimate(problem, values)})
    assert len(table["rows"]) == 200
    assert table["left"] == problem.desired.size - 200
    assert table["rows"][0][2:] == ["300.00", "300.00", "0"]


def test_the_site_gives_the_page_its_lines_and_the_wheel(wheel: Path, ten_lines: str) -> None:
    from browser_page import filled

    page = filled((DOCS / "in_a_browser.md").read_text(), wheel.name)
    assert f'data-wheel="_static/browser/{wheel.name}"' in page
    assert "{" + "lines}" not in page
    assert ten_lines in html.unescape(page)
    assert wheel.name.endswith("-py3-none-any.whl")


@pytest.fixture
def site(tmp_path: Path, wheel: Path) -> Path:
    """The page without the site's theme, its scripts and the wheel."""
    from browser_page import filled

    page = filled((DOCS / "in_a_browser.md").read_text(), wheel.name)
    (block,) = re.findall(r"^```\{raw\} html\n(.*?)^```", page, re.M | re.S)
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,">'
    (tmp_path / "in_a_browser.html").write_text(f"{head}{block}</html>")
    shutil.copytree(SCRIPTS, tmp_path / "_static" / "browser")
    shutil.copy(wheel, tmp_path / "_static" / "browser")
    return tmp_path


@pytest.fixture
def browser() -> Iterator[Browser]:
    with Browser() as own:
        yield own


def text_of(browser: Browser, part: str) -> str:
    return str(browser.value(f"document.querySelector('[data-part={part}]').textContent"))


def wait_for(browser: Browser, status: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not text_of(browser, "status").startswith(status):
        assert time.monotonic() < end, (text_of(browser, "status"), text_of(browser, "output"), browser.complaints)
        time.sleep(0.05)


def write(browser: Browser, lines: str) -> None:
    browser.value(f"document.querySelector('[data-part=lines]').value = {json.dumps(lines)}")
    press(browser, "run")


def press(browser: Browser, part: str) -> None:
    browser.value(f"document.querySelector('[data-part={part}]').click()")


@needs_chromium
def test_without_a_runtime_the_page_says_what_to_put_there(site: Path, browser: Browser) -> None:
    with served(site) as address:
        browser.go(f"{address}in_a_browser.html")
        wait_for(browser, f"There is no Python beside this page: {address}pyodide/pyodide.mjs is not served.")
        assert browser.value("document.querySelector('[data-part=run]').disabled")


@needs_chromium
def test_without_a_server_the_page_says_so(site: Path, browser: Browser) -> None:
    browser.open(site / "in_a_browser.html")
    assert "served over HTTP" in " ".join(text_of(browser, "status").split())


@needs_chromium
def test_the_page_runs_lines_shows_errors_and_stops(site: Path, browser: Browser) -> None:
    (site / "pyodide").mkdir()
    shutil.copy(STUB, site / "pyodide" / "pyodide.mjs")
    with served(site) as address:
        browser.go(f"{address}in_a_browser.html")
        wait_for(browser, "Ready.")
        press(browser, "run")
        wait_for(browser, "Done.")
        assert text_of(browser, "output") == "printed\n"
        assert text_of(browser, "tables") == "est, the first 1 cells; 3 morecellestimatesex=<b>f55"  # text, not HTML
        write(browser, "1/0")
        wait_for(browser, "It did not run")
        assert text_of(browser, "output").endswith("ZeroDivisionError: division by zero\n")
        assert text_of(browser, "tables") == ""
        write(browser, "while True: pass")
        wait_for(browser, "Running")
        press(browser, "stop")
        wait_for(browser, "Stopped.")
        write(browser, "print('printed')")
        wait_for(browser, "Done.")
        assert text_of(browser, "output") == "printed\n"
    assert browser.complaints == []


@needs_chromium
@pytest.mark.skipif(not IS_WHOLE, reason=NOT_WHOLE)
def test_the_real_runtime_runs_the_page(site: Path, browser: Browser) -> None:
    (site / "pyodide").symlink_to(RUNTIME)
    with served(site) as address:
        browser.go(f"{address}in_a_browser.html")
        wait_for(browser, "Ready.")
        press(browser, "run")
        wait_for(browser, "Done.", 300)
        assert "proved, at most" in text_of(browser, "output")
        assert "sex=female" in text_of(browser, "tables")


@needs_node
@pytest.mark.skipif(not IS_WHOLE, reason=NOT_WHOLE)
def test_the_real_runtime_estimates_by_every_solver(wheel: Path, ten_lines: str) -> None:
    heard = in_node(f"{RUNTIME.resolve()}/", str(wheel), ten_lines, ESTIMATES, "from blue_solvers import nothing")
    said = [what for kind, what in heard if kind == "text"]
    assert any(line.startswith("proved, at most") for line in said)
    assert said[-1] == "estimated"
    kinds = [kind for kind, _ in heard if kind in ("tables", "failed")]
    assert kinds == ["tables", "tables", "failed"]
    assert "cannot import name 'nothing'" in heard[-1][1]
    assert heard[[kind for kind, _ in heard].index("tables")][1][0]["name"] == "est"


CORE = """
import compileall, importlib, pathlib, sys, zipfile
sys.path.insert(0, "/own")
zipfile.ZipFile("/own.whl").extractall("/own")
for package in ["constraint_builders", "noise_mechanisms", "blue_solvers"]:
    assert compileall.compile_dir(f"/own/{package}", quiet=1)
names = [".".join(path.relative_to("/own").with_suffix("").parts) for path in pathlib.Path("/own").rglob("*.py")]
stopped = set()
for name in names:
    if not name.endswith("__main__"):
        try:
            importlib.import_module(name.removesuffix(".__init__"))
        except ImportError as error:
            stopped.add(error.name or str(error))
print(len(names), *sorted(stopped), sep="\\n")
"""
EXTRAS = ["polars", "pyarrow", "msgspec", "numba", "pandas", "xarray", "pyamg", "matplotlib", "dask", "opendp"]
CORE_RUN = """
import { readFileSync } from "node:fs";
const { runtime, wheel, libraries, code } = JSON.parse(readFileSync(0, "utf8"));
const { loadPyodide } = await import(`${runtime}pyodide.mjs`);
const python = await loadPyodide({ indexURL: runtime, stdout: (text) => console.log(text) });
await python.loadPackage(libraries, { messageCallback: () => {} });
python.FS.writeFile("/own.whl", new Uint8Array(readFileSync(wheel)));
try {
  python.runPython(code);
} catch (error) {
  console.log(error.message);
}
"""


@needs_node
@pytest.mark.skipif(not IS_THERE, reason=NO_RUNTIME)
def test_all_that_stops_our_code_there_is_libraries(wheel: Path) -> None:
    given = {"runtime": f"{RUNTIME.resolve()}/", "wheel": str(wheel), "libraries": [], "code": CORE}
    given["libraries"] = ["numpy", "scipy"] if IS_WHOLE else []
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", CORE_RUN], input=json.dumps(given), capture_output=True, text=True
    )
    number, *stopped = done.stdout.splitlines()[-40:]
    assert number.isdecimal(), done.stdout[-3000:]
    assert int(number) > 400
    others = {name for name in stopped if name not in EXTRAS and "which cannot be had here" not in name}
    assert others <= (set() if IS_WHOLE else {"numpy", "scipy"})
