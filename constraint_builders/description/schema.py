"""The variables of a population, their levels, and named groupings of those levels."""

from __future__ import annotations

import operator
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import SupportsIndex

import numpy as np

from constraint_builders.arrays import Index
from constraint_builders.description.described import Compared, Described
from constraint_builders.description.labelled import Dimension, aligned, read_names, read_texts

MOST_LEVELS = 1_000_000  # of a variable: more would fill the memory with labels

RESERVED_NAMES = frozenset(
    {"total", "detailed", "all", "table", "value", "variance", "geolevel", "geocode"}
    | {"estimate", "std_error", "lower", "upper", "nonnegative", "adjustment", "adjustment_z"}
)


@dataclass(frozen=True)
class Variable:
    """An attribute of a record and the labels of the levels that it takes."""

    name: str
    levels: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of levels."""
        return len(self.levels)


@dataclass(frozen=True)
class Recode:
    """A named partition of a variable's levels: ``groups[level]`` is the group of that level."""

    name: str
    axis: int
    groups: tuple[int, ...]
    labels: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of groups."""
        return len(self.labels)


class Schema(Compared, Described):
    """An ordered set of variables with their recodes.

    Parameters
    ----------
    variables : mapping of str to int or sequence
        For each variable its number of levels, or the labels of its levels.
    recodes : mapping of str to mapping of str to sequence or mapping, optional
        For each variable its recodes by name. A recode gives one group for every level, in their order or by their
        labels: numbers 0, 1, ... without a gap, or the groups' labels (groups are then numbered in order of first
        appearance).

    Raises
    ------
    ValueError
        If a name is repeated, reserved or contains ``*``; if a variable has no level, a repeated one or more than a
        million; if a recode does not give one group for every level, leaves out a group number, or equals ``total`` or
        the variable itself.
    TypeError
        If levels are neither a number nor a sequence, or groups of a recode neither numbers nor labels.

    Examples
    --------
    >>> schema = Schema({"sex": ["female", "male"], "age": 4}, recodes={"age": {"adult": [0, 0, 1, 1]}})
    >>> schema.shape
    (2, 4)
    >>> schema.size_of("adult")
    2
    """

    _same_in, _hashed_by = ("variables", "recodes"), ("variables", "recodes")

    def __init__(
        self,
        variables: Mapping[str, int | Sequence],
        recodes: Mapping[str, Mapping[str, Sequence | Mapping]] | None = None,
    ) -> None:
        _require_mapping(variables, "variables", 'the levels of each, as in {"sex": ["female", "male"], "age": 4}')
        if not variables:
            raise ValueError("a schema needs at least one variable: got none")
        self.variables = tuple(_variable(name, levels) for name, levels in variables.items())
        for variable in self.variables:
            _require_free_name(variable.name, "variable", ())
        self.recodes = tuple(self._read_recodes(recodes or {}))

    def _read_recodes(self, recodes: Mapping[str, Mapping[str, Sequence | Mapping]]) -> list[Recode]:
        shape = 'recodes of each variable, as in {"age": {"adult": [0, 0, 1, 1]}}'
        _require_mapping(recodes, "recodes", shape)
        taken = [variable.name for variable in self.variables]
        axes = {name: axis for axis, name in enumerate(taken)}
        found = []
        for owner, named_groups in recodes.items():
            if owner not in axes:
                known = f"which is not a variable ({', '.join(map(repr, axes))})"
                raise ValueError(f"recodes are given for {owner!r}, {known}: give {shape}")
            _require_mapping(named_groups, f"recodes of {owner!r}", shape)
            for name, groups in named_groups.items():
                _require_free_name(name, "recode", taken)
                taken.append(name)
                found.append(_recode(name, axes[owner], self.variables[axes[owner]], groups))
        return found

    def with_recode(self, recode: Recode) -> Schema:
        """The same schema and one recode more, whose groups may come in any order.

        Parameters
        ----------
        recode : Recode

        Returns
        -------
        Schema

        Raises
        ------
        ValueError
            If its name is taken or reserved.
        """
        _require_free_name(recode.name, "recode", self.factor_names)
        other = object.__new__(Schema)
        other.variables, other.recodes = self.variables, (*self.recodes, recode)
        return other

    def with_recodes_of(self, other: Schema) -> Schema:
        """The same schema and the recodes that another has of its variables.

        Parameters
        ----------
        other : Schema
            Whose variables of the same names have the same levels.

        Returns
        -------
        Schema

        Raises
        ------
        ValueError
            If a name is taken or reserved.
        """
        found = self
        for recode in other.recodes:
            variable = other.names[recode.axis]
            if variable in self.names:
                found = found.with_recode(replace(recode, axis=self.axis_of(variable)))
        return found

    def factors_of(self, variable: str) -> tuple[str, ...]:
        """A variable and its recodes, by name.

        Parameters
        ----------
        variable : str

        Returns
        -------
        tuple of str

        Raises
        ------
        ValueError
            If there is no such variable.
        """
        axis = self.axis_of(variable)
        return tuple(name for name, own in self._axes.items() if own == axis)

    @cached_property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the variables and of the recodes."""
        return tuple(self._factors)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the variables, in order."""
        return tuple(variable.name for variable in self.variables)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of levels of every variable: the shape of the detailed table."""
        return tuple(variable.size for variable in self.variables)

    @cached_property
    def _factors(self) -> dict[str, Variable | Recode]:
        factors: list[Variable | Recode] = [*self.variables, *self.recodes]
        return {factor.name: factor for factor in factors}

    @cached_property
    def _axes(self) -> dict[str, int]:
        return {name: axis for axis, name in enumerate(self.names)} | {r.name: r.axis for r in self.recodes}

    @cached_property
    def axes_and_sizes(self) -> dict[str, tuple[int, int]]:
        """For every factor (a variable or a recode) the position of its variable, and its number of cells."""
        return {name: (self._axes[name], factor.size) for name, factor in self._factors.items()}

    def axis_of(self, factor: str) -> int:
        """Position of the variable that a factor (a variable or a recode) belongs to.

        Parameters
        ----------
        factor : str

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If there is no such variable or recode.
        """
        try:
            return self._axes[factor]
        except KeyError:
            known = f"it has {', '.join(map(repr, self.factor_names))}, and ' * ' joins several"
            raise ValueError(f"{factor!r} is not a variable or recode of the schema: {known}") from None

    def size_of(self, factor: str) -> int:
        """Number of cells along a factor (a variable or a recode)."""
        self.axis_of(factor)
        return self._factors[factor].size

    def labels_of(self, factor: str) -> tuple[str, ...]:
        """Labels of the cells along a factor (a variable or a recode).

        Parameters
        ----------
        factor : str

        Returns
        -------
        tuple of str, (cells,)

        Raises
        ------
        ValueError
            If there is no such variable or recode.
        """
        self.axis_of(factor)
        item = self._factors[factor]
        return item.levels if isinstance(item, Variable) else item.labels

    def groups_of(self, factor: str) -> tuple[int, ...]:
        """For every level of the factor's variable the cell of the factor that it falls in.

        Parameters
        ----------
        factor : str

        Returns
        -------
        tuple of int, (levels,)

        Raises
        ------
        ValueError
            If there is no such variable or recode.
        """
        self.axis_of(factor)
        item = self._factors[factor]
        return tuple(range(item.size)) if isinstance(item, Variable) else item.groups

    def group_map(self, fine: str, coarse: str) -> Index | None:
        """For every cell of factor `fine` the cell of factor `coarse` that it falls in, or None if in several.

        Parameters
        ----------
        fine, coarse : str
            Factors of one variable.

        Returns
        -------
        ndarray of int, (cells of fine,), or None
        """
        if fine == coarse:
            return np.arange(self.size_of(fine))
        if self.size_of(fine) < self.size_of(coarse):
            return None
        coarse_groups = np.array(self.groups_of(coarse), dtype=np.intp)
        if fine in self.names:
            return coarse_groups
        fine_groups, mapping = np.array(self.groups_of(fine)), np.zeros(self.size_of(fine), dtype=np.intp)
        mapping[fine_groups] = coarse_groups
        return mapping if np.array_equal(mapping[fine_groups], coarse_groups) else None

    def __repr__(self) -> str:
        sizes = ", ".join(f"{variable.name} {variable.size}" for variable in self.variables)
        recodes = "".join(f", {r.name} {r.size} groups of {self.names[r.axis]}" for r in self.recodes)
        return f"Schema({sizes}{recodes})"


