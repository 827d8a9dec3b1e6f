"""Conjugate gradients with Q D Q for a diagonal D, preconditioned by Q f Q: two projections a step, half the steps.

What of the inverse of Q D Q is due to a cell depends on its leverage l = Q_ii, the share of its own measurement in its
estimate if all precisions were 1. A cell of leverage 1 is told by itself alone, and 1 / D is its part; one of leverage
0 is told by the others, whatever its own precision. Between them

    f = (l + u) / (l D + u),    u = (1 - l) / SHARPENED.

How many steps that saves depends on the mean leverage, which is the rank of Q over the number of cells, and hardly on
the ratio of precisions or their law. Measured on 11 sets of tables, steps without over steps with it:

    mean leverage   0.02   0.1          0.2          0.4          0.55         0.77         0.93
    steps saved     1.0    1.2 to 1.4   1.3 to 1.5   1.6 to 1.8   1.8 to 2.4   1.9 to 3.2   2.6 to 9

The same with E = 1 / D, R = I - Q and 1 - l for l preconditions R E R. Of two projections a step the one that f takes
is paid for from a mean leverage of a fifth on.

In the unit of the measurements, x = s z and r / s for r, steps take fewer multiplications: with the estimate P of the
structured problem, Q = s^-1 P s, the residual r / s changes by s^-2 P D x, and s Q f r is P s^2 f (r / s).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from blue_solvers.normal_equations.krylov import GROWTH, Product
from constraint_builders.arrays import Float

SHARPENED = 5.0  # 2 to 12 take as many steps within a tenth, but for uniform variances, where less is better
LEAST_LEVERAGE = 0.2  # on average, from which two projections a step take less work than one


def softened(D: Float, leverages: Float) -> Float:
    """The f of every cell, between 1 and 1 / D.

    Parameters
    ----------
    D : ndarray, (n, 1)
        Positive.
    leverages : ndarray, (n, 1)
        Between 0 and 1.
    """
    others = (1 - leverages) / SHARPENED
    return (leverages + others) / (leverages * D + others)


@dataclass(frozen=True)
class SoftenedSteps:
    """Solves Q D Q z = r, or R E R w = r, each column on its own, in the scale of the structured problem.

    Attributes
    ----------
    project : callable
        P X, or X - P X, for (n, K), in the unit of the measurements; a new array.
    D : ndarray, (n, 1)
        D, or E; zero in cells that the structured problem does not move.
    soft : ndarray, (n, 1)
        f of these.
    scale, inverse_scale : ndarray, (n, 1)
        s and 1 / s, zero in cells that it does not move.
    least : float
        What the eigenvalues of D, not E, are at least.
    """

    project: Product
    D: Float
    soft: Float
    scale: Float
    inverse_scale: Float
    least: float

    def __call__(
        self, R: Float, goal: Float, most: int, told: Callable[[Float], None] | None
    ) -> tuple[Float, int, bool]:
        """Solve until errors are bounded by `goal`.

        Parameters
        ----------
        R : ndarray, (n, K)
            In the range of the projection.
        goal : ndarray, (K,)
            In the unit of `ways.sizes_in`.
        most : int
            Steps.
        told : callable, optional
            Given the bounds of the columns that are open, at the start and after every step. Without it bounds are not
            worked out while r' f r tells that they are larger than the goal.

        Returns
        -------
        Z : ndarray, (n, K)
        steps : int
            Of the slowest column.
        converged : bool
            Whether every column reached its goal; not if one grew beyond all numbers.
        """
        weights, precisions = self.scale**2 * self.soft, self.inverse_scale**2
        inverse = np.divide(1.0, self.D, out=np.zeros_like(self.D), where=self.D > 0)
        shown = self.least * self.scale**2 * inverse
        moved = self.scale > 0
        surely = self.least * float((inverse[moved] / self.soft[moved]).min(initial=np.inf))  # of bound^2 over r' f r
        X, active = np.zeros_like(R), np.arange(R.shape[1])
        r = self.inverse_scale * R
        p, room, rho = np.zeros_like(r), np.multiply(weights, r), np.zeros(active.size)
        rho_next = _products(r, room)
        largest = GROWTH**2 * rho_next
        with np.errstate(over="ignore", invalid="ignore"):
            for step in range(most + 1):
                open_ = rho_next > 0
                if told is not None or not (surely * rho_next > goal[active] ** 2).all():
                    sizes = np.sqrt(_products(r, shown * r))
                    if told is not None:
                        told(sizes)
                    open_ &= sizes > goal[active]
                if not open_.all():
                    active, r, p, room = active[open_], r[:, open_], p[:, open_], np.ascontiguousarray(room[:, open_])
                    rho, rho_next, largest = rho[open_], rho_next[open_], largest[open_]
                if not active.size or step == most or not (rho_next <= largest).all():
                    break
                p *= np.divide(rho_next, rho, out=np.zeros_like(rho), where=rho > 0)
                p += self.project(room)
                rho = rho_next
                q = self.project(np.multiply(self.D, p, out=room))
                q *= precisions
                curvature = _products(p, q)
                alpha = np.divide(rho, curvature, out=np.zeros_like(rho), where=curvature > 0)
                np.multiply(alpha, p, out=room)
                X[:, active if active.size < X.shape[1] else slice(None)] += room
                q *= alpha
                r -= q
                rho_next = _products(r, np.multiply(weights, r, out=room))
        Z = self.inverse_scale * X
        return Z, step, not active.size and bool(np.isfinite(Z).all())


def softened_steps(
    apply: Product, D: Float, leverages: Float, scale: Float, least: float, of_multipliers: bool
) -> SoftenedSteps | None:
    """The steps on the estimate, or on its multipliers; None where too little of the leverage is theirs to pay.

    Parameters
    ----------
    apply : callable
        P X for (n, K), a new array.
    D : ndarray, (n, 1)
        Precisions in the scale of the structured problem, zero in cells that it does not move.
    leverages : ndarray, (n, 1)
        Of the structured problem's cells.
    scale : ndarray, (n, 1)
        Its standard deviations, zero in cells that it does not move.
    least : float
        What D is at least elsewhere.
    of_multipliers : bool
    """
    moved = scale > 0
    inverses = np.divide(1.0, scale, out=np.zeros_like(scale), where=moved)
    own = 1 - leverages if of_multipliers else leverages
    if not moved.any() or float(own[moved].mean()) < LEAST_LEVERAGE:
        return None
    weighed = np.divide(1.0, D, out=np.zeros_like(D), where=moved) if of_multipliers else D
    soft = np.where(moved, softened(np.where(moved, weighed, 1.0), own), 0.0)

    def rest(U: Float) -> Float:
        estimate = apply(U)
        return np.subtract(U, estimate, out=estimate)

    return SoftenedSteps(rest if of_multipliers else apply, weighed, soft, scale, inverses, least)


def _products(U: Float, V: Float) -> Float:
    """Scalar product of every pair of columns."""
    return np.einsum("ij,ij->j", U, V)
