"""What components and geounits have in common is worked out once, with the same answers as each by itself."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from blue_solvers import blue, projected_work
from blue_solvers.cli import main
from blue_solvers.components.component_products import Composed
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree import coefficients, splitting
from blue_solvers.components.tree import projected_work as projection
from blue_solvers.components.tree.coefficients import Coefficients, solve_components
from blue_solvers.components.tree.messages import LinearMeasurement, Message, combine
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders import Problem, Schema, Spine
from constraint_builders.files.settings import production_settings
from tests.helpers.effort import first_of, lengths
from tests.helpers.oracles.invent import Kind, taken

SCHEMA = Schema(
    {"a": 9, "b": 6, "c": 2, "d": 3},
    recodes={"a": {"f": [0, 0, 0, 1, 1, 2, 2, 2, 2], "g": [0, 1, 1, 2, 2, 3, 3, 4, 4]}, "b": {"h": [0, 0, 1, 1, 2, 2]}},
)
TABLES = {"a * h * c * d": 3.0, "g * h * c * d": 2.0, "f * c": 1.5, "f * h": 0.7, "total": 0.1}


def problem_on(parent: list[int], spread: float = 0.0) -> Problem:
    """Tables of crossing recodes on a tree whose levels are its depths, of equal variances or such that differ."""
    depth = [0]
    for above in parent[1:]:
        depth.append(depth[above] + 1)
    rng = np.random.default_rng(7)
    observed = {}
    for level in sorted(set(depth)):
        factor = 1 + level + spread * rng.random(depth.count(level))
        observed[f"L{level}"] = {name: factor * own for name, own in TABLES.items()}
    return Problem(SCHEMA, observed, spine=Spine(parent, [f"L{own}" for own in depth]))


@pytest.fixture
def every_component_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small."""
    monkeypatch.setattr(splitting, "WORTH", 1)
    monkeypatch.setattr(splitting, "PUT_TOGETHER", 0)


def products_of(own: Coefficients) -> Iterator[Composed]:
    """What is multiplied by."""
    yield from (matrices for name, matrices in own.matrices.items() if name not in ("root", "posterior"))


def arrays_of(own: Coefficients) -> Iterator[np.ndarray]:
    """All of them, piece by piece, but for what the tree tells of its root."""
    for matrices in own.matrices.values():
        for piece in matrices.pieces.values():
            yield from (found for _, found, _, _ in piece.by_lot())


def test_components_that_share_coefficients_have_the_bits_of_separate_work() -> None:
    plan = TreePlan(StructuredProblem.of(problem_on([-1, 0, 0, 1, 1, 2], spread=1.0)))
    shared = solve_components(plan, range(len(plan.components)))
    assert len({id(own) for own in shared}) < len(shared)  # contrasts along d, or along c and d
    separate = [solve_components(plan, [i])[0] for i in range(len(plan.components))]
    for one, other in zip(shared, separate, strict=True):
        for mine, theirs in zip(arrays_of(one), arrays_of(other), strict=True):
            assert np.array_equal(mine, theirs)


ALIKE = [-1, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3]  # the first two children have two children each, the third has three


def test_children_that_are_alike_share_a_pair() -> None:
    plan = TreePlan(StructuredProblem.of(problem_on(ALIKE)))
    assert plan.pair_parent.tolist() == [0, 0, 0, 1, 2, 3]  # those with children of their own are each by itself
    assert plan.pair_count.tolist() == [1, 1, 1, 2, 2, 3]
    apart = TreePlan(StructuredProblem.of(problem_on(ALIKE, spread=1.0)))
    assert apart.pair_count.tolist() == [1] * 10


@pytest.mark.few(2)
@pytest.mark.parametrize("parent", [ALIKE, [-1, 0, 0, 1, 2], [-1, 0, 0, 0, 1, 2, 3, 4, 5, 6]])
def test_shared_classes_give_what_each_geounit_by_itself_gives(
    monkeypatch: pytest.MonkeyPatch, parent: list[int]
) -> None:
    problem = problem_on(parent)
    y = np.random.default_rng(1).standard_normal((problem.observed.size, 2)) * 100
    together = blue(problem, "two_pass")
    weights = np.random.default_rng(2).integers(-1, 2, (problem.desired.size, 3)).astype(float)
    found = together @ y, together.T @ y, together.variances(), together.functional_covariance(weights)
    monkeypatch.setattr(TreePlan, "_alike", lambda self, level, rows: (np.arange(rows.size), np.arange(rows.size)))
    apart = blue(problem, "two_pass")
    expected = apart @ y, apart.T @ y, apart.variances(), apart.functional_covariance(weights)
    for one, other in zip(found, expected, strict=True):
        assert np.allclose(one, other, rtol=1e-11, atol=1e-11 * abs(other).max())


@pytest.mark.few(3)
@pytest.mark.usefixtures("every_component_divided")
@pytest.mark.parametrize("seed", first_of(range(0, 400, 8), 20))
def test_twelve_decades_against_the_exact_answer_however_components_fall_apart(seed: int) -> None:
    for invented, problem in taken(range(seed, seed + 8), Kind(decades=12.0, equalities=False)):
        P, reference = blue(problem, "two_pass"), invented.reference
        errors = abs(P @ invented.y + P.offset - reference.estimate)[reference.determined]
        deviations = reference.std_errors[reference.determined]
        assert (errors <= np.where(deviations > 0, 1e-8 * deviations, 1e-9)).all()
        variances = P.variances()[reference.determined]
        assert np.allclose(variances, deviations**2, rtol=1e-7, atol=1e-25)  # exact ones to rounding of rounding


