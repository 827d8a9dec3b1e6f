"""`bench peers` on tiny problems, and `bench compare` on files with and without a planted slowdown."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bench import compare, contests, general_peers, peers
from bench.contests import Contest, Result, Rival, distance_from, held
from bench.measuring import verdict
from bench.problems import m5
from constraint_builders import Problem

RESULTS = [
    Result("pl94", 2603, "scipy splu", "apply", 0.05, 0.5, 10.0, 1e-12),
    Result("pl94", 2603, "copy", "apply", 0.05, 0.001, 0.02, None),
    Result("5^5", 7776, "clarabel", "from the problem", 1.0, 3.0, 3.0, 0.25),
]


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


def test_equations_that_are_too_many_are_not_factorised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(general_peers, "MOST_EQUATIONS", 1)
    with pytest.raises(MemoryError, match="2 equations"):
        general_peers.by_splu(sparse.csr_array(np.eye(2, 5)), np.ones(5), np.ones(5))


def test_a_contest_measures_who_is_there_and_names_who_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contests, "LEAST_TURN", 1e-4)
    monkeypatch.setattr(contests, "MOST_ROUNDS", 4)

    def work(size: int) -> Callable[[], np.ndarray]:
        values = np.arange(float(size))
        return lambda: np.sort(values)[:2]

    def absent() -> Rival:
        raise ModuleNotFoundError("No module named 'nobody'\nat all")

    off = distance_from(np.zeros(2), np.array([0.0, 4.0]))
    rivals = {"slow": lambda: Rival("apply", work(2_000), work(200_000), off), "nobody": absent}
    found, lacking = held(Contest("numbers", 2, rivals), 0.0)
    assert lacking == {"nobody on numbers": "ModuleNotFoundError: No module named 'nobody'"}
    (slow,) = found
    assert slow.ratio > 3
    assert slow.ratio == pytest.approx(slow.peer_ms / slow.ours_ms, rel=1.0)
    assert slow.distance == 0.5  # 1 off a standard error of 2; what is exact has none


def test_turns_are_taken_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contests, "LEAST_TURN", 1e-4)
    taken: list[str] = []
    rival = Rival("apply", lambda: taken.append("ours"), lambda: taken.append("theirs"))
    held(Contest("none", 1, {"other": lambda: rival}), 0.0)
    changes = [own for own, before in zip(taken[1:], taken[:-1], strict=True) if own != before]
    assert len(changes) >= 2 * contests.LEAST_ROUNDS


def test_a_quick_run_needs_scipy_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(contests, "LEAST_TURN", 1e-4)
    monkeypatch.setattr(peers.gallery, "pl94", tree)
    monkeypatch.setattr(peers, "tree", lambda leaves: tree().summing.matrix)
    monkeypatch.setattr(peers, "m5", lambda part: tree().summing.matrix)
    monkeypatch.setattr(peers.gallery, "cube", lambda n, r: tree())

    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(peers.forecast_peers, "import_module", missing)
    monkeypatch.setitem(peers.GENERAL, "clarabel", ("from the problem", lambda *_: missing("clarabel")))
    monkeypatch.setattr("bench.other_systems.find_spec", lambda name: None)
    peers.main(["--quick", "--keep", str(tmp_path / "kept.json"), "--note", "a test"])
    shown = capsys.readouterr().out
    assert "scipy lsmr" in shown
    assert "not run: MinTraceSparse on tree of 1,000 leaves" in shown
    for repository in peers.SYSTEMS:
        assert f"not run: {repository}: FileNotFoundError" in shown
    kept = compare.read(tmp_path / "kept.json")
    assert kept["machine"]["note"] == "a test"
    assert kept["results"]["4^4", "scipy splu"]["distance"] < 1e-9
    assert kept["results"]["4^4", "scipy splu"]["judged"]["proved"] < 1e-9
    lsqr = kept["results"]["tree of 1,000 leaves", "scipy lsqr, default"]
    assert lsqr["distance"] <= lsqr["judged"]["proved"] < 0.1
    assert 0 < lsqr["judged"]["leaf error"] < 10
    assert any("clarabel" in name for name in kept["absent"])


def test_a_part_of_m5_has_its_levels() -> None:
    assert m5(40).shape == (1162, 720)
    assert (m5(40).sum(axis=0) == 12).all()


def kept(path: Path, results: list[Result]) -> str:
    compare.write(path, results, {}, "")
    return str(path)


def test_equal_files_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = kept(tmp_path / "a.json", RESULTS)
    compare.main([same, same])
    assert "worse" not in capsys.readouterr().out


@pytest.mark.parametrize("peer", range(3))
@pytest.mark.parametrize(("slower", "flagged"), [(1.2, True), (1.11, True), (1.09, False), (0.5, False)])
def test_a_planted_slowdown_is_flagged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], peer: int, slower: float, flagged: bool
) -> None:
    before = kept(tmp_path / "a.json", RESULTS)
    own = RESULTS[peer]
    changed = replace(own, ours_ms=own.ours_ms * slower, ratio=own.ratio / slower)
    now = kept(tmp_path / "b.json", [changed if one is own else one for one in RESULTS])
    if flagged:
        with pytest.raises(SystemExit) as ended:
            compare.main([before, now])
        assert ended.value.code == 1
    else:
        compare.main([before, now])
    lines = [line for line in capsys.readouterr().out.splitlines() if "worse" in line]
    assert len(lines) == flagged
    assert all(own.peer in line for line in lines)


def test_an_answer_that_moved_away_is_flagged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = kept(tmp_path / "a.json", RESULTS)
    now = kept(tmp_path / "b.json", [*RESULTS[:2], replace(RESULTS[2], distance=0.3)])
    with pytest.raises(SystemExit):
        compare.main([before, now])
    assert "further away" in capsys.readouterr().out


def test_what_is_in_one_file_alone_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare.main([kept(tmp_path / "a.json", RESULTS), kept(tmp_path / "b.json", RESULTS[:2])])
    assert "before only: 5^5, clarabel" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="nothing is in both"):
        compare.main([kept(tmp_path / "a.json", RESULTS[:1]), kept(tmp_path / "b.json", RESULTS[1:])])


@pytest.mark.parametrize("text", ["", "{}", json.dumps({"results": [{"problem": "a"}]}), "[]"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "strange.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match="holds no results"):
        compare.main([str(path), str(path)])


def test_the_files_that_are_kept_can_be_read() -> None:
    paths = sorted(compare.FOLDER.glob("*.json"))
    assert paths
    assert all(compare.read(path)["results"] for path in paths)


def test_slower_is_what_is_above_the_limit() -> None:
    assert (verdict(1.05, 1.05), verdict(1.06, 1.05)) == ("", "worse")
