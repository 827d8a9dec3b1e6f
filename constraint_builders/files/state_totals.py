"""Populations of states that are published exactly, as totals of the geounits that measurement files cut them into.

A state is one geounit, or two: its American Indian and Alaska Native areas, and the rest. The last two characters of
their geocodes are the state's code. The sum of two branches becomes a geounit of its own, above them, at the geolevel
`WHOLE_STATE`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

from constraint_builders.files.exact_totals import ExactTotal, read_exact
from constraint_builders.files.measurement_files import CONSTRAINTS, MEASUREMENTS, files_of, level_folders, read_keys
from constraint_builders.files.naming import naming
from constraint_builders.files.settings import Settings

CENSUS_2020, STATE, WHOLE_STATE = "2020", "State", "Whole_State"
CODE_WIDTH = 2


class StateTotals(NamedTuple):
    """Totals of the states of a folder of measurements.

    Attributes
    ----------
    totals : tuple of ExactTotal
    left_out : tuple of str
        Of every state whose total is given and not used, why.
    """

    totals: tuple[ExactTotal, ...]
    left_out: tuple[str, ...]


def read_state_totals(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    settings: Settings,
    within: Sequence[str] | None = None,
) -> StateTotals:
    """The exact totals of the states that are taken of a folder of measurements, each with its geounits.

    Parameters
    ----------
    source : str or path
        ``"2020"`` for the resident populations of the Census of 2020, of the 50 states and the District of Columbia; or
        a ``.csv`` or ``.parquet`` file with the columns ``state``, codes of two characters, and ``total``.
    folder, settings, within
        As in `read_noisy_measurements`.

    Raises
    ------
    ValueError
        If the file is wrong, as `read_totals`, the folder has no geounits at the geolevel State, or none of the states
        that are taken whole has a total.
    OSError
        If a file cannot be opened.
    """
    known = _census_2020() if source == CENSUS_2020 else _given(source)
    branches = _branches(folder, settings)
    found, left_out = [], []
    for state, codes in branches.items():
        taken = [code for code in codes if within is None or any(code.startswith(prefix) for prefix in within)]
        if state not in known:
            continue
        if not taken:
            cut = [prefix for prefix in within or () if any(prefix.startswith(code) for code in codes)]
            if cut:
                left_out.append(f"the total of state {state} is not used: no more than {', '.join(cut)} is taken of it")
            continue
        if len(taken) < len(codes):
            missing = ", ".join(code for code in codes if code not in taken)
            left_out.append(f"the total of state {state} is not used: {missing}, which it counts too, is not taken")
        else:
            total, place = known[state]
            found.append(ExactTotal(tuple(codes), total, place, WHOLE_STATE))
    if not found and not left_out:
        there = ", ".join(branches)
        raise ValueError(f"{os.fspath(source)}: no total of the states that are taken: the folder has {there}")
    return StateTotals(tuple(found), tuple(left_out))


def _census_2020() -> dict[str, tuple[float, str]]:
    file = resources.files("constraint_builders.files") / "production" / "state_totals_2020.csv"
    rows = [line.split(",") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    return {state: (float(total), f"the state totals of 2020, row {i}") for i, (state, total) in enumerate(rows, 2)}


def _given(source: str | os.PathLike[str]) -> dict[str, tuple[float, str]]:
    found: dict[str, tuple[float, str]] = {}
    with naming(source):
        for state, total, row in read_exact(source, "state"):
            if len(state) != CODE_WIDTH:
                raise ValueError(f"row {row}: state {state!r} must be its code of two characters, such as 44")
            if state in found:
                raise ValueError(f"row {row}: state {state!r} is given twice")
            found[state] = total, f"{os.fspath(source)}, row {row}"
    return found


def _branches(folder: str | os.PathLike[str], settings: Settings) -> dict[str, list[str]]:
    """The geounits of every state, by its code."""
    place = level_folders(folder, settings.geolevels).get(STATE)
    files = [] if place is None else [path for kind in (MEASUREMENTS, CONSTRAINTS) for path in files_of(place, kind)]
    codes = sorted({code for path in files for code in read_keys(path, None)[0]})
    if not codes:
        raise ValueError(f"{os.fspath(folder)}: state totals need its geolevel {STATE!r}, of which there is nothing")
    found: dict[str, list[str]] = {}
    for code in codes:
        found.setdefault(code[-CODE_WIDTH:], []).append(code)
    return dict(sorted(found.items()))
