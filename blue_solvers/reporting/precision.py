"""How precise tables are, before and after: one row a table, at every geolevel."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from blue_solvers.reporting.dot_plots import MOST_ROWS, Series, dot_plot
from blue_solvers.reporting.page_parts import STD_ERROR, Section, Shown, shown_of

GEOLEVEL, TABLE, MEASURED, LARGEST = "geolevel", "table", "measured std error", "largest std error"
FORMATS = {"cells": ",d", MEASURED: ",.4g", STD_ERROR: ",.4g", LARGEST: ",.4g", "variance saved, %": ".1f"}


def precision_rows(cells: pl.LazyFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Summarise cells table by table.

    Parameters
    ----------
    cells : polars.LazyFrame
        Columns `keys`, ``std error``, ``measured std error`` (null where nothing was measured).
    keys : sequence of str
        What tells tables apart.

    Returns
    -------
    polars.DataFrame
        Medians over the cells of each table; the variance that is saved where both are known.
    """
    own, measured = pl.col(STD_ERROR).drop_nans(), pl.col(MEASURED)
    rows = cells.group_by(keys, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("cells"), measured.median(), own.median(), own.max().alias(LARGEST)
    )
    return with_saved(rows.collect())


def with_saved(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the variance that is saved to medians as measured and estimated."""
    saved = 100 * (1 - (pl.col(STD_ERROR) / pl.col(MEASURED)) ** 2)
    return rows.with_columns(pl.when(pl.col(MEASURED) > 0).then(saved).otherwise(None).alias("variance saved, %"))


def precision_section(rows: pl.DataFrame) -> Section:
    """Precision by table and level, as a picture and a table."""
    drawn = rows.head(MOST_ROWS)
    keys = [name for name in (GEOLEVEL, TABLE) if name in rows.columns]
    labels = [": ".join(map(str, row)) for row in drawn.select(keys).iter_rows()]
    series = [
        Series("as measured", drawn[MEASURED].fill_null(float("nan")).to_list()),
        Series("estimate", drawn[STD_ERROR].fill_null(float("nan")).to_list(), filled=True),
    ]
    picture = dot_plot(
        "precision-picture",
        "Standard errors by table",
        "For every table the median standard error of its cells, as measured and of the estimate. The same numbers "
        "are in the table below.",
        labels,
        series,
        "median standard error of a cell",
    )
    sentences = [
        "The median standard error of a cell of each table, as measured and after all tables were made to agree. A "
        "circle is missing where nothing measured the table itself; 0 is known exactly."
    ]
    if len(drawn) < len(rows):
        sentences.append(f"The picture: {shown_of(len(drawn), len(rows), 'tables')}")
    table = Shown("precision", "Precision by table" + (" and level" if len(keys) > 1 else ""), rows, FORMATS)
    return Section("precision", "Precision", sentences, picture, [table])
