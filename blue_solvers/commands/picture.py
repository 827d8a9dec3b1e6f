"""The picture of ``blue-solvers estimate --plot``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from blue_solvers.verification import Fit
from constraint_builders.extras import missing_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise missing_extra("--plot needs matplotlib", "plots") from error
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


@contextmanager
def written(draw: Callable[[], Figure], path: str) -> Iterator[None]:
    """Draw and write a picture, whose file is there once what is done within is done; dollars in names are dollars."""
    import matplotlib

    from constraint_builders.files.new_files import replacing

    with replacing(path) as temporary:
        with matplotlib.rc_context({"text.parse_math": False}):
            draw().savefig(temporary, format=Path(path).suffix[1:].lower())
        yield
