"""Folders of noisy measurement files of an invented place, written as the facts describe the released ones.

Nothing of the package's own writer: columns, spellings, partitions, integer widths, bypassed geounits and constraints
are those of the facts. What was drawn is kept, for references that work everything out anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tests.helpers.census_products import Product

A_FACILITY = 99_999
WIDTHS = (pl.Int16, pl.Int32, pl.Int64)


@dataclass
class Block:
    """One block.

    Attributes
    ----------
    codes : tuple of str
        Geocodes from the root down to its own.
    persons : ndarray of int, (cells,)
        The detailed cell of every record.
    units : int
        Housing units.
    facilities : ndarray of int, (types,)
    """

    codes: tuple[str, ...]
    persons: NDArray[np.intp]
    units: int
    facilities: NDArray[np.int64]


@dataclass
class Written:
    """What was drawn, by geolevel, geocode and query, and the truth."""

    blocks: list[Block]
    measured: dict[tuple[str, str, str], tuple[NDArray, float]] = field(default_factory=dict)
    rows: dict[tuple[str, str], int] = field(default_factory=dict)

    def within(self, level: int, code: str) -> list[Block]:
        """The blocks of a geounit."""
        return [block for block in self.blocks if block.codes[level] == code]


def geocodes(
    product: Product, places: Mapping[str, Mapping[str, Sequence[int]]], root: str = "US"
) -> list[tuple[str, ...]]:
    """Codes of blocks, from the root down.

    Parameters
    ----------
    product : Product
    places : mapping of branch and state ("044") to mapping of county ("001") to numbers of blocks
        A number for every tract or, in DHC, every primitive, each of which is cut on by index digits.
    root : {"US", "State"}
    """
    found = []
    extra = len(product.geolevels) - (4 if root == "US" else 3)  # levels between County and Block
    for state, counties in places.items():
        for county, tracts in counties.items():
            at_county = f"{state}10{county}" + ("" if "Prim" in product.geolevels else "1")
            for tract, blocks in enumerate(tracts, 1):
                for own in range(blocks):
                    inner, code = [], f"{at_county}{tract}"
                    for depth in range(extra):
                        code = code if depth == 0 else f"{code}{own % 2 if depth == extra - 1 else 0}"
                        inner.append(code)
                    tabulated = f"{state[1:]}{county}{tract:06}{1}{1000 + own}"
                    top = ("", state) if root == "US" else (state,)
                    found.append((*top, at_county, *inner, f"{code}{tabulated}"))
    return found


def invented(
    product: Product,
    codes: Sequence[tuple[str, ...]],
    kinds: NDArray[np.intp],
    rng: np.random.Generator,
    size: int = 40,
) -> list[Block]:
    """Blocks with records that no edit rule forbids; `kinds` is the type of every level of the first attribute."""
    allowed = product.allowed().reshape(kinds.size, -1)
    found = []
    for number, own in enumerate(codes):
        facilities = np.zeros(max(int(kinds.max()), 1), dtype=np.int64)
        if number % 3 == 1 and kinds.max():
            facilities[number % facilities.size] = 1 + number % 2
        units = 0 if number % 5 == 4 else 30
        cells = []
        for kind in range(kinds.max() + 1):
            present = units > 0 if kind == 0 else facilities[kind - 1] > 0
            if present:
                flags = allowed & (kinds == kind)[:, None]
                cells.append(rng.choice(np.flatnonzero(flags.ravel()), size if kind == 0 else 5 + size // 4))
        records = np.concatenate([np.zeros(0, dtype=np.intp), *cells])
        found.append(Block(own, records, units, facilities))
    return found


def write_census_files(
    folder: Path,
    product: Product,
    blocks: list[Block],
    rng: np.random.Generator,
    *,
    types: str | None,
    states_know_totals: bool = True,
    untrue: Mapping[str, Mapping[str, str]] | None = None,
    total_at: str | None = "US",
) -> Written:
    """Write the folder of a product of persons, with all that the released ones have.

    Parameters
    ----------
    folder : Path
    product : Product
    blocks : list of Block
    rng : Generator
    types : str, optional
        The factor of the bounds; None where there are none.
    states_know_totals : bool
        Whether upper bounds at State and above were lowered to the totals.
    untrue : mapping of constraint to attribute columns, optional
        Equalities that hold of published estimates.
    total_at : str, optional
        The geolevel with an exact total; ``*`` for all.
    """
    written = Written(blocks)
    for number, level in enumerate(product.geolevels):
        rows: dict[str, list[dict[str, Any]]] = {"DPQuery": [], "Constraint": []}
        for code, here, rho in measured_geounits(written, product, number):
            persons = np.concatenate([block.persons for block in here])
            for query in product.queries if rho else ():
                if query == "total" and level == total_at:
                    continue
                rows["DPQuery"].append(measurement(written, product, level, code, query, persons, rho, rng))
            if types is not None:
                rows["Constraint"] += list(_constraints(product, level, code, here, types, states_know_totals))
            if total_at in (level, "*"):
                rows["Constraint"].append(row_of(code, "total_con", product.said("total"), [persons.size], "="))
            for name, said in (untrue or {}).items():
                counts, _ = product.counted(said, persons)
                near = counts + rng.integers(0, 3, counts.size)
                rows["Constraint"].append(row_of(code, name, said, near.tolist(), "="))
        for kind, own in rows.items():
            written.rows[level, kind] = len(own)
            _write(folder / f"{level}.parquet" / kind, own, level, kind, product)
    return written


def _shares(written: Written, product: Product, number: int, code: str) -> float:
    """How many shares of the budget a geounit has: its own and those of only children below; none if it is one."""
    blocks = written.within(number, code)
    above = number and len({b.codes[number] for b in written.within(number - 1, blocks[0].codes[number - 1])}) == 1
    if above:
        return 0.0
    shares, below = 1.0, number + 1
    while below < len(product.geolevels) and len({block.codes[below] for block in blocks}) == 1:
        shares, below = shares + 1, below + 1
    return shares


def measured_geounits(written: Written, product: Product, number: int) -> Iterator[tuple[str, list[Block], float]]:
    """The geounits of a level: codes, blocks, and shares of the budget, 0 where nothing is measured."""
    for code in dict.fromkeys(block.codes[number] for block in written.blocks):
        yield code, written.within(number, code), _shares(written, product, number, code)


def measurement(
    written: Written,
    product: Product,
    level: str,
    code: str,
    query: str,
    persons: NDArray[np.intp],
    rho: float,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """A row of noisy counts, kept among what was drawn."""
    said = product.said(query)
    truth, shape = product.counted(said, persons)
    variance = np.float32(1 / (rho * product.queries[query]))
    values = truth + np.round(rng.normal(0, np.sqrt(variance), truth.size)).astype(np.int64)
    written.measured[level, code, query] = values, float(variance)
    if len(code) % 2:  # two spellings of one thing
        said = {name: name if text == "detailed" else text for name, text in said.items()}
    return row_of(code, f"{query}_dpq", said, values, None) | {"variance": variance, "query_shape": list(shape)}


def row_of(code: str, name: str, said: Mapping[str, str | None], values: Any, sign: str | None) -> dict[str, Any]:
    """A row without noise; `values` are a list or an array, (cells,)."""
    values = np.asarray(values, dtype=np.int64)
    row = {"geocode": code, "query_name": name, **said, "value": values, "variance": np.float32(0), "plb": 0.5}
    return row if sign is None else row | {"sign": sign}


def _constraints(
    product: Product, level: str, code: str, blocks: list[Block], types: str, states_know_totals: bool
) -> Iterator[dict[str, Any]]:
    said = product.said(types)
    facilities = sum(block.facilities for block in blocks)
    lower = np.concatenate([[0], facilities])
    upper = A_FACILITY * np.concatenate([[sum(block.units for block in blocks)], facilities])
    if states_know_totals and level in ("US", "State"):
        total = sum(block.persons.size for block in blocks)
        upper = np.where(upper > 0, np.minimum(upper, total - lower.sum() + lower), 0)
    yield row_of(code, "hhgq_total_lb_con", said, lower.tolist(), ">=")
    yield row_of(code, "hhgq_total_ub_con", said, upper.tolist(), "<=")
    for name, chosen in product.zeros.items():
        yield row_of(code, f"{name}_con", {own: chosen.get(own, "*") for own in product.sizes}, [0], "=")


def _write(place: Path, rows: list[dict[str, Any]], level: str, kind: str, product: Product) -> None:
    """One file for every partition: none at US, ``State=044`` or ``State=44``, and at DHC below also ``County=``."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        state, county = row["geocode"][:3], row["geocode"][:8]
        folders = [] if level == "US" else [f"State={state}" if kind == "DPQuery" else f"State={int(state)}"]
        if "Prim" in product.geolevels and level not in ("US", "State"):
            folders.append(f"County={county}")
        parts.setdefault("/".join(folders), []).append(row)
    for number, (name, own) in enumerate(parts.items()):
        frame = pl.DataFrame([{k: v for k, v in row.items() if k not in ("value", "variance")} for row in own])
        largest = max(abs(row["value"]).max() for row in own)
        width = WIDTHS[number % 3] if largest < 2**15 else pl.Int64
        frame = frame.with_columns(
            pl.Series("value", [pl.Series(row["value"], dtype=width) for row in own]),
            pl.Series("variance", [row["variance"] for row in own], dtype=pl.Float32),
        )
        path = place / name
        path.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(path / f"part-{number:05}-abc.c000.snappy.parquet")
