"""A description of a result that says anything at all, with its right checksum: only documented exceptions."""

import os
from pathlib import Path

import numpy as np
import pytest

from blue_solvers.cli import main
from blue_solvers.reporting import html_of, stored_page
from blue_solvers.results import Result
from tests.helpers.command_inputs import good_inputs
from tests.helpers.effort import lengths
from tests.helpers.forged import escaped


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = good_inputs(tmp_path_factory.mktemp("made"))
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["estimate", "release", "--out", "streamed", "--memory", "1e8"]) == 0
        assert main(["estimate", "release", "other", "--desired", "hisp", "--out", "joint"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.mark.few(1)
@lengths("every", 43, 1)
@pytest.mark.parametrize("name", ["result", "streamed", "joint"])
def test_what_a_description_says_is_used_or_refused(name: str, every: int, made: Path) -> None:
    def use() -> None:
        result = Result(made / name)
        result.require_intact()
        level = result.spine.levels[-1]
        for asked in (
            result.proof,
            result.measured,
            result.fit_schema,
            result.published_tables(),
            result.tables(level),
        ):
            assert asked is not None
        result.ask(level, np.array([0]), [{}])
        html_of(stored_page(made / name, 0.95))

    use()
    found = escaped(made / name / "result.json", use, (ValueError, OSError), every)
    assert not found, "\n".join(found)
