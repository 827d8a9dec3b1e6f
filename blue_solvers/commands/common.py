"""What several subcommands share: how they print, and draw."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from blue_solvers.commands.arguments import ALL
from blue_solvers.commands.screen import say, tell
from constraint_builders.extras import needing
from constraint_builders.printable import counted, printable

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

    from blue_solvers import Estimate
    from blue_solvers.verification import Fit
    from constraint_builders import Problem
    from constraint_builders.tied_together import TiedTogether

CALLED = {  # columns of answers on the screen
    "std_error": "std error", "margin_90": "90% ±", "other_geoid": "against", "other_line": "of", "z": "std errors",
}  # fmt: skip
LEVEL = 0.95  # confidence level of intervals, unless another is asked for
MOST_REASONS = 5  # of cells that are NaN, said on the screen


def announce(problem: Problem, solver: str) -> None:
    """Say how much work lies ahead, before it begins, where two passes are to do it and it is much."""
    closed_form = problem.geounit_variances is not None and problem.equalities is None
    if not closed_form or (problem.has_only_tables and problem.factors.issubset(problem.domain.schema.names)):
        return  # of the latter every component is a number

    from blue_solvers import TwoPass, projected_work

    if solver in ("auto", TwoPass.name) and TwoPass().supports(problem) is None:
        work = projected_work(problem)
        if work.is_large:
            tell(f"projected  {work} to prepare {counted(work.geounits, 'geounit')}")


def print_columns(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Print rows of text under a header, the first `left` columns flush left and the others flush right."""
    header, *rows = [list(map(printable, row)) for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            text.ljust(w) if i < left else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths, strict=True))
        ]
        say("  ".join(cells).rstrip())


def print_frame(frame: polars.DataFrame, level: float, digits: int = 2, empty: str = "") -> None:
    """Print a frame of answers whose first columns are text: numbers with so many decimals, or what is empty.

    Parameters
    ----------
    frame : polars.DataFrame
    level : float
        Of the intervals.
    digits : int
    empty : str
    """
    bounds = f"{100 * level:.10g}% from", "to"
    called = dict(zip(("lower", "upper", "rank_from", "rank_to"), bounds * 2, strict=True)) | CALLED

    def said(value: str | int | float | None) -> str:
        return empty if value is None else f"{value:,.{digits}f}" if isinstance(value, float) else str(value)

    texts = takewhile(lambda dtype: dtype == frame.dtypes[0], frame.dtypes)
    rows = [list(map(said, row)) for row in frame.iter_rows()]
    print_columns([called.get(name, name) for name in frame.columns], rows, left=len(list(texts)))


def desired_of(args: argparse.Namespace) -> list[str] | str | None:
    """What ``--desired`` says: tables, 'all', or nothing."""
    return ALL if args.desired == [ALL] else args.desired


def refuse_options(args: argparse.Namespace, options: Iterable[str], why: str) -> None:
    """Refuse options, by default None or False, that are given; the message begins with the first of them."""
    for option in options:
        given = getattr(args, option[2:].replace("-", "_"))
        if given is not None and given is not False:
            raise ValueError(f"{option} {why}")


CSV_DIGITS = 13  # of a standard error: more than is proved of any estimate, and no traces of rounding


def write_rounded(frame: polars.DataFrame, path: str, digits: int | str | None) -> None:
    """Write a frame of estimates with the digits of ``--digits``."""
    from constraint_builders.files import write_frame

    write_frame(rounded_for(frame, path, digits), path)


def rounded_for(frame: polars.DataFrame, path: str, digits: int | str | None) -> polars.DataFrame:
    """A frame of estimates with the digits of ``--digits`` in a file."""
    from constraint_builders.files import rounded

    if digits is None:
        digits = CSV_DIGITS if path.lower().endswith(".csv") else ALL
    return rounded(frame, digits) if isinstance(digits, int) else frame


