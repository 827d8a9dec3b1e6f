"""The estimate of a tree of sums, a number for each node, in two sweeps.

Up the tree a node's own measurement y, variance v, is combined with the sum b of what its children are known to be from
below, variance B: m = k y + (1 - k) b with k = B / (B + v), of variance s = k v. Down the tree what its own estimate x
differs from that sum is shared among the children, each of which takes g = s / B of it, the more the less is known:

    x_child = m_child + g (x - b),    Var(x_child) = s (1 - g) + g^2 Var(x).

An exact node has v = 0, one that was not measured v = inf; B is infinite where children are not known from below, or
leave a rest: the one child that is unknown then takes all that differs. Of the child with the largest s in a family
s (1 - g) = g * (the others' s together), which loses no digits.

R. E. Kalman's filter and smoother on a tree; K. C. Chou, A. S. Willsky and A. Benveniste (1994), "Multiscale recursive
estimation, data fusion, and regularization", IEEE Transactions on Automatic Control 39.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blue_solvers.contract import Info, Prepared
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.relations.node_tree import NodeTree


class TreeOfSums(Prepared):
    """The estimate of all nodes of a tree of sums; see the module.

    Parameters
    ----------
    problem : Problem
        Of a summing matrix, with uncorrelated noise.
    tree : NodeTree
        Of its nodes.
    info : Info
    """

    def __init__(self, problem: Problem, tree: NodeTree, info: Info) -> None:
        self.problem, self.info, self._tree = problem, info, tree
        self.offset = np.zeros(problem.observed.size)
        own = tree.in_order(problem.variances)
        self._own = np.isfinite(own).astype(float)[:, None]  # k of every node
        self._below = np.zeros((own.size, 1))  # 1 - k of those with children
        self._taken = np.zeros((own.size, 1))  # g of those with parents
        self._known = own.copy()  # s of every node
        with np.errstate(invalid="ignore", divide="ignore"):
            for family in reversed(tree.generations):
                at, children = family.parents, family.children
                below = np.where(tree.rest[at], np.inf, family.sums(self._known[children]))
                self._own[at, 0], self._below[at, 0], self._known[at] = _combined(own[at], below)
                self._taken[children, 0] = _share(self._known[children], family.spread(below))

    def apply(self, Y: Float) -> tuple[Float, Info]:
        return self._tree.by_node(self._estimated(Y)), self.info

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        X, violation = self._estimated(Y), 0.0
        for family in self._tree.generations:
            whole = ~self._tree.rest[family.parents]
            differ = X[family.parents] - family.sums(X[family.children])
            violation = max(violation, float(abs(differ[whole]).max(initial=0.0)))
        return self._tree.by_node(X), replace(self.info, violation=violation)

    def _estimated(self, Y: Float) -> Float:
        """The nodes in the tree's order, (n, K)."""
        X = self._tree.in_order(Y)
        if self.problem.has_unmeasured:
            X[self._own[:, 0] == 0] = 0
        sums = []
        for family in reversed(self._tree.generations):
            at = family.parents
            sums.append(family.sums(X[family.children]))
            X[at] = self._own[at] * X[at] + self._below[at] * sums[-1]
        for family in self._tree.generations:
            X[family.children] += self._taken[family.children] * family.spread(X[family.parents] - sums.pop())
        return X

    def adjoint(self, V: Float) -> Float:
        W = self._tree.in_order(V)
        pulls = []
        for family in reversed(self._tree.generations):
            pulls.append(family.sums(self._taken[family.children] * W[family.children]))
            W[family.parents] += pulls[-1]
        for family in self._tree.generations:
            at = family.parents
            W[family.children] += family.spread(self._below[at] * W[at] - pulls.pop())
        return self._tree.by_node(self._own * W)

    def variances(self) -> Float:
        found = self._known.copy()
        for family in self._tree.generations:
            s, g = self._known[family.children], self._taken[family.children, 0]
            most = g > 0.5
            others = family.spread(family.sums(np.where(most, 0.0, s)))
            above = family.spread(found[family.parents])
            found[family.children] = np.where(most, others, s) * np.where(most, g, 1 - g) + g**2 * above
        return self._tree.by_node(found)


def _combined(own: Float, below: Float) -> tuple[Float, Float, Float]:
    """Of a measurement and a sum, by their variances, (nodes,): what each counts, and the variance of both together."""
    k = np.where(np.isinf(below), np.isfinite(own), np.where(own == 0, 1.0, below / (below + own)))
    rest = np.where(np.isinf(below) | (own == 0), 0.0, np.where(np.isinf(own), 1.0, own / (below + own)))
    both = np.where(own < below, own * k, below * rest)
    return k, rest, np.where(np.isinf(own) & np.isinf(below), np.inf, both)


def _share(part: Float, whole: Float) -> Float:
    """What a child takes of what differs, by the variances of its value and of its family's sum, (nodes,)."""
    share = part / whole
    return np.where(np.isnan(share), np.isinf(part), share)  # of an exact family, or where nothing is known of a child
