"""With nothing but the package's own dependencies."""

import re
import subprocess
import sys

import numpy as np
import pytest

from blue_solvers import blue, estimate
from constraint_builders import gallery
from noise_mechanisms import add_noise
from tests.helpers.every import every
from tests.helpers.places import ROOT


def test_the_ten_lines_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    (ten_lines,) = re.findall(r"^## Ten lines\n+```python\n(.*?)```", (ROOT / "README.md").read_text(), re.M | re.S)
    exec(compile(ten_lines, "README.md", "exec"), {})
    assert "proved, at most" in capsys.readouterr().out


@every("solver", ["auto", "sea_blue", "two_pass", "cholesky", "cg", "dense"])
def test_every_solver_without_an_extra_is_proved(solver: str) -> None:
    problem = gallery.berkeley()
    y = add_noise(problem, problem.truth, 1)
    est = estimate(problem, y, solver)
    assert est.certificate().bound < 1e-9
    np.testing.assert_allclose(est.std_errors**2, blue(problem, "dense").variances(), rtol=1e-9)


def test_the_command_shows_its_demonstration() -> None:
    done = subprocess.run([sys.executable, "-m", "blue_solvers.cli", "demo"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "std error" in done.stdout
