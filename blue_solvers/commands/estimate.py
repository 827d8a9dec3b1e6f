"""``blue-solvers estimate``: noisy tables in, consistent estimates with standard errors out."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from pathlib import Path

from blue_solvers.commands.common import (
    LEVEL,
    SubParsers,
    add_digits_argument,
    add_solving_arguments,
    coverage,
    listed_names,
    new_parser,
    refuse_options,
)
from blue_solvers.commands.read_and_written import ReadPath, WrittenPath, settings_path
from blue_solvers.commands.several_inputs import SEVERAL, add_several_arguments
from blue_solvers.commands.table_input import OF_TABLES, add_input_arguments

FITS = ("nnls", "max", "sequential", "reweighted", "anchored")  # the keys of METHODS, which is loaded where it is used
AMOUNT = re.compile(r"(\d+\.?\d*(?:[eE]\+?\d{1,2})?)\s*([kKMGT]?)(i?)[bB]?", re.ASCII)
PREFIXES = ("", "K", "M", "G", "T")
OF_ONE_FOLDER = ("--totals", "--state-totals", "--memory")
OF_FOLDERS = ("--settings", "--within", "--variables", "--at", *OF_ONE_FOLDER)
OF_ONE_TABLE = (
    "--acs",
    "--names-to",
    "--names-sep",
    "--cells",
    "--exact",
    "--write-schema",
    "--undetermined",
    "--sheet",
    "--skip-rows",
)
READ_OF_FILES = dict.fromkeys(OF_TABLES, "its settings say what its columns are") | {
    "--schema": "its schema is in --settings",
    "--undetermined": "its tables are measured whole or not at all",
}
NOT_OF_FOLDERS = READ_OF_FILES | {
    "--level": "its result keeps standard errors, give --level to query",
    "--plot": "too many cells to draw",
    "--digits": "its result keeps all digits, give --digits to query",
    "--nonnegative": "its result keeps unbiased estimates, of which any places can be asked; fit a long table instead",
}


def add_parser(subparsers: SubParsers, name: str = "estimate") -> None:
    """Declare the subcommand, by its own name or a former one."""
    parser = new_parser(
        subparsers,
        name,
        "blue-solvers estimate noisy.csv --schema schema.toml --out estimates.csv --desired all\n"
        "  blue-solvers estimate first.csv second.csv --schema first.toml --schema second.toml --out both.csv\n"
        "  blue-solvers estimate US_Person_PL_PROD US_DHCP_PROD --settings pl94_us_persons --settings dhc_us_persons "
        "--variables sex,age,hispanic,cenrace --within 044 --desired 'sex * age_40_groups' --out both\n"
        "  blue-solvers estimate persons.csv units.csv --schema persons.toml --schema units.toml "
        "--only 'units:relationship=householder' --beside units:h1=vacant --out both.csv",
    )
    add_read_arguments(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=WrittenPath,
        required=True,
        help="where the estimates go, such as .csv or .parquet; from measurement files a folder, for query",
    )
    add_solving_arguments(parser)
    parser.add_argument(
        "--level",
        type=coverage,
        help=f"confidence level of a long table's intervals; default: {LEVEL}; of a folder query asks",
    )
    add_digits_argument(parser)
    parser.add_argument(
        "--nonnegative",
        metavar="METHOD",
        choices=FITS,
        help=f"also write non-negative counts that microdata can have, beside the unbiased estimates, in a column "
        f"'nonnegative', and print how far they moved: {', '.join(FITS)}",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=WrittenPath,
        help="draw residuals and their quantiles, table by table, .png, .svg or .pdf; needs the extra 'plots'",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="say of a folder also what became of every table, zero and query"
    )
    parser.set_defaults(run=run)


def add_read_arguments(parser: argparse.ArgumentParser, first: str = "") -> None:
    """Declare INPUT, of all kinds that are estimated, and what is said of it; help on it begins with what is first."""
    add_input_arguments(parser, several=True, first=first)
    add_several_arguments(parser)
    parser.add_argument(
        "--settings",
        action="append",
        type=settings_path,
        help="of a folder of measurement files: a production run of 2020, such as pl94_us_persons, dhc_us_housing for "
        "households and units together, or a .toml file; given for each folder in turn, or for none: by default the "
        "folder's settings.toml",
    )
    parser.add_argument(
        "--within",
        metavar="GEOCODE",
        action="append",
        help="read only geounits of the folder whose geocodes begin so, may be repeated",
    )
    parser.add_argument(
        "--totals",
        metavar="FILE",
        type=ReadPath,
        help="totals of geounits of the folder that are known exactly, .csv: columns geocode and total; 044+144 for "
        "two that are all the children of one",
    )
    parser.add_argument(
        "--state-totals",
        metavar="WHICH",
        type=ReadPath,
        help="populations of states that are known exactly, for a folder of persons: 2020 for those of the Census of "
        "2020, or a file, .csv: columns state and total; default: none",
    )
    parser.add_argument(
        "--variables",
        metavar="NAMES",
        type=listed_names,
        help="variables of the folder's schema to keep, with commas: tables are summed over the others when read; of "
        "several folders variables of the finest schema, and of the others those that are recodes of these",
    )
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        type=_bytes,
        help="stream a folder that need not fit in memory, in at most so many bytes beside the program itself, 4e9 or "
        "4GB for instance; killed and run again it resumes",
    )


def _bytes(text: str) -> float:
    """A number of bytes, also in kB, MB, GB, GiB and so on, from an argument."""
    amount = AMOUNT.fullmatch(text.strip())
    count = float(amount[1]) * (1024 if amount[3] else 1000) ** PREFIXES.index(amount[2].upper()) if amount else 0.0
    if not 0 < count < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of bytes, 4e9 for instance: got {text}")
    return count


def run(args: argparse.Namespace) -> None:
    """Estimate what was asked for and write it."""
    folders = are_folders(args, NOT_OF_FOLDERS)
    if folders:
        from blue_solvers.commands.estimate_release import run_on_folders as run_on
    else:
        from blue_solvers.commands.estimate_tables import run_on_tables as run_on
    run_on(args)


def are_folders(args: argparse.Namespace, not_of_folders: Mapping[str, str]) -> bool:
    """Whether the inputs are folders, and not files; options that are for other inputs are refused.

    Parameters
    ----------
    args : Namespace
    not_of_folders : mapping of str to str
        Options that are for files alone, and what is done instead.
    """
    for path in args.inputs:
        if not Path(path).exists():
            raise FileNotFoundError(f"{path}: No such file or directory")
    folders = [path for path in args.inputs if Path(path).is_dir()]
    files = [path for path in args.inputs if path not in folders]
    if folders and files:
        raise ValueError(
            f"{folders[0]} is a folder and {files[0]} a file: give folders of measurement files, or files of tables"
        )
    _refuse_other_options(args, not_of_folders if folders else None)
    return bool(folders)


def _refuse_other_options(args: argparse.Namespace, not_of_folders: Mapping[str, str] | None) -> None:
    """Refuse options that are for other inputs than those that are given; None for files."""
    first, many = args.inputs[0], len(args.inputs) > 1
    if not many:
        refuse_options(args, SEVERAL, f"is for several inputs: {first} is one alone")
    if not_of_folders is not None:
        here = f"one file of tables, and {first} is a folder"
        why = f"is for {'files of tables: the inputs are folders' if many else here}"
        for option, instead in not_of_folders.items():
            refuse_options(args, [option], f"{why}: {instead}")
    else:
        here = "folders of measurement files: the inputs are files of tables"
        refuse_options(
            args, OF_FOLDERS, f"is for {here if many else f'a folder of measurement files: {first} is none'}"
        )
    if many:
        refuse_options(
            args,
            OF_ONE_TABLE if not_of_folders is None else OF_ONE_FOLDER,
            f"is for one input: here are {len(args.inputs)}",
        )
