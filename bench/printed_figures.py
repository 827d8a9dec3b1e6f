"""The figures that the SEA BLUE paper prints in its tables, and one of ours beside one of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, nan, sqrt

from constraint_builders.arrays import Float

TABLE_1 = {19: (1.055, 1.094, 1.038), 99: (1.010, 1.017, 1.007), 199: (1.005, 1.009, 1.005)}
TABLE_2 = {  # counts, seconds of SEA BLUE, seconds of the projection
    "3 x 3": (64, 0.006, 0.01),
    "4 x 4": (625, 0.05, 0.024),
    "5 x 5": (7_776, 0.90, 60.45),
    "6 x 6": (117_649, 18.70, nan),
    "PL94 Block": (5_184, 0.49, 70.55),
    "PL94 Multi": (290_304, 34.36, nan),
    "DHC State": (2_897_856, 299.07, nan),
}
TABLE_3 = {
    "One Marginal": (0.8132, 0.8131, 0.0000),
    "All Marginals": (0.8191, 0.8191, 0.0002),
    "All 2 Way": (0.7995, 0.7880, 0.0125),
    "All 3 Way": (0.7983, 0.7606, 0.0408),
    "Detailed": (0.8159, 0.8069, 0.0109),
    "All Counts 1 Var": (0.7932, 0.7456, 0.0451),
}
TABLE_4 = {
    "3 x 3": (0.9531, 0.9480, 0.9582),
    "4 x 4": (0.9520, 0.9516, 0.9541),
    "5 x 5": (0.9510, 0.9500, 0.9520),
    "6 x 6": (0.9503, 0.9498, 0.9523),
    "PL94 Block": (0.9505, 0.9510, 0.9543),
    "PL94 Multi": (0.9482, 0.9490, 0.9733),
}
TABLE_5 = {
    "3 x 3": (5.544, 3.413, 3.601, 2.240, 3.772, 2.361, 3.963, 2.546),
    "4 x 4": (5.544, 3.506, 3.548, 2.254, 3.728, 2.407, 3.915, 2.574),
    "5 x 5": (5.544, 3.549, 3.514, 2.242, 3.694, 2.400, 3.884, 2.568),
    "6 x 6": (5.544, 3.568, 3.491, 2.233, 3.669, 2.392, 3.859, 2.5605),
    "PL94 Block": (43.802, 21.765, 19.342, 9.319, 20.300, 9.831, 21.349, 10.358),
    "PL94 Multi": (31.230, 16.062, 23.740, 11.997, 23.772, 12.013, 27.257, 13.832),
    "DHC State": (13.044, 6.421, 12.887, 6.121, 13.544, 6.371, 14.241, 6.727),
}
TABLE_6 = {
    "PL94 Block": (20.9643, 10.0505, 22.0136, 10.5767, 23.1337, 11.1392),
    "PL94 Multi": (25.0119, 12.8369, 25.04334, 12.8535, 28.7145, 14.7892),
    "DHC State": (26.5573, 13.6419, 27.8967, 14.3599, 29.3217, 15.1036),
}


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
        return [self.table, self.row, self.figure, ours, error, f"{self.paper:.{self.digits}f}", score,
                "DIFFERS" if self.differs else ""]  # fmt: skip
