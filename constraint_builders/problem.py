"""The estimation problem: what was measured and how precisely, what is wanted, what is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float, Index
from constraint_builders.description.areas import Areas
from constraint_builders.description.noise import IndependentNoise, LawOrName
from constraint_builders.description.noise_covariance import read_noise, read_variances
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import NamedTables
from constraint_builders.estimability import ASSUMED_VARIANCE, why_undetermined
from constraint_builders.nested_areas import over_spine, sums_over_spine
from constraint_builders.reading import read_equations, read_problem, read_summing_matrix
from constraint_builders.record import NOTHING_ASSUMED, Record
from constraint_builders.relations.tabulation import Tabulation


class ProblemOverSpine(NamedTuple):
    """A problem over a spine that another one is a part of, and where the other's cells sit in its layouts."""

    problem: Problem
    observed: Index
    desired: Index


class Problem(Record):
    """Noisy tables over one schema, and the tables that are wanted from them.

    Values follow the order of the variables in the name that they are given under, in and out: the array of
    ``"vote * sex"`` has the votes along its first axis, wherever the schema has them, and its cells are in C order in
    every vector, covariance and equality over a layout. ``"sex * vote"`` is the same table, its array the transpose.
    Frames of pandas, arrays of xarray and mappings are laid out by their labels, not by position.

    Parameters
    ----------
    schema : Schema
    observed : mapping of str to float or array_like
        The measured tables, with the variance of their noise: a number, or an array of the table's shape, or with a
        spine or areas one number for each of the level's geounits, or its law, such as ``RandomRounding(3)`` of
        `noise_mechanisms.laws`. 0 means known exactly, ``inf`` not measured.
    desired : sequence of str or "all", optional
        The wanted tables, by default the observed ones. ``"all"``: every plain marginal of some observed table, and the
        observed tables themselves.
    spine : Spine, optional
        The tree of geounits; tables are then given by geolevel, ``{"State": {"total": 1.0}}``.
    areas : Areas, optional
        Instead of a spine, areas that may overlap and cross; their layers are used like geolevels.
    covariance : sparse array, ndarray, LinearOperator or LowRankPlusDiagonal, optional
        Covariance of the noise over the observed layout, (n, n), instead of the diagonal; the variances in `observed`
        must then be None or agree with its diagonal. An operator may have a method ``solve(V)``, its inverse times
        (n, K): some solvers need it.
    zeros : mapping of name to ndarray of bool, optional
        Structural zeros: cells of any table that must be empty. They hold in every finer cell and in every
        geounit below.
    equalities : (sparse array or array_like (k, n), array_like (k,)), optional
        Linear combinations of observed cells that are known exactly, such as a state's total over several geounits.
    noise : str or Law
        The law of the noise: ``"gaussian"``, or another name in `noise_mechanisms.laws.LAWS`, or a law.
    truth : mapping or array_like, optional
        True values over the observed layout, of a test problem; they must add up, which is looked at up to a million
        cells.
    undetermined : {"error", "nan"}
        What to do about desired cells that depend on cells which were not measured and that nothing else determines:
        refuse the problem, or estimate everything else and give NaN for them.

    Attributes
    ----------
    schema, spine, areas : Schema, Spine, Areas or None
        A problem without a spine or areas describes a single geographic unit, one of a matrix has none of them.
    domain : Domain
        Schema, and spine or areas, a spine of one geounit where there is neither; refused by name where `is_tabular`
        is False.
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
    noise : Noise
        The law and the covariance; equal to the name of the law.
    truth : ndarray, (n,) or None
    undetermined : ndarray of bool, (m,), or None
        Desired cells that are NaN because they are not estimable; `why_undetermined` says why. None where there are
        none.
    assumed : ndarray of int
        Observed cells whose measurements would determine those.
    understood : Understood
        What whoever read an input made of it; no part of what is compared.
    sources : SourceValues or None
        Where several sources measured some cell: what each of them did, of which `variances`, and the values that came
        with the problem, are the combination. `sources_of(y)` gives it for these values only.

    Raises
    ------
    ValueError
        For an unknown, repeated or unestimable table, a variance that is negative, NaN or of the wrong shape, a
        covariance that is not symmetric and positive semi-definite, a truth that does not add up.

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

    def __init__(
        self,
        schema: Schema | Record,
        observed: Mapping[str, Any] | None = None,
        desired: Mapping[str, Any] | Sequence[str] | str | None = None,
        *,
        spine: Spine | None = None,
        areas: Areas | None = None,
        covariance: Any = None,
        zeros: Mapping[Any, Any] | None = None,
        equalities: tuple[Any, ArrayLike] | None = None,
        noise: LawOrName = "gaussian",
        truth: Any = None,
        undetermined: Literal["error", "nan"] = "error",
    ) -> None:
        if not isinstance(schema, Record):
            options = (spine, areas, covariance, zeros, equalities, noise, truth, undetermined)
            schema = read_problem(schema, observed, desired, *options)
        vars(self).update(vars(schema))

    @classmethod
    def from_matrix(cls, A: Any, covariance: Any, b: ArrayLike | None = None) -> Problem:
        """A problem given by any linear equalities A x = b.

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
            If a shape does not fit, a value is not finite, or the covariance is not symmetric and positive
            semi-definite.
        """
        return cls(read_equations(A, covariance, b))

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
            Instead of the variances, of noise that is correlated between nodes, in the order of the rows of S; a frame
            by its labels.

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
        return cls(read_summing_matrix(S, variances, covariance))

    def replace(self, **changes: Any) -> Problem:
        """The same problem with other values of some attributes, which are trusted to fit together.

        Parameters
        ----------
        **changes
            Attributes of the problem, by name.

        Returns
        -------
        Problem
        """
        return Problem(self.replaced(**changes))

    @cached_property
    def tree(self) -> ProblemOverSpine | None:
        """The same problem over a spine, where the nodes of a summing matrix, or areas, nest; otherwise None.

        Noise must be uncorrelated. Of a summing matrix its one table is the total at every depth, also of leaves not
        measured.
        """
        if self.is_tree_of_sums:
            spine, tables, places = sums_over_spine(self)
            return ProblemOverSpine(Problem(Schema({"node": 1}), tables, spine=spine), places, places)
        found = over_spine(self) if self.has_areas else None
        if found is None:
            return None
        record, observed, desired = found
        return ProblemOverSpine(Problem(record), observed, desired)

    @property
    def nests(self) -> bool:
        """Whether there is such a `tree`."""
        return bool(self.tree)

    @cached_property
    def determined(self) -> Problem:
        """The same problem, had the cells of `assumed` been measured, with any precision; itself without any."""
        if not self.assumed.size:
            return self
        found = self.replace(noise=self.noise.had_been_measured(self.assumed, ASSUMED_VARIANCE), **NOTHING_ASSUMED)
        wanted = NamedTables(found.desired, found.desired_tables, found.desired_levels)
        vars(found)["sums"] = Tabulation(found, wanted, self.undetermined)  # such cells are sums of very many others
        return found

    def why_undetermined(self, position: int) -> str:
        """Why a cell of the desired layout is not estimable, in one line that names it."""
        return why_undetermined(self, position)

    def observing(self) -> Problem:
        """The same problem with the observed tables desired; cells that were not measured may come out as anything.

        Returns
        -------
        Problem
        """
        return self.wanting(NamedTables(self.observed, self.observed_tables, self.observed_levels))

    def wanting(self, tables: NamedTables) -> Problem:
        """The same problem with other tables desired, of which nobody has looked whether they are estimable.

        Parameters
        ----------
        tables : sequence of (name, Table)
            Those desired, as a layout takes them.

        Returns
        -------
        Problem
        """
        desired, desired_tables, levels = tables
        wanted = {"desired": desired, "desired_tables": desired_tables, "desired_levels": levels}
        found = self.replace(**wanted, **NOTHING_ASSUMED)
        if "relations" in vars(self):  # which are of the measurements alone
            vars(found)["relations"] = self.relations
        return found

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
        values = read_variances(self.observed, variances, self.unmeasured)
        return self.replace(noise=IndependentNoise(self.noise.law, values))

    def with_sizes_of_noise(self, variances: Float) -> Problem:
        """The same problem with other variances, (n,), where the same cells are exact and the same were not measured.

        Equations and sums, which depend on no more than that, are worked out once for both.

        Parameters
        ----------
        variances : ndarray, (n,)
            In squared units of the counts.

        Returns
        -------
        Problem
        """
        told = np.where(self.unmeasured == np.isinf(variances), variances, self.variances)
        made = self.replace(noise=IndependentNoise(self.noise.law, told))
        vars(made).update(domain=self.domain, relations=self.relations, sums=self.sums)
        return made

    def with_covariance(self, covariance: Any) -> Problem:
        """The same problem with another covariance of its noise, (n, n).

        Parameters
        ----------
        covariance : sparse array, LinearOperator or LowRankPlusDiagonal, (n, n)
            Over the observed layout, in squared units of the counts.

        Returns
        -------
        Problem
        """
        variances = np.full(self.observed.size, np.nan)
        return self.replace(noise=read_noise(self.observed, variances, covariance, self.noise.law))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Problem does not change: problem.replace({name}=...) makes another")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Problem does not change: it keeps its {name}")

    def __reduce__(self) -> tuple[type[Problem], tuple[Record]]:
        return Problem, (self.replaced(),)

    def __repr__(self) -> str:
        return (
            f"Problem({len(self.observed.names)} observed tables, {self.observed.size:,} cells; "
            f"{len(self.desired.names)} desired tables, {self.desired.size:,} cells)"
        )
