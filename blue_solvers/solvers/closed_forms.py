"""Closed forms under equal variances within tables: at one place, over a spine, and over areas that cross."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy import sparse

from blue_solvers.components import Components, components_of
from blue_solvers.components.assumptions import flat_refusal, tree_refusal
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.contract import Info, Prepared, Solver, TableVariances
from blue_solvers.contract.prepared import InOtherLayout
from blue_solvers.normal_equations.noisy_equations import least_variance, uneven_refusal
from constraint_builders import Problem
from constraint_builders.arrays import Float

if TYPE_CHECKING:
    from blue_solvers.components.tree.tree_form import TreeForm


@dataclass(frozen=True)
class SeaBlue(Solver):
    """The paper's Algorithms 1 and 2, both branches, for any tables.

    With equal variances within tables (A1 to A3) the result is the BLUE, to rounding, in a few passes over the
    data, and no matrix is formed. With unequal ones it is the paper's heuristic, and `info` says so.

    References
    ----------
    SEA BLUE, Algorithms 1 and 2; docs/algebra.md has the formulas.
    """

    name: ClassVar[str] = "sea_blue"
    exact_for: ClassVar[str] = "one variance per table, uncorrelated (otherwise `info.exact` is False)"
    cost: ClassVar[str] = "a few passes over the data"

    def refusal(self, problem: Problem) -> str | None:
        """All but uncorrelated noise in tables of a schema; of unequal variances also recodes."""
        return flat_refusal(problem)

    def why_inexact(self, problem: Problem) -> str | None:
        """Unequal variances within tables."""
        return None if problem.is_alike_by_geounit else "variances differ within tables (A3 fails)"

    def plan(self, problem: Problem) -> Prepared:
        """Plan the passes."""
        inexact = self.why_inexact(problem)
        if inexact is None:
            reason = "closed form: noise is uncorrelated and of equal variance within tables (A1-A3)"
            return FormEstimate(problem, components_of(problem), Info(self.name, exact=True, reason=reason))
        from blue_solvers.solvers.oblique_down_pass import ObliqueDownPass

        reason = f"heuristic, not the BLUE: {inexact}; cg and cholesky give the BLUE"
        return ObliqueDownPass(problem, Info(self.name, exact=False, reason=reason))


@dataclass(frozen=True)
class TwoPass(Solver):
    """One pass up the spine and one down, all geounits of a level at once.

    Exact for any tables at any geolevel with any variances by geounit, geounits where nothing was measured and
    tables known exactly included, as long as noise is uncorrelated and of equal variance within a table of a
    geounit. Recodes may nest, cross or be of unequal groups. A problem without a spine is one of a single geounit.

    References
    ----------
    Rauch, Tung and Striebel, "Maximum likelihood estimates of linear dynamic systems", 1965: the smoother, here on a
    tree, with SEA BLUE's components of tables.
    """

    name: ClassVar[str] = "two_pass"
    exact_for: ClassVar[str] = "the same per geounit of a spine, recodes, zeros, equalities; trees of sums"
    cost: ClassVar[str] = "a few passes over the data"

    def refusal(self, problem: Problem) -> str | None:
        """All but equal variances within every table of every geounit, or nodes that form a tree."""
        return tree_refusal(problem) or uneven_refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        """Work out gains and covariances of every component."""
        from blue_solvers.components.conditioning import conditioned
        from blue_solvers.components.tree.tree_form import TreeForm
        from blue_solvers.components.tree_of_sums import TreeOfSums

        if problem.is_tree_of_sums:
            reason = "two sweeps over the tree of sums, exact"
            return TreeOfSums(problem, problem.relations.tree, Info(self.name, exact=True, reason=reason))
        if tree := problem.tree:
            return InOtherLayout(problem, self.plan(tree.problem), tree.observed, tree.desired)
        info = Info(self.name, exact=True, reason="two passes over the spine, exact")
        if problem.has_equalities:
            return FormEstimate(problem, conditioned(problem), info)
        return _TwoPassEstimate(problem, TreeForm(StructuredProblem.of(problem)), info)


@dataclass(frozen=True)
class AreaSolver(Solver):
    """Every component of the schema by one sparse Cholesky factorisation over areas, which all its cells share.

    Exact for areas that nest, overlap or cross, with weights of any sign, and any tables of any layer with any
    variances by area, areas where nothing was measured and tables known exactly included, as long as noise is
    uncorrelated and of equal variance within a table of an area. Recodes may nest, cross or be of unequal groups.

    References
    ----------
    Our own: generalised least squares by components of tables, as in SEA BLUE; docs/algebra.md has the formulas.
    """

    name: ClassVar[str] = "areas"
    exact_for: ClassVar[str] = "the same per area, also where areas overlap or cross, any weights"
    cost: ClassVar[str] = "a sparse factor per component"

    def refusal(self, problem: Problem) -> str | None:
        """All but equal variances within every table of an area, or geounit."""
        from blue_solvers.crossing_areas.area_form import areas_refusal

        return areas_refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        """Factorise every component."""
        from blue_solvers.crossing_areas.alike_leaves import exact_form_of_areas

        info = Info(self.name, exact=True, reason="a sparse factorisation over areas for every component, exact")
        return FormEstimate(problem, exact_form_of_areas(problem), info)


class FormEstimate(Prepared):
    """Components of equal variances, made ready."""

    def __init__(self, problem: Problem, form: Components, info: Info) -> None:
        self.problem = problem
        self.offset = getattr(form, "offset", np.broadcast_to(0.0, problem.desired.size))
        self.has_exact_zeros = getattr(form, "has_exact_zeros", self.has_exact_zeros)
        self._method = form
        self.info = info

    def apply(self, Y: Float) -> tuple[Float, Info]:
        return self._method.apply(Y), self.info

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        X, violation = self._method.apply_checked(Y)
        return X, replace(self.info, violation=violation)

    def adjoint(self, V: Float) -> Float:
        return self._method.adjoint(V)

    def variances(self) -> Float:
        return self._method.variances()


class _TwoPassEstimate(FormEstimate):
    """The two passes, and a third for chosen functionals."""

    has_exact_zeros = True
    _method: TreeForm

    def variances(self) -> Float:
        return self._method.variances(least_variance(self.problem))

    def variances_by_table(self) -> TableVariances:
        return self._method.variances_by_table(least_variance(self.problem))

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        from blue_solvers.components.tree.covariances import functional_covariance

        return functional_covariance(self.problem, self._method.plan, self._method.coefficients, W)
