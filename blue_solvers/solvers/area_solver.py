"""Areas that cross: one sparse factorisation over areas for every component of the schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from blue_solvers.contract import Info, Prepared, Solver
from blue_solvers.crossing_areas.area_form import areas_refusal, exact_form_of_areas
from blue_solvers.solvers.sea_blue import SeaBlueEstimate
from constraint_builders import Problem


@dataclass(frozen=True)
class AreaSolver(Solver):
    """Every component of the schema by one sparse Cholesky factorisation over areas, which all its cells share.

    Exact for areas that nest, overlap or cross, with weights of any sign, and any tables of any layer with any
    variances by area, areas where nothing was measured and tables known exactly included, as long as noise is
    uncorrelated and of equal variance within a table of an area. Recodes may nest, cross or be of unequal groups.
    """

    name: ClassVar[str] = "areas"
    exact_for: ClassVar[str] = (
        "the same within each of areas that overlap or cross, with any weights; spines and single places too"
    )
    cost: ClassVar[str] = "a sparse factorisation over areas for every component, and a few passes over the data"

    def refusal(self, problem: Problem) -> str | None:
        """All but equal variances within every table of an area, or geounit."""
        return areas_refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        """Factorise every component."""
        info = Info(self.name, exact=True, reason="a sparse factorisation over areas for every component, exact")
        return SeaBlueEstimate(problem, exact_form_of_areas(problem), info)
