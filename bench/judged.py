"""Others' answers judged by certificate: how far from the best estimate, in standard errors.

    python -m bench judged                   M5 and smaller ones, some minutes
    python -m bench judged --quick           small ones
    python -m bench judged --peers FOLDER    tables too, by systems whose repositories lie in FOLDER

Of hierarchicalforecast (extra ``forecasts``), and of general least squares as anybody writes them with numpy and scipy.
Systems that are not on PyPI are run from clones of their repositories, JordanAwan/SeaBlue in FOLDER/SeaBlue and so on,
with what these need installed; each that is not there is named. What they gave is in docs/comparison.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import lsqr

from bench import forecast_peers
from bench.forecast_peers import Answer
from bench.measuring import parser_of, print_table, timed
from bench.other_systems import SYSTEMS, cases_of
from bench.problems import m5, tree
from blue_solvers import certify, estimate
from blue_solvers.adapters import ExactMinTrace, judge
from constraint_builders import Problem
from constraint_builders.arrays import Float

SEED = 2024
MOST_DENSE = 3_000  # series above which dense matrices are not made
FIRST = ["hierarchy", "variances", "answer", "seconds"]


def main(argv: list[str]) -> None:
    """Print the tables."""
    parser = parser_of("judged", __doc__, "small hierarchies only")
    parser.add_argument("--peers", metavar="FOLDER", type=Path, help="where clones of the other systems lie")
    options = parser.parse_args(argv)
    hierarchies = {"tree of 1,000 leaves": tree(1_000)} | ({} if options.quick else {"M5": m5()})
    found = [own for name, S in hierarchies.items() for own in forecasts_of(name, S)]
    header = [*FIRST, "distance", "worst leaf", "leaf error", "disagreement"]
    print_table(header, (row for own in found for row in judged(own)))
    print("\nnot negative")
    header = [*FIRST, "weighted squares over the least", "leaf error"]
    print_table(header, (row for own in found for row in not_negative(own)))
    print()
    absent: list[str] = []
    print_table(["tables", "answer", "seconds", "distance", "disagreement"], of_systems(options.peers, absent))
    print("\n".join(absent))


@dataclass(frozen=True)
class Forecasts:
    """Forecasts `y` of a hierarchy, that err by known variances, and the truth."""

    name: str
    kind: str
    S: sparse.csr_array
    variances: Float
    truth: Float
    y: Float

    def answered(self, answers: dict[str, Answer]) -> Iterator[tuple[list[object], Float | None]]:
        """The row that each answer begins, and the answer; what others' code raises is told as its answer."""
        for called, answer in answers.items():
            start = [self.name, self.kind, called]
            try:
                x, seconds = timed(partial(answer, self.S, self.variances, self.y), time.perf_counter)
            except Exception as error:
                yield [*start, "", f"{type(error).__name__}: {error}"[:60]], None
            else:
                yield [*start, seconds], x

    def leaves(self, x: Float) -> Float:
        """The bottom series."""
        return x[-self.S.shape[1] :]

    def leaf_error(self, x: Float) -> float:
        """Root mean square of what the bottom series are off."""
        return float(np.sqrt(np.mean(self.leaves(x - self.truth) ** 2)))


def forecasts_of(name: str, S: sparse.csr_array) -> Iterator[Forecasts]:
    """Each kind of variances, with the truth and forecasts that err so."""
    leaves = np.asarray(S.sum(axis=1)).ravel()
    rng = np.random.default_rng(SEED)
    kinds = {"by leaves": leaves, "spread 1 to 10,000": leaves * 10 ** rng.uniform(-2, 2, leaves.size)}
    for kind, variances in kinds.items():
        truth = S @ rng.gamma(0.3, 4, S.shape[1])
        yield Forecasts(name, kind, S, variances, truth, truth + rng.normal(size=S.shape[0]) * np.sqrt(variances))


def judged(own: Forecasts) -> Iterator[list[object]]:
    """The distance of every answer from the best forecasts, and what it is off the truth."""
    problem = Problem.from_summing_matrix(own.S, own.variances)
    best = estimate(problem, own.y)
    answers: dict[str, Answer] = {
        "ExactMinTrace": _ours,
        "scipy lsqr, default": _least_squares,
        "MinTraceSparse": forecast_peers.of_arrays("MinTraceSparse"),
        "MinTraceSparse, wls_struct": forecast_peers.of_arrays("MinTraceSparse", "wls_struct"),
    }
    if own.S.shape[0] <= MOST_DENSE:
        answers["MinTrace"] = forecast_peers.of_arrays("MinTrace")
    for start, x in own.answered(answers):
        figures = []
        if x is not None:
            (found,) = judge(problem, own.y, {"it": x}).iter_rows(named=True)
            worst = abs(own.leaves((x - best.values) / best.std_errors)).max()
            figures = [found["distance"], worst, own.leaf_error(x), found["disagreement"]]
        yield [*start, *figures]


def not_negative(own: Forecasts) -> Iterator[list[object]]:
    """The best forecasts that are not negative, beside the peer's two ways to some."""
    answers: dict[str, Answer] = {"ExactMinTrace": partial(_ours, nonnegative=True)}
    for qp in (True, False):
        answers[f"MinTraceSparse, qp={qp}"] = forecast_peers.of_arrays("MinTraceSparse", nonnegative=True, qp=qp)
    least = None
    for start, x in own.answered(answers):
        if x is None:
            yield start
            continue
        squares = float(np.sum((x - own.y) ** 2 / own.variances))
        least = least or squares
        yield [*start, f"{squares / least:.4f}", own.leaf_error(x)]


def of_systems(folder: Path | None, absent: list[str]) -> Iterator[list[object]]:
    """The answers of systems for tables; those that are not there are told."""
    for repository in SYSTEMS:
        try:
            cases = cases_of(repository, folder)
        except Exception as error:  # of others' code, or of what it needs
            absent.append(f"not run: {repository}: {type(error).__name__}: {error}")
            continue
        for case in cases:
            proof = certify(case.problem, case.y, case.x)
            bound = proof.reason if proof.bound is None else proof.bound
            yield [case.task, case.system, case.seconds, bound, proof.violation]


def _ours(S: sparse.csr_array, variances: Float, y: Float, **options: bool) -> Float:
    return ExactMinTrace(covariance=variances, **options).fit_predict(S, y[:, None])["mean"][:, 0]


def _least_squares(S: sparse.csr_array, variances: Float, y: Float) -> Float:
    weights = 1 / np.sqrt(variances)
    return np.asarray(S @ lsqr(sparse.diags_array(weights) @ S, weights * y)[0])
