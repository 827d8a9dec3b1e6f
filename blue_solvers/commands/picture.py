"""The picture of ``blue-solvers estimate --plot``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from blue_solvers.operator import BlueOperator
from blue_solvers.solver import Float

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
    from constraint_builders.files.replacing import require_writable

    if Path(path).suffix.lower() not in SUFFIXES:
        raise ValueError(f"--plot {path}: give a file that ends in {', '.join(SUFFIXES)}")
    if find_spec("matplotlib") is None:
        raise ImportError("--plot needs matplotlib, which is missing: install the extra 'plots'")
    require_writable(path)


def write_picture(P: BlueOperator, y: Float, level: float, bounds: tuple[Float, Float], path: str) -> None:
    """Draw estimates with their intervals over the noisy counts."""
    from matplotlib.figure import Figure

    from blue_solvers.plots import noisy_against_estimated
    from constraint_builders.files.replacing import replacing

    figure = Figure(figsize=(7, 7), layout="constrained")
    noisy_against_estimated(figure.subplots(), P, y, level, bounds)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower())
