"""With the extra ``arrays``: datasets of xarray."""

import numpy as np

from blue_solvers import estimate, read_tables
from constraint_builders import gallery
from noise_mechanisms import add_noise


def test_out_and_in_again() -> None:
    problem = gallery.berkeley()
    est = estimate(problem, add_noise(problem, problem.truth, 1))
    out = est.to_xarray()
    again, y = read_tables(out)
    found = again.observed.tables(y)
    assert len(found) == len(est.tables) == 8
    for name, values in found.items():
        own = out[f"{name if name in est.tables else 'detailed'} estimate"]
        sorted_labels = {dimension: list(again.schema.labels_of(dimension)) for dimension in own.dims}
        np.testing.assert_array_equal(values, own.sel(sorted_labels))
