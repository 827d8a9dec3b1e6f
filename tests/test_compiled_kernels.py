"""Every declared kernel equals its numpy reference; kernels are declared, compiled and kept in one way."""

import copy
import importlib
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from blue_solvers import thread_limit
from blue_solvers.components.lattice.operations import READ, SUM, WRITE
from blue_solvers.components.lattice.sweeps import look_at_gaps
from blue_solvers.normal_equations.factorisation import factorise
from blue_solvers.selected_inverse import starts_of_supernodes
from blue_solvers.threads import WORTH_BYTES, Workers
from constraint_builders import compiled
from constraint_builders.arrays import not_read_only, read_only
from constraint_builders.compiled import KERNELS, CompiledLoop, has_numba
from noise_mechanisms.integer_subspace import Lattice
from noise_mechanisms.integer_subspace.heat_bath import basic_moves
from tests.helpers.every import every
from tests.helpers.metropolis_in_numpy import invented_steps
from tests.helpers.places import ROOT
from tests.noise_mechanisms.integer_subspace.enumeration import margins

PACKAGES = ["constraint_builders", "noise_mechanisms", "blue_solvers"]
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
DECLARING = [path for path in FILES if re.search(r"^@compiled\(", path.read_text(), re.MULTILINE)]
for path in DECLARING:
    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
OURS = sorted(name for name in KERNELS if name.partition(".")[0] in PACKAGES)
SCALE = 2.5

Case = Callable[[np.random.Generator], tuple[Any, ...]]


def _lower_triangle(rng: np.random.Generator) -> tuple[Any, ...]:
    size = int(rng.integers(2, 30))
    own = np.tril(rng.random((size, size)) < rng.choice([0.05, 0.2]), k=-1)
    own[-1, 0] = True
    lower = sparse.csr_array(own.astype(float))
    return lower.indptr.astype(np.int64), lower.indices.astype(np.int64), np.ones(size, dtype=np.int64)


def _errors(rng: np.random.Generator) -> tuple[Any, ...]:
    keep, width = rng.integers(1, 9, 2)
    return np.sort(abs(rng.normal(size=(5000, keep)))), np.round(rng.normal(size=(5000, width)), 1)


def _factor(rng: np.random.Generator, of_entries: bool) -> tuple[Any, ...]:
    """A sparse factor with supernodes of one column and of dozens; or places in it."""
    size = int(rng.integers(2, 90))
    B = sparse.csr_array(rng.normal(size=(size, size)) * (rng.random((size, size)) < rng.choice([0.02, 0.1])))
    L, _ = factorise(sparse.csr_array(B @ B.T + sparse.eye_array(size))).triangle()
    pointers = L.indptr.astype(np.int64)
    if not of_entries:
        return pointers, L.indices, L.data, starts_of_supernodes(pointers, L.indices), np.empty(L.nnz)
    entries, columns = rng.integers(0, L.nnz, 50), np.repeat(np.arange(size), np.diff(pointers))
    return pointers, L.indices, L.data, columns[entries], L.indices[entries].astype(np.int64), np.empty(50)


LATTICES = [Lattice(margins((4, 4), "a", "b")), Lattice(margins((3, 4, 2), "a * b", "c"))]


def _moves(rng: np.random.Generator) -> tuple[Any, ...]:
    lattice = LATTICES[rng.integers(2)]
    moves = basic_moves(lattice)
    states, steps = np.zeros((6, lattice.records), np.int64), moves.steps * rng.integers(1, 3)
    return states, moves.cells, steps, rng.integers(0, moves.count, (6, 200)), rng.random((6, 200)), 0.25


def _jumps(rng: np.random.Generator) -> tuple[Any, ...]:
    basis = np.ascontiguousarray(LATTICES[rng.integers(2)].basis.toarray().T)
    jumps, costs = rng.integers(-1, 2, (6, 100, basis.shape[0])), rng.standard_exponential((6, 100))
    return np.zeros((6, basis.shape[1]), np.int64), basis, jumps, costs, 0.25, int(rng.integers(1, 3))


