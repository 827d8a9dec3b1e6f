"""Arrays in bytes and back, whatever they hold."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from blue_solvers.streaming.packing import pack, unpack

KINDS = ("<f8", "<f4", "<i8", "|b1", np.dtype(np.longdouble).str, "<U5")
ARRAYS = st.sampled_from(KINDS).flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@given(st.dictionaries(st.text(max_size=6), ARRAYS, max_size=6))
def test_arrays_come_back_as_they_were(arrays: dict[str, np.ndarray]) -> None:
    found = unpack(pack(arrays), dict[str, np.ndarray])
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable


def test_the_same_arrays_are_the_same_bytes() -> None:
    array = np.arange(12.0).reshape(3, 4)
    assert pack({"x": array}) == pack({"x": np.asfortranarray(array)})
