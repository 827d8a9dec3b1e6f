"""Tables that the nearest structured problem does without, since their recodes would couple too many cells.

The structured estimate is then that of the tables that it keeps. All else follows from these by sums: the cells of the
tables left out, whose measurements still count in the iterations, and the desired tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.some_tables import of_tables


@dataclass(frozen=True)
class KeptTables:
    """Which observed tables the structured problem has, and how the others follow from them.

    Attributes
    ----------
    kept : Problem
        The tables that it has, observed and desired.
    cells, others : ndarray of int
        Their cells in the observed layout, and those of the tables left out.
    left_out : Problem
        From the kept tables to the others.
    desired : Problem
        From the kept tables to the desired ones.
    names : tuple
        Of the tables left out; where there are none, all the others are of no account.
    sums_desired : bool
        Whether desired tables are sums of the kept ones, since together their recodes are too many.
    """

    kept: Problem
    cells: NDArray[np.intp]
    others: NDArray[np.intp]
    left_out: Problem
    desired: Problem
    names: tuple
    sums_desired: bool = True

    @classmethod
    def all_of(cls, problem: Problem) -> Self:
        """Nothing is left out."""
        none = np.zeros(0, dtype=np.intp)
        return cls(problem, none, none, problem, problem, (), sums_desired=False)

    def of(self, Y: Float) -> Float:
        """The kept ones among all observed cells, (n, K)."""
        return Y[self.cells] if self.names else Y

    def spread(self, X: Float) -> Float:
        """All observed cells, (n, K), from consistent values of the kept ones."""
        if not self.names:
            return X
        result = np.empty((self.cells.size + self.others.size, X.shape[1]))
        result[self.cells] = X
        result[self.others] = self.left_out.tabulate(X)
        return result

    def gather(self, W: Float) -> Float:
        """The transpose of `spread`."""
        return W[self.cells] + self.left_out.tabulate_transpose(W[self.others]) if self.names else W

    def alone(self, R: Float) -> Float:
        """All observed cells, (n, K), 0 but for the kept ones."""
        if not self.names:
            return R
        everywhere = np.zeros((self.cells.size + self.others.size, R.shape[1]))
        everywhere[self.cells] = R
        return everywhere


def kept_tables(problem: Problem, known: NDArray[np.intp], suits: Callable[[Problem], bool]) -> KeptTables | None:
    """Leave out tables with recodes, the largest first, until what is left suits.

    A large table sums few cells of what is kept into each of its own, so that its measurements change the iterations
    least; small ones would change few directions much.

    Parameters
    ----------
    problem : Problem
        The structured one with all tables; see `nearest_structured`.
    known : ndarray of int
        Observed cells that count as exact whatever their variance: their tables are kept.
    suits : callable
        Whether a problem can be solved exactly at little cost.

    Returns
    -------
    KeptTables or None
        None if leaving out does not help.
    """
    kept = list(range(len(problem.observed_tables)))
    for index in [None, *_candidates(problem, known)]:
        remaining = [i for i in kept if i != index]
        if not _suffice(problem, remaining):
            continue
        kept = remaining
        if suits(of_tables(problem, kept, kept)):
            return _with_more(problem, kept, suits)
    return None


def _with_more(problem: Problem, kept: list[int], suits: Callable[[Problem], bool]) -> KeptTables:
    """Take back the tables that need not have been left out, the smallest first."""
    tables = range(len(problem.observed_tables))
    for index in sorted(set(tables) - set(kept), key=lambda i: problem.observed_tables[i].size):
        more = sorted([*kept, index])
        if suits(of_tables(problem, more, more)):
            kept = more
    left = [i for i in tables if i not in kept]
    names = tuple(problem.observed.names[i] for i in left)
    to_others = of_tables(problem, kept, left or kept)
    cells, others = problem.observed.cells(kept), problem.observed.cells(left)
    return KeptTables(of_tables(problem, kept, kept), cells, others, to_others, of_tables(problem, kept), names)


def _candidates(problem: Problem, known: NDArray[np.intp]) -> list[int]:
    """Tables with recodes in which nothing is exact, the largest first."""
    exact = problem.exact.copy()
    exact[known] = True
    plain = set(problem.domain.schema.names)
    recoded = [i for i, table in enumerate(problem.observed_tables) if not plain.issuperset(table.factors)]
    noisy = [i for i in recoded if not exact[problem.observed.block(i)].any()]
    return sorted(noisy, key=lambda i: -problem.observed_tables[i].size)


def _suffice(problem: Problem, kept: list[int]) -> bool:
    """Whether the other tables and the desired ones follow from some, and no equality speaks of others."""
    left = [i for i in range(len(problem.observed_tables)) if i not in kept]
    try:
        of_tables(problem, kept, left or kept)
        of_tables(problem, kept)
    except ValueError:
        return False
    return True
