"""Least squares whose leaves are the answer: values, errors, fit and proof."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers.contract.solver import plain_problem
from blue_solvers.errors import UnsupportedProblemError
from blue_solvers.estimates import Estimate, is_exact
from blue_solvers.least_squares.leaf_basis import LeafBasis, Rank
from blue_solvers.least_squares.proof_of_leaves import ProofOfLeaves
from blue_solvers.least_squares.through_leaves import Estimable, ThroughLeaves
from blue_solvers.operator import ESTIMATES_A_PROOF, PROOF_SECONDS, BlueOperator
from blue_solvers.over_layouts import read_weights
from blue_solvers.uncertainty import Functionals, covariance_block, covariance_columns
from blue_solvers.verification.certificate import Certificate
from blue_solvers.verification.weighed_noise import NotCertifiedError, at_most, thread_time
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.memory import require_memory
from constraint_builders.relations.equations import UnsolvableError
from constraint_builders.tied_together import TiedTogether
from constraint_builders.vectors import CONTRADICTION_TOLERANCE, refuse_unreadable

SOON = 500_000  # entries of rows, up to which a proof that is made with an estimate takes about a second
UNITS = 64  # columns of an operator found at once


def entries_of(S: LinearOperator) -> sparse.csr_array:
    """The entries of an operator, (n, k), by applying it to all unit vectors."""
    rows, leaves = S.shape
    blocks = []
    for start in range(0, leaves, UNITS):
        units = np.zeros((leaves, min(UNITS, leaves - start)))
        units[np.arange(start, start + units.shape[1]), np.arange(units.shape[1])] = 1
        blocks.append(sparse.csc_array(np.asarray(S @ units)))
        require_memory(
            12.0 * sum(own.nnz for own in blocks) * leaves / (start + units.shape[1]),
            f"the entries of an operator of shape ({rows:,}, {leaves:,})",
            "give a sparse matrix, or fewer leaves at a time",
        )
    return sparse.csr_array(sparse.hstack(blocks, format="csc"))


def operator_of_leaves(problem: Problem) -> LeafOperator:
    """The estimate of the leaves of a problem of rows, as an operator, (leaves, rows)."""
    solver, plain = ThroughLeaves(), plain_problem(problem)
    if plain.noise.is_singular:
        raise UnsupportedProblemError(
            "the covariance is singular, so that combinations of rows are known exactly: give every combination "
            "noise, or state in rows of variance 0 what is exact"
        )
    try:
        if (reason := solver._reason(plain, problem.noise.is_shared)) is not None:
            raise UnsupportedProblemError(reason)
        basis = LeafBasis.of(plain)
    except UnsolvableError as error:
        raise UnsupportedProblemError(str(error)) from None
    lost = basis.lost
    return LeafOperator(problem.replace(undetermined=lost if lost.any() else None), basis)


class LeafOperator(BlueOperator):
    """The estimate of leaves from rows, (k, n), or of fitted rows; see `BlueOperator`.

    Parameters
    ----------
    problem : Problem
        Of rows and leaves.
    basis : LeafBasis
        What its rows determine.
    """

    _prepared: Estimable

    def __init__(self, problem: Problem, basis: LeafBasis) -> None:
        start, solver = thread_time(), ThroughLeaves(basis)
        super().__init__(problem, solver, Estimable(problem, solver.prepare(problem), basis))
        self.basis, self._seconds = basis, thread_time() - start

    def estimate(self, y: Any, certify: bool | None = None) -> LeafEstimate:
        """The estimate from one set of measurements, with its errors and its proof.

        Parameters
        ----------
        y : array_like, (n,)
            By its labels where it has some.
        certify : bool, optional
            Whether to prove the values while they are made, by default where that takes about a second.

        Returns
        -------
        LeafEstimate
        """
        y, start = self._measurements(y), time.perf_counter()
        anything, info = self._prepared.anything(y[:, None])
        values = self._prepared.where_estimable(anything)[:, 0]
        observed = np.where(self.basis.lost_rows, np.nan, self.problem.leaves_of(0) @ anything[:, 0])
        proof = None
        if certify or (certify is None and self.basis.S.nnz <= SOON):
            with at_most(max(ESTIMATES_A_PROOF * (time.perf_counter() - start), PROOF_SECONDS)):
                proof = self.certificate(y, values, observed)
            exact = is_exact(proof)
            reason = info.reason if exact else f"{info.reason}; not proved"
            info = replace(info, exact=exact, reason=reason, error_bound=proof.bound)
        values.flags.writeable = observed.flags.writeable = False
        return LeafEstimate(self, y, values, replace(info, seconds=time.perf_counter() - start), proof, observed)

    def anything(self, Y: Float) -> Float:
        """As the operator gives it, (n, K) to (k, K), with any of the values that fit in place of NaN.

        Parameters
        ----------
        Y : ndarray, (n, K)

        Returns
        -------
        ndarray, (k, K)
        """
        return self._prepared.anything(Y)[0]

    def certificate(self, y: Float, values: Float, observed: Float | None = None) -> Certificate:
        """How far leaves, and the rows that belong to them, are from the best ones at most, whoever made them.

        Parameters
        ----------
        y : array_like, (n,)
        values : array_like, (k,)
        observed : array_like, (n,), optional
            By default the rows that belong to the leaves, as far as these are numbers.

        Returns
        -------
        Certificate
        """
        y, values = self.problem.observed.flat(y, "y"), self.problem.desired.flat(values, "values")
        y, rows = np.where(self.problem.unmeasured, 0.0, y), self.problem.leaves_of(0) @ values
        unsaid = np.isnan(values) | self.basis.lost
        fitting = self.anything(y[:, None])[:, 0] if unsaid.any() else values
        try:
            return self._proof.certificate(y, values, rows if observed is None else observed, fitting)
        except NotCertifiedError as refusal:
            return Certificate(None, str(refusal))

    @cached_property
    def _proof(self) -> ProofOfLeaves:
        """What proofs have in common."""
        return ProofOfLeaves(self.problem, self.basis)

    @cached_property
    def over_observed(self) -> LeafOperator:
        """The operator whose answers are the fitted rows."""
        if self._is_over_observed:
            return self
        return LeafOperator(self.problem.observing(), self.basis)

    def _measurements(self, y: Any) -> Float:
        """One vector over the rows, refused where exact rows contradict one another."""
        vector = np.array(self.problem.observed.flat(y, "y"))
        if vector.shape != (self.shape[1],):
            raise ValueError(f"y must have shape ({self.shape[1]},), one number for every row of S: got {vector.shape}")
        refuse_unreadable(self.problem, vector)
        vector[self.problem.unmeasured] = 0.0
        off, sizes = abs(self.basis.between @ vector), abs(self.basis.between) @ abs(vector)
        wrong = np.flatnonzero(off > CONTRADICTION_TOLERANCE * sizes)
        if wrong.size:
            row = self.basis.between[[wrong[0]]].tocoo().col
            told = ", ".join(self.problem.observed.labels(int(i)) for i in row[:4])
            raise ValueError(f"exact rows {told} contradict one another by {off[wrong[0]]:.3g}: correct their values")
        vector.flags.writeable = False
        return vector

    def __reduce__(self) -> tuple:
        return operator_of_leaves, (self.problem.replace(undetermined=None),)


@dataclass(frozen=True, eq=False, repr=False)
class LeafEstimate(Estimate):
    """What `least_squares` returns: an `Estimate` of leaves.

    Everything that an `Estimate` has is of the leaves, in the order of the columns of S; its test of the fit, with
    outliers, redundancy and smallest detectable errors, is of the rows.
    """

    operator: LeafOperator

    @property
    def rows(self) -> Float:
        """The fitted rows, S times the leaves, (n,); NaN where a row that was not measured is not estimable."""
        return np.asarray(self.observed)

    @property
    def rank(self) -> Rank:
        """How many combinations of leaves the rows determine, and how clearly."""
        return self.operator.basis.rank

    def functionals(self, W: Any) -> Functionals:
        """Combinations of leaves with their covariance, also estimable ones of leaves that are not.

        Parameters
        ----------
        W : array_like or sparse array, (k, K) or (k,)
            A combination in every column.

        Returns
        -------
        Functionals
            NaN where a combination is not estimable.
        """
        weights = read_weights(self.problem.desired, W)
        of_rows = self.operator.T @ weights.toarray()
        return Functionals(of_rows.T @ self.y, self.operator.functional_covariance(weights))

    def covariance_block(self, rows: ArrayLike, columns: ArrayLike) -> Float:
        """Covariance between two sets of leaves.

        Parameters
        ----------
        rows, columns : sequence of int, (R,) and (C,)
            Positions of leaves.

        Returns
        -------
        ndarray, (R, C)
        """
        return covariance_block(self.operator, rows, columns)

    def covariance_columns(self, leaves: ArrayLike) -> Float:
        """Covariance of every leaf with some of them.

        Parameters
        ----------
        leaves : sequence of int, (K,)
            Their positions.

        Returns
        -------
        ndarray, (k, K)
            NaN for those that are not estimable.
        """
        positions = self.problem.desired.positions(leaves)
        found = np.full((self.values.size, positions.size), np.nan)
        known = np.flatnonzero(~self.problem.lost[positions])
        found[:, known] = covariance_columns(self.operator, positions[known])
        return found

    @cached_property
    def tied(self) -> TiedTogether:
        """What ties the numbers together; as text it is one line."""
        problem = self.problem
        measured = int(np.count_nonzero(~problem.unmeasured))
        return TiedTogether(measured - self.rank.rank, 1, understood=problem.understood)
