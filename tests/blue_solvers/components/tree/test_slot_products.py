"""Products with all components' matrices at once, against the matrix that each geounit's slots have together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers.components.component_products import Component
from blue_solvers.components.tree.slot_products import SlotProducts
from constraint_builders.compiled import CompiledLoop

ENTRIES = 3


@st.composite
def components(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Component]]:
    """Slots of up to three variables, contrasts first and groups after them, and some components."""
    sizes = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), min_size=1, max_size=3))
    shape = tuple(contrasts + groups for contrasts, groups in sizes)
    found = []
    for number in range(2 ** len(sizes)):
        kinds = tuple(bool(number >> i & 1) for i in range(len(sizes)))
        pairs = list(zip(sizes, kinds, strict=True))
        slots = tuple(slice(0, c) if kind else slice(c, c + g) for (c, g), kind in pairs)
        found.append(Component(kinds, slots, tuple(g for (_, g), kind in pairs if not kind)))
    return shape, draw(st.lists(st.sampled_from(found), min_size=1, unique_by=lambda own: own.contrasts))


def whole_matrix(shape: tuple[int, ...], made: list[tuple[Component, np.ndarray]]) -> np.ndarray:
    """Between all slots of one geounit; the identity where no component is."""
    cells = np.arange(np.prod(shape)).reshape(shape)
    found = np.eye(cells.size)
    for component, matrix in made:
        along = [axis for axis, contrast in enumerate(component.contrasts) if not contrast]
        own = np.moveaxis(cells[component.slots], along, range(len(along))).reshape(component.size, -1)
        for column in own.T:
            found[np.ix_(column, column)] = matrix
    return found


@pytest.mark.parametrize("compiled", [False, True])
@given(components(), st.integers(0, 1000), st.booleans(), st.sampled_from(["gain", "own"]), st.sampled_from([1, 3]))
def test_every_geounit_is_multiplied_by_the_matrices_of_its_entry(
    compiled: bool, case: tuple[tuple[int, ...], list[Component]], seed: int, transpose: bool, name: str, columns: int
) -> None:
    """Where nothing is compiled too; under "own" only components of one group sum are."""
    shape, every = case
    rng = np.random.default_rng(seed)
    matrices = [rng.standard_normal((ENTRIES, own.size, own.size)) for own in every]
    entries = rng.integers(0, ENTRIES, 5) if seed % 3 else np.full(5, 1)
    block = rng.standard_normal((5, *shape, columns))
    kept = [(c, m) for c, m in zip(every, matrices, strict=True) if name != "own" or c.size == 1]
    expected = np.empty_like(block)
    for g, entry in enumerate(entries):
        M = whole_matrix(shape, [(c, m[entry]) for c, m in kept])
        expected[g] = ((M.T if transpose else M) @ block[g].reshape(-1, columns)).reshape(block[g].shape)
    given_ = cast("Any", [SimpleNamespace(**{name: own}) for own in matrices])
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(CompiledLoop, "fastest", lambda own: own.reference)
        SlotProducts(every, given_, shape, name).multiply(block, entries, transpose)
    np.testing.assert_allclose(block, expected, rtol=1e-12, atol=1e-12)


def test_nothing_is_multiplied_where_no_geounit_has_coefficients() -> None:
    every = [Component((True,), (slice(0, 2),), ()), Component((False,), (slice(2, 4),), (2,))]
    given_ = cast("Any", [SimpleNamespace(children=np.zeros((0, own.size, own.size))) for own in every])
    block = np.zeros((0, 4, 1))
    SlotProducts(every, given_, (4,), "children").multiply(block, np.zeros(0, dtype=np.intp))
    assert block.shape == (0, 4, 1)
