"""Others' answers judged by certificate: how far from the best estimate, in standard errors.

    python -m bench judged                   M5 and smaller ones, some minutes
    python -m bench judged --quick           small ones
    python -m bench judged --peers FOLDER    tables too, by systems whose repositories lie in FOLDER

Of hierarchicalforecast (extra ``forecasts``), and of general least squares as anybody writes them with numpy and scipy.
Systems that are not on PyPI are run from clones of their repositories, JordanAwan/SeaBlue in FOLDER/SeaBlue and so on,
with what these need installed; each that is not there is named. What they gave is in docs/others_judged.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import lsqr

from bench import forecast_peers
from bench.forecast_peers import Answer
from bench.hierarchies import m5, tree
from bench.measuring import print_table
from bench.other_systems import SYSTEMS, cases_of
from blue_solvers import certify, estimate
from blue_solvers.adapters import ExactMinTrace, judge
from constraint_builders import Problem

SEED = 2024
MOST_DENSE = 3_000  # series above which dense matrices are not made


def main(argv: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench judged", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small hierarchies only")
    parser.add_argument("--peers", metavar="FOLDER", type=Path, help="where clones of the other systems lie")
    options = parser.parse_args(argv)
    hierarchies = {"tree of 1,000 leaves": tree(1_000)}
    if not options.quick:
        hierarchies["M5"] = m5()
    header = ["hierarchy", "variances", "answer", "seconds", "distance", "worst leaf", "leaf error", "disagreement"]
    print_table(header, [row for name, S in hierarchies.items() for row in _rows(name, S)])
    print("\nnot negative")
    header = ["hierarchy", "variances", "answer", "seconds", "weighted squares over the least", "leaf error"]
    print_table(header, [row for name, S in hierarchies.items() for row in _non_negative(name, S)])
    print()
    _judge_systems(options.peers)


def _judge_systems(folder: Path | None) -> None:
    """Print the table of systems for tables, then what was not there."""
    rows, absent = [], []
    for repository in SYSTEMS:
        try:
            cases = cases_of(repository, folder)
        except Exception as error:  # of others' code, or of what it needs
            absent.append(f"not run: {repository}: {type(error).__name__}: {error}")
            continue
        for case in cases:
            proof = certify(case.problem, case.y, case.x)
            bound = proof.reason if proof.bound is None else f"{proof.bound:.1e}"
            rows.append([case.task, case.system, f"{case.seconds:.4f}", bound, f"{proof.violation:.1e}"])
    if rows:
        print_table(["tables", "answer", "seconds", "distance", "disagreement"], rows)
    print("\n".join(absent))


def _hierarchy(S: sparse.csr_array) -> Iterator[tuple[str, NDArray, NDArray, NDArray]]:
    """Each kind of variances, with the truth and forecasts that err so."""
    leaves = np.asarray(S.sum(axis=1)).ravel()
    rng = np.random.default_rng(SEED)
    kinds = {"by leaves": leaves, "spread 1 to 10,000": leaves * 10 ** rng.uniform(-2, 2, leaves.size)}
    for kind, variances in kinds.items():
        truth = S @ rng.gamma(0.3, 4, S.shape[1])
        yield kind, variances, truth, truth + rng.normal(size=S.shape[0]) * np.sqrt(variances)


def _rows(name: str, S: sparse.csr_array) -> list[list[str]]:
    return [row for own in _hierarchy(S) for row in _judged(name, S, *own)]


def _judged(
    name: str, S: sparse.csr_array, kind: str, variances: NDArray, truth: NDArray, y: NDArray
) -> list[list[str]]:
    problem = Problem.from_summing_matrix(S, variances)
    best = estimate(problem, y)
    answers: dict[str, Answer] = {"ExactMinTrace": _ours, "scipy lsqr, default": _least_squares}
    answers["MinTraceSparse"] = forecast_peers.of_arrays("MinTraceSparse")
    answers["MinTraceSparse, wls_struct"] = forecast_peers.of_arrays("MinTraceSparse", "wls_struct")
    if S.shape[0] <= MOST_DENSE:
        answers |= {"normal equations, dense": _normal_equations, "MinTrace": forecast_peers.of_arrays("MinTrace")}
    rows = []
    for called, answer in answers.items():
        start = time.perf_counter()
        try:
            x = answer(S, variances, y)
        except Exception as error:  # of others' code, told as its answer
            rows.append([name, kind, called, "", f"{type(error).__name__}: {error}"[:60], "", "", ""])
            continue
        seconds = time.perf_counter() - start
        (found,) = judge(problem, y, {called: x}).iter_rows(named=True)
        worst = abs((x - best.values) / best.std_errors)[-S.shape[1] :].max()
        numbers = [found["distance"], worst, _leaf_error(S, x, truth), found["disagreement"]]
        rows.append([name, kind, called, f"{seconds:.2f}", *("" if own is None else f"{own:.2g}" for own in numbers)])
    return rows


def _leaf_error(S: sparse.csr_array, x: NDArray, truth: NDArray) -> float:
    """Root mean square of what the bottom series are off."""
    return float(np.sqrt(np.mean((x - truth)[-S.shape[1] :] ** 2)))


def _non_negative(name: str, S: sparse.csr_array) -> list[list[str]]:
    """The best forecasts that are not negative, beside the peer's two ways to some."""
    rows = []
    for kind, variances, truth, y in _hierarchy(S):
        least = None
        answers: dict[str, Answer] = {
            "ExactMinTrace": lambda S, v, y: ExactMinTrace(covariance=v, nonnegative=True).fit_predict(S, y[:, None])[
                "mean"
            ][:, 0],
            "MinTraceSparse, qp=True": forecast_peers.of_arrays("MinTraceSparse", nonnegative=True, qp=True),
            "MinTraceSparse, qp=False": forecast_peers.of_arrays("MinTraceSparse", nonnegative=True, qp=False),
        }
        for called, answer in answers.items():
            start = time.perf_counter()
            x = answer(S, variances, y)
            seconds = time.perf_counter() - start
            squares = float(np.sum((x - y) ** 2 / variances))
            least = squares if least is None else least
            rows.append(
                [name, kind, called, f"{seconds:.2f}", f"{squares / least:.4f}", f"{_leaf_error(S, x, truth):.3g}"]
            )
    return rows


def _ours(S: sparse.csr_array, variances: NDArray, y: NDArray) -> NDArray:
    return ExactMinTrace(covariance=variances).fit_predict(S, y[:, None])["mean"][:, 0]


def _least_squares(S: sparse.csr_array, variances: NDArray, y: NDArray) -> NDArray:
    weights = 1 / np.sqrt(variances)
    return np.asarray(S @ lsqr(sparse.diags_array(weights) @ S, weights * y)[0])


def _normal_equations(S: sparse.csr_array, variances: NDArray, y: NDArray) -> NDArray:
    dense = S.toarray()
    weighed = dense.T / variances
    return dense @ np.linalg.solve(weighed @ dense, weighed @ y)
