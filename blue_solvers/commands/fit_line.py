"""What the commands say of a proof, and of whether measurements agree with the variances that they claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from blue_solvers.estimates import Estimate
from blue_solvers.goodness import LOOSE, MISFIT, NOT_TESTED, Verdict, explained
from blue_solvers.verification import Certificate, FitOfParts
from blue_solvers.verification.probabilities import DOUBTFUL
from constraint_builders import Schema
from constraint_builders.tied_together import NOTHING

NOT_BEST = "the fit is not tested, since that takes the best estimate"

if TYPE_CHECKING:  # results need the extra frames, the command does not
    from blue_solvers.results.proof import StoredProof
    from blue_solvers.results.stored import StoredResult


class FitReport(NamedTuple):
    """What the command says of a fit, empty where nothing checks anything, and what is doubtful about it."""

    line: str
    doubt: str


def fit_report(est: Estimate) -> FitReport:
    """Compare measurements with their best estimates.

    Parameters
    ----------
    est : Estimate

    Returns
    -------
    FitReport
        Chi-square, its degrees of freedom, and the largest adjustment, `adjustment_z`, with its cell and source.
    """
    if not est.operator.info.exact:
        return FitReport("", NOT_BEST)
    fit = est.goodness_of_fit(draws=0)
    largest, word = fit.furthest(1), fit.parts.verdict
    if word == Verdict.UNTESTED or not largest:
        return FitReport("", LOOSE)
    degrees = f"{fit.degrees_of_freedom:,} degree{'s' * (fit.degrees_of_freedom != 1)} of freedom"
    agreement = f"chi-square {fit.statistic:,.6g} on {degrees}, p = {fit.parts.p_value:.2g}"
    worst, least = fit.parts.worst_table, min(fit.parts.p_value, fit.parts.probability)
    if word != Verdict.FITS and worst and least >= DOUBTFUL:
        (level, table), of_table = worst
        agreement += f"; worst table {(level, table) if level else table!r}, z = {of_table.z:+,.1f}"
    if fit.by_source:
        source, own = max(fit.by_source.items(), key=lambda item: abs(item[1].z))
        agreement += f"; worst source {source or 'without a name'!r}, z = {own.z:+,.1f}"
    adjustment = f"largest adjustment {-fit.residuals[largest[0]]:+.3g} standard errors"
    line = f"{agreement}; {adjustment}: {fit.describe(largest[0])}"
    why = explained(fit)
    if word == Verdict.FITS:
        return FitReport(line if why == word.explained else f"{why}: {line}", "")
    doubt = f"{word.upper()}, {why}"
    return FitReport(f"{doubt}: {line}", doubt)


def proof_line(certificate: Certificate) -> str:
    """What is proved of an estimate."""
    if not certificate.is_proved:
        return str(certificate)
    far = f"{certificate.bound:.0e}"
    return f"proved: no figure is further than {far} standard errors from the best linear unbiased estimate"


def proof_lines(proof: StoredProof, schema: Schema) -> list[str]:
    """What is known of a stored result: one line of its proof, and of the fit."""
    lines = ["not certified: nobody asked for it"] if proof.certificate is None else [proof_line(proof.certificate)]
    return [*lines, *fit_lines(proof.fit, schema)]


def known_of(result: StoredResult) -> str:
    """The proof, the verdict on the fit and what puts the files in doubt in one line; empty where nobody looked."""
    proof = result.proof
    said = [] if proof.certificate is None else [proof_line(proof.certificate)]
    said += [_verdict(proof.fit)] if said or proof.fit is not None else []
    return "; ".join(filter(None, [*said, result.noticed]))


def fit_lines(fit: FitOfParts | None, schema: Schema) -> list[str]:
    """Lines of the fit of a spine's measurements: the verdict with the worst table, and the largest adjustment."""
    lines = [f"fit        {_verdict(fit)}"]
    if fit is None or not fit.degrees_of_freedom:
        return lines
    if fit.largest:
        own, labels = fit.largest[0], fit.largest[0].labels(schema)
        place = f"{f'cell ({labels}) of ' if labels else ''}{own.table!r} of {own.geolevel} {own.geocode!r}"
        figures = f"measured {own.value:,.6g}, expected {own.expected:,.6g}, probability {fit.probability:.2g}"
        lines.append(f"adjusted   most by {-own.residual:+.1f} standard errors: {place}, {figures}")
    if fit.geounit is not None and not fit.fits:
        lines.append(
            f"geounit    furthest off: {fit.geounit.geolevel} {fit.geounit.geocode!r}, z = {fit.geounit.z:+.1f}"
        )
    return lines


def _verdict(fit: FitOfParts | None) -> str:
    if fit is None:
        return NOT_TESTED
    if not fit.degrees_of_freedom or fit.worst_table is None:
        return NOTHING
    (level, table), worst = fit.worst_table
    verdict = "fits: all tables agree with their noise" if fit.fits else MISFIT
    degrees = f"{fit.degrees_of_freedom:,} degrees of freedom"
    chi_square = f"chi-square {fit.statistic:,.6g} on {degrees}, p = {fit.p_value:.2g}"
    return f"{verdict}; {chi_square}; worst table {table!r} at {level}, z = {worst.z:+.1f}"
