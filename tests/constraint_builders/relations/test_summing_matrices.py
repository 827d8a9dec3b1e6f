"""The tree that nodes of a summing matrix form, and the equations of those that form none, from sets of leaves."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from constraint_builders.relations.summing import SummingMatrix, disjoint_parts
from tests.helpers.effort import examples


def holder_of(nodes: list[frozenset[int]], node: int) -> int:
    """The least other node that holds its leaves; of equal ones the one before."""
    own = nodes[node]
    above = [i for i, other in enumerate(nodes) if other > own or (other == own and i < node)]
    return min(above, key=lambda i: (len(nodes[i]), -i), default=-1)


def cut(leaves: list[int], draw: st.DrawFn) -> list[frozenset[int]]:
    """A set, and some of what it may be cut into."""
    found = [frozenset(leaves)] * draw(st.integers(0, 2))
    if len(leaves) > 1:
        place = draw(st.integers(1, len(leaves) - 1))
        found += cut(leaves[:place], draw) + cut(leaves[place:], draw)
    return found


@st.composite
def families(draw: st.DrawFn) -> list[frozenset[int]]:
    own = cut(draw(st.permutations(range(draw(st.integers(1, 7))))), draw)
    crossing = st.frozensets(st.integers(0, 6), min_size=1)
    own += draw(st.lists(crossing, max_size=2)) if draw(st.booleans()) else []
    return list(draw(st.permutations(own))) or [frozenset([0])]


@st.composite
def runs(draw: st.DrawFn) -> list[frozenset[int]]:
    """Of leaves side by side, nested or a few of them crossing."""
    own = cut(list(range(draw(st.integers(1, 7)))), draw)
    places = st.tuples(st.integers(0, 6), st.integers(1, 7)).map(lambda ends: frozenset(range(ends[0], sum(ends))))
    own += draw(st.lists(places.filter(lambda run: max(run) < 7), max_size=2))
    return list(draw(st.permutations(own))) or [frozenset([0])]


@examples(200)
@given(nodes=st.one_of(families(), runs()))
def test_a_node_lies_in_the_least_that_holds_it(nodes: list[frozenset[int]]) -> None:
    S = np.array([[float(leaf in node) for leaf in range(7)] for node in nodes])
    found = SummingMatrix(S).nested
    assert (found is not None) == all(a <= b or b <= a or not a & b for a in nodes for b in nodes)
    if found is not None:
        assert found.parent.tolist() == [holder_of(nodes, i) for i in range(len(nodes))]


@examples(100)
@given(nodes=families(), all_leaves=st.booleans())
def test_the_equations_are_all_that_hold(nodes: list[frozenset[int]], all_leaves: bool) -> None:
    nodes = nodes + [frozenset([leaf]) for leaf in range(7) if all_leaves]
    S = np.array([[float(leaf in node) for leaf in range(7)] for node in nodes])
    A = SummingMatrix(S).relations.toarray()
    assert abs(A @ S).max(initial=0) < 1e-12
    assert len(A) == len(S) - np.linalg.matrix_rank(S)
    assert np.linalg.matrix_rank(A) == len(A) if len(A) else True


@examples(100)
@given(nodes=families())
def test_nodes_are_cut_into_the_largest_disjoint_ones_first(nodes: list[frozenset[int]]) -> None:
    sets = list(dict.fromkeys(node for node in nodes if len(node) > 1)) + [frozenset([leaf]) for leaf in range(7)]
    S = sparse.csr_array([[float(leaf in node) for leaf in range(7)] for node in sets])
    inner = np.arange(len(sets) - 7)
    found = disjoint_parts(S, len(sets) - 7 + np.arange(7), inner).toarray()
    for node in inner.tolist():
        left, expected = set(sets[node]), np.zeros(len(sets))
        smaller = [i for i, other in enumerate(sets) if other < sets[node]]
        for i in sorted(smaller, key=lambda i: (-len(sets[i]), -i if len(sets[i]) > 1 else i)):
            if sets[i] <= left:
                expected[i] = 1
                left -= sets[i]
        np.testing.assert_array_equal(found[node], expected)
