"""Remark 2 as advice for any hierarchical strategy: how many intervals a node should have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from constraint_builders.budget import Measure
from constraint_builders.description.reals import Rational
from constraint_builders.geography.bypass import bypassing_improves
from constraint_builders.geography.strategy import Strategy


def fewest_children(parent: Rational, child: Rational, measure: Measure) -> int:
    """The fewest children that a node should have: with fewer, bypassing it makes nothing worse.

    Parameters
    ----------
    parent, child : Fraction, int or str
        Shares of the budget of the node and of each of its children, the child's positive.
    measure : {"pure", "zcdp"}

    Returns
    -------
    int
        For pure DP the least c with gamma_c < (c - 1) gamma_p / 2, which is 4 at equal shares: nodes of two or three
        intervals are never worth measuring. For zCDP 2.

    Raises
    ------
    ValueError
        If a share is not positive (a node with share 0 is not measured at all), or the measure is unknown.

    Examples
    --------
    >>> fewest_children("1/5", "1/5", "pure")
    4

    References
    ----------
    Paper, Theorem 2 and Remark 2; Hay et al., "Boosting the accuracy of differentially private histograms through
    consistency", 2010.
    """
    gamma_p, gamma_c = Fraction(parent), Fraction(child)
    if gamma_p <= 0 or gamma_c <= 0:
        raise ValueError(f"shares must be positive: got {parent} for the node and {child} for its children")
    if measure not in ("pure", "zcdp"):
        raise ValueError(f"measure {measure!r} is unknown: use 'zcdp' or 'pure'")
    return 2 + math.floor(2 * gamma_c / gamma_p) if measure == "pure" else 2


@dataclass(frozen=True)
class Advice:
    """A node of a strategy that costs more than it gives.

    Attributes
    ----------
    geounit : int
        Its position in the spine.
    children : int
        How many it has.
    fewest : int
        How many it should have at these shares.
    """

    geounit: int
    children: int
    fewest: int


def nodes_to_bypass(strategy: Strategy) -> list[Advice]:
    """The measured nodes with fewer measured children than they should have; nothing is changed.

    Parameters
    ----------
    strategy : Strategy
        Of any hierarchy: a spine, or intervals of a range split again and again.

    Returns
    -------
    list of Advice
        In the spine's order. `bypass` acts on it.
    """
    spine, found = strategy.spine, []
    shares: dict[int, list[Fraction]] = {}
    for child, parent in enumerate(spine.parent.tolist()):
        shares.setdefault(parent, []).append(strategy.shares[child])
    for geounit, share in enumerate(strategy.shares):
        children = shares.get(geounit, [])
        if share and children and min(children) > 0 and bypassing_improves(share, children, strategy.measure):
            found.append(Advice(geounit, len(children), fewest_children(share, min(children), strategy.measure)))
    return found
