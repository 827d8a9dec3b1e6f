"""The tree of geographic units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from constraint_builders.description.described import Compared
from constraint_builders.description.labelled import read_texts, refuse_labels
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.reals import refuse_masked

CENSUS_WIDTHS = {"State": 2, "County": 5, "Tract": 11, "Block_Group": 12, "Block": 15}


class Spine(Compared, LevelledTree):
    """A tree of geounits, each at a geolevel.

    Branches may differ in depth, a geounit may have a single child, and a branch may skip a geolevel.

    Parameters
    ----------
    parent : array_like of int, (N,)
        Position of every geounit's parent; -1 for the root.
    geolevel : sequence of str, (N,), optional
        Name of every geounit's level; by default ``"depth 0"`` for the root, ``"depth 1"`` for its children and so on.
    geocode : sequence of str, (N,), optional
        Names of the geounits, unique within a level; by default their positions.

    Attributes
    ----------
    parent : ndarray of int, (N,)
    levels : tuple of str
        The geolevels, from the root down.
    level_of : ndarray of int, (N,)
        Position among `levels` of every geounit's level.

    Raises
    ------
    ValueError
        If lengths differ, there is not exactly one root, a parent does not exist, geounits form a cycle, levels
        cannot be ordered from the root down, or a geocode is repeated within a level. The geounit is named.

    Examples
    --------
    >>> spine = Spine([-1, 0, 0, 1], ["State", "County", "County", "Tract"], ["44", "44001", "44003", "44001030100"])
    >>> spine
    Spine(4 geounits: 1 State, 2 County, 1 Tract)
    """

    _same_in, _hashed_by = ("parent", "level_of", "levels", "geocodes"), ("size", "levels")

    def __init__(
        self, parent: ArrayLike, geolevel: Sequence[str] | None = None, geocode: Sequence[str] | None = None
    ) -> None:
        self.parent = read_positions(parent, "parent")
        geolevel, geocode = (
            None if given is None else read_texts(given, what)
            for what, given in (("geolevel", geolevel), ("geocode", geocode))
        )
        if self.parent.ndim != 1 or not self.parent.size:
            raise ValueError(f"parent must list at least one geounit: got shape {self.parent.shape}")
        for what, given in (("geolevel", geolevel), ("geocode", geocode)):
            if given is not None and len(given) != self.parent.size:
                raise ValueError(f"{what} lists {len(given)} geounits, parent {self.parent.size}: give one for each")
        self._geocodes = None if geocode is None else tuple(geocode)
        self._refuse_orphans()
        if geolevel is None:
            level_of = self._depths()
            levels = tuple(f"depth {depth}" for depth in range(int(level_of.max()) + 1))
        else:
            levels, level_of = self._order_levels(np.array(geolevel))
        super().__init__(self.parent, level_of, levels)
        if geocode is not None:
            self._refuse_repeats()
        self.parent.flags.writeable = self.level_of.flags.writeable = False

    @cached_property
    def geocodes(self) -> tuple[str, ...]:
        """Names of the geounits."""
        return self._geocodes or tuple(str(position) for position in range(self.parent.size))

    def _depths(self) -> NDArray[np.intp]:
        """Number of geounits above every one."""
        if self._stops is not None:
            return np.repeat(np.arange(len(self._stops)), np.diff(self._stops, prepend=0))
        depth = np.zeros(self.parent.size, dtype=np.intp)
        ancestor = self.parent
        while (below := ancestor >= 0).any():
            depth += below
            ancestor = np.where(below, self.parent[ancestor], -1)
        return depth

    @cached_property
    def _stops(self) -> list[int] | None:
        """Where geounits of every depth end that come depth by depth, children in the order of parents; or None."""
        if self.parent[0] != -1 or not (self.parent[1:] >= self.parent[:-1]).all():
            return None
        stops = [1]
        while (stop := int(np.searchsorted(self.parent, stops[-1]))) > stops[-1]:
            stops.append(stop)
        return stops if stops[-1] == self.parent.size else None

    def _refuse_orphans(self) -> None:
        roots = np.flatnonzero(self.parent == -1)
        if roots.size != 1:
            named = ", ".join(repr(self.geocodes[i]) for i in roots[:5]) or "none"
            raise ValueError(f"a spine has exactly one root (parent -1): got {roots.size} ({named})")
        if self.parent.min() < -1 or self.parent.max() >= self.parent.size:
            lost = np.flatnonzero((self.parent < -1) | (self.parent >= self.parent.size))
            raise ValueError(
                f"geounit {self.geocodes[lost[0]]!r} is an orphan: it has no parent {self.parent[lost[0]]}"
            )
        if self._stops is not None:
            return
        ancestor = self.parent.copy()
        for _ in range(int(np.ceil(np.log2(self.parent.size + 1))) + 1):
            if (ancestor < 0).all():
                return
            ancestor = np.where(ancestor >= 0, ancestor[ancestor], -1)
        if (ancestor >= 0).any():
            raise ValueError(f"geounit {self.geocodes[int(np.flatnonzero(ancestor >= 0)[0])]!r} is in or below a cycle")

    def _order_levels(self, names: NDArray) -> tuple[tuple[str, ...], NDArray[np.intp]]:
        """Levels such that every geounit's lies below its parent's, and the number of every geounit's, (geounits,)."""
        labels, numbers = np.unique(names, return_inverse=True)
        children = np.flatnonzero(self.parent >= 0)
        above, below = numbers[self.parent[children]], numbers[children]
        if (same := np.flatnonzero(above == below)).size:
            child = children[same[0]]
            raise ValueError(
                f"geounit {self.geocodes[child]!r} has the geolevel {str(names[child])!r} of its parent "
                f"{self.geocodes[self.parent[child]]!r}: a child lies at a lower level"
            )
        pairs = set(zip(above.tolist(), below.tolist(), strict=True))
        waiting, ordered = set(range(labels.size)), []
        while waiting:
            free = waiting - {lower for upper, lower in pairs if upper in waiting}
            if not free:
                names_left = sorted(str(labels[level]) for level in waiting)
                raise ValueError(f"geolevels {names_left} lie both above and below one another: order them by depth")
            ordered.append(min(free))
            waiting -= {min(free)}
        return tuple(str(labels[level]) for level in ordered), np.argsort(ordered)[numbers]

    def _refuse_repeats(self) -> None:
        seen: set[tuple[int, str]] = set()
        for key in zip(self.level_of.tolist(), self.geocodes, strict=True):
            if key in seen:
                raise ValueError(f"geocode {key[1]!r} is given twice at geolevel {self.levels[key[0]]!r}")
            seen.add(key)

    @classmethod
    def from_geoids(
        cls, geoids: Iterable[str], widths: Mapping[str, int] | None = None, root: str | None = None
    ) -> Spine:
        """A spine from the identifiers of its leaves, whose leading digits are those of their ancestors.

        Parameters
        ----------
        geoids : iterable of str
            Identifiers of all leaves, of one length.
        widths : mapping of str to int, optional
            For every geolevel from the top how many leading characters identify its geounits; by default those of
            the Census Bureau (State 2, County 5, Tract 11, Block_Group 12, Block 15).
        root : str, optional
            Name of a level above all, such as ``"US"``, with one geounit of empty geocode. Needed where the
            identifiers begin with different states.

        Returns
        -------
        Spine

        Raises
        ------
        ValueError
            If an identifier is repeated, shorter or longer than the last width, of digits of another script, or, by
            the widths of the Census Bureau, of anything but digits; or there are several geounits at the top without
            `root`.
        """
        codes = read_texts(geoids, "geoids")
        _refuse_strange(codes, by_census=widths is None)
        widths = dict(widths or CENSUS_WIDTHS)
        longest = max(widths.values())
        short = next((code for code in codes if len(code) < longest), None)
        if short is not None:
            raise ValueError(
                f"geoid {short!r} has {len(short)} characters: the level widths need {longest}; give geoids as text, "
                "for their leading zeros"
            )
        if list(widths.values()) != sorted(set(widths.values())):
            raise ValueError(f"level widths must increase from the top down: got {widths}")
        levels = ({root: 0} if root else {}) | widths
        by_level = {level: list(dict.fromkeys(code[:width] for code in codes)) for level, width in levels.items()}
        if len(by_level[next(reversed(levels))]) < len(codes):
            repeated, _ = Counter(code[:longest] for code in codes).most_common(1)[0]
            raise ValueError(f"geoid {repeated!r} is given twice, as far as the level widths read: every leaf once")
        long = next((code for code in codes if len(code) > longest), None)
        if long is not None:
            raise ValueError(
                f"geoid {long!r} has {len(long)} characters, and the level widths read {longest}: give a level for the "
                "rest, or leave it out"
            )
        return cls.from_geocodes(by_level)

    @classmethod
    def from_geocodes(cls, geocodes: Mapping[str, Sequence[str]]) -> Spine:
        """A spine from geocodes by level, a parent's being a prefix of its children's, of any width.

        Parameters
        ----------
        geocodes : mapping of str to sequence of str
            Geocodes of every geolevel, from the root down.

        Returns
        -------
        Spine

        Raises
        ------
        ValueError
            If a geounit has no parent at any level above.
        """
        position: dict[str, int] = {}
        parents: list[int] = []
        levels: list[str] = []
        widths: set[int] = set()
        by_level = {level: read_texts(codes, f"geocodes of {level!r}") for level, codes in geocodes.items()}
        for level, codes in by_level.items():
            found = _longest_prefixes(codes, position, sorted(widths, reverse=True))
            for code, parent in zip(codes, found, strict=True):
                if parent < 0 and position:
                    raise ValueError(f"geounit {code!r} of {level!r} is an orphan: no geocode above begins its own")
            start = len(parents)
            parents += found
            levels += [level] * len(codes)
            position |= {code: start + i for i, code in enumerate(codes)}
            widths |= {len(code) for code in codes}
        return cls(parents, levels, [code for codes in by_level.values() for code in codes])

    def leaves_of(self, level: int) -> sparse.csr_array:
        """Which leaves, geounits without children, are at or below every geounit of a level, (geounits, leaves).

        Parameters
        ----------
        level : int
            The number of a geolevel among `levels`.

        Returns
        -------
        csr_array, (geounits, leaves)
        """
        leaves = np.flatnonzero(self.child_counts == 0)
        above = self.ancestors_at(leaves, level)
        inside = np.flatnonzero(above >= 0)
        places = self.rank_in_level[above[inside]], inside
        return sparse.csr_array((np.ones(inside.size), places), shape=(self.members[level].size, leaves.size))

    def level_index(self, level: str) -> int:
        """Position of a geolevel among `levels`.

        Parameters
        ----------
        level : str
            A geolevel.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If there is no such level.
        """
        if level not in self.levels:
            raise ValueError(
                f"no geolevel {level!r} in the spine: it has {', '.join(repr(name) for name in self.levels)}"
            )
        return self.levels.index(level)

    def position(self, level: str, geocode: str) -> int:
        """Position of a geounit.

        Parameters
        ----------
        level, geocode : str

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If there is none of that geocode at that level.
        """
        found = self._positions.get((self.level_index(level), str(geocode)))
        if found is None:
            raise ValueError(f"no geounit {geocode!r} at geolevel {level!r}")
        return found

    @cached_property
    def _positions(self) -> dict[tuple[int, str], int]:
        return {key: i for i, key in enumerate(zip(self.level_of.tolist(), self.geocodes, strict=True))}

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{members.size:,} {level}" for level, members in zip(self.levels, self.members, strict=True)
        )
        return f"Spine({self.size:,} geounits: {counts})"


