"""``blue-solvers joint``: releases or tables of the same places that were measured apart, estimated together."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from blue_solvers import blue
from blue_solvers.commands.common import (
    SubParsers,
    add_digits_argument,
    add_solving_arguments,
    announce,
    coverage,
    listed_names,
    new_parser,
    plural,
    report,
    write_rounded,
)
from blue_solvers.commands.estimate_release import print_stored, report_rows, settings_of
from blue_solvers.commands.fit_line import FitReport, fit_report
from blue_solvers.commands.kinds import is_release, what_is
from blue_solvers.commands.progress import LevelBar, progress
from blue_solvers.commands.quiet import reading
from blue_solvers.commands.read_and_written import ReadPath, WrittenPath, require_outputs, settings_path
from blue_solvers.commands.screen import say
from blue_solvers.commands.strict import refuse_doubt
from blue_solvers.commands.table_input import once, read_table
from blue_solvers.goodness import NOT_TESTED, doubt_of
from constraint_builders.files.doubts import copied_inputs
from constraint_builders.files.reading_report import doubtful

if TYPE_CHECKING:
    from constraint_builders import Problem, Schema
    from constraint_builders.arrays import Float
    from constraint_builders.description.common_schema import CountedParts
    from constraint_builders.geography.joined_releases import JoinedReleases

LEVEL = 0.95
SHIPPED = {"hhgq": "hhgq8lev", "votingage": "votingage"}  # of redistricting persons, in the schema of DHC persons
OF_FOLDERS = ("settings", "within", "variables", "at")
MARKS = ("total", "suppressed")
OF_TABLES = ("schema", *MARKS, "level", "digits")


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "joint",
        "blue-solvers joint US_Person_PL_PROD US_DHCP_PROD --settings pl94_us_persons --settings dhc_us_persons "
        "--variables sex,age,hispanic,cenrace --within 044 --desired 'sex * age_40_groups' --out both\n"
        "  blue-solvers table both P12 --geoid 44007000101\n"
        "  blue-solvers joint first.csv second.csv --schema first.toml --schema second.toml --out both.csv\n"
        "  blue-solvers joint persons.csv units.csv --schema persons.toml --schema units.toml "
        "--only 'units:relationship=householder' --beside units:h1=vacant --out both.csv",
    )
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        type=ReadPath,
        nargs="+",
        help="two or more folders of noisy measurement files, or two or more files of noisy tables, as estimate takes "
        "them; the schema of one refines those of all others, and they are over the same lowest places, which are "
        "matched by GEOID or by name; what lies above these may differ",
    )
    parser.add_argument(
        "--names",
        metavar="NAMES",
        type=listed_names,
        help="what the inputs are called, with commas; default: the names of the files and folders",
    )
    parser.add_argument(
        "--same",
        metavar="VARIABLE=RECODE",
        action="append",
        default=[],
        type=_pair,
        help="that a variable of one input is a variable or recode of the finest schema, which has it by another name "
        "or with other labels, levels in the same order; may be repeated; known of redistricting and DHC persons; by "
        "default those of the same name and labels are the same",
    )
    parser.add_argument(
        "--only",
        metavar="NAME:FACTOR=LABELS",
        action="append",
        default=[],
        type=_part,
        help="that an input counts these people alone: households:relgq=0|1 where households are counted by their "
        "householders, so that both inputs have as many at every place; may be repeated, of factors of one variable "
        "of the finest schema, which is the first of its variables",
    )
    parser.add_argument(
        "--beside",
        metavar="NAME:FACTOR=LABELS",
        action="append",
        default=[],
        type=_part,
        help="of an input in --only, that these labels of a variable of its own count no people: units:h1=vacant where "
        "vacant units are counted beside occupied ones",
    )
    parser.add_argument(
        "--own",
        metavar="NAMES",
        type=listed_names,
        help="variables of inputs in --only that the finest schema has not, with commas, such as tenure",
    )
    parser.add_argument(
        "--settings",
        action="append",
        type=settings_path,
        help="of a folder, as estimate takes them; given for each folder in turn, or for none: then settings.toml in "
        "each",
    )
    parser.add_argument(
        "--at",
        metavar="NAME",
        help="of folders: the input at whose geolevels tables are stored, in terms of its variables; default: the one "
        "with the finest schema",
    )
    parser.add_argument(
        "--within",
        metavar="GEOCODE",
        action="append",
        help="of folders, as estimate takes it: of a state, whose codes are the same in all products",
    )
    parser.add_argument(
        "--variables",
        metavar="NAMES",
        type=listed_names,
        help="of folders: variables of the finest schema to keep, with commas; of the others those that are recodes of "
        "these",
    )
    parser.add_argument(
        "--schema",
        metavar="FILE",
        action="append",
        type=ReadPath,
        help="of a table, .toml; given for each table in turn, or for none",
    )
    parser.add_argument(
        "--total",
        metavar="NAME:MARK",
        action="append",
        type=_mark,
        help="of a table, a label there that counts everybody, first:T, as estimate takes it; may be repeated",
    )
    parser.add_argument(
        "--suppressed",
        metavar="NAME:MARK",
        action="append",
        type=_mark,
        help="of a table, what stands there for a value that was not published, as estimate takes it; may be repeated",
    )
    parser.add_argument(
        "--desired",
        metavar="TABLE",
        action="append",
        help="a table of the finest schema, or of that of --at, to estimate, may be repeated, or 'all'; by default "
        "those measured, of folders by the input at whose geolevels they are stored",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=WrittenPath,
        required=True,
        help="where the estimates go: from folders a folder for table, compare and query, from tables a table",
    )
    add_solving_arguments(parser)
    parser.add_argument("--level", type=coverage, help=f"coverage of a table's intervals; default: {LEVEL}")
    add_digits_argument(parser)
    parser.set_defaults(run=run)


def _pair(text: str) -> tuple[str, str]:
    name, _, recode = (piece.strip() for piece in text.partition("="))
    if not (name and recode):
        raise argparse.ArgumentTypeError(f"must be a variable and what it is, hhgq=hhgq8lev: got {text}")
    return name, recode


def _mark(text: str) -> tuple[str, str]:
    name, colon, mark = text.partition(":")
    if not (name and colon):
        raise argparse.ArgumentTypeError(f"must be an input and a mark of it, first:T: got {text!r}")
    return name, mark


def _marks(args: argparse.Namespace, names: Sequence[str]) -> list[dict[str, list[str] | None]]:
    """What stands for totals and for what was not published, of every input; None where nothing is said."""
    for option in MARKS:
        unknown = [name for name, _ in getattr(args, option) or () if name not in names]
        if unknown:
            raise ValueError(f"--{option} names input {unknown[0]!r}: there are {', '.join(map(repr, names))}")
    return [
        {option: [mark for own, mark in getattr(args, option) or () if own == name] or None for option in MARKS}
        for name in names
    ]


def _part(text: str) -> tuple[str, str, list[str]]:
    name, _, rest = text.partition(":")
    factor, _, labels = (piece.strip() for piece in rest.partition("="))
    if not (name.strip() and factor and labels):
        raise argparse.ArgumentTypeError(
            f"must be an input, a factor and its labels, households:relgq=0|1: got {text!r}"
        )
    return name.strip(), factor, [label.strip() for label in labels.split("|")]


def _parts(args: argparse.Namespace, names: Sequence[str]) -> CountedParts:
    """Which inputs count some people alone."""
    from constraint_builders.description.common_schema import CountedParts

    found: dict[str, dict[str, dict[str, list[str]]]] = {"only": {}, "beside": {}}
    for option, own in found.items():
        for name, factor, labels in getattr(args, option):
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


def run(args: argparse.Namespace) -> None:
    """Estimate what was asked for and write it."""
    for path in args.inputs:
        if not Path(path).exists():
            raise FileNotFoundError(f"{path}: No such file or directory")
    if len(args.inputs) < 2:
        raise ValueError(f"joint estimates are of two inputs or more: of {args.inputs[0]} alone take estimate")
    folders = [Path(path).is_dir() for path in args.inputs]
    if all(folders):
        return _run_on_folders(args)
    if any(folders):
        one, other = args.inputs[folders.index(True)], args.inputs[folders.index(False)]
        raise ValueError(f"{one} is a folder and {other} a file: give folders of measurement files, or files of tables")
    return _run_on_tables(args)


def _run_on_folders(args: argparse.Namespace) -> None:
    from blue_solvers.results.proof import StoredProof
    from blue_solvers.results.store import write_joint_result
    from blue_solvers.verification import fit_of_geography
    from constraint_builders.files.new_files import require_new

    _refuse(args, OF_TABLES, "is for files of tables: the inputs are folders")
    for path in args.inputs:
        if not is_release(Path(path)):
            raise ValueError(f"{path} {what_is(path)}")
    require_outputs(args, require_new)
    joined = _read_folders(args)
    problem = joined.problem
    _print_matches(joined.parts, {name: own.settings.schema for name, own in joined.releases.items()}, joined.recodes)
    announce(problem, args.solver)
    progress(f"preparing {args.solver}")
    P = blue(problem, args.solver)
    progress(f"estimating {plural(problem.desired.size, 'cell')}")
    est = P.estimate(joined.y, certify=True)
    progress("computing exact variances")
    std_errors, fit = est.std_errors, None
    if args.fit and est.observed is not None:
        progress("testing the fit")
        fit = fit_of_geography(est.problem, est.y, est.observed, P.over_observed.variances_by_table().of)
    proof = StoredProof(est.proof, fit)
    with LevelBar("writing") as bar:
        write_joint_result(args.out, P, est.values, std_errors, joined, bar, proof)
    print_stored(est, proof, problem.domain.schema, args.out)
    for name, release in joined.releases.items():
        say(f"product    {name}{', at whose geolevels tables are stored' if name == joined.stored else ''}")
        report_rows(release)
    copied = _copied({name: (own.problem, own.y) for name, own in joined.releases.items()})
    noticed = doubtful([remark for own in joined.releases.values() for remark in own.read.remarks])
    refuse_doubt(args, doubt_of(proof.fit, noticed), *copied)


def _read_folders(args: argparse.Namespace) -> JoinedReleases:
    from constraint_builders.geography.joined_releases import read_joined_releases

    named = _for_each(args.settings, args.inputs, "--settings")
    names = _called(args, [Path(path).resolve().name for path in args.inputs])
    settings = {name: settings_of(path, own) for name, path, own in zip(names, args.inputs, named, strict=True)}
    known = {factor for own in settings.values() for factor in own.schema.factor_names}
    shipped = {name: own for name, own in SHIPPED.items() if {"relgq", name, own} <= known}
    parts, same = _parts(args, names), once(args.same, "--same")
    if args.at is not None and args.at not in names:
        raise ValueError(f"--at names input {args.at!r}: there are {', '.join(map(repr, names))}")
    with reading(), LevelBar("reading") as bar:
        return read_joined_releases(
            dict(zip(names, args.inputs, strict=True)),
            settings,
            recodes={**shipped, **same},
            desired="all" if args.desired == ["all"] else args.desired,
            within=args.within,
            variables=args.variables,
            parts=parts,
            at=args.at,
            progress=bar,
        )


def _run_on_tables(args: argparse.Namespace) -> None:
    from constraint_builders import joint
    from constraint_builders.files import estimates_frame
    from constraint_builders.files.long_table import with_groups
    from constraint_builders.joint_problem import joint_parts

    _refuse(args, OF_FOLDERS, "is for folders of measurement files: the inputs are files of tables")
    require_outputs(args)
    schemas = _for_each(args.schema, args.inputs, "--schema")
    names = _called(args, [Path(path).stem for path in args.inputs])
    said = zip(args.inputs, schemas, _marks(args, names), strict=True)
    read = [read_table(path, schema, marks) for path, schema, marks in said]
    problems, parts, apart = [problem for problem, _ in read], _parts(args, names), None
    same = once(args.same, "--same")
    desired = "all" if args.desired == ["all"] else args.desired
    _print_matches(parts, {name: own.domain.schema for name, own in zip(names, problems, strict=True)}, same)
    if not parts.only:
        problem = joint(*problems, recodes=same, names=names, desired=desired, undetermined="nan")
    elif desired == "all":
        raise ValueError("--desired all is not told by name where inputs count some people alone: name the tables")
    else:
        problem, apart = joint_parts(problems, names, parts, recodes=same, desired=args.desired)
    y = np.concatenate([own for _, own in read])
    problem.check_vector(y)
    announce(problem, args.solver)
    progress(f"preparing {args.solver}")
    est = blue(problem, args.solver).estimate(y, certify=True)
    progress("computing exact variances")
    level = LEVEL if args.level is None else args.level
    frame = estimates_frame(problem, est.values, est.std_errors, *est.interval(level))
    if apart is not None:
        frame = with_groups(frame, problem, apart)
    fit = fit_report(est) if args.fit else FitReport("", NOT_TESTED)
    write_rounded(est.with_measurements(frame), args.out, args.digits)
    report(est, args.out, est.tied)
    if fit.line:
        say(f"fit        {fit.line}")
    copied = _copied(dict(zip(names, read, strict=True)))
    refuse_doubt(args, fit.doubt, *(note for own in problems for note in own.understood.notes), *copied)


def _copied(inputs: Mapping[str, tuple[Problem, Float]]) -> tuple[str, ...]:
    """Say which inputs are copies of others."""
    found = copied_inputs({name: (own.observed, y, own.variances) for name, (own, y) in inputs.items()})
    for line in found:
        say(f"doubtful   {line}")
    return found


def _print_matches(parts: CountedParts, schemas: Mapping[str, Schema], recodes: Mapping[str, str]) -> None:
    """Say which variables of the inputs are taken for the same."""
    from constraint_builders.description.common_schema import require_known_factors

    require_known_factors(recodes, schemas)
    common = parts.common(schemas, recodes)
    for name, own in schemas.items():
        say(f"matched    {name}: {', '.join(common.matches(name, own))}")


def _refuse(args: argparse.Namespace, options: Sequence[str], why: str) -> None:
    for option in options:
        if getattr(args, option) is not None:
            raise ValueError(f"--{option} {why}")


def _for_each(given: Sequence[str] | None, inputs: Sequence[str], option: str) -> Sequence[str | None]:
    """What an option says of every input in turn, None of each where it is not given."""
    if given is None:
        return [None] * len(inputs)
    if len(given) != len(inputs):
        raise ValueError(f"{option} is given {len(given)} times for {len(inputs)} inputs: give it for each in turn")
    return given


def _called(args: argparse.Namespace, own: list[str]) -> list[str]:
    """Names of the inputs, all different."""
    names = own if args.names is None else args.names
    if len(names) != len(args.inputs):
        raise ValueError(f"--names has {len(names)} names for {len(args.inputs)} inputs: give one for each")
    name, times = Counter(names).most_common(1)[0]
    if times > 1 or not all(names):
        raise ValueError(f"{times} inputs are called {name!r}: tell them apart by --names, such as PL94,DHC")
    return names
