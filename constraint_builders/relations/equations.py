"""The linear equations that every possible truth satisfies: self-consistency, and what else is known exactly."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import sparse

from constraint_builders.description.layout import Float
from constraint_builders.measurements import Measurements
from constraint_builders.relations.constraints import SelfConsistency
from constraint_builders.relations.elimination import Elimination, eliminate, relations_between_rows
from constraint_builders.relations.marginals import marginal_matrix, spine_marginal_matrix
from constraint_builders.relations.spine_constraints import SpineConsistency
from constraint_builders.relations.spine_sums import UNOBSERVED_VARIANCE


class ConsistencyEquations:
    """The equations A x = b between observed cells, after those that were not measured have been eliminated.

    Parameters
    ----------
    measurements : Measurements
    """

    def __init__(self, measurements: Measurements) -> None:
        self._measurements = measurements

    @cached_property
    def structure(self) -> SelfConsistency | SpineConsistency:
        """Self-consistency of the tables that were measured, each with its typical variance."""
        m = self._measurements
        assert m.schema is not None
        return self._structure([np.asarray(v) for v in m.typical_variances()])

    def _structure(self, variances: list[Float]) -> SelfConsistency | SpineConsistency:
        m = self._measurements
        assert m.schema is not None
        if m.spine is None:
            return SelfConsistency(m.schema, m.observed_tables, [float(v[0]) for v in variances])
        return SpineConsistency(m.schema, m.spine, m.observed_levels, m.observed_tables, variances)

    @cached_property
    def partly_measured(self) -> bool:
        """Whether unmeasured cells must be eliminated: tables measured in part, or other equations."""
        m = self._measurements
        if m.schema is None or m.zeros is not None or m.equalities is not None or m.recodes_cross:
            return bool(m.unmeasured.any())
        if m.spine is not None:
            sizes = [table.size for table in m.observed_tables]
            typical = zip(sizes, m.typical_variances(), strict=True)
            whole = sum(size * int(np.isinf(v).sum()) for size, v in typical)
        else:
            whole = int(m.observed.sizes[~m.measured_tables].sum())
        return int(m.unmeasured.sum()) > whole

    @property
    def is_structural(self) -> bool:
        """Whether the equations are those of self-consistency alone, between tables measured whole."""
        m = self._measurements
        special = m.schema is None or m.zeros is not None or m.equalities is not None
        return not special and not self.partly_measured and not m.recodes_cross

    @property
    def rank(self) -> int:
        """Number of independent equations."""
        return self.structure.rank if self.is_structural else self.matrix("independent")[0].shape[0]

    def matrix(self, rows: str) -> tuple[sparse.csr_array, Float]:
        """A and b of the rows "independent" or "all"."""
        m = self._measurements
        if self.is_structural:
            A = self.structure.matrix(rows)
            return A, np.zeros(A.shape[0])
        extended = self._measured(rows)
        if rows == "independent" and (m.matrix is not None or m.equalities is not None):
            elimination = eliminate(extended, np.arange(m.observed.size))
            if elimination.nearly_dependent.size:
                raise ValueError(
                    f"row {elimination.nearly_dependent[0]} of the equations A x = b is nearly a combination of "
                    "others, and rounding would decide what it says: leave it out, or make it one exactly"
                )
            if elimination.remaining.nnz:
                raise ValueError("the equations A x = b contradict one another: no x satisfies all of them")
            extended = sparse.csr_array(extended[np.sort(elimination.pivot_rows)])
        A = sparse.csr_array(extended[:, : m.observed.size])
        return A, -extended[:, [m.observed.size]].toarray().ravel()

    def _measured(self, rows: str) -> sparse.csr_array:
        """``[A, -b]`` after the cells that were not measured have been eliminated."""
        return self.elimination(rows).remaining if self.partly_measured else self._of_all_cells(rows)

    @cached_property
    def open_elimination(self) -> Elimination:
        """Elimination of the cells that were not measured from all that holds between observed cells, measured or not.

        Its free columns are cells of which each, were it measured, would determine more, and all together everything.
        """
        m = self._measurements
        if m.zeros is not None or m.recodes_cross:
            A = self._relations_of_possible_cells()
        else:
            A = self._structure([np.minimum(v, UNOBSERVED_VARIANCE) for v in m.typical_variances()]).matrix()
        if m.equalities is not None:
            A = sparse.csr_array(sparse.vstack([A, m.equalities[0]], format="csr"))
        return eliminate(A, np.flatnonzero(m.unmeasured))

    def elimination(self, rows: str) -> Elimination:
        """Elimination of the cells that were not measured."""
        return eliminate(self._of_all_cells(rows), np.flatnonzero(self._measurements.unmeasured))

    def _of_all_cells(self, rows: str) -> sparse.csr_array:
        """``[A, -b]``, so that b takes part in eliminations."""
        m = self._measurements
        A = self._relations(rows)
        b = np.zeros(A.shape[0]) if m.b is None else m.b
        if m.equalities is not None:
            E, value = m.equalities
            A, b = sparse.vstack([A, E], format="csr"), np.concatenate([b, value])
        return sparse.csr_array(sparse.hstack([A, sparse.csr_array(-b[:, None])], format="csr"))

    def _relations(self, rows: str) -> sparse.csr_array:
        """Self-consistency, of unmeasured cells too where equalities may speak of them."""
        m = self._measurements
        if m.matrix is not None:
            return m.matrix
        if m.summing is not None:
            return m.summing.relations
        if m.zeros is not None or m.recodes_cross:
            return self._relations_of_possible_cells()
        if m.equalities is None or not m.unmeasured.any():
            return self.structure.matrix(rows)
        return self._structure([np.minimum(v, UNOBSERVED_VARIANCE) for v in m.typical_variances()]).matrix(rows)

    def _relations_of_possible_cells(self) -> sparse.csr_array:
        """What holds between observed cells: the detailed cells, but for structural zeros, are eliminated."""
        m = self._measurements
        M = self.marginal_matrix()
        if m.zeros is not None:
            leaves = np.zeros(1, np.intp) if m.spine is None else np.flatnonzero(m.spine.child_counts == 0)
            M = M[:, np.flatnonzero(~m.zeros.detailed(leaves))]
        return relations_between_rows(M)

    def marginal_matrix(self) -> sparse.csr_array:
        """The 0/1 matrix from the detailed histograms, of leaves, to all observed cells."""
        m = self._measurements
        assert m.schema is not None
        if m.spine is not None:
            return spine_marginal_matrix(m.schema, m.spine, m.observed_levels, m.observed_tables)
        return marginal_matrix(m.schema, m.observed_tables)

    @cached_property
    def completion(self) -> tuple[sparse.csr_array, Float] | None:
        """How cells that were not measured follow from the others: x = C x + c; None if no such cell is needed.

        C is (n, n), the identity on measured cells.
        """
        m = self._measurements
        if not self.partly_measured or m.spine is not None:
            return None
        elimination = self.elimination("independent")
        n = m.observed.size
        solved, cells = elimination.solved, elimination.solved_columns
        placement = sparse.csr_array((np.ones(cells.size), (cells, np.arange(cells.size))), shape=(n, cells.size))
        follow = sparse.csr_array(-(placement @ solved))
        identity = sparse.diags_array((~m.unmeasured).astype(float))
        C = sparse.csr_array(identity + follow[:, :n])
        C = sparse.csr_array(C + sparse.diags_array(np.bincount(cells, minlength=n).astype(float)))
        C.eliminate_zeros()
        return C, follow[:, [n]].toarray().ravel()

    @cached_property
    def between_exact(self) -> tuple[sparse.csr_array, Float]:
        """The equations that hold between exactly known cells alone: (A, b), A of shape (rows, n)."""
        m = self._measurements
        n = m.observed.size
        if self.is_structural and m.geounit_variances is not None:
            A = self._structure([np.where(variance == 0, 1.0, np.inf) for variance in m.geounit_variances]).matrix()
            return A, np.zeros(A.shape[0])
        noisy = np.flatnonzero(~m.exact & ~m.unmeasured)
        remaining = eliminate(self._measured("all"), noisy).remaining
        pivots = np.sort(eliminate(remaining, np.arange(n)).pivot_rows)
        remaining = remaining[pivots]
        return sparse.csr_array(remaining[:, :n]), -remaining[:, [n]].toarray().ravel()
