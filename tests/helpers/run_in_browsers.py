"""What must run in a Python for browsers: every solver, and names that say what they lack there."""

ESTIMATES = """
import numpy as np
import blue_solvers, constraint_builders, noise_mechanisms
from blue_solvers import Problem, Schema, Spine, blue, estimate, nnls
from constraint_builders import gallery
from noise_mechanisms import add_noise

problem = gallery.berkeley()
y = add_noise(problem, problem.truth, 1)
for solver in ("auto", "sea_blue", "two_pass", "areas", "cholesky", "cg", "dense"):
    assert estimate(problem, y, solver).certificate().bound < 1e-9, solver
assert nnls(problem, y).gap < 1e-6
spine = Spine.from_geoids([f"44{county:03}{block:010}" for county in (1, 3) for block in range(200)])
tables = {level: {"detailed": 4.0, "a": 2.0} for level in spine.levels}
large = Problem(Schema({"a": 40, "b": 50}), tables, spine=spine)  # from 25 MB on work is shared among threads
estimate(large, np.random.default_rng(1).normal(20, 2, large.observed.size), certify=False)
for package in (blue_solvers, constraint_builders, noise_mechanisms):
    assert len(dir(package)) > 25
for name, says in (("read_tables", "files and data frames need polars"), ("Result", "Result needs polars")):
    try:
        getattr(blue_solvers, name)("in.csv")
    except ImportError as error:
        assert says in str(error) and "which cannot be had here" in str(error), error
    else:
        raise AssertionError(name)
print("estimated")
"""
