"""Certificates of streamed estimates with equalities, and of parts split by table: sound, and the same anyhow."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blue_solvers import blue
from blue_solvers.results.proof import StoredProof
from blue_solvers.streaming import job, partition, proofs, stream
from blue_solvers.streaming.job import Job
from blue_solvers.streaming.part_files import Partitions
from blue_solvers.streaming.run import work_through
from tests.blue_solvers.streaming.known_sums import with_equalities
from tests.blue_solvers.streaming.split_counties import write_counties
from tests.helpers.effort import first_of, lengths
from tests.helpers.partitioned import proof_in, read_estimates, streamed


@dataclass
class Recorded:
    """What the parts of a run claimed, to be proved again after something was done to it."""

    calls: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    claimed: Any = None

    def watch(self, monkeypatch: pytest.MonkeyPatch, parts: Partitions) -> None:
        """Take down what is proved of every part."""
        prove_part, proof_of_all = proofs.prove_part, proofs.proof_of_all
        names = {entry.geocode: name for name, entry in parts.parts.items()}

        def watched(design, part, claim, handed, kept, is_top):
            self.calls[names[part.geocodes[0]]] = design, part, claim, handed, kept, is_top
            return prove_part(design, part, claim, handed, kept, is_top)

        def watched_all(parts, own, claimed):
            self.claimed = claimed
            return proof_of_all(parts, own, claimed)

        monkeypatch.setattr(job, "prove_part", watched)
        monkeypatch.setattr(proofs, "proof_of_all", watched_all)

    def again(self, parts: Partitions, spoil: Callable[[str, Any], Any]) -> StoredProof:
        """Prove everything again."""
        own = {}
        for name, (design, part, claim, *rest) in self.calls.items():
            own[name] = proofs.prove_part(design, part, spoil(name, claim), *rest)
        return proofs.proof_of_all(parts, own, spoil("top", self.claimed))


def recorded_equalities(seed: int, at: int, folder: Path, monkeypatch: pytest.MonkeyPatch):
    problem, y = with_equalities(seed)
    folder.mkdir(exist_ok=True)
    parts = partition(folder / "in", problem, y, at=problem.spine.levels[at])
    recorded = Recorded()
    recorded.watch(monkeypatch, parts)
    stream(folder / "in", folder / "out")
    return parts, recorded, folder / "out"


def recorded_split(folder: Path, monkeypatch: pytest.MonkeyPatch):
    *_, limit = write_counties(folder / "in")
    parts = Partitions.open(folder / "in")
    recorded = Recorded()
    recorded.watch(monkeypatch, parts)
    run = Job(folder / "in", folder / "out", memory=limit)
    assert len(run.split) == 2
    with run.held():
        work_through(run)
    return parts, recorded, folder / "out"


KINDS = [*((seed, at) for seed in (4, 5, 7) for at in (0, 2)), "split"]


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", first_of([KINDS[-1], *KINDS[1::2], *KINDS[:-1:2]], 2))
@lengths("number", 4, 50)
def test_no_spoilt_cell_passes(kind: Any, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cell of any part and table, off by 1e-6 standard errors and up, or 1e-10 of the largest where it is known."""
    if kind == "split":
        parts, recorded, out = recorded_split(tmp_path, monkeypatch)
    else:
        parts, recorded, out = recorded_equalities(*kind, tmp_path, monkeypatch)
    assert proof_in(out).certificate.bound < 1e-8
    assert recorded.again(parts, lambda name, claim: claim).certificate == proof_in(out).certificate
    rng = np.random.default_rng(0)
    names = [*recorded.calls, "top"]
    done: Counter[str] = Counter()
    while done["uncertain"] < number:
        name = names[rng.integers(len(names))]
        claim = recorded.claimed if name == "top" else recorded.calls[name][2]
        table = int(rng.choice(list(claim.cells)))
        cells, variances = np.array(claim.cells[table][:]), claim.variances[table][:]
        row, cell = (int(rng.integers(n)) for n in cells.shape)
        # The roots of parts are in the top as well, where they do not count.
        if name == "top" and parts.read("top").geocodes[top_row(parts, table, row)] in roots(parts):
            continue
        size, error = 10.0 ** rng.uniform(-6, 1), float(np.sqrt(variances[row, cell]))
        cells[row, cell] += size * error if error else 1e-10 * abs(cells).max() + 1e-9
        done["uncertain" if error else "known"] += 1
        other = replace(claim, cells={**claim.cells, table: cells})
        found = recorded.again(parts, lambda own, was: other if own == name else was).certificate  # noqa: B023
        assert found.bound is None or (error and found.bound * (1 + 1e-6) + 1e-8 >= size), (name, table, row, cell)