def _require_free_name(name: str, kind: str, taken: Sequence[str]) -> None:
    if not isinstance(name, str) or not name.strip() or "*" in name or name != name.strip():
        raise ValueError(f"{kind} name {name!r} is not usable: names are text without '*' or outer spaces")
    if name in RESERVED_NAMES:
        raise ValueError(f"{kind} name {name!r} is reserved: choose another")
    if name in taken:
        raise ValueError(f"{kind} name {name!r} is already taken: names of variables and recodes are unique")


def _require_mapping(value: object, what: str, shape: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a mapping that gives {shape}: got {type(value).__name__}")


def _variable(name: str, levels: int | Sequence) -> Variable:
    what = f"levels of variable {name!r}"
    if isinstance(levels, (str, bytes, bool)):
        raise TypeError(f"{what} must be a number or a list of labels: got {levels!r}")
    if isinstance(levels, Iterable):
        labels = tuple(read_texts(levels, what))
        _few_enough(name, len(labels))
    else:
        try:
            labels = tuple(map(str, range(_few_enough(name, levels))))
        except TypeError:
            raise TypeError(f"{what} must be a number or a list of labels: got {levels!r}") from None
    if not labels:
        raise ValueError(f"variable {name!r} has no levels: give at least one")
    _refuse_repeated(labels, f"variable {name!r} has the level")
    return Variable(name, labels)


def _refuse_repeated(labels: Sequence[str], who: str) -> None:
    """Refuse labels that nobody can tell apart; an accent may be a character of its own or not."""
    label, times = Counter(unicodedata.normalize("NFC", label) for label in labels).most_common(1)[0]
    if times > 1:
        raise ValueError(f"{who} {label!r} twice: labels are unique, as they are seen")


def _few_enough(name: str, levels: SupportsIndex) -> int:
    number = operator.index(levels)
    if number > MOST_LEVELS:
        raise ValueError(f"variable {name!r} has {number:,} levels: the most are {MOST_LEVELS:,}")
    return number


def _recode(name: str, axis: int, variable: Variable, given: Sequence | Mapping) -> Recode:
    what, levels = f"groups of recode {name!r}", (Dimension(variable.name, variable.levels),)
    groups = read_names(aligned(given, lambda: levels, what), what)
    if len(groups) != variable.size:
        raise ValueError(
            f"recode {name!r} gives {len(groups)} groups for the {variable.size} levels of {variable.name!r}: "
            "give one for every level"
        )
    if all(isinstance(group, str) for group in groups):
        number_of = {label: number for number, label in enumerate(dict.fromkeys(groups))}
        _refuse_repeated(list(number_of), f"recode {name!r} has the group")
        labels = tuple(number_of)
        numbers = tuple(number_of[group] for group in groups)
    else:
        numbers = _group_numbers(name, groups)
        labels = tuple(str(number) for number in range(max(numbers) + 1))
    if len(labels) in (1, variable.size):
        same = "'total'" if len(labels) == 1 else f"the variable {variable.name!r} itself"
        raise ValueError(f"recode {name!r} has {len(labels)} groups, which is {same}: leave it out")
    return Recode(name, axis, numbers, labels)


def _group_numbers(name: str, groups: Iterable) -> tuple[int, ...]:
    try:
        numbers = tuple(operator.index(group) for group in groups)
    except TypeError:
        strange = next(group for group in groups if isinstance(group, str) or not hasattr(group, "__index__"))
        raise TypeError(f"groups of recode {name!r} must be all labels or all whole numbers: got {strange!r}") from None
    used = set(numbers)
    gap = next(number for number in range(len(used) + 1) if number not in used)
    if max(used) >= len(used):
        raise ValueError(f"recode {name!r} must use the groups 0 to {max(used)} without a gap: {gap} is missing")
    if min(used) < 0:
        raise ValueError(f"recode {name!r} must use the groups 0, 1, ... without a gap: got {min(used)}")
    return numbers
