"""The lists of places in CONTRIBUTING are complete: one of each is added from outside, and names stand nowhere else."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from numpy.typing import ArrayLike, NDArray

from blue_solvers import SOLVERS, Dense, Prepared, Solver, blue, intervals
from blue_solvers.cli import main
from blue_solvers.commands import kinds
from blue_solvers.testing import check_solver
from constraint_builders import Problem, Schema, gallery
from constraint_builders.description import noise as noise_file
from constraint_builders.description import noise_covariance
from constraint_builders.description.noise import NOISE_LAWS
from constraint_builders.files import read_long_table, schema_file, settings, source
from noise_mechanisms import add_noise
from noise_mechanisms.laws import LAWS, ContinuousLaw
from tests.helpers.places import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGES = ["constraint_builders", "noise_mechanisms", "blue_solvers"]
TABLE = "table,sex,value,variance\ntotal,*,21,1\nsex,female,9,2\nsex,male,11,2\n"


def places(heading: str) -> list[str]:
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


def naming(word: str) -> set[str]:
    """Files of the packages in which a word stands."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {str(path.relative_to(ROOT)) for path in files if re.search(word, path.read_text())}


@pytest.mark.parametrize("heading", ["Adding a solver", "Adding a noise law", "Adding a format of tables"])
def test_the_places_are_there(heading: str) -> None:
    assert len(places(heading)) > 3
    assert [place for place in places(heading) if "NAME" not in place and not (ROOT / place).is_file()] == []


def test_solvers_are_named_where_the_list_says() -> None:
    """Multigrid, on which only its cycle as a preconditioner is built."""
    own, built_on = "blue_solvers/solvers/multigrid.py", "blue_solvers/solvers/conjugate_gradient.py"
    listed = {
        place for place in places("Adding a solver") if place.endswith(".py") and place.startswith("blue_solvers")
    }
    assert naming(r"\bMultigrid\b") - {own, built_on} == {place for place in listed if "NAME" not in place}


def test_laws_are_named_where_the_list_says() -> None:
    assert naming(r"\"discrete_laplace\"") == set(places("Adding a noise law"))


def test_formats_are_named_where_the_list_says() -> None:
    listed = places("Adding a format of tables")
    assert naming(r"\.xlsx") == {place for place in listed if place.endswith(".py")}
    assert set(listed) - naming(r"\.xlsx") == {"pyproject.toml"}


@dataclass(frozen=True)
class Outsider(Solver):
    """Dense algebra under another name."""

    name: ClassVar[str] = "outsider"

    def supports(self, problem: Problem) -> str | None:
        """As `Dense`."""
        return Dense().supports(problem)

    def prepare(self, problem: Problem) -> Prepared:
        """As `Dense`."""
        return Dense().prepare(problem)


def test_a_solver_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SOLVERS, Outsider.name, Outsider)
    check_solver(Outsider())
    problem = gallery.toy()
    y = np.arange(float(problem.observed.size))
    P = blue(problem, "outsider")  # type: ignore[arg-type]
    np.testing.assert_allclose(P @ y, blue(problem) @ y, atol=1e-12)
    (tmp_path / "table.csv").write_text(TABLE)
    command = ["estimate", str(tmp_path / "table.csv"), "--out", str(tmp_path / "out.csv"), "--solver", "outsider"]
    assert main(command) == 0
    total = pl.read_csv(tmp_path / "out.csv")["estimate"][0]
    assert total == pytest.approx(21 - 1 / (1 + 2 + 2) * (21 - 20))  # the sum's share of the disagreement


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


def test_a_noise_law_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema({"a": 3, "b": 4})
    observed = {"total": 1.0, "a": 3.0, "detailed": 12.0}
    with pytest.raises(ValueError, match="noise must be one of"):
        Problem(schema, observed, noise="uniform")
    monkeypatch.setitem(LAWS, "uniform", Uniform)
    for module in (noise_file, noise_covariance, schema_file, settings):
        monkeypatch.setattr(module, "NOISE_LAWS", (*NOISE_LAWS, "uniform"))
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


def test_a_format_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    frame = pl.read_csv(TABLE.encode())
    frame.write_ndjson(tmp_path / "table.ndjson")
    problem, y = read_long_table(pl.read_ndjson(tmp_path / "table.ndjson"))
    assert y.tolist() == [21, 9, 11]
    path, out = tmp_path / "table.tsv", str(tmp_path / "out.csv")
    path.write_text(TABLE.replace(",", "\t"))
    assert main(["estimate", str(path), "--out", out]) == 2
    monkeypatch.setattr(source, "SUFFIXES", (*source.SUFFIXES, ".tsv"))
    monkeypatch.setattr(kinds, "TABLE_SUFFIXES", (*kinds.TABLE_SUFFIXES, ".tsv"))
    assert kinds.what_is(str(path)).startswith("is a file of tables")
    assert main(["estimate", str(path), "--out", out]) == 0
    again, values = read_long_table(path)
    assert np.array_equal(values, y)
    assert again.observed.names == problem.observed.names
