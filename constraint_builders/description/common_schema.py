"""A schema that refines others, of products of which some may count some people alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from constraint_builders.description.common_leaves import CommonLeaves, LeavesByGroup
from constraint_builders.description.schema import Recode, Schema, Variable
from constraint_builders.description.table import Table

Parts: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]  # labels of factors, by product


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

    def matches(self, name: str, own: Schema) -> list[str]:
        """What every variable of one of the others is, in words; level by level where labels are others."""
        said = []
        for variable in own.variables:
            factor = self.factors[name][variable.name]
            whole, labels = self.schema.names[self.schema.axis_of(factor)], self.schema.labels_of(factor)
            pairs = zip(variable.levels, labels, strict=True) if labels != variable.levels else ()
            notes = [f"of {whole}"] * (whole != factor) + [f"{level!r} is {label!r}" for level, label in pairs]
            match = variable.name if factor == variable.name else f"{variable.name} is {factor}"
            said.append(match + (f" ({', '.join(notes)})" if notes else ""))
        return said

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
        For factors of the others which of its factors they are; by default those of the same name and labels.

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
    """The factor of a finer schema that a variable is: the one that is said, or that of its name and labels."""
    name, levels, given = variable.name, variable.levels, recodes.get(variable.name)
    if given is None and name not in finer.factor_names:
        raise _not_there(variable, "none of that name")
    factor = name if given is None else given
    labels = finer.labels_of(factor)
    if len(labels) != len(levels):
        called = "one of that name" if factor == name else repr(factor)
        raise _not_there(variable, f"{called} with {len(labels)}")
    if labels != levels and set(labels) == set(levels):
        raise ValueError(
            f"levels of variable {name!r} and of {factor!r} of the finer schema come in different orders: give both "
            "the same"
        )
    if labels != levels and given is None:
        place = next(i for i, (own, other) in enumerate(zip(levels, labels, strict=True)) if own != other)
        raise ValueError(
            f"level {place} of variable {name!r} is {levels[place]!r}, and in the finer schema {labels[place]!r}: if "
            f"they are the same levels in the same order, say so, recodes={{{name!r}: {name!r}}}"
        )
    return factor


def _not_there(variable: Variable, has: str) -> ValueError:
    return ValueError(
        f"variable {variable.name!r} has {variable.size} levels, and the finer schema has {has}: add it there as a "
        f"recode, or say which factor it is, recodes={{{variable.name!r}: ...}}"
    )


def require_known_factors(
    recodes: Mapping[str, str], schemas: Mapping[str, Schema], finer: Schema | None = None
) -> None:
    """Refuse factors, of which is said what they are, that no schema has, and variables that are said to be none.

    Raises
    ------
    ValueError
        Which names the first.
    """
    known = dict.fromkeys(factor for schema in schemas.values() for factor in schema.factor_names)
    variables = {name for schema in schemas.values() for name in schema.names}
    renamed = {factor for name, factor in recodes.items() if name not in variables}
    for name, factor in recodes.items():
        if name not in known:
            said = f"recodes= says what {name!r} is, which no problem has"
        elif name in variables and factor not in {*known, *renamed, *(finer.factor_names if finer else ())}:
            said = f"recodes= says that {name!r} is {factor!r}, which no problem has"
        else:
            continue
        raise ValueError(f"{said}: there are {', '.join(map(repr, known))}")


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
    return Schema(variables).with_recodes_of(finer)


@dataclass(frozen=True)
class CountedParts:
    """What is said of products that count some people alone.

    Attributes
    ----------
    only, beside : mapping of str to mapping of str to sequence of str
        As `joint` takes them.
    own : tuple of str
        Variables of these products that no other has; those of `beside` are among them without being named.
    """

    only: Parts = field(default_factory=dict)
    beside: Parts = field(default_factory=dict)
    own: tuple[str, ...] = ()

    def common(self, schemas: Mapping[str, Schema], recodes: Mapping[str, str]) -> CommonSchema:
        """The schema that refines those of all products, by name, with variables that some have of their own.

        Raises
        ------
        ValueError
            If there is no product of a name, or none that counts all people; or as `common_schema`.
        """
        self.require(schemas)
        if not self.only:
            return common_schema(schemas, None, recodes)
        whole = {name: schema for name, schema in schemas.items() if name not in self.only}
        if not whole:
            raise ValueError("only= names all products: leave the one out that counts everybody")
        finer = common_schema(whole, None, recodes).schema
        parts = {name: schemas[name] for name in self.only}
        own = self.own_variables(schemas)
        try:
            return common_schema(schemas, with_own_variables(finer, parts, own), recodes)
        except ValueError as error:
            raise ValueError(f"{error}; or name it as its own, own=, where no other product has it") from None

    def require(self, names: Collection[str]) -> None:
        """Raise `ValueError` if other problems than some are named, or counts beside those of none of them."""
        for option, named in (("only=", self.only), ("beside=", self.beside)):
            unknown = [name for name in named if name not in names]
            if unknown:
                raise ValueError(f"{option} names problem {unknown[0]!r}: there are {', '.join(map(repr, names))}")
        if not self.only and (self.beside or self.own):
            said = "beside=" if self.beside else "own="
            raise ValueError(f"{said} is of problems in only=, which say whom they count: give only= too")

    def own_variables(self, schemas: Mapping[str, Schema]) -> tuple[str, ...]:
        """The variables that only products that count a part have, those of counts beside first."""
        beside = [
            schemas[name].names[schemas[name].axis_of(factor)] for name, said in self.beside.items() for factor in said
        ]
        return tuple(dict.fromkeys([*beside, *self.own]))

    def apart(self, schema: Schema, leaves: CommonLeaves) -> LeavesByGroup | None:
        """Leaves that tell apart what these products count; None where every product counts everybody."""
        return LeavesByGroup(schema, leaves, self.only, self.beside) if self.only else None

    def variables(self, schema: Schema) -> tuple[str, ...]:
        """The variables of a schema whose levels the leaves tell apart."""
        named = [factor for parts in (self.only, self.beside) for said in parts.values() for factor in said]
        return tuple(dict.fromkeys(schema.names[schema.axis_of(factor)] for factor in named))

    def to_json(self) -> dict[str, Any]:
        """For the description of a stored result."""
        parts = {
            option: {name: {factor: list(labels) for factor, labels in said.items()} for name, said in own.items()}
            for option, own in (("only", self.only), ("beside", self.beside))
        }
        return {**parts, "own": list(self.own)}
