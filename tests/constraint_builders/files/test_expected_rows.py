"""Rows beside those that settings expect: each that is missing or has another variance is counted, and no other."""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers.streaming import estimate_measurements
from constraint_builders import Spine
from constraint_builders.files import read_noisy_measurements
from constraint_builders.files.expected_rows import AveragedTables, ExpectedRows, only_children_below
from constraint_builders.files.measured_level import blended
from constraint_builders.files.reading_report import FacilityBounds, Remark, facility_remarks
from constraint_builders.files.settings import Settings, parse_settings
from noise_mechanisms.laws import DiscreteGaussian, DiscreteLaplace
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.small_census import PRODUCT, write_small_census
from tests.helpers.small_census import SETTINGS as SMALL

LEVELS = ["US", "State", "County", "Tract"]
TABLES = ["total", "age * sex", "detailed"]  # factors in another order than the schema's
CANONICAL = {"age * sex": "sex * age", "detailed": "detailed", "total": "total"}


def tree(rng: np.random.Generator) -> Spine:
    """Geounits with one child, or a few."""
    codes: dict[str, list[str]] = {"US": [""]}
    for above, level in pairwise(LEVELS):
        codes[level] = [f"{code}{i}" for code in codes[above] for i in range(int(rng.choice([1, 1, 2, 5])))]
    return Spine.from_geocodes(codes)


def settings(rng: np.random.Generator, law: str) -> tuple[Settings, dict[str, dict[str, Fraction]]]:
    losses = {
        level: {
            table: Fraction(int(rng.integers(1, 40)), 20) for table in TABLES if rng.random() < 0.8 or level == "US"
        }
        for level in LEVELS
    }
    rows = "\n".join(f'"{table}" = {[str(losses[level].get(table, 0)) for level in LEVELS]}' for table in TABLES)
    measure = "pure" if "laplace" in law else "zcdp"
    head = f'geolevels = {LEVELS}\nnoise = "{law}"\n[variables]\nsex = 2\nage = 3\nkind = 2\n[budget]\n'
    return parse_settings(f'{head}measure = "{measure}"\n[budget.losses]\n{rows}\n', "own"), losses


def variance_of(loss: Fraction, law: str) -> float:
    """Of noise that spends a loss where neighbours change one record."""
    if law == "gaussian":
        return float(1 / loss)
    if law == "discrete_gaussian":
        return DiscreteGaussian(sigma2=1 / loss).variance
    return 2 * float(2 / loss) ** 2 if law == "laplace" else DiscreteLaplace(scale=2 / loss).variance


def single_children(spine: Spine, position: int) -> int:
    children = [i for i in range(spine.size) if spine.parent[i] == position]
    return 1 + single_children(spine, children[0]) if len(children) == 1 else 0


def test_only_children_that_are_not_there_are_counted() -> None:
    """The counties of the first and the third state were bypassed, and are in no file."""
    codes = {"US": [""], "State": ["1", "2", "3"], "County": ["21", "22"], "Tract": ["111", "112", "211", "221", "311"]}
    spine = Spine.from_geocodes(codes)
    expected = {"": 0, "1": 1, "2": 0, "3": 2, "21": 1, "22": 1}
    found = dict(zip(spine.geocodes, only_children_below(spine).tolist(), strict=True))
    assert found == {**dict.fromkeys(codes["Tract"], 0), **expected}


def numbers(remarks: list[Remark], about: str) -> list[int]:
    found = [remark.text for remark in remarks if remark.about == about]
    assert len(found) <= 1
    return (
        [int(number.replace(",", "")) for number in re.findall(r"\b[\d,]+\b", found[0].partition(":")[0])]
        if found
        else []
    )


@pytest.mark.parametrize("law", ["gaussian", "discrete_gaussian", "laplace", "discrete_laplace"])
@lengths("seeds", range(6), range(6, 80))
def test_what_is_missing_or_other_is_counted(law: str, seeds: range) -> None:
    spoilt_somewhere = lost_somewhere = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        spine, (own, losses) = tree(rng), settings(rng, law)
        below = only_children_below(spine)
        assert below.tolist() == [single_children(spine, i) for i in range(spine.size)]
        for number, level in enumerate(spine.levels):
            members = spine.members[number].tolist()
            expected = ExpectedRows(own, level, pl.Series([spine.geocodes[i] for i in members]), spine, below)
            rows = others = 0
            lost: set[tuple[int, str]] = set()
            for table, loss in losses[level].items():
                kept, variances = [], []
                for rank, position in enumerate(members):
                    siblings = [i for i in range(spine.size) if spine.parent[i] == spine.parent[position]]
                    cannot = number == 0 or len(siblings) > (3 if "laplace" in law else 1)
                    if rng.random() < 0.3:
                        lost |= {(rank, table)} if cannot else set()
                        continue
                    spent = loss
                    depth = int(rng.integers(0, below[position] + 1))  # how many of the only children were bypassed
                    if rng.random() < 0.5:
                        whole = [sum(losses[name].values()) for name in LEVELS[number : number + depth + 1]]
                        spent = loss * sum(whole) / whole[0]
                    else:
                        spent += sum(losses[name].get(table, 0) for name in LEVELS[number + 1 : number + depth + 1])
                    factor = rng.choice([1.0, 1.0, 1.0, 5.0])
                    others, rows = others + (factor > 1), rows + 1
                    kept.append(rank)
                    variances.append(np.float32(factor * variance_of(spent, law)))
                geounits, spread = np.array(kept, dtype=np.intp), np.array(variances, dtype=np.float64)
                expected.add(CANONICAL[table], geounits, spread, np.zeros((len(kept), 1), dtype=np.int32))
            remarks = list(expected.remarks())
            told = numbers(remarks, "missing")
            measured = sum(
                number == 0 or spine.child_counts[spine.parent[i]] > (3 if "laplace" in law else 1) for i in members
            )
            assert told == ([len(lost), len({rank for rank, _ in lost}), measured] if lost else [])
            assert numbers(remarks, "variances") == ([others, rows] if others else [])
            spoilt_somewhere, lost_somewhere = spoilt_somewhere + others, lost_somewhere + len(lost)
    assert spoilt_somewhere
    assert lost_somewhere


