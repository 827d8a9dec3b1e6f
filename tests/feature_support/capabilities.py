"""Which solver is exact for what, and what it costs: the table that the README shows."""

from blue_solvers.contract import Capability
from blue_solvers.solvers.registry import SOLVERS


def capabilities() -> list[Capability]:
    """The rows of all solvers that are enrolled."""
    return [row for solver in SOLVERS.values() for row in solver.capabilities()]


def as_markdown() -> str:
    """The table, as the README has it."""
    rows = ["| solver | exact for | what it costs |", "|---|---|---|"]
    rows += [f"| `{c.call}` | {c.exact_for} | {c.cost} |" for c in capabilities()]
    return "\n".join(rows)
