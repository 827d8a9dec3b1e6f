"""Estimates and possible counts of rounded tables, beside every table of counts that leads to the figures."""

from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest

from blue_solvers import certify, counts_posterior, estimate
from blue_solvers.rounded import audit, estimate_rounded, merged_copies, possible_counts
from constraint_builders import Areas, Problem, Schema, Spine, read_tables
from noise_mechanisms import add_noise, draw_noise
from noise_mechanisms.laws import CellKey, Gaussian, PublishedCount, RandomRounding, Rounding
from tests.helpers.effort import lengths
from tests.helpers.oracles.description import Description
from tests.helpers.oracles.exact import solve
from tests.helpers.oracles.invent import Invented, Kind, invent
from tests.helpers.refused import refuses

SMALL = [{0: 1.0}, {-1: 0.4, 0: 0.2, 1: 0.4}, {-2: 0.1, 0: 0.8, 2: 0.1}, {-1: 0.1, 0: 0.8, 1: 0.1}]
KEY = CellKey([*SMALL, {-1: 0.3, 0: 0.4, 1: 0.3}])
LAWS = [RandomRounding(2), RandomRounding(3), Rounding(3), Rounding(4), KEY]
SCHEMA = Schema({"a": 2, "b": 2})


def _every(problem: Problem, y: np.ndarray, top: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """All counts, (tables, cells), that lead to the figures, and their observed cells."""
    M, law = problem.marginal_matrix().toarray(), problem.noise.law
    counts = np.array(list(product(range(top + 1), repeat=M.shape[1])), dtype=float)
    cells = counts @ M.T
    fits = np.ones(len(counts), dtype=bool)
    for i, figure in enumerate(y):
        if problem.exact[i]:
            fits &= cells[:, i] == figure
        elif not problem.unmeasured[i]:
            low, high = law.limits(figure)
            fits &= (cells[:, i] >= low) & (cells[:, i] <= high)
    return counts[fits], cells[fits]


@pytest.mark.few(2)
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_possible_counts_are_those_of_some_table_that_leads_to_the_figures(law: PublishedCount) -> None:
    """With exact and unmeasured tables, places and areas; whole counts reach both ends, sums never lie outside."""
    rng, narrower = np.random.default_rng(4), 0
    places = Areas(2, {"All": [0, 0]})
    problems = [
        Problem(SCHEMA, {"total": law, "a": law, "b": law, "detailed": law}),
        Problem(SCHEMA, {"total": 0.0, "a": law, "b": law, "detailed": law}),
        Problem(SCHEMA, {"total": law, "a": law, "detailed": law}, ["b", "a", "detailed"]),
        Problem(Schema({"a": 2}), {"All": {"a": law, "total": 0.0}, "Leaf": {"a": law, "total": law}}, areas=places),
    ]
    for problem in problems:
        M = problem.marginal_matrix()
        for _ in range(2):
            truth = M @ rng.integers(0, 5, M.shape[1]).astype(float)
            y = add_noise(problem, truth, rng)
            counts, _ = _every(problem, y)
            wanted = problem.tabulate(counts_of(problem, counts))
            low, high = possible_counts(problem, y, whole=True)
            np.testing.assert_array_equal(low, wanted.min(axis=1))
            np.testing.assert_array_equal(high, wanted.max(axis=1))
            below, above = possible_counts(problem, y)
            assert (below <= low).all()
            assert (above >= high).all()
            own_low, own_high = law.limits(np.where(problem.exact, 0.0, y))
            narrower += int(((above - below) < (own_high - own_low).max()).any())
    assert narrower > 3


def counts_of(problem: Problem, counts: np.ndarray) -> np.ndarray:
    """Observed cells of counts, (n, tables)."""
    return problem.marginal_matrix() @ counts.T


def test_whole_counts_that_nothing_bounds_have_no_upper_bound() -> None:
    law = RandomRounding(3)
    observed = {"a": [law.variance, np.inf], "b": [law.variance, np.inf]}
    problem = Problem(Schema({"a": 2, "b": 2}), observed, ["total", "a"], noise=law, undetermined="nan")
    lower, upper = possible_counts(problem, [3.0, np.nan, 3.0, np.nan], whole=True)
    assert (lower.tolist(), upper.tolist()) == ([1, 1, 0], [np.inf, 5, np.inf])


def test_figures_that_contradict_one_another_are_refused() -> None:
    law = RandomRounding(3)
    problem = Problem(SCHEMA, {"total": law, "a": law})
    for whole in (False, True):
        with pytest.raises(ValueError, match="no non-negative counts lead to all of these figures"):
            possible_counts(problem, [30.0, 3.0, 3.0], whole=whole)
    refuses(r"cell \(a=0\) is 4, which no count is published as", possible_counts, problem, [6.0, 4.0, 3.0])
    refuses("declare what was rounded or perturbed by its law", possible_counts, Problem(SCHEMA, {"total": 1.0}), [3.0])
    low, high = possible_counts(problem, [6.0, 3.0, 3.0], [0])
    assert (low, high) == ([4.0], [8.0])


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_estimates_are_the_best_of_the_variances_that_they_end_with(law: PublishedCount) -> None:
    """Without rounds those of the law; then each is the mean over what others suggest."""
    rng = np.random.default_rng(1)
    problem = Problem(SCHEMA, {"total": law, "a": law, "b": law, "detailed": law})
    for _ in range(5):
        y = add_noise(problem, problem.marginal_matrix() @ rng.integers(0, 9, 4).astype(float), rng)
        plain, found = estimate_rounded(problem, y, rounds=0), estimate_rounded(problem, y, rounds=50)
        low, high = law.limits(y)
        np.testing.assert_array_equal(plain.problem.variances, np.where(low == high, 0.0, law.variance))
        np.testing.assert_array_equal(plain.values, estimate(plain.problem, y).values)
        assert found.proof.is_proved
        own = found.problem.variances
        for i in np.flatnonzero(own > 0):
            if not law.is_random:
                assert own[i] == law.variance
                continue
            others = np.delete(np.arange(y.size), i)
            M = problem.marginal_matrix().toarray()
            usable = others[own[others] > 0]
            if (own[others] == 0).any():
                continue
            J = (M[usable].T / own[usable]) @ M[usable]
            spread = M[i] @ np.linalg.pinv(J, hermitian=True) @ M[i]
            beside = M[i] @ np.linalg.pinv(J, hermitian=True) @ (M[usable].T @ ((y[usable] - law.mean) / own[usable]))
            counts = np.arange(60)
            weights = np.exp(-((counts - beside) ** 2) / (2 * spread))
            mean = (weights * law.variance_at(counts)).sum() / weights.sum()
            assert own[i] == pytest.approx(max(mean, 0.05 * law.variance), abs=0.02 * law.variance)


def test_copies_are_figures_of_their_own() -> None:
    """Seven of one table: a seventh of the variance, counts within the bounds of all, and their posterior."""
    rng, law, truth = np.random.default_rng(2), RandomRounding(3), np.array([9.0, 4.0, 5.0])
    frames = [
        pl.DataFrame({"a": ["total", "x", "y"], "value": law.publish(truth, rng), "source": f"table {number}"})
        for number in range(7)
    ]
    problem, y = read_tables(pl.concat(frames), noise=law)
    np.testing.assert_allclose(problem.variances, law.variance / 7)
    est = estimate_rounded(problem, y, rounds=0)
    np.testing.assert_allclose(est.std_errors, np.sqrt(law.variance / 7 * 2 / 3))
    low, high = possible_counts(problem, y, whole=True)
    figures = np.array([frame["value"].to_numpy() for frame in frames])
    assert (low >= figures.max(axis=0) - 2).all()
    assert (high <= figures.min(axis=0) + 2).all()
    assert ((low <= truth) & (truth <= high)).all()
    tables = np.array(list(product(range(20), repeat=2)), dtype=float)
    cells = np.column_stack([tables.sum(axis=1), tables])
    logs = sum(law.log_probability(own, cells).sum(axis=1) for own in figures)
    logs = logs - np.log(cells[:, 0] + 1)  # of the concentration 1 over two cells
    weights = np.exp(logs - logs.max())
    found = counts_posterior(problem, y, concentration=1, effective=2000, most_draws=40_000, rng=1)
    np.testing.assert_allclose(found.observed, weights @ cells / weights.sum(), atol=0.05)
    wrong = pl.concat([*frames[:6], frames[6].with_columns(value=pl.lit(30.0))])
    with pytest.raises(ValueError, match=r"there is no count that all of its figures|no non-negative counts"):
        possible_counts(*read_tables(wrong, noise=law))
    with pytest.raises(ValueError, match=r"is 4, which no count is published as"):
        read_tables(pl.concat([*frames[:6], frames[6].with_columns(value=pl.lit(4.0))]), noise=law)


def test_what_is_known_from_its_figure_is_that_count() -> None:
    """A figure that only one count leads to, which is another number."""
    law = CellKey([{0: 1.0}, {1: 1.0}, {2: 1.0}, {-3: 0.5, 3: 0.5}, {0: 0.5, 1: 0.5}])
    problem = Problem(Schema({"a": 2}), {"total": law, "a": law})
    est = estimate_rounded(problem, [6.0, 2.0, 6.0])
    assert est.values[1] == 1.0
    assert est.variances[1] == 0.0


@pytest.mark.few(0)
def test_rounded_areas_are_covered() -> None:
    """Normal intervals of refitted estimates on a tree of areas, over draws."""
    rng, law = np.random.default_rng(3), RandomRounding(3)
    spine = Spine.from_geocodes({"City": ["1"], "Ward": [f"1{i}" for i in range(6)]})
    tables = dict.fromkeys(["total", "a", "b", "detailed"], law)
    problem = Problem(SCHEMA, {"City": tables, "Ward": tables}, spine=spine)
    inside = []
    for _ in range(20):
        truth = problem.marginal_matrix() @ rng.poisson(12, 24).astype(float)
        est = estimate_rounded(problem, add_noise(problem, truth, rng), rounds=3, certify=False)
        low, high = est.interval(0.95)
        inside.append((truth >= low) & (truth <= high))
    assert 0.93 < np.mean(inside) < 0.975


def test_only_what_was_published_by_itself_is_refitted() -> None:
    with pytest.raises(ValueError, match="declare what was rounded or perturbed by its law"):
        estimate_rounded(Problem(SCHEMA, {"total": 1.0}), [3.0])
    law = RandomRounding(3)
    problem = Problem(SCHEMA, {"total": None, "a": None}, covariance=np.diag([1.0, 1, 1]) + 0.1, noise=law)
    refuses("not correlated", estimate_rounded, problem, [6.0, 3.0, 3.0])


def test_what_is_simulated_has_the_variances_that_hold() -> None:
    """Of seven copies, and of variances that were estimated, not the law's."""
    law, rng = RandomRounding(3), np.random.default_rng(0)
    frames = [
        pl.DataFrame({"a": ["total", "x", "y"], "value": law.publish(np.array([9.0, 4, 5]), rng), "source": f"t{i}"})
        for i in range(7)
    ]
    copies, _ = read_tables(pl.concat(frames), noise=law)
    wide = Problem(SCHEMA, {"a": law, "detailed": law})
    for problem in (copies, wide.with_variances(9 * wide.variances)):
        drawn = draw_noise(problem, 40_000, rng=1)
        np.testing.assert_allclose(drawn.var(axis=1), problem.variances, rtol=0.05)
        np.testing.assert_allclose(drawn.mean(axis=1), 0.0, atol=0.05 * np.sqrt(problem.variances.max()))
    ten = Problem(SCHEMA, {"a": Rounding(10)})
    np.testing.assert_allclose(draw_noise(ten, 40_000, rng=1).mean(axis=1), 0.0, atol=0.1)
    doubled = draw_noise(ten.with_variances(4 * ten.variances), 40_000, rng=1)
    np.testing.assert_allclose(doubled.mean(axis=1), 0.0, atol=0.2)
    np.testing.assert_allclose(doubled.std(axis=1), 2 * np.sqrt(8.25), rtol=0.05)


def test_copies_that_are_no_measurements_of_their_own_are_refused() -> None:
    """Under conventional rounding and cell keys; merged they are one."""
    frame = pl.DataFrame(
        {"s": ["f", "m"] * 7, "value": [30.0, 60.0] * 7, "source": np.repeat([f"t{i}" for i in range(7)], 2)}
    )
    for law in (Rounding(10), KEY):
        problem, y = read_tables(frame, noise=law)
        for use in (lambda p, y: estimate(p, y), estimate_rounded, possible_counts, counts_posterior):
            refuses("copies of one measurement: read one of them, or merge them", use, problem, y)
        merged, y = merged_copies(problem, y)
        np.testing.assert_allclose(estimate(merged, y).std_errors, np.sqrt(law.variance))
    other = frame.with_columns(value=pl.when(pl.col("source") == "t3").then(12.0).otherwise(3.0))
    with pytest.raises(ValueError, match="there is no count that all of its figures may be published of"):
        read_tables(other, noise=RandomRounding(3))


def test_variances_beside_a_law_are_refused() -> None:
    law = RandomRounding(3)
    with pytest.raises(ValueError, match=r"table 'total' has the variance 4 beside the law RandomRounding\(base=3\)"):
        Problem(SCHEMA, {"total": 4.0, "a": law})
    refuses("has the variance 100", Problem, SCHEMA, {"total": 100.0}, noise=law)
    frame = pl.DataFrame({"a": ["x", "y"], "value": [3.0, 6.0], "std_error": [1.0, 2.0]})
    refuses("column 'std_error' says how precise values are: leave it out, or their law", read_tables, frame, noise=law)
    problem = Problem(SCHEMA, {"total": law, "a": law})
    assert problem.replace(noise=law).noise == problem.noise
    assert Problem(SCHEMA, {"total": 2.0}).replace(noise=Gaussian(2.0)).noise.law == "gaussian"


def test_proofs_are_of_figures_as_they_were_published() -> None:
    problem = Problem(SCHEMA, {"total": Rounding(10), "a": Rounding(10)})
    est = estimate(problem, [100.0, 30.0, 60.0])
    assert certify(problem, [100.0, 30.0, 60.0], est.values).is_proved


def test_weights_that_are_not_whole_are_refused_by_name() -> None:
    law = RandomRounding(3)
    areas = Areas(2, {"L": np.array([[0.5, 1.0]])})
    problem = Problem(Schema({"s": 1}), {"L": {"total": law}, "Leaf": {"total": law}}, areas=areas)
    refuses("areas have weights that are not whole", possible_counts, problem, [6.0, 3.0, 6.0])


def test_differences_of_areas_have_the_ends_that_enumeration_gives() -> None:
    """A weight of -1, where the ends of the cells are not those of their sum."""
    law = RandomRounding(3)
    areas = Areas(2, {"L": np.array([[1.0, -1.0]])})
    problem = Problem(Schema({"s": 1}), {"Leaf": {"total": law}}, {"L": ["total"], "Leaf": ["total"]}, areas=areas)
    low, high = possible_counts(problem, [6.0, 3.0])
    assert (low[0], high[0]) == (4 - 5, 8 - 1)


def test_a_law_that_leaves_large_counts_alone_is_no_variance() -> None:
    law = CellKey([{0: 1.0}, {-1: 0.5, 1: 0.5}, {0: 1.0}])
    refuses("leaves large counts as they are", Problem, SCHEMA, {"a": law})


def _rounded(invented: Invented) -> tuple[Description, Problem] | None:
    """The same with figures rounded where there was noise; None where that does not determine what is desired."""
    law = RandomRounding(3)
    blocks = tuple(
        replace(own, values=np.where((own.values > 0) & np.isfinite(own.values), law.variance, own.values))
        for own in invented.description.observed
    )
    described = replace(invented.description, observed=blocks)
    try:
        problem = described.problem()
    except ValueError:
        return None
    return described, problem.replace(noise=law)


@lengths("seeds", 10, 24)
def test_problems_with_everything_in_them(seeds: int) -> None:
    """Zeros, equalities, exact and unmeasured cells, recodes, a geography: beside exact rationals, and the truth."""
    tried, everything = 0, Kind(count=40.0, nested=True, turned=True)
    for seed in range(seeds):
        found = invent(seed, everything)
        made = found and _rounded(found)
        if not made:
            continue
        described, problem = made
        y = add_noise(problem, found.truth, rng=seed)
        reference = solve(described, np.nan_to_num(y))
        est = estimate_rounded(problem, y, rounds=0)
        low, high = RandomRounding(3).limits(np.nan_to_num(y))
        if ((low == high) & (problem.variances > 0) & ~problem.unmeasured).any():
            continue
        tried += 1
        np.testing.assert_allclose(est.values, reference.estimate, atol=1e-7 * abs(found.truth).max())
        np.testing.assert_allclose(est.variances, reference.variances, rtol=1e-7, atol=1e-9)
        assert np.isfinite(estimate_rounded(problem, y).values).all()
        least, most = possible_counts(problem, y)
        wanted = solve(described, found.truth).estimate  # of true cells, which determine it
        assert ((least <= wanted + 1e-9) & (wanted <= most + 1e-9)).all()
        checked = audit(problem, rng=0)
        assert ((checked.together >= 0) & (checked.together <= 1)).all()
    assert tried > 5 * seeds / 24