def _plain_steps(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A table of two variables, one of which has 2 levels or few or many cells come after, and all that is coarser."""
    a, b, K = int(rng.integers(2, 8)), int(rng.choice([2, 3, 7, 40, 600])), int(rng.choice([1, 3]))
    steps = np.array([[0, a * b, 1, a, b], [0, a * b + b, a, b, 1], [a * b + b, a * b + b + a, 1, a, 1]])
    return rng.normal(size=(a * b + b + a + 1, K)), steps.astype(np.int64)


def _neighbours(rng: np.random.Generator) -> tuple[np.ndarray, list[list[int]]]:
    """A table (a, 2, 2, b), and those without one of its axes of two levels; up, or in the order to go down."""
    a, b, K = (int(rng.choice(counts)) for counts in ([1, 3], [1, 2, 3, 20], [1, 3]))
    size, half = 4 * a * b, 2 * a * b
    steps = [[0, 0, size, a, 2, 2 * b, -1], [0, 0, size + half, 2 * a, 2, b, -1]]
    return rng.normal(size=(2 * size + a * b, K)), steps[:: rng.choice([1, -1])]


def _apart(rng: np.random.Generator, listed: bool) -> tuple[np.ndarray, list[list[int]]]:
    """A table (a, b, c), without its first and last axes, or with groups of the first, in two reductions."""
    a, b, c, K = (int(rng.choice(counts)) for counts in ([2, 4], [1, 3, 20], [2, 5, 9], [1, 3]))
    count, size = 2 if listed else 1, a * b * c
    target, room, last = size, size + count * b, size + count * b + a * b
    before, after = rng.permutation([1, b]).tolist()  # the first axis, or as if it were the second
    first, then = [0, room, a * b, c, 1, -1], [room, last, before, a, after, 0 if listed else -1]
    land = [1, 1, count * b] if rng.integers(2) else [count * b, 1, 1]
    rows = [[1, *first], [1, *then], [2, last, target, *land, -1], [3, *then], [4, *first], [5, *first]]
    return rng.normal(size=(last + count * b, K)), rows


def _steps(rng: np.random.Generator) -> tuple[Any, ...]:
    """Two variables, neighbours, groups of a variable in its place, or axes apart."""
    cells, plain = _plain_steps(rng)
    kind, lists = rng.integers(4), np.zeros(0)
    if kind == 0:
        cells, rows = _neighbours(rng)
    elif kind == 1:
        rows = [[0, *row, -1] for row in plain.tolist()]
    else:
        cells, rows = _apart(rng, kind == 2)
        lists = np.array([2, 0, 1, 1, 0][: 1 + rows[1][4]])
    return cells, np.array(rows), lists.astype(np.int64)


def _steps_from_values(rng: np.random.Generator) -> tuple[Any, ...]:
    """With rows before that sum values: along an axis of few or many cells after it, or to groups."""
    cells, steps, lists = _steps(rng)
    after = int(rng.choice([1, 2, 30]))
    rows = [[0, 0, 1, 3, after, -1], [3 * after, 0, 2, 2, 1, -1], [3 * after, 1, 1, 3, 1, len(lists)]]
    cells = np.concatenate([cells, rng.normal(size=(30, cells.shape[1]))])
    steps, groups = np.concatenate([np.insert(rows, 0, SUM, axis=1), steps]), [2, 0, 1, 1]
    return cells, steps, np.concatenate([lists, groups]), rng.normal(size=(3 * after + 4, cells.shape[1]))


def _weighted_steps(rng: np.random.Generator) -> tuple[Any, ...]:
    """With rows before that read some cells or put them: one by one, alike for several levels, or for a group's.

    And with rows that go back from sums to values: alike to all levels or by groups.
    """
    cells, steps, lists, values = _steps_from_values(rng)
    rows = [[1, 0, 2, 1, 1, -1], [0, 1, 1, 3, 1, -1], [0, 0, 1, 3, 1, len(lists) - 4]]
    steps = np.concatenate([np.insert(rows, 0, rng.choice([READ, WRITE], 3), axis=1), steps])
    return cells, steps, lists, rng.choice([1.0, 0.5], len(steps)), values


def _sums_of_axes(rng: np.random.Generator) -> tuple[Any, ...]:
    """Moves that sum out an axis whole, with few cells after it or more than are held at once; and a sum by groups."""
    before, levels, after = int(rng.integers(1, 4)), int(rng.integers(1, 9)), int(rng.choice([1, 2, 700]))
    fine = before * levels * after
    moves = [[0, 0, fine, before, levels, after, -1], [0, 0, fine, 1, before * levels, after, -1]]
    end = fine + before * after  # of both tables; sums of every second level, and of what is between, lie behind
    by_group, land = [1, 0, end, before, levels, after, 0], [2, end, fine, 1, 1, before * after, -1]
    lists = np.array([2, *np.arange(levels) % 2, *[0] * (levels == 1)])
    cells = rng.normal(size=(end + 2 * before * after, int(rng.choice([1, 3]))))
    return cells, np.array([*moves, by_group, land]), lists, np.zeros(4)


def _tables(rng: np.random.Generator) -> tuple[Any, ...]:
    """Some of them empty, and cells behind them that stay as they are."""
    sizes = rng.integers(0, 9, 4)
    return rng.normal(size=(sizes.sum() + 2, int(rng.choice([1, 3])))), sizes, rng.normal(size=4)


def _lines(rng: np.random.Generator) -> tuple[Any, ...]:
    """Two components: tables (a, g, b), (a, b) of one, where g are groups, and (g, g, a), (a,) of the other."""
    a, g, b, count = (int(n) for n in rng.integers(1, 4, 4))
    b *= int(rng.choice([1, 50, 300]))
    sizes = np.array([a * g * b, a * b, g * g * a, a])
    starts = np.cumsum([0, *sizes])
    tables = np.repeat(np.arange(4), [g, 1, g * g, 1])
    gap = int(rng.choice([1, g]))  # or (a, b, g), and then cells of a run are apart
    groups = np.arange(g)[:, None] * (b if gap == 1 else 1) + np.arange(a) * g * b
    places = [groups.ravel(), np.arange(a) * b, np.arange(g * g) * a, np.zeros(1, np.int64)]
    one, other = g + 1, g * g + 1  # lines; of one every line is a number, of the other its tables are sums of g * g
    heads = np.array([[0, one, a, b, 0, 1, one, 0, 0], [one, other, 1, a, one * a, 2, g * g, one, one**2]])
    parts = np.concatenate([np.arange(one), np.arange(g * g), np.full(g * g, g * g)])
    matrices = rng.normal(size=one**2 + g * g * other)
    matrices[rng.random(matrices.size) < 0.3] = 0
    cells = rng.normal(size=(count * starts[-1], int(rng.choice([1, 3]))))
    ends = np.column_stack([starts[tables], sizes[tables], np.where(tables == 0, gap, 1)])
    return cells, count, (ends, heads, np.concatenate(places), parts, matrices), bool(rng.integers(2))


def _parts(rng: np.random.Generator) -> tuple[Any, ...]:
    cells, steps = _plain_steps(rng)
    return cells[:, 0].copy(), steps, np.zeros(3)


def _gaps(rng: np.random.Generator) -> tuple[Any, ...]:
    """Tables that agree to 1e-6."""
    _, steps = _plain_steps(rng)
    a, b = steps[0, 3:]
    counts = rng.integers(0, 1000, (a, b)).astype(float)
    cells = np.concatenate([counts.ravel(), counts.sum(axis=0), counts.sum(axis=1), [counts.sum()]])
    return cells + 1e-6 * rng.normal(size=cells.size), np.zeros(cells.size), steps[::-1].copy()


def _areas(rng: np.random.Generator) -> tuple[Any, ...]:
    """Leaves in several areas each, with weights, or by themselves, and cells that areas sum further, or do not."""
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 4, 300))])
    entries, summed = int(starts[-1]), bool(rng.integers(2))
    weights = np.where(rng.random(entries) < 0.5, 1.0, rng.integers(-8, 9, entries) / 4)
    to, wide = (5, 3) if summed else (-1, 5)
    step = [0, 5, 300, 5, 0, wide, 0, to] if rng.random() < 0.7 else [1, 7, 200, 5, 0, 7, -1, to]
    into = np.concatenate([np.zeros(5, dtype=np.intp), rng.integers(0, 3, 5)])
    return np.array([step]), starts, rng.integers(0, 4, entries), weights, into


def _cells_in_quarters(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Large numbers and fractions, whose sums have more bits than a double, and 64 hold."""
    large, small = 4.0 * rng.integers(-(2**46), 2**46, shape), rng.integers(-(2**16), 2**16, shape) / 32
    return np.where(rng.random(shape) < 0.5, large, small)


def _halves(rng: np.random.Generator) -> np.ndarray:
    return np.stack([_cells_in_quarters(rng, 1500), np.zeros(1500)])[: rng.integers(1, 3)]


def _sums_or_shares_of_areas(rng: np.random.Generator) -> tuple[Any, ...]:
    up, changed = bool(rng.integers(2)), np.zeros((2, 1500))
    if not up:
        changed[0] = _cells_in_quarters(rng, 1500)
    return _halves(rng), _areas(rng), changed, up


def _figures(rng: np.random.Generator) -> tuple[Any, ...]:
    """Of a table some of whose cells are empty, known exactly, not measured or not claimed."""
    count, columns = (int(size) for size in rng.integers(1, 9, 2))
    rows, size, shape = rng.permutation(count + 2)[:count], (count + 2, columns), (count, columns)
    variance = rng.choice([0.0, 1.0, 2.5, np.inf], (count + 2, rng.choice([1, columns])))
    y, error = rng.integers(0, 50, size).astype(float), float(rng.choice([0.0, 0.125]))
    x = np.where(rng.random(size) < 0.1, np.nan, y + rng.integers(-2, 3, size) / 4)
    high, low = np.where(rng.random(shape) < 0.05, np.nan, y[rows]), rng.integers(-2, 3, shape) / 8
    empty = rng.random(shape) < 0.2 if rng.random() < 0.5 else np.zeros((0, 0), dtype=bool)
    places = rng.choice([0.0, 1.0, 0.5], (2, count + 2))
    found = rng.random(7) / 4, np.array([0.0, -1.0, rng.random(), 0.0])
    return rows, (x, y), (variance, variance / 2), (high, low), places, error, empty, np.zeros(shape), found


# By kernel: invented arguments, and how far results may differ, relative to the largest.
def _arrays(rng: np.random.Generator) -> tuple[Any, ...]:
    """Axes of a few groups, many short ones, and one that is of single levels."""
    groups = [np.array([2, 1, 3]), np.array([int(rng.integers(2, 12))]), np.ones(2, np.int64)]
    groups = [groups[i] for i in rng.permutation(3)]
    shape = [int(own.sum()) for own in groups]
    columns = int(rng.choice([1, 3]))
    firsts = np.cumsum([0, *(own.size for own in groups)])
    axes = [
        [np.prod(shape[:i], dtype=int), shape[i], np.prod(shape[i + 1 :], dtype=int) * columns, firsts[i], own.size]
        for i, own in enumerate(groups)
    ]
    arrays = rng.normal(size=(int(rng.integers(1, 5)), int(np.prod(shape)) * columns))
    return arrays, np.array(axes), np.concatenate(groups)


CASES: dict[str, tuple[Case, float]] = {
    "blue_solvers.components.reflections.reflect_axes": (_arrays, 1e-14),
    "blue_solvers.verification.compensated_sums.spread_gaps": (_gaps, 1e-15),
    "blue_solvers.verification.compensated_sums.take_parts": (_parts, 1e-13),
    "blue_solvers.verification.compensated_sums.walk": (_sums_or_shares_of_areas, 0),
    "blue_solvers.verification.certificate_sums.judge": (_figures, 1e-14),
    "blue_solvers.components.lattice.sweeps.go_down": (_steps_from_values, 1e-14),
    "blue_solvers.components.lattice.sweeps.go_up": (_weighted_steps, 1e-14),
    "blue_solvers.components.lattice.sweeps.look_at_gaps": (_sums_of_axes, 1e-14),
    "blue_solvers.components.lattice.sweeps.scale_tables": (_tables, 0),
    "blue_solvers.components.lattice.groups.mix_lines": (_lines, 1e-13),
    "blue_solvers.normal_equations.factorisation.count_entries": (_lower_triangle, 0),
    "blue_solvers.selected_inverse.entries_by_supernode": (partial(_factor, of_entries=False), 1e-13),
    "blue_solvers.selected_inverse.read_entries": (partial(_factor, of_entries=True), 0),
    "blue_solvers.uncertainty.largest_errors.keep_largest": (_errors, 0),
    "blue_solvers.nonnegative.posterior.metropolis.metropolis_steps": (invented_steps, 1e-12),
    "noise_mechanisms.integer_subspace.heat_bath.redraw_chains": (_moves, 0),
    "noise_mechanisms.integer_subspace.jumps.jump_chains": (_jumps, 0),
}


def results(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """What a call returns, but for the number of its steps, and all arrays that it was given, after it."""
    own = copy.deepcopy(arguments)
    returned = function(*own)
    cells = [] if returned is None else [np.asarray(returned[0] if isinstance(returned, tuple) else returned)]
    given = [part for argument in own for part in (argument if isinstance(argument, tuple) else [argument])]
    return [*cells, *(array for array in given if isinstance(array, np.ndarray))]


@every("seed", range(8))
@every("name", OURS)
def test_every_kernel_equals_its_reference(name: str, seed: int) -> None:
    """Where numba is missing the loop is interpreted."""
    kernel, (case, tolerance) = KERNELS[name], CASES[name]
    arguments = case(np.random.default_rng(seed))
    expected = results(kernel.reference, arguments)
    assert any(not np.array_equal(a, b) for a, b in zip(expected, results(lambda *_: None, arguments), strict=False))
    with np.errstate(divide="ignore"):  # as in compiled loops
        found = results(kernel.compiled() if has_numba() else kernel.loop, arguments)
    for one, other in zip(found, expected, strict=True):
        size = abs(other[np.isfinite(other)]).max(initial=1.0)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * size)


def test_gaps_that_are_no_numbers_are_said_to_be_none() -> None:
    """Wherever they are, numbers after them too."""
    steps = np.array([[0, 0, 6, 1, 3, 2, -1], [0, 0, 6, 2, 3, 1, -1]])
    for place in range(8):
        cells, gaps = np.ones((8, 1)), np.zeros(2)
        cells[place] = np.nan
        look_at_gaps(cells, steps, np.zeros(0, dtype=np.int64), gaps)
        assert np.isnan(gaps).all(), place


def test_every_kernel_has_a_case() -> None:
    assert len(OURS) == sum(len(re.findall(r"^@compiled\(", path.read_text(), re.MULTILINE)) for path in DECLARING)
    assert set(OURS) == set(CASES)


def test_numba_is_asked_for_in_one_file() -> None:
    asking = r"import numba|from numba|(import_module|find_spec)\(\"numba\"|njit"
    assert [path.name for path in FILES if re.search(asking, path.read_text())] == ["compiled.py"]


@every("name", OURS)
def test_the_reference_stands_beside_the_loop(name: str) -> None:
    kernel = KERNELS[name]
    assert kernel.reference.__module__ == kernel.loop.__module__


def scale_in_numpy(numbers: np.ndarray) -> np.ndarray:
    return SCALE * numbers


def scale(numbers: np.ndarray) -> np.ndarray:
    """Multiply, by a function of this file."""
    out = np.empty(numbers.size)
    for i in range(numbers.size):
        out[i] = _times(numbers[i])
    return out


def _times(number: float) -> float:
    return SCALE * number


def undeclared() -> CompiledLoop:
    return CompiledLoop(scale, scale_in_numpy)


def test_without_numba_the_reference_runs_and_compiling_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "has_numba", lambda: False)
    kernel = undeclared()
    assert kernel.fastest() is scale_in_numpy
    with pytest.raises(ImportError, match=r"pip install 'blue-solvers\[fast\]', or use its numpy reference"):
        kernel.compiled()


