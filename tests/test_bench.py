"""Every benchmark can be imported and says what it does; those beside printed figures compute what these are of."""

from dataclasses import replace
from importlib import import_module
from itertools import islice

import numpy as np
import pytest

from bench import certificates, two_cores
from bench.__main__ import measurements
from bench.certificates import Answer, answers, broken, claims
from bench.papers import paper_tables, squared_error_rule, unequal_variances
from bench.papers.printed_figures import TABLE_2, TABLE_3, Comparison
from blue_solvers import blue
from blue_solvers.threads import WORTH_BYTES, Workers
from constraint_builders import Spine, gallery
from constraint_builders.budget import Measure
from tests.helpers.every import every
from tests.helpers.places import ROOT

PATHS = sorted(path.relative_to(ROOT) for path in (ROOT / "bench").rglob("*.py") if not path.stem.startswith("__"))


@every("name", [".".join(path.with_suffix("").parts) for path in PATHS])
def test_a_benchmark_is_imported(name: str) -> None:
    assert import_module(name).__doc__


@pytest.mark.parametrize(("name", "module"), measurements().items())
def test_a_benchmark_that_is_listed_says_its_options(
    name: str, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        import_module(module).main(["--help"])
    assert end.value.code == 0
    assert f"python -m bench {name.replace('_', '-')}" in capsys.readouterr().out.replace("_", "-")


@every("row", TABLE_3)
def test_table_3_as_computed_is_what_the_paper_prints(row: str) -> None:
    """Exactly in expectation: mean squared errors from one column of noise for every cell."""
    problem = unequal_variances.cyclic_variances(row)
    noise = np.diag(np.sqrt(problem.variances))
    heuristic = unequal_variances.authors_estimate(problem, noise)
    best = unequal_variances.averaged(problem, blue(problem, "cholesky") @ noise)
    printed = dict(zip(("heuristic", "best", "between"), TABLE_3[row], strict=True))
    expected = {
        name: (own**2).sum() / 369
        for name, own in (("heuristic", heuristic), ("best", best), ("between", heuristic - best))
    }
    assert len(best) == 369
    assert expected["between"] == pytest.approx(printed["between"], rel=0.05, abs=1e-4)  # 100 draws: to 1.5 %
    for name in ("heuristic", "best"):  # means of 100 draws, whose standard error is about .009
        assert expected[name] == pytest.approx(printed[name], abs=0.03)


def test_the_authors_estimate_is_the_best_where_variances_are_equal() -> None:
    problem = gallery.cube(4, 4)
    y = np.random.default_rng(1).standard_normal((625, 2))
    expected = unequal_variances.averaged(problem, blue(problem, "dense") @ y)
    assert unequal_variances.authors_estimate(problem, y) == pytest.approx(expected, abs=1e-12)


def test_variances_in_turn_begin_with_the_total() -> None:
    tables = unequal_variances.cyclic_variances("All Counts 1 Var")
    variances = tables.observed.tables(tables.variances)
    assert variances["v0"].tolist() == [1 + place % 3 for place in (125, 250, 375, 500)]
    assert variances["v0 * v3"][0].tolist() == [1 + place % 3 for place in (126, 127, 128, 129)]
    assert set(variances["v1 * v2"].ravel().tolist()) == {2.0}


def test_a_figure_differs_by_its_own_its_printed_and_its_rounding_errors() -> None:
    exact = Comparison("5", "row", "raw", np.array([1.2344]), 1.234, 40)
    assert exact.scores == pytest.approx(0.0004 / (1e-3 / 12**0.5))
    assert not exact.differs
    drawn = Comparison("4", "row", "t", np.array([0.9, 1.0, 1.1, 1.0]), 1.5, 1)
    spread = np.array([0.9, 1.0, 1.1, 1.0]).std(ddof=1)
    assert drawn.scores == pytest.approx(-0.5 / (spread**2 / 4 + spread**2 + 1e-6 / 12) ** 0.5)
    assert drawn.differs
    assert not Comparison("5", "row", "raw", np.array([9.0]), 1.0, 40, comparable=False).differs


def test_times_are_of_the_papers_problems() -> None:
    assert {name: make().desired.size for name, make in paper_tables.PROBLEMS.items()} == {
        name: counts for name, (counts, *_) in TABLE_2.items()
    }


@pytest.mark.parametrize("measure", squared_error_rule.MEASURES)
def test_the_rule_by_squared_errors_harms_some_queries_and_algorithm_3_none(measure: Measure) -> None:
    geoids = [f"4400{c}000{t}0{g}0{b:02d}" for c in range(2) for t in range(3) for g in range(3) for b in range(9)]
    widths = {"State": 2, "County": 5, "Tract": 9, "Block_Group": 11, "Block": 14}
    rows = list(squared_error_rule.rows(Spine.from_geoids(geoids, widths), measure))
    assert len(rows) == 6
    for _, _, rule, _, mean, harmed, worst, _ in rows:
        by_squares = rule == "squared error"
        assert (float(worst) > 1.5) == by_squares
        assert (float(harmed.rstrip("%")) > 0) == by_squares
        assert float(mean) < 1 or (float(mean) == 1 and not by_squares)


def test_answers_to_invented_problems_break_no_promise() -> None:
    """A few of the 20,000; a promise that is broken is seen."""
    found = list(islice(answers(0), 6))
    assert {answer.verdict for answer in found} >= {"exact"}
    assert broken(found) == []
    exact = next(answer for answer in found if answer.verdict == "exact")
    for change in ({"error": 2e-8}, {"known": 65.0}, {"bound": 1e-12, "error": 1e-9}):
        assert len(broken([replace(exact, **change)])) == 1


def test_answers_are_counted_by_kind_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest figures are those of exact answers alone; one that is not certified is none of them."""
    given = [Answer(0, 1, "exact", 2e-10, 1e-10, 3.0), Answer(0, 2, "exact", 1e-12, 1e-9), Answer(0, 3, "marked", 0.5)]
    monkeypatch.setattr(certificates, "answers", lambda kind: iter(given))
    found: list[Answer] = []
    *rows, last = claims(0, found)
    assert found == [given[0]] * len(rows)
    assert (last["asked"], last["exact"], last["error"], last["bound / error"]) == (len(rows), len(rows), 1e-10, 2.0)
    row = certificates._row("some", given)
    assert [row[name] for name in ("asked", "exact", "marked", "bound", "known", "broken")] == [3, 2, 1, 2e-10, 3.0, 1]


def test_what_two_threads_would_give_is_worked_out_from_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each goes to the thread that is free first; what is not in parts is for one alone. The clock counts work."""
    assert two_cores._shared([3.0, 1.0, 1.0, 1.0, 2.0]) == 5.0
    as_it_is, clock = Workers.for_each, [0.0]
    monkeypatch.setattr(two_cores.time, "thread_time", lambda: clock[0])

    def work(_: object = None) -> None:
        clock[0] += 1

    def run(parts: int) -> None:
        with Workers(WORTH_BYTES) as workers:
            workers.for_each(work, range(parts))
        work()

    for parts, expected in ((1, 2.0), (4, 3.0)):
        found = two_cores._by_parts(lambda parts=parts: run(parts), 5)
        assert found == {"processor": parts + 1.0, "by parts": expected, "alone": 2.0 if parts == 1 else 1.0}
    assert Workers.for_each is as_it_is
