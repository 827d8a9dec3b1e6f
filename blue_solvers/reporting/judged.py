"""The page of an estimate whose measurements are at hand: how they fit, what is proved, what moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from blue_solvers.estimates import Estimate
from blue_solvers.goodness import Verdict, explained
from blue_solvers.reporting.page_parts import DOUBT, GOOD, MOST_NAMED, Page, Section, Shown, Tile, small, tied_tile
from blue_solvers.reporting.precision import precision_section
from blue_solvers.reporting.result_file import Difference
from blue_solvers.reporting.stored_judgement import FORMATS, UNCHECKED, certificate_said, fit_section
from blue_solvers.verification import Fit
from constraint_builders.description.layout import Layout
from constraint_builders.description.noise import LawOrName
from constraint_builders.printable import counted

HINTS = {Verdict.TOO_CLOSE: ": are the variances too large?", Verdict.CONTRADICTORY: ": look at the worst residuals."}
CLOSE = 1e-6  # standard errors by which a file's figures may differ from the best ones: it holds some digits only


def judged_page(
    est: Estimate, source: str, precision: pl.DataFrame, listed: Sequence[Section], difference: Difference | None
) -> Page:
    """What is known of an estimate.

    Parameters
    ----------
    est : Estimate
        Of the desired tables, proved.
    source : str
        What was read, for the title.
    precision : polars.DataFrame
        As `precision_rows` gives it.
    listed : (Section, Section)
        The estimates, as `listed_sections` gives them.
    difference : Difference or None
        Between figures that were read and this estimate; None where none were read.
    """
    fit = est.goodness_of_fit(draws=0)
    problem = est.problem
    cells = counted(int((~problem.unmeasured).sum()), "cell")
    tables = f"of {counted(len(problem.observed.names), 'table')}"
    desired = f"{counted(problem.desired.size, 'cell')} of {counted(len(problem.desired.names), 'table')}"
    names, adjustments = _largest_adjustments(fit)
    certificate, proof = _certificate(est, difference)
    tiles = [
        Tile("Measured", cells, tables),
        tied_tile(est.tied),
        _fit_tile(fit),
        certificate,
        Tile("Largest adjustment", *names),
    ]
    first, rows = listed
    sections = [
        first,
        _fit_section(fit),
        proof,
        _adjustments_section(adjustments, problem.noise.law),
        precision_section(precision),
        rows,
        Section("made", "How it was made", _made(est)),
    ]
    doubt = "" if fit.parts.verdict == Verdict.FITS else explained(fit)
    subtitle = f"From {cells} {tables} that were measured: {desired} that agree."
    other = "" if difference is None or difference.unexplained <= CLOSE else f"{source} is {certificate.value}"
    doubts = filter(None, (doubt, other, *problem.understood.notes))
    return Page(f"Estimates of {source}", subtitle, tiles, sections, "; ".join(doubts))


def _fit_tile(fit: Fit) -> Tile:
    word = fit.parts.verdict
    if word == Verdict.UNTESTED:
        return Tile("Fit", word, word.explained, DOUBT)
    note = f"chi-square {fit.statistic:,.6g} on {fit.degrees_of_freedom:,} degrees of freedom"
    return Tile("Noise of the measurements", word, note, GOOD if word == Verdict.FITS else DOUBT)


def _fit_section(fit: Fit) -> Section:
    if not fit.degrees_of_freedom:
        return UNCHECKED
    chi = f"Chi-square is {fit.statistic:,.5g} on {counted(fit.degrees_of_freedom, 'degree')} of freedom"
    how = "by the kurtosis of the noise" if any(fit.tails.excess) else "the noise taken for Gaussian"
    said = f"The {explained(fit)}{HINTS.get(fit.parts.verdict, '.')}"
    sentences = [f"{chi}, p = {fit.parts.p_value:.2g} (two-sided, {how}). {said}"]
    if fit.by_source:
        sentences.append(f"By source, standard deviations from what is expected: {_by_source(fit)}.")
    return fit_section(sentences, _by_table(fit), _worst(fit), f" of {fit.checked:,} checked")


def _by_source(fit: Fit) -> str:
    said = [(name or "others", own.z) for name, own in fit.by_source.items()]
    worst = sorted(said, key=lambda own: -abs(own[1]))[:MOST_NAMED]
    return ", ".join(f"{name} {z:+,.1f}" for name, z in worst)


def _by_table(fit: Fit) -> pl.DataFrame:
    rows = [(*_key(name), *values) for name, values in fit.by_table.items()]
    return _frame([*_key_names(fit.problem.observed), "statistic", "expected", "z"], rows)


def _worst(fit: Fit) -> pl.DataFrame:
    rows = []
    for position, worst in zip(fit.furthest(MOST_NAMED), fit.outliers(MOST_NAMED), strict=True):
        rows.append((*_named(fit, position), worst.value, worst.expected, -worst.residual, worst.probability))
    columns = ["measured", "the others say", "adjustment_z", "chance of one so large"]
    return _frame([*_cell_names(fit), *columns], rows)


def _certificate(est: Estimate, difference: Difference | None) -> tuple[Tile, Section]:
    """What is proved, and how far figures that were read are from that."""
    proof, rounding = est.certificate(), 0.0 if difference is None else difference.largest
    figure = "figure of the estimate, and no combination of the counts behind it,"
    tile, section = certificate_said(proof, figure, "is proved", rounding)
    sentences = list(section.sentences)
    if proof.violation is not None:
        sentences.append(
            f"Its tables disagree by at most {small(proof.violation)} standard errors of the measurements."
        )
    if difference is None:
        return tile, replace(section, sentences=sentences)
    sentences.append(
        f"The figures of the result that was read differ from that estimate by at most {small(difference.largest)} of "
        "their standard errors."
    )
    if not difference.unexplained <= CLOSE:
        away = f"{small(difference.largest)} standard errors from it"
        tile = Tile("Certificate", "not the best estimate", away, DOUBT)
        sentences.append(
            "They are therefore not the best estimate of these measurements. If more was measured than the result "
            "shows, give all of it as --measured."
        )
    elif difference.largest > CLOSE:
        digits = f"{counted(difference.digits, 'digit')} of a standard error"
        sentences.append(f"That is rounding: they are written to {digits}.")
        if proof.is_proved:
            tile = replace(tile, note=f"{tile.note}, rounded to {digits}")
    return tile, replace(section, sentences=sentences)


def _largest_adjustments(fit: Fit) -> tuple[tuple[str, str], Shown]:
    """The largest one in words, and a table of them: estimate less measurement, and that in its standard errors."""
    noisy = np.isfinite(fit.variances) & (fit.variances > 0)
    rows = []
    for position in fit.furthest(MOST_NAMED):
        z = -float(fit.residuals[position])
        moved = math.copysign(math.sqrt(fit.squares[position] * fit.variances[position]), z)
        value, estimate = float(fit.published[position]), float(fit.values[position]) + moved
        rows.append((*_named(fit, position), value, estimate, moved, z))
    columns = ["measured", "estimate", "adjustment", "adjustment_z"]
    caption = f"Largest adjustments: {counted(len(rows), 'cell')} of {int(noisy.sum()):,} measured with noise"
    shown = Shown("largest adjustments", caption, _frame([*_cell_names(fit), *columns], rows), FORMATS)
    if not rows:
        return ("none", "nothing was measured twice"), shown
    return (f"{rows[0][-1]:+.2f} standard errors", fit.describe(fit.furthest(1)[0])), shown


def _adjustments_section(shown: Shown, law: LawOrName) -> Section:
    sentence = (
        "By how much the estimate moved what was measured, and that in its own standard errors, as adjustment_z in a "
        "file of estimates. Beyond 3 or 4 the value or its variance is suspect; what nothing else checks does not move."
    )
    mean = 0.0 if isinstance(law, str) else law.mean
    on_average = [f"What the law adds on average, {mean:.4g}, is taken off before."] * bool(mean)
    return Section("adjustments", "Largest adjustments", [sentence, *on_average], tables=[shown])


def _made(est: Estimate) -> list[str]:
    info, problem = est.info, est.problem
    sentences = [f"Solver: {info.solver}. {info.reason[:1].upper()}{info.reason[1:]}."]
    exact, unmeasured = (f"{own.sum():,}" for own in (problem.exact, problem.unmeasured))
    sentences.append(
        f"Of {counted(problem.observed.size, 'cell')} {exact} are known exactly and {unmeasured} were not measured. "
        f"Variables: {', '.join(problem.domain.schema.names)}."
    )
    law = problem.noise.law
    if not isinstance(law, str):
        sentences.append(
            f"Noise: every figure was published by the law {law!r}, of variance {law.variance:.4g}; none is one that "
            "it does not publish."
        )
    if problem.places is not None:
        kind = "geounit" if problem.areas is None else "area"
        said = problem.understood.places or ", ".join(problem.places.levels)
        sentences.append(f"Geography: {counted(problem.places.size, kind)}: {said}.")
    if problem.undetermined is not None:
        lost = np.flatnonzero(problem.undetermined)
        first = problem.why_undetermined(int(lost[0]))
        sentences.append(f"Left empty: {counted(int(lost.size), 'cell')} that cannot be estimated, such as: {first}.")
    return sentences


def _key(name: object) -> tuple[str, ...]:
    return tuple(map(str, name)) if isinstance(name, tuple) else (str(name),)


def _key_names(layout: Layout) -> list[str]:
    return ["geolevel", "table"] if layout.names and isinstance(layout.names[0], tuple) else ["table"]


def _cell_names(fit: Fit) -> list[str]:
    return [*_key_names(fit.problem.observed), "cell", *(["source"] if fit.sources is not None else [])]


def _named(fit: Fit, position: int) -> tuple[str, ...]:
    layout, cell = fit.problem.observed, fit.cell(position)
    name, indices = layout.locate(cell)
    source = [] if fit.sources is None else [fit.source(position)]
    return (*_key(name), layout.labels(cell)[1:-1] if indices else "", *source)


def _frame(columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=list(columns), orient="row")
