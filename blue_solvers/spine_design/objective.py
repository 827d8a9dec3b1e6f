"""What a spine is optimised for: the mean, worst or weighted variance of its entities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float, Index
from constraint_builders.description.reals import real_array

Objective: TypeAlias = Literal["mean", "worst", "weighted"]

WORST_POWERS = (1, 4, 16, 64)  # power means that approach the maximum
LEAST_GAIN = 1e-12  # relative: smaller ones are rounding


def read_weights(objective: Objective, weights: ArrayLike | None, count: int) -> Float:
    """Weights of the entities, (K,), equal ones unless the objective is ``"weighted"``.

    Raises
    ------
    ValueError
        If the objective is unknown, or the weights are missing, superfluous, of the wrong shape or negative.
    """
    if objective not in ("mean", "worst", "weighted"):
        raise ValueError(f"objective {objective!r} is unknown: use 'mean', 'worst' or 'weighted'")
    if (objective == "weighted") != (weights is not None):
        raise ValueError("weights belong to objective='weighted', and it needs them")
    if weights is None:
        return np.full(count, 1 / count)
    given = real_array(weights, "weights")
    if given.shape != (count,) or not (np.isfinite(given) & (given >= 0)).all() or not given.any():
        raise ValueError(f"weights must be {count} finite numbers, none negative and not all 0")
    return given


def score(objective: Objective, weights: Float, variances: Float) -> float:
    """The objective of the entities' variances, (K,)."""
    return float(variances.max() if objective == "worst" else weights @ variances)


def schedules(objective: Objective) -> list[tuple[int, ...]]:
    """Searches to try: powers of the means that each lowers one after another, from the same start."""
    return [WORST_POWERS[first:] for first in range(len(WORST_POWERS))] if objective == "worst" else [(1,)]


@dataclass(frozen=True)
class Guide:
    """What a search lowers: the weighted sum of powers of the variances, in units of the worst one."""

    weights: Float
    power: int

    def value(self, variances: Float, worst: float) -> float:
        """Of all entities, (K,)."""
        return float(self.weights @ (variances / worst) ** self.power)

    def values(self, variances: Float, worst: float, entities: Index) -> Float:
        """Parts of some entities, (..., entities) to (...,)."""
        return (variances / worst) ** self.power @ self.weights[entities]

    def slopes(self, variances: Float, worst: float) -> Float:
        """Derivatives by the variances, (K,)."""
        return self.weights * self.power * (variances / worst) ** (self.power - 1) / worst

    def lowers(self, before: Float, after: Float) -> bool:
        """Whether a change of the variances, (K,), is for the better, by more than rounding."""
        worst = float(before.max())
        now = self.value(before, worst)
        return self.value(after, worst) < now - LEAST_GAIN * now
