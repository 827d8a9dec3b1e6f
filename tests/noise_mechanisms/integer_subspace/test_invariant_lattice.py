"""Invariants, lattice bases and the Smith form, against python-flint and by their definitions."""

import numpy as np
from flint import fmpz_mat
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

from constraint_builders import Schema
from constraint_builders.description.spine import Spine
from noise_mechanisms.integer_subspace import Invariants, Lattice, smith_form
from noise_mechanisms.integer_subspace.gram_schmidt import gram_schmidt
from noise_mechanisms.integer_subspace.heat_bath import basic_moves
from noise_mechanisms.integer_subspace.lattice import check_basis
from noise_mechanisms.unimodular import unimodular_null_basis
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refused, refuses
from tests.noise_mechanisms.integer_subspace.enumeration import margins

VENN = Invariants.from_subsets([[0, 1, 2, 3, 4, 5], [0, 1, 2, 6, 7, 8], [0, 1, 3, 6, 9, 10]], records=14)
CASES = {
    "two-way": margins((4, 5), "a", "b"),
    "all two-way of three": margins((3, 4, 2), "a * b", "b * c", "a * c"),
    "four-cycle": margins((2, 3, 2, 3), "a * b", "b * c", "c * d", "a * d"),
    "nested margins": margins((3, 4, 2), "a", "a * b"),
    "decomposable": margins((3, 4, 2), "a * b", "c"),
    "axis of one level": margins((3, 1, 4), "a", "c"),
    "total": margins((3, 4), "total"),
    "nothing": margins((2, 3)),
    "everything": margins((2, 3), "detailed"),
    "recode": Invariants.from_margins(Schema({"a": 4, "b": 3}, {"a": {"pairs": [0, 0, 1, 1]}}), ["pairs", "b"]),
    "tree": Invariants.from_subsets([[0, 1, 2, 3, 4], [0, 1], [3, 4], [3, 4]], records=7),
    "intersecting": VENN,
}


def incidence_matrices() -> st.SearchStrategy[np.ndarray]:
    def matrix(shape: tuple[int, int]) -> st.SearchStrategy[np.ndarray]:
        rows = st.lists(st.integers(0, 1), min_size=shape[1], max_size=shape[1]).filter(any)
        return st.lists(rows, min_size=shape[0], max_size=shape[0]).map(np.array)

    return st.tuples(st.integers(1, 6), st.integers(1, 12)).flatmap(matrix)


@every("name", CASES)
def test_bases_are_saturated_bases_of_the_null_lattice(name: str) -> None:
    invariants = CASES[name]
    lattice = Lattice(invariants)
    check_basis(invariants, lattice.basis)
    check_basis(invariants, unimodular_null_basis(invariants.matrix))
    assert lattice.dimension == invariants.records - fmpz_mat(invariants.matrix.toarray().tolist()).rank()


@every("name", CASES)
def test_closed_forms_and_elimination_span_the_same_lattice(name: str) -> None:
    lattice = Lattice(CASES[name])
    if lattice.dimension == 0:
        return
    forms = []
    for basis in (lattice.basis, unimodular_null_basis(CASES[name].matrix)):
        forms.append(fmpz_mat(basis.toarray().T.tolist()).hnf())
    assert forms[0] == forms[1]


@given(incidence_matrices())
@examples(150)
def test_elimination_on_any_incidence_matrix(A: np.ndarray) -> None:
    lattice = Lattice(Invariants(A))
    check_basis(lattice.invariants, lattice.basis)
    assert lattice.dimension == A.shape[1] - fmpz_mat(A.tolist()).rank()


