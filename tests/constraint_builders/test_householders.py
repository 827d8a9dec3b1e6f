"""Products that count some people alone: occupied units and households by their householders, beside dense algebra."""

from collections.abc import Callable
from itertools import product as each
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import blue, estimate
from blue_solvers.nonnegative import nnls
from constraint_builders import Areas, Problem, Schema, joint
from constraint_builders.description.common_schema import CountedParts
from constraint_builders.joint_problem import joint_parts
from tests.helpers.dense_algebra import least_squares
from tests.helpers.effort import examples, lengths
from tests.helpers.every import cases
from tests.helpers.refused import refuses

BLOCKS = ["a", "b", "c", "d", "e"]
GROUP, PAIR = [0, 0, 1, 2], [1, 0, 0]  # groups need not come in the order of their first levels
RECODED = {"group": ("relgq", GROUP), "pair": ("race", PAIR), "state": ("h1", [0, 1, 1, 0])}
PERSONS = Schema({"relgq": 4, "sex": 2, "race": 3}, recodes={"relgq": {"group": GROUP}})
FINER = Schema(
    {"relgq": 4, "sex": 2, "race": 3, "tenure": 2},
    recodes={"relgq": {"householder": ["yes", "yes", "no", "no"]}, "race": {"pair": PAIR}},
)
HOUSEHOLDS = Schema({"tenure": 2, "pair": 2, "sex": 2})  # variables need not come in the order of others
OF_PERSONS = ["total", "relgq", "group", "relgq * sex", "group * race", "race", "sex * race", "relgq * sex * race"]
OF_HOUSEHOLDS = ["total", "tenure", "tenure * sex", "sex * pair", "sex * pair * tenure"]
ONLY = {"households": {"householder": ["yes"]}}


UNITS = Schema(
    {"h1": ["to let", "owned", "rented", "derelict"], "rooms": 2},
    recodes={"h1": {"state": ["vacant", "occupied", "occupied", "vacant"]}},
)
PEOPLE = Schema({"relgq": 4, "sex": 2}, recodes={"relgq": {"group": GROUP}})
UNIT_TABLES = ["total", "h1", "state", "rooms", "h1 * rooms", "state * rooms"]
PERSON_TABLES = ["total", "relgq", "group", "sex", "relgq * sex"]
OVER_BOTH = Schema(
    {"relgq": 4, "sex": 2, "h1": ["to let", "owned", "rented", "derelict"], "rooms": 2},
    recodes={"relgq": {"group": GROUP, "householder": ["yes", "yes", "no", "no"]}},
)
# Of a block: householders by relationship, sex, h1 and rooms; other persons by relationship and sex; vacant units.
THINGS = [
    *({"relgq": r, "sex": s, "h1": h, "rooms": m} for r, s, h, m in each((0, 1), (0, 1), (1, 2), (0, 1))),
    *({"relgq": r, "sex": s} for r, s in each((2, 3), (0, 1))),
    *({"h1": h, "rooms": m} for h, m in each((0, 3), (0, 1))),
]
SIZES = {"relgq": 4, "group": 3, "sex": 2, "race": 3, "pair": 2, "tenure": 2, "h1": 4, "state": 2, "rooms": 2}
Thing = dict[str, int]


class Product(NamedTuple):
    """What it counts, the tables that it may measure and the one that it does, the variable of empty cells."""

    schema: Schema
    counts: Callable[[Thing], bool]
    tables: list[str]
    always: str
    empty: str = ""


class Kind(NamedTuple):
    """What there is in a block, the products of it by name, and how they are tied."""

    things: list[Thing]
    products: dict[str, Product]
    ties: dict[str, Any]


KINDS = {
    "occupied units are householders": Kind(
        [dict(zip(("relgq", "sex", "race", "tenure"), own, strict=True)) for own in np.ndindex(4, 2, 3, 2)],
        {
            "persons": Product(PERSONS, lambda own: True, OF_PERSONS, "relgq * sex * race", "relgq"),
            "households": Product(HOUSEHOLDS, lambda own: own["relgq"] < 2, OF_HOUSEHOLDS, "sex * pair * tenure"),
        },
        {"schema": FINER, "only": ONLY},
    ),
    "vacant ones are counted beside": Kind(
        THINGS,
        {
            "persons": Product(PEOPLE, lambda own: "relgq" in own, PERSON_TABLES, "relgq * sex"),
            "units": Product(UNITS, lambda own: "h1" in own, UNIT_TABLES, "h1 * rooms", "h1"),
        },
        {"schema": OVER_BOTH, "only": {"units": {"householder": ["yes"]}}, "beside": {"units": {"state": ["vacant"]}}},
    ),
}