def test_numba_that_cannot_be_imported_is_said_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError("Numba needs NumPy 2.2 or less")

    monkeypatch.setattr(compiled, "has_numba", lambda: True)
    monkeypatch.setattr(compiled.importlib, "import_module", broken)
    with pytest.raises(ImportError, match=r"installed and cannot be imported to compile .*scale: Numba needs NumPy"):
        undeclared().fastest()


def test_a_kernel_is_pickled_by_its_name() -> None:
    kernel = KERNELS["blue_solvers.uncertainty.largest_errors.keep_largest"]
    assert pickle.loads(pickle.dumps(kernel)) is kernel


needs_numba = pytest.mark.skipif(not has_numba(), reason="needs numba (extra 'fast')")


@needs_numba
def test_global_numbers_are_not_taken_from_an_older_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    for factor in (2.0, 3.0, 2.0):
        monkeypatch.setattr(sys.modules[__name__], "SCALE", factor)
        assert undeclared().compiled()(np.ones(2)).tolist() == [factor, factor]


@needs_numba
def test_many_threads_get_one_compiled_loop() -> None:
    kernel = undeclared()
    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, list(pool.map(lambda _: kernel.compiled(), range(32)))))) == 1
        found = list(pool.map(lambda n: kernel.fastest()(np.full(3, float(n))), range(32)))
    assert [values.tolist() for values in found] == [[SCALE * n] * 3 for n in range(32)]


