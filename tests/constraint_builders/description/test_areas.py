"""Areas: what is read, what is refused, and what is made of layers."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from constraint_builders import Areas, Problem, Schema, Spine
from tests.helpers.effort import examples
from tests.helpers.every import cases, every
from tests.helpers.refused import refused, refuses
from tests.helpers.spines import spines

MEMBERS = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])


@every(
    "layer",
    [
        [0, 0, 1, 1],
        np.array([0, 0, 1, 1]),
        ["N", "N", "S", "S"],
        [("N", 1), ("N", 1), ("S", 2), ("S", 2)],
        [3, 3, 7, 7],
        MEMBERS,
        MEMBERS.tolist(),
        sparse.csr_array(MEMBERS),
        sparse.coo_array(MEMBERS),
        pd.Series(["N", "N", "S", "S"]),
    ],
)
def test_a_layer_is_given_by_labels_or_by_a_matrix(layer: object) -> None:
    areas = Areas(4, {"Region": layer})
    np.testing.assert_array_equal(areas.leaves_of(0).toarray(), MEMBERS)
    assert areas.levels == ("Region", "Leaf")
    np.testing.assert_array_equal(areas.incidence.toarray(), np.vstack([MEMBERS, np.eye(4)]))


def test_names_are_kept_in_the_order_of_their_first_leaves_and_numbers_in_theirs() -> None:
    areas = Areas(["a", "b", "c"], {"Region": ["south", "north", "south"], "Zone": [9, 2, 9]})
    assert areas.names("Region") == ("south", "north")
    assert areas.names("Zone") == ("2", "9")
    assert areas.names("Leaf") == ("a", "b", "c")
    np.testing.assert_array_equal(areas.leaves_of(1).toarray(), [[0, 1, 0], [1, 0, 1]])


def test_a_frame_with_an_index_names_areas_and_leaves() -> None:
    matrix = pd.DataFrame([[1.0, 0.5, 0.0], [0.0, 0.0, 2.0]], index=["x", "y"], columns=["c", "a", "b"])
    areas = Areas(["a", "b", "c"], {"Weighed": matrix, "Region": pd.Series([1, 2, 3], index=["b", "c", "a"])})
    assert areas.names("Weighed") == ("x", "y")
    np.testing.assert_array_equal(areas.leaves_of(0).toarray(), [[0.5, 0, 1], [0, 2, 0]])
    np.testing.assert_array_equal(areas.leaves_of(1).toarray(), [[0, 1, 0], [0, 0, 1], [1, 0, 0]])


@every("frame", [dict, pd.DataFrame, pl.DataFrame, lambda d: pl.DataFrame(d).to_arrow()])
def test_any_frame_with_a_row_for_every_leaf(frame: object) -> None:
    columns = {"shop": ["a", "b", "c"], "Region": ["N", "S", "N"], "Zone": [2, 1, 1]}
    areas = Areas.from_frame(frame(columns), leaf="shop")  # type: ignore[operator]
    assert areas == Areas(["a", "b", "c"], {"Region": ["N", "S", "N"], "Zone": [2, 1, 1]})
    assert Areas.from_frame({"Region": [0, 1]}).leaves == 2


@cases(
    (3, {"Region": [0, None, 1]}, "'Region' has no label for leaf 1"),
    (3, {"Region": [0, np.nan, 1]}, "'Region' has no label for leaf 1"),
    (3, {"Region": pd.Series(["a", pd.NA, "b"])}, "'Region' has no label for leaf 1"),
    (3, {"Region": [0, 1]}, "'Region' labels 2 leaves, and there are 3"),
    (3, {"Region": np.eye(2)}, "'Region' has 2 columns, and there are 3 leaves"),
    (3, {"Region": [[1, np.inf, 0]]}, "'Region' holds NaN or infinite entries"),
    (3, {"Region": ["1", 1, 2]}, "'Region' has two areas called '1'"),
    (2, {"Region": np.zeros((0, 2))}, "'Region' has no areas"),
    (2, {"Region": np.ma.array([0, 1], mask=[0, 1])}, "layer 'Region' is a masked array"),
    (2, {"Region": np.ma.array([[1, 1]], mask=[[0, 1]])}, "layer 'Region' is a masked array"),
    (3, {"Leaf": [0, 0, 1]}, "'Leaf' is always there"),
    (0, {}, "at least one leaf"),
    ([], {}, "at least one leaf"),
    (["a", "a"], {}, "two areas called 'a'"),
    (["a", "b"], {"Region": pd.Series([1, 2], index=["a", "z"])}, "'z' is no label of 'leaf'"),
    (2, {"Region": pd.Series([1, 2], index=["a", "z"])}, "'a' is no label of 'leaf'"),
)
def test_what_is_no_layer_is_refused_by_name(leaves: object, layers: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        Areas(leaves, layers)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@refused(
    (3, [0, 0, 1], "given by name"),
    ("abc", {}, "leaves must be a list: got 'abc'"),
    (2, {"Region": 5}, "layer 'Region' must be a list: got 5"),
    (2, {"Region": [{}, {}]}, "told apart"),
    (2, {3: [0, 1]}, "must be text"),
    error=TypeError,
)
def test_other_kinds_are_refused(leaves: object, layers: object) -> None:
    Areas(leaves, layers)  # type: ignore[arg-type]


def test_refusals_of_what_is_made_of_layers() -> None:
    areas = Areas(4, {"Region": [0, 0, 1, 1], "Weighed": [[1, 2, 0, 0]], "Apart": [[0, 0, 0, 1]]})
    refused = {
        ("Region",): "two layers or more",
        ("Region", "Region"): "each named once",
        ("Region", "Weighed"): "otherwise than by 1",
        ("Region", "Leaves"): "no layer 'Leaves'",
    }
    for layers, words in refused.items():
        refuses(words, areas.cross, *layers)
    refuses("there already", areas.with_layer, "Region", [0, 1, 1, 1])
    refuses("1 areas, and 2 names", areas.with_layer, "Place", [[1, 1, 0, 0]], names=["a", "b"])
    refuses("no column 'shop'", Areas.from_frame, {"Region": [0, 1]}, leaf="shop")
    refuses("from a data frame", Areas.from_frame, [[0, 1]], error=TypeError)


@examples(50)
@given(st.integers(0, 10_000))
def test_crossed_areas_are_the_intersections_that_hold_a_leaf(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    A, B = (rng.random((int(rng.integers(1, 5)), n)) < 0.5 for _ in range(2))
    A[0, 0] = B[0, 0] = True
    areas = Areas(n, {"A": A.astype(int), "B": B.astype(int)}).cross("A", "B", name="both")
    expected = {f"{i} * {j}": (A[i] & B[j]) for i in range(len(A)) for j in range(len(B)) if (A[i] & B[j]).any()}
    found = areas.leaves_of(2).toarray()
    assert dict(zip(areas.names("both"), map(tuple, found), strict=True)) == {k: tuple(v) for k, v in expected.items()}


@examples(30)
@given(spines())
def test_areas_of_a_spine(spine: Spine) -> None:
    """Every geounit holds the leaves below it."""
    areas = Areas.from_spine(spine)
    leaves = np.setdiff1d(np.arange(spine.size), spine.parent)
    assert areas.levels == (*spine.levels, "Leaf")
    for level, members in enumerate(spine.members):
        for row, geounit in zip(areas.leaves_of(level).toarray(), members.tolist(), strict=True):
            for inside, leaf in zip(row, leaves.tolist(), strict=True):
                above = leaf
                while above not in (-1, geounit):
                    above = int(spine.parent[above])
                assert inside == (above == geounit)


@given(areas=st.integers(1, 4), leaves=st.integers(1, 4), seed=st.integers(0, 1000))
def test_areas_are_the_leaves_where_each_holds_its_own(areas: int, leaves: int, seed: int) -> None:
    """Not where one is empty and another holds two, in order all the same."""
    rng = np.random.default_rng(seed)
    matrix = np.zeros((areas, leaves))
    matrix[np.sort(rng.integers(0, areas, leaves)), np.arange(leaves)] = 1
    for own in (matrix, np.eye(leaves)):
        layer = Areas(leaves, {"Own": own}).layer("Own")
        assert layer.is_of_leaves == (own.shape == (leaves, leaves) and bool((own == np.eye(leaves)).all()))


def test_equality_and_pickling() -> None:
    areas = Areas(4, {"Region": ["N", "N", "S", "S"]}).with_layer("Weighed", [[1, 0, 0.5, -1]], names=["x"])
    assert pickle.loads(pickle.dumps(areas)) == areas
    assert areas != Areas(4, {"Region": ["N", "N", "S", "S"]})
    assert hash(areas) == hash(pickle.loads(pickle.dumps(areas)))
    assert repr(areas) == "Areas(4 leaves; 2 Region, 1 Weighed)"


def test_zeros_reach_the_leaves_of_an_area_unless_it_weighs_one_by_less_than_0() -> None:
    schema = Schema({"sex": 2})
    areas = Areas(3, {"Region": [0, 0, 1], "Balance": [[1, -1, 0]]})
    observed = {"Leaf": {"sex": 1.0}, "Region": {"sex": 1.0}}
    flags = np.array([[True, False], [False, False]])
    problem = Problem(schema, observed, areas=areas, zeros={("Region", "sex"): flags})
    np.testing.assert_array_equal(problem.zeros.detailed(problem.domain.leaves), [1, 0, 1, 0, 0, 0])  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="weighs a leaf by less than 0"):
        Problem(schema, observed, areas=areas, zeros={("Balance", "sex"): np.array([[True, False]])})


def test_a_problem_has_a_spine_or_areas() -> None:
    areas, spine, schema = Areas(2, {}), Spine([-1]), Schema({"sex": 2})
    refuses("give one of spine= and areas=", Problem, schema, {"Leaf": {"sex": 1.0}}, areas=areas, spine=spine)
    for wrong in ("x", 3, areas):
        refuses("spine must be a Spine, such as", Problem, schema, {"Leaf": {"sex": 1.0}}, spine=wrong, error=TypeError)
    refuses("areas must be Areas", Problem, schema, {"Leaf": {"sex": 1.0}}, areas=spine, error=TypeError)
    refuses("no layer 'Region' of areas", Problem, schema, {"Region": {"sex": 1.0}}, areas=areas)
    refuses("not estimable at Leaf '0'", Problem, schema, {"Leaf": {"total": 1.0}}, {"Leaf": ["sex"]}, areas=areas)
    with pytest.raises(ValueError, match=r"must have shape \(\), \(2,\) or \(2, 2\)"):
        Problem(schema, {"Leaf": {"sex": [1.0, 2.0, 3.0]}}, areas=areas)
    with pytest.raises(ValueError, match="with areas, tables are named"):
        Problem(schema, {"Leaf": {"sex": 1.0}}, areas=areas, zeros={"sex": np.array([True, False])})
    problem = Problem(schema, {"Leaf": {"sex": 1.0}}, areas=areas)
    with pytest.raises(ValueError, match="has no spine"):
        problem.domain.spine  # noqa: B018
