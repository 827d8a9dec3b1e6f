"""Errors that are planted in a folder of measurements: the command finds each, by name, in memory and streamed."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from blue_solvers.cli import main
from constraint_builders import Problem, Spine
from constraint_builders.files import write_noisy_measurements
from constraint_builders.files.settings import parse_settings
from constraint_builders.true_tables import true_vector
from noise_mechanisms import add_noise

COUNTIES = 4
LOSSES = "[1, 1, 1]"
SETTINGS = """
geolevels = ["State", "County", "Block"]
noise = "discrete_gaussian"
[variables]
sex = ["female", "male"]
age = {ages}
[budget]
[budget.losses]
total = {losses}
age = {losses}
detailed = {losses}
"""
VARIANCES = {
    "State": {"total": 25.0, "age": 16.0, "detailed": 9.0},
    "County": {"total": 25.0, "age": 16.0, "detailed": 9.0},
    "Block": {"total": 25.0, "age": 60.0, "detailed": 1.5},  # ages are checked well by the cells that they add
}
MISREAD = ("Block", "age")
CHECKED = 1 - 2 * 1.5 / 60.0  # of a cell of that table, at least: what its residual has of its own noise
POWER = 0.99
DOUBTFUL = 1e-4  # probability under all tables from which the command speaks up


def cells_needed(misreading: float) -> int:
    """Cells of a table of which a share `CHECKED` is checked, for its variance misread by so much to be found.

    The weighted squares of n residuals have expectation n r and, if the noise has 1 + d of its variance, n r (1 + r d);
    their standard deviation is at most sqrt(2 n r). The table's z has to pass the limit for the worst of all tables.
    """
    tables = sum(len(own) for own in VARIANCES.values())
    limit = norm.isf(-np.expm1(np.log1p(-DOUBTFUL) / tables) / 2)
    return int(np.ceil(2 * (limit + norm.isf(1 - POWER)) ** 2 / (CHECKED**3 * misreading**2)))


@dataclass
class Release:
    """Measurements before they are written."""

    problem: Problem
    tables: dict[tuple[str, str], np.ndarray]  # to be changed in place

    def code(self, level: str, row: int) -> str:
        spine = self.problem.spine
        return spine.geocodes[int(spine.members[spine.levels.index(level)][row])]


def write(
    folder: Path,
    blocks: int = 20,
    ages: int = 12,
    spoil: Callable[[Release], None] = lambda release: None,
    misread: float = 0.0,
    seed: int = 0,
) -> Release:
    """Write a release with something done to it; `blocks` of every county."""
    codes = [f"44{county:03}" for county in range(1, 2 * COUNTIES, 2)]
    places = [f"{county}{number:04}" for county in codes for number in range(blocks)]
    spine = Spine.from_geocodes({"State": ["44"], "County": codes, "Block": places})
    text = SETTINGS.format(ages=ages, losses=LOSSES)
    settings = parse_settings(text, "planted")
    truly = {level: dict(own) for level, own in VARIANCES.items()}
    truly[MISREAD[0]][MISREAD[1]] *= 1 + misread
    problem, other = (
        Problem(settings.schema, own, spine=spine, noise=settings.noise, desired={"State": ["total"]})
        for own in (VARIANCES, truly)
    )
    rng = np.random.default_rng(seed)
    means = np.linspace(3, 12, 2 * ages).reshape(2, ages)
    truth = true_vector(problem, rng.poisson(means, (len(places), 2, ages)))
    y = add_noise(other, truth, rng)
    release = Release(problem, problem.observed.tables(y))
    spoil(release)
    write_noisy_measurements(folder, problem, problem.observed.vector(release.tables), notes={"settings.toml": text})
    return release


def one_cell(release: Release) -> None:
    release.tables["Block", "age"][37, 4] += round(9 * np.sqrt(60.0))


@pytest.fixture(params=["in memory", "streamed"])
def estimated(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable:
    """What the command prints of the fit of a release."""

    def said(release: Path, memory: int = 60) -> list[str]:
        streamed = ["--memory", str(memory << 20)] if request.param == "streamed" else []
        assert main(["estimate", str(release), "--out", str(tmp_path / "out"), "--fit", *streamed]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert sum(line.startswith("proved: no figure") for line in lines) == 1
        return [line for line in lines if line.split()[0] in ("fit", "adjusted", "geounit")]

    return said


@pytest.mark.few(1)
def test_all_is_well_in_two_lines(estimated: Callable, tmp_path: Path) -> None:
    write(tmp_path / "in")
    fit, residual = estimated(tmp_path / "in")
    assert fit.startswith("fit        fits: all tables agree with their noise; chi-square ")
    assert residual.startswith("adjusted   most by ")


def test_one_cell_nine_deviations_off(estimated: Callable, tmp_path: Path) -> None:
    release = write(tmp_path / "in", spoil=one_cell)
    fit, residual, geounit = estimated(tmp_path / "in")
    assert "DOES NOT FIT" in fit
    assert f"cell (age=4) of 'age' of Block {release.code('Block', 37)!r}" in residual
    assert 7 < float(re.search(r"most by -([\d.]+)", residual)[1]) < 12
    assert float(re.search(r"probability ([\d.e-]+)", residual)[1]) < 1e-8
    assert release.code("Block", 37) in geounit


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("misread", "ages"), [(0.12, 100), (-0.12, 100), (0.01, 400)], ids=["12 % more", "12 % less", "1 %"]
)
def test_a_misread_variance_is_found(misread: float, ages: int, estimated: Callable, tmp_path: Path) -> None:
    """At the number of cells that is needed to find it with a probability of 0.99."""
    blocks = -(-cells_needed(abs(misread)) // (ages * COUNTIES))
    write(tmp_path / "in", blocks, ages, misread=misread)
    fit, *_ = estimated(tmp_path / "in", memory=60 if ages < 400 else 400)
    assert "DOES NOT FIT" in fit
    assert f"worst table {MISREAD[1]!r} at {MISREAD[0]}" in fit
    assert (float(re.search(r"z = ([+-][\d.]+)$", fit)[1]) > 0) == (misread > 0)
