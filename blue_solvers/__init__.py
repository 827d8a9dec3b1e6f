"""Solvers for the best linear unbiased estimate, behind one linear operator."""

import blue_solvers.signals  # noqa: F401  first: from then on signals find their handler
from blue_solvers.about import __version__ as __version__
from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(
    __name__,
    {
        "ProjectedWork": "blue_solvers.components.tree.projected_work.ProjectedWork",
        "problem_from": "blue_solvers.read_tables",
    },
)
