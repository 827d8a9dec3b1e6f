"""``blue-solvers estimate``: noisy tables in, consistent estimates with standard errors out."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from blue_solvers.commands.arguments import flags_of
from blue_solvers.commands.common import refuse_options
from blue_solvers.commands.table_input import OF_TABLES, SEVERAL

OF_ONE_FOLDER = ("--totals", "--state-totals", "--memory")
OF_FOLDERS = (*flags_of("folders"), "--at")
OF_ONE_TABLE = (
    "--acs", "--names-to", "--names-sep", "--cells", "--exact", "--write-schema", "--undetermined", "--sheet",
    "--skip-rows",
)  # fmt: skip
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


def run(args: argparse.Namespace) -> None:
    """Estimate what was asked for and write it."""
    if are_folders(args, NOT_OF_FOLDERS):
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
