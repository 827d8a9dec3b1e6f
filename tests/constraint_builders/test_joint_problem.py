"""Products that were measured apart, estimated together: beside dense least squares that is worked out here."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from blue_solvers import blue, estimate
from constraint_builders import Areas, LowRankPlusDiagonal, Problem, Schema, joint
from constraint_builders.files.settings import production_settings
from noise_mechanisms.laws import RandomRounding, Rounding
from tests.helpers.dense_algebra import least_squares
from tests.helpers.effort import examples
from tests.helpers.exact_reference import marginal_rows
from tests.helpers.refused import refused, refuses

LEVELS, GROUPS = 4, 3  # of the finer variable, and of the coarser one that is a recode of it
BLOCKS = ["a", "b", "c", "d", "e", "f"]
FINE_TABLES, COARSE_TABLES = ["total", "kind", "sex", "group * sex", "kind * sex"], ["total", "group", "pair"]


@dataclass
class Invented:
    """Two products of invented people, and everything as plain matrices over (blocks, kind, sex)."""

    problems: list[Problem]
    measurements: list[np.ndarray]
    M: np.ndarray
    D: np.ndarray
    known: list[tuple[np.ndarray, float]]  # linear combinations of detailed counts, and their values

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        """The best linear unbiased estimate of D counts, and its variances."""
        v = np.concatenate([own.variances for own in self.problems])
        C, c = [row for row, _ in self.known], [value for _, value in self.known]
        known = (np.array(C), np.array(c)) if C else None
        return least_squares(self.M, v, np.concatenate(self.measurements), self.D, known)


def invented(seed: int, *, exact: bool = True) -> Invented:
    """Two partitions of the same blocks that cross, in different orders, with random tables measured."""
    rng = np.random.default_rng(seed)
    group = np.concatenate([np.arange(GROUPS), rng.integers(0, GROUPS, LEVELS - GROUPS)])
    rng.shuffle(group)
    pair = rng.permutation([0, 1, 1])
    fine = Schema({"kind": LEVELS, "sex": 2}, recodes={"kind": {"group": group.tolist()}})
    coarse = Schema({"group": GROUPS}, recodes={"group": {"pair": pair.tolist()}})
    truth = rng.poisson(8, (len(BLOCKS), LEVELS, 2)).ravel()
    problems, measurements, rows, wanted = [], [], [], []
    for schema, tables in ((coarse, COARSE_TABLES), (fine, FINE_TABLES)):
        order = rng.permutation(len(BLOCKS))
        tract = rng.permutation(np.repeat([0, 1, 2], 2))  # of every block; other ones in each product
        layers = {"County": np.zeros(len(BLOCKS), int), "Tract": tract, "Block": np.arange(len(BLOCKS))}
        areas = Areas([BLOCKS[i] for i in order], {name: layers[name][order] for name in layers})
        at = {}
        for name in layers:
            some = [t for t in tables if rng.random() < 0.6] or ["total"]
            at[name] = {t: float(rng.choice([0.3, 1.0, 7.0])) for t in some}
        finest = "kind * sex" if schema is fine else "group"
        at["Block"] = at["Block"] | {finest: 9.0}
        if exact and rng.random() < 0.5:
            at["County"]["total"] = 0.0
        asked = {name: [t for t in tables if rng.random() < 0.5] or ["total"] for name in layers}
        own = Problem(schema, at, asked, areas=areas)
        for names, kept in ((own.observed.names, rows), (own.desired.names, wanted)):
            for level, table in names:
                holds = np.equal.outer(np.unique(layers[level]), layers[level])  # areas by number
                cells = marginal_rows(schema, table)  # over (kind, sex), or groups of kinds
                kept.append(np.kron(holds, cells if schema is fine else np.kron(cells[:, group], np.ones(2))))
        M = np.vstack(rows)[-own.observed.size :]
        problems.append(own)
        measurements.append(M @ truth + np.sqrt(own.variances) * rng.standard_normal(len(M)))
    return Invented(problems, measurements, np.vstack(rows), np.vstack(wanted), [])


@examples(60, 3)
@given(seed=st.integers(0, 100_000))
def test_beside_dense_least_squares(seed: int) -> None:
    own = invented(seed)
    problem = joint(*own.problems)
    y = np.concatenate(own.measurements)
    values, variances = own.solution()
    for solver in ("areas", "cholesky"):
        P = blue(problem, solver)
        np.testing.assert_allclose(P @ y + P.offset, values, rtol=1e-8, atol=1e-7)
        np.testing.assert_allclose(P.variances(), variances, rtol=1e-7, atol=1e-9)
    found = estimate(problem, y)
    assert found.info.exact
    assert (found.certificate().bound or 0.0) < 1e-9


@examples(40, 4)
@given(seed=st.integers(0, 100_000))
def test_zeros_and_equalities_go_along(seed: int) -> None:
    own = invented(seed, exact=False)
    coarse, fine = own.problems
    zeros = {("Tract", "group"): np.array([[False, True, False], [True, False, False], [False] * 3])}
    asked = {level: [t for lv, t in coarse.desired.names if lv == level] for level, _ in coarse.desired.names}
    tables = {level: {t: 1.0 for lv, t in coarse.observed.names if lv == level} for level, _ in coarse.observed.names}
    empty = Problem(coarse.schema, tables, asked, areas=coarse.areas, zeros=zeros).with_variances(coarse.variances)
    tract = empty.areas.layer("Tract").incidence.toarray()[:, [empty.areas.names("Leaf").index(b) for b in BLOCKS]]
    group = np.array(fine.schema.groups_of("group"))
    for t, g in ((0, 1), (1, 0)):
        for cell in np.flatnonzero(np.kron(np.kron(tract[t], group == g), np.ones(2))):
            own.known.append((np.eye(own.M.shape[1])[cell], 0.0))
    E = np.zeros((1, fine.observed.size))
    E[0, [0, -1]] = 1.0, 2.0
    own.known.append((E[0] @ own.M[coarse.observed.size :], 31.0))
    tied = fine.replace(equalities=(sparse.csr_array(E), np.array([31.0])))
    own.problems = [empty, tied]
    values, variances = own.solution()
    P = blue(joint(*own.problems))
    np.testing.assert_allclose(P @ np.concatenate(own.measurements) + P.offset, values, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(P.variances(), variances, rtol=1e-6, atol=1e-8)


def test_leaves_keep_the_order_and_the_name_that_the_only_product_with_tables_of_them_has() -> None:
    layer = Problem(SEX.schema, {"Town": {"sex": 1.0}}, areas=Areas(["a", "b"], {"Town": ["s", "t"]}))
    problem = joint(layer, at(["b", "a"]))
    assert [level for level, _ in problem.observed.names] == ["Town", "Leaf"]
    assert problem.areas.names("Leaf") == ("b", "a")
    assert problem.areas.leaves_of(0).toarray().tolist() == [[0, 1], [1, 0]]


def test_recodes_of_recodes_are_added_and_names_can_be_given() -> None:
    fine = Schema({"relgq": 4, "sex": 2}, recodes={"relgq": {"hhgq8lev": [1, 0, 2, 2]}})
    coarse = Schema({"hhgq": 3}, recodes={"hhgq": {"inst": [0, 1, 1]}})
    problem = joint(
        Problem(coarse, {"hhgq": 1.0, "inst": 2.0}), Problem(fine, {"detailed": 1.0}), recodes={"hhgq": "hhgq8lev"}
    )
    assert problem.schema.groups_of("inst") == (1, 0, 1, 1)
    assert [table for _, table in problem.observed.names] == ["hhgq8lev", "inst", "relgq * sex"]


def test_a_product_that_counts_one_cell_of_another() -> None:
    """Occupied units are householders: a cell of a recode, of which the other was not measured."""
    schema = Schema({"relgq": 3, "sex": 2}, recodes={"relgq": {"householder": [0, 1, 1]}})
    persons = Problem(schema, {"Leaf": {"relgq": 2.0, "sex": 5.0}}, areas=Areas(["a", "b"], {}))
    counts = {"Leaf": {"householder": np.array([[0.5, np.inf]] * 2)}}
    units = Problem(Schema({"householder": 2}), counts, areas=Areas(["b", "a"], {}), undetermined="nan")
    problem = joint(persons, units, desired={"Leaf": ["relgq"]})
    M = np.vstack(
        [np.kron(np.eye(2), np.kron(np.eye(3), np.ones(2))), np.kron(np.eye(2), np.kron(np.ones(3), np.eye(2)))]
    )
    occupied = np.kron([[0, 1], [1, 0]], [1, 1, 0, 0, 0, 0])
    y = np.array([7.0, 2, 3, 8, 1, 4, 5, 6, 7, 9, 10, 6])
    values, variances = least_squares(np.vstack([M, occupied]), np.repeat([2.0, 5.0, 0.5], [6, 4, 2]), y, M[:6])
    together = np.concatenate([y[:10], [y[10], np.nan, y[11], np.nan]])
    P = blue(problem)
    np.testing.assert_allclose(P @ together, values, atol=1e-9)
    np.testing.assert_allclose(P.variances(), variances, rtol=1e-9)


def test_cells_keep_the_order_of_their_own_names_and_schemas() -> None:
    """The coarser schema has its variables the other way round, and a variance for every cell."""
    fine = Problem(Schema({"a": 2, "b": 4}, recodes={"b": {"g": [1, 0, 2, 0]}}), {"b * a": 3.0}, ["a * b"])
    variances = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    coarse = Problem(Schema({"g": 3, "a": 2}), {"g * a": variances}, ["a"])
    M = np.zeros((14, 8))  # counts by a, then b
    for a in range(2):
        for b, g in enumerate([1, 0, 2, 0]):
            M[[2 * b + a, 8 + 2 * g + a], 4 * a + b] = 1
    v = np.concatenate([np.full(8, 3.0), variances.ravel()])
    y = np.random.default_rng(3).normal(10, 3, 14)
    D = np.vstack([np.eye(8), np.kron(np.eye(2), np.ones(4))])
    np.testing.assert_allclose(blue(joint(fine, coarse)) @ y, least_squares(M, v, y, D)[0], atol=1e-10)


def test_the_schemas_that_are_shipped() -> None:
    redistricting, demographic = (production_settings(name).schema for name in ("pl94_us_persons", "dhc_us_persons"))
    coarse = Problem(redistricting, {"detailed": 4.0, "hhinstlevels": 2.0}, ["hhinstlevels"])
    fine = Problem(demographic, {"hhgq8lev * sex": 4.0, "votingage * hispanic": 2.0}, ["hhgq8lev"])
    same = {"hhgq": "hhgq8lev", "votingage": "votingage"}
    problem = joint(coarse, fine, recodes=same, names=["PL94", "DHC"])
    assert problem.observed.names[0] == ("all (PL94)", "hhgq8lev * votingage * hispanic * cenrace")
    assert problem.schema.groups_of("hhinstlevels") == (0,) * 18 + (1,) * 15 + (2,) * 9
    variances = blue(problem).variances()
    assert (variances[:3] < blue(coarse).variances()).all()
    assert (variances[3:] < blue(fine).variances()).all()


@examples(40, 5)
@given(seed=st.integers(0, 100_000), kind=st.sampled_from(["matrix", "shared"]), both=st.booleans())
def test_correlated_noise_beside_dense_least_squares(seed: int, kind: str, both: bool) -> None:
    """Of one product or of both; shared sources beside values that are exact and cells that were not measured."""
    own, rng = invented(seed, exact=kind == "shared"), np.random.default_rng(seed)
    covariances = []
    for i, problem in enumerate(own.problems):
        n, v = problem.observed.size, problem.variances
        if i == 0 and not both:
            covariances.append(np.diag(v))
        elif kind == "matrix":
            U = sparse.random_array((n, n), density=0.1, rng=rng).toarray()
            covariances.append(np.diag(v) + U @ U.T)
            own.problems[i] = problem.with_covariance(covariances[-1])
        else:
            U = rng.normal(0, 2, (n, 2)) * (v > 0)[:, None]
            covariances.append(np.diag(v) + U @ U.T)
            own.problems[i] = problem.with_covariance(LowRankPlusDiagonal(v, U))
    problem, y = joint(*own.problems), np.concatenate(own.measurements)
    Sigma = np.block([[covariances[0], np.zeros((len(covariances[0]), len(covariances[1])))],
                      [np.zeros((len(covariances[1]), len(covariances[0]))), covariances[1]]])  # fmt: skip
    values, variances = least_squares(own.M, Sigma, y, own.D)
    P = blue(problem, "cholesky")
    np.testing.assert_allclose(P @ y + P.offset, values, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(P.variances(), variances, rtol=1e-6, atol=1e-8)


def test_truth_goes_along() -> None:
    schema = Schema({"sex": 2})
    one = Problem(schema, {"sex": 1.0}, truth=[3.0, 4.0])
    assert joint(one, one).truth.tolist() == [3.0, 4.0, 3.0, 4.0]
    assert joint(one, Problem(schema, {"sex": 1.0})).truth is None


SEX = Problem(Schema({"sex": ["f", "m"]}), {"sex": 1.0})
TIED = SEX.with_covariance(np.array([[1.0, 0.5], [0.5, 1.0]]))
PLACES = Problem(SEX.schema, {"Leaf": {"sex": 1.0}}, areas=Areas(["a", "b"], {}))


def at(leaves: list[str] | int) -> Problem:
    return Problem(SEX.schema, {"Leaf": {"sex": 1.0}}, areas=Areas(leaves, {}))


def test_truth_is_of_the_same_cells_where_tables_are_put_by_layers() -> None:
    """Units are counted by their householders: tables of all people and those that tell them apart are interleaved."""
    schema = Schema({"relgq": 3, "sex": 2})
    cells = np.arange(1.0, 7.0).reshape(3, 2)
    truth = np.concatenate([cells.sum(axis=1), cells.sum(axis=0), cells.ravel()])
    people = Problem(schema, {"relgq": 1.0, "sex": 1.0, "relgq * sex": 1.0}, truth=truth)
    units = Problem(Schema({"sex": 2}), {"sex": 1.0}, truth=cells[0])
    together = joint(people, units, names=["people", "units"], only={"units": {"relgq": ["0"]}})
    together.check_truth(together.truth)
    np.testing.assert_array_equal(together.truth, np.concatenate([truth, cells[0]]))


@refused(
    ([SEX], {}, "two problems or more: got 1"),
    ([SEX, 3], {}, "problem '2' must be a Problem: got int"),
    ([SEX, Problem.from_matrix([[1.0, -1.0]], [1.0, 1.0])], {}, "problem '2' has no tables"),
    ([SEX, SEX], {"names": ["a", "a"]}, "names must be one for each of the 2 problems"),
    ([SEX, SEX.replace(noise="laplace")], {}, r"several laws, \['gaussian', 'laplace'\]"),
    (
        [SEX, SEX.with_covariance(aslinearoperator(np.array([[1.0, 0.5], [0.5, 1.0]])))],
        {},
        "problem '2' has correlated noise of which only products with vectors are known",
    ),
    (
        [Problem(SEX.schema, {"sex": 1.0, "total": 0.0}), TIED],
        {},
        "problem '1' has values known exactly, which cannot stand in one matrix beside .* problem '2'",
    ),
    (
        [TIED, Problem(SEX.schema, {"sex": 1.0, "total": np.inf})],
        {},
        "problem '2' has cells that were not measured, which cannot stand",
    ),
    (
        [SEX.with_covariance(LowRankPlusDiagonal([1.0, 1.0], [[1.0], [1.0]])), TIED],
        {},
        "problem '1' has noise of shared sources, which .* beside the covariance of problem '2'",
    ),
    ([PLACES, at(["a", "c"])], {}, "problem '2' has no leaf 'b'"),
    ([PLACES, at(["a", "b", "c"])], {}, "of problem '1' and problem '2' differ, problem '1' has no leaf 'c'"),
    ([PLACES, at(2)], {}, "the leaves of problem '2' have no names"),
    ([SEX, Problem(Schema({"sex": ["m", "f"]}), {"sex": 1.0})], {}, "come in different orders"),
    (
        [SEX, Problem(Schema({"sex": ["w", "m"]}), {"sex": 1.0})],
        {},
        r"'sex' is 'f', and .* 'w': .* recodes=\{'sex': 'sex'\}",
    ),
    ([SEX, Problem(Schema({"age": 3}), {"age": 1.0})], {}, "no schema refines the others; .* 'sex' has 2 levels"),
    ([SEX, Problem(Schema({"sex": 3}), {"sex": 1.0})], {}, "has one of that name with 3"),
    ([SEX, SEX], {"recodes": {"sex": "age"}}, "'age', which no problem has"),
    (
        [
            Problem(Schema({"a": 2, "b": 3}), {"a": 1.0}),
            Problem(Schema({"z": 6}, recodes={"z": {"a": [0, 0, 0, 1, 1, 1], "b": [0, 1, 2, 0, 1, 2]}}), {"z": 1.0}),
        ],
        {"schema": Schema({"z": 6}, recodes={"z": {"a": [0, 0, 0, 1, 1, 1], "b": [0, 1, 2, 0, 1, 2]}})},
        "'a' and 'b' are both recodes of 'z'",
    ),
    (
        [
            Problem(Schema({"a": 3}, recodes={"a": {"g": [0, 1, 1]}}), {"g": 1.0}),
            Problem(Schema({"a": 3, "b": 2}, recodes={"a": {"g": [1, 0, 0]}}), {"g": 1.0}),
        ],
        {},
        "its recode 'g' groups other levels than 'g'",
    ),
    (
        [
            Problem(Schema({"a": 3, "b": 3}, recodes={"a": {"g": [0, 1, 1]}}), {"g": 1.0}),
            Problem(Schema({"a": 3, "b": 3, "c": 2}, recodes={"b": {"g": [0, 1, 1]}}), {"g": 1.0}),
        ],
        {},
        "its recode 'g' groups other levels than 'g'",
    ),
    error=(ValueError, TypeError),
)
def test_what_does_not_fit_is_refused_by_name(problems: list, options: dict) -> None:
    joint(*problems, **options)


def test_rounded_figures_of_one_place_are_not_taken_from_two_products() -> None:
    """Each would count as a measurement of its own, and standard errors be too small by a root of 2."""
    ages, both = Schema({"age": 3}), Schema({"sex": 2, "age": 3})
    for law, is_copied in ((Rounding(10), True), (RandomRounding(10), False)):
        one = Problem(ages, {"age": law, "total": law})
        assert joint(one, Problem(both, {"sex": law, "sex * age": law})).noise == law
        other = Problem(both, {"age * sex": law, "age": law})
        if is_copied:
            refuses(r"'age'\) and \('all \(2\)', 'age'\) have figures of one place", joint, one, other)
        else:
            assert joint(one, other).noise == law


def test_rounded_figures_of_different_cells_of_one_table_are_not_copies() -> None:
    """One product may know exactly, or leave out, what another rounded."""
    ages, law = Schema({"age": 3}), Rounding(10)
    rounded = law.variance
    one = Problem(ages, {"age": [rounded, rounded, 0]}, noise=law)
    for beside in ([0, 0, rounded], [0, np.inf, rounded]):
        assert joint(one, Problem(ages, {"age": beside, "total": 0}, noise=law)).noise.law == law
    refuses("are copies of one measurement", joint, one, Problem(ages, {"age": [0, rounded, rounded]}, noise=law))


def test_rounded_figures_of_areas_that_hold_the_same_leaves_are_copies() -> None:
    """Of whatever layers, and also where a layer has such an area twice, which first is known exactly."""
    law, schema, leaves = Rounding(10), Schema({"age": 3}), ["x", "y", "z"]
    rounded = law.variance

    def measured(weights: list, variances: list) -> Problem:
        layers = Areas(leaves, {"Own": sparse.csr_array(np.array(weights, dtype=float))})
        return Problem(schema, {"Own": {"age": variances}}, areas=layers, noise=law)

    one = measured([[1, 1, 0], [0, 0, 1]], [rounded, 0.0])
    for weights, variances in (
        ([[1, 0, 0], [0, 1, 1]], [rounded, rounded]),
        ([[2, 2, 0], [1, 1, 1]], [rounded, rounded]),
        ([[1, 1, 0], [0, 0, 1]], [0.0, rounded]),
    ):
        assert joint(one, measured(weights, variances)).noise.law == law
    twice = measured([[1, 1, 0], [1, 1, 0], [0, 0, 1]], [0.0, rounded, rounded])
    for other in (twice, measured([[0, 1, 0], [1, 1, 0]], [rounded, rounded])):
        refuses("are copies of one measurement", joint, one, other)
