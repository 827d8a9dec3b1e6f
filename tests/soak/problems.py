"""Problems of any kind and size that a seed invents, with their exact answers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import fmpz_mat
from scipy import sparse

from constraint_builders import LowRankPlusDiagonal, Problem
from tests.helpers.oracles.description import Block
from tests.helpers.oracles.exact import ContradictionError, solve
from tests.helpers.oracles.invent import Invented, Kind, Size, invent

SIZES = {
    "small": Size(),
    "middle": Size(rows=500, columns=300, variables=5, levels=7, places=20, leaves=16, least=71),
    "large": Size(rows=4_000, columns=450, variables=6, levels=7, places=40, leaves=30, tables=16, least=800),
}
TRIES = 60  # numbers drawn for one seed, until they lead to a problem
SHARES = {"small": 0.87, "middle": 0.1, "large": 0.03}
MOST_EQUATIONS = 80  # cells: entries of a null space grow
LARGEST_ENTRY = 10**6


class RefusedError(ValueError):
    """The package refuses to make a problem."""


@dataclass(frozen=True)
class Posed:
    """One problem, its data and its answer.

    Attributes
    ----------
    how : str
        "tables", "summing" for a summing matrix, "equations".
    """

    how: str
    problem: Problem
    invented: Invented


def kind_of(seed: int, size: str | None = None) -> tuple[str, Kind]:
    """What a seed may invent, and the name of its size."""
    rng = np.random.default_rng([seed, 1])
    drawn = str(rng.choice(list(SHARES), p=list(SHARES.values())))
    size = size or drawn
    covariance = ("", "", "", "", "shared", "sparse") if size != "large" else ("", "", "", "shared")
    return size, Kind(
        areas=str(rng.choice(["", "", "", "sets", "weights", "floats", "large", "cut"])),
        coefficients=str(rng.choice(["whole", "whole", "floats", "decades", "large"])),
        cellwise=bool(rng.random() < 0.4),
        covariance=str(rng.choice(covariance)),
        decades=float(rng.choice([0, 2, 4, 8, 12])),
        count=float(rng.choice([3, 20, 1e3, 1e6])),
        nested=True,
        turned=bool(rng.random() < 0.3),
        size=SIZES[size],
    )


def posed(seed: int, size: str | None = None) -> Iterator[Posed]:
    """The problems of a seed: its tables, and now and then the same as a summing matrix or as equations.

    Raises
    ------
    RefusedError
        If the package refuses the problem.
    """
    kind = kind_of(seed, size)[1]
    tries = (_tried(seed + 10**9 * own, kind) for own in range(TRIES))
    found = next((own for own in tries if own is not None), None)
    if found is None:
        return
    yield Posed("tables", _made(found.description.problem), found)
    way = np.random.default_rng([seed, 2]).random()
    if way < 0.5:
        yield from by_matrix(found, "summing" if way < 0.3 else "equations")


def _tried(number: int, kind: Kind) -> Invented | None:
    try:
        return invent.__wrapped__(number, kind)
    except ContradictionError:  # of figures known exactly, which are rounded
        return None


def _made(make: Callable[..., Problem], *given: Any, **options: Any) -> Problem:
    try:
        return make(*given, **options)
    except ValueError as error:
        raise RefusedError(str(error)) from error


def by_matrix(found: Invented, how: str) -> Iterator[Posed]:
    """Sums of cells ("summing"), or the "equations" between them, without the tables; nothing where these are none."""
    d = found.description
    M = d.marginal_matrix()[:, ~d.empty_cells()]
    A = _equations(M) if how == "equations" else None
    if not M.size or (A is None if how == "equations" else d.equalities is not None):
        return
    d = replace(d, desired=tuple(Block(b.level, b.factors) for b in d.observed))
    reference = solve(d, found.y)
    if not reference.determined.all():
        return
    covariance = None if d.covariance is None else sparse.csr_array(d.covariance)
    noise = d.variances if covariance is None else covariance
    if d.shared is not None:
        noise = covariance = LowRankPlusDiagonal(*d.shared)
    if A is None:
        variances = d.variances if covariance is None else None
        problem = _made(Problem.from_summing_matrix, sparse.csr_array(M), variances, covariance=covariance)
    else:
        b = np.zeros(len(A))
        if d.equalities is not None:
            A, b = np.vstack([A, d.equalities[0]]), np.append(b, d.equalities[1])
        problem = _made(Problem.from_matrix, sparse.csr_array(A), noise, b)
    yield Posed(how, problem, replace(found, description=d, reference=reference))


def _equations(M: np.ndarray) -> np.ndarray | None:
    """Whole numbers A with A M = 0, as many rows as there can be; None where they are large."""
    if len(M) > MOST_EQUATIONS or (np.rint(M) != M).any():
        return None
    basis, rank = fmpz_mat([[int(value) for value in column] for column in M.T]).nullspace()
    columns = np.array([[int(basis[i, j]) for i in range(len(M))] for j in range(rank)], dtype=object)
    if not rank:
        return None
    rows = columns // np.gcd.reduce(columns, axis=1)[:, None]
    return rows.astype(float) if abs(rows).max() <= LARGEST_ENTRY else None
