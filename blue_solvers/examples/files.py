"""Files to try the command on.

`BERKELEY` is one noisy measurement of `gallery.berkeley`: whole numbers with discrete Gaussian noise of variance 9, the
total known exactly, and three small cells of the detailed table suppressed. `BERKELEY_SCHEMA` describes it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from constraint_builders import Problem, gallery
from constraint_builders.true_tables import known_truth
from noise_mechanisms import add_noise

BERKELEY = Path(__file__).with_name("berkeley.csv")
BERKELEY_SCHEMA = Path(__file__).with_name("berkeley.toml")

SEED = 1973
SUPPRESSED_BELOW = 20


def berkeley() -> Problem:
    """The problem that `BERKELEY` holds a measurement of, with its truth."""
    problem = gallery.berkeley()
    truth = known_truth(problem)
    observed = {str(name): np.full(problem.observed.shape(name), 9.0) for name in problem.observed.names}
    observed["total"] = np.array(0.0)
    observed["detailed"][problem.observed.tables(truth)["detailed"] < SUPPRESSED_BELOW] = np.inf
    return Problem(problem.domain.schema, observed, noise="discrete_gaussian", truth=truth)


def write_berkeley(folder: str | os.PathLike[str]) -> None:
    """Make both files anew, in `folder`."""
    from constraint_builders.files import measurements_frame, write_frame, write_schema_file

    problem = berkeley()
    y = add_noise(problem, known_truth(problem), SEED)
    write_frame(measurements_frame(problem, y), Path(folder) / BERKELEY.name)
    write_schema_file(Path(folder) / BERKELEY_SCHEMA.name, problem.domain.schema, noise=str(problem.noise.law))
