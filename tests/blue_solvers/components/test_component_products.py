"""Products of every component with its own matrices, against the matrix of the whole block."""

from __future__ import annotations

import numpy as np
import pytest

from blue_solvers.components.component_products import Component, multiply, sum_of

SIZES = ((2, 3), (1, 2))  # along each of two variables, contrasts and groups


def components() -> list[Component]:
    """All four of two variables with groups first."""
    slots = [(slice(groups, groups + contrasts), slice(0, groups)) for contrasts, groups in SIZES]
    return [
        Component(
            (one, other),
            (slots[0][0 if one else 1], slots[1][0 if other else 1]),
            tuple(groups for (_, groups), contrast in zip(SIZES, (one, other), strict=True) if not contrast),
        )
        for one in (False, True)
        for other in (False, True)
    ]


@pytest.mark.parametrize("geounits", [1, 4])
@pytest.mark.parametrize("transpose", [False, True])
def test_every_component_is_multiplied_by_its_own_matrices(geounits: int, transpose: bool) -> None:
    rng = np.random.default_rng(0)
    block = rng.standard_normal((4, 5, 3, 2))
    matrices = [(own, rng.standard_normal((geounits, own.size, own.size))) for own in components()]
    expected = np.empty_like(block)
    for g, k in np.ndindex(4, 2):
        for component, M in matrices:
            part = block[g, *component.slots, k]
            matrix = M[g % geounits].T if transpose else M[g % geounits]
            along = [axis for axis, contrast in enumerate(component.contrasts) if not contrast]
            flat = np.moveaxis(part, along, range(len(along))).reshape(component.size, -1)
            lengths = [part.shape[axis] for axis in along] + [n for i, n in enumerate(part.shape) if i not in along]
            expected[g, *component.slots, k] = np.moveaxis((matrix @ flat).reshape(lengths), range(len(along)), along)
    multiply(block, matrices, transpose)
    assert block == pytest.approx(expected, rel=1e-12)


def test_products_of_several_parts_may_be_of_other_lengths() -> None:
    """Two tables' group sums, 2 and 4 numbers, to the six sums of the component."""
    rng = np.random.default_rng(1)
    whole = components()[0]
    parts = [rng.standard_normal((3, 2, 1, 5)), rng.standard_normal((3, 2, 2, 5))]
    M = rng.standard_normal((1, 6, 6))
    found = sum_of(whole, [M[:, :, :2], M[:, :, 2:]], parts, (3, 2))
    stacked = np.concatenate([own.reshape(3, -1, 5) for own in parts], axis=1)
    assert found == pytest.approx((M @ stacked).reshape(3, 3, 2, 5))


def test_nothing_is_multiplied_of_no_geounits() -> None:
    block = np.zeros((0, 5, 3, 2))
    multiply(block, [(own, np.ones((1, own.size, own.size))) for own in components()])
    assert block.shape == (0, 5, 3, 2)
