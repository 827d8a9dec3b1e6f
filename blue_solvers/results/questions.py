"""Questions about any geounits, answered from stored estimates (`result_files`).

Estimates are read from there; their variances and covariances follow from the variances of the measurements alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from blue_solvers.results.cell_sums import Levels
from blue_solvers.results.place_sums import PlaceSums
from blue_solvers.results.store import Progress
from blue_solvers.results.stored import StoredResult
from blue_solvers.uncertainty.functionals import Functionals
from constraint_builders.description.table import Table
from constraint_builders.geography import Entities
from constraint_builders.geography.geoids import block_geoid

Count = Mapping[str, Sequence[str]]


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

    def tables(self, geolevel: str) -> list[Table]:
        """The tables that were estimated at a geolevel, in order of size."""
        return self.stored_tables(geolevel)

    def geounits(self, geolevel: str, codes: Sequence[str]) -> NDArray[np.int64]:
        """Numbers within their level of the geounits of these codes.

        A block may also be named by its 15-digit GEOID, which the last 16 digits of its spine code hold.

        Raises
        ------
        ValueError
            If one is unknown or given twice.
        """
        members = self.members(geolevel)
        own = [self.spine.geocodes[i] for i in members]
        number = {geoid: i for i, code in enumerate(own) if (geoid := block_geoid(code))}
        number |= {code: i for i, code in enumerate(own)}
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
            If a variable or level is unknown, or no table was estimated from which a count can be summed.
        """
        return self.ask_places({"asked": self.members(geolevel)[geounits]}, counts)["asked"]

    def ask_places(
        self, places: Mapping[str, NDArray[np.int64]], counts: Sequence[Count], progress: Progress | None = None
    ) -> dict[str, Functionals]:
        """Estimate counts over each of many places, from one description of the problem.

        Parameters
        ----------
        places : mapping of str to ndarray of int
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
        asked = Entities.from_geounits(self.spine, places)
        own = {level for positions in places.values() for level in self.spine.level_of[positions].tolist()}
        counted = [self._levels_counted(count) for count in counts]
        sums = PlaceSums(self, asked, counted, [_in_words(count) for count in counts], own)
        found = {}
        for number, (name, estimate) in enumerate(zip(places, sums.estimates, strict=True)):
            if progress is not None:
                progress(name, number, len(places))
            found[name] = Functionals(estimate, sums.covariance([number]))
        return found

    def _levels_counted(self, count: Count) -> Levels:
        """For each variable that a count restricts which of its levels are counted."""
        levels: dict[str, NDArray[np.bool_]] = {}
        for factor, labels in count.items():
            variable, known = self.schema.names[self.schema.axis_of(factor)], self.schema.labels_of(factor)
            unknown = [label for label in labels if label not in known]
            if unknown or not labels:
                shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
                raise ValueError(f"{factor!r} has no level {', '.join(unknown)!r}: there are {shown}")
            counted = np.isin(known, labels)[list(self.schema.groups_of(factor))]
            levels[variable] = levels.get(variable, True) & counted
        return levels


def _in_words(count: Count) -> str:
    return " and ".join(f"{name}={'|'.join(labels)}" for name, labels in count.items()) or "the total"
