"""Folders of persons, households and units of the same invented blocks, in groups that cross, and dense algebra."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from tests.helpers.dense_algebra import best

COUNTY, BLOCKS = "04410001", 6
LEVELS = ["State", "County", "Group", "Block"]
GROUP_OF = {"persons": [0, 0, 1, 1, 2, 2], "households": [0, 1, 1, 2, 2, 2], "units": [0, 0, 0, 1, 1, 1]}
# Of a block: householders by relationship, sex and size; other persons by relationship and sex; vacant units.
KINDS = [("householder", (r, s, z)) for r in range(2) for s in range(2) for z in range(3)]
KINDS += [("other", (r, s, -1)) for r in (2, 3) for s in range(2)] + [("vacant", (-1, -1, -1))]
VARIABLES = {
    "persons": {"relgq": 4, "sex": ["male", "female"]},
    "households": {"sex": ["male", "female"], "size": ["one", "two", "three"]},
    "units": {"h1": ["vacant", "occupied"]},
}
MEASURED = {
    "persons": {"total": 3.0, "relgq": 2.0, "relgq * sex": 5.0},
    "households": {"total": 2.0, "size": 1.0, "sex * size": 4.0},
    "units": {"h1": 1.5},
}
COUNTED = {"persons": ("householder", "other"), "households": ("householder",), "units": ("householder", "vacant")}


def cells(product: str, table: str) -> np.ndarray:
    """The 0/1 matrix of a table of one block, (cells, kinds)."""
    names = [] if table == "total" else table.split(" * ")
    sizes = [4 if name == "relgq" else 3 if name == "size" else 2 for name in names]
    found = []
    for cell in np.ndindex(*sizes):
        row = np.zeros(len(KINDS))
        for k, (kind, (relation, sex, size)) in enumerate(KINDS):
            own = {"relgq": relation, "sex": sex, "size": size, "h1": int(kind != "vacant")}
            told = all(own[name] == label for name, label in zip(names, cell, strict=True))
            row[k] = kind in COUNTED[product] and told
        found.append(row)
    return np.array(found)


def codes(product: str) -> list[tuple[str, ...]]:
    """Codes of every block, from the State down."""
    found = []
    for block, group in enumerate(GROUP_OF[product]):
        code, tract = f"{COUNTY}{group}", f"44001{100 + block // 3:06}"
        found.append(("044", COUNTY, code, f"{code}{tract}1{1000 + block}"))
    return found


def geoids() -> list[str]:
    """Of the blocks."""
    return [own[-1][-16:][:11] + own[-1][-16:][12:] for own in codes("persons")]


@dataclass
class Place:
    """What was written, and the best linear unbiased estimate of all of it or some by dense algebra."""

    folder: Path
    rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    values: dict[str, list[float]] = field(default_factory=dict)
    variances: dict[str, list[float]] = field(default_factory=dict)

    def dense(self, *products: str) -> tuple[np.ndarray, np.ndarray]:
        """Estimate and covariance over blocks and kinds; what nothing determines is of least norm."""
        M = np.array([row for name in products for row in self.rows[name]])
        y = np.array([v for name in products for v in self.values[name]])
        v = np.array([v for name in products for v in self.variances[name]])
        return best(M, v, y)

    def inputs(self, *products: str) -> list[str]:
        """Folders."""
        return [str(self.folder / name) for name in products]


def write_place(folder: Path, seed: int) -> Place:
    """Write a folder for each product with a settings.toml in it."""
    rng, place = np.random.default_rng(seed), Place(folder)
    truth = rng.poisson(6, (BLOCKS, len(KINDS))).astype(float)
    for product, tables in MEASURED.items():
        (folder / product).mkdir()
        variables = "\n".join(f"{name} = {own}" for name, own in VARIABLES[product].items())
        losses = "\n".join(f'"{table}" = {["1"] * 4}' for table in tables)
        (folder / product / "settings.toml").write_text(
            f'geolevels = {LEVELS}\nnoise = "gaussian"\n[variables]\n{variables}\n[budget]\nmeasure = "zcdp"\n'
            f'neighbours = "bounded"\n[budget.losses]\n{losses}\n'
        )
        own = codes(product)
        for number, level in enumerate(LEVELS):
            rows = []
            for code in dict.fromkeys(block[number] for block in own):
                inside = np.array([block[number] == code for block in own], dtype=float)
                for table, variance in tables.items():
                    spread = variance * (1 + number / 2)
                    M = np.kron(inside, cells(product, table))
                    noisy = M @ truth.ravel() + np.sqrt(spread) * rng.standard_normal(len(M))
                    place.rows.setdefault(product, []).extend(M)
                    place.values.setdefault(product, []).extend(noisy)
                    place.variances.setdefault(product, []).extend([spread] * len(M))
                    rows.append((code, f"{table}_dpq", noisy.tolist(), spread))
            at = folder / product / f"{level}.parquet" / "DPQuery"
            at.mkdir(parents=True)
            frame = pl.DataFrame(rows, schema=["geocode", "query_name", "value", "variance"], orient="row")
            frame.write_parquet(at / "part.parquet")
    return place