@given(incidence_matrices())
@example(np.diag([4, 6, 0, 9]))  # of which none divides the next
@examples(150)
def test_smith_form(A: np.ndarray) -> None:
    form = smith_form(A)
    assert np.array_equal(form.U @ A @ form.V, form.D)
    assert abs(fmpz_mat(form.U.tolist()).det()) == 1
    assert abs(fmpz_mat(form.V.tolist()).det()) == 1
    reference = fmpz_mat(A.tolist()).snf()
    assert [form.D[i, i] for i in range(min(A.shape))] == [int(reference[i, i]) for i in range(min(A.shape))]
    assert np.count_nonzero(form.D) == form.rank
    assert not (A @ form.null_basis).any()


def test_smith_form_refuses_large_matrices() -> None:
    assert smith_form(np.zeros((100, 200), dtype=int)).rank == 0  # as many entries as it takes
    refuses(r"out of reach.*Lattice", smith_form, margins((40, 50), "a", "b").matrix)


def test_exact_forms_of_large_lattices_without_a_closed_one_are_refused() -> None:
    lattice = Lattice(Invariants.from_subsets([range(150), range(100, 210)], 210))
    refuses("limited to dimension 200: it has 208", gram_schmidt, lattice)


def test_an_unsaturated_basis_is_refused() -> None:
    invariants = margins((3, 3), "a", "b")
    basis = Lattice(invariants).basis.toarray()
    doubled = basis @ np.diag([1, 2, 1, 1])
    refuses(r"miss lattice points, all but one in 2 \(no saturated", check_basis, invariants, sparse.csc_array(doubled))
    refuses("dependent", check_basis, invariants, sparse.csc_array(basis[:, [0, 1, 2, 2]]))
    refuses("3 columns, the lattice has dimension 4", check_basis, invariants, sparse.csc_array(basis[:, :3]))
    refuses("breaks an invariant", check_basis, invariants, sparse.csc_array(abs(basis)))


@every("name", CASES)
def test_gram_schmidt_is_that_of_the_basis(name: str) -> None:
    lattice = Lattice(CASES[name])
    basis, form = lattice.basis.toarray().astype(float), gram_schmidt(lattice)
    orthogonal = basis @ np.linalg.inv(form.coefficients)
    np.testing.assert_allclose(np.triu(form.coefficients), form.coefficients)
    np.testing.assert_allclose(np.diag(form.coefficients), 1.0)
    # Products of small rationals: a few roundings.
    np.testing.assert_allclose(orthogonal.T @ orthogonal, np.diag(form.norms**2), atol=1e-12)


@every("name", CASES)
def test_fronts_depend_on_earlier_fronts_only(name: str) -> None:
    form = gram_schmidt(Lattice(CASES[name]))
    drawn = np.zeros(form.norms.size, dtype=bool)
    for front in form.fronts:
        assert not drawn[front].any()
        waiting = ~drawn
        drawn[front] = True
        needed = form.coefficients[front][:, waiting]
        assert np.array_equal(needed != 0, front[:, None] == np.flatnonzero(waiting))
    assert drawn.all()


def test_gram_schmidt_norms_of_two_way_margins_lie_between_1_and_2() -> None:
    norms = gram_schmidt(Lattice(margins((9, 24), "a", "b"))).norms
    assert 1 < norms.min() < norms.max() <= 2
    assert len(gram_schmidt(Lattice(margins((9, 24), "a", "b"))).fronts) == 9 + 24 - 3


@every("name", [name for name in CASES if name != "everything"])
def test_basic_moves_generate_the_lattice(name: str) -> None:
    lattice = Lattice(CASES[name])
    moves = basic_moves(lattice)
    vectors = np.zeros((moves.count, lattice.records), dtype=np.int64)
    np.add.at(vectors, (np.arange(moves.count)[:, None], moves.cells), moves.steps)
    assert not (lattice.invariants.matrix @ vectors.T).any()
    divisors = fmpz_mat(vectors.tolist()).snf()  # all 1: the moves generate every lattice point
    assert [int(divisors[i, i]) for i in range(min(vectors.shape))].count(1) == lattice.dimension
    assert np.linalg.matrix_rank(vectors) == lattice.dimension
    assert len({tuple(v) for v in np.concatenate([vectors, -vectors]).tolist()}) == 2 * moves.count