@needs_numba
def test_where_nothing_can_be_written_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import caching

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    loop = undeclared().compiled()
    assert loop(np.ones(2)).tolist() == [SCALE, SCALE]
    assert loop.stats.cache_path is None


@needs_numba
def test_read_only_numbers_are_read_by_the_loop_of_others_where_they_lie() -> None:
    values = np.arange(6.0).reshape(3, 2)
    assert not_read_only(values) is values
    own = not_read_only(read_only(values))
    assert own.__array_interface__ == values.__array_interface__
    loop = undeclared().compiled()
    for given in (values.copy().ravel(), own.copy().ravel(), own.ravel()):
        loop(given)
    assert len(loop.dispatcher.signatures) == 1


@needs_numba
def test_what_was_compiled_is_kept_on_disk() -> None:
    undeclared().compiled()(np.ones(2))
    again = undeclared().compiled()
    again(np.ones(2))
    assert sum(again.stats.cache_hits.values()) == 1


@needs_numba
def test_references_serve_few_numbers_until_they_took_long_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "_PASSED", [0.0])
    kernel = undeclared()
    assert kernel(np.ones(3)).tolist() == [SCALE] * 3
    assert not kernel._made
    assert 0 < compiled._PASSED[0] < compiled.PATIENCE
    compiled.compile_at_once()
    assert kernel(np.ones(3)).tolist() == [SCALE] * 3
    assert kernel._made


