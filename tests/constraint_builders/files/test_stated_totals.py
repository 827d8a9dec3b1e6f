"""Totals that are stated: refused if what was measured or is implied cannot be reconciled with them, and no others."""

from pathlib import Path

import numpy as np
import pytest

from constraint_builders import Schema, Spine
from constraint_builders.files import read_noisy_measurements, read_state_totals
from constraint_builders.files.exact_totals import ExactTotal, refuse_doubtful
from constraint_builders.files.settings import parse_settings
from tests.helpers.effort import first_of, lengths
from tests.helpers.small_census import SETTINGS, persons_in, write_small_census

SCHEMA = Schema({"sex": 2, "age": 5})
SIZES = {"total": 1, "sex": 2, "sex * age": 10}
CODES = {"US": [""], "State": ["1", "2", "3"], "County": [f"{s}{c}" for s in "123" for c in "abcd"]}
SPINE = Spine.from_geocodes({**CODES, "Block": [f"{county}{b}" for county in CODES["County"] for b in "xy"]})


def generations(position: int) -> list[list[int]]:
    """A geounit, its children and its grandchildren."""
    found = [[position]]
    for _ in range(2):
        found.append([i for i in range(SPINE.size) if SPINE.parent[i] in found[-1]])
    return [own for own in found if own]


@lengths("seeds", range(25), range(25, 400))
def test_refused_where_no_noise_explains_it(seeds: range) -> None:
    """The reference takes every table's sum at every generation, and weighs them one by one."""
    refused = dict.fromkeys(["noise", "bounds", "exact", "taken"], 0)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        truth = {i: float(rng.integers(50, 200)) for i in range(SPINE.size) if SPINE.child_counts[i] == 0}
        for i in reversed(range(SPINE.size)):
            if i not in truth:
                truth[i] = sum(truth[j] for j in range(SPINE.size) if SPINE.parent[j] == i)
        variances, totals, implied = {}, {}, {}
        for number, level in enumerate(SPINE.levels):
            members = SPINE.members[number]
            variances[level], totals[level] = {}, {}
            for name, size in SIZES.items():
                if rng.random() < 0.3:
                    continue
                own = rng.choice([1.0, 4.0, 25.0], members.size)
                own[rng.random(members.size) < 0.15] = np.inf
                if name == "total" and rng.random() < 0.1:
                    own[:] = 0
                noise = rng.normal(size=members.size) * np.sqrt(np.where(np.isfinite(own), own * size, 0))
                variances[level][name], totals[level][name] = own, np.array([truth[i] for i in members]) + noise
            if rng.random() < 0.5:
                implied[level] = {rank: round(truth[i]) for rank, i in enumerate(members) if rng.random() < 0.9}
                if rng.random() < 0.3:
                    implied[level] = {rank: own + 1000 for rank, own in implied[level].items()}
        position = int(rng.integers(0, 4))
        stated = truth[position] + rng.choice([0, 0, 1, 3, -10, 50, 4000])
        sums, exact, derived = [], [], []
        for units in generations(position):
            level = SPINE.levels[SPINE.level_of[units[0]]]
            ranks = [int(SPINE.rank_in_level[i]) for i in units]
            for name, size in SIZES.items():
                if name in variances[level]:
                    own = variances[level][name][ranks].sum() * size
                    count = totals[level][name][ranks].sum()
                    (exact if own == 0 else sums).append((count, own))
            if all(rank in implied.get(level, {}) for rank in ranks):
                derived.append(sum(implied[level][rank] for rank in ranks))
        sums = [(count, own) for count, own in sums if np.isfinite(own)]
        weight = sum(1 / own for _, own in sums)
        mean = sum(count / own for count, own in sums) / weight if sums else stated
        far = 6 / np.sqrt(weight) + 0.5 if sums else np.inf
        believed = [own for own in derived if abs(own - mean) <= far]
        reason = ""
        if any(count != stated for count, _ in exact):
            reason = "exact"
        elif abs(stated - mean) > far:
            reason = "noise"
        elif any(own != stated for own in believed):
            reason = "bounds"
        arguments = (SCHEMA, ExactTotal(("x",), stated, "t.csv, row 2"), position, SPINE, variances, totals, implied)
        if reason:
            said = {"exact": "known exactly adds up", "noise": "it was measured as", "bounds": "imply"}[reason]
            with pytest.raises(
                ValueError, match=rf"t\.csv, row 2: the total is {stated:,.0f}, and .*{said}.* no noise"
            ):
                refuse_doubtful(*arguments, "discrete_gaussian")
        else:
            refuse_doubtful(*arguments, "discrete_gaussian")
        refused[reason or "taken"] += 1
    assert all(refused.values()), refused


def test_noise_of_heavier_tails_explains_more() -> None:
    tables = {"State": {"total": np.array([1.0, np.inf, np.inf])}}, {"State": {"total": np.array([100.0, 0, 0])}}
    known = ExactTotal(("1",), 110.0, "t.csv, row 2")
    position = SPINE.position("State", "1")
    refuse_doubtful(SCHEMA, known, position, SPINE, *tables, {}, "laplace")
    with pytest.raises(ValueError, match=r"measured as 100\.0 with a standard error of 1\.0"):
        refuse_doubtful(SCHEMA, known, position, SPINE, *tables, {}, "gaussian")


@pytest.mark.few(0)
@pytest.mark.parametrize("bounds", first_of([True, False], 1))
def test_state_totals_are_compared_with_bounds_and_measurements(bounds: bool, tmp_path: Path) -> None:
    settings = parse_settings(SETTINGS, "small")
    written = write_small_census(tmp_path / "census", states_know_totals=bounds)
    known = {state: persons_in(written, state) for state in ("41", "44")}
    for state in known:
        for off in (0, 2, -4, 60):
            (tmp_path / "states.csv").write_text(f"state,total\n{state},{known[state] + off}\n")
            totals = read_state_totals(tmp_path / "states.csv", tmp_path / "census", settings).totals
            if off == 60:
                with pytest.raises(ValueError, match=r"states\.csv, row 2: the total is \d+, and it was measured as"):
                    read_noisy_measurements(tmp_path / "census", settings, totals=totals)
            elif off and bounds:
                with pytest.raises(
                    ValueError, match=rf"row 2: the total is \d+, and the bounds .* imply {known[state]}:"
                ):
                    read_noisy_measurements(tmp_path / "census", settings, totals=totals)
            else:
                read_noisy_measurements(tmp_path / "census", settings, totals=totals)
    both = [f"{state},{known[state] + off}" for state, off in (("41", 0), ("44", 3))]
    (tmp_path / "states.csv").write_text("\n".join(["state,total", *both]))
    totals = read_state_totals(tmp_path / "states.csv", tmp_path / "census", settings).totals
    with pytest.raises(ValueError, match=r"row 3: .* imply|are the totals of .*states\.csv of these measurements"):
        read_noisy_measurements(tmp_path / "census", settings, totals=totals)