def top_row(parts: Partitions, table: int, row: int) -> int:
    return parts.read("top").members(parts.design.estimated[table][0]).start + row


def roots(parts: Partitions) -> set[str]:
    return {entry.geocode for entry in parts.parts.values()}


def test_a_combination_that_is_not_kept_is_not_certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All cells shifted so that tables agree, but the equalities do not hold; and other multipliers."""
    parts, recorded, _ = recorded_equalities(7, 1, tmp_path, monkeypatch)

    def forgotten(name: str, claim: Any) -> Any:
        return replace(claim, multipliers=0.9 * claim.multipliers)

    assert (recorded.again(parts, forgotten).certificate.bound or 1) > 1e-3
    other = replace(parts.design.combinations, equal_to=tuple(own + 1e-6 for own in parts.design.combinations.equal_to))
    shifted = replace(parts, design=replace(parts.design, combinations=other))
    found = recorded.again(shifted, lambda name, claim: claim).certificate
    assert found.bound is None
    assert "x contradicts equality" in found.reason


@pytest.mark.parametrize("seed", first_of([4, 6, 7], 1))
@pytest.mark.slow
def test_any_cut_and_any_order_prove_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []
    for at in (0, 2):
        parts, recorded, out = recorded_equalities(seed, at, tmp_path / str(at), monkeypatch)
        proof = proof_in(out)
        assert proof.certificate.bound < 1e-8
        fits.append(proof.fit)
        recorded.calls = dict(reversed(recorded.calls.items()))
        assert recorded.again(parts, lambda name, claim: claim) == proof
        monkeypatch.undo()
    assert len({fit.degrees_of_freedom for fit in fits}) == 1
    np.testing.assert_allclose([fit.statistic for fit in fits], fits[0].statistic, rtol=1e-8)


def test_split_parts_prove_and_fit_as_whole_ones_do(tmp_path: Path) -> None:
    *_, limit = write_counties(tmp_path / "in")
    found = {}
    for name, memory in (("split", limit), ("whole", None)):
        run = Job(tmp_path / "in", tmp_path / name, memory=memory)
        assert bool(run.split) == (name == "split")
        with run.held():
            found[name] = work_through(run)[1]
    assert found["split"].certificate.bound < 1e-10
    assert found["split"].fit.degrees_of_freedom == found["whole"].fit.degrees_of_freedom
    assert found["split"].fit.statistic == pytest.approx(found["whole"].fit.statistic, rel=1e-12)
    assert found["split"].fit.largest[0].residual == pytest.approx(found["whole"].fit.largest[0].residual, rel=1e-12)


@pytest.mark.few(0)
def test_a_bare_leaf_is_proved_by_what_was_measured_above_it(tmp_path: Path) -> None:
    """Nothing was measured there that tells its cells apart."""
    problem, y = with_equalities(0)
    out = streamed(tmp_path, problem, y, at=problem.spine.levels[1])
    bound = proof_in(out).certificate.bound
    assert bound < 1e-7
    P = blue(problem)
    error = abs(read_estimates(out, problem) - (P @ np.where(problem.unmeasured, 0.0, y) + P.offset))
    std_errors = np.sqrt(P.variances())
    uncertain = std_errors > 1e-6
    assert (error[uncertain] <= (bound + 1e-9) * std_errors[uncertain]).all()
