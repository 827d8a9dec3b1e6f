"""Settings of small mechanisms, and releases that the command simulates by them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from blue_solvers.cli import main

HOUSEHOLDS: Mapping[str, int | list[str]] = {
    "hisp": 2,
    "race": 7,
    "hhtenshort_3lev": ["mortgage", "owned_free", "rented"],
}


def settings_of(
    geolevels: Sequence[str],
    variables: Mapping[str, int | list[str]],
    losses: Mapping[str, str | list[str]],
    recodes: str = "",
) -> str:
    """Text of settings with discrete Gaussian noise; a loss is that of a table at every geolevel, or a list."""
    spent = {table: own if isinstance(own, list) else [own] * len(geolevels) for table, own in losses.items()}
    lines = [f"geolevels = {json.dumps(geolevels)}", 'noise = "discrete_gaussian"', "[variables]"]
    lines += [f"{name} = {json.dumps(levels)}" for name, levels in variables.items()]
    lines += ["[recodes]", recodes, "[budget]", "[budget.losses]"]
    return "\n".join([*lines, *(f"{json.dumps(table)} = {json.dumps(own)}" for table, own in spent.items()), ""])


def simulate(
    folder: Path, settings: str, geoids: Sequence[str], cells: Sequence[str], counts: np.ndarray, seed: int
) -> Path:
    """Write ``settings.toml``, ``blocks.csv`` of counts (geoids, cells), and a release of these to ``release``."""
    (folder / "settings.toml").write_text(settings)
    frame = pl.DataFrame({"geoid": geoids} | {cell: counts[:, i] for i, cell in enumerate(cells)})
    frame.write_csv(folder / "blocks.csv")
    release = folder / "release"
    options = ["--settings", str(folder / "settings.toml"), "--seed", str(seed), "--out", str(release)]
    assert main(["simulate", str(folder / "blocks.csv"), *options]) == 0
    return release