def cells(table: str, things: list[Thing], counts: Callable[[Thing], bool]) -> np.ndarray:
    """The 0/1 matrix of a table of one block over what there is, cells in the order of its name."""

    def label(own: Thing, factor: str) -> int | None:
        variable, groups = RECODED.get(factor, (factor, range(9)))
        return groups[own[variable]] if variable in own else None

    names = [] if table == "total" else table.split(" * ")
    rows = each(*(range(SIZES[name]) for name in names))
    return np.array(
        [[counts(own) and [label(own, name) for name in names] == [*row] for own in things] for row in rows]
    )


def some(rng: np.random.Generator, tables: list[str], always: str) -> list[str]:
    return [table for table in tables if rng.random() < 0.4 or table == always]


@examples(100, 8)
@given(
    seed=st.integers(0, 100_000),
    with_zeros=st.booleans(),
    with_equality=st.booleans(),
    things=st.sampled_from(sorted(KINDS)),
)
def test_beside_dense_least_squares(seed: int, with_zeros: bool, with_equality: bool, things: str) -> None:
    rng, kind = np.random.default_rng(seed), KINDS[things]
    truth = rng.poisson(6, (len(BLOCKS), len(kind.things))).astype(float)
    problems, M, D, known = [], [], [], []
    for own in kind.products.values():
        order = rng.permutation(len(BLOCKS))
        layers = {"Tract": rng.integers(0, 2, len(BLOCKS)), "Block": np.arange(len(BLOCKS))}
        areas = Areas([BLOCKS[j] for j in order], {name: labels[order] for name, labels in layers.items()})
        observed = {
            level: {table: float(rng.choice([0.5, 1, 4])) for table in some(rng, own.tables, own.always)}
            for level in layers
        }
        if rng.random() < 0.5:
            observed["Tract"]["total"] = 0.0
        zeros = None
        if with_zeros and own.empty:
            empty = rng.random((len(BLOCKS), 4)) < 0.2  # blocks in their own order, as areas are by label
            zeros = {("Block", own.empty): empty}
            for block, label in np.argwhere(empty):
                for k in [k for k, thing in enumerate(kind.things) if thing.get(own.empty) == label]:
                    known.append(np.kron(np.eye(len(BLOCKS))[block], np.eye(len(kind.things))[k]))
                    truth[block, k] = 0
        desired = {level: some(rng, own.tables, "total") for level in layers}
        problems.append(Problem(own.schema, observed, desired, areas=areas, zeros=zeros))
        for names, kept in ((problems[-1].observed.names, M), (problems[-1].desired.names, D)):
            held = {level: np.equal.outer(np.unique(labels), labels) for level, labels in layers.items()}
            kept.append(np.vstack([np.kron(held[lv], cells(table, kind.things, own.counts)) for lv, table in names]))
    if with_equality:
        row = np.zeros((1, problems[0].observed.size))
        row[0, [1, 4, -1]] = 1.0, 1.0, -2.0
        problems[0] = problems[0].replace(equalities=(sparse.csr_array(row), row @ M[0] @ truth.ravel()))
        known.append((row @ M[0])[0])
    together = joint(*problems, names=[*kind.products], **kind.ties)
    v = np.concatenate([own.variances for own in problems])
    np.testing.assert_array_equal(together.variances, v)
    whole, C = np.vstack(M), np.array(known).reshape(len(known), truth.size)
    y = whole @ truth.ravel() + np.sqrt(v) * rng.standard_normal(v.size)
    expected, variances = least_squares(whole, v, y, np.vstack(D), (C, C @ truth.ravel()))
    P = blue(together)
    assert P.info.exact
    assert with_equality or P.info.solver in ("areas", "two_pass")
    order = positions(together, problems, tuple(kind.products))
    np.testing.assert_allclose((P @ y + P.offset)[order], expected, atol=1e-6)
    np.testing.assert_allclose(P.variances()[order], variances, atol=1e-7)


