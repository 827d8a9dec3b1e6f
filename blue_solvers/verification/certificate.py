"""A proof that an answer is the best linear unbiased estimate, by sums of the description alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.verification.by_sums import ProblemToProve, certify_by_sums
from blue_solvers.verification.certificate_sums import CertificateSums
from blue_solvers.verification.exact_combinations import ExactCombinations
from blue_solvers.verification.matrices import can_be_listed, certify_listed
from blue_solvers.verification.placed_tables import TableAtLevel
from blue_solvers.verification.problem_places import Claim, claims, holds_all
from blue_solvers.verification.weighed_noise import FinalError, NotCertifiedError, measured_vector, numbers_over
from blue_solvers.verification.wide import certify_wide
from constraint_builders import Areas, Problem, Schema
from constraint_builders.arrays import Float, Index, as_slice, inverse_order
from constraint_builders.problem import ProblemOverSpine
from constraint_builders.relations.marginals import Margin, refines
from constraint_builders.schema_order import in_schema_order
from constraint_builders.vectors import all_usable, refuse_large_values

MOST_LISTED = 2_000  # figures up to which counts are listed where sums prove little: it is tighter, and takes n^3
SMALL = 1e-8  # standard errors: where sums prove as much, a list would say no more that anybody needs
Bounds: TypeAlias = tuple[float, float]  # bound and violation, both in standard errors
PROVES = 1e-3  # standard errors: a larger bound is no proof
AGREES = 1e-6  # standard errors of the measurements: what one set of tables disagrees by in rounding, at most


@dataclass(frozen=True)
class Certificate:
    """What is proved of an answer.

    Attributes
    ----------
    bound : float or None
        No figure, and no linear combination of the counts behind the figures, is further from the best linear unbiased
        estimate, in its own standard errors; None if that is not certified.
    reason : str
        What proves it, or why it is not certified.
    violation : float or None
        Largest disagreement between the tables of the answer, in standard errors of the measurements; None if it could
        not be worked out.
    piece : str or None
        Where it is not certified, the largest piece that could be checked: tables of which one contains the other.
    """

    bound: float | None
    reason: str
    violation: float | None = None
    piece: str | None = None

    @property
    def is_proved(self) -> bool:
        """Whether the bound is so small that the answer is the best estimate for all that anybody needs.

        Returns
        -------
        bool
        """
        return self.bound is not None and self.bound <= PROVES

    def __str__(self) -> str:
        if self.bound is not None:
            said = "proved, at most {:.1g} standard errors" if self.is_proved else "not proved (bound {:.1g})"
            return said.format(self.bound)
        return f"not certified: {self.reason}" + (f" ({self.piece})" if self.piece else "")


def certify(problem: Problem, y: ArrayLike, x: ArrayLike, desired: ArrayLike | None = None) -> Certificate:
    """Bound how far any answer is from the best linear unbiased estimate. No solver takes part.

    Parameters
    ----------
    problem : Problem
    y : array_like, (n,)
        What was measured, over the observed layout.
    x : array_like, (n,)
        The answer over the observed layout; NaN in cells that were not measured where it says nothing about them.
    desired : array_like, (m,), optional
        The answer over the desired layout, which is then judged too; NaN in cells that it says nothing about.

    Returns
    -------
    Certificate

    Raises
    ------
    ValueError
        If a shape does not fit, or a value is NaN or infinite in a cell that was measured, or infinite in `desired`.

    Notes
    -----
    Counts whose tables are x differ from the best ones by at most the norm of y - x - Sigma h in the noise, for *any*
    combination h of cells that is the same for all counts. Whichever h is found, that is evaluated with its rounding.

    Examples
    --------
    >>> from constraint_builders import Schema
    >>> problem = Problem(Schema({"sex": 2}), {"total": 1.0, "sex": 1.0})
    >>> certify(problem, [4.0, 1.0, 2.0], [11 / 3, 4 / 3, 7 / 3]).bound < 1e-14
    True
    >>> print(certify(problem, [4.0, 1.0, 2.0], [3.0, 1.0, 2.0]))
    not proved (bound 0.8)
    """
    return Certifier(problem).certify(problem.noise.centred(_cells(problem, y, "y")), x, desired)


class Certifier:
    """Certificates of answers to one problem, which keeps what they have in common.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self._given, self._order = problem, in_schema_order(problem)
        problem = self._order.problem
        tree = problem.tree if problem.areas is None or problem.observed.size > MOST_LISTED else None
        other = tree if tree is not None and holds_all(tree.problem, []) else _over_areas(problem)
        self._places = None if other is None else (as_slice(other.observed), as_slice(other.desired))
        self._posed = ProblemToProve(problem if other is None else other.problem)

    def closest(
        self, y: ArrayLike, x: ArrayLike, desired: ArrayLike | None = None, enough: float = SMALL
    ) -> Certificate:
        """As `certify`, of (n,), (n,) and (m,); where that is more than `enough`, perhaps without some cells.

        The smaller bound of two: in the other nothing is said of cells that were not measured.
        """
        x, lost = self._given.observed.flat(x, "x"), self._given.unmeasured
        unsaid = np.where(lost, np.nan, x) if self._given.has_unmeasured else x
        found = self.certify(y, unsaid, desired)  # solvers may leave what was not measured as it is
        if (found.bound is not None and found.bound <= enough) or np.isnan(x[lost]).all():
            return found
        return min(found, self.certify(y, x, desired), key=lambda own: np.inf if own.bound is None else own.bound)

    @np.errstate(over="ignore")  # a bound that is beyond float64 is none, and says so
    def certify(self, y: ArrayLike, x: ArrayLike, desired: ArrayLike | None = None) -> Certificate:
        """As the function of that name, of y and x, (n,), and the desired cells, (m,)."""
        y, x = _cells(self._given, y, "y"), _cells(self._given, x, "x")
        wanted = None if desired is None else _wanted(self._given, desired)[self._order.desired]
        problem, y, x = self._posed.problem, y[self._order.observed], x[self._order.observed]
        if self._places is not None:
            at, wanted_at = self._places
            wanted = None if wanted is None else _laid_out(wanted, wanted_at, problem.desired.size)
            x = _laid_out(x, at, problem.observed.size)
            y = _laid_out(y, at, problem.observed.size, 0.0)  # the others were not measured
        try:
            made = [] if wanted is None else claims(problem, x, wanted, self._posed.twins)
            bound, violation = _bounded(self._posed, y, x, made)
        except NotCertifiedError as refusal:
            return Certificate(None, str(refusal), None, _agreement_of_nested(problem, x))
        return judged(bound, violation)


