"""Streaming by subtree against the same passes in memory; killed runs, damaged files, the memory limit."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from blue_solvers.streaming import DamagedError, PartitionError, Partitions, partition, partition_source, stream
from blue_solvers.streaming.cutting import cut_with_siblings, largest_subtrees
from blue_solvers.streaming.partition import BUFFERS
from blue_solvers.streaming.subtrees import part_bytes
from constraint_builders import Problem, Schema, Spine
from noise_mechanisms import add_noise
from noise_mechanisms.laws import Rounding
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.partitioned import (
    assert_same,
    digests,
    invented_problem,
    peak_of_the_second,
    require_the_bytes_after_kills,
    streamed,
)
from tests.helpers.refused import refuses
from tests.helpers.spines import SCHEMA, consistent_measurements, spine_problems


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A partitioned problem, its measurements, and an undisturbed run."""
    folder = tmp_path_factory.mktemp("job")
    problem = invented_problem()
    y = consistent_measurements(problem, 1)
    streamed(folder, problem, y, at=problem.spine.levels[2])
    return folder, problem, y


def test_uneven_tree_with_everything_in_it(job) -> None:
    folder, problem, y = job
    assert len(Partitions.open(folder / "in").parts) > 5
    assert_same(problem, y, blue(problem, "two_pass"), folder / "out")


@examples(10)
@given(spine_problems(), st.integers(0, 1000), st.data())
def test_equals_the_passes_in_memory(problem: Problem, seed: int, data: st.DataObject) -> None:
    y = consistent_measurements(problem, seed)
    level = data.draw(st.sampled_from(problem.spine.levels))
    with tempfile.TemporaryDirectory() as folder:
        assert_same(problem, y, blue(problem, "two_pass"), streamed(Path(folder), problem, y, at=level))


def test_figures_that_were_rounded_by_a_law_with_a_mean(tmp_path: Path) -> None:
    """What is taken off in memory is taken off of parts; exact cells keep their values."""
    spine = Spine([-1, 0, 0, 1, 1, 2, 2, 2], ["L0", "L1", "L1", "L2", "L2", "L2", "L2", "L2"])
    law = Rounding(10)
    observed = {"L0": {"total": 0.0, "a": law}, "L1": {"detailed": law}, "L2": {"detailed": law, "g": law}}
    problem = Problem(SCHEMA, observed, spine=spine, desired=["detailed", "total"])
    truth = problem.marginal_matrix() @ np.random.default_rng(4).integers(5, 90, problem.domain.size).astype(float)
    y = add_noise(problem, truth, rng=0)
    assert_same(problem, problem.noise.centred(y), blue(problem, "two_pass"), streamed(tmp_path, problem, y, at="L1"))


def test_a_source_read_part_by_part_gives_the_same_files(job, tmp_path: Path) -> None:
    folder, problem, y = job
    tables = problem.observed.tables(y)
    variances = dict(zip(problem.observed.names, problem.geounit_variances, strict=True))
    observed: dict[str, dict[str, np.ndarray]] = {}
    for level, table in problem.observed.names:
        observed.setdefault(level, {})[table] = variances[level, table]
    desired: dict[str, list[str]] = {}
    for level, table in problem.desired.names:
        desired.setdefault(level, []).append(table)
    partition_source(
        tmp_path / "in",
        problem.schema,
        problem.spine,
        observed,
        desired,
        lambda level, table, ranks: tables[level, table][ranks],
        at=problem.spine.levels[2],
    )
    assert (tmp_path / "in" / "manifest.json").read_text() == (folder / "in" / "manifest.json").read_text()


