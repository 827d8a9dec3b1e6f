"""Smaller problems for questions that do not tell the levels of some variables apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table, parse_table

Variances = Mapping[str, Mapping[str, Float]]


def sum_out(schema: Schema, observed: Variances, needed: Collection[str]) -> tuple[Schema, dict[str, dict[str, Float]]]:
    """Sum measurements over the variables that a question does not need, without loss.

    A variable of which all observed tables keep either every level or none splits the problem into one for sums over
    its levels and one for contrasts between them, which share no information as long as variances are equal within each
    table of a geounit. So a count that is a sum over its levels has the same best linear unbiased estimate, and the
    same variance, in the problem of the tables summed over it. A variable with recodes in use does not split so, and
    stays. So do variables that structural zeros tell apart: count them among the needed ones.

    Parameters
    ----------
    schema : Schema
    observed : mapping of geolevel to mapping of table to ndarray, (geounits,)
        One variance for every table of a geounit, in squared counts.
    needed : collection of str
        Variables that the question distinguishes.

    Returns
    -------
    schema : Schema
        Of the variables that are needed or stay, at least one.
    observed : dict of geolevel to dict of table to ndarray, (geounits,)
        Tables summed to the same cells are one, with the variance of their best combination.
    """
    tables = {name: parse_table(schema, name) for row in observed.values() for name in row}
    factors = {factor for table in tables.values() for factor in table.factors}
    recoded = {schema.names[schema.axis_of(factor)] for factor in factors - set(schema.names)}
    kept = [name for name in schema.names if name in recoded.union(needed)] or [schema.names[0]]
    smaller = _restricted(schema, kept)
    summed: dict[str, dict[str, Float]] = {}
    for level, row in observed.items():
        precisions: dict[str, Float] = {}
        for name, variances in row.items():
            margin, cells = _margin(schema, smaller, tables[name])
            with np.errstate(divide="ignore"):
                precisions[margin] = precisions.get(margin, 0.0) + 1 / (variances * cells)
        with np.errstate(divide="ignore"):
            summed[level] = {name: 1 / precision for name, precision in precisions.items()}
    return smaller, summed


def _restricted(schema: Schema, kept: Collection[str]) -> Schema:
    recodes: dict[str, dict[str, tuple[int, ...]]] = {}
    for recode in schema.recodes:
        if schema.names[recode.axis] in kept:
            recodes.setdefault(schema.names[recode.axis], {})[recode.name] = recode.groups
    return Schema({name: schema.labels_of(name) for name in kept}, recodes)


def _margin(schema: Schema, smaller: Schema, table: Table) -> tuple[str, int]:
    """Name of the table summed to the smaller schema, and how many of its cells are summed to one."""
    kept = tuple(factor for factor in table.factors if schema.names[schema.axis_of(factor)] in smaller.names)
    return make_table(smaller, kept).name, table.size // prod(schema.size_of(factor) for factor in kept)