def _over_areas(problem: Problem) -> ProblemOverSpine | None:
    """Sums of leaves as areas of them, where every leaf was measured itself; otherwise None."""
    if problem.summing is None or problem.noise.covariance is not None or problem.has_equalities:
        return None
    S = problem.summing.matrix
    single = np.flatnonzero(np.diff(S.indptr) == 1)
    single = single[S.data[S.indptr[single]] == 1]
    leaves, first = np.unique(S.indices[S.indptr[single]], return_index=True)
    alone = single[first]
    sums = np.setdiff1d(np.arange(S.shape[0]), alone)
    if leaves.size < S.shape[1] or not sums.size or np.isinf(problem.variances[alone]).any():
        return None
    observed = {"Sums": {"total": problem.variances[sums]}, "Leaf": {"total": problem.variances[alone]}}
    areas = Areas(leaves.size, {"Sums": S[sums]})
    places = inverse_order(np.concatenate([sums, alone]), S.shape[0])
    return ProblemOverSpine(Problem(Schema({"node": 1}), observed, areas=areas), places, places)


def _bounded(posed: ProblemToProve, y: Float, x: Float, made: list[Claim]) -> Bounds:
    """By sums, of y and x, (n,); where these prove little, or nothing, by a list of counts too, if figures are few."""
    problem = posed.problem
    few = problem.observed.size + sum(claim.figures.size for claim in made) <= MOST_LISTED
    both = few and problem.equalities is None
    by_list = [False] * problem.is_tabular + [True]
    if few and not both:  # sums allow figures for what equalities are off by, a list follows it
        by_list.reverse()
    found, refusals = list[Bounds](), list[NotCertifiedError]()
    for lists in by_list:
        if lists and not _may_be_listed(problem, made, few):
            continue
        try:
            found.append(certify_listed(problem, y, x, made) if lists else _bounded_by_sums(posed, y, x, made))
        except FinalError:
            raise
        except NotCertifiedError as refusal:
            refusals.append(refusal)
        if found and not (both and found[0][0] > SMALL):
            break
    if not found:
        raise refusals[-1 if both else 0]
    return min(found)


def _may_be_listed(problem: Problem, made: list[Claim], few: bool) -> bool:
    """Whether a list may say what sums do not, and is small enough."""
    needed = few or not problem.is_tabular or problem.has_equalities or holds_all(problem, made) is None
    return needed and can_be_listed(problem, made)


