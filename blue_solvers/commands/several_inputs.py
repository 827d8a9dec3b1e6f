"""What is said of several inputs that are estimated together: their names, what is the same, who is counted."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blue_solvers.commands.common import listed_names
from blue_solvers.commands.screen import say

if TYPE_CHECKING:
    from constraint_builders import Problem, Schema
    from constraint_builders.arrays import Float
    from constraint_builders.description.common_schema import CountedParts

MARKS = ("total", "suppressed")
SEVERAL = ("--names", "--same", "--only", "--beside", "--own", "--at")


def add_several_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is said of several inputs."""
    several = parser.add_argument_group("of several inputs, which are estimated together")
    several.add_argument(
        "--names",
        metavar="NAMES",
        type=listed_names,
        help="what the inputs are called, with commas; default: the names of the files and folders",
    )
    several.add_argument(
        "--same",
        metavar="VARIABLE=RECODE",
        action="append",
        type=_pair,
        help="that a variable of one input is a variable or recode of the finest schema, which has it by another name "
        "or with other labels, levels in the same order; may be repeated; known of redistricting and DHC persons; by "
        "default those of the same name and labels are the same",
    )
    several.add_argument(
        "--only",
        metavar="NAME:FACTOR=LABELS",
        action="append",
        type=_part,
        help="that an input counts these people alone: households:relgq=0|1 where households are counted by their "
        "householders, so that both inputs have as many at every place; may be repeated, of factors of one variable "
        "of the finest schema, which is the first of its variables",
    )
    several.add_argument(
        "--beside",
        metavar="NAME:FACTOR=LABELS",
        action="append",
        type=_part,
        help="of an input in --only, that these labels of a variable of its own count no people: units:h1=vacant where "
        "vacant units are counted beside occupied ones",
    )
    several.add_argument(
        "--own",
        metavar="NAMES",
        type=listed_names,
        help="variables of inputs in --only that the finest schema has not, with commas, such as tenure",
    )
    several.add_argument(
        "--at",
        metavar="NAME",
        help="of folders: the input at whose geolevels tables are stored, in terms of its variables; default: the one "
        "with the finest schema",
    )


def _pair(text: str) -> tuple[str, str]:
    name, _, recode = (piece.strip() for piece in text.partition("="))
    if not (name and recode):
        raise argparse.ArgumentTypeError(f"must be a variable and what it is, hhgq=hhgq8lev: got {text}")
    return name, recode


def _part(text: str) -> tuple[str, str, list[str]]:
    name, _, rest = text.partition(":")
    factor, _, labels = (piece.strip() for piece in rest.partition("="))
    if not (name.strip() and factor and labels):
        raise argparse.ArgumentTypeError(
            f"must be an input, a factor and its labels, households:relgq=0|1: got {text!r}"
        )
    return name.strip(), factor, [label.strip() for label in labels.split("|")]


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
