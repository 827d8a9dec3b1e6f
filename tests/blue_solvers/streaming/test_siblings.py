"""Siblings that are one part together: as few parts as memory allows, and what they say is the same."""

import json
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from blue_solvers.results.checksums import read_sealed_json
from blue_solvers.results.questions import Result
from blue_solvers.streaming import estimate_measurements, stream
from blue_solvers.streaming.cutting import SIBLINGS, cut_with_siblings, largest_subtrees, members_of_parts
from blue_solvers.streaming.part_files import Partitions
from constraint_builders import Problem, Schema, Spine
from tests.blue_solvers.streaming.known_sums import with_equalities
from tests.blue_solvers.streaming.uneven_release import TIGHT, invented_release, settings_of
from tests.helpers.effort import examples, first_of
from tests.helpers.partitioned import assert_same, invented_problem, partition_tightly
from tests.helpers.spines import SCHEMA, consistent_measurements, spine_problems


@examples(30, 4)
@given(st.integers(0, 1000), st.floats(0.03, 1.1), st.integers(0, 3))
def test_parts_keep_to_the_limit_and_are_as_few_as_follow_one_another(seed: int, share: float, at: int) -> None:
    spine = invented_problem(seed % 7, 60).spine
    own = np.random.default_rng(seed).uniform(1, 2, spine.size)
    limit, level = share * own.sum(), spine.levels[min(at, len(spine.levels) - 1)]
    try:
        cut = cut_with_siblings(spine, own, limit, level)
    except MemoryError:
        return
    *parts, top = members_of_parts(cut.tree, cut.roots)
    assert np.array_equal(np.sort(np.concatenate([*parts, np.setdiff1d(top, cut.roots)])), np.arange(cut.tree.size))
    assert all(cut.own[part].sum() <= limit * (1 + 1e-12) for part in parts)
    assert cut.own[top].sum() <= limit
    subtrees = largest_subtrees(spine, own, np.inf, level)[0] if share >= 1 else None
    assert subtrees is None or np.array_equal(subtrees, cut.roots)
    held = [part[np.isin(cut.tree.parent[part], root)] if root >= spine.size else np.array([root])
            for root, part in zip(cut.roots, parts, strict=True)]  # fmt: skip
    assert (np.diff([lot[0] for lot in held]) > 0).all()
    for lot in held:
        assert np.unique(spine.parent[lot]).size == 1
    held.sort(key=lambda lot: (spine.parent[lot[0]], lot[0]))
    for one, other in pairwise(held):
        parent = spine.parent[one[0]]
        if parent >= 0 and parent == spine.parent[other[0]] and spine.level_of[parent] >= spine.level_index(level):
            both = np.isin(np.arange(spine.size), [*one, *other])
            for members in spine.members[1:]:
                both[members] |= both[spine.parent[members]]
            assert own[both].sum() + own[parent] > limit  # or these could have been one part
    assert np.array_equal(cut.tree.rank_in_level[: spine.size], spine.rank_in_level)


def test_siblings_are_shared_out_evenly() -> None:
    spine = Spine([-1, *[0] * 12], ["State", *["County"] * 12])
    cut = cut_with_siblings(spine, np.array([1.0, *[2.0] * 12]), 17.5)  # with one put in above: eight at most
    *parts, top = members_of_parts(cut.tree, cut.roots)
    assert [part.size for part in parts] == [7, 7]
    assert top.size == 3
    assert cut.tree.levels == ("State", SIBLINGS, "County")
    assert list(cut.geocodes[13:]) == ["1 to 6", "7 to 12"]


def test_the_level_put_in_has_a_name_of_its_own() -> None:
    spine = Spine([-1, *[0] * 4], [SIBLINGS, *["County"] * 4])
    cut = cut_with_siblings(spine, np.array([1.0, *[2.0] * 4]), 5.5)
    assert cut.tree.levels == (SIBLINGS, f"{SIBLINGS}'", "County")


