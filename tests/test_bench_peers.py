"""`bench peers` on tiny problems."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bench import general_peers, measuring, peers
from bench.measuring import print_figures, verdict
from bench.peers import Contest, Rival, distance_from, held
from bench.problems import m5
from constraint_builders import Problem


def tree() -> Problem:
    S = sparse.csr_array(np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]]))
    return Problem.from_summing_matrix(S, [1.0, 2, 3, 4, 5])


@pytest.mark.parametrize("make", [general_peers.by_lsmr, general_peers.by_splu, general_peers.by_clarabel])
def test_general_peers_give_the_projection(make: Callable[..., Any]) -> None:
    if make is general_peers.by_clarabel:
        pytest.importorskip("clarabel")
    S, variances = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]]), np.arange(1.0, 6)
    A = sparse.csr_array(np.array([[1.0, -1, 0, 0, -1], [0, 1, -1, -1, 0]]))
    y = np.random.default_rng(0).normal(size=5)
    weighed = S.T / variances
    expected = S @ np.linalg.solve(weighed @ S, weighed @ y)
    assert make(A, variances, y)() == pytest.approx(expected, abs=1e-6)


def test_the_dense_active_set_gives_the_non_negative_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients, which are 0 where a cell is positive and do not fall below 0 elsewhere."""
    M = sparse.csr_array(np.array([[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]]))
    variances, y = np.arange(1.0, 5), np.array([5.0, 3, -2, 4])
    x = general_peers.by_nnls(M, variances, y)()
    gradient = M.T @ ((x - y) / variances)
    assert x[2] == 0
    assert gradient == pytest.approx([0, gradient[1], 0])
    assert gradient[1] > 0.1
    monkeypatch.setattr(general_peers, "MOST_CELLS", 2)
    with pytest.raises(MemoryError, match="3 cells"):
        general_peers.by_nnls(M, variances, y)


def test_equations_that_are_too_many_are_not_factorised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(general_peers, "MOST_EQUATIONS", 1)
    with pytest.raises(MemoryError, match="2 equations"):
        general_peers.by_splu(sparse.csr_array(np.eye(2, 5)), np.ones(5), np.ones(5))


def test_a_contest_measures_who_is_there_and_names_who_is_not() -> None:
    def work(size: int) -> Callable[[], np.ndarray]:
        values = np.arange(float(size))
        return lambda: np.sort(values)[:2]

    def absent() -> Rival:
        raise ModuleNotFoundError("No module named 'nobody'\nat all")

    off = distance_from(np.zeros(2), np.array([0.0, 4.0]))
    rivals = {"slow": lambda: Rival("apply", work(2_000), work(200_000), off), "nobody": absent}
    lacking: dict[str, str] = {}
    found = list(held(Contest("numbers", 2, rivals), 3, lacking))
    assert lacking == {"nobody on numbers": "ModuleNotFoundError: No module named 'nobody'"}
    (slow,) = found
    assert slow["peer / ours"] > 3
    assert slow["peer / ours"] == pytest.approx(slow["peer ms"] / slow["ours ms"])
    assert slow["distance"] == 0.5  # 1 off a standard error of 2; what is exact has none


def test_turns_are_taken_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "TURN", 1e-4)
    taken: list[str] = []
    rival = Rival("apply", lambda: taken.append("ours"), lambda: taken.append("theirs"))
    assert len(list(held(Contest("none", 1, {"other": lambda: rival}), 3, {}))) == 1
    changes = [own for own, before in zip(taken[1:], taken[:-1], strict=True) if own != before]
    assert len(changes) >= 2 * 3
    assert len(taken) > len(changes)  # what is short is called several times in a turn


def test_a_quick_run_needs_scipy_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    results: list[dict[str, Any]] = []
    monkeypatch.setattr(peers, "print_figures", lambda rows: results.extend(rows) or print_figures(results))
    monkeypatch.setattr(peers.gallery, "pl94", tree)
    monkeypatch.setattr(peers, "tree", lambda leaves: tree().summing.matrix)
    monkeypatch.setattr(peers, "m5", lambda part: tree().summing.matrix)
    monkeypatch.setattr(peers.gallery, "cube", lambda n, r: tree())

    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(peers.forecast_peers, "import_module", missing)
    monkeypatch.setitem(peers.GENERAL, "clarabel", ("from the problem", lambda *_: missing("clarabel")))
    peers.main(["--quick"])
    shown = capsys.readouterr().out
    assert "not run: MinTraceSparse on tree of 1,000 leaves" in shown
    assert "not run: clarabel on 4^4" in shown
    for repository in peers.SYSTEMS:
        assert f"not run: {repository}: FileNotFoundError" in shown
    rows = {(own["problem"], own["peer"]): own for own in results}
    assert rows["4^4", "scipy splu"]["distance"] < 1e-9
    assert rows["4^4", "scipy splu"]["proved"] < 1e-9
    lsqr = rows["tree of 1,000 leaves", "scipy lsqr, default"]
    assert lsqr["distance"] <= lsqr["proved"] < 0.1
    assert 0 < lsqr["leaf error"] < 10


def test_a_part_of_m5_has_its_levels() -> None:
    assert m5(40).shape == (1162, 720)
    assert (m5(40).sum(axis=0) == 12).all()


def test_slower_is_what_is_above_the_limit() -> None:
    assert (verdict(1.05, 1.05), verdict(1.06, 1.05)) == ("", "worse")
