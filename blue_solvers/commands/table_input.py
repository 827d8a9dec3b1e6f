"""Noisy tables from a file, long or wide: the arguments that say what it does not, and the schema that was inferred.

Of several inputs that are estimated together their names, what is the same, who is counted.
"""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from blue_solvers.commands.arguments import flags_of, require_file
from blue_solvers.commands.common import desired_of
from blue_solvers.commands.screen import progress, reading, say

if TYPE_CHECKING:
    from constraint_builders import Problem, Schema
    from constraint_builders.arrays import Float
    from constraint_builders.description.common_schema import CountedParts
    from constraint_builders.files.survey_frame import Said
    from noise_mechanisms.laws import Law

AS_SAID = "names_sep", "cells", "suppressed", "exact", "total", "areas", "plus_minus", "sheet", "skip_rows"
OF_TABLES = (*flags_of("said"), "--write-schema")
OF_ALL = "sdmx", "sum", "plus_minus", "rounded", "cell_key", "variance", "areas"  # tables that are estimated together


def _law(args: argparse.Namespace) -> Law | None:
    """The noise of values, how they were rounded or perturbed; None where nothing is said of that."""
    from noise_mechanisms.laws import CellKey, Gaussian, RandomRounding, Rounding

    if args.cell_key is not None:
        return CellKey.read(args.cell_key)
    if args.variance is not None:
        return Gaussian(args.variance)
    if args.rounded is None:
        return None
    nearest, base = args.rounded
    return Rounding(base) if nearest else RandomRounding(base)


def read_input(args: argparse.Namespace) -> tuple[Problem, Float]:
    """Read the problem that the options of an input describe, and show the schema if it had to be inferred."""
    from constraint_builders.files import format_schema, read_schema_file
    from constraint_builders.files.survey_frame import tables_as_said

    desired = desired_of(args)
    undetermined: Literal["error", "nan"] = args.undetermined or "nan"
    require_file(args.input, "a table")
    said = said_of(args)
    path: str | None = args.schema
    if path is not None and args.write_schema:
        raise ValueError("--write-schema writes the schema that was inferred: leave it out where --schema is given")
    progress(f"reading {args.input}")
    with reading():
        file = None if path is None else read_schema_file(path)
        table = tables_as_said(args.input, file, said, desired=desired, undetermined=undetermined)
    if path is None:
        wrong = "" if args.acs else "; where it is wrong, correct it in a file and pass that as --schema"
        say(f"Schema inferred from {args.input}{wrong}:", "")
        say(*textwrap.indent(format_schema(table.problem.domain.schema), "    ").split("\n"))
    for own in table.ignored:
        say(f"ignored    {own}")
    for name in table.combined:
        say(f"combined   table {name!r} of several sources")
    understood = table.problem.understood
    if understood.totals:
        say(f"totals     {', '.join(understood.totals)}")
    if understood.places:
        say(f"{'spine' if table.problem.areas is None else 'areas':<10} {understood.places}")
    for doubt in understood.notes:
        say(f"doubt      {doubt}")
    return table.problem, table.y


def read_table(
    path: str, schema: str | None, args: argparse.Namespace, marks: Mapping[str, list[Any] | None]
) -> tuple[Problem, Float]:
    """Read one of several tables, of which nothing is said but a schema and `marks`; what it measured is estimated.

    Of all of them `args` say how they were rounded, and the areas.
    """
    of_all = {option: getattr(args, option) for option in OF_ALL}
    own = {**dict.fromkeys(vars(args)), **of_all, **marks, "input": path, "schema": schema, "undetermined": "nan"}
    return read_input(argparse.Namespace(**own))


def said_of(args: argparse.Namespace) -> Said | None:
    """What the arguments say of the table; None where they say nothing."""
    from constraint_builders.files.survey_frame import Said

    given = {
        "columns": None if args.columns is None else once(args.columns, "--columns"),
        "names_to": args.names_to[0] if args.names_to and len(args.names_to) == 1 else args.names_to,
        "law": _law(args),
        "style": _style(args),
        "sums": args.sum,
        **{name: getattr(args, name) for name in AS_SAID},
    }
    given = {name: value for name, value in given.items() if value is not None}
    if args.names_sep is not None and args.names_to is None:
        raise ValueError("--names-sep stands between levels in the names of cells: give --names-to too")
    return Said(**given) if given else None


def _style(args: argparse.Namespace) -> Literal["acs", "sdmx"] | None:
    if args.acs and args.sdmx:
        raise ValueError("--acs and --sdmx are two styles: a table has one")
    return "acs" if args.acs else "sdmx" if args.sdmx else None


def once(pairs: list[tuple[str, str]], option: str) -> dict[str, str]:
    """What an option that may be repeated says of each name; `ValueError` where it says two things of one."""
    said = dict(pairs)
    if len(said) < len(pairs):
        twice = next(name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1)
        raise ValueError(f"{option} says twice what {twice!r} is")
    return said


def write_schema(args: argparse.Namespace, problem: Problem) -> None:
    """Write the schema that was inferred, if that was asked for."""
    from constraint_builders.files import write_schema_file

    if args.write_schema:
        write_schema_file(args.write_schema, problem.domain.schema)
        say(f"written    {args.write_schema}, to be corrected and given as --schema")


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
        require_input(option, name, names)
        said[name].setdefault(option, []).append((mark, *role) if role else mark)
    return [{option: own.get(option) for option in (*MARKS, "columns")} for own in said.values()]


def require_input(option: str, name: str, names: Sequence[str]) -> None:
    """Refuse the name of an input that there is not."""
    if name not in names:
        raise ValueError(f"--{option} names input {name!r}: there are {', '.join(map(repr, names))}")


def parts_of(args: argparse.Namespace, names: Sequence[str]) -> CountedParts:
    """Which inputs count some people alone."""
    from constraint_builders.description.common_schema import CountedParts

    found: dict[str, dict[str, dict[str, list[str]]]] = {"only": {}, "beside": {}}
    for option, own in found.items():
        for name, factor, labels in getattr(args, option) or ():
            require_input(option, name, names)
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