def test_basic_moves_of_a_two_way_table_are_all_swaps() -> None:
    moves = basic_moves(Lattice(margins((4, 5), "a", "b")))
    assert moves.count == 6 * 10
    assert (abs(moves.steps) == 1).all()


@every(
    ("name", "smallest"),
    [("two-way", 4), ("all two-way of three", 8), ("total", 2), ("nothing", 1), ("everything", 0), ("tree", 1)],
)
def test_smallest_distance_is_attained_by_a_move(name: str, smallest: int) -> None:
    lattice = Lattice(CASES[name])
    assert lattice.smallest_distance == smallest
    if smallest:
        assert abs(basic_moves(lattice).steps).sum(axis=1).min() == smallest


def test_constructors_agree() -> None:
    by_margins = margins((2, 3), "a", "b").matrix.toarray()
    by_subsets = Invariants.from_subsets([[0, 1, 2], [3, 4, 5], [0, 3], [1, 4], [2, 5]], records=6)
    assert np.array_equal(by_margins, by_subsets.matrix.toarray())
    spine = Spine([-1, 0, 0, 1, 1, 2, 2, 2], ["US", "S", "S", "C", "C", "C", "C", "C"])
    states = Invariants.from_spine(spine, ["S"])
    assert np.array_equal(states.matrix.toarray(), [[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]])
    assert np.array_equal(Invariants.from_spine(spine, ["US", "S"]).blocks, [1, 1, 2, 2, 2])


def test_invariants_of_a_table() -> None:
    invariants = margins((2, 2), "a", "b")
    assert np.array_equal(invariants.apply([1, 2, 3, 4]), [3, 7, 4, 6])
    assert invariants.equivalent([1, 2, 3, 4], [0, 3, 4, 3])
    assert not invariants.equivalent([1, 2, 3, 4], [2, 2, 3, 4])
    assert Lattice(invariants).contains([1, -1, -1, 1])
    both = margins((2, 2), "a").both(margins((2, 2), "b"))
    assert np.array_equal(both.matrix.toarray(), invariants.matrix.toarray())
    assert Lattice(both).basis_method == "margins"


def test_overlapping_sets_have_no_blocks() -> None:
    assert VENN.blocks is None
    assert margins((2, 2), "a", "b").blocks is None
    assert np.array_equal(CASES["tree"].blocks >= 0, [True] * 5 + [False] * 2)


@refused(
    (lambda: Invariants([[1, 2, 0]]), "0 and 1 only: got 2"),
    (lambda: Invariants([[1, 0], [0, 0]]), "invariant 1 contains no record"),
    (lambda: Invariants.from_subsets([[0], [5]], records=3), "subset 1 names record 5"),
    (lambda: Invariants.from_subsets([[0, 0]], records=3), "subset 0 names a record twice"),
    (lambda: Invariants.from_subsets([[0.5, 1]], records=3), "a record is 0.5: give a whole number"),
    (lambda: smith_form([[1.5, 2]]), "the matrix must hold whole numbers"),
    (lambda: margins((2, 2), "a", "z"), "'z'"),
    (lambda: Invariants.from_spine(Spine([-1, 0], ["US", "S"]), ["County"]), "no geolevel 'County'"),
    (lambda: margins((2, 2), "a").both(margins((2, 3), "a")), "4 and of 6 records"),
    (lambda: margins((2, 2), "a").apply([1, 2, 3]), "must hold 4 records"),
    (lambda: margins((2, 2), "a").apply([1, 2, 3, 0.5]), "whole numbers"),
    (lambda: margins((2, 2), "a").apply([1, 2, 3, np.nan]), "whole numbers"),
    (lambda: basic_moves(Lattice(CASES["everything"])), "determine every record"),
)
def test_bad_input_is_refused_by_name(make: object) -> None:
    make()  # type: ignore[operator]
