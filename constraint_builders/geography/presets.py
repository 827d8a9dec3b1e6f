"""The spines and budgets of the 2020 production runs, as presets over a block table.

The AIAN spine splits every state into its American Indian, Alaska Native and Native Hawaiian areas and the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from constraint_builders.description.geo_ids import WIDTHS
from constraint_builders.description.labelled import is_missing
from constraint_builders.description.spine import CENSUS_WIDTHS, Spine
from constraint_builders.geography.bypass import bypass
from constraint_builders.geography.entities import Entities, from_partitions
from constraint_builders.geography.spine_groups import FANOUT_CUTOFF, Variant, chunk_siblings, regroup_blocks
from constraint_builders.geography.strategy import Strategy

if TYPE_CHECKING:
    from constraint_builders.files import Settings


IN_AIAN, OUTSIDE_AIAN = "1", "0"

# AIANNHCE code ranges of the classes that the 2020 production runs put on the spine
# (das source, etc/AIANNHCE_ranges.csv): state-designated and statistical areas are not among them.
AIAN_CLASSES: Mapping[str, tuple[int, int]] = {
    "legal federal": (1, 4799),
    "joint use": (4800, 4989),
    "Hawaiian home land": (5000, 5499),
    "Oklahoma tribal statistical area": (5500, 5899),
    "joint-use Oklahoma tribal statistical area": (5900, 5999),
    "Alaska Native village statistical area": (6000, 7999),
    "state legal": (9000, 9499),
}


def on_spine_areas(codes: Sequence[str], classes: Sequence[str] = tuple(AIAN_CLASSES)) -> list[str]:
    """The area's code of every block, "" where it lies in no area of the given classes.

    Parameters
    ----------
    codes : sequence of str, (L,)
        AIANNHCE of every block, four digits; "", 9999 or missing outside every area.
    classes : sequence of str
        Some of `AIAN_CLASSES`, by default all.

    Raises
    ------
    ValueError
        If a class is unknown or a code is not four digits.
    """
    unknown = [name for name in classes if name not in AIAN_CLASSES]
    if unknown:
        raise ValueError(f"no AIAN class {unknown[0]!r}: there are {', '.join(map(repr, AIAN_CLASSES))}")
    ranges, kept = [AIAN_CLASSES[name] for name in classes], {}
    codes = _codes(codes)
    for code in dict.fromkeys(codes):
        if code and not (len(code) == 4 and code.isascii() and code.isdecimal()):
            raise ValueError(f"AIANNHCE {code!r} is not four digits: give the code as text, '' where there is none")
        kept[code] = code if code and any(low <= int(code) <= high for low, high in ranges) else ""
    return [kept[code] for code in codes]


def _codes(column: Sequence[Any]) -> list[str]:
    """Codes as text, "" where one is missing; asked of each that is none, as columns are long."""
    return [code if type(code) is str else "" if is_missing(code) else str(code or "") for code in column]


def aian_spine(
    geoids: Sequence[str], areas: Sequence[str], widths: Mapping[str, int] | None = None, root: str = "US"
) -> Spine:
    """The AIAN spine of a block table.

    Every geounit below the root is split in the part inside the areas and the part outside, where both exist.

    Parameters
    ----------
    geoids : sequence of str, (L,)
        Identifiers of the blocks.
    areas : sequence of str, (L,)
        Code of every block's on-spine area, "" or missing outside; see `on_spine_areas`.
    widths : mapping of str to int, optional
        Leading characters of `geoids` that identify the geounits of every geolevel, by default the Census Bureau's.
    root : str
        Name of the level above all.

    Returns
    -------
    Spine
        Geocodes begin with "1" inside the areas and "0" outside, as in production; blocks keep their order.

    Raises
    ------
    ValueError
        If lengths differ, or for identifiers that `Spine.from_geoids` refuses.
    """
    if len(areas) != len(geoids):
        raise ValueError(f"areas lists {len(areas):,} blocks, geoids {len(geoids):,}: give one for each")
    within = zip(geoids, _codes(areas), strict=True)
    codes = [(IN_AIAN if area else OUTSIDE_AIAN) + str(geoid) for geoid, area in within]
    longer = {level: width + 1 for level, width in (widths or CENSUS_WIDTHS).items()}
    return Spine.from_geoids(codes, longer, root)


STRONG_MCD_STATES = frozenset(["09", "23", "25", "26", "27", "33", "34", "36", "42", "44", "50", "55"])
"""States whose minor civil divisions are entities outside the AIAN areas: CT ME MA MI MN NH NJ NY PA RI VT WI."""

BlockTable = Mapping[str, Sequence[str]]
"""Columns of codes by name, a row for every block; "" or missing where a block lies in none.

