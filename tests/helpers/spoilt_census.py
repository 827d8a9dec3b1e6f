"""Sixty-odd ways in which a folder of measurement files is spoilt on its way, and what has to become of each."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from tests.helpers.small_census import write_small_census

Spoil = Callable[[Path], None]
Change = Callable[[pl.DataFrame], pl.DataFrame]

QUERY, CODE = pl.col("query_name"), pl.col("geocode")
EVERY_OTHER = pl.int_range(pl.len()) % 2 == 0
LEVELS = ("State", "County", "Tract", "Block_Group", "Block")
REFUSED, NAMED, RIGHT = "refused", "named", "right"
MEASURED, KNOWN = "DPQuery", "Constraint"


@dataclass(frozen=True)
class Case:
    """What is done to a folder, and what becomes of it.

    Attributes
    ----------
    spoil : callable
        Changes the folder.
    becomes : str
        `REFUSED`, exit code 2 and one line; `NAMED`, an estimate with a line; or `RIGHT`, an estimate that is right.
    says : str
        A pattern of the line.
    """

    spoil: Spoil
    becomes: str
    says: str = ""


def change(level: str | None, kind: str | None, how: Change) -> Spoil:
    """Write files anew, of one level and one kind or of all; a file that is left empty is removed."""

    def spoil(folder: Path) -> None:
        paths = [path for path in sorted(folder.rglob("*.parquet")) if path.is_file()]
        paths = [p for p in paths if level is None or f"{level}.parquet" in p.relative_to(folder).parts]
        paths = [p for p in paths if kind is None or kind in p.relative_to(folder).parts]
        assert paths
        changed = 0
        for path in paths:
            before = pl.read_parquet(path, hive_partitioning=False)
            after = how(before)
            changed += not after.equals(before)
            if after.height:
                after.write_parquet(path)
            else:
                path.unlink()
        assert changed

    return spoil


def without(level: str, kind: str = "") -> Spoil:
    return lambda folder: shutil.rmtree(folder / f"{level}.parquet" / kind)


def swapped(one: str, other: str) -> Spoil:
    """Two files or folders under one another's names."""

    def spoil(folder: Path) -> None:
        first, second, aside = folder / one, folder / other, folder / "aside"
        first.rename(aside)
        second.rename(first)
        aside.rename(second)

    return spoil


def both(*spoils: Spoil) -> Spoil:
    def spoil(folder: Path) -> None:
        for own in spoils:
            own(folder)

    return spoil


def of_another(level: str, kind: str) -> Spoil:
    """Files of another census, of four times as many people."""

    def spoil(folder: Path) -> None:
        other = folder.parent / "other"
        write_small_census(other, seed=99, size=160)
        shutil.rmtree(folder / f"{level}.parquet" / kind)
        shutil.copytree(other / f"{level}.parquet" / kind, folder / f"{level}.parquet" / kind)

    return spoil


def where(condition: pl.Expr, column: str, value: pl.Expr) -> Change:
    return lambda frame: frame.with_columns(pl.when(condition).then(value).otherwise(pl.col(column)).alias(column))


def emptied(column: str, value: float | None = None) -> Change:
    """Half of a column without what stood there."""
    return where(EVERY_OTHER, column, pl.lit(value))


def kept(condition: pl.Expr) -> Change:
    return lambda frame: frame.filter(condition)


def times(factor: float, condition: pl.Expr | None = None) -> Change:
    own = pl.col("variance") * factor
    return where(pl.lit(True) if condition is None else condition, "variance", own.cast(pl.Float32))


def values(how: Callable[[list], list], name: str | None = None) -> Change:
    """The lists of all rows, or of those of one name, changed."""

    def changed(frame: pl.DataFrame) -> pl.DataFrame:
        rows = frame.select("query_name", "value").iter_rows()
        lists = [how(own) if name in (None, query) else own for query, own in rows]
        return frame.with_columns(pl.Series("value", lists, dtype=pl.List(pl.Int64)))

    return changed


def turned(cells: list[int]) -> list[int]:
    """The cells of the finest table in the other order of its variables."""
    found: list[int] = np.array(cells).reshape(8, 2).T.ravel().tolist()
    return found


