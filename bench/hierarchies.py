"""Summing matrices: the twelve crossed levels of the M5 competition, and trees as large as a country's census blocks.

    python -m bench hierarchies            M5 with 28 columns, and a tree of 8.1 million nodes
    python -m bench hierarchies --quick    M5, and a tree of 80 thousand

M5: 3,049 items in 7 departments of 3 categories, sold in 10 stores of 3 states; 30,490 series at the bottom, 42,840 in
all. The textbook's way, (S' W S)^-1 S' W, has a dense matrix there, 7.4 GB and an hour to factorise, since the total
sums all. In its place the estimate is held against what defines it: x = S leaves and S' W (y - x) = 0; "error" is the
larger of the two discrepancies, each entry in units of its standard deviation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bench.measuring import best_seconds, in_own_process, peak_bytes, print_table
from blue_solvers import blue
from constraint_builders import Problem

ITEMS_OF_DEPARTMENT = (416, 149, 532, 515, 216, 398, 823)
CATEGORY_OF_DEPARTMENT = (0, 0, 1, 1, 2, 2, 2)
STATE_OF_STORE = (0, 0, 0, 0, 1, 1, 1, 2, 2, 2)
M5_SOLVERS = ("auto", "cholesky", "cg")
CHILDREN = (51, 62, 27, 3, 33)  # on average: states, counties, tracts, block groups, blocks
COLUMNS = 28
SEED = 2024
TIMEOUT = 600.0


def m5(part: int = 1) -> sparse.csr_array:
    """The summing matrix, from the total down to the items in stores; of one in so many items."""
    department = np.repeat(np.arange(len(ITEMS_OF_DEPARTMENT)), np.array(ITEMS_OF_DEPARTMENT) // part)
    item, store = (grid.ravel() for grid in np.indices((department.size, len(STATE_OF_STORE))))
    dept, state = department[item], np.array(STATE_OF_STORE)[store]
    cat, every = np.array(CATEGORY_OF_DEPARTMENT)[dept], np.zeros_like(item)
    levels = [(every,), (state,), (store,), (cat,), (dept,), (state, cat), (state, dept), (store, cat), (store, dept),
              (item,), (item, state), (item, store)]  # fmt: skip
    return sparse.csr_array(sparse.vstack([_sums(np.stack(keys)) for keys in levels]))


def tree(leaves: int) -> sparse.csr_array:
    """A tree with the depth and the fan-outs of the census spine."""
    labels = [np.arange(leaves)]
    for children in reversed(CHILDREN):
        labels.append(labels[-1] // children)
    return sparse.csr_array(sparse.vstack([_sums(label[None]) for label in reversed(labels)]))


def _sums(keys: NDArray) -> sparse.csr_array:
    _, group = np.unique(keys, axis=1, return_inverse=True)
    return sparse.csr_array((np.ones(group.size, dtype=np.int8), (group.ravel(), np.arange(group.size))))


def measure(case: str, size: int, solver: str) -> dict[str, float | str]:
    """Figures of one solver, in this process."""
    S = m5() if case == "M5" else tree(size)
    rng = np.random.default_rng(SEED)
    variances = rng.uniform(1, 3, S.shape[0]) * np.sqrt(np.diff(S.indptr))
    Y = rng.standard_normal((S.shape[0], COLUMNS if case == "M5" else 1)) * np.sqrt(variances)[:, None]
    before = peak_bytes()
    start = time.perf_counter()
    P = blue(Problem.from_summing_matrix(S, variances), solver)
    figures: dict[str, float | str] = {"prepare": time.perf_counter() - start}
    X = P @ Y
    figures["by"] = P.info.solver
    figures["apply"] = best_seconds(lambda: P @ Y, repeats=2, least=0)
    if solver != "cg":
        start = time.perf_counter()
        P.variances()
        figures["variances"] = time.perf_counter() - start
    figures["memory"] = float(peak_bytes() - before)
    figures["error"] = _error(S, variances, Y, X)
    return figures


def _error(S: sparse.csr_array, variances: NDArray, Y: NDArray, X: NDArray) -> float:
    """How far X is from the estimate's defining equations; the leaves are the last nodes."""
    leaves = X[-S.shape[1] :]
    outside = abs(X - S @ leaves).max(axis=1) / np.sqrt(variances)
    pull = S.T @ ((Y - X) / variances[:, None])
    return float(max(outside.max(), (abs(pull).max(axis=1) / np.sqrt(S.T @ (1 / variances))).max()))


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = argparse.ArgumentParser(prog="python -m bench hierarchies", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small tree")
    options = parser.parse_args(argv)
    leaves = 78_000 if options.quick else 7_860_000
    rows = []
    for case, size, solvers in (("M5", 30_490, M5_SOLVERS), ("tree", leaves, ("auto",))):
        for solver in solvers:
            output = in_own_process("bench.hierarchies", case, str(size), solver, timeout=TIMEOUT)
            rows.append([case, f"{size:,}", *_row(solver, output)])
    header = ["case", "leaves", "solver", "prepare s", "apply s", "all variances s", "peak MiB", "error"]
    print_table(header, rows)


def _row(solver: str, output: str) -> list[str]:
    try:
        figures = json.loads(output)
    except json.JSONDecodeError:
        return [solver, output.strip()[-110:], *[""] * 4]
    return [
        f"{solver}: {figures['by']}",
        f"{figures['prepare']:.3f}",
        f"{figures['apply']:.4f}",
        f"{figures['variances']:.3f}" if "variances" in figures else "",
        f"{figures['memory'] / 2**20:.0f}",
        f"{figures['error']:.1e}",
    ]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