def read_positions(values: ArrayLike, what: str) -> NDArray[np.intp]:
    """Positions of geounits, of any shape; `ValueError` for what holds none."""
    refuse_masked(values, what)
    refuse_labels(values, what)
    given = np.asarray(values)
    if given.dtype.kind == "O" and all(type(own) is int or isinstance(own, np.integer) for own in given.flat):
        given = given.astype(np.intp)  # as data frames may hold whole numbers
    whole = given.dtype.kind == "f" and (np.isfinite(given) & (given == np.rint(given))).all()
    if given.size and given.dtype.kind not in "iu" and not whole:
        raise ValueError(f"{what} must hold positions, whole numbers: got {given.dtype} {given.ravel()[:5].tolist()}")
    return given.astype(np.intp)


def _longest_prefixes(codes: Iterable[str], position: Mapping[str, int], widths: Sequence[int]) -> list[int]:
    """For each code the position of the longest known one that begins it, or -1; `widths` are theirs, longest first."""
    found = []
    for code in codes:
        own = -1
        for width in widths:
            if width <= len(code) and (own := position.get(code[:width], -1)) >= 0:
                break
        found.append(own)
    return found


ONE_PLACE = Spine([-1], ["all"])  # of tables without a geography


def _refuse_strange(codes: Sequence[str], by_census: bool) -> None:
    """Refuse identifiers that look like others and are not: in digits of another script, or with a letter for one."""
    for code in codes:
        if not code.isascii() or (by_census and len(code) == max(CENSUS_WIDTHS.values()) and not code.isdecimal()):
            raise ValueError(f"geoid {code!r} is not of the digits 0 to 9 alone: copy it again, as text")
