"""Copies of figures, and how well exact counts are guessed: beside guesses made of figures that were drawn."""

import numpy as np
import polars as pl
import pytest

from blue_solvers import blue
from blue_solvers.rounded import audit, estimated_noise, merged_copies, repeated_figures
from constraint_builders import Problem, Schema, read_tables
from noise_mechanisms import add_noise
from noise_mechanisms.laws import CellKey, PublishedCount, RandomRounding, Rounding
from tests.helpers.refused import refuses

KEY = CellKey([{0: 1.0}, {-1: 0.3, 0: 0.4, 1: 0.3}, {-2: 0.2, -1: 0.2, 0: 0.2, 1: 0.2, 2: 0.2}])


def _copies(law: PublishedCount, times: int, alike: bool, seed: int = 0) -> tuple[Problem, np.ndarray]:
    """Ages of fifty areas in so many tables."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(20, 400, 150).astype(float)
    labels = pl.DataFrame({"area": np.repeat([f"a{i}" for i in range(50)], 3), "age": ["x", "y", "z"] * 50})
    once = law.publish(counts, rng)
    frames = [
        labels.with_columns(value=pl.Series(once if alike else law.publish(counts, rng)), source=pl.lit(f"t{number}"))
        for number in range(times)
    ]
    return read_tables(pl.concat(frames), noise=law)


@pytest.mark.parametrize("law", [RandomRounding(3), RandomRounding(5), KEY], ids=repr)
def test_copies_are_told_from_measurements_of_their_own(law: PublishedCount) -> None:
    alike, own = (repeated_figures(*_copies(law, 4, same)) for same in (True, False))
    assert (alike.pairs, alike.agreeing) == (450, 450)
    assert alike.verdict == "copies of one measurement"
    assert own.verdict == "measurements of their own"
    assert abs(own.share - law.agreement) < 5 * np.sqrt(law.agreement * (1 - law.agreement) / 450)
    few = repeated_figures(*_copies(law, 1, True))
    assert few.pairs == 0
    assert few.verdict == "cannot be told"
    assert "450 of 450 repeated figures agree (100.0 %" in str(alike)


def _figures_of(law: PublishedCount, counts: list[float], times: int, rng: np.random.Generator) -> pl.DataFrame:
    """Each count published so many times by itself."""
    labels = pl.DataFrame({"area": [f"a{i}" for i in range(len(counts))]})
    return pl.concat(
        labels.with_columns(value=pl.Series(law.publish(counts, rng)), source=pl.lit(f"t{number}"))
        for number in range(times)
    )


@pytest.mark.parametrize(("counts", "times"), [([0.0] * 200 + [7.0], 2), ([30.0, 60.0], 60)], ids=["zeros", "totals"])
def test_figures_that_hardly_could_differ_are_not_called_copies(counts: list[float], times: int) -> None:
    """Counts of 0 are always published as 0; totals in many tables agree in all of them where their remainder is 0."""
    law, rng = RandomRounding(3), np.random.default_rng(0)
    verdicts = set()
    for _ in range(20):
        frame = _figures_of(law, counts, times, rng)
        verdicts.add(repeated_figures(*read_tables(frame, noise=law)).verdict)
    assert "copies of one measurement" not in verdicts


def test_conventional_rounding_of_copies_tells_nothing() -> None:
    assert repeated_figures(*_copies(Rounding(5), 3, False)).verdict == "cannot be told"


def test_copies_are_merged_where_they_agree() -> None:
    problem, y = merged_copies(*_copies(KEY, 3, True))
    assert problem.sources is None
    np.testing.assert_array_equal(problem.variances, KEY.variance)
    assert not KEY.impossible(y).any()
    refuses(r"in one table and .* in another: these are no copies", merged_copies, *_copies(KEY, 3, False))


@pytest.mark.parametrize("law", [RandomRounding(3), RandomRounding(5), Rounding(5), KEY], ids=repr)
def test_guesses_from_own_figures_are_right_as_often_as_said(law: PublishedCount) -> None:
    """Listed: of all figures that a few copies may be, the likeliest count among those of every remainder."""
    problem = Problem(Schema({"a": 2}), {"a": law})
    counts, figures = np.arange(1000.0, 1060.0), np.arange(990.0, 1070.0)
    chances = np.exp(law.log_probability(figures[:, None], counts[None, :]))
    one = chances.max(axis=1)[10:60].sum() / 50
    two = np.einsum("ik,jk->ijk", chances, chances).max(axis=2)[10:60].sum() / 50
    found = audit(problem, rng=0, draws=20_000)
    np.testing.assert_allclose(found.together, one, atol=0.03)
    np.testing.assert_array_equal(found.alone, found.together)
    two = two if law.copies_are_independent else one
    np.testing.assert_allclose(audit(problem, copies=2, rng=0, draws=20_000).alone, two, atol=0.03)


def test_guesses_from_all_tables_are_right_as_often_as_said() -> None:
    """Beside the likeliest whole counts of normal estimates, over draws; what is known exactly always is."""
    law, rng = RandomRounding(3), np.random.default_rng(1)
    schema = Schema({"a": 4, "b": 4})
    problem = Problem(schema, {"total": 0.0, "a": law, "b": law, "detailed": law}, ["total", "a", "detailed", "b"])
    found = audit(problem, rng=0)
    assert found.together[0] == found.alone[0] == 1.0
    assert found.std_errors[0] == 0.0
    assert (found.together[1:] > found.alone[1:] - 0.02).all()
    right = []

    P = blue(problem)
    for _ in range(600):
        truth = problem.marginal_matrix() @ rng.integers(30, 300, 16).astype(float)
        est = P.estimate(add_noise(problem, truth, rng), certify=False)
        wanted = problem.tabulate(truth[:, None])[:, 0]
        right.append(np.rint(est.values) == wanted)
    assert (found.together > np.mean(right, axis=0) - 0.06).all()  # rounding the estimate is no better a guess
    assert (found.together < np.mean(right, axis=0) + 0.15).all()
    assert str(found).startswith("the best guess is right for")
    assert found.worst(2)[0] == ("table 'total'", 1.0, 1.0)
    refuses("declare what was rounded or perturbed by its law", audit, Problem(schema, {"total": 1.0}))


def test_figures_of_several_sources_are_refused_by_name() -> None:
    """Where their mean would be taken for one figure, or their number forgotten."""
    problem, y = _copies(RandomRounding(3), 3, False)
    refuses("figures of several sources: audit one of them", audit, problem)
    refuses("figures of several sources, whose mean is one measurement", estimated_noise, problem, y)


@pytest.mark.parametrize("asked", ["detailed", "b * a"])
def test_audits_are_the_same_by_whatever_name_a_table_is_asked_for(asked: str) -> None:
    schema, law = Schema({"a": 2, "b": 3}), RandomRounding(3)
    own, other = (Problem(schema, {"a": law, "a * b": law}, ["a", name]) for name in ("a * b", asked))
    for found in ("alone", "together"):
        tables = [problem.desired.tables(getattr(audit(problem, rng=0), found)) for problem in (own, other)]
        np.testing.assert_allclose(tables[0]["a"], tables[1]["a"])
        np.testing.assert_allclose(
            tables[0]["a * b"], tables[1][asked].reshape(3, 2).T if asked == "b * a" else tables[1][asked]
        )


def test_laws_of_large_bases_are_audited_as_widely_as_they_reach() -> None:
    """Of base 60, whose counts are up to 59 away, 1 in 60 guesses is right; base 600 is refused."""
    schema = Schema({"a": 2})
    found = audit(Problem(schema, {"a": RandomRounding(60)}), rng=0, draws=20_000)
    np.testing.assert_allclose(found.together, 1 / 60, atol=0.004)
    refuses("audits are of up to 500", audit, Problem(schema, {"a": RandomRounding(600)}))
