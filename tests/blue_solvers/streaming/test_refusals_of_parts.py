"""What a streamed run says where parts cannot be proved: of which part it speaks, and the fit of all measurements."""

from pathlib import Path

import numpy as np
import pytest

from blue_solvers import estimate
from blue_solvers.results.proof import StoredProof
from blue_solvers.verification.free_cells import FreeCells
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders import Areas, Problem, Schema, Spine
from tests.helpers.effort import first_of
from tests.helpers.partitioned import proof_in, streamed

SCHEMA = Schema({"a": 2, "b": 3})
COUNTIES, BLOCKS = 3, 4


def spine() -> Spine:
    codes = [f"{county}" for county in range(1, COUNTIES + 1)]
    blocks = [f"{code}{number}" for code in codes for number in range(BLOCKS)]
    parent = [-1, *[0] * COUNTIES, *np.repeat(np.arange(1, COUNTIES + 1), BLOCKS).tolist()]
    return Spine(parent, ["State", *["County"] * COUNTIES, *["Block"] * len(blocks)], ["", *codes, *blocks])


def proof_of(folder: Path, problem: Problem, y: np.ndarray, at: str) -> StoredProof:
    folder.mkdir(exist_ok=True)
    return proof_in(streamed(folder, problem, y, at=at))


def noisy(problem: Problem, seed: int) -> np.ndarray:
    rng, M = np.random.default_rng(seed), problem.marginal_matrix()
    return M @ rng.poisson(30, M.shape[1]).astype(float) + rng.normal(size=M.shape[0]) * np.sqrt(problem.variances)


def agrees(proof: StoredProof, problem: Problem, y: np.ndarray) -> None:
    fit = estimate(problem, y).goodness_of_fit(draws=0)
    assert proof.fit.degrees_of_freedom == fit.degrees_of_freedom
    assert proof.fit.statistic == pytest.approx(fit.statistic, rel=1e-9)
    assert proof.fit.largest[0].residual == pytest.approx(fit.outliers(1)[0].residual, rel=1e-7)
    assert sum(own.checked for own in proof.fit.tables.values()) == fit.checked


def _refuse(free: FreeCells, *cells: object) -> None:
    raise NotCertifiedError("nothing takes it")


@pytest.mark.parametrize("seed", first_of(range(8), 2))
def test_the_fit_counts_what_lies_above_parts_that_are_not_proved(seed: int, tmp_path: Path) -> None:
    observed = {"State": {"a": 1.0, "b": 2.0}, "County": {"total": 3.0, "b": 2.0}, "Block": {"a": 4.0, "b": 5.0}}
    problem = Problem(SCHEMA, observed, spine=spine())
    y = noisy(problem, seed)
    y[problem.observed.slice(("State", "b"))] += 100.0
    proof = proof_of(tmp_path, problem, y, "County")
    assert proof.certificate.bound is None
    assert proof.certificate.reason.startswith("part 00000 (County '1')")
    assert "holds all others" in proof.certificate.reason
    agrees(proof, problem, y)
    assert not proof.fit.fits


def test_the_fit_of_areas_counts_what_lies_above_them(tmp_path: Path) -> None:
    number = np.arange(12)
    layers = {"All": 0 * number, "Tract": number // 6, "Group": number // 3, "Other": 10 * (number // 6) + number % 2}
    tables = {"All": {"a": 1.0}, "Tract": {"total": 3.0}, "Group": {"b": 2.0}, "Other": {"a": 2.0}}
    problem = Problem(SCHEMA, tables | {"Leaf": {"detailed": 5.0}}, areas=Areas(number.size, layers))
    y = noisy(problem, 1)
    agrees(proof_of(tmp_path, problem, y, "Tract"), problem, y)


@pytest.mark.few(2)
@pytest.mark.parametrize("county", range(COUNTIES))
def test_what_no_sum_of_a_part_takes_is_left_to_the_tree_above(
    county: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block was measured by a coarse table alone, and what its county measured tells no single cell of it.

    Where nothing takes what is said of its cells the part is named.
    """
    fine, coarse = np.full(COUNTIES * BLOCKS, 2.0), np.full(COUNTIES * BLOCKS, 3.0)
    fine[county * BLOCKS] = np.inf
    observed = {"State": {"detailed": 1.0}, "County": {"b": 3.0}, "Block": {"detailed": fine, "a": coarse}}
    problem = Problem(SCHEMA, observed, spine=spine())
    y = noisy(problem.replace(noise=problem.noise.had_been_measured(np.flatnonzero(problem.unmeasured), 1.0)), 1)
    measured = np.where(problem.unmeasured, 0, y)
    assert proof_of(tmp_path, problem, measured, "County").certificate.bound < 1e-9
    monkeypatch.setattr(FreeCells, "left", _refuse)
    reason = proof_of(tmp_path / "again", problem, measured, "County").certificate.reason
    assert f"part 0000{county} (County '{county + 1}'): " in reason
    assert "more" not in reason