def positions(together: Problem, problems: list[Problem], names: tuple[str, ...]) -> np.ndarray:
    """Where the cells that the problems desire, one after another, are in the joint layout."""
    found = []
    for problem, name in zip(problems, names, strict=True):
        for level, table in problem.desired.names:
            first, _, rest = table.partition(" * ")
            by = first in ("relgq", "group", "h1", "state")
            layer = f"{level} ({name})" + (f" by {first}" if by else "")
            found.append(
                np.arange(together.desired.size)[together.desired.slice((layer, rest or "total" if by else table))]
            )
    return np.concatenate(found)


def test_parts_of_products_may_leave_cells_open() -> None:
    """Of three tenures one was measured, and householders are the sum of all."""
    persons = Problem(PERSONS, {"Block": {"relgq * sex": 1.0}}, areas=tracts())
    tenure = np.tile([1.0, np.inf, np.inf], (5, 1))
    units = Problem(Schema({"tenure": 3}), {"Block": {"tenure": tenure}}, areas=tracts(), undetermined="nan")
    parts = CountedParts({"units": {"relgq": ["0", "1"]}}, own=("tenure",))
    together, _ = joint_parts([persons, units], ["persons", "units"], parts, recodes={}, desired=None)
    values = estimate(together, np.ones(together.observed.size)).values
    assert np.count_nonzero(np.isnan(values)) == 2 * len(BLOCKS)


def tracts() -> Areas:
    return Areas(BLOCKS, {"Tract": [0, 0, 1, 1, 1], "Block": BLOCKS})


def test_a_block_of_31_persons_has_no_67_in_households() -> None:
    """Blocks by household size, whose householders both products count; persons are a weighted sum of households."""
    sizes, unit = np.arange(1, 8), Schema({"unit": 1})
    leaves = [f"{block}, {kind}" for block in BLOCKS for kind in (*sizes, "beyond seven")]
    weighed, counted = np.kron(np.eye(5), [*sizes, 1]), np.kron(np.eye(5), [1] * 7 + [0])
    persons = Problem(
        unit,
        {"Persons": {"total": 1.0}, "Householders": {"total": 3.0}},
        areas=Areas(leaves, {"Persons": weighed, "Householders": counted}),
    )
    known = np.where(np.arange(40) % 8 < 7, 4.0, np.inf)
    households = Problem(unit, {"Leaf": {"total": known}}, areas=Areas(leaves, {}), undetermined="nan")
    together = joint(persons, households, names=["persons", "households"])
    noisy = np.array([[4, 5, 6, 6, 1, 1, 0, np.nan]] + [[9, 8, 4, 3, 1, 0, 0, np.nan]] * 4)
    y = np.concatenate([[31, 60, 60, 61, 59], [20, 25, 25, 24, 26], noisy.ravel()])
    assert noisy[0, :7] @ sizes == 67
    fit = nnls(together, y)
    total, householders, by_size = fit.observed[:5], fit.observed[5:10], fit.observed[10:].reshape(5, 8)[:, :7]
    assert (by_size >= -1e-12).all()
    assert (by_size @ sizes <= total + 1e-9).all()
    np.testing.assert_allclose(by_size.sum(axis=1), householders, atol=1e-9)
    linear = estimate(together, y)
    np.testing.assert_allclose(
        np.nansum(linear.values[10:].reshape(5, 8)[:, :7], axis=1), linear.values[5:10], atol=1e-8
    )


