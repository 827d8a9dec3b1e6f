"""``blue-solvers report``: what is known of a result, on one page that needs no network."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from blue_solvers.commands.arguments import RESULT, WrittenPath, flags_of, require_file, require_outputs
from blue_solvers.commands.common import refuse_options
from blue_solvers.commands.estimate import OF_FOLDERS, READ_OF_FILES, SEVERAL, are_folders
from blue_solvers.commands.query_tables import boundaries_of, names_of
from blue_solvers.commands.screen import progress, reading, refuse_doubt, say
from blue_solvers.commands.table_input import OF_TABLES, for_each, said_of
from constraint_builders.printable import counted

if TYPE_CHECKING:
    from blue_solvers.reporting.page_parts import Page

SUFFIXES = (".html", ".htm")
OF_ESTIMATES = ("--areas", "--rounded", "--cell-key", "--variance", "--sheet", "--skip-rows")  # which no file says
OF_MEASURED = (*flags_of("tables"), *SEVERAL)


def run(args: argparse.Namespace) -> None:
    """Write the page."""
    from blue_solvers.reporting.map_section import with_map
    from blue_solvers.reporting.page import html_of
    from constraint_builders.files.naming import naming
    from constraint_builders.files.new_files import replacing

    require_outputs(args, _require_page)
    shapes = boundaries_of(args)
    page = _page(args)
    if shapes is not None:
        with naming(args.boundaries):
            page = with_map(page, shapes)
    text = html_of(page)
    with replacing(args.out) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    for tile in page.tiles:
        say(f"{tile.label}: {', '.join(filter(None, (tile.value, tile.note)))}")
    say(f"written    {args.out}, {counted(len(text.encode()), 'byte')}, which needs no network")
    refuse_doubt(args, page.doubt)


def _require_page(path: str) -> None:
    from constraint_builders.files.new_files import require_writable

    if Path(path).suffix.lower() not in SUFFIXES:
        raise ValueError(f"--out {path}: give a file that ends in {' or '.join(SUFFIXES)}")
    require_writable(path)


def _page(args: argparse.Namespace) -> Page:
    first = Path(args.inputs[0])
    if len(args.inputs) == 1 and (first / RESULT).exists():
        return _of_result(args, first)
    if are_folders(args, READ_OF_FILES):
        return _of_release(args)
    if args.measured is not None and len(args.inputs) > 1:
        raise ValueError(f"--measured is for one file of estimates: here are {len(args.inputs)} inputs")
    return (_of_estimates(args) if len(args.inputs) == 1 else None) or _of_measurements(args)


def _of_result(args: argparse.Namespace, folder: Path) -> Page:
    from blue_solvers.reporting.stored_folder import stored_page

    options = ("--measured", "--schema", *OF_TABLES, *OF_MEASURED, *OF_FOLDERS)
    refuse_options(args, options, f"is for a file of estimates: {folder} is a folder, which says itself")
    progress(f"reading {folder}")
    with reading():
        return stored_page(folder, args.level, names_of(args))


def _of_release(args: argparse.Namespace) -> Page:
    """Of folders of measurement files, which are estimated first, in the memory that is given."""
    from blue_solvers.commands.estimate_release import run_on_folders
    from blue_solvers.reporting.stored_folder import stored_page

    refuse_options(args, ("--measured",), "is for a file of estimates: the inputs are folders")
    with TemporaryDirectory(dir=Path(args.out).resolve().parent) as beside:
        result = Path(beside) / Path(args.inputs[0]).name
        run_on_folders(argparse.Namespace(**{**vars(args), "out": WrittenPath(result), "strict": False}))
        return stored_page(result, args.level, names_of(args))


def _of_estimates(args: argparse.Namespace) -> Page | None:
    """Of a file of estimates, judged by what was measured; None where it holds none."""
    from blue_solvers.reporting.of_tables import page_of_estimates
    from blue_solvers.reporting.result_file import ResultFile
    from constraint_builders.files import read_schema_file
    from constraint_builders.files.naming import naming
    from constraint_builders.files.source import open_source
    from constraint_builders.files.survey_frame import Said

    path, said = args.inputs[0], said_of(args)
    if args.measured is not None:
        require_file(args.measured, "a long table")
    with reading():
        source = open_source(path) if args.measured is not None else (said or Said()).open(path)
    with naming(path):
        result = ResultFile.of(source)
    if result is None:
        if args.measured is not None:
            raise ValueError(f"{path} holds no estimates to judge by --measured: give what estimate wrote")
        return None
    why = f"is of noisy tables, and {path} holds estimates: "
    refuse_options(args, OF_MEASURED, f"{why}leave it out")
    if args.measured is None:
        refuse_options(args, tuple(own for own in OF_TABLES if own not in OF_ESTIMATES), f"{why}give --measured too")
    (schema,) = for_each(args.schema, args.inputs, "--schema")
    with reading():
        file = read_schema_file(schema) if schema else None
        return page_of_estimates(result, Path(path).name, args.measured, file, args.level, said, names_of(args))


def _of_measurements(args: argparse.Namespace) -> Page:
    """Of noisy tables, which are estimated."""
    from blue_solvers.commands.estimate_tables import read_tables_of
    from blue_solvers.commands.table_input import write_schema
    from blue_solvers.operator import estimate
    from blue_solvers.reporting.of_tables import page_of_measurements

    tables = read_tables_of(args)
    progress("estimating")
    est = estimate(tables.problem, tables.y)
    write_schema(args, tables.problem)
    names = " and ".join(Path(path).name for path in args.inputs)
    return page_of_measurements(est, names, args.level, tables.apart, names_of(args))