def report_undetermined(problem: Problem) -> None:
    """Print which cells are NaN, the first of them with the reason."""
    if problem.undetermined is None:
        return
    (lost,) = problem.undetermined.nonzero()
    say(f"NaN        {counted(lost.size, 'cell')} that cannot be estimated; --desired chooses other tables")
    for position in lost[:MOST_REASONS].tolist():
        say(f"           {problem.why_undetermined(position)}")
    if lost.size > MOST_REASONS:
        say(f"           and {lost.size - MOST_REASONS:,} more, each with a note where it is written")


def report(est: Estimate, out: str, tied: TiedTogether) -> None:
    """Print what was estimated, what ties it together, how, and what is proved of it."""
    problem, info = est.problem, est.info
    exact, unmeasured = int(problem.exact.sum()), int(problem.unmeasured.sum())
    observed = f"{counted(problem.observed.size, 'cell')} of {counted(len(problem.observed.names), 'table')}"
    desired = f"{counted(problem.desired.size, 'cell')} of {counted(len(problem.desired.names), 'table')}"
    say(f"observed   {observed}, {exact:,} exact, {unmeasured:,} not measured")
    say(f"estimated  {desired}, consistent to {info.violation:.1g}")
    say(f"tied by    {tied}")
    report_undetermined(problem)
    by_method = "exact by its method, which is not proved here" if est.operator.info.exact else "NOT the best estimate"
    say(f"solver     {info.solver}, {'exact' if info.exact else by_method}")
    if info.reason:
        say(f"because    {info.reason}")
    if est.proof is not None:
        from blue_solvers.commands.fit_line import proof_line

        say(f"proof      {proof_line(est.proof)}")
    say(f"written    {out}")


MOST_ROWS = 40  # tables of a picture that is still to be read
ROW, FRAME, QUANTILES = 0.32, 2.2, 4.5  # inches a table, of all else beside tables, and of quantiles
SUFFIXES = (".png", ".svg", ".pdf")


def require_picture(path: str) -> None:
    """Check, before any work, that a picture can be made and written.

    Raises
    ------
    ValueError
        If the file's ending is no picture's.
    ImportError
        If matplotlib is missing.
    OSError
        If the file cannot be written.
    """
    from constraint_builders.files.new_files import require_writable

    if Path(path).suffix.lower() not in SUFFIXES:
        raise ValueError(f"--plot {path}: give a file that ends in {', '.join(SUFFIXES)}")
    with needing("--plot needs matplotlib", "plots"):
        import matplotlib.figure  # noqa: F401
    require_writable(path)


@contextmanager
def picture(fit: Fit, path: str) -> Iterator[None]:
    """Draw residuals by table, and their quantiles; the file is there once what is done within is done."""
    with written(lambda: _residuals(fit), path):
        yield


def _residuals(fit: Fit) -> Figure:
    from matplotlib.figure import Figure

    from blue_solvers.plots import quantiles_by_table, residuals_by_table

    height = ROW * min(len(fit.problem.observed.names), MOST_ROWS) + FRAME
    figure = Figure(figsize=(8, height + QUANTILES), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=[height, QUANTILES])
    residuals_by_table(above, fit)
    quantiles_by_table(below, fit)
    return figure


def write_asked(args: argparse.Namespace, frame: polars.DataFrame, draw: Callable[[], Figure]) -> None:
    """Write the table and the picture that are asked for, both or none, and say so."""
    from constraint_builders.files import write_frame

    with ExitStack() as files:
        if args.plot is not None:
            files.enter_context(written(draw, args.plot))
        if args.out is not None:
            write_frame(frame, args.out)
    for path in filter(None, (args.out, args.plot)):
        say("", f"wrote {path}")


@contextmanager
def written(draw: Callable[[], Figure], path: str) -> Iterator[None]:
    """Draw and write a picture, whose file is there once what is done within is done; dollars in names are dollars."""
    import matplotlib

    from constraint_builders.files.new_files import replacing

    with replacing(path) as temporary:
        with matplotlib.rc_context({"text.parse_math": False}):
            draw().savefig(temporary, format=Path(path).suffix[1:].lower())
        yield
