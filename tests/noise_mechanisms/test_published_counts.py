"""Rounded and perturbed counts: what is said of a law beside what it publishes, enumerated and drawn."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from constraint_builders import Problem, Schema
from noise_mechanisms import add_noise
from noise_mechanisms.laws import CellKey, PublishedCount, RandomRounding, Rounding, draw
from tests.helpers.every import cases, every
from tests.helpers.refused import refused, refuses

SMALL = [{0: 1.0}, {-1: 0.4, 0: 0.3, 2: 0.3}, {-2: 0.1, 0: 0.9}, {-1: 0.25, 0: 0.5, 1: 0.25}]
TURNS = CellKey([*SMALL, {-3: 0.5, 3: 0.5}], repeated=2)
BIASED = CellKey([{0: 1.0}, {-1: 0.2, 0: 0.1, 1: 0.3, 2: 0.1, 3: 0.3}])  # by a number that is no float
LAWS = [*map(RandomRounding, (2, 3, 5, 10)), *map(Rounding, (2, 3, 5, 10)), CellKey(SMALL), TURNS, BIASED]
SCHEMA = Schema({"a": 2, "b": 3})


def _chances(law: PublishedCount, counts: np.ndarray, figures: np.ndarray) -> np.ndarray:
    """P(y | n), (figures, counts)."""
    return np.exp(law.log_probability(figures[:, None], counts[None, :]))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_what_is_said_of_a_law_is_what_its_probabilities_come_to(law: PublishedCount) -> None:
    """They add up for every count; limits, variances and the law of y - n are theirs."""
    counts, figures = np.arange(80.0), np.arange(-20.0, 120.0)
    chances = _chances(law, counts, figures)
    np.testing.assert_allclose(chances.sum(axis=0), 1.0)
    means = figures @ chances
    np.testing.assert_allclose(law.variance_at(counts), (figures**2) @ chances - means**2, atol=1e-9)
    possible = chances > 0
    low, high = law.limits(figures)
    inner = figures < 60  # whose counts are all among these
    found = [np.flatnonzero(own) for own in possible]
    for i in np.flatnonzero(inner):
        assert law.impossible(figures[i]) == (found[i].size == 0)
        if found[i].size:
            assert (low[i], high[i]) == (found[i].min(), found[i].max())
    assert law.impossible(np.array([0.5, np.nan, np.inf, -0.5])).all()
    large = np.arange(4.0, 4.0 + 20 * 3)  # every remainder, and every turn of rows, as often
    noise = figures[:, None] - large[None, :]
    weights = _chances(law, large, figures) / large.size
    assert law.mean == pytest.approx((noise * weights).sum(), abs=1e-9)
    assert law.variance == pytest.approx(((noise - law.mean) ** 2 * weights).sum())
    k = np.arange(-12.0, 13.0)
    np.testing.assert_allclose(law.pmf(k), [weights[noise == own].sum() for own in k], atol=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_figures_and_noise_are_drawn_by_their_probabilities(law: PublishedCount) -> None:
    counts, figures = np.arange(9.0), np.arange(-10.0, 40.0)
    times = 4000
    drawn = law.publish(np.repeat(counts, times), rng=7).reshape(counts.size, times)
    for count, chances in zip(counts.astype(int), _chances(law, counts, figures).T, strict=True):
        _fits(np.array([np.count_nonzero(drawn[count] == own) for own in figures]), chances)
    k = np.arange(-12.0, 13.0)
    noise = draw(law, np.array([law.variance, 0.0]), rng=3, columns=times)
    assert not noise[1].any()
    for own_noise in (noise[0], law.sample(times, rng=4)):
        _fits(np.array([np.count_nonzero(own_noise == own) for own in k]), law.pmf(k))


def _fits(times: np.ndarray, chances: np.ndarray) -> None:
    assert times.sum() == times[chances > 0].sum()
    usable = chances > 0
    if usable.sum() > 1:
        assert stats.chisquare(times[usable], chances[usable] / chances[usable].sum() * times.sum()).pvalue > 1e-5


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_tables_are_published_cell_by_cell(law: PublishedCount) -> None:
    """Of a problem that declares the law: figures are possible, exact ones stay, and what no count leads to is said."""
    problem = Problem(SCHEMA, {"total": 0.0, "a": law, "b": np.inf, "a * b": law})
    assert problem.noise.law == law
    assert problem.variances[1] == law.variance
    truth = problem.marginal_matrix() @ np.array([0.0, 1, 2, 30, 41, 52])
    y = add_noise(problem, truth, rng=1)
    assert y[0] == truth[0]
    assert np.isnan(y[problem.observed.slice("b")]).all()
    problem.check_vector(y)
    noisy = ~(problem.exact | problem.unmeasured)
    assert np.isfinite(law.log_probability(y[noisy], truth[noisy])).all()
    np.testing.assert_array_equal(problem.noise.centred(y)[noisy], y[noisy] - law.mean)
    y[problem.observed.slice("a")] = [3.5, 3]
    refuses(r"table 'a'.* is 3.5, which no count is published as by", problem.check_vector, y)


def test_another_law_is_refused_beside_one() -> None:
    refuses(r"several laws.*base=3.*base=5", Problem, SCHEMA, {"a": RandomRounding(3), "b": RandomRounding(5)})
    refuses(r"several laws.*base=3.*laplace", Problem, SCHEMA, {"a": RandomRounding(3)}, noise="laplace")


ONE = "i;j;p;v;p_int_ub\n0;0;1;0;1\n1;0;0.5;-1;0.5\n1;2;0.5;1;1\n2;1;0.25;-1;0.25\n2;2;0.5;0;0.75\n2;3;0.25;1;1\n"
KEYS = '"pcv","ckey","pvalue"\n1,0,-1\n1,1,1\n2,0,-1\n2,1,0\n2,2,0\n2,3,1\n'


@every("text", [ONE, KEYS, ONE.replace(";v", ";w").replace(";", "\t"), "\ufeff" + KEYS])
def test_tables_are_read_as_they_are_published(text: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(text, encoding="utf-8")
    law = CellKey.read(tmp_path / "table.csv")
    assert law == CellKey([{0: 1.0}, {-1: 0.5, 1: 0.5}, {-1: 0.25, 0: 0.5, 1: 0.25}])
    assert hash(law) == hash(CellKey.read(tmp_path / "table.csv"))


def test_large_counts_take_the_last_rows_of_a_table_by_keys_in_turn(tmp_path: Path) -> None:
    """As the office for national statistics says: rows 501 to 750 serve 751 to 1,000, and so on."""
    lines = [f"{count},{key},{(count % 7) - 3 if key else 0}" for count in range(3, 751) for key in range(2)]
    (tmp_path / "table.csv").write_text("\n".join(["pcv,ckey,pvalue", "1,0,0", "2,0,0", *lines]))
    law = CellKey.read(tmp_path / "table.csv")
    for count in (3, 500, 501, 750, 751, 1000, 1001, 1250, 1251, 99_999):
        row = count if count <= 750 else (count - 1) % 250 + 501
        change = row % 7 - 3
        assert np.exp(law.log_probability(np.array(count + change), np.array(count))) == (0.5 if change else 1.0)


@cases(
    ("a,b\n1,2\n", "columns of the count"),
    ("i,v,p\n0,0,1\n2,0,1\n", "no row of the table is for the count 1"),
    ("i,v,p\n0,0,half\n", "line 2: the probability is to be a number: got 'half'"),
    ("i,v,p\n0,0.5,1\n", "line 2: the change is to be a whole number"),
    ("i,v,p\n0,0,0.7\n", "add up to 1: got 0.7"),
    ("i,v,p\n0,-1,1\n", "leaves less than 0"),
    ("i,v,p\n", "no row of the table is for the count 0"),
    ("i,v,p\n0,0,1\n-1,0,1\n1,0,1\n", "table.csv: line 3: the count is -1"),
    ("i,v,p\n0,1e30,1\n", "a change is larger than 10,000"),
)
def test_what_is_no_table_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(text)
    refuses(said, CellKey.read, tmp_path / "table.csv")


@refused(
    (lambda: RandomRounding(1), "base is 1: give a whole number of 2 or more"),
    (lambda: Rounding(2.5), "base"),
    (lambda: Rounding(2**60), "not exact in float64"),
    (lambda: RandomRounding(3).publish([-1]), "counts hold -1"),
    (lambda: Rounding(3).publish([1.5]), "counts hold 1.5"),
    (lambda: CellKey([]), "got an empty one"),
    (lambda: CellKey({0: 1.0}), "a list of rows"),
    (lambda: CellKey([[1.0]]), "a list of rows"),
    (lambda: CellKey([{0: 1.0}, {0.5: 1.0}]), "a change is to be a whole number"),
    (lambda: CellKey(SMALL, repeated=9), "repeated is 9"),
    (lambda: RandomRounding(3).release_sample(2), "not drawn of release grade"),
)
def test_what_is_no_law_is_refused(make: object) -> None:
    make()
