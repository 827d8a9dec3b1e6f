"""The page of an estimate whose measurements are at hand: how they fit, what is proved, what moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from blue_solvers.estimates import Estimate
from blue_solvers.reporting.fit_picture import fit_picture
from blue_solvers.reporting.page_parts import (
    DOUBT,
    GOOD,
    MOST_NAMED,
    Page,
    Section,
    Shown,
    Tile,
    counted,
    shown_of,
    small,
)
from blue_solvers.reporting.precision import precision_section
from blue_solvers.verification import Fit
from blue_solvers.verification.fit_of_parts import DOUBTFUL
from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Layout

CLOSE = 1e-6  # standard errors by which a file's figures may differ from the best ones: it holds some digits only


def judged_page(est: Estimate, source: str, precision: pl.DataFrame, listed: Section, difference: float | None) -> Page:
    """What is known of an estimate.

    Parameters
    ----------
    est : Estimate
        Of the desired tables, proved.
    source : str
        What was read, for the title.
    precision : polars.DataFrame
        As `precision_rows` gives it.
    listed : Section
        The estimates.
    difference : float or None
        The largest difference, in standard errors, between figures that were read and this estimate; None where none
        were read.
    """
    fit = est.fit(draws=0)
    problem = est.problem
    measured = f"{counted(problem.observed.size, 'cell')} of {counted(len(problem.observed.names), 'table')}"
    desired = f"{counted(problem.desired.size, 'cell')} of {counted(len(problem.desired.names), 'table')}"
    names, adjustments = _largest_adjustments(fit)
    tiles = [
        Tile("Measured", f"{problem.observed.size:,} cells", f"of {counted(len(problem.observed.names), 'table')}"),
        _fit_tile(fit),
        _certificate_tile(est, difference),
        Tile("Largest adjustment", *names),
    ]
    sections = [
        _fit_section(fit),
        _certificate_section(est, difference),
        _adjustments_section(adjustments),
        precision_section(precision),
        listed,
        Section("made", "How it was made", _made(est)),
    ]
    return Page(
        f"Estimates of {source}", f"From {measured} measured with noise: {desired} that agree.", tiles, sections
    )


def _fit_tile(fit: Fit) -> Tile:
    if not fit.degrees_of_freedom:
        return Tile("Fit", "cannot be tested", "no measurement checks another")
    agrees = fit.p_value >= DOUBTFUL
    verdict = "as declared" if agrees else "too close" if _is_too_close(fit) else "contradictory"
    note = f"chi-square {fit.statistic:,.4g} on {fit.degrees_of_freedom:,} degrees of freedom"
    return Tile("Noise of the measurements", verdict, note, GOOD if agrees else DOUBT)


def _is_too_close(fit: Fit) -> bool:
    return fit.statistic < fit.degrees_of_freedom


def _fit_section(fit: Fit) -> Section:
    if not fit.degrees_of_freedom:
        reason = "No measurement checks another, so that nothing can be said of their noise."
        return Section("fit", "Fit", [reason])
    chi = f"Chi-square is {fit.statistic:,.5g} on {counted(fit.degrees_of_freedom, 'degree')} of freedom"
    sentences = [f"{chi}, p = {fit.p_value:.2g} (two-sided, the noise taken for Gaussian). {_fit_in_words(fit)}"]
    frame = _by_table(fit)
    said, picture = fit_picture(frame)
    sentences += said
    formats = {"statistic": ",.4g", "expected": ",.4g", "z": "+.2f"}
    tables = [Shown("fit by table", "Chi-square by table", frame, formats), _worst(fit)]
    return Section("fit", "Fit", sentences, picture, tables)


def _fit_in_words(fit: Fit) -> str:
    if fit.p_value >= DOUBTFUL:
        return "The measurements agree with the variances that they claim."
    if _is_too_close(fit):
        return "The values differ by less than their variances claim: are the variances too large?"
    return "The values contradict one another by more than their variances allow: look at the worst residuals."


def _by_table(fit: Fit) -> pl.DataFrame:
    rows = [(*_key(name), *values) for name, values in fit.by_table.items()]
    return _frame([*_key_names(fit.problem.observed), "statistic", "expected", "z"], rows)


def _worst(fit: Fit) -> Shown:
    rows = []
    layout = fit.problem.observed
    for worst in fit.outliers(MOST_NAMED):
        shape, start = layout.shape(worst.table), layout.slice(worst.table).start
        position = start + (int(np.ravel_multi_index(worst.cell, shape)) if shape else 0)
        rows.append((*_named(layout, position), worst.value, worst.expected, worst.residual, worst.probability))
    columns = ["measured", "the others say", "residual", "chance of one so large"]
    caption = f"Worst residuals, in their standard errors: {counted(len(rows), 'cell')} of {fit.checked:,} checked"
    formats = {"residual": "+.2f", "chance of one so large": ".2g"}
    return Shown("worst residuals", caption, _frame([*_cell_names(layout), *columns], rows), formats)


def _certificate_tile(est: Estimate, difference: float | None) -> Tile:
    proof = est.certificate()
    if difference is not None and not difference <= CLOSE:
        return Tile("Certificate", "not the best estimate", f"{small(difference)} standard errors from it", DOUBT)
    if proof.bound is None:
        return Tile("Certificate", "not proved", proof.reason, DOUBT)
    within = proof.bound + (difference or 0.0)
    return Tile("Certificate", "proved", f"within {small(within)} standard errors of the best estimate", GOOD)


def _certificate_section(est: Estimate, difference: float | None) -> Section:
    proof = est.certificate()
    if proof.bound is None:
        sentences = [f"Not proved to be the best linear unbiased estimate: {proof.reason}."]
    else:
        sentences = [
            "No figure of the estimate, and no combination of the counts behind it, is further than "
            f"{small(proof.bound)} of its own standard errors from the best linear unbiased estimate. That is proved "
            f"without a solver, from {proof.reason}."
        ]
    if proof.violation is not None:
        sentences.append(
            f"Its tables disagree by at most {small(proof.violation)} standard errors of the measurements."
        )
    if difference is not None:
        sentences.append(
            f"The figures of the result that was read differ from that estimate by at most {small(difference)} of "
            "their standard errors."
        )
        if not difference <= CLOSE:
            sentences.append(
                "They are therefore not the best estimate of these measurements. If more was measured than the result "
                "shows, give all of it as --measured."
            )
    return Section("certificate", "Certificate", sentences)


def _largest_adjustments(fit: Fit) -> tuple[tuple[str, str], Shown]:
    """The largest one in words, and a table of them: estimate less measurement, in standard errors of the latter."""
    problem, layout = fit.problem, fit.problem.observed
    noisy = np.isfinite(problem.variances) & (problem.variances > 0)
    size: Float = np.where(noisy, np.sqrt(fit.squares), 0.0)
    largest: Index = np.argsort(-size, kind="stable")[:MOST_NAMED]
    rows = []
    for position in largest[size[largest] > 0].tolist():
        sign = -1.0 if fit.residuals[position] > 0 else 1.0
        moved = sign * float(size[position] * np.sqrt(problem.variances[position]))
        value = float(fit.y[position])
        rows.append((*_named(layout, position), value, value + moved, moved, sign * float(size[position])))
    columns = ["measured", "estimate", "adjustment", "in standard errors"]
    caption = f"Largest adjustments: {counted(len(rows), 'cell')} of {int(noisy.sum()):,} measured with noise"
    formats = {"adjustment": "+,.4g", "in standard errors": "+.2f"}
    shown = Shown("largest adjustments", caption, _frame([*_cell_names(layout), *columns], rows), formats)
    if not rows:
        return ("none", "nothing was measured twice"), shown
    first = largest[0]
    return (f"{rows[0][-1]:+.2f} standard errors", layout.describe(int(first))), shown


def _adjustments_section(shown: Shown) -> Section:
    sentence = (
        "By how much the estimate moved what was measured, in standard errors of the measurement. A cell that others "
        "say much about moves most; one that nothing else checks does not move."
    )
    return Section("adjustments", "Largest adjustments", [sentence], tables=[shown])


def _made(est: Estimate) -> list[str]:
    info, problem = est.info, est.problem
    sentences = [f"Solver: {info.solver}. {info.reason[:1].upper()}{info.reason[1:]}."]
    sentences.append(
        f"Of the measured cells {int(problem.exact.sum()):,} are known exactly and {int(problem.unmeasured.sum()):,} "
        f"were not measured. Variables: {', '.join(problem.domain.schema.names)}."
    )
    if problem.places is not None:
        kind = "geounit" if problem.areas is None else "area"
        sentences.append(f"Geography: {counted(problem.places.size, kind)} of {', '.join(problem.places.levels)}.")
    if problem.undetermined is not None:
        lost = np.flatnonzero(problem.undetermined)
        first = problem.why_undetermined(int(lost[0]))
        sentences.append(f"Left empty: {counted(int(lost.size), 'cell')} that nothing determines, such as: {first}.")
    return sentences


def _key(name: object) -> tuple[str, ...]:
    return tuple(map(str, name)) if isinstance(name, tuple) else (str(name),)


def _key_names(layout: Layout) -> list[str]:
    return ["geolevel", "table"] if layout.names and isinstance(layout.names[0], tuple) else ["table"]


def _cell_names(layout: Layout) -> list[str]:
    return [*_key_names(layout), "cell"]


def _named(layout: Layout, position: int) -> tuple[str, ...]:
    name, cell = layout.locate(position)
    return (*_key(name), layout.labels(position)[1:-1] if cell else "")


def _frame(columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=list(columns), orient="row")


def listed_section(frame: pl.DataFrame, there: int, formats: dict[str, str], level: float) -> Section:
    """The estimates themselves, as many as the frame holds of those that there are."""
    sentences = [
        f"Every row is a cell; * stands for all of a variable, summed. Intervals cover {level:.4g} for normal noise.",
        shown_of(frame.height, there, "rows"),
        "A click on a heading, or the enter key there, sorts by that column.",
    ]
    table = Shown("estimates", f"Estimates: {frame.height:,} of {counted(there, 'row')}", frame, formats)
    return Section("estimates", "Estimates", sentences, tables=[table])
