"""Others' answers judged by certificate: how far from the best estimate, in standard errors.

    python -m bench judged            M5 and smaller ones, some minutes
    python -m bench judged --quick    small ones

Of hierarchicalforecast (extra ``forecasts``), and of general least squares as anybody writes them with numpy and scipy.
Systems that are not on PyPI are left out here; what they gave is in docs/others_judged.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import lsqr

from bench.hierarchies import m5, tree
from bench.measuring import print_table
from blue_solvers import estimate
from blue_solvers.adapters import ExactMinTrace, judge
from constraint_builders import Problem

SEED = 2024
MOST_DENSE = 3_000  # series above which dense matrices are not made
Answer = Callable[[sparse.csr_array, NDArray, NDArray], NDArray]


def main(argv: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench judged", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small hierarchies only")
    options = parser.parse_args(argv)
    hierarchies = {"tree of 1,000 leaves": tree(1_000)}
    if not options.quick:
        hierarchies["M5"] = m5()
    header = ["hierarchy", "variances", "answer", "seconds", "distance", "worst leaf", "disagreement"]
    print_table(header, [row for name, S in hierarchies.items() for row in _rows(name, S)])


def _rows(name: str, S: sparse.csr_array) -> list[list[str]]:
    leaves = np.asarray(S.sum(axis=1)).ravel()
    rng = np.random.default_rng(SEED)
    kinds = {"by leaves": leaves, "spread 1 to 10,000": leaves * 10 ** rng.uniform(-2, 2, leaves.size)}
    return [row for kind, variances in kinds.items() for row in _judged(name, kind, S, variances, rng)]


def _judged(name: str, kind: str, S: sparse.csr_array, variances: NDArray, rng: np.random.Generator) -> list[list[str]]:
    y = S @ rng.gamma(0.3, 4, S.shape[1]) + rng.normal(size=S.shape[0]) * np.sqrt(variances)
    problem = Problem.from_summing_matrix(S, variances)
    best = estimate(problem, y)
    answers: dict[str, Answer] = {"ExactMinTrace": _ours, "scipy lsqr, default": _least_squares}
    answers["MinTraceSparse"] = _peer("MinTraceSparse")
    if S.shape[0] <= MOST_DENSE:
        answers |= {"normal equations, dense": _normal_equations, "MinTrace": _peer("MinTrace")}
    rows = []
    for called, answer in answers.items():
        start = time.perf_counter()
        try:
            x = answer(S, variances, y)
        except Exception as error:  # of others' code, told as its answer
            rows.append([name, kind, called, "", f"{type(error).__name__}: {error}"[:60], "", ""])
            continue
        seconds = time.perf_counter() - start
        (found,) = judge(problem, y, {called: x}).iter_rows(named=True)
        worst = abs((x - best.values) / best.std_errors)[-S.shape[1] :].max()
        numbers = [found["distance"], worst, found["disagreement"]]
        rows.append([name, kind, called, f"{seconds:.2f}", *("" if own is None else f"{own:.1e}" for own in numbers)])
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


def _peer(called: str) -> Answer:
    def answer(S: sparse.csr_array, variances: NDArray, y: NDArray) -> NDArray:
        from hierarchicalforecast import methods

        own: Any = getattr(methods, called)("wls_var")
        given = sparse.csr_matrix(S, dtype=float) if called.endswith("Sparse") else S.toarray().astype(float)
        pattern = (
            [0.0, np.sqrt(2)] if called.endswith("Sparse") else [1.0, 1.0]
        )  # one takes variances, one mean squares
        residuals = np.sqrt(variances)[:, None] * np.array(pattern)
        sample = {"y_insample": residuals, "y_hat_insample": np.zeros_like(residuals)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = own.fit_predict(S=given, y_hat=y[:, None], **sample)
        return np.asarray(found["mean"]).ravel()

    return answer