def test_what_is_known_exactly_is_not_missing_and_has_no_variance_to_compare() -> None:
    rng = np.random.default_rng(0)
    own, losses = settings(rng, "gaussian")
    spine = Spine.from_geocodes({"US": [""], "State": ["1"]})
    expected = ExpectedRows(own, "US", pl.Series([""]), spine, only_children_below(spine))
    for table in losses["US"]:
        expected.add_known(CANONICAL[table], np.array([0]))
    assert list(expected.remarks()) == []


def test_the_row_that_is_furthest_off_is_the_one_that_is_named() -> None:
    """Of many that are as they should be, one a tenth too large and one, in either table, half as large again."""
    codes = {"US": [""], "State": [str(i) for i in range(1, 8)]}
    spine = Spine.from_geocodes(codes)
    own, losses = settings(np.random.default_rng(1), "gaussian")
    tables = list(losses["State"])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        near, far = rng.choice(7, 2, replace=False)
        worst = str(rng.choice(tables))
        expected = ExpectedRows(own, "State", pl.Series(codes["State"]), spine, only_children_below(spine))
        for table in tables:
            variances = np.full(7, variance_of(losses["State"][table], "gaussian"))
            variances[near] *= 1.1
            variances[far] *= 1.5 if table == worst else 1.0
            expected.add(CANONICAL[table], np.arange(7), variances, np.zeros((7, 1)))
        (text,) = (remark.text for remark in expected.remarks() if remark.about == "variances")
        assert f"that of {CANONICAL[worst]!r} in {codes['State'][far]!r} is" in text, text


