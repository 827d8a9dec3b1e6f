"""The AIAN spine: every state split into its American Indian, Alaska Native and Native Hawaiian areas and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from constraint_builders.description.spine import CENSUS_WIDTHS, Spine

IN_AIAN, OUTSIDE_AIAN = "1", "0"

# AIANNHCE code ranges of the classes that the 2020 production runs put on the spine
# (das source, etc/AIANNHCE_ranges.csv): state-designated and statistical areas are not among them.
AIAN_CLASSES: Mapping[str, tuple[int, int]] = {
    "legal federal": (1, 4799),
    "joint use": (4800, 4989),
    "Hawaiian home land": (5000, 5499),
    "Oklahoma tribal statistical area": (5500, 5899),
    "joint-use Oklahoma tribal statistical area": (5900, 5999),
    "Alaska Native village statistical area": (6000, 7999),
    "state legal": (9000, 9499),
}


def on_spine_areas(codes: Sequence[str], classes: Sequence[str] = tuple(AIAN_CLASSES)) -> list[str]:
    """The area's code of every block, "" where it lies in no area of the given classes.

    Parameters
    ----------
    codes : sequence of str, (L,)
        AIANNHCE of every block, four digits; "" or 9999 outside every area.
    classes : sequence of str
        Some of `AIAN_CLASSES`, by default all.

    Raises
    ------
    ValueError
        If a class is unknown or a code is not four digits.
    """
    unknown = [name for name in classes if name not in AIAN_CLASSES]
    if unknown:
        raise ValueError(f"no AIAN class {unknown[0]!r}: there are {', '.join(map(repr, AIAN_CLASSES))}")
    ranges = [AIAN_CLASSES[name] for name in classes]
    kept = {}
    for code in dict.fromkeys(codes):
        if code and not (len(code) == 4 and code.isascii() and code.isdecimal()):
            raise ValueError(f"AIANNHCE {code!r} is not four digits: give the code as text, '' where there is none")
        kept[code] = code if code and any(low <= int(code) <= high for low, high in ranges) else ""
    return [kept[code] for code in codes]


def aian_spine(
    geoids: Sequence[str], areas: Sequence[str], widths: Mapping[str, int] | None = None, root: str = "US"
) -> Spine:
    """The AIAN spine of a block table.

    Every geounit below the root is split in the part inside the areas and the part outside, where both exist.

    Parameters
    ----------
    geoids : sequence of str, (L,)
        Identifiers of the blocks.
    areas : sequence of str, (L,)
        Code of every block's on-spine area, "" outside; see `on_spine_areas`.
    widths : mapping of str to int, optional
        Leading characters of `geoids` that identify the geounits of every geolevel, by default the Census Bureau's.
    root : str
        Name of the level above all.

    Returns
    -------
    Spine
        Geocodes begin with "1" inside the areas and "0" outside, as in production; blocks keep their order.

    Raises
    ------
    ValueError
        If lengths differ, or for identifiers that `Spine.from_geoids` refuses.
    """
    if len(areas) != len(geoids):
        raise ValueError(f"areas lists {len(areas):,} blocks, geoids {len(geoids):,}: give one for each")
    codes = [(IN_AIAN if area else OUTSIDE_AIAN) + str(geoid) for geoid, area in zip(geoids, areas, strict=True)]
    longer = {level: width + 1 for level, width in (widths or CENSUS_WIDTHS).items()}
    return Spine.from_geoids(codes, longer, root)
