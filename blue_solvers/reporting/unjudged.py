"""The page of estimates whose measurements are not at hand: what they are and how precise, and what cannot be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import polars as pl

from blue_solvers.reporting.page_parts import DOUBT, Page, Section, Tile
from blue_solvers.reporting.precision import precision_section
from constraint_builders.printable import counted


def unjudged_page(
    source: str,
    precision: pl.DataFrame,
    listed: Sequence[Section],
    advice: str,
    made: Sequence[str] = (),
    known: Mapping[str, tuple[Tile, Section]] = MappingProxyType({}),
    tied: Tile | None = None,
    doubt: str = "the measurements are not at hand",
) -> Page:
    """What can be said of estimates without their measurements.

    Parameters
    ----------
    source : str
    precision : polars.DataFrame
        As `precision_rows` gives it.
    listed : (Section, Section)
        The estimates, as `listed_sections` gives them.
    advice : str
        How to have them judged.
    made : sequence of str
        How they were made, as far as it is known.
    known : mapping of str to (Tile, Section)
        Under ``fit`` and ``certificate`` what was stored with the estimates.
    tied : Tile, optional
        What ties the measurements together.
    doubt : str
        What is doubtful about what was measured.
    """
    cells = int(precision["cells"].sum())
    tiles = [Tile("Estimated", f"{cells:,} cells", f"of {counted(len(precision), 'table')}")]
    tiles += [*([] if tied is None else [tied]), *(tile for tile, _ in known.values())]
    if not known:
        tiles.append(Tile("Fit and certificate", "not judged", "the measurements are not at hand", DOUBT))
    why = f"The result holds estimates and not what was measured, so that this is not known of it here. {advice}"
    first, rows = listed
    sections = [
        first,
        known["fit"][1] if "fit" in known else Section("fit", "Fit", [why]),
        known["certificate"][1] if "certificate" in known else Section("certificate", "Certificate", [why]),
        Section("adjustments", "Largest adjustments", [why]),
        precision_section(precision),
        rows,
    ]
    if made:
        sections.append(Section("made", "How it was made", made))
    subtitle = f"{counted(cells, 'cell')} of {counted(len(precision), 'table')}."
    return Page(f"Estimates of {source}", subtitle, tiles, sections, doubt)
