"""A folder of households and units of DHC: two histograms in the same geounits, tied by tenure."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tests.helpers.census_files import WIDTHS, Block, Written, measured_geounits, measurement, row_of
from tests.helpers.census_products import Product

UNITS, CELLS = "tenvacgq", 35
RHO_OF_UNITS = 0.15


def histogram_of_units(product: Product, block: Block, rng: np.random.Generator) -> NDArray[np.int64]:
    """Units by tenure, vacancy and type of facility: tenure as households have it, and all others vacant."""
    tenure = np.unravel_index(block.persons, tuple(product.sizes.values()))[5]
    owned = np.bincount(tenure, minlength=3)
    no_pay = int(rng.binomial(owned[2], 0.2))
    vacant = rng.multinomial(max(block.units - int(owned.sum()), 0), np.full(7, 1 / 7))
    return np.concatenate([owned[:2], [owned[2] - no_pay, no_pay], vacant, block.facilities]).astype(np.int64)


def write_housing_files(
    folder: Path, product: Product, blocks: list[Block], rng: np.random.Generator, nothing: str | None
) -> tuple[Written, dict[int, NDArray[np.int64]]]:
    """Write the folder; `nothing` is what columns of the other histogram hold. Also the units of every block."""
    written = Written(blocks)
    units = {id(block): histogram_of_units(product, block, rng) for block in blocks}
    for number, level in enumerate(product.geolevels):
        measured, constraints = [], []
        for code, here, rho in measured_geounits(written, product, number):
            households = np.concatenate([block.persons for block in here])
            own = sum(units[id(block)] for block in here)
            if rho:
                for query in product.queries:
                    row = measurement(written, product, level, code, query, households, rho, rng)
                    measured.append(row | {UNITS: nothing})
                variance = np.float32(1 / (rho * RHO_OF_UNITS))
                noisy = own + np.round(rng.normal(0, np.sqrt(variance), CELLS)).astype(np.int64)
                written.measured[level, code, UNITS] = noisy, float(variance)
                said = dict.fromkeys(product.sizes, nothing) | {UNITS: UNITS}
                row = row_of(code, f"{UNITS}_dpq", said, noisy, None)
                measured.append(row | {"variance": variance, "query_shape": [CELLS]})
            constraints += list(_constraints(product, code, own, households.size, nothing))
        for kind, rows in (("DPQuery", measured), ("Constraint", constraints)):
            written.rows[level, kind] = len(rows)
            if rows:
                _write(folder / f"{level}.parquet" / kind, rows)
    return written, units


def _constraints(
    product: Product, code: str, units: NDArray[np.int64], households: int, nothing: str | None
) -> Iterator[dict[str, Any]]:
    main, other = dict.fromkeys(product.sizes, "*"), dict.fromkeys(product.sizes, nothing)
    yield row_of(code, "h1_toth1occupied", main | {UNITS: nothing}, [households + 2], "=")
    yield row_of(code, "h1_toth1vacant", other | {UNITS: "vacant"}, [int(units[4:11].sum()) - 2], "=")
    exact = [int(units[:11].sum()), *units[11:].tolist()]
    yield row_of(code, "gq_vect", other | {UNITS: "hhgq_vector"}, exact, "=")
    tie = main | {"hhtenshort_3lev": "tenure_3lev", UNITS: "tenure_3lev"}
    yield row_of(code, "owned", tie, [0, 0, 0], "=")
    for name, chosen in product.zeros.items():
        yield row_of(code, f"{name}_con", main | chosen | {UNITS: nothing}, [0], "=")


def _write(place: Path, rows: list[dict[str, Any]]) -> None:
    place.mkdir(parents=True)
    lists = ("value", "variance", "query_shape")
    frame = pl.DataFrame([{k: v for k, v in row.items() if k not in lists} for row in rows], infer_schema_length=None)
    frame = frame.with_columns(
        pl.Series("value", [pl.Series(row["value"], dtype=WIDTHS[1]) for row in rows]),
        pl.Series("variance", [row["variance"] for row in rows], dtype=pl.Float32),
    )
    if "query_shape" in rows[0]:
        frame = frame.with_columns(pl.Series("query_shape", [row["query_shape"] for row in rows]))
    frame.write_parquet(place / "part-0.parquet")
