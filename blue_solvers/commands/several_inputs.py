"""What is said of several inputs that are estimated together: their names, what is the same, who is counted."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blue_solvers.commands.arguments import flags_of
from blue_solvers.commands.screen import say

if TYPE_CHECKING:
    from constraint_builders import Problem, Schema
    from constraint_builders.arrays import Float
    from constraint_builders.description.common_schema import CountedParts

MARKS = ("total", "suppressed")
SEVERAL = flags_of("several")


def marks_of(args: argparse.Namespace, names: Sequence[str]) -> list[dict[str, list[Any] | None]]:
    """What stands for totals and what was not published, and columns, of every input; None where nothing is said."""
    said: dict[str, dict[str, list[Any]]] = {name: {} for name in names}
    marks = [(option, text, ()) for option in MARKS for text in getattr(args, option) or ()]
    for option, text, role in [*marks, *(("columns", column, (role,)) for column, role in args.columns or ())]:
        name, colon, mark = text.partition(":")
        if not (name and colon):
            what = "a column of it, moe=moe_90" if role else "a mark of it, T"
            raise ValueError(f"--{option} must be an input and {what}, {names[0]}:{what.split()[-1]}: got {text!r}")
        if name not in said:
            raise ValueError(f"--{option} names input {name!r}: there are {', '.join(map(repr, names))}")
        said[name].setdefault(option, []).append((mark, *role) if role else mark)
    return [{option: own.get(option) for option in (*MARKS, "columns")} for own in said.values()]


def parts_of(args: argparse.Namespace, names: Sequence[str]) -> CountedParts:
    """Which inputs count some people alone."""
    from constraint_builders.description.common_schema import CountedParts

    found: dict[str, dict[str, dict[str, list[str]]]] = {"only": {}, "beside": {}}
    for option, own in found.items():
        for name, factor, labels in getattr(args, option) or ():
            if name not in names:
                raise ValueError(f"--{option} names input {name!r}: there are {', '.join(map(repr, names))}")
            if factor in own.setdefault(name, {}):
                raise ValueError(f"--{option} says {factor!r} of {name!r} twice: give its labels with | between them")
            own[name][factor] = labels
    if not found["only"]:
        for option in ("beside", "own"):
            if getattr(args, option):
                raise ValueError(f"--{option} is of inputs that count some people alone: give --only too")
    return CountedParts(found["only"], found["beside"], tuple(args.own or ()))


def names_of(args: argparse.Namespace, own: list[str]) -> list[str]:
    """Names of the inputs, all different."""
    names = own if args.names is None else args.names
    if len(names) != len(args.inputs):
        raise ValueError(f"--names has {len(names)} names for {len(args.inputs)} inputs: give one for each")
    name, times = Counter(names).most_common(1)[0]
    if times > 1 or not all(names):
        raise ValueError(f"{times} inputs are called {name!r}: tell them apart by --names, such as PL94,DHC")
    return names


def for_each(given: Sequence[str] | None, inputs: Sequence[str], option: str) -> Sequence[str | None]:
    """What an option says of every input in turn, None of each where it is not given."""
    if given is None:
        return [None] * len(inputs)
    if len(given) != len(inputs):
        many = f"{len(inputs)} inputs: give it for each in turn" if len(inputs) > 1 else "one input"
        raise ValueError(f"{option} is given {len(given)} times for {many}")
    return given


def print_copied(inputs: Mapping[str, tuple[Problem, Float]]) -> tuple[str, ...]:
    """Say which inputs, problems with y, (n,), are copies of others."""
    from constraint_builders.files.doubts import copied_inputs

    found = copied_inputs({name: (own.observed, y, own.variances) for name, (own, y) in inputs.items()})
    for line in found:
        say(f"doubtful   {line}")
    return found


def print_matches(parts: CountedParts, schemas: Mapping[str, Schema], recodes: Mapping[str, str]) -> None:
    """Say which variables of the inputs are taken for the same."""
    from constraint_builders.description.common_schema import require_known_factors

    require_known_factors(recodes, schemas)
    common = parts.common(schemas, recodes)
    for name, own in schemas.items():
        say(f"matched    {name}: {', '.join(common.matches(name, own))}")
