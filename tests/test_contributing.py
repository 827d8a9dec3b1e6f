"""The lists of places in CONTRIBUTING are complete: one of each is added from outside, and names stand nowhere else."""

import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import polars as pl
import pytest
from numpy.typing import ArrayLike, NDArray

import blue_solvers
from blue_solvers import SOLVERS, Dense, Prepared, Solver, SolverName, blue, intervals
from blue_solvers.cli import main
from blue_solvers.commands import arguments
from blue_solvers.contract import Capability
from blue_solvers.nonnegative import reweighted_fit
from blue_solvers.solvers import registry
from blue_solvers.testing import check_solver
from constraint_builders import Problem, Schema, gallery
from constraint_builders.budget import Budget
from constraint_builders.files import Format, add_format, read_long_table, read_schema_file, read_settings, write_frame
from constraint_builders.files.source import FORMATS
from constraint_builders.files.text_table import read_text_table
from noise_mechanisms import add_law, add_noise
from noise_mechanisms.budgeted import noise_variances
from noise_mechanisms.laws import LAWS, ContinuousLaw, Gaussian, Laplace, variance_of
from tests.feature_support import written
from tests.feature_support.refusals import refused_by
from tests.helpers.every import every
from tests.helpers.places import README, ROOT
from tests.helpers.refused import refuses
from tests.helpers.refused_commands import refusal

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGES = ["constraint_builders", "noise_mechanisms", "blue_solvers"]
SETTINGS = """
geolevels = ["County", "Block"]
noise = "uniform"
[variables]
sex = ["female", "male"]
[budget]
[budget.losses]
total = ["1/10", "1/10"]
"""
TABLE = "table,sex,value,variance\ntotal,*,21,1\nsex,female,9,2\nsex,male,11,2\n"


def places(heading: str) -> list[str]:
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


def naming(word: str) -> set[str]:
    """Files of the packages in which a word stands."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {str(path.relative_to(ROOT)) for path in files if re.search(word, path.read_text())}


@every("heading", ["Adding a solver", "Adding a noise law", "Adding a format of tables"])
def test_the_places_are_there(heading: str) -> None:
    assert len(places(heading)) > 1
    assert [place for place in places(heading) if "NAME" not in place and not (ROOT / place).is_file()] == []


def test_solvers_are_named_where_the_list_says() -> None:
    """Multigrid, whose file is that of the iterations that accelerate it."""
    own = "blue_solvers/solvers/conjugate_gradient.py"
    listed = places("Adding a solver")
    assert "blue_solvers/solvers/NAME.py" in listed
    assert naming(r"\bMultigrid\b|Literal\[.*\"multigrid\"") - {own} == {
        place for place in listed if "NAME" not in place
    }


def test_every_solver_has_one_record() -> None:
    files = {path.stem for path in (ROOT / "blue_solvers" / "solvers").glob("*.py")}
    modules = [import_module(f"blue_solvers.solvers.{stem}") for stem in files - {"__init__"}]
    written = {own for module in modules for own in vars(module).values() if isinstance(own, type)}
    assert {own for own in written if issubclass(own, Solver)} - {Solver} == set(SOLVERS.values())
    assert set(registry.__all__) == {"SOLVERS", "SolverName", *(solver.__name__ for solver in SOLVERS.values())}
    assert set(get_args(SolverName)) == set(SOLVERS)
    assert set(registry.__all__) <= set(blue_solvers.__all__)
    assert all(getattr(blue_solvers, name) is getattr(registry, name) for name in registry.__all__)


def test_laws_are_named_where_the_list_says() -> None:
    """In the file of laws and in its record; beside them only where another system's names are translated."""
    own, record = places("Adding a noise law")
    translated = {"blue_solvers/adapters/opendp_releases.py"}
    assert naming(r"\"discrete_laplace\"|\W:DiscreteLaplace\b") - translated == {own, record}


def test_formats_are_named_where_the_list_says() -> None:
    """The record alone has the suffix, and no other file imports the reader."""
    own, record = places("Adding a format of tables")
    assert naming(r"\.xlsx") == {record}
    assert naming(r"\bfastexcel\b") - {"constraint_builders/extras.py"} == {own.replace("NAME", "excel"), record}
    assert naming(r"\bread_excel\b") == {own.replace("NAME", "excel"), record}