def test_at_a_geolevel_every_subtree_is_a_part() -> None:
    spine = Spine([-1, *[0] * 4], ["State", *["County"] * 4])
    own = np.array([1.0, *[2.0] * 4])
    assert cut_with_siblings(spine, own, 9.0, at="County").roots.size == 4
    assert cut_with_siblings(spine, own, 100.0, at="County").roots.size == 4
    assert cut_with_siblings(spine, own, 8.0).roots.size == 2


@examples(15, 4)
@given(spine_problems(), st.integers(0, 1000), st.floats(0.1, 0.9))
def test_equals_the_passes_in_memory(problem: Problem, seed: int, share: float) -> None:
    y = consistent_measurements(problem, seed)
    with tempfile.TemporaryDirectory() as folder:
        partition_tightly(Path(folder) / "in", problem, y, share)
        stream(Path(folder) / "in", Path(folder) / "out")
        assert_same(problem, y, blue(problem, "two_pass"), Path(folder) / "out")


def checksums_of(out: Path) -> dict:
    return json.loads((out / "checksums.json").read_text())


@pytest.mark.parametrize("seed", first_of(range(3), 1))
def test_zeros_of_siblings(seed: int, tmp_path: Path) -> None:
    """Cells that are empty in all siblings of a part, and not above it."""
    rng = np.random.default_rng(seed)
    spine = Spine([-1, *[0] * 6, *np.repeat(np.arange(1, 7), 3)], ["L0", *["L1"] * 6, *["L2"] * 18])
    empty = rng.random((6, 2, 2)) < 0.3
    empty[:3, 0] = True
    zeros = {("L1", "a * g"): empty, ("L2", "q"): rng.random((18, 2)) < 0.2}
    observed = {"L0": {"total": 0.5, "a": 2.0}, "L1": {"detailed": 4.0}, "L2": {"detailed": 3.0, "g": 1.0}}
    problem = Problem(SCHEMA, observed, spine=spine, desired=["detailed", "total"], zeros=zeros)
    y = rng.normal(10, 3, problem.observed.size)
    assert partition_tightly(tmp_path / "in", problem, y, 0.6).design.put_in
    stream(tmp_path / "in", tmp_path / "out")
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")


@pytest.mark.few(0)
@pytest.mark.parametrize("seed", first_of(range(3), 1))
def test_equalities_within_siblings_and_over_several(seed: int, tmp_path: Path) -> None:
    problem, y = with_equalities(seed)
    assert partition_tightly(tmp_path / "in", problem, y, 0.4).design.put_in
    stream(tmp_path / "in", tmp_path / "out")
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
    proof = checksums_of(tmp_path / "out")["certificate"]
    assert proof["bound"] is None or proof["bound"] < 1e-6


def test_a_result_says_nothing_of_what_was_put_in(tmp_path: Path) -> None:
    invented_release(tmp_path / "release", 0)
    seen: list[Partitions] = []

    def look(what: str, done: int, count: int) -> None:
        if what.startswith("up") and not seen:
            seen.append(Partitions.open(tmp_path / "out" / ".work" / "parts"))

    estimate_measurements(tmp_path / "release", settings_of(), tmp_path / "out", memory=TIGHT, progress=look)
    assert seen[0].design.put_in
    said = read_sealed_json(tmp_path / "out" / "result.json")
    assert list(said["tables"]) == ["US", "State", "County", "Block"]
    assert SIBLINGS not in (tmp_path / "out" / "result.json").read_text()
    assert Result(tmp_path / "out").proof.certificate.bound < 1e-9


def test_a_wide_country_needs_no_more_at_the_top_than_its_parts(tmp_path: Path) -> None:
    """Subtrees whose roots alone would not fit: together they do."""
    spine = Spine([-1, *[0] * 200], ["State", *["County"] * 200])
    problem = Problem(Schema({"a": 30}), {level: {"a": 1.0} for level in spine.levels}, spine=spine)
    y = np.random.default_rng(0).normal(size=problem.observed.size)
    assert len(partition_tightly(tmp_path / "in", problem, y, 0.2).parts) < 9
    assert largest_subtrees(spine, np.ones(201), 40.0)[0].size == 200
    stream(tmp_path / "in", tmp_path / "out")
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
