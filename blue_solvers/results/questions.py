"""Questions about any geounits, answered from stored estimates (`result_files`).

Estimates are read from there; their variances and covariances follow from the variances of the measurements alone.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from blue_solvers.quantiles import takes_confidence_level
from blue_solvers.results.place_sums import PlaceSums
from blue_solvers.results.published_answers import (
    Pairs,
    answerable,
    differences_frame,
    long_frame,
    ranks_frame,
    ratios_frame,
    read_lines,
    wide_frame,
)
from blue_solvers.results.store import Progress
from blue_solvers.results.stored import Levels, StoredResult
from blue_solvers.uncertainty.functionals import Functionals
from constraint_builders.description.common_leaves import levels_having
from constraint_builders.description.table import Table
from constraint_builders.files.tabulated_places import block_geoid
from constraint_builders.geography import Entities, Geoids

Count = Mapping[str, Sequence[str]]
Places: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]


class Result(StoredResult):
    """Stored estimates. Every file is compared with its checksum before anything in it is believed.

    Parameters
    ----------
    folder : path
        Written by `write_result`.

    Raises
    ------
    DamagedError
        If a file is missing or is not what was written, here or as soon as it is needed; it is named.
    ValueError
        If the result has another format.
    OSError
        If there is no result.
    """

    def tables(self, geolevel: str | None = None) -> list[Table]:
        """The tables estimated at a geolevel, in order of size.

        Parameters
        ----------
        geolevel : str
            Without one it is `published_tables`, as in earlier versions.

        Returns
        -------
        list of Table

        Raises
        ------
        ValueError
            If there is no such level.
        """
        if geolevel is None:
            warnings.warn("Result.tables() is now Result.published_tables()", DeprecationWarning, stacklevel=2)
            return self.published_tables()  # type: ignore[return-value]
        return self.stored_tables(geolevel)

    def published_tables(self) -> pl.DataFrame:
        """Which published tables this result answers.

        Returns
        -------
        polars.DataFrame
            A row for each published table: ``table``, ``title``, ``lines``, ``unsure`` (how many of these have numbers
            that nobody confirms: none), ``geolevels`` at which all lines are stored, and ``reason``, why the result
            cannot answer it, or empty.

        Raises
        ------
        ValueError
            If the variables are of no published product.
        """
        return answerable(self)

    @cached_property
    def geoids(self) -> Geoids:
        """The places of published tables, by their GEOIDs."""
        return Geoids(self.spine, self.in_part)

    @takes_confidence_level
    def table(
        self,
        name: str,
        geoids: Places | None = None,
        geolevel: str | None = None,
        confidence_level: float = 0.95,
        wide: bool = False,
        progress: Progress | None = None,
        whole: bool = False,
    ) -> pl.DataFrame:
        """A published table of some places.

        Parameters
        ----------
        name : str
            Such as ``"P12"``; or a line of one, such as ``"P12_003N"``, in files ``"P0120003"``, or ``"P12 > Male"``.
        geoids : sequence of str, or mapping of str to sequence of str
            GEOIDs of places, or places made up of them by name.
        geolevel : str
            ``"state"``, ``"county"``, ``"tract"``, ``"block_group"`` or ``"block"``, of which to take every place,
            within `geoids` if they are given.
        confidence_level : float
            Of the intervals.
        wide : bool
            Whether a row is a place, and columns are lines, instead of a row for each line of each place.
        progress : callable, optional
            As `ask_places` takes it.
        whole : bool
            Whether estimates are rounded and, like their bounds, cut at 0, as published counts are: biased then.

        Returns
        -------
        polars.DataFrame
            Columns ``geoid``, ``line``, ``label``, ``estimate``, ``std_error``, ``lower``, ``upper``, ``confidence``
            (A: the Census Bureau lists the line by this number), ``path``, ``margin_90``, ``cv``, the standard error in
            percent of the estimate, and ``reliability``, high up to 10 %, medium up to 30 %, else low; or wide
            ``geoid``, ``P12_001N``, ``P12_001N_se``, ....

        Raises
        ------
        ValueError
            If the table or a place is unknown, or the result cannot answer; the message says why.
        """
        lines = read_lines(self, [name])
        frame = long_frame(self, lines, self._places(geoids, geolevel), confidence_level, progress, whole)
        return wide_frame(frame) if wide else frame

    @takes_confidence_level
    def differences(
        self,
        line: str,
        other_line: str | None = None,
        geoids: Places | None = None,
        geolevel: str | None = None,
        other_geoid: str | None = None,
        confidence_level: float = 0.95,
        progress: Progress | None = None,
    ) -> pl.DataFrame:
        """A line of a published table less another one, or less the same at another place, for some places.

        Parameters
        ----------
        line, other_line : str
            Such as ``"P12_003N"``; the other is by default the same.
        geoids, geolevel, level, progress
            As for `table`.
        other_geoid : str, optional
            The place of the other line, a GEOID or one of the places by name; by default the same place.

        Returns
        -------
        polars.DataFrame
            A row for each place: ``geoid``, ``line``, ``other_geoid``, ``other_line``, ``estimate``, ``std_error``,
            ``lower``, ``upper`` and ``confidence``.

        Raises
        ------
        ValueError
            As `table`, and if nothing else is given to compare with.
        """
        pairs = self._pairs(line, other_line, geoids, geolevel, other_geoid)
        return differences_frame(pairs, confidence_level, progress)

    @takes_confidence_level
    def ratios(
        self,
        line: str,
        other_line: str | None = None,
        geoids: Places | None = None,
        geolevel: str | None = None,
        other_geoid: str | None = None,
        confidence_level: float = 0.95,
        progress: Progress | None = None,
    ) -> pl.DataFrame:
        """A line of a published table over another one, a share for instance, or over the same at another place.

        Parameters
        ----------
        line, other_line, geoids, geolevel, other_geoid, level, progress
            As for `differences`.

        Returns
        -------
        polars.DataFrame
            As `differences`, without ``std_error``: Fieller intervals, null where what is divided by is not far enough
            from 0.
        """
        return ratios_frame(self._pairs(line, other_line, geoids, geolevel, other_geoid), confidence_level, progress)

    @takes_confidence_level
    def ranks(
        self, line: str, geoids: Places | None = None, geolevel: str | None = None, confidence_level: float = 0.95
    ) -> pl.DataFrame:
        """Places ranked by a line of a published table, the largest first.

        Parameters
        ----------
        line, geoids, geolevel
            As for `table`.
        confidence_level : float
            With which each place's true rank lies in its interval, at least.

        Returns
        -------
        polars.DataFrame
            ``geoid``, ``line``, ``estimate``, ``std_error``, ``rank``, ``rank_from``, ``rank_to`` and ``confidence``.

        Raises
        ------
        ValueError
            As `table`.
        """
        return ranks_frame(self, line, self._places(geoids, geolevel), confidence_level)

    def _places(self, geoids: Places | None, geolevel: str | None) -> Entities:
        if isinstance(geoids, Mapping):
            if geolevel is not None:
                raise ValueError("give places made up by name, or a geolevel of which to take all, not both")
            return self.geoids.of_places(geoids)
        if geolevel is not None:
            return self.geoids.every(geolevel, () if geoids is None else geoids)
        return self.geoids.of(() if geoids is None else geoids)

    def _pairs(
        self, line: str, other_line: str | None, geoids: Places | None, geolevel: str | None, other_geoid: str | None
    ) -> Pairs:
        if other_line is None and other_geoid is None:
            raise ValueError("give another line or another place to compare with")
        named = geoids if isinstance(geoids, Mapping) else {}
        other = None
        if other_geoid is not None:
            other = self.geoids.of_places({other_geoid: named.get(other_geoid, [other_geoid])})
        return Pairs(self, line, other_line or line, self._places(geoids, geolevel), other)

    def geounits(self, geolevel: str, codes: Sequence[str]) -> NDArray[np.int64]:
        """Numbers within their level of the geounits of these codes.

        A block may also be named by its 15-digit GEOID, which the last 16 digits of its spine code hold.

        Parameters
        ----------
        geolevel : str
        codes : sequence of str, (g,)

        Returns
        -------
        ndarray of int, (g,)

        Raises
        ------
        ValueError
            If one is unknown, given twice, or the GEOID of several geounits or of a block that is here in part.
        """
        own = [self.spine.geocodes[i] for i in self.members(geolevel)]
        geoids = Counter(map(block_geoid, own))
        number = {geoid: i for i, code in enumerate(own) if (geoid := block_geoid(code))}
        number |= {code: i for i, code in enumerate(own)}
        cut = self.in_part.cut
        shared = [code for code in codes if code and (geoids[code] > 1 or code in cut)]
        if shared:
            rest = self.in_part.rest_of(shared[0])
            other = f", and {rest} is not in this result" if rest else ""
            raise ValueError(
                f"{shared[0]!r} is not one geounit of {geolevel!r} alone{other}: name its parts by their geocodes"
            )
        unknown = [code for code in codes if code not in number]
        if unknown:
            others = f", nor {len(unknown) - 1:,} more of those asked for" if len(unknown) > 1 else ""
            raise ValueError(f"no geounit {unknown[0]!r} at geolevel {geolevel!r}{others}")
        found = np.array([number[code] for code in codes], dtype=np.int64)
        if np.unique(found).size < found.size:
            repeated = next(code for code in codes if list(found).count(number[code]) > 1)
            raise ValueError(f"geounit {repeated!r} is given twice: it would be counted twice")
        return found

    def ask(self, geolevel: str, geounits: NDArray[np.int64], counts: Sequence[Count]) -> Functionals:
        """Estimate counts over geounits together, such as the adults of some blocks.

        They are composed of the fewest geounits, added and subtracted, of any geolevels with a table for every count.

        Parameters
        ----------
        geolevel : str
        geounits : ndarray of int, (g,)
            Numbers within the level; see `geounits`.
        counts : sequence of mapping of str to sequence of str, (K,)
            For each count the labels that it takes of some variables or recodes; all of those not named.

        Returns
        -------
        Functionals

        Raises
        ------
        ValueError
            If a variable or level is unknown, a number is none of the level's, or no table was estimated from which a
            count can be summed.
        """
        members, numbers = self.members(geolevel), np.asarray(geounits)
        if ((numbers < 0) | (numbers >= members.size)).any():
            raise ValueError(f"geounits of {geolevel!r} are numbered from 0 to {members.size - 1}: see `geounits`")
        return self.ask_places({"asked": members[numbers]}, counts)["asked"]

    def ask_places(
        self, places: Mapping[str, NDArray[np.int64]], counts: Sequence[Count], progress: Progress | None = None
    ) -> dict[str, Functionals]:
        """Estimate counts over each of many places, from one description of the problem.

        Parameters
        ----------
        places : mapping of str to ndarray of int, (geounits,)
            Positions in the spine of the geounits of every place.
        counts : sequence of mapping of str to sequence of str, (K,)
            As for `ask`.
        progress : callable, optional
            Called with each place, its number from 0, and how many there are, before its variances are computed.

        Returns
        -------
        dict of Functionals
            The counts of every place.

        Raises
        ------
        ValueError
            As `ask`.
        """
        sums = self.place_sums(places, counts)
        covariances = sums.covariances(progress)
        return {name: Functionals(*own) for name, *own in zip(places, sums.estimates, covariances, strict=True)}

    def place_sums(self, places: Mapping[str, NDArray[np.int64]], counts: Sequence[Count]) -> PlaceSums:
        """Counts over each of many places, geounits (k,), whose errors are computed when they are asked for.

        Parameters
        ----------
        places, counts
            As for `ask_places`.

        Returns
        -------
        PlaceSums
            K counts over each of P places.

        Raises
        ------
        ValueError
            As `ask`.
        """
        asked = Entities.from_geounits(self.spine, places)
        own = set(self.spine.level_of[np.concatenate([*places.values()])].tolist()) if places else set()
        counted = [self._levels_counted(count) for count in counts]
        return PlaceSums(self, asked, counted, [_in_words(count) for count in counts], own)

    def _levels_counted(self, count: Count) -> Levels:
        """For each variable that a count restricts which of its levels are counted."""
        levels: dict[str, NDArray[np.bool_]] = {}
        for factor, labels in count.items():
            variable = self.schema.names[self.schema.axis_of(factor)]
            levels[variable] = levels.get(variable, True) & levels_having(self.schema, factor, labels)
        return levels


def _in_words(count: Count) -> str:
    return " and ".join(f"{name}={'|'.join(labels)}" for name, labels in count.items()) or "the total"
