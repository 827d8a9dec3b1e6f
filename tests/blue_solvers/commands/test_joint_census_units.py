"""``blue-solvers estimate --only`` on files as released: DHC persons, redistricting persons and redistricting units."""

from pathlib import Path

import numpy as np
import pytest

from blue_solvers.cli import main
from blue_solvers.results import Result
from tests.helpers.census_files import Block, write_census_files
from tests.helpers.census_pair import SIZES, CensusPair, blocks_of, write_pair
from tests.helpers.census_products import PL94_UNITS

NAMES = ["--names", "PL94,DHC,units"]
SETTINGS = [word for name in ("pl94_us_persons", "dhc_us_persons", "pl94_us_units") for word in ("--settings", name)]
TIES = ["--only", "units:relgq=0|1", "--beside", "units:h1=vacant", "--variables", "relgq,h1"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> CensusPair:
    return write_pair(tmp_path_factory.mktemp("pair"), [3, 2], 6)


@pytest.fixture(scope="module")
def units(pair: CensusPair) -> tuple[Path, np.ndarray]:
    """Units of the same blocks, in the block groups of redistricting persons: vacant ones, and householders."""
    rng = np.random.default_rng(2)
    blocks, counts = [], []
    for block, other in zip(pair.written["DHC"].blocks, pair.written["PL94"].blocks, strict=True):
        householders = int((np.unravel_index(block.persons, SIZES)[0] < 2).sum())
        counts.append((int(rng.integers(0, 9)), householders))
        blocks.append(Block(other.codes, np.repeat([0, 1], counts[-1]), 0, np.zeros(1, dtype=np.int64)))
    folder = pair.redistricting.parent / PL94_UNITS.folder
    write_census_files(folder, PL94_UNITS, blocks, rng, types=None, total_at="*")
    return folder, np.array(counts)


@pytest.mark.few(1)
@pytest.mark.parametrize("at", ["DHC", "units"])
def test_occupied_units_are_householders(
    at: str, pair: CensusPair, units: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder, truth = units
    desired = ["--desired", "relgq" if at == "DHC" else "h1"]
    out, words = str(tmp_path / "out"), [*NAMES, *SETTINGS, *TIES, *desired, "--at", at]
    assert main(["estimate", *pair.folders, str(folder), *words, "--out", out]) == 0
    said = capsys.readouterr().out
    assert "proved" in said
    for kind in ("DPQuery", "Constraint"):
        count = sum(rows for written in pair.written.values() for (_, own), rows in written.rows.items() if own == kind)
        assert count > 0
        assert sum(f"{kind}: " in line for line in said.splitlines() if line.startswith("rows ")) >= 2
    result = Result(out)
    householders = {"relgq": ["0", "1"]} if at == "DHC" else {"h1": ["occupied"]}
    alone = str(tmp_path / "alone")
    name, own = ("dhc_us_persons", pair.folders[1]) if at == "DHC" else ("pl94_us_units", str(folder))
    kept = ["--variables", "relgq"] if at == "DHC" else []
    assert main(["estimate", own, "--settings", name, *kept, *desired, "--out", alone]) == 0
    single = Result(alone)
    both, one = (of.ask_places(blocks_of(of, pair.geoids), [householders]) for of in (result, single))
    for i, geoid in enumerate(pair.geoids):
        assert both[geoid].std_errors[0] <= one[geoid].std_errors[0] + 1e-9
        assert abs(both[geoid].estimate[0] - truth[i, 1]) <= 5 * both[geoid].std_errors[0] + 1e-6
    if at == "units":
        capsys.readouterr()
        assert main(["query", out, "--table", "H1", "--geoid", *pair.geoids]) == 0
        rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
        assert [geoid for geoid, name in filter(None, rows) if name == "H1_001N"] == list(pair.geoids)
        assert main(["info", out]) == 0