@lengths("number", 400, 2_000)
def test_tables_of_many_cells_at_many_blocks(number: int) -> None:
    """Persons of 42 relationships, and households by sex, race and tenure; both for all blocks."""
    race = np.concatenate([np.arange(6), np.full(57, 6)]).tolist()
    finer = Schema(
        {"relgq": 42, "sex": 2, "hispanic": 2, "cenrace": 63, "tenure": 3},
        recodes={"relgq": {"householder": ["yes"] * 2 + ["no"] * 40}, "cenrace": {"race": race}},
    )
    persons = Schema({"relgq": 42, "sex": 2, "hispanic": 2, "cenrace": 63})
    households = Schema({"sex": 2, "race": 7, "tenure": 3})
    blocks = [f"block {i}" for i in range(number)]
    layers = {"Group": [i // 40 for i in range(number)], "Block": blocks}
    other = {"Group": [(i + 20) // 40 for i in range(number)], "Block": blocks}
    first = Problem(
        persons,
        {level: {"relgq": 4.0, "sex * hispanic": 2.0, "relgq * sex": 9.0} for level in layers},
        {"Group": ["relgq"]},
        areas=Areas(blocks, layers),
    )
    second = Problem(
        households,
        {level: {"sex * race * tenure": 3.0, "tenure": 1.0} for level in other},
        {"Block": ["tenure"]},
        areas=Areas(blocks, other),
    )
    together = joint(first, second, names=["persons", "households"], schema=finer, only=ONLY)
    P = blue(together)
    assert P.info.solver == "areas"
    alone = blue(second).variances()
    assert (P.variances()[-alone.size :] < alone).all()


@cases(
    ({"units": {"householder": "yes"}}, None, "only= names problem 'units': there are 'persons', 'households'"),
    ({"households": {"householder": "maybe"}}, None, r"'householder' has no level 'maybe': there are yes, no"),
    ({"households": {"householder": [1]}}, None, r"'householder' has no level 1: there are yes, no"),
    ({"households": {"householder": []}}, None, r"'householder' is named without a level: there are yes, no"),
    ({"households": {}}, None, "only= must name labels of one variable of the finer schema: got none"),
    ({"households": {"householder": "yes", "sex": "0"}}, None, "of one variable .* got 'relgq', 'sex'"),
    ({"households": {"owner": "yes"}}, None, "'owner'"),
    (ONLY, ["sex"], "desired tables are named by layer"),
    (ONLY, {"Block (persons)": ["sex * relgq"]}, "the factor of 'relgq' must come first in its name"),
    (ONLY, {"Block (households)": ["relgq"]}, "tells 'relgq' apart, of which it counts a part"),
)
def test_what_does_not_fit_is_refused_by_name(only: dict, desired: object, said: str) -> None:
    persons = Problem(PERSONS, {"Block": {"relgq * sex": 1.0}}, areas=tracts())
    households = Problem(HOUSEHOLDS, {"Block": {"sex": 1.0}}, areas=tracts())
    refuses(said, joint, persons, households, names=["persons", "households"], schema=FINER, only=only, desired=desired)


@cases(
    (None, {"units": {"h1": ["to let"]}}, "beside= is of problems in only="),
    ({"units": {"householder": "yes"}}, {"homes": {"h1": ["to let"]}}, "beside= names problem 'homes'"),
    ({"units": {"householder": "yes"}}, {"units": {"h1": ["empty"]}}, "'h1' has no level"),
    ({"units": {"householder": "yes"}}, {"units": {"state": ["vacant", "occupied"]}}, "names all labels of 'h1'"),
    ({"units": {"householder": "yes"}}, {"persons": {"h1": ["to let"]}}, "'persons', not in only="),
    ({"units": {"householder": "yes"}}, {"units": {}}, "beside= must name labels of one variable"),
)
def test_what_is_beside_and_does_not_fit_is_refused_by_name(only: object, beside: dict, said: str) -> None:
    persons = Problem(PEOPLE, {"Block": {"relgq * sex": 1.0}}, areas=tracts())
    units = Problem(UNITS, {"Block": {"h1": 1.0}}, areas=tracts())
    refuses(said, joint, persons, units, names=["persons", "units"], schema=OVER_BOTH, only=only, beside=beside)


def test_a_schema_may_have_one_variable() -> None:
    alone = Schema({"relgq": 2})
    persons, homes = (
        Problem(alone, {"Block": {"relgq": 1.0}}, areas=tracts()),
        Problem(Schema({"unit": 1}), {"Block": {"total": 1.0}}, areas=tracts()),
    )
    with_unit = Schema({"relgq": 2, "unit": 1})
    tied = joint(persons, homes, names=["persons", "homes"], schema=with_unit, only={"homes": {"relgq": ["0"]}})
    assert tied.schema == Schema({"unit": 1})
