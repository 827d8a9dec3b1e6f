"""What a closed form or two passes read of a problem: tables at geounits, each of one variance there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float
from constraint_builders.description.domain import EmptyCells
from constraint_builders.description.layout import Layout
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table


@dataclass(frozen=True)
class StructuredProblem:
    """Tables in the schema's order, with uncorrelated noise; see `Problem` for the attributes.

    Attributes
    ----------
    spine : LevelledTree
        Of one geounit where there is no geography.
    zeros : EmptyCells
        Of no variables, and none empty, where none are known.
    geounit_variances : list of ndarray, (geounits of the table's level,)
        The one variance of every observed table in every geounit.
    """

    schema: Schema
    spine: LevelledTree
    zeros: EmptyCells
    observed: Layout
    observed_tables: tuple[Table, ...]
    observed_levels: tuple[int, ...]
    geounit_variances: list[Float]
    desired: Layout
    desired_tables: tuple[Table, ...]
    desired_levels: tuple[int, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The desired tables, and then the observed ones; once where they are the same."""
        same = self.desired_tables is self.observed_tables
        return self.desired_tables if same else self.desired_tables + self.observed_tables

    @classmethod
    def of(cls, problem: Problem) -> StructuredProblem:
        """The tables of a problem, without its equalities.

        Raises
        ------
        ValueError
            If variances differ within a table of a geounit, noise is correlated, there are no tables, or the name of
            one has the variables in another order than the schema.
        """
        if problem.has_turned_tables:
            turned = next(own for own in problem.observed_tables + problem.desired_tables if own.is_turned)
            told = " * ".join(turned.factors)
            raise ValueError(f"table {told!r} is not in the schema's order: give the problem of `in_schema_order`")
        domain = problem.domain
        return cls(
            schema=domain.schema,
            spine=domain.spine,
            zeros=problem.zeros or EmptyCells((), np.zeros(domain.spine.size, bool), np.zeros(1, np.intp)),
            observed=problem.observed,
            observed_tables=problem.observed_tables,
            observed_levels=problem.observed_levels,
            geounit_variances=equal_variances(problem),
            desired=problem.desired,
            desired_tables=problem.desired_tables,
            desired_levels=problem.desired_levels,
        )


def equal_variances(problem: Problem) -> list[Float]:
    """The one variance of every table in every geounit, or area, (geounits,) for each table.

    Raises
    ------
    ValueError
        If variances differ within a table of a geounit, or noise is correlated.
    """
    if problem.geounit_variances is None:
        raise ValueError("two passes and closed forms need tables of equal variances in every geounit")
    return problem.geounit_variances
