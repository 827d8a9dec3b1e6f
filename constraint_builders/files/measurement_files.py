"""The Parquet files of a folder of noisy measurements, whatever their partitions, column order and number types.

Lists of numbers become arrays, without a copy where that can be.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.files.arrow_files import frame_of, open_parquet
from constraint_builders.files.naming import naming
from constraint_builders.files.numbers import LARGEST, TEXT, held
from constraint_builders.files.tabulated_places import Outside

LEVEL_SUFFIX = ".parquet"
MEASUREMENTS, CONSTRAINTS = "DPQuery", "Constraint"
MEASUREMENT_SUFFIX, CONSTRAINT_SUFFIX = "_dpq", "_con"
ROW, POSITION = "row*", "position*"  # columns of ours: no variable's name has a *
EVERY_NAME = "*"
WHOLE_NUMBERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
NUMPY_NUMBERS = (*WHOLE_NUMBERS, pl.Float32, pl.Float64)
OWN_COLUMNS = ("query_name", "query_shape", "sign")
KEYS_AT_ONCE = 1 << 20  # rows of a file whose geocodes are held at once


def level_folders(folder: str | os.PathLike[str], geolevels: Sequence[str]) -> dict[str, Path]:
    """The folder of every geolevel that there is one of, from the root down.

    Raises
    ------
    ValueError
        If there is none, or one of a geolevel that is not among `geolevels`.
    OSError
        If `folder` is not a folder.
    """
    found = {path.name.removesuffix(LEVEL_SUFFIX): path for path in Path(folder).iterdir() if _is_level(path)}
    if not found:
        raise ValueError(
            f"{os.fspath(folder)}: there are no folders <Geolevel>{LEVEL_SUFFIX}/{MEASUREMENTS}: "
            "give the folder that holds those of all geolevels"
        )
    unknown = sorted(found.keys() - set(geolevels))
    if unknown:
        raise ValueError(
            f"{found[unknown[0]]}: geolevel {unknown[0]!r} is not in the settings, which have {', '.join(geolevels)}"
        )
    return {level: found[level] for level in geolevels if level in found}


def _is_level(path: Path) -> bool:
    named = path.name.endswith(LEVEL_SUFFIX) and not path.name.startswith(".")
    return named and _exists(path) and path.is_dir()


def _exists(path: Path) -> bool:
    """Whether something is there; `FileNotFoundError` for a link to nothing, which somebody meant to be there."""
    if path.is_symlink():
        path.stat()
    return path.exists()


def files_of(level: Path, kind: str) -> list[Path]:
    """The Parquet files of one kind of rows, in all partitions, sorted; links are followed.

    Raises
    ------
    ValueError
        If links make a folder part of itself, or of another twice.
    FileNotFoundError
        If a link leads to nothing.
    """
    place = level / kind
    if not _exists(place):
        return []
    if not place.is_dir():
        return [place]
    found, seen = [], set()
    for folder, _, names in os.walk(place, onerror=_raise, followlinks=True):
        if os.path.realpath(folder) in seen:
            raise ValueError(f"{folder}: links lead to this folder twice: remove one")
        seen.add(os.path.realpath(folder))
        shown = [Path(folder, name) for name in names if not name.startswith((".", "_"))]
        found += [path for path in shown if _exists(path) and path.name.endswith(".parquet")]
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


def batches(
    path: Path,
    required: Sequence[str],
    optional: Sequence[str],
    within: Sequence[str] | None,
    schema: Schema,
    at_once: int,
) -> Iterator[tuple[pl.DataFrame, int]]:
    """The named columns of one file, with the number of every row, some rows at a time; and how many were looked at.

    Parameters
    ----------
    path : Path
    required, optional : sequence of str
        Names of columns, ``value`` among them.
    within : sequence of str or None
        Keep only rows whose geocodes begin with one of these.
    schema : Schema
        Tells how many cells a row may have.
    at_once : int
        Cells that may be in memory; a row may have more.

    Raises
    ------
    ValueError
        If the file is not Parquet, a required column is missing or of another type, or a key is empty. The message
        names the file, the column and the row.
    """
    with naming(path), open_parquet(path) as file:
        names = _columns(file, required, optional)
        pieces = [_frame(file.schema_arrow.empty_table().select(names), 0, within)]
        row = seen = cells = 0
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            if within is not None and not _is_any_inside(file, number, within):
                row, seen = row + group.num_rows, seen + group.num_rows
                continue
            most = max(group.column(own).num_values for own in range(group.num_columns))
            rows = group.num_rows if most <= at_once else max(1, at_once // prod(schema.shape))
            for batch in file.iter_batches(rows, [number], names):
                frame = _frame(batch, row, within)
                more = int(frame["value"].list.len().sum())
                if cells and cells + more > at_once:
                    yield pl.concat(pieces, rechunk=True), seen
                    pieces, seen, cells = pieces[:1], 0, 0
                pieces.append(frame)
                row, seen, cells = row + batch.num_rows, seen + batch.num_rows, cells + more
        yield pl.concat(pieces, rechunk=True), seen


def _columns(file: Any, required: Sequence[str], optional: Sequence[str]) -> list[str]:
    """Which of some columns an open file has; `ValueError` if it lacks one, or one is of another type."""
    present = frame_of(file.schema_arrow.empty_table()).schema
    names = [name for name in (*required, *optional) if name in present]
    _require_columns(present, required, set(names) - {"value", "variance", "query_shape"})
    return names


def _require_columns(present: Mapping[str, pl.DataType], required: Sequence[str], texts: Iterable[str]) -> None:
    missing = [name for name in required if name not in present]
    if missing:
        raise ValueError(f"column {missing[0]!r} is missing: there are {', '.join(present)}")
    value = present.get("value")
    if "value" in required and not (isinstance(value, pl.List | pl.Array) and _holds_numbers(value.inner)):
        raise ValueError(f"column 'value' must hold lists of numbers: it holds {held(present['value'])}")
    if "variance" in required and not _holds_numbers(present["variance"]):
        raise ValueError(f"column 'variance' must hold numbers: it holds {held(present['variance'])}")
    for name in texts:
        if name in present and present[name] not in (*TEXT, pl.Null):
            reason = ", for leading zeros" if name == "geocode" else ""
            raise ValueError(f"column {name!r} must hold text{reason}: it holds {held(present[name])}")


def _holds_numbers(dtype: pl.DataType | pl.datatypes.DataTypeClass) -> bool:
    return dtype.is_numeric() or dtype == pl.Null


def _is_any_inside(file: Any, group: int, within: Sequence[str]) -> bool:
    """Whether a row group has a geocode that begins with one of some prefixes."""
    return bool(frame_of(file.read_row_group(group, ["geocode"])).select(_inside(within).any()).item())


def _frame(rows: Any, before: int, within: Sequence[str] | None) -> pl.DataFrame:
    """Rows of an open file with their numbers, those that are within; keys are text, and values lists of numbers."""
    frame = frame_of(rows).with_columns(pl.col(pl.Categorical, pl.Enum, pl.Null).cast(pl.String))
    frame = frame.with_row_index(ROW, offset=before + 1)
    frame = frame if within is None else frame.filter(_inside(within))
    if "value" in frame.columns:
        frame = frame.with_columns(_lists(frame["value"]))
    for name in ("geocode", "query_name"):
        if frame[name].null_count():
            row = frame.filter(pl.col(name).is_null())[ROW][0]
            raise ValueError(f"column {name!r} is empty in row {row}")
    return frame


def _inside(within: Sequence[str]) -> pl.Expr:
    """Whether geocodes begin with one of some prefixes."""
    return pl.any_horizontal(pl.col("geocode").cast(pl.String).str.starts_with(prefix) for prefix in within)


def _lists(values: pl.Series) -> pl.Series:
    """Lists of numbers that numpy has a type for."""
    if isinstance(values.dtype, pl.Array):
        values = values.arr.to_list()
    assert isinstance(values.dtype, pl.List)
    return values if values.dtype.inner in NUMPY_NUMBERS else values.cast(pl.List(pl.Float64))


def require_free_names(schema: Schema) -> None:
    """Refuse a schema with a variable that has the name of a column of these files."""
    for name in OWN_COLUMNS:
        if name in schema.names:
            raise ValueError(f"variable {name!r} has the name of a column of measurement files: rename it")


def read_keys(
    path: Path, within: Sequence[str] | None, outside: Outside | None = None
) -> tuple[pl.Series, pl.Series, int]:
    """All different geocodes of one file, all different names of queries, and the number of rows.

    Parameters
    ----------
    path : Path
    within : sequence of str or None
        Only of rows whose geocodes begin with one of these.
    outside : Outside, optional
        Is told the other geocodes.

    Raises
    ------
    ValueError
        As `batches`.
    """
    geocodes, queries = (pl.Series(name, [], dtype=pl.String) for name in ("geocode", "query_name"))
    height = 0
    with naming(path), open_parquet(path) as file:
        for batch in file.iter_batches(KEYS_AT_ONCE, columns=_columns(file, ("geocode", "query_name"), ())):
            frame, height = _frame(batch, height, None), height + batch.num_rows
            if within is not None:
                if outside is not None:
                    outside.add(frame.filter(~_inside(within))["geocode"].unique())
                frame = frame.filter(_inside(within))
            geocodes = pl.concat([geocodes, frame["geocode"]]).unique()
            queries = pl.concat([queries, frame["query_name"]]).unique()
    return geocodes, queries, height


def geocodes_in(level: Path) -> list[str]:
    """All different geocodes of a geolevel's folder, sorted; raises as `files_of` and `read_keys`."""
    files = [path for kind in (MEASUREMENTS, CONSTRAINTS) for path in files_of(level, kind)]
    return sorted({code for path in files for code in read_keys(path, None)[0]})


