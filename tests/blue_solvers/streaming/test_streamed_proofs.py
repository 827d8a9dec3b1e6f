"""Proofs and fits of streamed estimates: put together of parts, never too small, stored, and kept from damage."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers import blue
from blue_solvers.cli import main
from blue_solvers.results.checksums import DamagedError, seal_json
from blue_solvers.results.proof import StoredProof
from blue_solvers.results.questions import Result
from blue_solvers.streaming import estimate_measurements, partition, stream
from blue_solvers.streaming.job import CHECKSUMS
from blue_solvers.streaming.packing import pack, unpack
from blue_solvers.streaming.part_files import Partitions
from blue_solvers.streaming.proofs import PartProof, ResultToProve, proof_of_all, prove_part
from blue_solvers.streaming.subtrees import SubtreeForm
from constraint_builders import Problem, Schema, Spine
from constraint_builders.files import read_noisy_measurements, read_settings
from noise_mechanisms import add_noise
from noise_mechanisms.laws.named_laws import tails_in
from tests.blue_solvers.streaming.uneven_release import TIGHT, invented_release
from tests.helpers.effort import first_of
from tests.helpers.partitioned import invented_problem, partition_tightly
from tests.helpers.refused_commands import refusal


def proof_of(folder: Path, problem: Problem, x: np.ndarray) -> StoredProof:
    """What parts prove of an answer over the observed layout, which is also the desired one."""
    parts, spine = Partitions.open(folder), problem.spine
    place = {(spine.levels[level], code): [] for level, code in zip(spine.level_of, spine.geocodes, strict=True)}
    tables = {}
    for i, (level, table) in enumerate(parts.design.estimated):
        name = next(n for n in problem.observed.names if n == (parts.design.levels[level], table.name))
        tables[i] = x[problem.observed.slice(name)].reshape(-1, table.size)
    rank = {(spine.levels[level], spine.geocodes[i]): r for level, own in enumerate(spine.members)
            for r, i in enumerate(own)}  # fmt: skip
    assert len(rank) == len(place)

    def cells(part):
        found = {}
        for i, (level, _) in enumerate(parts.design.estimated):
            codes = part.geocodes[part.members(level)]
            if codes:
                found[i] = tables[i][[rank[parts.design.levels[level], code] for code in codes]]
        return found

    proofs = {}
    for name in parts.parts:
        part = parts.read(name)
        proof = prove_part(parts.design, part, ResultToProve(cells(part), {}), {}, part.own(parts.design), is_top=False)
        proofs[name] = unpack(pack(proof), PartProof)
    return proof_of_all(parts, proofs, ResultToProve(cells(parts.read("top")), {}))


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", first_of(range(12), 2))
@pytest.mark.parametrize("at", [1, 2, "siblings together"])
def test_parts_prove_what_the_whole_does_and_never_too_much(tmp_path: Path, seed: int, at: int | str) -> None:
    problem = invented_problem(seed).observing()
    rng = np.random.default_rng(seed)
    M = problem.marginal_matrix()
    noise = rng.standard_normal(problem.observed.size) * np.sqrt(np.where(problem.unmeasured, 0, problem.variances))
    y = M @ rng.poisson(30, M.shape[1]).astype(float) + noise
    if isinstance(at, int):
        partition(tmp_path / "in", problem, y, at=problem.spine.levels[at])
    else:
        assert partition_tightly(tmp_path / "in", problem, y, 0.4).design.put_in
    P = blue(problem)
    x, errors = P @ y + P.offset, np.sqrt(np.maximum(P.variances(), 0))
    proved = proof_of(tmp_path / "in", problem, x).certificate
    if proved.bound is None:
        assert has_bare_leaf(problem), proved
        return
    assert proved.bound < 1e-9
    exact = M[np.flatnonzero(problem.exact)]
    for size in (1e-6, 1e-3, 1.0):
        step = rng.standard_normal(M.shape[1]) * (rng.random(M.shape[1]) < 0.3)
        step -= np.linalg.lstsq(exact.toarray(), exact @ step, rcond=None)[0]  # exact tables stay as they are
        moved = M @ step
        uncertain = errors > 1e-6 * errors.max()
        off = abs(moved[uncertain]) / errors[uncertain]
        wrong = x + moved * (size / off.max())
        found = proof_of(tmp_path / "in", problem, wrong).certificate
        assert found.bound is None or found.bound * (1 + 1e-6) + 1e-8 >= size
        cell = int(rng.choice(np.flatnonzero(uncertain)))
        spoilt = x.copy()
        spoilt[cell] += size * errors[cell]
        found = proof_of(tmp_path / "in", problem, spoilt).certificate
        assert found.bound is None or found.bound * (1 + 1e-6) + 1e-8 >= size


def test_a_table_that_is_known_exactly_takes_its_part_of_cells_that_were_not_measured(tmp_path: Path) -> None:
    """Of a part's leaf, of which no table tells its cells but those above the part."""
    spine = Spine([-1, 0, 0, 1, 1, 2, 2], ["S", *["C"] * 2, *["B"] * 4])
    blocks = {"detailed": np.array([np.inf, 1.0, 2.0, 3.0]), "total": np.array([0.0, 1.0, 1.0, 1.0])}
    observed = {"S": {"detailed": 1.0, "total": 1.0}, "C": {"detailed": np.array([np.inf, 1.0])}, "B": blocks}
    problem = Problem(Schema({"a": 3}), observed, spine=spine).observing()
    rng, M = np.random.default_rng(0), problem.marginal_matrix()
    y = add_noise(problem, M @ rng.poisson(30, M.shape[1]).astype(float), rng)
    partition(tmp_path / "in", problem, y, at="C")
    P = blue(problem)
    x = P @ y + P.offset
    assert proof_of(tmp_path / "in", problem, x).certificate.bound < 1e-11
    moved = M[:, 0].toarray().ravel() - M[:, 1].toarray().ravel()  # of its counts, so that the total stays
    off = abs(moved) / np.sqrt(np.maximum(P.variances(), 1e-9))
    found = proof_of(tmp_path / "in", problem, x + moved * 1e-3 / off.max()).certificate.bound
    assert 1e-3 <= found * (1 + 1e-9) < 1e-1