@dataclass(frozen=True)
class Outsider(Solver):
    """Dense algebra under another name."""

    name: ClassVar[str] = "outsider"

    def refusal(self, problem: Problem) -> str | None:
        """As `Dense`."""
        return Dense().refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        """As `Dense`."""
        return Dense().plan(problem)

    @classmethod
    def capabilities(cls) -> tuple[Capability, ...]:
        """For the README."""
        return (Capability(cls.name, cls(), "anything small", "much memory"),)


@pytest.mark.few(0)
def test_a_solver_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SOLVERS, Outsider.name, Outsider)
    check_solver(Outsider())
    assert refused_by(Outsider()) == refused_by(Dense())
    assert "| `outsider` | anything small | much memory |" in written.readme(README.read_text())
    problem = gallery.toy()
    y = np.arange(float(problem.observed.size))
    P = blue(problem, "outsider")  # type: ignore[arg-type]
    np.testing.assert_allclose(P @ y, blue(problem) @ y, atol=1e-12)
    (tmp_path / "table.csv").write_text(TABLE)
    command = ["estimate", str(tmp_path / "table.csv"), "--out", str(tmp_path / "out.csv"), "--solver", "outsider"]
    assert main(command) == 0
    total = pl.read_csv(tmp_path / "out.csv")["estimate"][0]
    assert total == pytest.approx(21 - 1 / (1 + 2 + 2) * (21 - 20))  # the sum's share of the disagreement


NEW_FILE = """
from dataclasses import dataclass
from typing import ClassVar

from blue_solvers.contract import Prepared, Solver
from blue_solvers.solvers.direct import Dense
from constraint_builders import Problem


@dataclass(frozen=True)
class Newcomer(Solver):
    name: ClassVar[str] = "newcomer"

    exact_for: ClassVar[str] = "all that is new"
    cost: ClassVar[str] = "nothing"

    def refusal(self, problem: Problem) -> str | None:
        return Dense().refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        return Dense().plan(problem)
"""
RECORDS: list[dict[str, str]] = [
    {
        r"import AreaSolver, SeaBlue, TwoPass\n": "from blue_solvers.solvers.newcomer import Newcomer\n",
        r'__all__ = \[\s*"SOLVERS",': ' "Newcomer",',
        r"in \(\s*Auto,": " Newcomer,",
    },
    {r'Literal\["auto",': ' "newcomer",'},
]
USES = """
import sys
import blue_solvers
from blue_solvers import SOLVERS, Newcomer, blue
from blue_solvers.cli import main
from constraint_builders import gallery
from tests.feature_support.capabilities import as_markdown

assert blue_solvers.__file__.startswith(sys.argv[1]), blue_solvers.__file__
assert "Newcomer" in blue_solvers.__all__ and SOLVERS["newcomer"] is Newcomer
assert blue(gallery.toy(), "newcomer").solver == Newcomer()
assert "| `newcomer` | all that is new | nothing |" in as_markdown()
sys.exit(main(["estimate", sys.argv[1] + "/table.csv", "--out", sys.argv[1] + "/out.csv", "--solver", "newcomer"]))
"""


