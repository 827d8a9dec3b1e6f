"""What `check_solver` found to hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckReport:
    """What `check_solver` checked, all of which holds.

    Attributes
    ----------
    solver : str
    laws : tuple of str
        Checked on every problem.
    problems : tuple of str
        Names of the problems.
    compared : tuple of str
        Those where the estimate was compared with the dense one: small ones that it is exact for.
    """

    solver: str
    laws: tuple[str, ...]
    problems: tuple[str, ...]
    compared: tuple[str, ...]

    def __str__(self) -> str:
        number = f"{len(self.problems)} problem{'s' * (len(self.problems) != 1)}"
        dense = f"agrees with the dense estimate on {len(self.compared)} of {number}"
        return f"solver {self.solver!r} keeps {len(self.laws)} laws and {dense}"
