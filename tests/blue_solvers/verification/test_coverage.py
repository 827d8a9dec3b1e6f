"""Which right answers are proved, of invented problems that are treated as too large to list: nearly all."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from blue_solvers import blue
from blue_solvers.verification import certificate, certify
from constraint_builders import Areas, Problem, Schema, Spine
from noise_mechanisms import add_noise
from tests.helpers.effort import lengths

KINDS = ("one place", "a spine", "areas that cross")
PROVED = 1e-8


@lengths("problems", 8, 1000)
def test_right_answers_of_thousands_of_problems_are_proved(problems: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least 995 of 1,000; of the others only tables that cut a variable into groups that cross."""
    monkeypatch.setattr(certificate, "MOST_LISTED", 0)
    monkeypatch.setattr(certificate, "can_be_listed", lambda problem, made: False)
    found: Counter[str] = Counter()
    seed = 0
    while found["proved"] + found["not proved"] < problems:
        seed += 1
        reason = not_proved(seed)
        if reason is not None and "cross" not in reason:  # three crossing recodes are known to be out of reach
            found["proved" if not reason else "not proved"] += 1
            found[reason] += 1
    assert found["not proved"] <= problems / 200, found


@pytest.mark.parametrize("seed", [82, 85, 103])
def test_places_known_by_their_totals_alone_are_proved(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding leaves residuals in their cells, which nothing else of the place takes; areas above do."""
    monkeypatch.setattr(certificate, "MOST_LISTED", 0)
    monkeypatch.setattr(certificate, "can_be_listed", lambda problem, made: False)
    assert not_proved(seed) == ""


def not_proved(seed: int) -> str | None:
    """Why the answer of an invented problem is not proved; "" if it is, None where there is no such problem."""
    rng = np.random.default_rng(seed)
    try:
        problem = invented(rng, KINDS[seed % len(KINDS)]).observing()
        counts = rng.poisson(9, problem.domain.size).astype(float)
        y = add_noise(problem, problem.marginal_matrix() @ counts, rng=seed)
        P = blue(problem)
    except ValueError:
        return None
    x = P @ y + P.offset
    for answer in (x, x + P.matvec(y - x)):  # refined as an estimate is
        proof = certify(problem, y, answer)
        if proof.bound is not None and proof.bound <= PROVED:
            return ""
    return proof.reason if proof.bound is None else f"bound {proof.bound:.0e}"


def invented(rng: np.random.Generator, kind: str) -> Problem:
    """Of three to five variables: recodes that nest or cross, exact totals, cells that were not measured."""
    count = int(rng.integers(3, 6))
    sizes = {f"v{i}": int(rng.integers(2, 8)) for i in range(count)}
    recodes: dict[str, dict[str, list[int]]] = {}
    for name, size in sizes.items():
        if size >= 4 and rng.random() < 0.6:
            own = [rng.integers(0, 3, size) for _ in range(2 if rng.random() < 0.3 else 1)]
            own = [np.unique(groups, return_inverse=True)[1] for groups in own]
            recodes[name] = {f"{name}{'rq'[i]}": groups.tolist() for i, groups in enumerate(own) if groups.max()}
    schema = Schema(sizes, recodes=recodes)

    def tables(variables: list[str], most: int) -> dict[str, float]:
        found = {}
        for _ in range(int(rng.integers(2, 6))):
            chosen = sorted(rng.choice(len(variables), int(rng.integers(1, most + 1)), replace=False).tolist())
            factors = [rng.choice([variables[i], *recodes.get(variables[i], {})]) for i in chosen]
            found[" * ".join(factors)] = float(10 ** rng.uniform(-0.5, 0.5))
        if rng.random() < 0.5:
            found["total"] = float(rng.choice([0.0, 2.0]))
        return found

    names = list(sizes)
    if kind == "one place":
        return Problem(schema, tables(names, 3))
    inner, holding = names[:3], " * ".join(names[:3])
    if kind == "a spine":
        parent = [-1, *[0] * int(rng.integers(2, 6))]
        for geounit in range(1, len(parent)):
            parent += [geounit] * int(rng.integers(1, 7))
        spine = Spine(parent)
        observed = {level: {**tables(inner, 2), holding: 2.0} for level in spine.levels}
        if rng.random() < 0.3:
            observed[spine.levels[0]].pop(holding)
        blocks = np.full(spine.members[-1].size, 3.0)
        if rng.random() < 0.3:
            blocks[rng.integers(blocks.size)] = np.inf
        return Problem(schema, {**observed, spine.levels[-1]: {**tables(inner, 2), holding: blocks}}, spine=spine)
    leaves = int(rng.integers(10, 40))
    layers = {name: np.unique(rng.integers(0, 5, leaves), return_inverse=True)[1] for name in "AB"}
    observed = {name: tables(inner, 2) for name in "AB"}
    return Problem(schema, {**observed, "Leaf": {**tables(inner, 2), holding: 3.0}}, areas=Areas(leaves, layers))


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(6))
def test_groups_of_levels_do_not_end_the_proof_of_many_tables(seed: int) -> None:
    """Of pairs of twelve variables, some in groups of unequal sizes; what is planted is never above the bound."""
    rng = np.random.default_rng(seed)
    sizes = {f"v{i}": int(rng.integers(3, 7)) for i in range(12)}
    recodes = {f"v{i}": {f"g{i}": [0, *rng.integers(0, 2, sizes[f"v{i}"] - 2).tolist(), 1]} for i in range(3)}
    pairs = {" * ".join(pair): float(rng.uniform(1, 4)) for pair in combinations(sizes, 2)}
    groups = {"g0": 0.01, "g1 * v7": 1.0, "g0 * g2": 0.3, "v5 * g2": 9.0}
    problem = Problem(Schema(sizes, recodes=recodes), {**pairs, **groups, "total": 0.0 if seed % 2 else 1.0})
    y = add_noise(problem, np.zeros(problem.observed.size), rng=seed)
    P = blue(problem)
    x = P @ y + P.offset
    x += P.matvec(y - x)
    assert certify(problem, y, x).bound < 1e-11
    x[problem.observed.slice("g1 * v7").start] += (own := 1e-3)
    assert certify(problem, y, x).bound > own / 2  # its standard error is below 2
    x[problem.observed.slice("g1 * v7").start] -= own
    for size in (1e-8, 1e-2, 10.0):
        place, other = rng.integers(0, problem.schema.shape, (2, len(sizes)))
        moved = _tables_of(problem, place) - _tables_of(problem, other)  # the total stays
        spread = np.where(problem.exact, np.inf, problem.variances)
        off = float(np.sqrt((moved**2 / spread).sum())) * size
        assert off * (1 - 1e-4) <= certify(problem, y, x + size * moved).bound <= 20 * off


def _tables_of(problem: Problem, place: np.ndarray) -> np.ndarray:
    """The observed tables of one count."""
    found = np.zeros(problem.observed.size)
    for name, own in zip(problem.observed.names, problem.observed_tables, strict=True):
        cell = [
            problem.schema.groups_of(factor)[place[axis]] for axis, factor in zip(own.axes, own.factors, strict=True)
        ]
        found[problem.observed.slice(name).start + int(np.ravel_multi_index(cell, own.shape) if cell else 0)] = 1
    return found


def test_empty_cells_take_nothing_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a total is known much better than cells, what is moved back to it leaves these as tightly proved."""
    monkeypatch.setattr(certificate, "MOST_LISTED", 0)
    monkeypatch.setattr(certificate, "can_be_listed", lambda problem, made: False)
    empty = np.zeros((3, 2), dtype=bool)
    empty[[0, 1], [1, 0]] = True
    variances = {"total": 1e-6, "a": 2e-6, "detailed": 5e4}
    problem = Problem(Schema({"a": 3, "b": 2}), variances, zeros={"a * b": empty})
    y = np.random.default_rng(0).normal(0, np.sqrt(problem.variances)) + problem.marginal_matrix() @ (
        9.0 * ~empty.ravel()
    )
    P = blue(problem)
    assert certify(problem, y, P @ y + P.offset).bound < 1e-9
