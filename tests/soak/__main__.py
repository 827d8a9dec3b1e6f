"""Invent problems by seeds, judge every solver, and print what to paste to see a disagreement again."""

import argparse
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from blue_solvers import SOLVERS, ConjugateGradient, Solver
from tests.soak.judge import Outcome, judged, without_numbers
from tests.soak.problems import SIZES, Posed, RefusedError, posed

EVERY: dict[str, Solver] = {
    **{name: solver() for name, solver in SOLVERS.items()},
    "cg, two passes": ConjugateGradient(preconditioner="two_pass"),
}


@dataclass
class Counts:
    """What was run, and what came of it."""

    problems: Counter[str] = field(default_factory=Counter)  # by size and how they are given
    runs: Counter[str] = field(default_factory=Counter)
    cells: Counter[str] = field(default_factory=Counter)  # runs by the number of cells
    heuristic: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=dict)
    disagreements: int = 0

    def report(self) -> str:
        """All of it, a line for each."""
        lines = [
            f"{self.problems.total():,} problems, {self.runs.total():,} solver runs, "
            f"{self.refusals.total():,} refusals, {self.disagreements} disagreements"
        ]
        for name in ("problems", "runs", "cells", "heuristic", "refusals"):
            lines += [f"{name:10} {count:7,}  {own}" for own, count in sorted(getattr(self, name).items())]
        lines += [f"worst      {off:.1e} standard errors off beyond rounding: {own}" for own, off in self.worst.items()]
        return "\n".join(lines)


def soak(
    seeds: Iterable[int], size: str | None = None, solvers: Mapping[str, Solver] = EVERY, seconds: float = float("inf")
) -> Counts:
    """Judge every solver on the problems of these seeds, until they or the seconds end."""
    counts, end = Counts(), time.monotonic() + seconds
    for seed in seeds:
        if time.monotonic() > end:
            break
        try:
            _judge_all(counts, seed, size, solvers)
        except KeyboardInterrupt:
            print(f"interrupted at seed {seed}")
            break
    return counts


def _judge_all(counts: Counts, seed: int, size: str | None, solvers: Mapping[str, Solver]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            for own in posed(seed, size):
                _judge(counts, seed, size, own, solvers)
        except RefusedError as refusal:
            counts.refusals[f"no problem: {without_numbers(refusal)}"] += 1


def _judge(counts: Counts, seed: int, size: str | None, own: Posed, solvers: Mapping[str, Solver]) -> None:
    cells = max(own.problem.observed.size, own.problem.desired.size)
    order = len(str(cells))
    counts.problems[f"{own.how}, {10 ** (order - 1):,} to {10**order:,} cells"] += 1
    for number, (name, solver) in enumerate(solvers.items()):
        fit = not number or (seed + number) % 4 == 0  # it takes as long as all else
        try:
            outcome = judged(own, solver, fit)
        except Exception as error:
            outcome = Outcome(wrong=[f"{type(error).__name__}: {error}"])
        if outcome.refused:
            counts.refusals[f"{name}: {outcome.refused}"] += 1
        else:
            counts.runs[name] += 1
            counts.cells[f"{10 ** (order - 1):,} to {10**order:,}"] += 1
            counts.heuristic[name] += not outcome.exact
            counts.worst[name] = max(counts.worst.get(name, 0.0), outcome.off)
        for wrong in outcome.wrong:
            counts.disagreements += 1
            again = f"scripts/soak --no-install --seed {seed} --problems 1" + (f" --size {size}" if size else "")
            print(f"{name}, {own.how}, {cells} cells: {wrong}\n    {again}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run it; 1 if anything disagrees."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first; by default one of the time")
    parser.add_argument("--problems", type=int, default=10**9, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--size", choices=list(SIZES), help="by default mostly small ones")
    parser.add_argument("--solver", choices=list(EVERY), action="append", help="by default all of them")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = given.seed if given.seed is not None else int(time.time())
    print(f"seeds from {seed}", flush=True)
    solvers = {name: EVERY[name] for name in given.solver or EVERY}
    counts = soak(range(seed, seed + given.problems), given.size, solvers, given.seconds)
    print(counts.report())
    return int(counts.disagreements > 0)


if __name__ == "__main__":
    sys.exit(main())
