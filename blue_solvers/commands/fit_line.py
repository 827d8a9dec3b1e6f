"""What the commands say of a proof, and of whether measurements agree with the variances that they claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from blue_solvers.estimates import Estimate
from blue_solvers.verification import Certificate, FitOfParts
from blue_solvers.verification.fit_of_parts import DOUBTFUL
from constraint_builders import Schema
from constraint_builders.description.table import parse_table

if TYPE_CHECKING:  # results need the extra frames, the command does not
    from blue_solvers.results.proof import StoredProof


def fit_line(est: Estimate) -> str | None:
    """Compare measurements with their best estimates.

    Parameters
    ----------
    est : Estimate

    Returns
    -------
    str or None
        Chi-square, its degrees of freedom, and the largest residual with its cell. None where no measurement checks
        another, or the estimate is not the best one.
    """
    if not est.operator.info.exact:
        return None
    fit = est.fit(draws=0)
    largest = fit.outliers(1)
    if not fit.degrees_of_freedom or not largest:
        return None
    degrees = f"{fit.degrees_of_freedom:,} degree{'s' * (fit.degrees_of_freedom != 1)} of freedom"
    agreement = f"chi-square {fit.statistic:,.4g} on {degrees}, p = {fit.p_value:.2g}"
    layout, worst = est.problem.observed, largest[0]
    start, shape = layout.slice(worst.table).start, layout.shape(worst.table)
    cell = layout.describe(start + int(np.ravel_multi_index(worst.cell, shape)) if shape else start)
    line = f"{agreement}; largest residual {worst.residual:+.3g} standard errors: {cell}"
    if fit.p_value >= DOUBTFUL:
        return line
    if fit.statistic < fit.degrees_of_freedom:
        return f"TOO CLOSE, values differ by less than their variances claim: {line}"
    return f"CONTRADICTORY, values differ by more than their variances allow: {line}"


def proof_line(certificate: Certificate) -> str:
    """What is proved of an estimate."""
    if certificate.bound is None:
        return f"not certified: {certificate.reason}"
    far = f"{certificate.bound:.0e}"
    return f"proved: no figure is further than {far} standard errors from the best linear unbiased estimate"


def proof_lines(proof: StoredProof, schema: Schema) -> list[str]:
    """What is known of a stored result: one line of its proof, two of the fit."""
    lines = ["not certified: nobody asked for it"] if proof.certificate is None else [proof_line(proof.certificate)]
    return lines if proof.fit is None else [*lines, *fit_lines(proof.fit, schema)]


def fit_lines(fit: FitOfParts, schema: Schema) -> list[str]:
    """Two lines of the fit of a spine's measurements: the verdict with the worst table, and the largest residual."""
    if not fit.degrees_of_freedom or fit.worst_table is None:
        return []
    (level, table), worst = fit.worst_table
    verdict = "fits: all tables agree with their noise" if fit.fits else "DOES NOT FIT the noise that is declared"
    chi_square = (
        f"chi-square {fit.statistic:,.6g} on {fit.degrees_of_freedom:,} degrees of freedom, p = {fit.p_value:.2g}"
    )
    lines = [f"fit        {verdict}; {chi_square}; worst table {table!r} at {level}, z = {worst.z:+.1f}"]
    if fit.largest:
        own = fit.largest[0]
        place = f"{_cell(schema, own.table, own.cell)}{own.table!r} of {own.geolevel} {own.geocode!r}"
        figures = f"measured {own.value:,.6g}, expected {own.expected:,.6g}, probability {fit.probability:.2g}"
        lines.append(f"residual   largest {own.residual:+.1f} standard errors: {place}, {figures}")
    if fit.geounit is not None and not fit.fits:
        lines.append(
            f"geounit    furthest off: {fit.geounit.geolevel} {fit.geounit.geocode!r}, z = {fit.geounit.z:+.1f}"
        )
    return lines


def _cell(schema: Schema, table: str, number: int) -> str:
    """The labels of a cell, by its number in C order of the schema's; nothing of a total."""
    own = parse_table(schema, table).in_schema_order()
    place = np.unravel_index(number, own.shape) if own.shape else ()
    named = ", ".join(f"{factor}={schema.labels_of(factor)[i]}" for factor, i in zip(own.factors, place, strict=True))
    return f"cell ({named}) of " if named else ""
