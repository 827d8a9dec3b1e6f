"""The figures that the SEA BLUE paper prints in its tables, and one of ours beside one of them."""

import json
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from pathlib import Path

from constraint_builders.arrays import Float

_printed = json.loads(Path(__file__).with_name("sea_blue.json").read_text("utf-8"))
TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_6 = (
    {row: tuple(nan if own is None else own for own in figures) for row, figures in table.items()}
    for table in _printed.values()
)  # Table 1 by how many errors are simulated; Table 2: counts, seconds of SEA BLUE, seconds of the projection


@dataclass(frozen=True)
class Comparison:
    """One figure: the mean of ours over replicates, beside the paper's where the two are of one design.

    Attributes
    ----------
    table, row, figure : str
    ours : ndarray, (replicates,)
        One value where nothing is drawn.
    paper : float
    paper_replicates : int
        Over how many the paper's figure is a mean.
    comparable : bool
    digits : int
        That the paper prints.
    """

    table: str
    row: str
    figure: str
    ours: Float
    paper: float
    paper_replicates: int
    comparable: bool = True
    digits: int = 3

    @property
    def mean(self) -> float:
        return float(self.ours.mean())

    @property
    def spread(self) -> float:
        return float(self.ours.std(ddof=1)) if self.ours.size > 1 else 0.0

    @property
    def error(self) -> float:
        return self.spread / sqrt(self.ours.size)

    @property
    def scores(self) -> float:
        """Difference in standard errors: of ours, of the paper's as our spread over its replicates, of its rounding.

        NaN where the designs differ.
        """
        if not self.comparable:
            return nan
        rounding = 10.0**-self.digits / sqrt(12)
        return (self.mean - self.paper) / sqrt(self.error**2 + self.spread**2 / self.paper_replicates + rounding**2)

    @property
    def differs(self) -> bool:
        return abs(self.scores) > 3

    def cells(self) -> list[str]:
        """The figure as a printed row."""
        places = self.digits + 1
        score = f"{self.scores:+.1f}" if isfinite(self.scores) else "not compared"
        ours, error = f"{self.mean:.{places}f}", f"{self.error:.{places}f}"
        judged = "DIFFERS" if self.differs else ""
        return [self.table, self.row, self.figure, ours, error, f"{self.paper:.{self.digits}f}", score, judged]