@lengths("seeds", range(10), range(10, 100))
def test_chi_square_of_averages_is_the_weighted_sum_of_squares(seeds: range) -> None:
    """Sum over tables of (x - mean)^2 / variance, whatever their number and order."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        tables, geounits, cells = int(rng.integers(2, 6)), int(rng.integers(1, 5)), int(rng.integers(1, 7))
        variances = rng.uniform(0.5, 9, (tables, geounits))
        values = np.round(rng.normal(20, 3, (tables, geounits, cells)))
        averaged, mean, variance = AveragedTables(), values[0], variances[0]
        for x, v in zip(values[1:], variances[1:], strict=True):
            share = variance / (v + variance)
            mean, apart = blended(x, mean, share)
            averaged.add("State", "sex", apart, v + variance, cells)
            variance = v * share
        w = 1 / variances[:, :, None]
        best = (w * values).sum(axis=0) / w.sum(axis=0)
        np.testing.assert_allclose(mean, best, rtol=1e-12)
        expected = (w * (values - best) ** 2).sum()
        (remark,) = averaged.remarks()
        found = re.search(r"chi-square ([\d.,]+) on ([\d,]+) degrees", remark.text)
        assert float(found[1].replace(",", "")) == pytest.approx(expected, rel=1e-5)
        assert int(found[2]) == (tables - 1) * geounits * cells


@every(("factor", "agrees"), [(1.0, True), (4.0, False), (0.25, False)])
def test_averages_that_do_not_agree_are_named(factor: float, agrees: bool) -> None:
    rng = np.random.default_rng(3)
    averaged = AveragedTables()
    for table in ("sex", "age"):
        declared = 8.0 * (factor if table == "age" else 1.0)
        squares = (rng.normal(0, np.sqrt(8.0), (400, 5)) ** 2).sum(axis=1)
        averaged.add("Block", table, squares, np.full(400, declared), 5)
    (remark,) = averaged.remarks()
    assert ("DO NOT AGREE" in remark.text) != agrees
    assert ("worst 'age' at Block" in remark.text) != agrees
    assert list(AveragedTables().remarks()) == []


@lengths("seeds", range(15), range(15, 150))
def test_facilities_that_do_not_add_up_are_counted(seeds: range) -> None:
    wrong_somewhere = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        spine = tree(rng)
        counts = np.zeros((spine.size, 3), dtype=int)
        for i in reversed(range(spine.size)):
            counts[i] = counts[spine.parent == i].sum(axis=0) if spine.child_counts[i] else rng.integers(0, 3, 3)
        kept = rng.random(spine.size) < rng.choice([0.7, 1.0])
        bounds = {}
        for number, level in enumerate(spine.levels):
            bounds[level] = FacilityBounds(has_totals=number < 2)  # where nothing is said of housing units
            own = [(rank, i) for rank, i in enumerate(spine.members[number].tolist()) if kept[i]]
            for is_upper in (False, True):
                values = counts[[i for _, i in own]].reshape(-1, 3)
                values = 99_999 * values if is_upper else np.where(np.arange(3) > 0, values, 0)
                bounds[level].add(is_upper, np.array([rank for rank, _ in own], dtype=np.intp), values)
        expected = {}
        here = counts * kept[:, None]
        stated = [level for level in spine.levels if bounds[level].facilities().height]
        for upper, lower in pairwise(stated):
            above, below = (spine.members[spine.level_index(level)] for level in (upper, lower))
            types = [
                kind
                for kind in range(3)
                if here[above, kind].any() and here[below, kind].any() and (kind or spine.level_index(upper) > 1)
            ]
            inside = spine.ancestors_at(below, spine.level_index(upper))
            off = [i for i in above if (here[i] != here[below[inside == i]].sum(axis=0))[types].any()]
            if off:
                expected[upper] = len(off)
        found = {}
        for remark in facility_remarks(bounds, ("housing_units", "prison", "college"), spine):
            said = re.match(r"of ([\d,]+) geounits at (\w+) ", remark.text)
            found[said[2]] = int(said[1])
        assert found == expected
        assert not (kept.all() and found)
        wrong_somewhere += len(found)
    assert wrong_somewhere


def summed(query: str, cells: np.ndarray, kept: Sequence[str]) -> np.ndarray:
    """Cells of a query summed over other variables than these."""
    said = PRODUCT.said(query)
    shape = PRODUCT.cells(said)[1]
    axes = tuple(axis for axis, name in enumerate(PRODUCT.sizes) if name not in kept)
    return cells.reshape(shape).sum(axis=axes).ravel()


@pytest.mark.few(1)
@pytest.mark.parametrize("kept", [["votingage"], ["hhgq"]])
def test_tables_that_become_one_are_tested_as_they_are_read(kept: list[str], tmp_path: Path) -> None:
    """In memory and streamed; one county has a total that is known besides, of which its measurements are tested."""
    folder, settings = tmp_path / "census", parse_settings(SMALL, "small")
    written = write_small_census(folder)
    county, known = "041100031", sum(b.persons.size for b in written.within(2, "041100031"))
    path = next((folder / "County.parquet" / "Constraint").rglob("*41*/*.parquet"))
    frame = pl.read_parquet(path, hive_partitioning=False)
    row = frame.filter(pl.col("query_name") == "nurse_nva_0_con")[:1].with_columns(
        pl.lit(county).alias("geocode"),
        pl.lit("total_con").alias("query_name"),
        *(pl.lit("*").alias(name) for name in PRODUCT.sizes),
        pl.Series("value", [[known]], dtype=frame.schema["value"]),
    )
    pl.concat([frame, row]).write_parquet(path)
    parts: dict[tuple[str, str, int], list[tuple[np.ndarray, float]]] = {}
    for (level, code, query), (cells, variance) in written.measured.items():
        own = summed(query, cells, kept)
        parts.setdefault((level, code, own.size), []).append((own, variance * cells.size / own.size))
    statistic, degrees = 0.0, 0
    for (level, code, size), found in parts.items():
        weights = np.array([1 / variance for _, variance in found])[:, None]
        tables = np.array([own for own, _ in found])
        exact = size == 1 and (level, code) in (("County", county), ("US", ""))
        total = known if level == "County" else sum(block.persons.size for block in written.blocks)
        mean = total if exact else (weights * tables).sum(axis=0) / weights.sum()
        statistic += float((weights * (tables - mean) ** 2).sum())
        degrees += size * (len(found) - (not exact))
    remarks = [
        read_noisy_measurements(folder, settings, variables=kept).read.remarks,
        estimate_measurements(folder, settings, tmp_path / "out", memory=1e9, variables=kept).read.remarks,
    ]
    assert remarks[0] == remarks[1]
    (said,) = [remark.text for remark in remarks[0] if remark.about == "averaged"]
    numbers = re.search(r"chi-square ([\d.,]+) on ([\d,]+) degrees", said)
    assert float(numbers[1].replace(",", "")) == pytest.approx(statistic, rel=1e-5)
    assert int(numbers[2].replace(",", "")) == degrees
    assert "agree with one another" in said
