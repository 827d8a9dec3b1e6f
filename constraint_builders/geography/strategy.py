"""A spine with its privacy budget: the strategy of the matrix mechanism."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.budget import (
    Measure,
    Neighbours,
    Shares,
    check_privacy,
    noise_variance,
    split,
    usable_variance,
)
from constraint_builders.description.reals import Rational, in_digits
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.geography.entities import leaves
from constraint_builders.problem import Problem


@dataclass(frozen=True)
class Strategy:
    """Which tables are measured in every geounit, with which share of the budget.

    Attributes
    ----------
    spine : Spine
    shares : tuple of Fraction, (N,)
        Share gamma of the budget of every geounit; 0 where nothing is measured.
    query_shares : mapping of geolevel to mapping of table to Fraction
        Share alpha of every table within a geounit of the level.
    total : Fraction
        rho of zCDP, or epsilon of pure DP.
    measure : {"zcdp", "pure"}
        zCDP is met by Gaussian noise, pure DP by Laplace noise.
    neighbours : {"bounded", "unbounded"}

    Raises
    ------
    ValueError
        If there is not one share for every geounit, a share is negative, a level with shares lacks tables, or the
        measure or neighbours are unknown.
    """

    spine: Spine
    shares: tuple[Fraction, ...]
    query_shares: Mapping[str, Mapping[str, Fraction]]
    total: Fraction
    measure: Measure = "zcdp"
    neighbours: Neighbours = "bounded"

    def __post_init__(self) -> None:
        check_privacy(self.measure, self.neighbours)
        if len(self.shares) != self.spine.size:
            raise ValueError(f"{len(self.shares):,} shares for {self.spine.size:,} geounits: give one for each")
        for geounit, share in enumerate(self.shares):
            level = self.spine.levels[self.spine.level_of[geounit]]
            if share < 0:
                raise ValueError(
                    f"share of {level} {self.spine.geocodes[geounit]!r} is {in_digits(share)}: it must not be negative"
                )
            if share and not self.query_shares.get(level):
                raise ValueError(
                    f"geolevel {level!r} has a share of the budget but no query shares: give them, or share 0"
                )

    @classmethod
    def from_levels(
        cls,
        spine: Spine,
        total: Rational,
        geolevel_shares: Shares,
        query_shares: Mapping[str, Shares],
        measure: Measure = "zcdp",
        neighbours: Neighbours = "bounded",
    ) -> Strategy:
        """Give every geounit its geolevel's share.

        Parameters
        ----------
        spine : Spine
        total : Fraction, int or str
            rho or epsilon of everything.
        geolevel_shares : mapping of geolevel to share
            For levels of the spine; they sum to exactly 1, and levels left out have share 0.
        query_shares : mapping of geolevel to mapping of table to share
            In every level they sum to exactly 1.
        measure, neighbours
            As for the class.

        Returns
        -------
        Strategy

        Raises
        ------
        TypeError
            If a share is a float.
        ValueError
            If shares are negative or do not sum to 1, or a level is not one of the spine's.
        """
        for level in [*geolevel_shares, *query_shares]:
            spine.level_index(level)
        losses = split(total, geolevel_shares, "geolevels")
        tables = {level: split(1, shares, f"geolevel {level!r}") for level, shares in query_shares.items()}
        whole = sum(losses.values(), Fraction(0))
        of_level = [losses.get(level, Fraction(0)) / whole for level in spine.levels]
        shares = tuple(of_level[level] for level in spine.level_of)
        return cls(spine, shares, tables, whole, measure, neighbours)

    def path_sums(self) -> tuple[Fraction, ...]:
        """Sum of the shares on the path from the root to every leaf, (L,), exact.

        Returns
        -------
        tuple of Fraction, (L,)
        """
        return _path_sums(self.spine, self.shares)

    @cached_property
    def loss(self) -> Fraction:
        """The privacy loss of releasing every measurement, exact: rho of zCDP or epsilon of pure DP.

        A record is counted in the geounits of one path from the root to a leaf, and there in one cell of every table;
        losses add up along the path, and the largest path counts.

        References
        ----------
        Paper, Theorem 1; Theorem 3 where geounits have been bypassed.
        """
        used = [sum(self.query_shares.get(level, {}).values(), Fraction(0)) for level in self.spine.levels]
        spent = [share * used[level] for share, level in zip(self.shares, self.spine.level_of, strict=True)]
        return self.total * max(_path_sums(self.spine, spent))

    def observed(self) -> dict[str, dict[str, NDArray[np.float64]]]:
        """Variance of every table in every geounit, as ``Problem(observed=...)`` takes it: inf where the share is 0.

        Returns
        -------
        dict of dict of ndarray
            By geolevel and table (geounits,), in squared units of the counts.

        References
        ----------
        Paper, Theorem 1: Gaussian variance 1 / (rho gamma alpha), Laplace scale 2 / (epsilon gamma alpha), for bounded
        neighbours.
        """
        result = {}
        for level, members in zip(self.spine.levels, self.spine.members, strict=True):
            shares = [self.shares[i] for i in members]
            tables = self.query_shares.get(level, {}) if any(shares) else {}
            if tables:
                result[level] = {table: self._variances(shares, alpha) for table, alpha in tables.items() if alpha}
        return result

    def _variances(self, shares: Sequence[Fraction], alpha: Fraction) -> NDArray[np.float64]:
        known = {share: self.variance(share * alpha) for share in set(shares)}
        return np.array([known[share] for share in shares])

    def variance(self, share: Fraction) -> float:
        """Variance of every cell of a table that gets this share of the total; infinite for 0.

        Parameters
        ----------
        share : Fraction

        Returns
        -------
        float
            In squared units of the counts.

        Raises
        ------
        ValueError
            If it is too small or too large for floats and what is worked out from them.
        """
        if not share:
            return math.inf
        variance = noise_variance(self.total * share, self.measure, self.neighbours)
        return usable_variance(variance, f"a share of {in_digits(share)} of a total of {in_digits(self.total)}")

    @property
    def noise(self) -> str:
        """The law of the noise that spends it: ``"gaussian"`` for zCDP, ``"laplace"`` for pure DP."""
        return "gaussian" if self.measure == "zcdp" else "laplace"

    def problem(self, schema: Schema, desired: Any = None) -> Problem:
        """The estimation problem of this strategy; `desired` as for `Problem`.

        Parameters
        ----------
        schema : Schema
        desired
            As for `Problem`.

        Returns
        -------
        Problem
        """
        return Problem(schema, self.observed(), desired, spine=self.spine, noise=self.noise)


def _path_sums(spine: Spine, shares: Iterable[Fraction]) -> tuple[Fraction, ...]:
    sums = np.array([*shares, Fraction(0)], dtype=object)
    for members in spine.members[1:]:
        sums[members] = sums[members] + sums[spine.parent[members]]
    return tuple(sums[leaves(spine)])
