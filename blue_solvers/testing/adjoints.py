"""Whether an adjoint is the transpose."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator

COLUMNS = 3


def dot_test(P: LinearOperator, rng: np.random.Generator | int | None = None, rtol: float = 1e-8) -> None:
    """Check that an operator's adjoint is the transpose of its product: u'(P v) = (P'u)'v.

    Parameters
    ----------
    P : LinearOperator, (m, n)
    rng : Generator, int or None
        Source of the random vectors, or its seed; None is a fixed seed.
    rtol : float
        Permitted difference relative to the sum of the absolute terms of either side.

    Raises
    ------
    AssertionError
        With both numbers.

    Examples
    --------
    >>> from blue_solvers import blue
    >>> from constraint_builders import gallery
    >>> dot_test(blue(gallery.toy()))
    """
    generator = np.random.default_rng(0 if rng is None else rng)
    for columns in ((), (1,), (COLUMNS,)):
        v = generator.standard_normal((P.shape[1], *columns))
        u = generator.standard_normal((P.shape[0], *columns))
        image, adjoint = P @ v, P.T @ u
        forward, backward = u.T @ image, adjoint.T @ v
        scale = np.maximum(abs(u).T @ abs(image), abs(adjoint).T @ abs(v))
        if not float(np.max(abs(forward - backward) - rtol * scale)) <= 0:
            shape = (P.shape[1], *columns)
            raise AssertionError(
                f"the adjoint of a {type(P).__name__} fails for v of shape {shape}: "
                f"u'(Pv) = {forward}, (P'u)'v = {backward}"
            )
