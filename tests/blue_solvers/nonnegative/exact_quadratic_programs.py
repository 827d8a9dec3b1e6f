"""Least squares over bounded cells in exact rationals: every set of cells on their bounds is tried."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
from flint import fmpq, fmpq_mat


@dataclass(frozen=True)
class LeastSquares:
    """Minimise half of ``sum (m_i x - a_i)^2 / v_i`` over ``x >= 0``; rows of variance 0 hold exactly."""

    M: np.ndarray
    a: np.ndarray
    v: np.ndarray
    signed: bool = False

    def objective(self, x: np.ndarray) -> float:
        """Half the sum of squares, of cells in floating point."""
        noisy = self.v > 0
        return float(0.5 * ((self.M @ x - self.a)[noisy] ** 2 / self.v[noisy]).sum())

    def optimum(self) -> Fraction | None:
        """The least objective; None where no cells meet what is exact.

        Some optimal cells have independent columns among the free ones: sets without are passed over.
        """
        cells = self.M.shape[1]
        found = [
            self._of_free(free) for free in ([True] * cells,) * self.signed or product([False, True], repeat=cells)
        ]
        return min((value for value in found if value is not None), default=None)

    def _of_free(self, free: tuple[bool, ...] | list[bool]) -> Fraction | None:
        columns = [j for j, is_free in enumerate(free) if is_free]
        exact = [i for i in range(len(self.v)) if self.v[i] == 0]
        independent = _independent_rows([[_rational(self.M[i, j]) for j in columns] for i in exact])
        size, held = len(columns), [exact[i] for i in independent]
        system = fmpq_mat(size + len(held), size + len(held))
        right = fmpq_mat(size + len(held), 1)
        for i in np.flatnonzero(self.v > 0):
            weight, answer = 1 / _rational(self.v[i]), _rational(self.a[i])
            for p, j in enumerate(columns):
                right[p, 0] += weight * _rational(self.M[i, j]) * answer
                for q, k in enumerate(columns):
                    system[p, q] += weight * _rational(self.M[i, j]) * _rational(self.M[i, k])
        for r, i in enumerate(held):
            right[size + r, 0] = _rational(self.a[i])
            for p, j in enumerate(columns):
                system[size + r, p] = system[p, size + r] = _rational(self.M[i, j])
        if system.nrows():
            try:
                solution = system.solve(right)
            except ZeroDivisionError:
                return self._of_dependent(columns) if self.signed else None
            x = [solution[p, 0] for p in range(size)]
        else:
            x = []
        return self._checked(columns, x)

    def _of_dependent(self, columns: list[int]) -> Fraction | None:
        """With cells of any sign a largest independent set of columns does."""
        kept = _independent_rows([[_rational(value) for value in self.M[:, j]] for j in columns])
        free = [j in {columns[k] for k in kept} for j in range(self.M.shape[1])]
        return self._of_free(free) if sum(free) < len(columns) else None

    def _checked(self, columns: list[int], x: list[fmpq]) -> Fraction | None:
        if not self.signed and any(value < 0 for value in x):
            return None
        total = fmpq(0)
        for i in range(len(self.v)):
            value = sum((_rational(self.M[i, j]) * cell for j, cell in zip(columns, x, strict=True)), fmpq(0))
            miss = value - _rational(self.a[i])
            if self.v[i] == 0 and miss != 0:
                return None
            if self.v[i] > 0:
                total += miss * miss / _rational(self.v[i]) / 2
        return Fraction(int(total.p), int(total.q))


@cache
def _rational(value: float) -> fmpq:
    return fmpq(*float(value).as_integer_ratio())


def _independent_rows(rows: list[list[fmpq]]) -> list[int]:
    """A largest independent set, the first rows first."""
    kept: list[int] = []
    for i in range(len(rows)):
        trial = [rows[k] for k in (*kept, i)]
        if rows[i] and fmpq_mat(len(trial), len(rows[i]), [v for row in trial for v in row]).rank() == len(trial):
            kept.append(i)
    return kept
