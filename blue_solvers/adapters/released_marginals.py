"""Marginals that were measured by cliques, as private-pgm and OpenDP have them, reconciled exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.operator import BlueOperator, blue
from blue_solvers.quantiles import takes_confidence_level
from constraint_builders import Problem, Schema, problem_of_sources
from constraint_builders.arrays import Float
from constraint_builders.description.reals import LARGEST, SMALLEST, real_array, real_number
from constraint_builders.estimability import refuse_unestimable

Clique = tuple[str, ...]


@dataclass(frozen=True)
class MeasuredMarginal:
    """A noisy marginal in the shape of private-pgm's ``LinearMeasurement``, without its libraries."""

    noisy_measurement: Float
    clique: Clique
    stddev: float


def problem_from_measurements(measurements: Sequence[Any], domain: Any) -> tuple[Problem, Float]:
    """A problem from private-pgm's measurements of marginals.

    Parameters
    ----------
    measurements : sequence of LinearMeasurement, or of anything alike
        With ``noisy_measurement``, ``clique`` and ``stddev``. A query that is another than the whole marginal is
        refused, but the first cells alone may have been measured, as by OpenDP's ``SelectPrefixQuery``. Several of one
        clique are combined.
    domain : Domain, or mapping of str to int or sequence of str
        private-pgm's, or the variables with their numbers of levels or labels.

    Returns
    -------
    problem : Problem
    y : ndarray, (n,)

    Raises
    ------
    ValueError
        If a clique has a variable that is none, a measurement has another size or shape than its marginal, a standard
        deviation is negative or NaN or has no square, or a query is none that is known here.
    """
    schema = Schema(dict(domain.config) if hasattr(domain, "config") else dict(domain))
    sources: list[tuple[dict[str, Float], dict[str, Float]]] = []  # the first measurement of every clique, the second
    often = Counter[frozenset[str]]()
    for number, own in enumerate(measurements, 1):
        clique = tuple(own.clique)
        strange = [name for name in clique if name not in schema.names]
        if strange:
            raise ValueError(
                f"measurement {number}: {strange[0]!r} is no variable, there are {', '.join(schema.names)}"
            )
        shape = tuple(len(schema.labels_of(name)) for name in clique)
        values = real_array(own.noisy_measurement, f"measurement {number} of {clique}")
        if values.ndim > 1 and values.shape != shape:
            raise ValueError(
                f"measurement {number} of {clique} must have shape {shape}, or be flat: got {values.shape}"
            )
        measured = _measured_cells(own, number, int(np.prod(shape)))
        if values.size != measured:
            raise ValueError(f"measurement {number} of {clique} must have {measured} values: got {values.size}")
        deviation = real_number(own.stddev, f"stddev of measurement {number} of {clique}")
        if not 0 <= deviation < np.inf:
            raise ValueError(f"measurement {number} of {clique}: stddev must be finite, 0 or more: got {deviation}")
        variance = deviation * deviation
        if deviation and not SMALLEST <= variance <= LARGEST:
            raise ValueError(
                f"measurement {number} of {clique}: no float holds the square of stddev {deviation:g} well"
            )
        whole, variances = np.full(int(np.prod(shape)), np.nan), np.full(int(np.prod(shape)), np.inf)
        whole[:measured], variances[:measured] = values.ravel(), variance
        table = " * ".join(clique) or "total"
        if often[frozenset(clique)] == len(sources):
            sources.append(({}, {}))
        for found, cells in zip(sources[often[frozenset(clique)]], (variances, whole), strict=True):
            found[table] = cells.reshape(shape)
        often[frozenset(clique)] += 1
    return problem_of_sources(schema, sources, undetermined="nan")


def measurements_of(problem: Problem, y: ArrayLike, make: Callable[..., Any] = MeasuredMarginal) -> list[Any]:
    """What was measured, less what its law adds on average, as a list that private-pgm takes.

    Parameters
    ----------
    problem : Problem
        Without a geography; its noise uncorrelated, of one variance in every table.
    y : array_like, (n,)
    make : callable
        Called with ``noisy_measurement``, ``clique`` and ``stddev``: ``mbi.LinearMeasurement``.

    Raises
    ------
    ValueError
        If the problem has a geography, no tables, recodes, correlated noise, structural zeros or equalities, or
        variances differ within a table.
    """
    _require_one_place(problem)
    for what in ("covariance", "zeros", "equalities"):
        if getattr(problem, what) is not None:
            raise ValueError(f"private-pgm's measurements cannot say {what}=: make the problem without, or use blue")
    y = real_array(y, "y")
    problem.check_vector(y)
    values, variances = (problem.observed.tables(own) for own in (problem.noise.centred(y), problem.variances))
    found = []
    for name, table in zip(problem.observed.names, problem.observed_tables, strict=True):
        strange = [factor for factor in table.factors if factor not in problem.domain.schema.names]
        if strange:
            raise ValueError(f"table {name!r}: private-pgm has no recodes, {strange[0]!r} is one")
        own = np.unique(variances[name])
        if own.size != 1:
            raise ValueError(f"table {name!r} has {own.size} variances: private-pgm has one for each measurement")
        if np.isfinite(own[0]):
            made = make(noisy_measurement=np.ravel(values[name]), clique=table.factors, stddev=float(np.sqrt(own[0])))
            found.append(made)
    return found


