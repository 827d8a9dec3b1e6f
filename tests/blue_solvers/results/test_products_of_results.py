"""Which product a result is of: by its settings where variables are of several, and by recodes of its variables."""

import json
from pathlib import Path

import numpy as np
import pytest

from blue_solvers import blue
from blue_solvers.results import Result, write_result
from blue_solvers.results.checksums import seal_json
from blue_solvers.results.store import estimates_digest
from constraint_builders import Problem, Spine
from constraint_builders.files import Settings, production_settings
from constraint_builders.files.kept_variables import keep_variables, tied_settings
from constraint_builders.files.published_tables import product_of
from tests.helpers.every import cases


def stored(folder: Path, settings: Settings, variables: list[str]) -> tuple[Result, np.ndarray, np.ndarray]:
    """One block measured in full under some variables alone: cells, and their variances."""
    kept = keep_variables(settings, variables).target
    spine = Spine.from_geocodes({"Block": ["440010001001000"]})
    P = blue(Problem(kept.schema, {"Block": {"detailed": 4.0}}, {"Block": ["detailed"]}, spine=spine), "two_pass")
    y = np.random.default_rng(1).normal(40, 5, P.problem.observed.size)
    write_result(folder, P, P @ y, np.sqrt(P.variances()), kept)
    return Result(folder), y.reshape(kept.schema.shape), np.full(y.size, 4.0)


def test_persons_of_dhc_by_race_are_not_those_of_redistricting_files(tmp_path: Path) -> None:
    """Both products have Hispanic origin and race, and other tables by the same names."""
    result, y, _ = stored(tmp_path / "dhc", production_settings("dhc_us_persons"), ["hispanic", "cenrace"])
    frame = result.table("P4", ["440010001001000"])
    assert frame["label"].to_list()[1:] == ["Not Hispanic or Latino", "Hispanic or Latino"]
    np.testing.assert_allclose(frame["estimate"], [y.sum(), *y.sum(axis=1)])
    with pytest.raises(ValueError, match="table 'P2' is of pl94_persons, and this result is of dhc_persons"):
        result.table("P2", ["440010001001000"])
    other, _, _ = stored(tmp_path / "pl94", production_settings("pl94_us_persons"), ["hispanic", "cenrace"])
    assert other.table("P2", ["440010001001000"]).height == 73


def test_households_tied_by_tenure_answer_tables_of_households(tmp_path: Path) -> None:
    result, y, variances = stored(tmp_path / "tied", tied_settings("dhc_us_housing")[0], ["hisp", "tenure"])
    by_tenure = y.sum(axis=0)
    frame = result.table("H4", ["440010001001000"])
    expected = [y.sum(), by_tenure[0], by_tenure[1], by_tenure[2] + by_tenure[3]]
    np.testing.assert_allclose(frame["estimate"], expected)
    np.testing.assert_allclose(frame["std_error"] ** 2, [variances[0] * cells for cells in (8, 2, 2, 4)])
    assert result.published_tables().filter(reason="")["table"].to_list() == ["H4", "H4H", "H11"]


@cases(
    ("pl94_us_persons", "pl94_persons"),
    ("pl94_pr_units", "pl94_units"),
    ("dhc_pr_persons", "dhc_persons"),
    ("dhc_us_units", "dhc_households"),
    ("dhc_pr_units_tenvacgq", "dhc_tenvacgq"),
)
def test_every_production_run_has_its_product(settings: str, product: str) -> None:
    assert product_of(production_settings(settings).schema, settings) == product
    assert product_of(production_settings(settings).schema) == product


@pytest.mark.parametrize("change", [{"reason": None}, {"beyond": 1}])
def test_a_proof_of_another_version_is_named(tmp_path: Path, change: dict[str, int | None]) -> None:
    result, _, _ = stored(tmp_path / "dhc", production_settings("dhc_us_persons"), ["sex"])
    path = result.folder / "result.json"
    said = json.loads(path.read_text())
    del said["sha256"]
    certificate = {"bound": 1e-9, "reason": "passes", "violation": 0.0, "piece": None} | change
    said["proof"] = {"certificate": {name: value for name, value in certificate.items() if name not in change or value}}
    said["proof"]["of"] = estimates_digest(said["files"])
    path.write_text(seal_json(said))
    with pytest.raises(ValueError, match=r"result.json: its proof is of another version of this package .*: estimate"):
        Result(result.folder).proof  # noqa: B018
