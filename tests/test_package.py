"""The package as others meet it: light to import, quiet, one version, typed for its users, and built the same twice."""

import ast
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import venv
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

import blue_solvers
import constraint_builders
import noise_mechanisms
from blue_solvers.solvers import registry
from tests.helpers.places import ROOT

PACKAGES = ["constraint_builders", "noise_mechanisms", "blue_solvers"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CORE = {"numpy", "scipy", "threadpoolctl", "psutil"}
SPEAKING = ("blue_solvers/cli.py", "blue_solvers/commands/")

ALONE = f"""
import sys
from importlib.metadata import packages_distributions

for name in packages_distributions():  # as if nothing else were installed
    if name[0] != "_" and name not in {["numpy", "scipy", *PACKAGES]}:
        sys.modules[name] = None
from blue_solvers import estimate
from constraint_builders import gallery
from noise_mechanisms import add_noise
problem = gallery.berkeley()
est = estimate(problem, add_noise(problem, problem.truth, 1))
print(est.certificate().bound < 1e-9, est.goodness_of_fit(draws=0).p_value > 1e-6, est.interval()[0].size)
from blue_solvers.cli import main
sys.exit(main(["demo"]))
"""


def python(code: str, *options: str, cwd: Path = ROOT, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(path)}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


def test_the_stated_dependencies_are_enough_and_a_browser_needs_fewer() -> None:
    """The ten lines and the demonstration run without psutil and threadpoolctl."""
    stated = {re.split(r"[<>=\[;]", line)[0] for line in PROJECT["project"]["dependencies"]}
    assert stated == CORE
    done = python(ALONE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True True 63\nApplicants to Berkeley")


def test_importing_says_and_warns_nothing() -> None:
    every = "; ".join(f"from {package} import *" for package in PACKAGES)
    done = python(every, "-W", "error")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_importing_loads_nothing_until_it_is_asked_for() -> None:
    code = "import sys, blue_solvers as own; print('numpy' in sys.modules, own.blue is None, 'numpy' in sys.modules)"
    assert python(code).stdout.split() == ["False", "False", "True"]


STUBS = sorted(path.parent for own in PACKAGES for path in (ROOT / own).rglob("__init__.pyi"))


@pytest.mark.parametrize("name", [".".join(place.relative_to(ROOT).parts) for place in STUBS])
def test_names_loaded_when_asked_are_those_that_type_checkers_see(name: str) -> None:
    package, seen = import_module(name), set()
    for line in ast.parse(Path(package.__file__ or "").with_suffix(".pyi").read_text()).body:
        assert isinstance(line, ast.ImportFrom)
        for alias in line.names:
            if alias.name == "*":
                seen |= set(registry.__all__)
                continue
            seen.add(alias.name)
            home = import_module(line.module or "")  # which is not to be found instead, if it has the name too
            assert getattr(package, alias.name) is getattr(home, alias.name)
    assert seen == set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'bleu'"):
        _ = package.bleu


def test_modules_of_a_room_are_there_once_it_is_imported() -> None:
    done = python(
        "import blue_solvers.uncertainty as own; print(own.monte_carlo.Replicates.__name__, own.ranks.__name__)"
    )
    assert done.stdout.split() == ["Replicates", "blue_solvers.uncertainty.ranks"], done.stderr


@pytest.mark.few(0)
def test_only_the_command_prints() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            called = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            prints = [own for own in called if isinstance(own, ast.Name) and own.id == "print"]
            assert not prints or name.startswith(SPEAKING), name


def test_one_version() -> None:
    version = blue_solvers.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version)
    assert constraint_builders.__version__ == noise_mechanisms.__version__ == version
    assert "version" in PROJECT["project"]["dynamic"]
    for place, line in {
        "CITATION.cff": f"version: {version}",
        "packaging/conda/recipe.yaml": f'  version: "{version}"',
    }.items():
        if (ROOT / place).exists():  # the recipe is no part of the sdist
            assert line in (ROOT / place).read_text().splitlines(), place
    assert re.search(rf"^## {re.escape(version)} ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_recipe_and_the_lock_have_what_is_stated() -> None:
    recipe = ROOT / "packaging" / "conda" / "recipe.yaml"
    if recipe.exists():
        lines = [line.strip() for line in recipe.read_text().splitlines()]
        for requirement in (line.partition(";")[0] for line in PROJECT["project"]["dependencies"]):
            assert f"- {requirement.replace('>=', ' >=')}" in lines
        assert f"- python {PROJECT['project']['requires-python']}" in lines
    locked = dict(re.findall(r"^([\w.\-]+)==([\w.]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    extras = PROJECT["project"]["optional-dependencies"]
    named = [line for lines in extras.values() for line in lines]
    for requirement in [*PROJECT["project"]["dependencies"], *named]:
        name, _, least = requirement.partition(";")[0].partition(">=")
        if not name.startswith("blue-solvers"):
            assert numbers(locked[name.partition("[")[0].lower()]) >= numbers(least), requirement


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_a_package_of_another_by_our_name_is_refused_without_running_it(tmp_path: Path) -> None:
    for name in ("constraint_builders", "noise_mechanisms"):
        shutil.rmtree(tmp_path, ignore_errors=True)
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("print('taken')")
        done = python("import blue_solvers", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stdout == ""
        assert f"needs its own package '{name}'" in done.stderr
        assert str(tmp_path / name) in done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Sdist and wheel, built in two copies of the tree whose files have other times and permissions."""
    folders = []
    for number, mode in enumerate((0o644, 0o600)):
        folder = tmp_path_factory.mktemp("tree") / "source"
        ignored = shutil.ignore_patterns("__pycache__", ".*", "dist", "build", "*.egg-info")
        shutil.copytree(ROOT, folder, ignore=ignored)
        for path in folder.rglob("*"):
            if path.is_file():
                path.chmod(mode | (path.stat().st_mode & 0o100))
                os.utime(path, (1e9 + 1e6 * number, 1e9 + 1e6 * number))
        command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(folder / "dist")]
        environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        folders.append(folder / "dist")
    return folders


@pytest.mark.few(0)
def test_builds_are_the_same_byte_for_byte(built: list[Path]) -> None:
    names = sorted(path.name for path in built[0].iterdir())
    version = blue_solvers.__version__
    assert names == [f"blue_solvers-{version}-py3-none-any.whl", f"blue_solvers-{version}.tar.gz"]
    for name in names:
        digests = {hashlib.sha256((folder / name).read_bytes()).hexdigest() for folder in built}
        assert len(digests) == 1, name
    with gzip.open(built[0] / names[1]) as plain, tarfile.open(fileobj=plain) as archive:
        assert {member.mtime for member in archive} == {1700000000}
        assert {(member.uid, member.gid) for member in archive} == {(0, 0)}


@pytest.mark.few(0)
def test_the_wheel_holds_the_packages_and_nothing_else(built: list[Path]) -> None:
    (wheel,) = built[0].glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    inside = {name for name in names if ".dist-info/" not in name}
    kept = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == kept
    assert {f"{package}/py.typed" for package in PACKAGES} <= inside
    (sdist,) = built[0].glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    assert (
        kept | {"README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "tests/conftest.py", "pyproject.toml"} <= there
    )


USER = """
from pathlib import Path

import numpy as np
import numpy.typing as npt

from blue_solvers import BlueOperator, Certificate, Estimate, Fit, ConjugateGradient, blue, certify, estimate, fit_test
from blue_solvers import functionals, intervals
from blue_solvers.nonnegative import nnls
from constraint_builders import Problem, Schema, Spine, gallery
from noise_mechanisms import add_noise, variance_of


def answer(values: npt.NDArray[np.float64]) -> float:
    schema = Schema({"sex": ["f", "m"], "age": 3}, recodes={"age": {"adult": [0, 0, 1]}})
    problem = Problem(schema, {"sex": 1.0, "detailed": variance_of("laplace", 2.0)}, desired=["adult", "total"])
    y = problem.vector({"sex": values, "detailed": np.ones((2, 3))})
    est: Estimate = estimate(problem, y)
    proof: Certificate = est.certificate()
    fit: Fit = fit_test(problem, y, draws=0)
    operator: BlueOperator = blue(problem, ConjugateGradient(rtol=1e-10))
    lower, upper = intervals(operator, y, confidence_level=0.9)
    weighed = functionals(operator, y, np.ones((problem.desired.size, 1)))
    bound = proof.bound if proof.bound is not None else np.inf
    for outlier in fit.outliers(1):
        print(outlier.table, outlier.residual)
    return float(est.values.sum() + lower.sum() + upper.sum() + weighed.estimate.sum() + bound)


def simulate(seed: int) -> dict[str, npt.NDArray[np.float64]]:
    problem = gallery.toy()
    truth = problem.truth
    assert truth is not None
    noisy = add_noise(problem, truth, seed)
    fitted = nnls(problem, noisy)
    other = certify(problem, noisy, noisy)
    print(fitted.gap, other.reason)
    return problem.observed.tables(noisy)


spine = Spine.from_geoids(["440010301001000", "440010301001001"])
print(answer(np.array([1.0, 2.0])), simulate(1), spine.levels)
"""
WRONG = {
    "blue(problem, ConjugateGradient(rtol=1e-10))": 'blue(problem, "conjugate")',
    "proof.bound if proof.bound is not None else np.inf": "proof.bound + 1.0",
    "add_noise(problem, truth, seed)": 'add_noise(problem, truth, "seed")',
    "spine.levels": "spine.layers",
}


@pytest.fixture(scope="module")
def installed(built: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which the wheel is installed, beside the libraries of this one."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (wheel,) = built[0].glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


@pytest.mark.slow
def test_users_are_served_by_strict_types(installed: Path, tmp_path: Path) -> None:
    """Right programs pass, as they run; wrong ones are found."""
    interpreter = str(installed / "bin" / "python")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    (tmp_path / "right.py").write_text(USER)
    run = subprocess.run([interpreter, "right.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    for number, (right, wrong) in enumerate(WRONG.items()):
        assert right in USER
        (tmp_path / f"wrong_{number}.py").write_text(USER.replace(right, wrong))
    options = ["--strict", "--python-executable", interpreter, "--config-file", os.devnull, "--cache-dir", os.devnull]
    command = [sys.executable, "-m", "mypy", *options, *sorted(path.name for path in tmp_path.glob("*.py"))]
    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    complaints = re.findall(r"^(\w+)\.py:\d+: error", checked.stdout, re.MULTILINE)
    assert sorted(set(complaints)) == [f"wrong_{number}" for number in range(len(WRONG))], (
        checked.stdout + checked.stderr
    )


@pytest.mark.slow
def test_a_clean_environment_without_a_compiler_takes_half_a_minute(built: list[Path], tmp_path: Path) -> None:
    """It needs an index of packages, or wheels at hand."""
    venv.create(tmp_path / "venv", with_pip=True)
    (wheel,) = built[0].glob("*.whl")
    environment = os.environ | {"CC": "/bin/false", "CXX": "/bin/false"}
    start = time.monotonic()
    pip = [str(tmp_path / "venv" / "bin" / "pip"), "install", "--quiet", "--only-binary", ":all:", str(wheel)]
    subprocess.run(pip, env=environment, check=True, capture_output=True)
    assert time.monotonic() - start < 30
    command = [str(tmp_path / "venv" / "bin" / "blue-solvers"), "demo"]
    assert subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.startswith(
        "Applicants"
    )
