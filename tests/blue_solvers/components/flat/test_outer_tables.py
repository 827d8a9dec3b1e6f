"""Which tables are corrected through their margins."""

from __future__ import annotations

from blue_solvers.components import SweepForm
from blue_solvers.components.structured_problem import StructuredProblem
from constraint_builders import gallery


def test_large_tables_of_long_axes_are_outer() -> None:
    found = [SweepForm(StructuredProblem.of(own))._outer for own in (gallery.dhc(), gallery.cube(5, 5))]
    assert [own is not None for own in found] == [True, False]
