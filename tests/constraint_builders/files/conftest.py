"""A folder of measurements that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from constraint_builders.files import write_noisy_measurements
from tests.helpers.state_files import STATE, noisy, small_problem


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state that was measured everywhere."""
    problem = small_problem(STATE)
    write_noisy_measurements(tmp_path / "state", problem, noisy(problem))
    return tmp_path / "state"
