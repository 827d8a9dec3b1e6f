"""The estimation problem: what was measured and how precisely, what is wanted, what is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from constraint_builders.description.labelled import Dimension, aligned, node_dimension, row_labels
from constraint_builders.description.layout import Float, Layout
from constraint_builders.description.linear import read_matrix, read_vector
from constraint_builders.description.low_rank import LowRankPlusDiagonal
from constraint_builders.description.reals import real_array
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table, parse_table
from constraint_builders.description.variances import checked_variances
from constraint_builders.description.zeros import StructuralZeros
from constraint_builders.measurements import Measurements, factors_cross
from constraint_builders.relations.equations import ConsistencyEquations
from constraint_builders.relations.marginals import Margin, refines
from constraint_builders.relations.spine_constraints import SpineConsistency
from constraint_builders.relations.spine_sums import SpineSums
from constraint_builders.relations.spine_tables import (
    read_desired,
    read_observed,
    spine_layout,
    table_dimensions,
    table_layout,
    undetermined,
)
from constraint_builders.relations.summing import SummingMatrix

MOST_ELIMINATED = 20_000  # detailed cells, to find out what several tables determine together

INSTEAD = "leave its table out of desired= or choose undetermined= 'nan', NaN there and estimates elsewhere"
MOST_NAMED = 5  # cells of one table in a message
ASSUMED_VARIANCE = 1.0  # of cells that nothing determines: any is right
CHANGE = 1e-9  # relative: what changes by less with the cells that nothing determines does not rest on them
CONTRADICTION_TOLERANCE = 1e-9  # relative to the largest exact value: rounding of sums of doubles stays well below


@dataclass(frozen=True)
class TreeOfNodes:
    """A problem given by a summing matrix, as one over a spine.

    Attributes
    ----------
    problem : Problem
        With one table, the total, at every depth; besides the nodes it may hold leaves that were not measured.
    places : ndarray of int, (n,)
        Where every node sits in its layouts.
    """

    problem: Problem
    places: NDArray[np.intp]


class Problem(Measurements):
    """Noisy tables over one schema, and the tables that are wanted from them.

    Values follow the order of the variables in the name that they are given under, in and out: the array of
    ``"vote * sex"`` has the votes along its first axis, wherever the schema has them, and its cells are in C order in
    every vector, covariance and equality over a layout. ``"sex * vote"`` is the same table, its array the transpose.
    Frames of pandas and arrays of xarray are laid out by their labels, not by position.

    Parameters
    ----------
    schema : Schema
    observed : mapping of str to float or array_like
        The measured tables, with the variance of their noise: a number, or an array of the table's shape. 0 means known
        exactly, ``inf`` not measured.
    desired : sequence of str or "all", optional
        The wanted tables, by default the observed ones. ``"all"``: every plain marginal of some observed table, and the
        observed tables themselves.
    covariance : sparse array, ndarray, LinearOperator or LowRankPlusDiagonal, optional
        Covariance of the noise over the observed layout, (n, n), instead of the diagonal; the variances in `observed`
        must then be None or agree with its diagonal. An operator may have a method ``solve(V)``, its inverse times
        (n, K): some solvers need it.
    zeros : mapping of name to ndarray of bool, optional
        Structural zeros: cells of any table that are known to be empty. They hold in every finer cell and in every
        geounit below.
    equalities : (sparse array or array_like (k, n), array_like (k,)), optional
        Linear combinations of observed cells that are known exactly, such as a state's total over several geounits.
    noise : {"gaussian", "discrete_gaussian", "laplace", "discrete_laplace"}
        The law of the noise.
    truth : mapping or array_like, optional
        True values over the observed layout, of a test problem.
    undetermined : {"error", "nan"}
        What to do about desired cells that depend on cells which were not measured and that nothing else determines:
        refuse the problem, or estimate everything else and give NaN for them.

    Attributes
    ----------
    schema : Schema or None
    spine : Spine or None
        Geography; a problem without one describes a single geographic unit.
    observed, desired : Layout
        Where the tables sit in the vectors that operators take and return.
    observed_tables, desired_tables : tuple of Table
        What they are; empty for `from_matrix`.
    variances : ndarray, (n,)
        Variance of the noise in every observed cell.
    covariance : csr_array, LinearOperator or None
        None when the noise is uncorrelated.
    b : ndarray, (m,) or None
        Right-hand side of `from_matrix`; None means zero.
    noise : str
    truth : ndarray, (n,) or None
    undetermined : ndarray of bool, (m,), or None
        Desired cells that are NaN because nothing determines them; `why_undetermined` says why. None where there are
        none.
    assumed : ndarray of int
        Observed cells whose measurements would determine those.

    Raises
    ------
    ValueError
        For an unknown, repeated or unestimable table, a variance that is negative, NaN or of the wrong shape, a
        covariance that is not symmetric positive definite.

    Examples
    --------
    >>> schema = Schema({"sex": 2, "age": 3})
    >>> problem = Problem(schema, {"total": 0.0, "sex": 1.0, "age": 1.0}, desired=["age", "total"])
    >>> problem
    Problem(3 observed tables, 6 cells; 2 desired tables, 4 cells)
    >>> problem.constraint_matrix().toarray()
    array([[-1.,  1.,  1.,  0.,  0.,  0.],
           [-1.,  0.,  0.,  1.,  1.,  1.]])
    """

    desired: Layout
    desired_tables: tuple[Table, ...] = ()
    desired_levels: tuple[int, ...] = ()
    truth: Float | None = None
    undetermined: NDArray[np.bool_] | None = None
    assumed: NDArray[np.intp] = np.zeros(0, dtype=np.intp)

    def __init__(
        self,
        schema: Schema,
        observed: Mapping[str, Any],
        desired: Mapping[str, Any] | Sequence[str] | str | None = None,
        *,
        spine: Spine | None = None,
        covariance: Any = None,
        zeros: Mapping[Any, Any] | None = None,
        equalities: tuple[Any, ArrayLike] | None = None,
        noise: str = "gaussian",
        truth: Any = None,
        undetermined: Literal["error", "nan"] = "error",
    ) -> None:
        if undetermined not in ("error", "nan"):
            raise ValueError(f"undetermined must be 'error' or 'nan': got {undetermined!r}")
        if not isinstance(schema, Schema):
            raise TypeError(
                "a problem begins with a Schema, such as Schema({'sex': ['female', 'male']}): "
                f"got {type(schema).__name__}"
            )
        if not isinstance(observed, Mapping):
            raise TypeError(
                "observed tables are given with the variance of their noise, as in {'sex': 2.0}, 0 where exact: "
                f"got {type(observed).__name__}"
            )
        if not observed:
            raise ValueError("a problem needs at least one observed table: got none")
        self.schema = schema
        self.spine = spine
        if spine is None:
            self._read_tables(schema, observed, covariance, noise)
        else:
            self._read_spine_tables(schema, spine, observed, covariance, noise)
        self.zeros = None if zeros is None else self._read_zeros(zeros)
        self.equalities = None if equalities is None else self._read_equalities(*equalities)
        if undetermined == "nan" and self.unmeasured.any():
            self.assumed = self._equations.open_elimination.free_columns
        determined = self.determined if self.assumed.size else self
        determined._read_desired(desired)
        determined._refuse_undetermined_cells()
        if self.assumed.size:
            self.desired, self.desired_tables = determined.desired, determined.desired_tables
            self.desired_levels = determined.desired_levels
            self.undetermined = self._find_undetermined()
        self.truth = None if truth is None else self._read_truth(truth)

    @classmethod
    def from_matrix(cls, A: Any, covariance: Any, b: ArrayLike | None = None) -> Problem:
        """A problem given by anybody's linear equalities A x = b.

        Parameters
        ----------
        A : sparse array or array_like, (m, n)
            The constraints, of any rank.
        covariance : array_like (n,), sparse array or ndarray (n, n), or LinearOperator
            Variances, or covariance, of the noise.
        b : array_like, (m,), optional
            Right-hand side, by default zero.

        Returns
        -------
        Problem
            With one table ``"x"`` of shape (n,), observed and desired.

        Raises
        ------
        ValueError
            If a shape does not fit, a value is not finite, or the covariance is not symmetric positive definite.
        """
        problem = cls.__new__(cls)
        problem.matrix = read_matrix(A)
        rows, size = problem.matrix.shape
        problem.b = None if b is None else read_vector(b, rows, "b")
        problem._read_nodes(size, covariance, "covariance")
        return problem

    @classmethod
    def from_summing_matrix(cls, S: Any, variances: ArrayLike | None = None, *, covariance: Any = None) -> Problem:
        """A problem whose values are sums of leaves, x = S leaves: time series in a hierarchy, accounts that balance.

        Nodes that form a tree are solved in two passes, crossed hierarchies through sparse equations between nodes.

        Parameters
        ----------
        S : sparse array, array_like or data frame, (n, leaves)
            Which leaves every node sums, with any weights. A leaf is measured only where a row says so. The index of a
            frame names the nodes: variances and values that have an index are then laid out by it.
        variances : array_like, () or (n,)
            Variance of the noise in every node. 0 means known exactly, ``inf`` not measured.
        covariance : sparse array, ndarray, LinearOperator or LowRankPlusDiagonal, (n, n)
            Instead of the variances, of noise that is correlated between nodes, in the order of the rows of S.

        Returns
        -------
        Problem
            With one table ``"x"`` of shape (n,), observed and desired, in the order of the rows of S.

        Raises
        ------
        ValueError
            If a shape does not fit, a value is not finite, a variance is negative or NaN, neither variances nor a
            covariance or both are given, labels of nodes are repeated or differ, or nothing measured determines a node.

        References
        ----------
        S. Wickramasuriya, G. Athanasopoulos and R. Hyndman (2019), "Optimal forecast reconciliation for hierarchical
        and grouped time series through trace minimization", JASA 114: the same estimate, as (S' W S)^-1 S' W.

        Examples
        --------
        >>> problem = Problem.from_summing_matrix([[1, 1], [1, 0], [0, 1]], variances=[1.0, 1.0, 1.0])
        >>> problem.constraint_matrix().toarray()
        array([[ 1., -1., -1.]])
        """
        problem = cls.__new__(cls)
        labels, S = row_labels(S, "S")
        problem.summing = SummingMatrix(S)
        size = problem.summing.size
        if (variances is None) == (covariance is None):
            raise ValueError("give variances, one for every row of S, or covariance=, the noise of all rows: not both")
        if covariance is not None:
            if np.shape(covariance) != (size, size):
                raise ValueError(f"covariance must have shape ({size}, {size}): got {np.shape(covariance)}")
            problem._read_nodes(size, covariance, "covariance", labels)
            return problem
        given = aligned(variances, lambda: (node_dimension(size, labels),), "variances")
        if np.shape(given) not in ((), (size,)):
            raise ValueError(
                f"variances must be a number or have shape ({size},), one for every row of S: got {np.shape(given)}"
            )
        problem._read_nodes(size, given, "variances", labels)
        return problem

    def _read_nodes(self, size: int, covariance: Any, what: str, labels: tuple[str, ...] | None = None) -> None:
        """The one table "x", and its noise."""
        self.observed = self.desired = Layout(["x"], [(size,)], dimensions=partial(_nodes, size, labels))
        if sparse.issparse(covariance) or isinstance(covariance, LinearOperator) or np.ndim(covariance) == 2:
            self._set_noise(np.full(size, np.nan), covariance, "gaussian")
        elif np.shape(covariance) in ((), (size,)):
            given = checked_variances(covariance, what)
            self._set_noise(np.array(np.broadcast_to(given, (size,))), None, "gaussian")
        else:
            raise ValueError(
                f"{what} must be a number or have shape ({size},) or ({size}, {size}): got {np.shape(covariance)}"
            )
        self._refuse_undetermined_cells()

    def _read_tables(self, schema: Schema, observed: Mapping, covariance: Any, noise: str) -> None:
        self.observed_tables = tuple(parse_table(schema, name) for name in observed)
        self.observed = table_layout(schema, list(observed))
        variances = [
            _table_variances(schema, name, table, value)
            for (name, value), table in zip(observed.items(), self.observed_tables, strict=True)
        ]
        self._set_noise(np.concatenate(variances), covariance, noise)

    def _read_spine_tables(self, schema: Schema, spine: Spine, observed: Mapping, covariance: Any, noise: str) -> None:
        names, variances = read_observed(schema, spine, observed)
        self.observed_tables = tuple(parse_table(schema, table) for _, table in names)
        self.observed_levels = tuple(spine.level_index(level) for level, _ in names)
        self.observed = spine_layout(schema, spine, names)
        self._set_noise(np.concatenate(variances, axis=None), covariance, noise)

    def _read_desired(self, desired: Any) -> None:
        schema, spine = self.schema, self.spine
        assert schema is not None
        if spine is None:
            names = self._desired_names(desired)
            self.desired_tables = tuple(parse_table(schema, name) for name in names)
            self.desired = table_layout(schema, names)
        else:
            own = [(str(name[0]), str(name[1])) for name in self.observed.names if isinstance(name, tuple)]
            wanted = own if desired is None else read_desired(schema, spine, desired, self.observed_tables, self._lacks)
            self.desired_tables = tuple(parse_table(schema, table) for _, table in wanted)
            self.desired_levels = tuple(spine.level_index(level) for level, _ in wanted)
            self.desired = spine_layout(schema, spine, wanted)
        self._refuse_unestimable_tables()

    @cached_property
    def determined(self) -> Problem:
        """The same problem, had the cells of `assumed` been measured, with any precision.

        Each of them is new information, so no measurement contradicts it: what the others determine is estimated as
        without them.
        """
        copy = self._without_derived()
        variances = np.array(self.variances)
        variances[self.assumed] = ASSUMED_VARIANCE
        if isinstance(self.covariance, LowRankPlusDiagonal):
            diagonal = np.array(self.covariance.diagonal)
            diagonal[self.assumed] = ASSUMED_VARIANCE
            copy.covariance = LowRankPlusDiagonal(diagonal, self.covariance.factor)
        copy.variances = variances
        copy.variances.flags.writeable = False
        copy.assumed, copy.undetermined = np.zeros(0, dtype=np.intp), None
        return copy

    def _find_undetermined(self) -> NDArray[np.bool_] | None:
        """Desired cells that change with what is assumed of the cells of `assumed`; None without any."""
        elimination, n = self._equations.open_elimination, self.observed.size
        change = np.zeros(n)
        change[self.assumed] = np.random.default_rng(0).uniform(1, 2, self.assumed.size)
        change[elimination.solved_columns] = -(elimination.solved[:, :n] @ change)
        size = np.zeros(n)
        size[self.assumed] = 2.0
        size[elimination.solved_columns] = abs(elimination.solved[:, :n]) @ size
        moved = abs(self.determined.tabulate(change[:, None])[:, 0])
        largest = abs(self.determined.tabulate(size[:, None])[:, 0])
        found = moved > CHANGE * np.maximum(largest, 1)
        return found if found.any() else None

    def why_undetermined(self, position: int) -> str:
        """Why nothing determines a cell of the desired layout, in one line that names it."""
        name, cell = self.desired.locate(position)
        own = "it rests on cells that were not measured"
        try:
            index = self.observed.index(name)
        except ValueError:
            pass
        else:
            own = "it was not measured" if self._is_unmeasured(index, name, cell) else own
        return f"{self.desired.describe(position)}: {own}, and no other measurements determine it"

    def _is_unmeasured(self, index: int, name: Any, cell: tuple[int, ...]) -> bool:
        place = np.ravel_multi_index(cell, self.desired.shape(name)) if cell else 0
        return bool(self.observed.turned(self.unmeasured, name)[place])

    def _refuse_unestimable_tables(self) -> None:
        """Refuse, by name, desired tables that nothing observed determines."""
        if self.spine is None:
            self.tabulation  # noqa: B018
            return
        assert self.schema is not None
        for level, table in zip(self.desired_levels, self.desired_tables, strict=True):
            crossing = factors_cross(self.schema, [*self.observed_tables, table])
            geounit = None if crossing else self._lacks(level, table)
            if geounit is not None and (self.zeros is None or not self._is_small):
                where = f"{self.spine.levels[level]} {self.spine.geocodes[geounit]!r}"
                raise ValueError(
                    f"table {table.name!r} is not estimable at {where}: no measurement there, below or above "
                    "determines it, and equalities between observed cells do not count towards it"
                )

    def _lacks(self, level: int, table: Table) -> int | None:
        """A geounit of a level where the measurements do not determine a table, or None.

        Where recodes cross, only tables that one table of the level can be summed to count as determined.
        """
        assert self.schema is not None
        assert self.spine is not None
        members = self.spine.members[level]
        if not factors_cross(self.schema, [*self.observed_tables, table]):
            return undetermined(self._components_with(table.factors), table, members)
        fine = any(
            own == level and np.isfinite(typical).all() and refines(self.schema, observed, table)
            for own, observed, typical in zip(
                self.observed_levels, self.observed_tables, self.typical_variances(), strict=True
            )
        )
        return None if fine else int(members[0])

    def _components_with(self, factors: Sequence[str]) -> SpineConsistency:
        """Components of the measurements that suit other factors too."""
        own = {factor for table in self.observed_tables for factor in table.factors}
        structure = self._equations.structure
        if not own.issuperset(factors):
            assert self.schema is not None
            assert self.spine is not None
            levels, tables, variances = self.observed_levels, self.observed_tables, self.typical_variances()
            structure = SpineConsistency(self.schema, self.spine, levels, tables, variances, factors)
        assert isinstance(structure, SpineConsistency)
        return structure

    def _desired_names(self, desired: Sequence[str] | str | None) -> list[str]:
        assert self.schema is not None
        if desired is None:
            return [str(name) for name in self.observed.names]
        if isinstance(desired, str):
            if desired != "all":
                raise ValueError(f"desired must be a list of tables, or 'all': got {desired!r}")
            return self._all_names()
        names = list(desired)
        if not names:
            raise ValueError("no table is desired: name at least one, or leave it out for the observed ones")
        return names

    def _all_names(self) -> list[str]:
        """Every plain marginal of some measured table in order of size, and the observed tables."""
        assert self.schema is not None
        plain: dict[str, Table] = {}
        for table, measured in zip(self.observed_tables, self.measured_tables, strict=True):
            plain.setdefault(table.name, table)
            kept = [f for f in table.factors if f in self.schema.names] if measured else []
            for chosen in product((False, True), repeat=len(kept)):
                name = " * ".join(f for f, keep in zip(kept, chosen, strict=True) if keep) or "total"
                marginal = parse_table(self.schema, name)
                plain.setdefault(marginal.name, marginal)
        return sorted(plain, key=lambda name: (len(plain[name].axes), plain[name].axes, name))

    @cached_property
    def _sources(self) -> tuple[int | None, ...]:
        """For every desired table the smallest observed table that it can be summed from, if there is one."""
        if self.schema is None:
            return (0,)
        order = sorted(np.flatnonzero(self.measured_tables).tolist(), key=lambda i: self.observed_tables[i].size)
        by_name = {self.observed_tables[i].name: i for i in order}
        holders: dict[int, list[int]] = {}
        for index in order:
            for axis in self.observed_tables[index].axes:
                holders.setdefault(axis, []).append(index)
        found: list[int | None] = []
        for table in self.desired_tables:
            source = by_name.get(table.name)
            if source is None:
                kept = [axis for axis in table.axes if self.schema.shape[axis] > 1]
                candidates = min((holders.get(axis, []) for axis in kept), key=len, default=order)
                source = next((i for i in candidates if refines(self.schema, self.observed_tables[i], table)), None)
            found.append(source)
        return tuple(found)

    def constraint_matrix(self, rows: str = "independent") -> sparse.csr_array:
        """The self-consistency constraints: A x = b for every possible truth.

        Parameters
        ----------
        rows : {"independent", "all"}
            As many rows as the rank, or also one for every cell of a table next above another: redundant, and better
            conditioned for iterative solvers. The rows of `from_matrix` are given back as they are by ``"all"``.

        Returns
        -------
        csr_array, (rows, n)
            Entries in {-1, 0, 1} for plain marginals. Columns of cells that were not measured are zero.

        Raises
        ------
        ValueError
            If `rows` is something else.
        MemoryError
            If the matrix would not fit.
        """
        return self.equations(rows)[0]

    def equations(self, rows: str = "independent") -> tuple[sparse.csr_array, Float]:
        """The constraint matrix A of `constraint_matrix`, and its right-hand side b, (rows,)."""
        if rows not in ("independent", "all"):
            raise ValueError(f"rows must be 'independent' or 'all': got {rows!r}")
        return self._equations.matrix(rows)

    @cached_property
    def _equations(self) -> ConsistencyEquations:
        return ConsistencyEquations(self)

    @property
    def is_structural(self) -> bool:
        """Whether the equations are those of self-consistency alone, between tables measured whole."""
        return self._equations.is_structural

    @property
    def completion(self) -> tuple[sparse.csr_array, Float] | None:
        """How cells that were not measured follow from the others: x = C x + c; None if no such cell is needed.

        C is (n, n), the identity on measured cells.
        """
        return self._equations.completion

    def _refuse_undetermined_cells(self) -> None:
        """Refuse desired tables that depend on cells which neither were measured nor follow from the others.

        Arbitrary values in the cells that nothing determines show which cells change with them. A desired cell may
        still be determined where cells that it is summed from are not.
        """
        if self.spine is not None and (self._rests_on_several_levels() or self._rests_on_zeros()):
            self.tabulation  # noqa: B018  refuses, by name, what rests on undetermined cells
        if self.spine is not None or not self._equations.partly_measured or self.tree is not None:
            return
        elimination = self._equations.elimination("independent")
        arbitrary = np.zeros(self.observed.size)
        arbitrary[elimination.free_columns] = np.random.default_rng(0).uniform(1, 2, elimination.free_columns.size)
        change = arbitrary.copy()
        change[elimination.solved_columns] = -(elimination.solved[:, : self.observed.size] @ arbitrary)
        moved = abs(self.tabulate(change[:, None])[:, 0]) > 1e-9 * self.tabulate(abs(change)[:, None])[:, 0]
        if moved.any():
            position = int(np.flatnonzero(moved)[0])
            name, cell = self.desired.locate(position)
            where = f"its cell {self.desired.labels(position)}" if cell else "it"
            raise ValueError(
                f"table {name!r} is not estimable: {where} rests on cells that were not measured and that nothing "
                f"observed determines; {INSTEAD}"
            )

    def _rests_on_several_levels(self) -> bool:
        """Whether only elimination can tell which desired cells are determined."""
        assert self.schema is not None
        lacking = zip(self.desired_levels, self.desired_tables, strict=True)
        return self._equations.partly_measured or (
            factors_cross(self.schema, [*self.observed_tables, *self.desired_tables])
            and any(self._lacks(*entry) is not None for entry in lacking)
        )

    def _rests_on_zeros(self) -> bool:
        """Whether cells known to be empty determine what measurements alone do not."""
        lacking = zip(self.desired_levels, self.desired_tables, strict=True)
        return self.zeros is not None and self._is_small and any(self._lacks(*entry) is not None for entry in lacking)

    @property
    def _is_small(self) -> bool:
        """Whether detailed cells can be eliminated to find out what several tables determine together."""
        assert self.schema is not None
        leaves = 1 if self.spine is None else int((self.spine.child_counts == 0).sum())
        return leaves * prod(self.schema.shape) <= MOST_ELIMINATED

    @property
    def rank(self) -> int:
        """Rank of the constraint matrix."""
        return self._equations.rank

    def marginal_matrix(self) -> sparse.csr_array:
        """The 0/1 matrix (n, detailed cells) from the detailed histogram to all observed cells.

        With a spine its columns are the detailed cells of every geounit without children, in the spine's order.

        Raises
        ------
        ValueError
            For a problem made `from_matrix`, which has no detailed histogram.
        MemoryError
            If it would not fit, with the bytes that it needs.
        """
        if self.schema is None:
            raise ValueError("a problem made from a matrix has no detailed table: there is no marginal matrix")
        return self._equations.marginal_matrix()

    @cached_property
    def _margins(self) -> tuple[tuple[slice, slice, Margin | None], ...]:
        """For every desired table: its place, its source's place, and the margin between them (None: the same)."""
        assert self.schema is not None
        found = []
        for index, (table, source) in enumerate(zip(self.desired_tables, self._sources, strict=True)):
            assert source is not None
            fine = self.observed_tables[source]
            margin = None if fine == table else Margin(self.schema, fine, table)
            found.append((self.desired.block(index), self.observed.block(source), margin))
        return tuple(found)

    @cached_property
    def tabulation(self) -> sparse.csr_array | None:
        """Desired cells in terms of measured ones, (m, n), for consistent values.

        None where every desired table is summed from one observed table.
        """
        if self.spine is not None:
            return self._sums(self.spine, self.observed_levels).matrix(
                self.desired, self.desired_levels, self.desired_tables
            )
        if all(source is not None for source in self._sources):
            return None
        assert self.schema is not None
        lost = self.desired.names[self._sources.index(None)]
        if not self._is_small:
            raise ValueError(
                f"table {lost!r} is not estimable: no observed table contains it, and its detailed "
                f"cells are more than {MOST_ELIMINATED:,}, too many to find out whether several do together"
            )
        alone = Spine([-1], ["all"])
        try:
            found = self._sums(alone, (0,) * len(self.observed_tables)).matrix(
                spine_layout(self.schema, alone, [("all", str(name)) for name in self.desired.names]),
                (0,) * len(self.desired_tables),
                self.desired_tables,
            )
        except ValueError:
            raise ValueError(
                f"table {lost!r} is not estimable: no observed table contains it, nor do several together"
            ) from None
        return found

    def _sums(self, spine: Spine, levels: tuple[int, ...]) -> SpineSums:
        assert self.schema is not None
        leaves = np.flatnonzero(spine.child_counts == 0)
        return SpineSums(
            self.schema,
            spine,
            self.observed,
            levels,
            self.observed_tables,
            self.typical_variances(),
            self.unmeasured,
            factors_cross(self.schema, [*self.observed_tables, *self.desired_tables]),
            None if self.zeros is None else ~self.zeros.detailed(leaves),
        )

    def tabulate(self, X: Float) -> Float:
        """Sum consistent values over the observed layout, (n, K), to the desired layout, (m, K)."""
        if self.desired is self.observed:
            return X.copy()
        if self.tabulation is not None:
            return self.tabulation @ X
        result = np.empty((self.desired.size, X.shape[1]))
        for target, source, margin in self._margins:
            result[target] = X[source] if margin is None else margin.apply(X[source])
        return result

    def tabulate_transpose(self, V: Float) -> Float:
        """The transpose of `tabulate`: (m, K) over the desired layout to (n, K) over the observed one."""
        if self.desired is self.observed:
            return V.copy()
        if self.tabulation is not None:
            return self.tabulation.T @ V
        result = np.zeros((self.observed.size, V.shape[1]))
        for target, source, margin in self._margins:
            result[source] += V[target] if margin is None else margin.transpose(V[target])
        return result

    def observing(self) -> Problem:
        """The same problem with the observed tables desired; cells that were not measured may come out as anything."""
        copy = self._without_derived()
        copy.desired, copy.desired_tables = self.observed, self.observed_tables
        copy.assumed, copy.undetermined = np.zeros(0, dtype=np.intp), None
        if self.spine is not None:
            copy.desired_levels = self.observed_levels
        return copy

    def of_tables(self, kept: Sequence[int], wanted: Sequence[int] | None = None) -> Problem:
        """The same problem with some of the observed tables only.

        Parameters
        ----------
        kept : sequence of int
            Positions of the tables that count as observed. Equalities may speak of no other.
        wanted : sequence of int, optional
            Positions of the observed tables that are desired; None leaves the desired tables as they are.

        Returns
        -------
        Problem

        Raises
        ------
        ValueError
            If noise is correlated, an equality speaks of another table, or a desired table is not estimable.
        """
        if self.covariance is not None:
            raise ValueError("the noise is correlated: it belongs to all tables together")
        cells, copy = self.observed.cells(kept), self._without_derived()
        copy.assumed, copy.undetermined = np.zeros(0, dtype=np.intp), None
        if self.equalities is not None:
            E, b = self.equalities
            copy.equalities = sparse.csr_array(E[:, cells]), b
            if copy.equalities[0].nnz < E.nnz:
                raise ValueError("an equality speaks of a table that is left out")
        if wanted is not None:
            copy.desired = self.observed.chosen(wanted)
            copy.desired_tables = tuple(self.observed_tables[i] for i in wanted)
            copy.desired_levels = tuple(self.observed_levels[i] for i in wanted) if self.spine is not None else ()
        copy.observed = self.observed.chosen(kept)
        copy.observed_tables = tuple(self.observed_tables[i] for i in kept)
        copy.observed_levels = tuple(self.observed_levels[i] for i in kept) if self.spine is not None else ()
        copy.variances = self.variances[cells]
        copy.variances.flags.writeable = False
        copy.truth = None
        copy._refuse_unestimable_tables()
        copy._refuse_undetermined_cells()
        return copy

    def with_variances(self, variances: ArrayLike) -> Problem:
        """The same problem with other variances of its noise, which is then uncorrelated.

        Parameters
        ----------
        variances : array_like, (n,)
            Of every observed cell. Cells that were measured stay measured.

        Returns
        -------
        Problem

        Raises
        ------
        ValueError
            If the shape does not fit, a variance is negative or NaN, or a measured cell's is infinite.
        """
        values = real_array(variances, "variances")
        if values.shape != (self.observed.size,):
            raise ValueError(f"variances must have shape ({self.observed.size},): got {values.shape}")
        values = checked_variances(values, "variances")
        lost = np.flatnonzero(np.isinf(values) & ~self.unmeasured)
        if lost.size:
            raise ValueError(f"{self.observed.describe(int(lost[0]))} was measured: its variance cannot be infinite")
        copy = self._without_derived()
        copy.covariance = None
        copy.variances = values
        copy.variances.flags.writeable = False
        return copy

    def with_covariance(self, covariance: Any) -> Problem:
        """The same problem with another covariance of its noise, (n, n)."""
        copy = self._without_derived()
        copy._set_noise(np.full(self.observed.size, np.nan), covariance, self.noise)
        return copy

    def _without_derived(self) -> Problem:
        """A shallow copy that has worked nothing out yet."""
        copy = Problem.__new__(Problem)
        derived = {name for name in dir(Problem) if isinstance(getattr(Problem, name, None), cached_property)}
        copy.__dict__.update({name: value for name, value in self.__dict__.items() if name not in derived})
        return copy

    def vector(self, tables: Mapping[Any, ArrayLike]) -> Float:
        """Lay the observed tables out in one vector, refusing what no table can hold.

        Parameters
        ----------
        tables : mapping of str to array_like
            Every observed table by name, of its shape, or with one trailing axis K.

        Returns
        -------
        ndarray, (n,) or (n, K)

        Raises
        ------
        ValueError
            If a table is unknown, missing or of the wrong shape; if a value is NaN or infinite in a cell that was
            measured; if values known exactly contradict one another.
        """
        y = self.observed.vector(tables)
        self.check_vector(y)
        return y

    def check_vector(self, y: Float) -> None:
        """Raise `ValueError` for a vector over the observed layout that no table can hold; see `vector`."""
        y = real_array(y, "y")
        bad = ~np.isfinite(y)
        bad[self.unmeasured & np.isnan(y).reshape(y.shape[0], -1).all(axis=1)] = False
        if bad.any():
            position = int(np.flatnonzero(bad.reshape(y.shape[0], -1).any(axis=1))[0])
            value = "NaN" if np.isnan(y[position]).any() else "infinite"
            raise ValueError(f"{self.observed.describe(position)} is {value}: give a finite number")
        self._refuse_contradictions(y)

    def _refuse_contradictions(self, y: Float) -> None:
        """Exact values must satisfy the equations that involve nothing else."""
        if np.count_nonzero(self.exact) < 2:
            return
        A, b = self.exact_equations
        if not A.shape[0]:
            return
        values = np.where(self.exact.reshape(-1, *[1] * (y.ndim - 1)), y, 0)
        residual = abs(A @ values - b.reshape(-1, *[1] * (y.ndim - 1))).reshape(A.shape[0], -1)
        allowed = CONTRADICTION_TOLERANCE * max(1.0, float(abs(values).max()))
        if residual.max(initial=0) > allowed:
            row = int(residual.max(axis=1).argmax())
            cells = np.sort(A.indices[A.indptr[row] : A.indptr[row + 1]])
            blocks = dict.fromkeys(self.observed.locate(int(cell))[0] for cell in cells)
            places = [self.observed.describe(int(cell)) for cell in cells[:MOST_NAMED]]
            between = [repr(name) for name in blocks] if len(blocks) > 1 else places
            raise ValueError(
                f"values known exactly contradict one another by {residual.max():.6g} between "
                f"{' and '.join(between)}: correct them, or give one a variance above 0"
            )

    @cached_property
    def exact_equations(self) -> tuple[sparse.csr_array, Float]:
        """The equations that hold between exactly known cells alone: (A, b), A of shape (rows, n)."""
        if self.tree is None:
            return self._equations.between_exact
        A, b = self.tree.problem.exact_equations
        return sparse.csr_array(A[:, self.tree.places]), b

    @cached_property
    def tree(self) -> TreeOfNodes | None:
        """The same problem over a spine where a summing matrix is a tree and its noise uncorrelated, otherwise None."""
        if self.summing is None or self.summing.parent is None or self.covariance is not None:
            return None
        return _tree_of_nodes(self.summing, self.variances)

    def _read_zeros(self, zeros: Mapping[Any, Any]) -> StructuralZeros:
        assert self.schema is not None
        names = list(zeros)
        if self.spine is not None:
            return StructuralZeros(self.schema, self.spine, spine_layout(self.schema, self.spine, names), zeros)
        return StructuralZeros(self.schema, Spine([-1], ["all"]), table_layout(self.schema, names), zeros)

    def _read_equalities(self, matrix: Any, b: ArrayLike) -> tuple[sparse.csr_array, Float]:
        E = read_matrix(matrix)
        if E.shape[1] != self.observed.size:
            raise ValueError(
                f"equalities must have {self.observed.size} columns, one for every observed cell: got {E.shape[1]}"
            )
        return E, read_vector(b, E.shape[0], "right-hand side of the equalities")

    def _read_truth(self, truth: Any) -> Float:
        vector = (
            self.observed.vector(truth)
            if isinstance(truth, Mapping)
            else read_vector(truth, self.observed.size, "truth")
        )
        vector.flags.writeable = False
        return vector

    def __repr__(self) -> str:
        return (
            f"Problem({len(self.observed.names)} observed tables, {self.observed.size:,} cells; "
            f"{len(self.desired.names)} desired tables, {self.desired.size:,} cells)"
        )


