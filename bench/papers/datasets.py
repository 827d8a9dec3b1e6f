"""The benchmark of the uncertainty principle: 16 synthetic data sets, 15 real ones, and their six privacy settings.

References
----------
"An Uncertainty Principle is a Price of Privacy-Preserving Microdata", NeurIPS 2021, supplement; data and constants from
github.com/uscensusbureau/CostOfMicrodataNeurIPS2021.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from blue_solvers.nonnegative.price.bounds import PureDP, ZeroConcentratedDP
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Integers

Privacy = PureDP | ZeroConcentratedDP

LARGEST = 10_000
SIDE = 10

SETTINGS: tuple[Privacy, ...] = (
    PureDP(1.0),
    PureDP(0.5),
    PureDP(0.1),
    ZeroConcentratedDP(0.5),
    ZeroConcentratedDP(0.125),
    ZeroConcentratedDP(0.005),
)

PUMAS = (
    "0101301", "0800803", "1304600", "1703529", "1703531", "1901700", "2401004", "2602702", "2801100", "2901901",
    "3200405", "3603710", "3604010", "5101301", "5151255",
)  # fmt: skip


def synthetic_datasets() -> dict[str, Integers]:
    """The 16 synthetic data sets: eight patterns of 100 cells, each as a vector and as a 10 x 10 table.

    Returns
    -------
    dict of ndarray of int
        ``"Level00-1d"``, shape (100,), ``"Level00-2d"``, shape (10, 10), and so on. The first cell is always 10,000;
        the tables are filled column by column.
    """
    number = np.arange(1, SIDE * SIDE + 1)
    patterns = {f"Level{level:02d}": np.full(number.size, level) for level in (0, 1, 16, 32)}
    patterns["Stair"] = number
    patterns |= {f"Step{step}": np.where(number <= 50, 0, step) for step in (16, 50)}
    patterns["SplitStairs"] = np.where(number < 50, number, 0)
    found: dict[str, Integers] = {}
    for name, pattern in patterns.items():
        counts = pattern.astype(np.int64)
        counts[0] = LARGEST
        found[f"{name}-1d"] = counts
        found[f"{name}-2d"] = counts.reshape(SIDE, SIDE, order="F").copy()
    return found


def puma_datasets(folder: str | Path) -> dict[str, Integers]:
    """The 15 real data sets: race by Hispanic origin in Public Use Microdata Areas of the 2016 ACS.

    Parameters
    ----------
    folder : path
        With files ``ST_<state>_PUMA_<area>.csv``, each with one header row and one header column.

    Returns
    -------
    dict of ndarray of int, (9, 24)
        ``"PUMA0101301"`` and so on, in the paper's order D02 to D16.

    Raises
    ------
    FileNotFoundError
        If a file is missing; names it.
    ValueError
        If a file does not hold 9 rows of 24 counts.
    """
    return {f"PUMA{code}": _read_counts(Path(folder) / f"ST_{code[:2]}_PUMA_{code[2:]}.csv") for code in PUMAS}


def _read_counts(path: Path) -> Integers:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: the folder must hold the 15 files of the paper's benchmark")
    with path.open(newline="") as file:
        rows = [row[1:] for row in list(csv.reader(file))[1:]]
    try:
        counts = np.array(rows, dtype=np.int64)
    except ValueError as error:
        raise ValueError(f"{path} does not hold a table of whole numbers: {error}") from None
    if counts.shape != (9, 24) or counts.min() < 0:
        raise ValueError(f"{path} must hold 9 rows of 24 counts of 0 or more: got shape {counts.shape}")
    return counts


def benchmark_problem(counts: Integers, privacy: Privacy) -> Problem:
    """The paper's measurements of a data set: total, one-way margins and cells, with the budget split evenly.

    Parameters
    ----------
    counts : ndarray of int
        Of one or two dimensions.
    privacy : PureDP or ZeroConcentratedDP
        Laplace noise of scale k / epsilon on each of the k tables, or Gaussian noise of variance k / (2 rho).

    Returns
    -------
    Problem
        Observed tables ``"total"``, (``"rows"``, ``"columns"``,) ``"detailed"``: also the priority of the paper's
        sequential fitting. With its truth.

    Raises
    ------
    ValueError
        If `counts` has neither one nor two dimensions.
    """
    if counts.ndim not in (1, 2):
        raise ValueError(f"the benchmark has vectors and two-way tables: got {counts.ndim} dimensions")
    names = ("cells",) if counts.ndim == 1 else ("rows", "columns")
    margins = {"rows": counts.sum(axis=1), "columns": counts.sum(axis=0)} if counts.ndim == 2 else {}
    truth = {"total": counts.sum(), **margins, "detailed": counts}
    variance = privacy.even_split_variance(len(truth))
    schema = Schema(dict(zip(names, counts.shape, strict=True)))
    return Problem(schema, dict.fromkeys(truth, variance), noise=privacy.noise, truth=truth)