@needs_numba
def test_many_numbers_are_compiled_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiled, "_PASSED", [0.0])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    many = CompiledLoop(scale, scale_in_numpy, most=compiled.ONE_BY_ONE - 1)
    many(np.ones(compiled.ONE_BY_ONE))
    assert many._made
    assert compiled._PASSED == [0.0]


def in_threads() -> None:
    with thread_limit(2), Workers(WORTH_BYTES):
        pass


@needs_numba
@pytest.mark.parametrize(
    ("work", "calls"),
    [
        (lambda kernel: kernel(np.ones(3)), compiled.FEW // compiled.A_CALL),
        (lambda kernel: kernel(np.ones(compiled.FEW // 4)), 4),
        (lambda kernel: CompiledLoop(scale, scale_in_numpy, most=compiled.ONE_BY_ONE)(np.ones(100)), 6),
        (lambda kernel: undeclared().compiled(), 1),  # numba is there then
        (lambda kernel: in_threads(), 1),  # nobody knows whose turn comes first
    ],
    ids=["calls", "numbers", "numbers one by one", "compiling", "threads"],
)
def test_what_is_kept_is_loaded_at_once_or_after_a_few_numbers(
    work: Callable[[Any], Any], calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    undeclared().compiled()(np.ones(2))
    monkeypatch.setattr(compiled, "_COUNTED", [compiled.FEW])
    compiled.load_for_many()
    kernel = undeclared()
    for number in range(calls):
        assert not kernel._made, number
        work(kernel)
    kernel(np.ones(3))
    assert kernel._made
    another = undeclared()
    another(np.ones(3))
    assert another._made


@needs_numba
def test_what_is_to_be_compiled_stays_so_while_a_reference_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "_PASSED", [0.0])

    def meanwhile(numbers: np.ndarray) -> np.ndarray:
        compiled.compile_at_once()
        return scale_in_numpy(numbers)

    CompiledLoop(scale, meanwhile)(np.ones(3))
    assert compiled._PASSED[0] >= compiled.PATIENCE


@needs_numba
@pytest.mark.slow
def test_the_first_answer_of_a_new_machine_does_not_wait_for_a_compiler(tmp_path: Path) -> None:
    said = "import sys; from blue_solvers import estimate; from constraint_builders import gallery\n"
    said += "p = gallery.pl94(); e = estimate(p, p.variances * 0 + 5.0)\n"
    said += "assert e.info.error_bound < 1e-6; assert 'numba' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", said], env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}, cwd=ROOT, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not any(tmp_path.rglob("*.nbi"))
