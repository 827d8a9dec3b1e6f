"""Areas that cross inside the areas of one layer, streamed: beside exact arithmetic, and the same in memory."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blue_solvers import UnsupportedProblemError, blue
from blue_solvers.streaming import PartitionError, Partitions, job, part_files, partition, stream
from blue_solvers.streaming.crossing_part import CrossingForm
from blue_solvers.streaming.part_files import BUFFERS
from constraint_builders import Areas, Problem, Schema
from tests.helpers.effort import examples, first_of
from tests.helpers.oracles.compare import EPSILON, ROUNDING, largest
from tests.helpers.oracles.invent import Invented, Kind, invent
from tests.helpers.partitioned import digests, read_estimates, require_the_bytes_after_kills, streamed
from tests.helpers.refused import refuses

CUT = Kind(areas="cut", zeros=False, equalities=False)
SEEDS = st.integers(0, 100_000)
SCHEMA = Schema({"sex": 2, "age": 5}, recodes={"age": {"adult": [0, 0, 1, 1, 1]}})
BLOCKS = np.arange(24)
LAYERS = {
    "County": BLOCKS // 12,
    "Tract": BLOCKS // 6,
    "Group": 10 * (BLOCKS // 6) + (BLOCKS % 6) // 2,
    "Other": 10 * (BLOCKS // 6) + (BLOCKS % 6 + 1) // 3,
}
MEASURED = {
    "County": {"total": 0.0, "adult": 2.0},
    "Tract": {"sex": 3.0, "adult": 1.0},
    "Group": {"sex * adult": 4.0},
    "Other": {"age": 2.0},
    "Leaf": {"total": 0.5, "detailed": 9.0},
}


def some(seed: int) -> Invented:
    """The first problem that can be estimated, of a seed or those after it."""
    return next(found for s in range(seed, seed + 60) if (found := invent(s, CUT)) is not None)


def invented(layers: dict = LAYERS, measured: dict = MEASURED, **options) -> Problem:
    return Problem(SCHEMA, measured, areas=Areas(BLOCKS.size, layers), **options)


def run(problem: Problem, y: np.ndarray, folder: Path, **cut) -> tuple[np.ndarray, np.ndarray]:
    out = streamed(folder, problem, y, **cut)
    return read_estimates(out, problem), read_estimates(out, problem, "std_error") ** 2


def require_exact(found: Invented, x: np.ndarray, variances: np.ndarray) -> None:
    """Estimates and variances are those of exact arithmetic, to rounding of the largest number."""
    reference = found.reference
    floor = ROUNDING * EPSILON * largest(found)
    assert (abs(x - reference.estimate) <= 1e-8 * reference.std_errors + floor).all()
    known = reference.variances == 0
    assert (abs(variances - reference.variances)[~known] <= 1e-7 * reference.variances[~known]).all()
    assert (variances[known] <= 1e-12).all()


@pytest.mark.few(0)
@examples(60, 1)
@given(seed=SEEDS)
@example(seed=4)  # parts of one leaf
@example(seed=65537)  # exact and noisy sums of one component, the noise far larger than the anchor's
def test_beside_exact_arithmetic(seed: int) -> None:
    """At every layer at which the areas can be cut; some of them are unmeasured, exact, empty or weighted."""
    found = some(seed)
    problem, cuts = found.description.problem(), 0
    for layer in problem.areas.levels:
        with tempfile.TemporaryDirectory() as folder:
            try:
                x, variances = run(problem, found.y, Path(folder), at=layer)
            except UnsupportedProblemError:
                continue
        cuts += 1
        require_exact(found, x, variances)
    assert cuts


@pytest.mark.few(1)
@pytest.mark.parametrize("layer", ["County", "Tract"])
def test_equals_areas_in_memory(layer: str, tmp_path: Path) -> None:
    """Names and tables out of the schema's order; tables that are checked, but not desired; a total that is exact."""
    asked = {"County": ["age"], "Tract": ["age * sex"], "Group": ["detailed"], "Other": ["total"], "Leaf": ["sex"]}
    problem = invented(desired=asked)
    y = np.random.default_rng(1).normal(50, 5, problem.observed.size)
    P = blue(problem, "areas")
    x, variances = run(problem, y, tmp_path, at=layer)
    assert len(Partitions.open(tmp_path / "in").parts) == {"County": 2, "Tract": 4}[layer]
    np.testing.assert_allclose(x, P @ y, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(variances, P.variances(), rtol=1e-9, atol=1e-13)


def test_group_sums_that_fall_apart(tmp_path: Path) -> None:
    """Recodes of two variables: 32 group sums of a part's root are 1 + 7 + 3 + 21, told and learnt piece by piece."""
    recodes = {"a": {"fine": np.arange(16) // 2}, "b": {"coarse": np.arange(8) // 2}}
    tables = {"County": {"total": 0.0, "fine": 2.0}, "Tract": {"fine * coarse": 3.0}}
    tables |= {"Group": {"coarse": 4.0, "fine": 2.0}, "Other": {"fine * coarse": 2.0}, "Leaf": {"detailed": 9.0}}
    problem = Problem(Schema({"a": 16, "b": 8}, recodes=recodes), tables, areas=Areas(BLOCKS.size, LAYERS))
    y = np.random.default_rng(1).normal(50, 5, problem.observed.size)
    x, variances = run(problem, y, tmp_path, at="Tract")
    P = blue(problem, "areas")
    np.testing.assert_allclose(x, P @ y, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(variances, P.variances(), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("weight", first_of([1e6, 1e-6], 1))
def test_weights_far_from_one(weight: float, tmp_path: Path) -> None:
    """What a part knows well by a large weight is not taken for exact."""
    groups = np.eye(12)[:, LAYERS["Group"] // 10 * 3 + LAYERS["Group"] % 10] * weight
    problem = invented({**LAYERS, "Group": groups})
    rng = np.random.default_rng(1)
    y = problem.marginal_matrix() @ rng.poisson(50, problem.domain.size)
    y = y + np.sqrt(problem.variances) * rng.standard_normal(y.size)
    P = blue(problem, "dense")
    x, variances = run(problem, y, tmp_path, at="Tract")
    np.testing.assert_allclose(variances, P.variances(), rtol=1e-6, atol=1e-13)
    assert (abs(x - P @ y) <= 1e-6 * np.sqrt(P.variances()) + 1e-9 * abs(x)).all()


def test_memory_chooses_where_to_cut(tmp_path: Path) -> None:
    problem = invented()
    y = np.random.default_rng(1).normal(50, 5, problem.observed.size)
    assert len(partition(tmp_path / "large", problem, y, memory=1e9).parts) == 1  # both counties together
    assert len(partition(tmp_path / "counties", problem, y, memory=1e9, at="County").parts) == 2
    needed = [max(own.bytes for own in partition(tmp_path / at, problem, y, at=at).parts.values())
              for at in ("County", "Tract")]  # fmt: skip
    assert needed[1] < needed[0]
    parts = partition(tmp_path / "small", problem, y, memory=(needed[0] + needed[1]) / 2)
    assert len(parts.parts) == 4
    with pytest.raises(MemoryError, match=r"with all inside it needs .* the limit is .*: raise it"):
        partition(tmp_path / "none", problem, y, memory=1e6)
    assert not (tmp_path / "none").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("share", first_of([0.45, 0.7], 1))
def test_siblings_that_fit_together_are_one_part(share: float, above: bool, tmp_path: Path) -> None:
    """Six tracts to a county; with tables of the tracts, and what lies in them, as in memory."""
    number = np.arange(72)
    tract = number // 6
    layers = {"County": tract // 6, "Tract": tract, "Group": 10 * tract + number % 6 // 2,
              "Other": 10 * tract + (number % 6 + 1) // 3}  # fmt: skip
    kept = list(layers)[0 if above else 1 :]
    tables = {layer: MEASURED[layer] for layer in (*kept, "Leaf")}
    problem = Problem(SCHEMA, tables, areas=Areas(number.size, {layer: layers[layer] for layer in kept}))
    y = blue(problem, "areas") @ np.random.default_rng(1).normal(50, 5, problem.observed.size)  # exact totals agree
    y += np.where(problem.variances > 0, np.random.default_rng(2).normal(0, 3, y.size), 0)
    tracts = partition(tmp_path / "tracts", problem, y, at="Tract").parts.values()
    whole = sum(own.bytes - BUFFERS for own in tracts) / (2 if above else 1)  # of a county, or of all
    limit = BUFFERS + share * whole
    x, variances = run(problem, y, tmp_path, memory=limit)
    parts = Partitions.open(tmp_path / "in").parts.values()
    assert all(own.bytes <= limit for own in parts)
    together = [own for own in parts if own.geolevel == "siblings"]
    assert together
    assert len(parts) < 12
    P = blue(problem, "areas")
    np.testing.assert_allclose(x, P @ y, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(variances, P.variances(), rtol=1e-9, atol=1e-13)
    assert {path.name for path in (tmp_path / "out").glob("*.parquet")} == {
        f"{own}.parquet" for own in problem.areas.levels
    }


@examples(20, 3)
@given(seed=SEEDS, share=st.floats(0.1, 1.2))
@example(seed=872, share=1.0)  # group sums of a component fall apart into pieces
def test_siblings_together_beside_exact_arithmetic(seed: int, share: float) -> None:
    found = some(seed)
    problem = found.description.problem()
    with tempfile.TemporaryDirectory() as folder:
        try:
            large = partition(Path(folder) / "large", problem, found.y, memory=1e9)
            limit = BUFFERS + share * sum(own.bytes - BUFFERS for own in large.parts.values())
            x, variances = run(problem, found.y, Path(folder), memory=limit)
        except (UnsupportedProblemError, MemoryError):
            return
    require_exact(found, x, variances)


@pytest.mark.slow
def test_killed_runs_go_on_to_the_same_bytes(tmp_path: Path) -> None:
    problem = invented()
    y = np.random.default_rng(1).normal(50, 5, problem.observed.size)
    partition(tmp_path / "in", problem, y, at="Tract")
    stream(tmp_path / "in", tmp_path / "whole")
    require_the_bytes_after_kills(tmp_path / "in", tmp_path / "whole", tmp_path / "killed", steps=6)


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with four parts, of which memory takes two together, and the estimates of an undisturbed run."""
    problem = invented()
    y = np.random.default_rng(1).normal(50, 5, problem.observed.size)
    parts = partition(tmp_path / "in", problem, y, at="Tract").parts.values()
    monkeypatch.setattr(part_files, "TOGETHER", 2.5 * max(own.bytes - BUFFERS for own in parts))
    stream(tmp_path / "in", tmp_path / "whole")
    x = read_estimates(tmp_path / "whole", problem)
    np.testing.assert_allclose(x, blue(problem, "areas") @ y, rtol=1e-11, atol=1e-11)
    return tmp_path


def test_parts_share_a_problem_on_the_way_up_and_another_down(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are as many as before; in little memory every part has its own, which is said."""
    made: list[int] = []

    class Counted(CrossingForm):
        def __init__(self, design, parts, *above) -> None:
            made.append(len(parts))
            super().__init__(design, parts, *above)

    monkeypatch.setattr(job, "CrossingForm", Counted)
    stream(pairs / "in", pairs / "out", memory=1e8)
    assert made == [2, 2, 2, 2]
    assert digests(pairs / "out") == digests(pairs / "whole")
    parts = Partitions.open(pairs / "in")
    little = max(own.bytes for own in (*parts.parts.values(), parts.top))
    made.clear()
    stream(pairs / "in", pairs / "little", memory=little)
    assert made == [1] * 8
    refuses(r"other wishes \(parts estimated together differ", stream, pairs / "in", pairs / "whole", memory=little)


def test_parts_that_are_estimated_together_share_their_files(pairs: Path) -> None:
    """Each called by the first of them; damaged ones are written anew, all of their parts."""
    for layer in ("Group", "Leaf"):
        assert {path.name for path in (pairs / "whole" / f"{layer}.parquet").iterdir()} == {
            "00000.parquet",
            "00002.parquet",
        }
    right = digests(pairs / "whole")
    for path in ("Leaf.parquet/00000.parquet", "Leaf.parquet/00002.parquet", ".work/proofs/00003"):
        (pairs / "whole" / path).unlink()
        stream(pairs / "in", pairs / "whole")
        assert digests(pairs / "whole") == right


@pytest.mark.few(0)
@pytest.mark.parametrize("kill", first_of([9, *range(1, 20)], 1))
def test_a_killed_run_does_whole_what_is_estimated_together(kill: int, pairs: Path) -> None:
    left, replace = kill, os.replace

    def counted(source: Path, target: Path) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        replace(source, target)

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(os, "replace", counted)
        stream(pairs / "in", pairs / "out")
    assert left == 0
    stream(pairs / "in", pairs / "out")
    assert digests(pairs / "out") == digests(pairs / "whole")


def test_damaged_parts_leave_undone_what_is_estimated_with_them(pairs: Path) -> None:
    """All that are damaged are named, and nothing else."""
    files = {name: pairs / "in" / "parts" / f"{name}.npz" for name in ("00000", "00001", "00002")}
    intact = {name: path.read_bytes() for name, path in files.items()}
    files["00000"].write_bytes(b"")
    files["00001"].unlink()
    said = r"2 of 4 parts cannot be read: part 00000 .*; part 00001 .*All that is estimated without them is done"
    with pytest.raises(PartitionError, match=said) as caught:
        stream(pairs / "in", pairs / "out")
    assert caught.value.parts.keys() == {"00000", "00001"}
    assert {path.name for path in (pairs / "out" / ".work" / "up").iterdir()} == {"00002"}
    for name in ("00000", "00001"):
        files[name].write_bytes(intact[name])
    stream(pairs / "in", pairs / "out")
    assert digests(pairs / "out") == digests(pairs / "whole")


def test_damaged_areas_are_named(tmp_path: Path) -> None:
    problem = invented()
    y = np.random.default_rng(1).normal(50, 5, problem.observed.size)
    partition(tmp_path / "in", problem, y, at="Tract")
    (tmp_path / "in" / "parts" / "00002.npz").write_bytes(b"")
    refuses(r"part 00002 \(Tract '2'\).*00002\.npz", stream, tmp_path / "in", tmp_path / "out")


def test_contradictions_are_refused(tmp_path: Path) -> None:
    measured = {**MEASURED, "Group": {"sex": 0.0}, "Other": {"total": 1.0}, "Tract": {"sex": 0.0}}
    problem = invented(measured=measured)
    y = np.random.default_rng(1).normal(50, 5, problem.observed.size)
    refuses("values known exactly contradict one another by", partition, tmp_path / "in", problem, y, at="Tract")
    assert not list(tmp_path.iterdir())


@pytest.mark.few(3)
@pytest.mark.parametrize("weight", [1.0, 3e3, 9e4, 1e8])
@pytest.mark.parametrize("exact", [False, True])
def test_weights_that_cost_digits_are_refused_and_others_answered(weight: float, exact: bool, tmp_path: Path) -> None:
    """By weights of 84,434 estimates were once 0.02 standard errors off."""
    schema, areas = Schema({"sex": 2, "age": 3}), Areas(3, {"Tract": [0, 0, 1], "L0": weight * np.eye(3)})
    above = {"sex": 0.0} if exact else {"sex": 1.0, "age": 4.0}
    below = {"sex": 9.0, "age": 0.03, "sex * age": 7.0}
    problem = Problem(schema, {"Tract": {"age": 3.0}, "L0": above, "Leaf": below}, areas=areas)
    cells = np.random.default_rng(0).poisson(5000, problem.domain.size).astype(float)
    truth = problem.marginal_matrix() @ cells
    y = truth + np.sqrt(problem.variances) * np.random.default_rng(1).standard_normal(truth.size)
    if weight > 1e7 and not exact:
        with pytest.raises(UnsupportedProblemError, match="in units of the leaves that are weighed, differ by"):
            partition(tmp_path / "in", problem, y, at="Tract")
        return
    out = streamed(tmp_path, problem, y, at="Tract")
    P = blue(problem, "dense")
    off = abs(read_estimates(out, problem) - P @ y)
    assert (off <= 1e-6 * np.sqrt(P.variances()) + 1e-12 * abs(truth).max()).all()


def test_what_crosses_between_parts_is_refused_by_name(tmp_path: Path) -> None:
    y = np.ones(invented().observed.size)
    with pytest.raises(UnsupportedProblemError, match=r"Other '1' crosses its areas .*: cut at a layer that holds it"):
        partition(tmp_path / "in", invented(), y, at="Group")
    districts = {**LAYERS, "Other": (BLOCKS + 3) // 9}
    with pytest.raises(UnsupportedProblemError, match="cannot be cut at 'Tract': Other '1' crosses its areas"):
        partition(tmp_path / "in", invented(districts), np.ones(invented(districts).observed.size), at="Tract")
    crossing = invented({"County": BLOCKS % 12 // 6, "Tract": LAYERS["Tract"], "Other": BLOCKS // 12},
                        {layer: MEASURED[layer] for layer in ("County", "Tract", "Other", "Leaf")})  # fmt: skip
    with pytest.raises(UnsupportedProblemError, match="'County' and 'Other' cross above it"):
        partition(tmp_path / "in", crossing, np.ones(crossing.observed.size), at="Tract")
    part = invented({**LAYERS, "Tract": np.eye(3)[:, BLOCKS % 3] * (BLOCKS < 20)})
    with pytest.raises(UnsupportedProblemError, match="cut at 'Tract', whose areas do not hold every leaf once"):
        partition(tmp_path / "in", part, np.ones(part.observed.size), at="Tract")
    refuses("no layer 'State' of areas", partition, tmp_path / "in", invented(), y, at="State")
    refuses("nothing says where to cut", partition, tmp_path / "in", invented(), y)
    assert not list(tmp_path.iterdir())


def test_what_parts_of_areas_do_not_take_is_refused_by_name(tmp_path: Path) -> None:
    plain = invented()
    y = np.ones(plain.observed.size)
    empty = invented(zeros={("Group", "sex"): np.arange(24).reshape(12, 2) == 0})
    rows = np.zeros((1, plain.observed.size))
    rows[0, :2] = 1
    tied = invented(equalities=(rows, np.array([2.0])))
    cellwise = invented(measured={**MEASURED, "Tract": {"sex": np.arange(1.0, 9).reshape(4, 2)}})
    for problem, reason in [(empty, "structural zeros"), (tied, "equalities"), (cellwise, "variances differ")]:
        with pytest.raises(UnsupportedProblemError, match=f"cannot be streamed: .*{reason}"):
            partition(tmp_path / "in", problem, np.ones(problem.observed.size), at="Tract")
    wide = Schema({f"v{i}": 2 for i in range(13)})
    pairs = {f"v{i} * v{i + 1}": 1.0 for i in range(12)}
    many = Problem(wide, {"Group": pairs, "Other": pairs, "Leaf": pairs}, areas=Areas(24, LAYERS))
    with pytest.raises(UnsupportedProblemError, match="8,192 components, more than 4,096"):
        partition(tmp_path / "in", many, np.ones(many.observed.size), at="Tract")
    refuses("393", partition, tmp_path / "in", plain, y[:-1], at="Tract")
    assert not list(tmp_path.iterdir())
