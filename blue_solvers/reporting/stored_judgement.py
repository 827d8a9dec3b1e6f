"""What a page says of a certificate, and of the fit that a stored result has."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from blue_solvers.reporting.dot_plots import MOST_ROWS, Series, dot_plot
from blue_solvers.reporting.page_parts import DOUBT, GOOD, Section, Shown, Tile, small
from blue_solvers.verification import Certificate, FitOfParts
from constraint_builders import Schema
from constraint_builders.printable import counted

FORMATS = {
    **dict.fromkeys(("statistic", "expected"), ",.4g"), **dict.fromkeys(("z", "adjustment_z"), "+.2f"),
    "adjustment": "+,.4g", "chance of one so large": ".2g",
}  # fmt: skip
UNCHECKED = Section("fit", "Fit", ["No measurement checks another, so that nothing can be said of their noise."])


def stored_fit(fit: FitOfParts | None, schema: Schema) -> tuple[Tile, Section]:
    """The fit that was worked out with the estimates; `schema` is the one in whose terms it names cells."""
    if fit is None:
        reason = "Nobody tested whether the measurements fit their noise when the estimates were made."
        return Tile("Fit", "not tested", "when it was estimated", DOUBT), Section("fit", "Fit", [reason])
    if not fit.degrees_of_freedom:
        return Tile("Fit", "cannot be tested", "no measurement checks another", DOUBT), UNCHECKED
    chi = f"chi-square {fit.statistic:,.6g} on {counted(fit.degrees_of_freedom, 'degree')} of freedom"
    verdict, tone = ("as declared", GOOD) if fit.fits else ("not as declared", DOUBT)
    rows = [(level, table, own.statistic, own.expectation, own.z) for (level, table), own in fit.tables.items()]
    frame = pl.DataFrame(rows, schema=["geolevel", "table", "statistic", "expected", "z"], orient="row")
    cells = [
        (own.geolevel, own.table, own.geocode, own.labels(schema), own.value, own.expected, -own.residual)
        for own in fit.largest
    ]
    columns = ["geolevel", "table", "geocode", "cell", "measured", "the others say", "adjustment_z"]
    worst = pl.DataFrame(cells, schema=columns, orient="row")
    sentences = [f"{chi.capitalize()}, p = {fit.p_value:.2g} (two-sided)."]
    return Tile("Noise of the measurements", verdict, chi, tone), fit_section(sentences, frame, worst)


def fit_section(sentences: Sequence[str], by_table: pl.DataFrame, worst: pl.DataFrame, checked: str = "") -> Section:
    """What is said of a fit, with a picture.

    Parameters
    ----------
    sentences : sequence of str
    by_table : polars.DataFrame
        Names of tables, ``statistic``, ``expected`` and ``z``.
    worst : polars.DataFrame
        Cells that are furthest from what the others say.
    checked : str
        Of how many these are, in words.
    """
    drawn = by_table.sort(pl.col("z").abs(), descending=True, maintain_order=True).head(MOST_ROWS)
    keys = [name for name in drawn.columns if name not in ("statistic", "expected", "z")]
    left_out = f"The picture shows the {len(drawn)} of {len(by_table):,} tables that are furthest from 0."
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
    said = [*sentences, *([left_out] if len(drawn) < len(by_table) else [])]
    caption = f"Furthest from what the others say: {counted(len(worst), 'cell')}{checked}"
    places = "table and level" if "geolevel" in keys else "table"
    tables = [
        Shown("fit by table", f"Chi-square by {places}", by_table, FORMATS),
        Shown("worst residuals", caption, worst, FORMATS),
    ]
    return Section("fit", "Fit", said, picture, tables)


def certificate_said(
    proof: Certificate, figure: str = "figure", when: str = "was proved when it was made,", rounding: float = 0.0
) -> tuple[Tile, Section]:
    """What is proved of an estimate, its figures being off by no more than `rounding` standard errors beside that.

    `figure` is what the bound is of, and `when` says when that was worked out.
    """
    if proof.bound is None:
        tile = Tile("Certificate", "not proved", proof.reason, DOUBT)
        said = f"Not proved to be the best linear unbiased estimate: {proof.reason}."
    elif not proof.is_proved:
        tile = Tile("Certificate", "not proved", f"bound {small(proof.bound)}", DOUBT)
        said = (
            "Not proved to be the best linear unbiased estimate: some figure may be as far as "
            f"{small(proof.bound)} of its own standard errors from it."
        )
    else:
        within = f"within {small(proof.bound + rounding)} standard errors of the best estimate"
        tile = Tile("Certificate", "proved", within, GOOD)
        said = (
            f"No {figure} is further than {small(proof.bound)} of its own standard errors from the best linear "
            f"unbiased estimate. That {when} without a solver, from {proof.reason}."
        )
    return tile, Section("certificate", "Certificate", [said])
