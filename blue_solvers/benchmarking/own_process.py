"""Costs of one solver on one problem from a process of its own."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import asdict

from blue_solvers.benchmarking.one_pair import Costs, figures
from blue_solvers.contract import Solver
from blue_solvers.solvers import SolverName
from constraint_builders import Problem

ELSEWHERE = "put its class at the top of a module that can be imported, or give alone=False"


def in_own_process(problem: Problem, solver: SolverName | Solver, columns: int, seed: int, timeout: float) -> Costs:
    """As `figures`, in a new process, which `timeout` ends.

    Raises
    ------
    TypeError
        If the solver cannot be sent there.
    """
    if type(solver).__module__ == "__main__":
        raise TypeError(f"solver {type(solver).__name__} is of __main__, which no other process has: {ELSEWHERE}")
    try:
        sent = pickle.dumps(sys.path) + pickle.dumps((problem, solver, columns, seed))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(f"solver {solver!r} cannot be pickled ({error}): {ELSEWHERE}") from None
    code = f"import sys, pickle; sys.path[:] = pickle.load(sys.stdin.buffer); from {__name__} import answer; answer()"
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            out, complaints = process.communicate(sent, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            return Costs(status=f"TimeoutError: no answer within {timeout:g} s")
        except BaseException:  # an interrupt: the process ends with it, and is seen to
            process.kill()
            process.wait()
            raise
    if process.returncode:
        said = complaints.decode(errors="replace").strip().splitlines()
        return Costs(status=f"ChildProcessError: {said[-1] if said else f'ended with code {process.returncode}'}")
    answered = json.loads(out.splitlines()[-1])
    if "unreadable" in answered:
        raise TypeError(
            f"solver {solver!r} is not known in a process of its own ({answered['unreadable']}): {ELSEWHERE}"
        )
    return Costs(**answered)


def answer() -> None:
    """Measure what comes in, and write the figures as the last line that goes out."""
    try:
        problem, solver, columns, seed = pickle.load(sys.stdin.buffer)
    except (AttributeError, ImportError) as error:
        answered: dict[str, object] = {"unreadable": str(error)}
    else:
        answered = asdict(figures(problem, solver, columns, seed, alone=True))
    sys.stdout.write(f"\n{json.dumps(answered)}\n")