def _bounded_by_sums(posed: ProblemToProve, y: Float, x: Float, made: Sequence[Claim]) -> Bounds:
    """Tables of one place by contrasts, but large ones, or groups, that one holds by cells, as others; y, x are (n,).

    Contrasts are not told what groups of levels know well: what they leave open is asked of cells too.
    """
    problem = posed.problem
    by_cells = problem.has_only_tables and posed.is_for_cells and holds_all(problem, made) is not None
    if not problem.has_only_tables or by_cells or posed.contrasts is None:
        return certify_by_sums(posed, y, x, made)
    found = certify_wide(problem, posed.noise, posed.contrasts, y, x, made)
    if posed.contrasts.groups and found[0] > SMALL:
        with suppress(NotCertifiedError):
            return min(found, certify_by_sums(posed, y, x, made))
    return found


def _agreement_of_nested(problem: Problem, x: Float) -> str | None:
    """What can be said of any tables of x, (n,): how far those disagree of which one contains the other, at a place."""
    if not problem.is_tabular:
        return None
    schema, worst, compared = problem.domain.schema, 0.0, 0
    tables, levels = problem.observed_tables, problem.observed_levels
    for i, table in enumerate(tables):
        finer = [
            j for j in range(len(tables)) if levels[j] == levels[i] and j != i and refines(schema, tables[j], table)
        ]
        cells = problem.observed.block(i)
        if not finer or problem.variances[cells].min() == 0 or problem.unmeasured[cells].all():
            continue
        j = min(finer, key=lambda j: tables[j].size)
        total = Margin(schema, tables[j], table).apply(x[problem.observed.block(j)].reshape(-1, tables[j].size).T)
        apart = abs(x[cells] - total.T.ravel()) / np.sqrt(problem.variances[cells])
        worst, compared = max(worst, float(np.nanmax(apart, initial=0.0))), compared + 1
    if not compared:
        return None
    return f"{compared} of {len(tables)} tables agree with a table that contains them to {worst:.2g} standard errors"


def judged(bound: float, violation: float) -> Certificate:
    """The certificate of a bound."""
    if not np.isfinite(bound):
        what = "the bound overflows, or cells are measured by coarser tables alone where nothing is below them"
        return Certificate(None, what, violation)
    reason = "what is left of the residuals that the counts could explain"
    if violation > AGREES:
        reason += f", and what the tables disagree by, {violation:.2g} standard errors of a measurement"
    return Certificate(float(bound), reason, float(violation))


def certificate_of(
    sums: CertificateSums,
    schema: Schema,
    tables: Mapping[str, TableAtLevel],
    combinations: ExactCombinations | None = None,
) -> Certificate:
    """What is proved of all parts of a tree together, by their sums added up."""
    try:
        return judged(sums.bound(tables, schema, sums.all_left(), combinations), sums.violation)
    except NotCertifiedError as refusal:
        return Certificate(None, str(refusal))


def _laid_out(values: Float, places: Index | slice, size: int, elsewhere: float = np.nan) -> Float:
    """Values, (k,), at their places in a vector, (size,), which elsewhere is one number; the same where all follow."""
    if isinstance(places, slice) and values.size == size:
        return values
    found = np.full(size, elsewhere)
    found[places] = values
    return found


def _cells(problem: Problem, values: ArrayLike, what: str) -> Float:
    """What is given as y or x, as a vector, (n,); refused where it is too large, in y 0 where nothing was measured."""
    vector = numbers_over(problem.observed, values, what)
    if not all_usable(vector):
        refuse_large_values(problem, measured_vector(problem, vector, what), f"{what} of ")
    if what == "y" and problem.has_unmeasured:
        return np.where(problem.unmeasured, 0.0, vector)
    return vector


def _wanted(problem: Problem, desired: ArrayLike) -> Float:
    """What is claimed of the desired cells as a vector, (m,); refused where it is infinite."""
    if not problem.is_tabular:
        raise ValueError("a problem without tables has no desired cells but the observed ones: leave out `desired`")
    vector = numbers_over(problem.desired, desired, "desired")
    if not np.isfinite(np.vdot(vector, vector)) and np.isinf(vector).any():
        where = problem.desired.describe(int(np.isinf(vector).argmax()))
        raise ValueError(f"{where} of desired is infinite: give a number, or NaN where nothing is claimed")
    return vector
