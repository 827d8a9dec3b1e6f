"""Bypassing geounits that cost more than they give: Theorem 2, its zCDP twin, Algorithm 3, and Remark 2 as advice.

To bypass a geounit with c children is to hand its budget to them. Where the geounit stands, c new ones are put at its
own geolevel, each with one of the children, that child's share added to the old one's, and the child's share set to 0:
budget moves up, the depth stays, and the sum of shares on every path from the root to a block is what it was.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

from constraint_builders.budget import Measure
from constraint_builders.description.reals import Rational
from constraint_builders.description.spine import Spine
from constraint_builders.geography.strategy import Strategy

PRODUCTION_BYPASS_CUTOFF = 150


def bypassing_improves(parent: Fraction, children: Sequence[Fraction], measure: Measure) -> bool:
    """Whether handing a geounit's share to its children makes no linear query less accurate.

    The best linear unbiased estimate is meant, with the same tables and query shares at both levels.

    Parameters
    ----------
    parent : Fraction
        The geounit's share.
    children : sequence of Fraction, (c,)
        Shares of its children; where they differ the smallest counts.
    measure : {"pure", "zcdp"}
        Laplace noise, whose precision is proportional to the share's square: true if gamma_c >= (c - 1) gamma_p / 2.
        Gaussian noise, proportional to the share: true for a single child.

    Raises
    ------
    ValueError
        If there is no child or the measure is unknown.

    References
    ----------
    Paper, Theorem 2 and the text after Remark 2.
    """
    if not children:
        raise ValueError("a geounit without children cannot be bypassed: give at least one child's share")
    if measure == "zcdp":
        return len(children) == 1
    if measure == "pure":
        return 2 * min(children) >= (len(children) - 1) * parent
    raise ValueError(f"measure {measure!r} is unknown: use 'zcdp' or 'pure'")


def bypass(strategy: Strategy, *, bypass_cutoff: int | None = None, forced: Collection[str] = ()) -> Strategy:
    """Bypass every geounit for which that improves or leaves unchanged all estimates (Algorithm 3).

    It does where tables and query shares are those of the level below; elsewhere `compare_spines` says what it does.
    One pass from the level above the leaves up to the root. The root must stay one geounit: it is bypassed only where
    it has a single child.

    Parameters
    ----------
    strategy : Strategy
    bypass_cutoff : int, optional
        Only for pure DP: leave a geounit alone if, it being replaced by its children, its parent would have more
        children than this. Not in the paper; production has 150.
    forced : collection of str
        Geolevels whose geounits are all bypassed, whatever that does to accuracy; production does so with tract groups,
        which have share 0.

    Returns
    -------
    Strategy
        Its spine has the same levels and leaves; geounits put in the place of one are named ``"parent/child"``. `loss`
        is its privacy guarantee.

    Raises
    ------
    ValueError
        If a forced level does not exist, or is the leaves' or the root's; if the level of a bypassed geounit has no
        query shares, by which those in its place would be measured.
    ArithmeticError
        If a sum of shares on a path has changed, which would be a defect.

    References
    ----------
    Paper, Algorithm 3; Theorem 3 for the privacy guarantee.
    """
    spine = strategy.spine
    for name in forced:
        if not 0 < spine.level_index(name) < len(spine.levels) - 1:
            raise ValueError(f"geolevel {name!r} cannot be bypassed everywhere: it is the root's or the blocks'")
    tree = _Tree(strategy)
    for level in range(len(spine.levels) - 2, -1, -1):
        for geounit in spine.members[level]:
            if tree.should_bypass(int(geounit), bypass_cutoff, spine.levels[level] in forced):
                tree.bypass(int(geounit))
    return _unchanged_paths(strategy, tree.strategy())


def bypass_chosen(strategy: Strategy, geounits: Collection[int]) -> Strategy:
    """Bypass given geounits, whatever that does to accuracy; privacy is unchanged, as of `bypass`.

    Parameters
    ----------
    strategy : Strategy
    geounits : collection of int
        Positions in its spine. Lower ones are bypassed first: a geounit then hands its share to those that have come
        in the place of its children.

    Raises
    ------
    ValueError
        If a geounit does not exist, has no children, or is the root and has several.
    """
    spine, tree = strategy.spine, _Tree(strategy)
    for geounit in sorted(set(geounits), key=lambda i: -spine.level_of[i]):
        if not 0 <= geounit < spine.size or not tree.children[geounit]:
            raise ValueError(f"geounit {geounit} cannot be bypassed: it has no children to hand its share to")
        if spine.parent[geounit] < 0 and len(tree.children[geounit]) > 1:
            raise ValueError("the root cannot be bypassed: it has several children, and a spine has one root")
        tree.bypass(geounit)
    return _unchanged_paths(strategy, tree.strategy())


def _unchanged_paths(before: Strategy, after: Strategy) -> Strategy:
    if before.path_sums() != after.path_sums():
        raise ArithmeticError("bypassing changed the sum of shares on a path: please report this defect")
    return after


class _Tree:
    """The geounits as linked lists, while they are being bypassed."""

    def __init__(self, strategy: Strategy) -> None:
        spine = strategy.spine
        self._original = strategy
        self.parent = spine.parent.tolist()
        self.level = spine.level_of.tolist()
        self.code = list(spine.geocodes)
        self.share = list(strategy.shares)
        self.children: list[list[int]] = [[] for _ in range(spine.size)]
        for geounit, parent in enumerate(self.parent):
            if parent >= 0:
                self.children[parent].append(geounit)

    def should_bypass(self, geounit: int, bypass_cutoff: int | None, forced: bool) -> bool:
        children, parent = self.children[geounit], self.parent[geounit]
        if len(children) < 2 or parent < 0:
            return len(children) == 1
        if forced:
            return True
        measure = self._original.measure
        fanout = len(self.children[parent]) - 1 + len(children)
        crowded = bypass_cutoff is not None and fanout > bypass_cutoff
        return not crowded and bypassing_improves(self.share[geounit], [self.share[c] for c in children], measure)

    def bypass(self, geounit: int) -> None:
        """Put one geounit for every child in the place of this one, which becomes the first of them."""
        children, share = self.children[geounit], self.share[geounit]
        code, parent = self.code[geounit], self.parent[geounit]
        for number, child in enumerate(children):
            heir = geounit if number == 0 else self._append(parent, self.level[geounit])
            self.code[heir] = f"{code}/{self.code[child]}" if len(children) > 1 else code
            self.share[heir] = share + self.share[child]
            self.share[child] = Fraction(0)
            self.children[heir] = [child]
            self.parent[child] = heir

    def _append(self, parent: int, level: int) -> int:
        self.parent.append(parent)
        self.level.append(level)
        self.code.append("")
        self.share.append(Fraction(0))
        self.children.append([])
        self.children[parent].append(len(self.parent) - 1)
        return len(self.parent) - 1

    def strategy(self) -> Strategy:
        """The result; the leaves are in their old order, since geounits were only changed in place or appended."""
        old = self._original
        spine = Spine(self.parent, [old.spine.levels[level] for level in self.level], self.code)
        return Strategy(spine, tuple(self.share), old.query_shares, old.total, old.measure, old.neighbours)


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
