"""Any solvers on any problems, as a frame: one row for each pair."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from blue_solvers.about import logger
from blue_solvers.benchmarking.one_pair import Costs, figures
from blue_solvers.benchmarking.own_process import in_own_process
from blue_solvers.benchmarking.records import append_record, fingerprint, read_records
from blue_solvers.contract import Solver
from blue_solvers.solvers import SOLVERS, SolverName
from constraint_builders import Problem
from constraint_builders.extras import needing

if TYPE_CHECKING:
    import polars

LONGEST = 31_536_000  # seconds, a year
COLUMNS_OF_A_ROW = ("problem", "solver", "cells_in", "cells_out", *(field.name for field in fields(Costs)))


def benchmark(
    problems: Mapping[str, Problem],
    solvers: Sequence[SolverName | Solver] | Mapping[str, SolverName | Solver] | None = None,
    *,
    columns: int = 64,
    resume: str | os.PathLike[str] | None = None,
    alone: bool = True,
    timeout: float = 300.0,
    seed: int = 0,
) -> polars.DataFrame:
    """Measure solvers on problems; needs the extra ``frames``.

    Parameters
    ----------
    problems : mapping of str to Problem
        By the names that rows give them.
    solvers : sequence or mapping of str, of names or configured solvers, optional
        Anybody's subclass of `Solver` too; by default every one that is enrolled, but ``"auto"``.
    columns : int
        How many columns are applied at once.
    resume : path, optional
        A file that keeps every pair's figures as soon as there are any: run again with it, a benchmark goes on where it
        was. A pair whose problem, solver, `columns`, `seed` or `alone` is another than it was is measured again.
    alone : bool
        Whether every pair has a process of its own, so that its peak memory is its own and `timeout` ends it. Solvers
        must then be picklable, their classes at the top of a module that can be imported.
    timeout : float
        Seconds for one pair.
    seed : int
        Of the measurements: the problem's truth, if it has one, and noise of its law.

    Returns
    -------
    polars.DataFrame
        A row for each pair, with columns ``problem``, ``solver``, ``cells_in``, ``cells_out``; ``status`` (``"done"``,
        or why there are no figures); ``by``, ``exact``; ``prepare``, ``apply``, ``many_columns``, ``variances`` and
        ``copy``, in seconds; ``memory``, in bytes, null unless `alone`; ``iterations``; ``error``, proved, in standard
        errors, and ``proof``.

    Raises
    ------
    ValueError
        If there is no solver of a name, a number is out of range, or the file of `resume` holds something else.
    TypeError
        If a problem is no `Problem`, or a solver neither a name nor a `Solver`, or cannot be pickled.

    Examples
    --------
    >>> from constraint_builders import gallery
    >>> frame = benchmark({"toy": gallery.toy()}, ["dense", "sea_blue"], alone=False)
    >>> frame.select("problem", "solver", "status").rows()
    [('toy', 'dense', 'done'), ('toy', 'sea_blue', 'done')]
    """
    with needing("a benchmark's frame needs polars", "frames"):
        import polars
    named = _named_solvers(solvers)
    _check(problems, columns, timeout)
    kept = {} if resume is None else read_records(resume)
    rows: list[dict[str, Any]] = []
    for name, problem in problems.items():
        for label, solver in named.items():
            key = name, label, "" if resume is None else fingerprint(problem, solver, columns, seed, alone)
            if key not in kept:
                logger.info("benchmark: %s by %s", name, label)
                kept[key] = (in_own_process if alone else _here)(problem, solver, columns, seed, timeout)
                if resume is not None:
                    append_record(resume, key, kept[key])
            sizes = {"cells_in": problem.observed.size, "cells_out": problem.desired.size}
            rows.append({"problem": name, "solver": label, **sizes, **asdict(kept[key])})
    kinds = {str: polars.String, float: polars.Float64, int: polars.Int64, bool: polars.Boolean}
    text, whole = ("problem", "solver", "status", "by", "proof"), ("cells_in", "cells_out", "memory", "iterations")
    types = {name: str if name in text else int if name in whole else float for name in COLUMNS_OF_A_ROW}
    types["exact"] = bool
    return polars.DataFrame(rows, schema={name: kinds[kind] for name, kind in types.items()})


def _named_solvers(
    solvers: Sequence[SolverName | Solver] | Mapping[str, SolverName | Solver] | None,
) -> dict[str, SolverName | Solver]:
    """Solvers by the names that rows give them."""
    if solvers is None:
        return {name: solver() for name, solver in SOLVERS.items() if name != "auto"}
    if isinstance(solvers, str):
        raise TypeError(f"solvers must be several: give [{solvers!r}]")
    if isinstance(solvers, Mapping):
        named = dict(solvers)
    else:
        named = {own if isinstance(own, str) else repr(own): own for own in solvers}
    for own in named.values():
        if isinstance(own, str) and own not in SOLVERS:
            raise ValueError(f"no solver {own!r}: there are {', '.join(map(repr, SOLVERS))}")
        if not isinstance(own, str | Solver):
            raise TypeError(f"a solver is a name or a configured Solver: got {own!r}")
    return named


def _check(problems: Mapping[str, Problem], columns: int, timeout: float) -> None:
    if not isinstance(problems, Mapping):
        raise TypeError("problems must have names: give {'mine': problem}")
    for name, problem in problems.items():
        if not isinstance(problem, Problem):
            raise TypeError(f"problem {name!r} is no Problem: got {type(problem).__name__}")
    if columns < 1:
        raise ValueError(f"columns must be 1 or more: got {columns}")
    if not 0 < timeout <= LONGEST:
        raise ValueError(f"timeout must be above 0 seconds, and at most {LONGEST:,}: got {timeout}")


def _here(problem: Problem, solver: SolverName | Solver, columns: int, seed: int, timeout: float) -> Costs:
    return figures(problem, solver, columns, seed, alone=False)