def rotated(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of every geounit under the code of another."""
    codes = frame["geocode"].unique(maintain_order=True).to_list()
    return frame.with_columns(CODE.replace_strict(dict(zip(codes, codes[1:] + codes[:1], strict=True))))


def with_bounds_renamed(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(QUERY.str.replace("_lb_", "_?_").str.replace("_ub_", "_lb_").str.replace(r"_\?_", "_ub_"))


def kept_twice(level: str, kind: str) -> Spoil:
    """A file once more, under a name of its own."""

    def spoil(folder: Path) -> None:
        first = min((folder / f"{level}.parquet" / kind).rglob("*.parquet"))
        shutil.copy(first, first.with_name("part-of-before.parquet"))

    return spoil


LOST_ZERO = where(CODE.str.starts_with("0"), "geocode", CODE.str.slice(1))
HALF_LOST_ZERO = where(CODE.str.starts_with("0") & EVERY_OTHER, "geocode", CODE.str.slice(1))
ONE_BLOCK, ONE_TRACT = CODE.str.ends_with("4400300000111000"), CODE == "0411000111"
BRANCH = CODE.str.starts_with("141")


def shifted(count: int) -> Change:
    return values(lambda cells: [cells[0] + count, *cells[1:]], "total_con")


CASES: dict[str, Case] = {
    # Levels, branches and geounits that were not copied.
    "US not copied": Case(without("US"), RIGHT),
    **{f"{level} not copied": Case(without(level), REFUSED, f"nothing in {level}.parquet") for level in LEVELS},
    **{
        f"measurements of {level} not copied": Case(
            without(level, MEASURED), REFUSED, f"at '{level}', only constraints"
        )
        for level in LEVELS
    },
    "constraints of counties not copied": Case(
        without("County", KNOWN), NAMED, "missing +geounits at County above 2 of 8 codes at Tract, '1411000111' first"
    ),
    "constraints of blocks not copied": Case(without("Block", KNOWN), REFUSED, r"Block_Group '\d+' has no geounits"),
    "constraints of the nation not copied": Case(
        without("US", KNOWN), NAMED, "missing +at US the exact 'total' of 1 geounits, which the settings do"
    ),
    "a branch not copied": Case(change(None, None, kept(~BRANCH)), REFUSED, "US '' counts .* one is missing"),
    "a branch not copied at blocks": Case(change("Block", None, kept(~BRANCH)), REFUSED, "as 4 in all: a partition is"),
    "a branch not copied below State": Case(
        both(*(change(level, None, kept(~BRANCH)) for level in LEVELS[1:])),
        REFUSED,
        "State '141' has no geounits below",
    ),
    "a block not copied": Case(
        change("Block", None, kept(~ONE_BLOCK)),
        NAMED,
        "facilities of 1 geounits at Block_Group .*: '04410003110' has 30 housing_units, for 0; geounits",
    ),
    "a tract not copied": Case(
        change("Tract", None, kept(~ONE_TRACT)), NAMED, "missing +geounits at Tract above 2 of 16 codes at Block_Group"
    ),
    # Rows that are missing, or empty.
    **{
        f"half the rows of {level} missing": Case(
            change(level, MEASURED, kept(~EVERY_OTHER)), NAMED, rf"missing +at {level} [\d,]+ measurements, in"
        )
        for level in LEVELS
    },
    "half the constraints of blocks missing": Case(
        change("Block", KNOWN, kept(~EVERY_OTHER)), NAMED, r"facilities of \d geounits at Block_Group are not those at"
    ),
    "totals of states missing": Case(
        change("State", MEASURED, kept(QUERY != "total_dpq")), NAMED, "missing +at State 3 measurements, in 3 of 3"
    ),
    "all of one table missing": Case(
        change("Block", MEASURED, kept(QUERY != "detailed_dpq")), NAMED, "missing +at Block 8 measurements, in 8 of 8"
    ),
    "half the values null": Case(
        change("Block", MEASURED, emptied("value")), NAMED, "missing +at Block 20 measurements"
    ),
    "half the variances null": Case(change("Block", MEASURED, emptied("variance")), NAMED, "missing +at Block 20 "),
    "half the variances infinite": Case(
        change("Tract", MEASURED, emptied("variance", float("inf"))), NAMED, "missing +at Tract 15 measurements"
    ),
    "half the names null": Case(
        change("Block", MEASURED, emptied("query_name")), REFUSED, "'query_name' is empty in row"
    ),
    "half the geocodes null": Case(change("Block", KNOWN, emptied("geocode")), REFUSED, "'geocode' is empty in row 1"),
    "half a column of attributes null": Case(change("Block", MEASURED, emptied("hhgq")), RIGHT),
    "half a column of constraints null": Case(
        change("Block", KNOWN, emptied("hhgq")),
        NAMED,
        r"not used +nurse_nva_0_con at Block, \d+ rows: column 'hhgq' is",
    ),
    "half the signs null": Case(
        change("Block", KNOWN, emptied("sign")), NAMED, r"nurse_nva_0_con at Block, \d+ rows: it"
    ),
    "shapes null": Case(change(None, MEASURED, lambda frame: frame.drop("query_shape")), RIGHT),
    "a value within lists null": Case(
        change("Block", MEASURED, values(lambda own: [None, *own[1:]], "detailed_dpq")), REFUSED, "a value is empty"
    ),
    "lists cut": Case(
        change("Tract", MEASURED, values(lambda own: own[:-1])), REFUSED, "0 values, but table 'total' has 1|empty"
    ),
    **{
        f"column {name} missing": Case(
            change("County", MEASURED, lambda frame, name=name: frame.drop(name)),
            REFUSED,
            f"column '{name}' is missing",
        )
        for name in ("value", "variance", "geocode", "query_name")
    },
    "signs missing": Case(
        change("County", KNOWN, lambda frame: frame.drop("sign")),
        NAMED,
        "nurse_nva_0_con at County, 5 rows: it has no sign",
    ),
    # Variances.
    "variances of blocks times 4": Case(
        change("Block", MEASURED, times(4)), NAMED, "variances +at Block 40 of 40 rows"
    ),
    "all variances times 4": Case(change(None, MEASURED, times(4)), NAMED, "DOES NOT FIT"),
    "all variances divided by 4": Case(change(None, MEASURED, times(0.25)), NAMED, "DOES NOT FIT"),
    "variances of a table times 4": Case(
        change("County", MEASURED, times(4, QUERY == "hhgq_dpq")),
        NAMED,
        "variances +at County 4 of 20 rows .*'hhgq' in",
    ),
    "variances of a geounit times 4": Case(
        change("Tract", MEASURED, times(4, ONE_TRACT)), NAMED, "variances +at Tract 5 of 30 rows have .*in '0411000111'"
    ),
    "standard errors for variances": Case(
        change("Tract", MEASURED, lambda frame: frame.with_columns(pl.col("variance").sqrt())),
        NAMED,
        "variances +at Tract",
    ),
    "variances of two tables swapped": Case(
        change("County", MEASURED, where(QUERY == "total_dpq", "variance", pl.lit(100.0, dtype=pl.Float32))),
        NAMED,
        "variances +at County 4 of 20 rows have others than the settings say: that of 'total'",
    ),
    "variances of 0": Case(change("County", MEASURED, times(0, QUERY == "hhgq_dpq")), REFUSED, "variance 0.0 is none"),
    "variances negative": Case(change("County", MEASURED, times(-1)), REFUSED, r"variance -\d.* is none of noise"),
    # Geocodes.
    **{
        f"geocodes of {level} without their zero": Case(change(level, None, LOST_ZERO), REFUSED, "lost leading zeros")
        for level in LEVELS
    },
    **{
        f"half the geocodes of {level} without their zero": Case(
            change(level, None, HALF_LOST_ZERO), REFUSED, "lost leading zeros"
        )
        for level in LEVELS
    },
    "measured geocodes without their zero": Case(
        change("Block", MEASURED, LOST_ZERO), REFUSED, "8 of 28 codes at Block"
    ),
    "known geocodes without their zero": Case(change("County", KNOWN, LOST_ZERO), REFUSED, "4 of 9 codes at County"),
    "geocodes cut": Case(change("Tract", None, where(pl.lit(True), "geocode", CODE.str.slice(0, 9))), REFUSED, "twice"),
    "geocodes as numbers": Case(
        change("County", None, lambda frame: frame.with_columns(CODE.cast(pl.Int64))),
        REFUSED,
        "must hold text, for leading",
    ),
    "geocodes with spaces": Case(
        change("County", None, where(pl.lit(True), "geocode", CODE + " ")), REFUSED, "codes there hold spaces"
    ),
    # Files in one another's place, and of elsewhere.
    "measurements and constraints swapped": Case(
        swapped("County.parquet/DPQuery", "County.parquet/Constraint"),
        REFUSED,
        "'hhgq_total_lb_con', which does not belong",
    ),
    "two levels swapped": Case(
        swapped("County.parquet", "Tract.parquet"), REFUSED, "Tract '041100011' has no geounits below it, as 5"
    ),
    "measurements of two levels swapped": Case(
        swapped("County.parquet/DPQuery", "Tract.parquet/DPQuery"), REFUSED, "no geounits below it|begin with none of"
    ),
    "names of partitions swapped": Case(
        swapped("Block.parquet/DPQuery/State=041", "Block.parquet/DPQuery/State=044"), RIGHT
    ),
    "measurements of another census": Case(of_another("County", MEASURED), REFUSED, "no noise explains that"),
    "blocks of another census": Case(of_another("Block", MEASURED), REFUSED, "no noise explains that"),
    "constraints of another census": Case(of_another("State", KNOWN), NAMED, "bounds +State: .* of 3 .* 0 agree"),
    "rows twice": Case(change("Block", MEASURED, lambda frame: pl.concat([frame, frame])), REFUSED, "is given twice"),
    "counts doubled": Case(
        change("County", MEASURED, values(lambda own: [2 * x for x in own])), REFUSED, "no noise explains"
    ),
    "cells in the other order": Case(
        change("Tract", MEASURED, values(turned, "detailed_dpq")),
        NAMED,
        "DOES NOT FIT .*worst table 'detailed' at Tract",
    ),
    "cells backwards": Case(
        change("County", MEASURED, values(lambda own: own[::-1], "hhgq_dpq")), NAMED, "DOES NOT FIT .*'hhgq' at County"
    ),
    "negative values made 0": Case(
        change("Block", MEASURED, values(lambda own: [max(x, 0) for x in own])),
        NAMED,
        r"values +at Block no value is below 0, and \d+ are within half a standard error",
    ),
    "values that are not whole": Case(
        change("Tract", MEASURED, lambda frame: frame.with_columns(pl.col("value").list.eval(pl.element() + 0.5))),
        NAMED,
        "values +at Tract [0-9]+ are not whole",
    ),
    "measured blocks in one another's place": Case(
        change("Block", MEASURED, rotated), NAMED, "DOES NOT FIT .*worst table 'total' at Block"
    ),
    "known blocks in one another's place": Case(
        change("Block", KNOWN, rotated), NAMED, r"facilities of \d+ geounits at Block_Group are not those at Block"
    ),
    "measured tracts in one another's place": Case(
        change("Tract", MEASURED, rotated), REFUSED, "Tract '[0-9]+' counts .* no noise explains that"
    ),
    "a file of before": Case(kept_twice("Block", MEASURED), REFUSED, "table 'total' of Block .* is given twice"),
    "bounds under one another's names": Case(
        change("Block", KNOWN, with_bounds_renamed),
        NAMED,
        "hhgq_total_ub_con at Block, 20 rows: its sign is '>=', that of such bounds '<='",
    ),
    "suffixes lost": Case(
        change("County", MEASURED, where(pl.lit(True), "query_name", QUERY.str.strip_suffix("_dpq"))), RIGHT
    ),
    "names in capitals": Case(
        change("County", MEASURED, where(pl.lit(True), "query_name", QUERY.str.to_uppercase())), RIGHT
    ),
    "an exact total 5 off": Case(change("US", KNOWN, shifted(5)), NAMED, r"US '': 745 implied, 750 known: DISAGREE"),
    "an exact total 500 off": Case(
        change("US", KNOWN, shifted(500)), REFUSED, "US '' counts 1,245 .* no noise explains"
    ),
    "bounds of states 500 off": Case(
        change("State", KNOWN, values(lambda own: [own[0] + 500, *own[1:]], "hhgq_total_ub_con")), NAMED, "DISAGREE"
    ),
    "households where bounds allow none": Case(
        change("Block", KNOWN, values(lambda own: [0, *own[1:]], "hhgq_total_ub_con")), NAMED, "DOES NOT FIT"
    ),
    "facilities of blocks doubled": Case(
        change("Block", KNOWN, values(lambda own: [2 * x for x in own], "hhgq_total_lb_con")),
        NAMED,
        "facilities of .* at Block_Group are not those at Block together",
    ),
}
