"""Every truth that a problem allows: an affine space where equalities have right-hand sides."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, sparse

from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.relations.marginals import marginal_matrix

MOST_COUNT = 20


@dataclass(frozen=True)
class PossibleTruths:
    """Numbers z with G z = g, of which observed and desired cells are sums: x = M z.

    Attributes
    ----------
    observed, desired : csr_array, (n, q), (m, q)
        The sums.
    G : ndarray, (k, q)
    g : ndarray, (k,)
    """

    observed: sparse.csr_array
    desired: sparse.csr_array
    G: Float
    g: Float

    @classmethod
    def of(cls, problem: Problem) -> PossibleTruths:
        """Of counts that structural zeros allow, or of the cells themselves where there are equations alone."""
        if not problem.is_tabular:
            A, b = problem.equations("all")
            cells = sparse.csr_array(sparse.eye_array(A.shape[1]))
            return cls(cells, cells, A.toarray(), np.asarray(b, dtype=np.float64))
        schema, places = problem.domain.schema, problem.domain.places
        desired = marginal_matrix(schema, problem.desired_tables, places, problem.desired_levels)
        observed, possible = problem.marginal_matrix(), np.arange(problem.domain.size)
        if problem.zeros is not None:
            possible = np.flatnonzero(~problem.zeros.detailed(problem.domain.leaves))
        observed, desired = (sparse.csr_array(M[:, possible]) for M in (observed, desired))
        if problem.equalities is None:
            return cls(observed, desired, np.zeros((0, possible.size)), np.zeros(0))
        E, e = problem.equalities
        return cls(observed, desired, (E @ observed).toarray(), np.asarray(e, dtype=np.float64))

    @cached_property
    def start(self) -> Float:
        """One of them, (q,)."""
        return self._nearest(self.g) if self.g.any() else np.zeros(self.G.shape[1])

    @cached_property
    def directions(self) -> Float:
        """An orthonormal basis of the differences between them, (q, d)."""
        return linalg.null_space(self.G) if self.G.size else np.eye(self.G.shape[1])

    def differences(self, rng: np.random.Generator, columns: int) -> Float:
        """Some differences between them, (q, columns): whole numbers where there is no equality."""
        z = rng.integers(0, MOST_COUNT, (self.G.shape[1], columns)).astype(float)
        return z - self._nearest(self.G @ z) if self.G.size else z

    def _nearest(self, right: Float) -> Float:
        """The smallest z, (q,) or (q, K), with G z = right."""
        found: Float = linalg.lstsq(self.G, right)[0]
        return found + linalg.lstsq(self.G, right - self.G @ found)[0]