def _nodes(size: int, labels: tuple[str, ...] | None, name: Any) -> tuple[Dimension, ...]:
    """What the axis of the table "x" is."""
    return (node_dimension(size, labels),)


def _table_variances(schema: Schema, name: str, table: Table, value: Any) -> Float:
    if value is None:
        return np.full(table.size, np.nan)
    what = f"variance of table {name!r}"
    variances = real_array(aligned(value, partial(table_dimensions, schema, name), what), what)
    if variances.shape not in ((), table.shape):
        raise ValueError(
            f"variance of table {name!r} must be a number or have shape {table.shape}: got {variances.shape}"
        )
    return checked_variances(np.broadcast_to(variances, table.shape).ravel(), what)


def _tree_of_nodes(summing: SummingMatrix, variances: Float) -> TreeOfNodes:
    """Nodes below a root of their own if they have several, and the leaves that no node stands for."""
    assert summing.parent is not None
    parent, n = summing.parent, summing.size
    with_rest = np.flatnonzero(summing.rest)
    parent = np.concatenate([parent, with_rest])
    roots = np.flatnonzero(parent < 0)
    if roots.size > 1:
        parent[roots] = parent.size
        parent = np.append(parent, -1)
    spine = Spine(parent)
    spread = np.full(spine.size, np.inf)
    spread[:n] = variances
    schema, cells = Schema({"node": 1}), [spread[members] for members in spine.members]
    total = parse_table(schema, "total")
    structure = SpineConsistency(schema, spine, range(len(cells)), [total] * len(cells), cells)
    lost = undetermined(structure, total, np.arange(n))
    if lost is not None:
        raise ValueError(f"row {lost} of S is not estimable: it was not measured, and no other rows determine it")
    observed = {level: {"total": variances} for level, variances in zip(spine.levels, cells, strict=True)}
    problem = Problem(schema, observed, spine=spine)
    starts = np.asarray(problem.observed.offsets[:-1])
    places = starts[spine.level_of[:n]] + spine.rank_in_level[:n]
    return TreeOfNodes(problem, places.astype(np.intp))