def require_kind(path: Path, kind: str, names: pl.Series) -> None:
    """Refuse constraints among measurements, and measurements among constraints."""
    other = CONSTRAINT_SUFFIX if kind == MEASUREMENTS else MEASUREMENT_SUFFIX
    strange = names.filter(names.str.ends_with(other)).sort()
    if strange.len():
        raise ValueError(f"{path}: it holds {strange[0]!r}, which does not belong in {kind}: copy the folder anew")


def place_of(rows: pl.DataFrame) -> str:
    """What messages call the first of some rows of a file."""
    row, name, geocode = rows.select(ROW, "query_name", "geocode").row(0)
    return f"row {row} ({name} of {geocode!r})"


@dataclass(frozen=True)
class Values:
    """The lists of some rows of a file.

    Attributes
    ----------
    rows : polars.DataFrame
        Their other columns.
    elements : polars.Series
        The elements of all lists of the file, one after another.
    starts, lengths : ndarray of int, (rows,)
        Where the list of each row begins, and its length.
    """

    rows: pl.DataFrame
    elements: pl.Series
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def array(self, size: int, what: str) -> NDArray:
        """The lists as an array, (rows, size).

        Raises
        ------
        ValueError
            If a list has another length, or an element is empty, NaN, infinite or so large that sums would not be
            exact; the first such row is named.
        """
        wrong = np.flatnonzero(self.lengths != size)
        if wrong.size:
            place, count = place_of(self.rows[int(wrong[0]) :]), self.lengths[wrong[0]]
            raise ValueError(f"{place}: {count} values, but {what} has {size} cells: is the schema the file's?")
        if (np.diff(self.starts) == size).all():
            values = self.elements.slice(int(self.starts[0]), self.starts.size * size).to_numpy().reshape(-1, size)
        else:
            values = self.elements.to_numpy()[self.starts[:, None] + np.arange(size)]
        if values.dtype.kind in "iu" and values.dtype.itemsize <= 4:
            return values  # whole numbers, none of which is so large
        if values.size and values.min() >= -LARGEST and values.max() <= LARGEST:
            return values
        for bad, why in (
            (~np.isfinite(values), "is empty, NaN or infinite"),
            ((values < -LARGEST) | (values > LARGEST), f"is beyond {LARGEST:,.0f}: no such number is a count"),
        ):
            if bad.any():
                raise ValueError(f"{place_of(self.rows[int(bad.any(axis=1).argmax()) :])}: a value {why}")
        return values


def groups(frame: pl.DataFrame, keys: Sequence[str]) -> Iterator[tuple[dict[str, str], pl.DataFrame, Values]]:
    """The rows of a file that agree in some columns: what these say, the other columns, and the lists of values.

    Groups come in order of first appearance; no list may be null.
    """
    lengths = frame["value"].list.len().cast(pl.Int64).to_numpy()
    empty = np.flatnonzero(lengths == 0)
    if empty.size:
        raise ValueError(f"{place_of(frame[int(empty[0]) :])}: the list of values is empty")
    starts, elements = np.cumsum(lengths) - lengths, frame["value"].explode()
    for said, rows in frame.drop("value").with_row_index(POSITION).group_by(keys, maintain_order=True):
        positions = rows[POSITION].to_numpy()
        yield dict(zip(keys, said, strict=True)), rows, Values(rows, elements, starts[positions], lengths[positions])
