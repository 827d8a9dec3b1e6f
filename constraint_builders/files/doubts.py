"""What is doubtful about numbers that were measured, and no reason to refuse them: said wherever they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout

DEVIATIONS = 6.0  # so far below 0 noise does not come
ROUNDING = 1e-9  # of the largest value
NEAR = 0.5  # standard errors from 0, where noise goes up and down alike
MANY_NEAR = 60  # values just above 0 beside which some lie just below


class Floor:
    """Whether values with noise end at 0, as they do where negative ones were made 0, or were left out.

    Of values within half a standard error of 0 nearly 1 in 5 is below, if their counts are up to 3 standard errors:
    that none of 60 is has a probability of 4e-6. Larger counts hardly come so near.
    """

    def __init__(self) -> None:
        self._near = 0
        self._is_crossed = False

    def add(self, values: NDArray[Any], errors: Float) -> None:
        """Take values, and their standard errors, above 0, that broadcast to them."""
        self._is_crossed = self._is_crossed or bool((values < 0).any())
        if not self._is_crossed:
            self._near += int((values < NEAR * errors).sum())

    def doubts(self) -> Iterator[str]:
        """That they do, if they do."""
        if self._near >= MANY_NEAR and not self._is_crossed:
            yield (
                f"no value is below 0, and {self._near:,} are within half a standard error above it: where negative "
                "ones were made 0, sums are too large"
            )


def doubts(layout: Layout, values: Float, variances: Float) -> Iterator[str]:
    """What is doubtful about values over a layout, (n,), and their variances, infinite where nothing was measured."""
    known = np.flatnonzero(np.isfinite(variances))
    y, errors = values[known], np.sqrt(variances[known])
    noisy = errors > 0
    if noisy.any() and (abs(y[noisy]) < errors[noisy]).all():
        yield "every value is smaller than its standard error: are the columns swapped?"
    below = known[y < -DEVIATIONS * errors - ROUNDING * abs(y).max(initial=0.0)]
    if below.size:
        many = f"{below.size:,} values are" if below.size > 1 else "a value is"
        first = f"{layout.describe(int(below[0]))}: {values[below[0]]:,.6g}"
        yield f"{many} further below 0 than noise comes, {first}; is it a mark for what was not published?"
    floor = Floor()
    floor.add(y[noisy], errors[noisy])
    yield from floor.doubts()
