"""Manifests and parts that say anything at all, with their right checksums: only documented exceptions."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from blue_solvers.streaming import DamagedError, PartitionError, part_files, partition, stream
from constraint_builders import Areas, Problem, Schema, Spine
from tests.helpers.effort import lengths
from tests.helpers.forged import escaped

SCHEMA = Schema({"sex": ["f", "m"]})
SPINE = Spine([-1, 0, 0, 1, 1, 2, 2], ["S", "C", "C", "B", "B", "B", "B"], ["s", "c1", "c2", "b1", "b2", "b3", "b4"])
MEASURED = {"S": {"total": 1.0}, "C": {"sex": 2.0}, "B": {"sex": 3.0}}
BLOCKS = np.arange(8)
LAYERS = {"C": BLOCKS // 4, "Tract": BLOCKS // 2, "Other": (BLOCKS + 1) // 4 + 10 * (BLOCKS // 4)}


def problem(kind: str) -> Problem:
    if kind == "areas":
        measured = {"C": {"total": 1.0}, "Tract": {"sex": 2.0}, "Other": {"sex": 2.0}, "Leaf": {"sex": 3.0}}
        return Problem(SCHEMA, measured, areas=Areas(8, LAYERS))
    empty = np.zeros((4, 2), dtype=bool)
    empty[0, 1] = True
    zeros = {("B", "sex"): empty} if kind == "zeros" else None
    sums = (np.eye(1, 13, 5) + np.eye(1, 13, 6), np.array([7.0])) if kind == "equalities" else None
    return Problem(SCHEMA, MEASURED, {"S": ["sex"], "B": ["sex"]}, spine=SPINE, zeros=zeros, equalities=sums)


@pytest.mark.few(1)
@lengths("every", 29, 1)
@pytest.mark.parametrize("kind", ["plain", "zeros", "equalities", "areas"])
def test_what_a_manifest_says_is_used_or_refused(kind: str, every: int, tmp_path: Path) -> None:
    own = problem(kind)
    partition(tmp_path / "parts", own, np.arange(3.0, 3.0 + own.observed.size), at="C")

    def use() -> None:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        stream(tmp_path / "parts", tmp_path / "out", memory=1e8)

    use()
    documented = (DamagedError, PartitionError, ValueError, MemoryError, OSError)
    found = escaped(tmp_path / "parts" / "manifest.json", use, documented, every)
    assert not found, "\n".join(found)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["plain", "zeros", "equalities", "areas"])
def test_what_a_part_says_is_used_or_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = problem(kind)
    parts = partition(tmp_path / "parts", own, np.arange(3.0, 3.0 + own.observed.size), at="C")
    monkeypatch.setattr(part_files, "require_intact", lambda path, digest: None)
    file = next((tmp_path / "parts" / "parts").glob("0*.npz"))
    written, rng = file.read_bytes(), np.random.default_rng(0)
    for number in range(400):
        forged = bytearray(written[: None if number % 3 else rng.integers(len(written))])
        for place in rng.integers(max(len(forged), 1), size=min(len(forged), number % 4)):
            forged[place] = rng.integers(256)
        file.write_bytes(bytes(forged))
        try:
            parts.read(file.stem)
        except (DamagedError, MemoryError, OSError):
            continue