`geoid` (15 digits) and, as the run needs them: `aian` (AIANNHCE), `mcd` (COUSUBFP), `place` (PLACEFP), `gq` (seven
digits 0 or 1: which major types of group quarters the block has), `prim` (code of the primitive within the county),
`school_district`.
"""


@dataclass(frozen=True)
class ProductionRun:
    """One production run of 2020.

    Attributes
    ----------
    name : str
    settings_name : str
        What `constraint_builders.files.production_settings` calls its schema and budget.
    product : {"redistricting", "DHC"}
        Which spine.
    columns : tuple of str
        Columns of the block table that it needs.
    root : {"US", "State"}
        The geolevel of the root: Puerto Rico is one by itself, at the level of the states.

    References
    ----------
    Paper, section 6. Budgets: signed certificate of the redistricting runs; public code of the DHC runs.
    """

    name: str
    settings_name: str
    product: str
    columns: tuple[str, ...]
    root: str = "US"

    def entities(self, blocks: BlockTable, variant: Variant = "paper") -> Entities:
        """The run's categories of off-spine entities, each with the region outside as one more.

        Parameters
        ----------
        blocks : mapping of str to sequence of str
            See `BlockTable`.
        variant : {"paper", "production"}
            The production code of the DHC runs also keeps combinations of group quarters apart, which the paper does
            not say; `gq` is then needed too.

        Raises
        ------
        ValueError
            If a column is missing, columns differ in length, or a `geoid` is not of 15 digits.
        """
        columns = self._read(blocks, variant)
        areas = on_spine_areas(columns["aian"])
        categories: dict[str, Sequence[str]] = {"AIAN": areas} if "aian" in self.columns else {}
        if "gq" in columns:
            categories["GQ"] = columns["gq"]
        if self.product == "DHC":
            categories["school district"] = columns["school_district"]
            categories["block group"] = [geoid[:12] for geoid in columns["geoid"]]
        else:
            categories |= minor_civil_divisions_and_places(columns, areas)
        return Entities.from_labels(categories)

    def spine(self, blocks: BlockTable, *, variant: Variant = "paper", fanout_cutoff: int = FANOUT_CUTOFF) -> Spine:
        """The optimised spine before any geounit is bypassed.

        The tract groups of the redistricting runs have share 0, are always bypassed and then called tracts again: they
        leave no trace, and are not made.

        Parameters
        ----------
        blocks, variant
            As for `entities`.
        fanout_cutoff : int
            See `most_members`.

        Raises
        ------
        ValueError
            As for `entities`.
        """
        columns = self._read(blocks, variant)
        if self.product == "DHC":
            plain = _tract_subset_spine(columns, self.root)
            plain = chunk_siblings(
                plain, "Tract_Subset", "Tract_Subset_Group", fanout_cutoff=fanout_cutoff, variant=variant
            )
        elif self.root == "State":
            plain = Spine.from_geoids(columns["geoid"])
        else:
            plain = aian_spine(columns["geoid"], on_spine_areas(columns["aian"]))
        return regroup_blocks(plain, self.entities(blocks, variant), fanout_cutoff=fanout_cutoff, variant=variant)

    def strategy(self, spine: Spine, *, bypassed: bool = True) -> Strategy:
        """The run's budget on a spine with its levels, zCDP with bounded neighbours.

        Parameters
        ----------
        spine : Spine
            Usually of `spine`.
        bypassed : bool
            Whether geounits with one child are bypassed, as in production.

        Raises
        ------
        ValueError
            If the spine lacks a geolevel.
        ImportError
            If polars is not there: settings come with the extra ``frames``.
        """
        budget = self.settings().budget
        strategy = Strategy.from_levels(
            spine, budget.total, budget.geolevel_shares, budget.query_shares, budget.measure, budget.neighbours
        )
        return bypass(strategy) if bypassed else strategy

    def settings(self) -> Settings:
        """The run's schema and budget; `strategy` says for which errors."""
        from constraint_builders.files import production_settings  # needs polars, which the spines do not

        return production_settings(self.settings_name)

    def _read(self, blocks: BlockTable, variant: Variant) -> dict[str, list[str]]:
        wanted = [*self.columns, *(["gq"] if self.product == "DHC" and variant == "production" else [])]
        missing = [name for name in wanted if name not in blocks]
        if missing:
            raise ValueError(f"the block table lacks column {missing[0]!r}: the run {self.name!r} needs {wanted}")
        columns = {name: _codes(blocks[name]) for name in wanted}
        wrong = [geoid for geoid in columns["geoid"] if not (len(geoid) == WIDTHS["block"] and geoid.isdecimal())]
        if wrong:
            raise ValueError(f"geoid {wrong[0]!r} is not of 15 digits: give it as text, for its leading zeros")
        lengths = {name: len(codes) for name, codes in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns of the block table differ in length: {lengths}")
        states = {geoid[:2] for geoid in columns["geoid"]}
        if self.root == "State" and len(states) > 1:
            raise ValueError(f"the run {self.name!r} is of one state: the blocks lie in {', '.join(sorted(states))}")
        nowhere = [""] * len(columns["geoid"])
        return {"aian": nowhere, "mcd": nowhere, **columns}


REDISTRICTING_PERSONS = ProductionRun(
    "redistricting persons", "pl94_us_persons", "redistricting", ("geoid", "aian", "gq", "mcd", "place")
)
REDISTRICTING_UNITS = ProductionRun(
    "redistricting units", "pl94_us_units", "redistricting", ("geoid", "aian", "mcd", "place")
)
DHC_PERSONS = ProductionRun("DHC persons", "dhc_us_persons", "DHC", ("geoid", "aian", "prim", "school_district"))
DHC_UNITS = ProductionRun("DHC units", "dhc_us_units", "DHC", DHC_PERSONS.columns)
"""Its settings are of the histogram of households; `dhc_us_units_tenvacgq` has the run's other one."""

PR_REDISTRICTING_PERSONS = ProductionRun(
    "redistricting persons, Puerto Rico", "pl94_pr_persons", "redistricting", ("geoid", "gq", "place"), "State"
)
PR_REDISTRICTING_UNITS = ProductionRun(
    "redistricting units, Puerto Rico", "pl94_pr_units", "redistricting", ("geoid", "place"), "State"
)
PR_DHC_PERSONS = ProductionRun(
    "DHC persons, Puerto Rico", "dhc_pr_persons", "DHC", ("geoid", "prim", "school_district"), "State"
)
PR_DHC_UNITS = ProductionRun("DHC units, Puerto Rico", "dhc_pr_units", "DHC", PR_DHC_PERSONS.columns, "State")

RUNS = {
    run.name: run
    for run in (
        REDISTRICTING_PERSONS, REDISTRICTING_UNITS, DHC_PERSONS, DHC_UNITS,
        PR_REDISTRICTING_PERSONS, PR_REDISTRICTING_UNITS, PR_DHC_PERSONS, PR_DHC_UNITS,
    )
}  # fmt: skip


def minor_civil_divisions_and_places(blocks: BlockTable, areas: Sequence[str]) -> dict[str, list[str]]:
    """The categories MCD and place.

    A block outside the AIAN areas of a strong-MCD state counts for its MCD, any other for its place.

    Parameters
    ----------
    blocks : mapping of str to sequence of str
        With columns `geoid`, `mcd` and `place`.
    areas : sequence of str, (L,)
        Code of every block's AIAN area, "" outside.

    Returns
    -------
    dict of str to list of str
        ``"MCD"``, codes with those of state and county before them, and ``"place"``, with the state's.
    """
    mcds, places = [], []
    for geoid, area, mcd, place in zip(blocks["geoid"], areas, blocks["mcd"], blocks["place"], strict=True):
        strong = geoid[:2] in STRONG_MCD_STATES and not area
        mcds.append(geoid[:5] + mcd if strong and mcd else "")
        places.append(geoid[:2] + place if place and not strong else "")
    return {"MCD": mcds, "place": places}


def _tract_subset_spine(columns: Mapping[str, Sequence[str]], root: str) -> Spine:
    """Levels from the root's to Prim, Tract_Subset, Block_Group and Block, split by AIAN area below the US."""
    areas = on_spine_areas(columns["aian"])
    names = ("US", "State", "County", "Prim", "Tract_Subset", "Block_Group", "Block")
    levels: dict[str, list[str]] = {level: [] for level in names[names.index(root) :]}
    for geoid, area, prim in zip(columns["geoid"], areas, columns["prim"], strict=True):
        branch = "" if root != "US" else IN_AIAN if area else OUTSIDE_AIAN
        code, state = branch + geoid, len(branch) + 2
        in_prim = f"{code[: state + 3]}.{prim}"
        subset = f"{in_prim}.{code[state + 3 : state + 9]}.{area}"
        path = ("", code[:state], code[: state + 3], in_prim, subset, f"{subset}.{code[state + 9]}", code)
        for level, geocode in zip(names, path, strict=True):
            if level in levels:
                levels[level].append(geocode)
    return from_partitions(levels)