def has_bare_leaf(problem: Problem) -> bool:
    """Whether the detailed table was not measured in some geounit that has no children."""
    leaves = problem.spine.child_counts == 0
    return any(
        np.isinf(problem.geounit_variances[i][leaves[problem.spine.members[level]]]).any()
        for i, (level, table) in enumerate(zip(problem.observed_levels, problem.observed_tables, strict=True))
        if table.name == "detailed"
    )


@pytest.mark.parametrize("seed", first_of(range(6), 1))
def test_a_streamed_release_is_proved_and_tested(tmp_path: Path, seed: int) -> None:
    """Zeros, exact tables, geounits that were not measured: as proved, and as fitting, as in memory."""
    invented_release(tmp_path / "release", seed)
    settings = read_settings(tmp_path / "release" / "settings.toml")
    estimate_measurements(tmp_path / "release", settings, tmp_path / "out", memory=TIGHT)
    result = Result(tmp_path / "out")
    assert result.proof.certificate.bound < 1e-9
    assert result.description.exact
    release = read_noisy_measurements(tmp_path / "release", settings)
    est = blue(release.problem).estimate(release.y)
    fit, found = est.goodness_of_fit(draws=0), result.proof.fit
    assert found.degrees_of_freedom == fit.degrees_of_freedom
    assert found.statistic == pytest.approx(fit.statistic, rel=1e-8)
    largest = fit.outliers(1)[0]
    assert found.largest[0].residual == pytest.approx(largest.residual, rel=1e-6)
    assert found.probability == pytest.approx(largest.probability, rel=1e-5)
    for (level, table), own in found.tables.items():
        assert own.statistic == pytest.approx(fit.by_table[level, table].statistic, rel=1e-6, abs=1e-9)
    levels = fit.by_geolevel
    assert {level: round(own.expectation, 6) for level, own in found.by_geolevel.items()} == {
        level: round(own.expectation, 6) for level, own in levels.items()
    }