@pytest.mark.few(0)
def test_the_listed_places_are_all_that_a_solver_needs(tmp_path: Path) -> None:
    """In a copy of the packages."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    new, *enrolling = (tmp_path / place.replace("NAME", "newcomer") for place in places("Adding a solver"))
    new.write_text(NEW_FILE)
    for path, record in zip(enrolling, RECORDS, strict=True):
        text = path.read_text()
        for after, own in record.items():
            text, count = re.subn(f"({after})", lambda found, own=own: found[1] + own, text)
            assert count == 1
        path.write_text(text)
    (tmp_path / "table.csv").write_text(TABLE)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", USES, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.csv").is_file()


@dataclass(frozen=True)
class Uniform(ContinuousLaw):
    """Noise on an interval around zero, of half its width."""

    half: float
    name: ClassVar[str] = "uniform"

    @property
    def variance(self) -> float:
        """A third of the square of half the width."""
        return self.half**2 / 3

    @property
    def _parameter(self) -> float:
        return self.half

    @staticmethod
    def _parameter_of(variance: NDArray) -> NDArray:
        return np.sqrt(3 * variance)

    @staticmethod
    def _draw(parameter: NDArray, shape: tuple[int, int], rng: np.random.Generator) -> NDArray:
        return parameter * rng.uniform(-1, 1, shape)

    def logpdf(self, x: ArrayLike) -> NDArray:
        """Constant inside."""
        return np.where(abs(np.asarray(x)) <= self.half, -math.log(2 * self.half), -np.inf)

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        raise NotImplementedError("nothing releases it")


def test_a_noise_law_from_outside(own_laws: None) -> None:
    schema = Schema({"a": 3, "b": 4})
    observed = {"total": 1.0, "a": 3.0, "detailed": 12.0}
    refuses(r"noise must be one of gaussian, .*: got 'uniform'", Problem, schema, observed, noise="uniform")
    add_law(Uniform)
    add_law(Uniform)  # again, as a module that is read again does
    assert LAWS["uniform"] is Uniform
    assert variance_of("uniform", 3.0) == 3.0
    problem = Problem(schema, observed, noise="uniform")
    truth = problem.marginal_matrix() @ np.arange(12.0)
    rng = np.random.default_rng(1)
    noise = np.array([add_noise(problem, truth, rng=rng) - truth for _ in range(400)])
    assert (abs(noise) <= np.sqrt(3 * problem.variances)).all()
    assert abs(np.square(noise) / problem.variances - 1).mean() < 1.2
    assert np.square(noise).mean(axis=0) == pytest.approx(problem.variances, rel=0.25)
    lower, upper = intervals(blue(problem), truth + noise[0], 0.9, "distribution_free", 99, rng=2)
    half = (upper - lower) / 2
    assert (half > 0).all()
    assert half[0] < np.sqrt(3)  # no wider than the noise of the total itself can be
    with pytest.raises(ValueError, match="reweighted fitting knows how large Gaussian and Laplace noise gets"):
        reweighted_fit(problem, truth + noise[0])
    refuses(r"law 'unifrom' is unknown: use one of 'gaussian', .*, 'uniform'", variance_of, "unifrom", 1.0)


def test_a_noise_law_from_outside_in_files(own_laws: None, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    schema, settings = tmp_path / "schema.toml", tmp_path / "settings.toml"
    schema.write_text('[variables]\nsex = 2\n[problem]\nnoise = "uniform"\n')
    settings.write_text(SETTINGS)
    for path, read in ((schema, read_schema_file), (settings, read_settings)):
        refuses(r"noise must be one of gaussian, .*: got 'uniform'", read, path)
    add_law(Uniform)
    assert read_schema_file(schema).noise == "uniform"
    assert read_settings(settings).noise == "uniform"
    with pytest.raises(ValueError, match="a 'zcdp' budget is spent by gaussian or discrete_gaussian noise: got 'unif"):
        noise_variances(Budget({"State": {"total": 1}}), "uniform")
    (tmp_path / "blocks.csv").write_text("geoid,female,male\n440010000000001,1,2\n")
    told = ["simulate", str(tmp_path / "blocks.csv"), "--settings", str(settings), "--out", str(tmp_path / "release")]
    assert "noise 'uniform' cannot be written, measurement files hold whole numbers" in refusal(capsys, *told)
    (tmp_path / "table.csv").write_text(TABLE)
    problem, _ = read_long_table(tmp_path / "table.csv", noise="uniform")
    assert problem.noise == "uniform"


class Outside:
    class Nested(Uniform):
        name = "nested"


def test_a_law_that_is_none_is_not_added(own_laws: None) -> None:
    class Inside(Uniform):
        name = "inside"

    class Nameless(Uniform):
        name = ""

    class Named(Uniform):
        name = "laplace"

    class Half(ContinuousLaw):
        name = "half"

    for kind, error, message in (
        (Inside, ValueError, "defined inside a function"),
        (Outside.Nested, ValueError, "defined inside a function or class: define it at the top"),
        (Nameless, ValueError, "has no name"),
        (Named, ValueError, "the name 'laplace' is that of noise_mechanisms.laws.law_classes:Laplace"),
        (Half, TypeError, "lacks __init__, _draw,"),
        (Uniform(1.0), TypeError, "a law is a subclass"),
        (int, TypeError, "a law is a subclass"),
    ):
        refuses(message, add_law, kind, error=error)
    assert list(LAWS) == ["gaussian", "discrete_gaussian", "laplace", "discrete_laplace"]
    assert [LAWS["gaussian"], LAWS["laplace"]] == [Gaussian, Laplace]


@pytest.fixture
def own_formats() -> Iterator[None]:
    """Formats that a test adds are gone after it."""
    before = list(FORMATS)
    yield
    FORMATS[:] = before


def write_lines(frame: pl.DataFrame, path: str | os.PathLike[str]) -> None:
    frame.write_ndjson(path)


LINES = Format("JSON lines", (".ndjson", ".jsonl"), pl.read_ndjson, write_lines)


def test_a_format_from_outside(own_formats: None, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path, out = tmp_path / "Table.NDJSON", tmp_path / "out.jsonl"
    frame = pl.read_csv(TABLE.encode())
    write_lines(frame, path)
    expected, y = read_long_table(frame)
    told = ["estimate", str(path), "--out", str(out)]
    assert "out.jsonl: the name must end in .csv, .parquet, .arrow or .feather" in refusal(capsys, *told)
    assert arguments.what_is(str(path)) == "is a file of no kind that this command made"
    add_format(LINES)
    add_format(LINES)
    assert arguments.what_is(str(path)).startswith("is a file of tables")
    assert main(told) == 0
    estimates = pl.read_ndjson(out)
    assert estimates["table"].to_list() == ["total", "sex", "sex"]
    assert main([*told[:-1], str(tmp_path / "out.csv")]) == 0
    assert np.allclose(pl.read_csv(tmp_path / "out.csv")["estimate"], estimates["estimate"])
    problem, values = read_long_table(path)
    assert np.array_equal(values, y)
    assert problem.observed.names == expected.observed.names
    with pytest.raises(ValueError, match=r"out.xls: .* \.csv, \.parquet, \.arrow, \.feather, \.ndjson or \.jsonl"):
        write_frame(frame, tmp_path / "out.xls")
    with pytest.raises(
        ValueError,
        match=r"t\.xls: .*\.csv\.gz, \.tsv, \.tsv\.gz, \.parquet, \.arrow, \.feather, \.xlsx, \.ndjson or \.jsonl",
    ):
        read_long_table("t.xls")
    path.write_text("no lines of JSON")
    assert "Table.NDJSON: not readable as a table" in refusal(capsys, *told)


def test_a_format_that_only_reads_text(own_formats: None, tmp_path: Path) -> None:
    add_format(Format("tabs", (".tab",), lambda file: read_text_table(file.read())))
    path = tmp_path / "table.tab"
    path.write_text(TABLE.replace(",", "\t").replace("21", "twenty"))
    refuses(r"table\.tab: .*row 2", read_long_table, path)
    refuses(r"the name must end in \.csv, \.parquet, \.arrow or \.feather", write_frame, pl.DataFrame({"a": [1]}), path)


def test_a_format_that_is_none_is_not_added(own_formats: None, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'tabs': \.csv is the suffix of CSV: give it another"):
        add_format(Format("tabs", (".tab", ".csv"), pl.read_ndjson))
    for suffixes in ((), ("tab",), (".TAB",), (".",), ".tab"):
        refuses("suffixes must be a tuple such as", Format, "tabs", suffixes, pl.read_ndjson)
    refuses("give the library together with the extra", Format, "tabs", (".tab",), pl.read_ndjson, library="tabs")
    refuses("a format is a Format: got str", add_format, ".tab", error=TypeError)
    add_format(Format("nothing", (".nothing",), lambda file: 5))
    (tmp_path / "table.nothing").touch()
    with pytest.raises(TypeError, match="what reads nothing files must give a data frame: got int"):
        read_long_table(tmp_path / "table.nothing")


def test_the_extra_of_a_format_is_named_where_its_library_is_missing(own_formats: None, tmp_path: Path) -> None:
    add_format(Format("tabs", (".tab",), pl.read_ndjson, library="no_such_library", extra="tabs"))
    (tmp_path / "table.tab").write_text(TABLE)
    with pytest.raises(ImportError, match=r"tabs files need no_such_library: pip install 'blue-solvers\[tabs\]', or"):
        read_long_table(tmp_path / "table.tab")
