"""What measuring off-spine entities would give: beside dense algebra, and for no greater loss."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers.cli import main
from blue_solvers.spine_design import entity_variances, measuring_entities
from constraint_builders import Schema, Spine
from constraint_builders.geography import Entities, Strategy, bypass, leaves
from tests.helpers.effort import examples
from tests.helpers.every import cases
from tests.helpers.random_trees import blocks_below, random_entities, random_spine
from tests.helpers.refused_commands import refusal

SCHEMA = Schema({"sex": 2, "age": 3})
OF_SEX = np.kron(np.eye(2), np.ones((1, 3)))
LAWS = {"zcdp": "gaussian", "pure": "laplace"}
MATRICES = {"total": np.ones((1, 6)), "sex": OF_SEX, "detailed": np.eye(6)}


def strategy_of(spine: Spine, measure: str = "zcdp") -> Strategy:
    shares = dict.fromkeys(spine.levels, Fraction(1, len(spine.levels)))
    tables = {level: {"total": "1/3", "detailed": "2/3"} for level in spine.levels}
    return Strategy.from_levels(spine, 2, shares, tables, measure)


@examples(30, 8)
@given(seed=st.integers(0, 100_000), bypassed=st.booleans(), measure=st.sampled_from(["zcdp", "pure"]))
def test_beside_dense_algebra_for_the_same_loss(seed: int, bypassed: bool, measure: str) -> None:
    rng = np.random.default_rng(seed)
    spine = random_spine(rng, 2, 3)
    strategy = strategy_of(spine, measure)
    strategy = bypass(strategy) if bypassed else strategy
    spine = strategy.spine
    entities = random_entities(rng, leaves(spine).size, 3)
    measured = measuring_entities(strategy, entities, "1/20", {"sex": "1/2", "total": "1/2"})
    held = entities.contains.toarray()
    assert measured.loss <= strategy.loss == 2
    assert {own.problem(SCHEMA).noise.law for own in (measured, strategy)} == {LAWS[measure]}
    rows, variances = [], []
    for level, tables in measured.strategy.observed().items():
        members = spine.members[spine.level_index(level)]
        for table, own in tables.items():
            for geounit, variance in zip(members.tolist(), np.broadcast_to(own, members.size), strict=True):
                if np.isfinite(variance):
                    rows.append(np.kron(blocks_below(spine)[geounit], MATRICES[table]))
                    variances += [variance] * len(MATRICES[table])
    for inside in held:
        for table in ("sex", "total"):
            rows.append(np.kron(inside, MATRICES[table]))
            loss = 2 * Fraction(1, 20) * Fraction(1, 2)
            variance = float(1 / loss) if measure == "zcdp" else float(2 * (2 / loss) ** 2)
            variances += [variance] * len(MATRICES[table])
    W = np.vstack(rows) / np.sqrt(variances)[:, None]
    asked = np.vstack([np.kron(inside, OF_SEX) for inside in held])
    expected = np.einsum("ij,jk,ik->i", asked, np.linalg.inv(W.T @ W), asked)
    np.testing.assert_allclose(measured.variances(SCHEMA, "sex").ravel(), expected, rtol=1e-8)


def test_measuring_helps_what_is_far_from_the_spine() -> None:
    spine = Spine.from_geoids([f"440010001001{block:03}" for block in range(30)])
    far = Entities(["every second block"], [[i % 2 for i in range(30)]])
    strategy = Strategy.from_levels(
        spine, 1, dict.fromkeys(spine.levels, "1/5"), {own: {"total": 1} for own in spine.levels}
    )
    measured = measuring_entities(strategy, far, "1/10")
    assert measured.loss == strategy.loss == 1
    assert measured.variances(SCHEMA)[0] < 0.25 * entity_variances(strategy, SCHEMA, far)[0]


@cases(
    ("1/2", "a block may lie in 2 of them: give a positive share below 1/2"),
    ("0", "give a positive share"),
    ("-1/9", "give a positive share"),
    ("some", "the share of entities is 'some'"),
)
def test_shares_that_leave_nothing_are_refused(share: str, said: str) -> None:
    spine = Spine.from_geoids(["440010001001000", "440010001001001"])
    both = Entities(["a", "b"], [[1, 1], [0, 1]])
    with pytest.raises(ValueError, match=said):
        measuring_entities(strategy_of(spine), both, share)
    with pytest.raises(ValueError, match="the entities are of 3 blocks, the spine has 2 leaves"):
        measuring_entities(strategy_of(spine), Entities(["a"], [[1, 0, 1]]), "1/9")


def test_the_command_asks_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rows = [f"4400{c}0001001{block:03},{'ab'[block % 2]}" for c in "13" for block in range(8)]
    (tmp_path / "blocks.csv").write_text("\n".join(["geoid,place", *rows]) + "\n")
    words = ["design", str(tmp_path / "blocks.csv"), "--entity", "place"]
    assert main([*words, "--measure-entities", "1/10"]) == 0
    said = capsys.readouterr().out
    line = said.split("Were every entity measured itself, for a share of 1/10:")[1].splitlines()[4].split()
    spine = Spine.from_geoids([row.split(",")[0] for row in rows])
    entities = Entities.from_labels({"place": [row[-1] for row in rows]}, outside=False)
    strategy = Strategy.from_levels(
        spine, 1, dict.fromkeys(spine.levels, "1/5"), {own: {"total": 1} for own in spine.levels}
    )
    before = entity_variances(strategy, Schema({"person": 1}), entities)
    after = measuring_entities(strategy, entities, "1/10").variances(Schema({"person": 1}))
    figures = [f"{own:.4g}" for own in (before.mean(), after.mean(), before.max(), after.max())]
    assert line == ["plain", *figures, "2", "of", "2", "1"]
    for share, told in (
        ("3", "give a positive share below 1"),
        ("x", "the share of entities is 'x'"),
        ("1e-20", "whose noise would tell nothing beside that of the geounits: give 1/1000000000000 or more"),
    ):
        assert told in refusal(capsys, *words, "--measure-entities", share)
