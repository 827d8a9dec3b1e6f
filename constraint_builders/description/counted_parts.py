"""Which products count some people alone, and what else these count: their side of a joint estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from constraint_builders.description.common_leaves import CommonLeaves
from constraint_builders.description.common_schema import CommonSchema, common_schema, with_own_variables
from constraint_builders.description.leaves_by_group import LeavesByGroup
from constraint_builders.description.schema import Schema

Parts: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]  # labels of factors, by product


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
        if not self.only:
            if self.beside or self.own:
                said = "beside=" if self.beside else "own="
                raise ValueError(f"{said} is of products in only=, which say whom they count: give only= too")
            return common_schema(schemas, None, recodes)
        for option, named in (("only=", self.only), ("beside=", self.beside)):
            unknown = [name for name in named if name not in schemas]
            if unknown:
                raise ValueError(f"{option} names product {unknown[0]!r}: there are {', '.join(map(repr, schemas))}")
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
        """As `from_json` reads it."""
        parts = {
            option: {name: {factor: list(labels) for factor, labels in said.items()} for name, said in own.items()}
            for option, own in (("only", self.only), ("beside", self.beside))
        }
        return {**parts, "own": list(self.own)}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> CountedParts:
        """Of what `to_json` gave, or nothing."""
        return cls(said.get("only", {}), said.get("beside", {}), tuple(said.get("own", ())))