@pytest.mark.few(2)
@pytest.mark.parametrize("desired", [None, "all", ["detailed", "total"]])
def test_a_source_with_structural_zeros(desired: object, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    spine = Spine([-1, 0, 0, 1, 1, 2, 2, 2], ["L0", "L1", "L1", "L2", "L2", "L2", "L2", "L2"])
    zeros = {("L1", "a * g"): rng.random((2, 2, 2)) < 0.3, ("L2", "q"): rng.random((5, 2)) < 0.3}
    observed = {"L0": {"total": 0.0, "a": 2.0}, "L1": {"detailed": 4.0}, "L2": {"detailed": 3.0, "g": 1.0}}
    problem = Problem(SCHEMA, observed, spine=spine, desired=desired, zeros=zeros)
    y = rng.normal(10, 3, problem.observed.size)
    tables = problem.observed.tables(y)

    def read(level: str, table: str, ranks: np.ndarray) -> np.ndarray:
        return tables[level, table][ranks]

    partition_source(tmp_path / "in", SCHEMA, spine, observed, desired, read, zeros=zeros, at="L1")
    stream(tmp_path / "in", tmp_path / "out")
    assert_same(problem, y, blue(problem, "two_pass"), tmp_path / "out")
    zeros["L1", "a * g"] = np.ones((2, 2), dtype=bool)
    with pytest.raises(ValueError, match=r"zeros of \('L1', 'a \* g'\) must be truth values of shape \(2, 2, 2\)"):
        partition_source(tmp_path / "other", SCHEMA, spine, observed, desired, read, zeros=zeros, at="L1")


@pytest.mark.few(3)
@pytest.mark.parametrize("at", ["A", "B", "C"])
@pytest.mark.parametrize(("wrong", "unit"), [("A", 1.0), ("B", 1e-10), ("C", 1.0), ("A", 1e-10)])
def test_exact_values_that_contradict_one_another_are_refused(at: str, wrong: str, unit: float, tmp_path: Path) -> None:
    spine = Spine([-1, 0, 0, 1, 1, 2, 2], ["A", "B", "B", "C", "C", "C", "C"])
    observed = {"A": {"total": 0.0}, "B": {"q": 0.0, "a": 3 * unit**2}, "C": {"a": 2 * unit**2, "q": 0.0}}
    values = {"A": {"total": np.array([[40.0]])}, "B": {"q": np.full((2, 2), 10.0)}, "C": {"q": np.full((4, 2), 5.0)}}
    values["B"]["a"], values["C"]["a"] = np.full((2, 2), 11.0), np.full((4, 2), 4.0)
    arguments = (SCHEMA, spine, observed, {"B": ["q"]}, lambda level, table, ranks: unit * values[level][table][ranks])
    partition_source(tmp_path / "agree", *arguments, at=at)
    stream(tmp_path / "agree", tmp_path / "agreed")
    values[wrong]["total" if wrong == "A" else "q"][0, 0] += 1
    partition_source(tmp_path / "in", *arguments, at=at)
    refuses("values known exactly contradict one another: others put table", stream, tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    stream(tmp_path / "agree", tmp_path / "out")
    assert digests(tmp_path / "out") == digests(tmp_path / "agreed")


def test_a_limit_that_is_no_number_cuts_nothing() -> None:
    with pytest.raises(ValueError, match="a limit of memory must be a number of bytes above 0: got nan"):
        largest_subtrees(Spine([-1, 0, 0], ["A", "B", "B"]), np.ones(3), float("nan"))


@pytest.mark.parametrize(
    ("variance", "value", "message"),
    [
        (1.0, np.ones((4, 2)), r"table 'a' of B was read in the shape \(4, 2\): give a row for each of"),
        (1.0, [["1", "2"]] * 2, "what was read of table 'a' of B does not hold numbers but text"),
        (["1", "2"], np.ones((2, 2)), r"variances of \('B', 'a'\) does not hold numbers but text"),
        (pd.Series([1.0, 2.0], ["2", "1"]), np.ones((2, 2)), r"variances of \('B', 'a'\) has labels"),
    ],
)
def test_a_source_of_another_shape_or_kind_is_refused(
    variance: object, value: object, message: str, tmp_path: Path
) -> None:
    spine = Spine([-1, 0, 0], ["A", "B", "B"])
    with pytest.raises(ValueError, match=message):
        partition_source(tmp_path / "in", SCHEMA, spine, {"B": {"a": variance}}, None, lambda *_: value, at="B")


def test_a_source_must_determine_what_is_wanted(tmp_path: Path) -> None:
    spine = Spine([-1, 0, 0], ["A", "B", "B"])
    with pytest.raises(ValueError, match="table 'detailed' is not estimable at B '1'"):
        partition_source(tmp_path / "in", SCHEMA, spine, {"A": {"detailed": 1.0}}, {"B": ["detailed"]}, None, at="B")
    assert not list(tmp_path.iterdir())


CROSSING = {"halves": [0, 0, 0, 1, 1, 1], "pairs": [0, 0, 1, 1, 2, 2], "others": [0, 1, 2, 2, 1, 0]}


@pytest.mark.parametrize(("measured", "wanted"), [("halves", "pairs"), ("pairs", "detailed")])
def test_a_source_names_recodes_that_nothing_determines(measured: str, wanted: str, tmp_path: Path) -> None:
    schema, spine = Schema({"age": 6}, recodes={"age": CROSSING}), Spine([-1, 0, 0], ["A", "B", "B"])
    observed = {"A": {measured: 1.0}, "B": {measured: 1.0}}
    with pytest.raises(ValueError, match=f"table '{wanted}' is not estimable at B '1'"):
        partition_source(tmp_path / "in", schema, spine, observed, {"B": [wanted]}, None, at="B")


@pytest.mark.few(0)
def test_killed_again_and_again_it_ends_with_the_same_bytes(job, tmp_path: Path) -> None:
    folder, _, _ = job
    require_the_bytes_after_kills(folder / "in", folder / "out", tmp_path / "out")


def test_damaged_and_missing_parts_are_named_and_the_others_done(job, tmp_path: Path) -> None:
    folder, _, _ = job
    shutil.copytree(folder / "in", tmp_path / "in")
    entries = list(Partitions.open(tmp_path / "in").parts.values())
    damaged, missing = entries[1], entries[3]
    first, second = (tmp_path / "in" / next(iter(entry.files)) for entry in (damaged, missing))
    kept = first.read_bytes()
    first.write_bytes(kept[:100] + bytes([kept[100] ^ 1]) + kept[101:])
    second.rename(tmp_path / "elsewhere")
    with pytest.raises(PartitionError, match=f"2 of {len(entries)} parts cannot be read") as caught:
        stream(tmp_path / "in", tmp_path / "out")
    assert set(caught.value.parts) == {damaged.name, missing.name}
    assert f"{first} is not what was written" in str(caught.value)
    assert f"{second} is missing" in str(caught.value)
    done = {path.name for path in (tmp_path / "out" / ".work" / "up").iterdir()}
    assert done == {entry.name for entry in entries} - {damaged.name, missing.name}
    first.write_bytes(kept)
    (tmp_path / "elsewhere").rename(second)
    stream(tmp_path / "in", tmp_path / "out")
    assert digests(tmp_path / "out") == digests(folder / "out")


@pytest.mark.few(3)
@pytest.mark.parametrize("pattern", ["*.parquet/0*", "*.parquet/top*", ".work/up/*", ".work/down/*", ".work/done/*"])
def test_what_was_damaged_afterwards_is_made_again(job, tmp_path: Path, pattern: str) -> None:
    folder, _, _ = job
    shutil.copytree(folder / "out", tmp_path / "out")
    for path in sorted((tmp_path / "out").glob(pattern))[:2]:
        path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    stream(folder / "in", tmp_path / "out")
    assert digests(tmp_path / "out") == digests(folder / "out")


def test_memory_left_over_keeps_parts_for_the_way_down(job, tmp_path: Path) -> None:
    folder, _, _ = job
    shutil.copytree(folder / "in", tmp_path / "in")
    entries = Partitions.open(tmp_path / "in").parts.values()

    def remove(step: str, *_: int) -> None:
        if step.startswith("top"):
            for entry in entries:
                for path in entry.files:
                    (tmp_path / "in" / path).unlink()

    stream(tmp_path / "in", tmp_path / "out", memory=1e9, progress=remove)
    assert digests(tmp_path / "out") == digests(folder / "out")


def test_refusals(job, tmp_path: Path) -> None:
    folder, problem, y = job
    with pytest.raises(MemoryError, match=r"part 00000 \(.*\) needs .* and the limit is 10 bytes"):
        stream(folder / "in", tmp_path / "out", memory=10)
    refuses(r"manifest\.json is missing", stream, tmp_path, tmp_path / "out", error=DamagedError)
    refuses("the work of another input, or of other wishes", stream, folder / "in", folder / "out", variances=False)
    refuses("nothing says where to cut", partition, tmp_path / "in", problem, y)
    with pytest.raises(ValueError, match=r"geolevel 'A/B' cannot name a file"):
        partition(tmp_path / "in", Problem(SCHEMA, {"A/B": {"a": 1.0}}, spine=Spine([-1], ["A/B"])), [1, 2], at="A/B")
    assert not (tmp_path / "in").exists()


@examples(10)
@given(st.integers(0, 1000), st.floats(0.05, 1.2))
def test_parts_keep_to_the_limit_and_are_as_large_as_it_allows(seed: int, share: float) -> None:
    problem = invented_problem(seed % 7, 40)
    spine = problem.spine
    own = np.random.default_rng(seed).uniform(1, 2, spine.size)
    limit = share * own.sum()
    try:
        roots, _ = largest_subtrees(spine, own, limit)
    except MemoryError:
        return
    below = own.copy()
    for members in reversed(spine.members[1:]):
        np.add.at(below, spine.parent[members], below[members])
    assert (below[roots] <= limit).all()
    above = spine.parent[roots]
    assert (below[above[above >= 0]] > limit).all()


def test_a_limit_too_small_names_the_geounit() -> None:
    spine = Spine([-1, 0, 0], ["State", "County", "County"], ["44", "44001", "44003"])
    with pytest.raises(MemoryError, match=r"County '44003' alone needs 3 KiB and the limit is 2 KiB"):
        largest_subtrees(spine, np.array([1024.0, 1024.0, 3072.0]), 2048)
    with pytest.raises(MemoryError, match="the 3 geounits at and above the cut need 3 KiB"):
        cut_with_siblings(spine, np.array([1024.0, 1024.0, 1024.0]), 2048)


@pytest.mark.few(0)
@pytest.mark.parametrize(("counties", "blocks"), [(10, 40), (30, 40), (10, 80), (4, 8)])
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc")
def test_the_memory_limit_is_kept(counties: int, blocks: int, tmp_path: Path) -> None:
    """Resident memory over that after a run of few geounits, which loads libraries and loops; the same for any tree."""
    large, y = wide_tables(counties, blocks)
    sizes = large.spine.level_of, large.spine.child_counts > 0
    own = part_bytes(partition_design(tmp_path, large, y), *sizes)
    limit = 5 / 3 * own.sum() / counties + BUFFERS
    assert len(partition(tmp_path / "in", large, y, memory=limit).parts) == counties
    partition(tmp_path / "small", *wide_tables(2, 2), at="C")
    runs = [[str(tmp_path / name) for name in names] for names in (("small", "first"), ("in", "second"))]
    taken = peak_of_the_second(f"stream(*arguments, memory={limit} if arguments[0].endswith('in') else None)", *runs)
    assert limit / 20 < taken <= limit  # far less would mean that nothing was measured


def wide_tables(counties: int, blocks: int) -> tuple[Problem, np.ndarray]:
    """Tables of 8,000 cells at a state, counties, and as many blocks in each, with measurements."""
    parent = [-1] + [0] * counties + [1 + i // blocks for i in range(counties * blocks)]
    spine = Spine(parent, ["S"] + ["C"] * counties + ["B"] * (counties * blocks))
    measured = {level: {"detailed": 2.0, "a": 1.0} for level in spine.levels}
    found = Problem(Schema({"a": 40, "b": 200}), measured, spine=spine)
    return found, np.random.default_rng(0).normal(size=found.observed.size)


def partition_design(folder: Path, problem: Problem, y: np.ndarray):
    """The design of a problem, as its parts have it."""
    return partition(folder / "whole", problem, y, at=problem.spine.levels[0]).design


@every("known", [0, 3])
def test_bytes_of_a_part_count_children_and_equalities(known: int, tmp_path: Path) -> None:
    spine, schema = Spine([-1, 0, 0], ["State", "County", "County"]), Schema({"a": 3, "b": 4})
    empty = np.zeros((2, 3, 4), dtype=bool)
    empty[0, 1:] = True
    problem = Problem(
        schema,
        {"State": {"total": 1.0}, "County": {"detailed": 1.0, "a": 2.0}},
        spine=spine,
        zeros={("County", "detailed"): empty},
        equalities=(np.eye(31)[1 : 1 + known], np.ones(known)) if known else None,
    )
    shutil.rmtree(tmp_path / "whole", ignore_errors=True)
    design = partition_design(tmp_path, problem, np.ones(31))
    levels, none, all_ = np.array([0, 1, 1]), np.zeros(3, bool), np.ones(3, bool)
    full = part_bytes(design, levels, none)
    assert len(design.equal_to) == known
    np.testing.assert_array_equal(part_bytes(design, levels, all_) - full, 8 * 2 * 12 * (1 + known))
    nothing = np.zeros_like(problem.zeros.empty.reshape(3, -1))
    np.testing.assert_array_equal(part_bytes(design, levels, none, nothing), full)


WHOLE = [[0.0, 255.0], [-1.0, 255.0], [-129.0, 2.0], [20255.0, 5948.0], [-(2.0**31), 2.0**31 - 1]]


@pytest.mark.parametrize("values", [*WHOLE, [2.0**31, 1.0], [0.5, 1.0], [-0.25, 1e14]])
def test_parts_hold_what_was_measured(values: list[float], tmp_path: Path) -> None:
    """Whole numbers in as few bytes as hold them, and no fewer."""
    problem = Problem(Schema({"a": 2}), {"S": {"a": 1.0}}, spine=Spine([-1], ["S"]))
    parts = partition(tmp_path / "in", problem, np.array(values), at="S")
    assert parts.read("00000").values[0].ravel().tolist() == values
    whole = all(value == round(value) and -(2**31) <= value < 2**31 for value in values)
    with np.load(tmp_path / "in" / "parts" / "00000.npz") as arrays:
        assert (arrays["values0"].dtype.kind in "iu") == whole
