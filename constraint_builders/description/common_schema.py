"""A schema that refines others: each of their variables is one of its variables or recodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from constraint_builders.description.schema import Recode, Schema, Variable
from constraint_builders.description.table import Table


@dataclass(frozen=True)
class CommonSchema:
    """A schema that refines several others.

    Attributes
    ----------
    schema : Schema
        With the recodes of the others.
    factors : mapping of str to mapping of str to str
        For each of the others what its variables and recodes are called in it.
    """

    schema: Schema
    factors: Mapping[str, Mapping[str, str]]

    def table(self, name: str, table: Table) -> str:
        """What a table of one of the others is called, its cells in the same order."""
        return " * ".join(self.factors[name][factor] for factor in table.factors) or "total"


def common_schema(schemas: Mapping[str, Schema], finer: Schema | None, recodes: Mapping[str, str]) -> CommonSchema:
    """A schema with all recodes of others that it refines.

    Parameters
    ----------
    schemas : mapping of str to Schema
        The others, by name.
    finer : Schema or None
        The schema, by default that of the others that refines the rest.
    recodes : mapping of str to str
        For factors of the others which of its factors they are; by default those of the same name, or else labels.

    Raises
    ------
    ValueError
        If it does not refine one of them, which is named.
    """
    if finer is not None:
        return _refined(finer, schemas, recodes)
    candidates = sorted(dict.fromkeys(schemas.values()), key=lambda own: (prod(own.shape), len(own.recodes)))
    refusals = []
    for candidate in reversed(candidates):
        try:
            return _refined(candidate, schemas, recodes)
        except ValueError as error:
            refusals.append(error)
    raise ValueError(f"no schema refines the others; of the one with most cells: {refusals[0]}; or give schema=")


def _refined(finer: Schema, schemas: Mapping[str, Schema], recodes: Mapping[str, str]) -> CommonSchema:
    found = {}
    for name, own in schemas.items():
        try:
            finer, found[name] = _with_factors(finer, own, recodes)
        except ValueError as error:
            raise ValueError(f"problem {name!r}: {error}") from None
    return CommonSchema(finer, found)


def _with_factors(finer: Schema, coarser: Schema, recodes: Mapping[str, str]) -> tuple[Schema, dict[str, str]]:
    """A schema with the recodes of a coarser one, and what the latter's factors are called in it."""
    names = {variable.name: _factor(finer, variable, recodes) for variable in coarser.variables}
    axes: dict[int, str] = {}
    for variable, factor in names.items():
        axis = finer.axis_of(factor)
        if axis in axes:
            raise ValueError(
                f"variables {axes[axis]!r} and {variable!r} are both recodes of {finer.names[axis]!r}: only one can be"
            )
        axes[axis] = variable
    for recode in coarser.recodes:
        whole = names[coarser.names[recode.axis]]
        groups = tuple(recode.groups[cell] for cell in finer.groups_of(whole))
        called = recodes.get(recode.name, recode.name)
        if called not in finer.factor_names:
            finer = finer.with_recode(Recode(called, finer.axis_of(whole), groups, recode.labels))
        elif (finer.axis_of(called), finer.groups_of(called)) != (finer.axis_of(whole), groups):
            raise ValueError(
                f"its recode {recode.name!r} groups other levels than {called!r} of the finer schema, or in another "
                "order: rename one of them, or say by recodes= which it is"
            )
        names[recode.name] = called
    return finer, names


def _factor(finer: Schema, variable: Variable, recodes: Mapping[str, str]) -> str:
    """The factor of a finer schema that a variable is."""
    given = recodes.get(variable.name)
    if given is not None:
        _refuse_other_order(finer, variable, given)
        return given
    if variable.name in finer.factor_names and finer.size_of(variable.name) == variable.size:
        _refuse_other_labels(finer, variable)
        return variable.name
    alike = [factor for factor in finer.factor_names if finer.labels_of(factor) == variable.levels]
    if len(alike) == 1 and not _is_numbered(variable.levels):
        return alike[0]
    has = "none of that name"
    if variable.name in finer.factor_names:
        has = f"one of that name with {finer.size_of(variable.name)}"
    raise ValueError(
        f"variable {variable.name!r} has {variable.size} levels, and the finer schema has {has}: add it there as a "
        f"recode, or say which recode it is, recodes={{{variable.name!r}: ...}}"
    )


def _refuse_other_order(finer: Schema, variable: Variable, factor: str) -> None:
    """Of a factor that a variable is said to be: its labels may be others, in the same order."""
    labels = finer.labels_of(factor)
    if len(labels) != variable.size:
        raise ValueError(f"variable {variable.name!r} has {variable.size} levels, and {factor!r} has {len(labels)}")
    if labels != variable.levels and set(labels) == set(variable.levels):
        raise ValueError(
            f"levels of variable {variable.name!r} and of {factor!r} of the finer schema come in different orders: "
            "give both the same"
        )


def _refuse_other_labels(finer: Schema, variable: Variable) -> None:
    """Of the factor of the same name: labels agree, or one has only numbers."""
    _refuse_other_order(finer, variable, variable.name)
    labels = finer.labels_of(variable.name)
    if labels != variable.levels and not _is_numbered(labels) and not _is_numbered(variable.levels):
        place = next(i for i, (own, other) in enumerate(zip(variable.levels, labels, strict=True)) if own != other)
        raise ValueError(
            f"level {place} of variable {variable.name!r} is {variable.levels[place]!r}, and in the finer schema "
            f"{labels[place]!r}: if they are the same levels in the same order, say so, "
            f"recodes={{{variable.name!r}: {variable.name!r}}}"
        )


def _is_numbered(labels: tuple[str, ...]) -> bool:
    """Whether levels were given as a number."""
    return labels == tuple(map(str, range(len(labels))))


def with_own_variables(finer: Schema, schemas: Mapping[str, Schema], own: Sequence[str]) -> Schema:
    """A schema and some variables more, which others have and it has not; recodes of these come with `common_schema`.

    Parameters
    ----------
    finer : Schema
    schemas : mapping of str to Schema
        The others, by name.
    own : sequence of str
        The variables.

    Raises
    ------
    ValueError
        If it has a variable or recode of that name, or none of the others has one.
    """
    variables = {name: finer.labels_of(name) for name in finer.names}
    for name in own:
        if name in finer.factor_names:
            raise ValueError(f"{name!r} is in the finest schema already: it is not a product's own variable")
        having = next((schema for schema in schemas.values() if name in schema.names), None)
        if having is None:
            there = ", ".join(repr(variable) for schema in schemas.values() for variable in schema.names)
            raise ValueError(f"no product in only= has a variable {name!r} of its own: there are {there}")
        variables[name] = having.labels_of(name)
    found = Schema(variables)
    for recode in finer.recodes:
        found = found.with_recode(recode)
    return found
