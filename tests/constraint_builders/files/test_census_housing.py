"""Households and units of DHC: each of two histograms is read by itself, and both tied by tenure."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blue_solvers import blue
from constraint_builders.files import production_settings, read_noisy_measurements
from constraint_builders.files.kept_variables import tied_settings
from tests.helpers.census_files import Block, Written, geocodes
from tests.helpers.census_housing import write_housing_files
from tests.helpers.census_products import dhc_households
from tests.helpers.dense_algebra import best

HOUSEHOLDS = production_settings("dhc_us_units")
RECODES = [recode for recode in HOUSEHOLDS.schema.recodes if HOUSEHOLDS.schema.names[recode.axis] == "hhtype_dhch"]
PRODUCT = dhc_households({recode.name: np.array(recode.groups) for recode in RECODES})


@pytest.fixture(scope="module", params=[None, "*"])
def housing(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written, dict]:
    folder, rng = tmp_path_factory.mktemp("housing") / PRODUCT.folder, np.random.default_rng(3)
    codes = geocodes(PRODUCT, {"044": {"001": [2]}})
    allowed = np.flatnonzero(PRODUCT.allowed())
    blocks = [
        Block(code, rng.choice(allowed, 25 * (1 - i)), 30 * (1 - i), np.bincount([i], minlength=24))
        for i, code in enumerate(codes)
    ]
    return folder, *write_housing_files(folder, PRODUCT, blocks, rng, request.param)


def test_the_zeros_are_as_many_as_the_facts_say() -> None:
    assert PRODUCT.allowed().sum() == 1_111_572
    assert len(PRODUCT.zeros) == 22


@pytest.mark.few(1)
def test_each_histogram_is_read_by_itself(housing: tuple[Path, Written, dict]) -> None:
    folder, written, _ = housing
    release = read_noisy_measurements(folder, HOUSEHOLDS, variables=["hisp", "race"])
    assert {name for own in release.unused for name in [own.name]} >= {"tenvacgq_dpq", "gq_vect", "owned"}
    assert not (release.problem.variances == 0).any()  # published counts are not taken as true
    units = production_settings("dhc_us_units_tenvacgq")
    read = read_noisy_measurements(folder, units)
    values, variances = (read.problem.observed.tables(v) for v in (read.y, read.problem.variances))
    spine = read.problem.domain.spine
    for (level, code, query), (expected, variance) in written.measured.items():
        if query == "tenvacgq":
            rank = spine.rank_in_level[spine.position(level, code)]
            assert np.array_equal(values[level, "detailed"][rank], expected)
            assert (variances[level, "detailed"][rank] == variance).all()
    assert values["Block", "hhgq_vector"][:, 0].tolist() == [30, 0]
    assert (variances["Block", "hhgq_vector"] == 0).all()
    for own in (*release.read.rows, *read.read.rows):
        assert own.read == own.used + own.unused == written.rows[own.geolevel, own.kind]


def test_all_22_rules_are_structural_zeros(housing: tuple[Path, Written, dict]) -> None:
    release = read_noisy_measurements(housing[0], HOUSEHOLDS, variables=["sex", "hhage", "elderly", "hhtype_dhch"])
    zeros = release.problem.zeros
    allowed = PRODUCT.allowed().reshape(tuple(PRODUCT.sizes.values()))[:, :, 0, 0, :, 0, :]
    for position in range(release.problem.domain.spine.size):
        assert np.array_equal(zeros.empty[position], ~allowed)


@pytest.mark.few(1)
def test_histograms_are_tied_by_tenure(housing: tuple[Path, Written, dict]) -> None:
    """What was measured of units counts for households, as in a reference that has both histograms in full."""
    folder, written, _ = housing
    settings, _ = tied_settings("dhc_us_housing")
    release = read_noisy_measurements(folder, settings, variables=["hisp", "tenure"], desired=["tenure", "hisp"])
    problem = release.problem
    P = blue(problem)
    tables, variances = (problem.desired.tables(v) for v in (P @ release.y + P.offset, P.variances()))
    unused = {own.name for own in release.unused}
    assert "tenvacgq_dpq" not in unused
    assert unused >= {"owned", "h1_toth1occupied", "h1_toth1vacant"}
    for own in release.read.rows:
        assert own.read == own.used + own.unused == written.rows[own.geolevel, own.kind]
    x, covariance, places = reference(written)
    for (level, code), place in places.items():
        rank = problem.domain.spine.rank_in_level[problem.domain.spine.position(level, code)]
        households = x[place : place + 8].reshape(2, 4)
        sums = np.kron(np.ones((1, 2)), np.eye(4))
        cells = covariance[place : place + 8, place : place + 8]
        assert tables[level, "tenure"][rank] == pytest.approx(households.sum(axis=0), abs=1e-6)
        assert variances[level, "tenure"][rank] == pytest.approx(np.diag(sums @ cells @ sums.T), abs=1e-6)
        assert tables[level, "hisp"][rank] == pytest.approx(households.sum(axis=1), abs=1e-6)


def reference(written: Written) -> tuple[np.ndarray, np.ndarray, dict[tuple[str, str], int]]:
    """Least squares over Hispanic origin by tenure of units, and seven vacancies, of the one block with units.

    The other block is empty, so every geounit that is not has the block's counts: all measurements are of these 15
    numbers, of which 30 is the exact sum.
    """
    rows, values, variances = [], [], []
    for (level, code, query), (drawn, variance) in written.measured.items():
        if not has_units(written, level, code):
            continue
        if query == "tenvacgq":
            own = np.zeros((11, 15))
            own[:4, :8] = np.kron(np.ones((1, 2)), np.eye(4))
            own[4:, 8:] = np.eye(7)
            rows += list(own)
            values += drawn[:11].tolist()
            variances += [variance] * 11
            continue
        said = PRODUCT.said(query)
        group_of, fine, groups = grouped(query)
        sums, counts = np.bincount(group_of, drawn, groups), np.bincount(group_of, minlength=groups)
        own = np.zeros((groups, 15))
        for i, (h, t) in enumerate((h, t) for h in range(2) for t in range(4)):
            f = fine[min(t, 2)]
            own[f if said["hisp"] == "*" else h * (fine.max() + 1) + f, i] = 1
        rows += list(own)
        values += sums.tolist()
        variances += (counts * variance).tolist()
    total = np.ones((1, 15)), np.array([30.0])
    x, full = best(np.array(rows), np.array(variances), np.array(values), total)
    places = {(level, code): 0 for level, code, _ in written.measured if has_units(written, level, code)}
    return x, full, places


@cache
def grouped(query: str) -> tuple[np.ndarray, np.ndarray, int]:
    """The group by origin and tenure of every cell of a query, of which groups tenures are, and how many groups."""
    said, sizes = PRODUCT.said(query), tuple(PRODUCT.sizes.values())
    cells, shape = PRODUCT.cells(said)
    hispanic, tenure = (np.broadcast_to(np.indices(sizes, sparse=True)[axis], sizes).ravel() for axis in (2, 5))
    fine = np.array([0, 1, 2]) if said["hhtenshort_3lev"] != "hhtenshort_2lev" else np.array([0, 0, 1])
    groups = 2 * 3 if fine[2] == 2 else 2 * 2
    if said["hhtenshort_3lev"] == "*" or said["hisp"] == "*":
        key = fine[tenure] if said["hisp"] == "*" else hispanic
        groups = fine.max() + 1 if said["hisp"] == "*" else 2
    else:
        key = hispanic * (fine.max() + 1) + fine[tenure]
    group_of = np.zeros(np.prod(shape), dtype=int)
    group_of[cells] = key
    return group_of, fine, groups


def has_units(written: Written, level: str, code: str) -> bool:
    return any(block.units for block in written.within(PRODUCT.geolevels.index(level), code))
