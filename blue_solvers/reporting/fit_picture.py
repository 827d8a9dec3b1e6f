"""How far tables are from what their noise leads one to expect, as a picture."""

from __future__ import annotations

import polars as pl

from blue_solvers.reporting.dot_plots import MOST_ROWS, Series, dot_plot


def fit_picture(frame: pl.DataFrame) -> tuple[list[str], str]:
    """Draw the z of every table, the furthest from 0 first.

    Parameters
    ----------
    frame : polars.DataFrame
        Names of tables, ``statistic``, ``expected`` and ``z``.

    Returns
    -------
    sentences : list of str
        What is left out, if anything.
    picture : str
    """
    drawn = frame.sort(pl.col("z").abs(), descending=True, maintain_order=True).head(MOST_ROWS)
    keys = [name for name in drawn.columns if name not in ("statistic", "expected", "z")]
    left_out = f"The picture shows the {len(drawn)} of {len(frame):,} tables that are furthest from 0."
    picture = dot_plot(
        "fit-picture",
        "Fit by table",
        "For every table how many standard deviations its weighted squared residuals are from what its noise leads one "
        "to expect; between -2 and 2 nothing is remarkable. The same numbers are in the table below.",
        [": ".join(map(str, row)) for row in drawn.select(keys).iter_rows()],
        [Series("z", drawn["z"].to_list(), filled=True)],
        "standard deviations from what is expected",
        band=(-2.0, 2.0),
    )
    return [left_out] if len(drawn) < len(frame) else [], picture