@dataclass
class ExactMarginals:
    """Any marginals by the best estimate, asked for as of OpenDP's ``ContingencyTable``.

    Parameters
    ----------
    problem : Problem
        Of tables of one place; all that it knows counts: structural zeros, equalities, low-rank correlated noise.
    y : ndarray, (n,)
    keys : mapping of str to sequence, optional
        What the levels of every variable are called; by default those of the schema.

    Raises
    ------
    ValueError
        If the problem has a geography or no tables.

    Examples
    --------
    >>> pair = MeasuredMarginal(np.array([5.0, 3, 1, 4]), ("sex", "age"), 1.0)
    >>> pair = pair, MeasuredMarginal(np.array([12.0]), (), 1.0)
    >>> table = ExactMarginals(*problem_from_measurements(pair, {"sex": 2, "age": 2}))
    >>> table.project(["sex"]).round(2), table.std(["sex"]).round(3)
    (array([7.6, 4.6]), array([1.095, 1.095]))
    """

    problem: Problem
    y: Float
    keys: Mapping[str, Sequence[Any]] | None = None
    _operators: dict[Clique, BlueOperator] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _require_one_place(self.problem)

    @classmethod
    def from_contingency_table(cls, table: Any) -> ExactMarginals:
        """Of the measurements that OpenDP's ``ContingencyTable`` holds, without its model.

        Parameters
        ----------
        table : ContingencyTable

        Returns
        -------
        ExactMarginals
        """
        keys = {name: list(series) for name, series in table.keys.items()}
        problem, y = problem_from_measurements(
            table.marginals.flatten(), {name: len(own) for name, own in keys.items()}
        )
        return cls(problem, y, keys)

    def project(self, attrs: str | Sequence[str]) -> Float:
        """The estimate of a marginal, an axis for each of `attrs`.

        Parameters
        ----------
        attrs : str or sequence of str

        Returns
        -------
        ndarray, (levels of the first, ...)
        """
        return self._of_cells(attrs, lambda P: [P.estimate(self.y, certify=False).values])[0]

    def std(self, attrs: str | Sequence[str]) -> Float:
        """Exact standard errors of a marginal's cells, an axis for each of `attrs`.

        Parameters
        ----------
        attrs : str or sequence of str

        Returns
        -------
        ndarray, (levels of the first, ...)
            In units of the counts.
        """
        return self._of_cells(attrs, lambda P: [np.sqrt(P.variances())])[0]

    @takes_confidence_level
    def interval(self, attrs: str | Sequence[str], confidence_level: float = 0.95) -> tuple[Float, Float]:
        """Lower and upper bounds of a marginal's cells, by exact variances and the normal law.

        Parameters
        ----------
        attrs : str or sequence of str
        confidence_level : float

        Returns
        -------
        lower, upper : ndarray, (levels of the first, ...)
            In units of the counts.
        """
        lower, upper = self._of_cells(attrs, lambda P: P.estimate(self.y, certify=False).interval(confidence_level))
        return lower, upper

    def _of_cells(self, attrs: str | Sequence[str], of: Callable[[BlueOperator], Sequence[Float]]) -> list[Float]:
        """What an operator of a marginal says of its cells, (m,), each as arrays of an axis for each of `attrs`."""
        clique = (attrs,) if isinstance(attrs, str) else tuple(attrs)
        names = self.problem.domain.schema.names
        strange = [name for name in clique if name not in names]
        if strange:
            raise ValueError(f"{strange[0]!r} is no variable: there are {', '.join(names)}")
        name = " * ".join(clique) or "total"
        if clique not in self._operators:
            wanted = self.problem.wanting(self.problem.names.tables([name]))
            refuse_unestimable(wanted)
            self._operators[clique] = blue(wanted)
        P = self._operators[clique]
        return [np.asarray(P.problem.desired.tables(own)[name]) for own in of(P)]


def _require_one_place(problem: Problem) -> None:
    if not problem.is_tabular or problem.places is not None:
        raise ValueError("such marginals are tables of one place, without a geography: this problem is another")


def _measured_cells(own: Any, number: int, size: int) -> int:
    """How many of a marginal's cells, the first ones, a measurement is of."""
    query = getattr(own, "query", None)
    whole = getattr(query, "__name__", "") == "datavector" or type(query).__name__ == "DatavectorQuery"
    if query is None or whole:
        return size
    length = getattr(query, "length", None)
    if type(query).__name__ == "SelectPrefixQuery" and isinstance(length, int):
        return min(length, size)
    raise ValueError(
        f"measurement {number} of {tuple(own.clique)} is of another query than the marginal itself: {query!r}"
    )
