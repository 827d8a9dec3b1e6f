"""Settings that every test shares."""

import gc
import os
import shutil
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from constraint_builders import memory
from constraint_builders.compiled import compile_at_once
from constraint_builders.description.noise import NOISE_LAWS
from tests.helpers.effort import THOROUGH, USUAL

REPEATABLE = bool(os.environ.get("CI"))
for name, number in (("usual", USUAL), ("thorough", THOROUGH)):
    settings.register_profile(
        name,
        deadline=None,
        max_examples=number,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        derandomize=REPEATABLE,
        print_blob=REPEATABLE,
    )
settings.load_profile("usual")
compile_at_once()  # one way from the first test to the last, whatever is kept on disk
gc.disable()  # while tests are collected, none of which is garbage


@pytest.fixture(autouse=True)
def _free_memory_is_asked_anew() -> None:
    """What one test says is free is not what is free in the next, within the same second."""
    memory._free_in.cache_clear()


@pytest.fixture
def own_laws() -> Iterator[None]:
    """Laws of noise that a test or a page adds are gone after it."""
    before = dict(NOISE_LAWS)
    yield
    NOISE_LAWS.clear()
    NOISE_LAWS.update(before)


@pytest.fixture(scope="session")
def written_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state that was measured everywhere, as noisy measurements, which stay as they are."""
    from constraint_builders.files import write_noisy_measurements  # which needs an extra, as other tests do not
    from tests.helpers.state_files import STATE, noisy, small_problem

    problem, folder = small_problem(STATE), tmp_path_factory.mktemp("written") / "state"
    write_noisy_measurements(folder, problem, noisy(problem))
    return folder


@pytest.fixture(scope="session")
def small_census(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A small census as files, which stay as they are, and what was written."""
    from tests.helpers.small_census import write_small_census

    folder = tmp_path_factory.mktemp("census") / "whole"
    return folder, write_small_census(folder)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good inputs of all kinds that the command reads, which stay as they are."""
    from tests.helpers.command_inputs import good_inputs

    return good_inputs(tmp_path_factory.mktemp("made"))


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them, where the command runs."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "here"))
    return tmp_path / "here"


@pytest.fixture
def folder(written_state: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return shutil.copytree(written_state, tmp_path / "state")


def pytest_addoption(parser: pytest.Parser) -> None:
    """A share of what was chosen otherwise."""
    parser.addoption("--share", metavar="I/N", help="of N equal shares of the chosen tests number I, from 0 on")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test marked ``few`` so many cases are tried by default, evenly spread; the others are ``left_out``."""
    cases = defaultdict(list)
    for item in items:
        few, slow = item.get_closest_marker("few"), item.get_closest_marker("slow")
        if few is not None and slow is None:
            cases[item.nodeid.split("[")[0], few.args[0]].append(item)
    for (_, number), own in cases.items():
        tried = {i * len(own) // number for i in range(number)}
        for i, item in enumerate(own):
            if i not in tried:
                item.add_marker(pytest.mark.slow)
                item.add_marker(pytest.mark.left_out)
    if share := config.getoption("share"):
        number, of = map(int, share.split("/"))
        others = [item for item in items if zlib.crc32(item.nodeid.encode()) % of != number]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % of == number]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What collecting made stays to the end: the collector of garbage need not go through it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)