def persons(of: str, parent: list[int], levels: list[str]) -> Problem:
    """Persons' query groups of a product without the detailed table."""
    settings = production_settings(of)
    variances = settings.variances()
    observed = {
        level: {name: own for name, own in variances[level].items() if name != "detailed"}
        for level in dict.fromkeys(levels)
    }
    return Problem(settings.schema, observed, spine=Spine(parent, levels))


@pytest.mark.slow
def test_nine_geounits_with_all_query_groups_take_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = persons("dhc_us_persons", [-1, 0, 0, 1, 1, 1, 2, 2, 2], ["State"] + ["County"] * 2 + ["Prim"] * 6)
    work = []

    def counted(sources: Sequence[LinearMeasurement]) -> tuple[Message, list[np.ndarray]]:
        message, gains = combine(sources)
        work.append(message.root.size * message.root.shape[-1])
        return message, gains

    monkeypatch.setattr(coefficients, "combine", counted)
    P = blue(problem, "two_pass")
    assert 1e7 < sum(work) < 4e8  # multiplications: 2e8 in 3.5 s; 200 s without sharing
    assert not (P @ np.zeros(problem.observed.size)).any()


@lengths("of", "pl94_us_persons", "dhc_us_persons")
def test_work_is_projected_before_it_begins(of: str) -> None:
    small = projected_work(problem_on(ALIKE))
    assert not small.is_large
    assert small.geounits == len(ALIKE)
    one, nine = persons(of, [-1], ["State"]), persons(of, [-1] + [0] * 8, ["State"] + ["County"] * 8)
    first, more = projected_work(one), projected_work(nine)
    assert not first.is_large
    assert not more.is_large
    assert first.seconds < more.seconds
    assert first.bytes < more.bytes


def test_names_in_another_order_are_turned_or_refused() -> None:
    """Two passes read tables in the schema's order alone; what is projected is the same in any."""
    named = [Problem(SCHEMA, {name: 1.0, "a": 2.0, "f * h": 3.0}) for name in ("a * b", "b * a")]
    assert projected_work(named[0]) == projected_work(named[1])
    with pytest.raises(ValueError, match=r"b \* a"):
        StructuredProblem.of(named[1])


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_the_memory_that_is_projected_is_what_coefficients_take(spread: float) -> None:
    """Of every component, and what products take in place of its pieces."""
    plan = TreePlan(StructuredProblem.of(problem_on(ALIKE, spread)))
    solved = solve_components(plan, range(len(plan.components)))
    for component, key, own in zip(plan.components, plan.design_keys, solved, strict=True):
        if component.size > 1:
            held = sum(array.size for array in arrays_of(own))
            held += sum(other.toarray().size for other in products_of(own))
            assert projection._work(plan, plan.division(key))[0] == held


def test_much_work_is_called_large() -> None:
    rng = np.random.default_rng(3)
    recodes = {v: {f"{v}{i}": (rng.permutation(34) % 12).tolist() for i in range(3)} for v in "ab"}
    tables = {f"a{i} * b{j}": 1.0 + i + j for i in range(3) for j in range(3)}
    spine = Spine([-1, 0, 1, 2], ["A", "B", "C", "D"])
    observed = dict.fromkeys(spine.levels, tables)
    large = projected_work(Problem(Schema({"a": 34, "b": 34}, recodes=recodes), observed, spine=spine))
    assert large.is_large
    assert "CPU s and" in str(large)


def test_only_two_passes_are_projected() -> None:
    problem = Problem(Schema({"a": 3}), {"a": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="equal variances in every geounit"):
        projected_work(problem)


def test_the_command_says_so_before_it_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    tables, schema = tmp_path / "noisy.csv", tmp_path / "schema.toml"
    schema.write_text("[variables]\nage = ['child', 'adult', 'old']\n[recodes]\nage.grown = ['no', 'yes', 'yes']\n")
    rows = "age,child,10,1\nage,adult,12,1\nage,old,7,1\ngrown,no,9,1\ngrown,yes,20,1\ntotal,*,21,1\n"
    tables.write_text(f"table,age,value,variance\n{rows}")
    arguments = ["estimate", str(tables), "--schema", str(schema), "--out", str(tmp_path / "out.csv")]
    assert main(arguments) == 0
    assert "projected" not in capsys.readouterr().err
    monkeypatch.setattr(projection, "FIRST_SECONDS", -1.0)
    assert main(arguments) == 0
    assert "projected  about 0 CPU s and" in capsys.readouterr().err


def test_classes_are_numbered_as_geounits_lie() -> None:
    """So that a run of leaves takes a run of coefficients, whatever their variances."""
    spine = Spine([-1, *[0] * 40], ["State", *["Block"] * 40])
    variances = np.random.default_rng(0).uniform(1, 2, 20)[np.r_[:20, 3, :19]]
    problem = Problem(Schema({"a": 2}), {"State": {"total": 1.0}, "Block": {"a": 1.0, "total": variances}}, spine=spine)
    class_of = TreePlan(StructuredProblem.of(problem)).levels[1].class_of
    assert class_of.tolist() == [*range(1, 21), 4, *range(1, 20)]
