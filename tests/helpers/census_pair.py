"""Folders of redistricting and DHC persons of the same invented blocks, in block groups that cross."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blue_solvers.results import Result
from tests.helpers.census_files import Block, Written, geocodes, invented, write_census_files
from tests.helpers.census_products import DHC_PERSONS, GQ_8, PL94_PERSONS, Product, groups

TYPES = np.maximum(np.arange(42) - 17, 0)
HHGQ = groups(f"0-17 | {GQ_8}")
SIZES = tuple(DHC_PERSONS.sizes.values())


@dataclass
class CensusPair:
    """Both products, as they were written."""

    redistricting: Path
    demographic: Path
    written: dict[str, Written]

    @property
    def folders(self) -> list[str]:
        """Of redistricting persons, then of DHC persons."""
        return [str(self.redistricting), str(self.demographic)]

    @property
    def geoids(self) -> list[str]:
        """Of the blocks, in order."""
        codes = [block.codes[-1][-16:] for block in self.written["DHC"].blocks]
        return [code[:11] + code[12:] for code in codes]

    def truth(self, *axes: int) -> NDArray[np.int64]:
        """True counts by block and some of relgq, sex, age, hispanic and cenrace."""
        counts = []
        for block in self.written["DHC"].blocks:
            whole = np.bincount(block.persons, minlength=int(np.prod(SIZES))).reshape(SIZES)
            counts.append(whole.sum(axis=tuple(i for i in range(5) if i not in axes)))
        return np.stack(counts)

    def measured(self) -> Iterator[tuple[str, str, str, Product, list[bool], NDArray, float]]:
        """Name of the product, geolevel, query, product, which blocks, noisy counts and variance, row by row."""
        for name, product in (("PL94", PL94_PERSONS), ("DHC", DHC_PERSONS)):
            written = self.written[name]
            for (level, code, query), (values, variance) in written.measured.items():
                inside = [block.codes[product.geolevels.index(level)] == code for block in written.blocks]
                yield name, level, query, product, inside, values, variance


def write_pair(
    place: Path, tracts: Sequence[int], seed: int, empty: Collection[int] = (), persons: int = 500
) -> CensusPair:
    """Write both folders: groups of two blocks in redistricting files, every second block in those of DHC."""
    rng, places = np.random.default_rng(seed), {"044": {"001": list(tracts)}}
    blocks = invented(DHC_PERSONS, geocodes(DHC_PERSONS, places), TYPES, rng, persons)
    for i in empty:
        blocks[i] = Block(blocks[i].codes, blocks[i].persons[:0], 0, 0 * blocks[i].facilities)
    codes = [_grouped(own, i // 2 % 2) for i, own in enumerate(geocodes(PL94_PERSONS, places))]
    coarse = [_as_redistricting(block, own) for block, own in zip(blocks, codes, strict=True)]
    redistricting, demographic = place / PL94_PERSONS.folder, place / DHC_PERSONS.folder
    return CensusPair(
        redistricting,
        demographic,
        {
            "PL94": write_census_files(redistricting, PL94_PERSONS, coarse, rng, types="hhgq", total_at="US"),
            "DHC": write_census_files(demographic, DHC_PERSONS, blocks, rng, types="gqlevels", total_at=None),
        },
    )


def blocks_of(result: Result, geoids: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """The positions of single blocks, as many places are asked about."""
    return {geoid: result.members("Block")[result.geounits("Block", [geoid])] for geoid in geoids}


def _grouped(codes: tuple[str, ...], group: int) -> tuple[str, ...]:
    """The codes of a block in another block group of its tract."""
    *above, tract, _, block = codes
    own = f"{tract}{group}"
    return (*above, tract, own, own + block[len(own) :])


def _as_redistricting(block: Block, codes: tuple[str, ...]) -> Block:
    """The same persons by type of group quarters, voting age, Hispanic origin and race."""
    relgq, _, age, hispanic, race = np.unravel_index(block.persons, SIZES)
    persons = np.ravel_multi_index((HHGQ[relgq], (age >= 18).astype(int), hispanic, race), (8, 2, 2, 63))
    facilities = np.bincount(HHGQ[18:] - 1, weights=block.facilities, minlength=7).astype(np.int64)
    return Block(codes, persons, block.units, facilities)