def test_fits_of_folders_know_the_law(tmp_path: Path) -> None:
    """The kurtosis of every table is that of its least noise, in memory and streamed."""
    release = tmp_path / "release"
    invented_release(release, 0)
    text = (release / "settings.toml").read_text()
    (release / "settings.toml").write_text(text.replace("discrete_gaussian", "discrete_laplace"))
    problem = read_noisy_measurements(release, read_settings(release / "settings.toml")).problem
    for name, memory in (("whole", []), ("streamed", ["--memory", str(int(TIGHT))])):
        assert main(["estimate", str(release), "--out", str(tmp_path / name), *memory]) == 0
        fit = Result(tmp_path / name).proof.fit
        for key, own in fit.tables.items():
            variances = problem.variances[problem.observed.slice(key)]
            least = variances.min(initial=np.inf, where=variances > 0)
            assert own.excess == pytest.approx(3 + 1 / least if own.expectation > 1e-9 else 0)
        assert 3 < fit.geounit.excess <= max(own.excess for own in fit.tables.values())
    parts = partition(tmp_path / "parts", problem, np.zeros(problem.observed.size), at="County")
    assert parts.design.tails == tails_in(problem)


def test_a_wrong_estimate_is_not_called_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invented_release(tmp_path / "release", 0)
    settings = read_settings(tmp_path / "release" / "settings.toml")
    right = SubtreeForm.estimates

    def spoilt(self, variances=True):
        found = right(self, variances)
        for cells in found.cells.values():
            cells[-1, -1] += 1e-4
        return found

    monkeypatch.setattr(SubtreeForm, "estimates", spoilt)
    estimate_measurements(tmp_path / "release", settings, tmp_path / "out", memory=TIGHT)
    result = Result(tmp_path / "out")
    assert (result.proof.certificate.bound or 1) > 1e-6
    assert not result.description.exact


def test_a_stored_value_that_was_changed_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invented_release(tmp_path / "release", 0)
    out = tmp_path / "out"
    assert main(["estimate", str(tmp_path / "release"), "--out", str(out), "--memory", str(int(TIGHT))]) == 0
    said = capsys.readouterr().out
    assert "\nproved: no figure is further than" in said
    assert "\nfit        fits: all tables agree with their noise; chi-square" in said
    assert "\nadjusted   most by" in said
    assert main(["info", str(out)]) == 0
    assert "proved: no figure" in capsys.readouterr().out
    code = Result(out).spine.geocodes[0]
    assert main(["query", str(out), "--geolevel", "US", "--geounits", code, "--count", "sex=male"]) == 0
    assert "proved: no figure" in capsys.readouterr().out
    text = (out / "result.json").read_text()
    other = json.loads(text)
    other["proof"]["of"] = "0" * 64
    other.pop("sha256")
    (out / "result.json").write_text(seal_json(other))
    assert "its certificate is of other estimates" in refusal(capsys, "info", str(out))
    (out / "result.json").write_text(text)
    path = next((out / "estimates").glob("Block.parquet/*"))
    frame = pl.read_parquet(path)
    cells = frame["estimate"].to_list()
    cells[0][0] += 1e-7
    frame.with_columns(pl.Series("estimate", cells)).write_parquet(path)
    assert "is not what was written" in refusal(capsys, "info", str(out))
    with pytest.raises(DamagedError):
        Result(out).require_intact()


def test_without_a_proof_nothing_is_claimed(tmp_path: Path) -> None:
    problem = invented_problem(1)
    y = np.where(problem.unmeasured, 0, np.round(np.arange(problem.observed.size) % 7.0))
    y[problem.exact] = 0
    partition(tmp_path / "in", replace_exact(problem), y, at=problem.spine.levels[1])
    stream(tmp_path / "in", tmp_path / "out", certify=False)
    assert "certificate" not in json.loads((tmp_path / "out" / CHECKSUMS).read_text())
    stream(tmp_path / "in", tmp_path / "proved")
    assert json.loads((tmp_path / "proved" / CHECKSUMS).read_text())["certificate"]["bound"] < 1e-8


def replace_exact(problem: Problem) -> Problem:
    """The same with noise everywhere."""
    variances = np.where(problem.exact, 1.0, problem.variances)
    tables = {}
    for i, (level, table) in enumerate(problem.observed.names):
        own = variances[problem.observed.block(i)].reshape(problem.observed.shape((level, table)))
        tables.setdefault(level, {})[table] = own.reshape(len(own), -1)[:, 0]
    return Problem(problem.schema, tables, spine=problem.spine, desired=["detailed", "b", "total"])
