"""Axes and entries that are named in other ways than by an index: followed, or refused, never read by position."""

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Areas, Problem, Schema
from constraint_builders.arrays import Float
from constraint_builders.files import combine_sources
from tests.helpers.effort import examples

xarray = pytest.importorskip("xarray")

NAMES = ("p", "q", "r")
SQUARE = np.arange(1.0, 10).reshape(3, 3)
SCHEMA = Schema({"a": NAMES, "b": NAMES})
Order = list[int]


def variable(first: Order, second: Order, turned: bool) -> Any:
    return data_array(first, second, turned).drop_vars(["a", "b"]).variable


def data_array(first: Order, second: Order, turned: bool) -> Any:
    labels = {"a": [NAMES[i] for i in first], "b": [NAMES[i] for i in second]}
    found = xarray.DataArray(SQUARE[np.ix_(first, second)], labels, ["a", "b"])
    return found.T if turned else found


def with_labels_beside(first: Order, second: Order, turned: bool) -> Any:
    array = data_array(first, second, turned)
    labels = {f"label of {axis}": (axis, array.coords[axis].values) for axis in ("a", "b")}
    return array.drop_vars(["a", "b"]).assign_coords(labels)


def named_tuples(first: Order, second: Order, turned: bool) -> Any:
    array = data_array(first, second, turned)
    Row = namedtuple("Row", array.coords[array.dims[1]].values.tolist())
    return [Row(*row) for row in array.values.tolist()]


DOORS: dict[str, Callable[[Any], Float]] = {
    "values": lambda own: Problem(SCHEMA, {"a * b": 1.0}).vector({"a * b": own}),
    "variances": lambda own: Problem(SCHEMA, {"a * b": own}).variances,
    "truth": lambda own: Problem(SCHEMA, {"a * b": 1.0}, truth={"a * b": own}).truth,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", [variable, data_array, with_labels_beside, named_tuples])
@examples(20)
@given(first=st.permutations(range(3)), second=st.permutations(range(3)), turned=st.booleans())
def test_axes_of_tables(
    door: str, kind: Callable[[Order, Order, bool], Any], first: Order, second: Order, turned: bool
) -> None:
    own = kind(first, second, turned)
    if kind in (with_labels_beside, named_tuples):
        with pytest.raises(ValueError, match="labels"):
            DOORS[door](own)
        return
    expected = SQUARE if kind is data_array else SQUARE[np.ix_(first, second)]
    np.testing.assert_array_equal(DOORS[door](own), expected.ravel())


FLAT = Problem(Schema({"own": NAMES}), {"total": 1.0, "own": 2.0})
ROW_DOORS: dict[str, Callable[[Any], Float]] = {
    "values": lambda own: FLAT.vector({"total": 6.0, "own": own})[1:],
    "variances": lambda own: Problem(FLAT.schema, {"own": own}).variances,
    "areas": lambda own: np.ravel(Areas(NAMES, {"R": own}).leaves_of(0).toarray().T @ [1.0, 2, 3]),
}


@pytest.mark.parametrize("door", ROW_DOORS)
@given(order=st.permutations(range(3)))
def test_fields_of_named_tuples(door: str, order: Order) -> None:
    fields = namedtuple("fields", [NAMES[i] for i in order])
    own = fields(*(np.arange(1.0, 4)[order].tolist()))
    np.testing.assert_array_equal(ROW_DOORS[door](own), np.arange(1.0, 4))
    with pytest.raises(ValueError, match="labels"):
        combine_sources([own, own], [np.ones(3), np.ones(3)])
