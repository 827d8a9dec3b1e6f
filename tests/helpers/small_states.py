"""Small invented states on a spine like that of 2020, stored, and the same estimated from dense matrices alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blue_solvers import blue
from blue_solvers.results.questions import Result
from blue_solvers.results.store import write_result
from constraint_builders import Problem, Spine
from constraint_builders.files.settings import parse_settings

LEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")
WIDTHS = (0, 3, 9, 13, 15, 31)
# Spine code of a block group, and places of blocks in tabulation: state, county, tract, group, block. Tract 010800 lies
# on both sides of the boundary of an American Indian area, the groups of the spine mix those of tabulation, and tract
# 990000 is a block of water, which is published with block 2009.
BLOCKS = {
    "001100030" + "0001" + "01": ["01003" + "010800" + "1" + "1001", "01003" + "010800" + "2" + "2009"],
    "001100030" + "0001" + "02": ["01003" + "010800" + "2" + "2008"],
    "001100030" + "0002" + "01": ["01003" + "010900" + "1" + "1000"],
    "001100030" + "0003" + "01": ["01003" + "990000" + "0" + "0001"],
    "101100030" + "0001" + "01": ["01003" + "010800" + "1" + "1002"],
}
CODES = [group + block for group, blocks in BLOCKS.items() for block in blocks]
GEOIDS = [code[-16:-5] + code[-4:] for code in CODES]

Sum = Callable[[NDArray], NDArray]  # of counts by leaf and cells to a table's cells


def summed(*axes: int) -> Sum:
    """A table of the cells summed over some of their axes."""
    return lambda cells: cells.sum(axis=axes)


def spine() -> Spine:
    """The spine of `BLOCKS`."""
    return Spine.from_geocodes(
        {
            level: list(dict.fromkeys(code[:width] for code in CODES))
            for level, width in zip(LEVELS, WIDTHS, strict=True)
        }
    )


@dataclass
class SmallState:
    """A stored result, and its best estimate and covariance over all leaves' cells from dense matrices."""

    result: Result
    estimate: NDArray  # (leaves, *shape)
    covariance: NDArray  # (leaves * cells, leaves * cells)
    leaves: list[str]

    def expected(self, *weights: NDArray) -> tuple[NDArray, NDArray]:
        """Estimates and covariance of sums with weights (leaves, *shape) each."""
        W = np.stack([weight.ravel() for weight in weights])
        return W @ self.estimate.ravel(), W @ self.covariance @ W.T


def small_state(
    folder: Path, settings: str, sums: Mapping[str, Sum], desired: Sequence[str], seed: int, solver: str = "two_pass"
) -> SmallState:
    """Measurements made up at every geounit, each of its own variance.

    `sums` says for every measured table how its cells follow from a geounit's, (*shape) to (cells,).
    """
    rng = np.random.default_rng(seed)
    own = spine()
    parsed = parse_settings(settings, "small")
    shape = parsed.schema.shape
    cells = int(np.prod(shape))
    variances = {
        level: {name: rng.uniform(0.5, 4, members.size) for name in sums}
        for level, members in zip(own.levels, own.members, strict=True)
    }
    problem = Problem(parsed.schema, variances, {level: list(desired) for level in own.levels}, spine=own)
    y = rng.normal(30, 10, problem.observed.size)
    P = blue(problem, solver)
    write_result(folder, P, P @ y, np.sqrt(P.variances()), parsed)
    leaves = [own.geocodes[i] for i in np.flatnonzero(own.child_counts == 0)]
    tables = problem.observed.tables(y)
    units = np.eye(cells).reshape(cells, *shape)
    matrices = {name: np.stack([take(unit).ravel() for unit in units], axis=1) for name, take in sums.items()}
    rows, values, precisions = [], [], []
    for level, members in zip(own.levels, own.members, strict=True):
        for rank, geounit in enumerate(members.tolist()):
            below = np.array([[code.startswith(own.geocodes[geounit]) for code in leaves]], dtype=float)
            for name, matrix in matrices.items():
                rows.append(np.kron(below, matrix))
                values.append(np.asarray(tables[level, name])[rank].ravel())
                precisions.append(np.full(len(matrix), 1 / variances[level][name][rank]))
    X, z, w = np.concatenate(rows), np.concatenate(values), np.concatenate(precisions)
    covariance = np.linalg.inv(X.T @ (w[:, None] * X))
    estimate = covariance @ (X.T @ (w * z))
    return SmallState(Result(folder), estimate.reshape(len(leaves), *shape), covariance, leaves)
