"""The solvers, enrolled in `registry` by one record for exports, tests, benchmarks and the command."""

from blue_solvers.solvers import registry
from blue_solvers.solvers.registry import *  # noqa: F403

__all__: list[str] = []
__all__ += registry.__all__
