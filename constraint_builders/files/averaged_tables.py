"""Measurements of one table that are averaged as they are read, tested against one another.

A new measurement x of a cell, of variance v, beside the weighted mean m of those before, of variance u:
(x - m)^2 / (u + v) is a chi-square of one degree of freedom under Gaussian noise, independent of the mean of all.
"""

from __future__ import annotations

from collections.abc import Iterator

import scipy

from constraint_builders.arrays import Float
from constraint_builders.files.remarks import Remark

DOUBTFUL = 1e-4  # probability under all tables below which they do not agree


class AveragedTables:
    """Chi-squares by geolevel and table, with their degrees of freedom."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[float, int]] = {}

    def add(self, geolevel: str, table: str, squares: Float, variances: Float, cells: int) -> None:
        """Take squared differences from the mean before, summed over cells, and their variances, (G,) each."""
        statistic, degrees = self._found.get((geolevel, table), (0.0, 0))
        self._found[geolevel, table] = statistic + float((squares / variances).sum()), degrees + cells * squares.size

    def remarks(self) -> Iterator[Remark]:
        """Whether they agree, if there are any."""
        if not sum(degrees for _, degrees in self._found.values()):
            return
        parts = {key: _probability(*own) for key, own in self._found.items()}
        whole = sum(own[0] for own in self._found.values()), sum(own[1] for own in self._found.values())
        level, table = min(parts, key=lambda key: parts[key])
        text = f"chi-square {whole[0]:,.6g} on {whole[1]:,} degrees of freedom, p = {_probability(*whole):.2g}"
        if min(_probability(*whole), len(parts) * parts[level, table]) >= DOUBTFUL:
            yield Remark("averaged", f"tables that become one agree with one another: {text}")
            return
        worst = "chi-square {:,.6g} on {:,}".format(*self._found[level, table])
        yield Remark(
            "averages",
            f"tables that become one DO NOT AGREE by the noise that is declared: {text}; worst {table!r} at {level}, "
            f"{worst}",
        )


def _probability(statistic: float, degrees: int) -> float:
    """Of a chi-square as far from its expectation, on either side."""
    tails = scipy.special.chdtrc(degrees, statistic), scipy.special.chdtr(degrees, statistic)
    return min(1.0, 2 * float(min(tails)))
