"""Settings of a privacy mechanism: schema, geolevels and budget, as TOML files and as shipped with the package.

::

    geolevels = ["State", "County", "Block"]    # from the root down
    noise = "discrete_gaussian"                 # optional
    beside = ["vacancy"]                        # optional: variables of other histograms in the same files

    [variables]                                 # as in a schema file
    votingage = ["under18", "adult"]
    age = 116

    [recodes]                                   # a group for every level, or ranges of levels
    age.age_4 = "0-17 | 18-64 | 65-99,110 | 100-109,111-115"

    [selections]                                # optional: sets of levels that constraints name, by label or as ranges
    votingage.nonvoting = ["under18"]

    [constraints]                               # optional
    untrue = ["pl94"]                           # those that hold of published estimates, not of the true counts
    true = ["total", "relgq*"]                  # patterns of those that hold of the true counts; by default all others
    facilities = ["hhgq_total_lb", "hhgq_total_ub"]  # bounds that say how many facilities there are; see below

    [budget]
    measure = "zcdp"                            # or "pure"
    neighbours = "bounded"                      # or "unbounded"
    total = "1/2"

    [budget.geolevels]                          # shares of the total, summing to 1
    State = "1/5"
    County = "1/5"
    Block = "3/5"

    [budget.tables]                             # shares of every geolevel's part, in the order of `geolevels`
    total = ["1/2", "1/2", 0]                   # 0: not measured there
    detailed = ["1/2", "1/2", 1]

Where there are ``facilities`` the first constraint bounds persons from below by the number of facilities of their type,
households by 0, and the second from above by 99,999 times the number of facilities, and of housing units.

Instead of ``total``, ``[budget.geolevels]`` and ``[budget.tables]`` a section ``[budget.losses]``, of the form of
``[budget.tables]``, may give the loss of every table itself. Shares and losses are whole numbers or exact fractions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta, Struct

from constraint_builders.budget import Budget
from constraint_builders.description.noise import require_law
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import parse_table
from constraint_builders.files.naming import naming, shown
from constraint_builders.files.schema_file import (
    LabelledGroups,
    Levels,
    build_schema,
    format_schema,
    levels_in,
    parse_document,
    read_document,
    toml_section,
    toml_value,
)
from constraint_builders.opening import SHIPPED

PRODUCTION = (
    "pl94_us_persons", "pl94_pr_persons", "pl94_us_units", "pl94_pr_units", "dhc_us_persons", "dhc_pr_persons",
    "dhc_us_units", "dhc_pr_units", "dhc_us_units_tenvacgq", "dhc_pr_units_tenvacgq",
)  # fmt: skip
EXAMPLES = ("blocks_adult_race",)

Selections = Mapping[str, Mapping[str, tuple[int, ...]]]

Partition = str | list[str | int] | LabelledGroups  # ranges of levels such as "0-17 | 18-99", or a group of each level
Selection = str | list[str | int]  # ranges of levels such as "0-17,99", or labels
Loss = int | float | str  # a whole number, or an exact fraction such as "1/10"


class BudgetSection(Struct, frozen=True, forbid_unknown_fields=True):
    """The section ``[budget]``."""

    measure: str | None = None
    neighbours: str | None = None
    total: Loss | None = None
    geolevels: dict[str, Loss] | None = None
    tables: dict[str, list[Loss]] | None = None
    losses: dict[str, list[Loss]] | None = None


class ConstraintsSection(Struct, frozen=True, forbid_unknown_fields=True):
    """The section ``[constraints]``."""

    untrue: list[str] = []
    true: list[str] = []
    facilities: Annotated[list[str], Meta(max_length=2)] = []


class SettingsDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    geolevels: list[str]
    variables: dict[str, Levels]
    budget: BudgetSection
    noise: str = "gaussian"
    beside: list[str] = []
    recodes: dict[str, dict[str, Partition]] = {}
    selections: dict[str, dict[str, Selection]] = {}
    constraints: ConstraintsSection = ConstraintsSection()


@dataclass(frozen=True)
class Settings:
    """What a mechanism measured, where, and how precisely.

    Attributes
    ----------
    name : str
    schema : Schema
    geolevels : tuple of str
        From the root down.
    budget : Budget
        Loss of every (geolevel, table).
    noise : str
        Law of the noise, as in `Problem`.
    selections : mapping of variable to mapping of str to tuple of int
        Sets of levels, by the names that constraints give them.
    untrue : tuple of str
        Constraints that hold of published estimates and not of the true counts, to be ignored.
    true : tuple of str
        Patterns of names of constraints that hold of the true counts; nothing if all others do.
    facilities : tuple of str
        Names of the lower and of the upper bounds that say how many facilities there are; or nothing.
    beside : tuple of str
        Variables of other histograms of the same geounits that the same files hold.
    written : str
        The TOML that they were read from, perhaps before something was changed; no part of what is compared.
    """

    name: str
    schema: Schema
    geolevels: tuple[str, ...]
    budget: Budget
    noise: str
    selections: Selections = field(default_factory=lambda: MappingProxyType({}))
    untrue: tuple[str, ...] = ()
    true: tuple[str, ...] = ()
    facilities: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    written: str = field(default="", compare=False, repr=False)

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables that its files may have columns of: those of the schema, and those beside."""
        return (*self.schema.names, *self.beside)

    @property
    def text(self) -> str:
        """The TOML that says all this but the name: as it was read, where nothing was changed since."""
        if self.written and parse_settings(self.written, self.name) == self:
            return self.written
        losses = self.budget.losses
        tables = dict.fromkeys(table for row in losses.values() for table in row)
        said = {"geolevels": list(self.geolevels), "noise": self.noise, "beside": list(self.beside)}
        chosen = {
            variable: {name: ",".join(map(str, levels)) for name, levels in own.items()}
            for variable, own in self.selections.items()
        }
        constraints = {key: list(own) for key in ("untrue", "true", "facilities") if (own := getattr(self, key))}
        spent = {table: [str(losses.get(level, {}).get(table, 0)) for level in self.geolevels] for table in tables}
        sections = [
            "\n".join(f"{key} = {toml_value(own)}" for key, own in said.items() if own),
            format_schema(self.schema).rstrip(),
            *(toml_section(key, own) for key, own in (("selections", chosen), ("constraints", constraints)) if own),
            toml_section("budget", {"measure": self.budget.measure, "neighbours": self.budget.neighbours}),
            toml_section("budget.losses", spent),
        ]
        return "\n\n".join(sections) + "\n"

    def variances(self) -> dict[str, dict[str, float]]:
        """sigma^2 of every table by geolevel, in squared counts; see `Budget.variances`."""
        return self.budget.variances()


def production_settings(name: str) -> Settings:
    """The Census Bureau's settings of 2020 for one product.

    Parameters
    ----------
    name : str
        One of `PRODUCTION`. The DHC units runs measured two histograms in every geounit, of households and, under the
        name that ends in ``_tenvacgq``, of units.

    Returns
    -------
    Settings

    Raises
    ------
    ValueError
        If there is no product of that name.

    Examples
    --------
    >>> production_settings("pl94_us_persons").variances()["State"]["total"]
    1.2091923983582196
    """
    if name not in PRODUCTION:
        raise ValueError(f"no settings {name!r}: there are {', '.join(PRODUCTION)}")
    return _shipped("production", name)


def _shipped(folder: str, name: str) -> Settings:
    return parse_settings((SHIPPED / folder / f"{name}.toml").read_text(encoding="utf-8"), name)


def read_settings(path: str | os.PathLike[str]) -> Settings:
    """Read settings from a TOML file.

    Raises
    ------
    ValueError
        If the file is not TOML, or a section is missing or wrong; the message names the file and the key.
    OSError
        If the file cannot be opened.
    """
    document, text = read_document(path, SettingsDocument)
    with naming(path):
        return _settings(document, text, Path(path).stem)


def find_settings(name_or_path: str) -> Settings:
    """Settings by the name of a product or of one of `EXAMPLES`, or from a file, whose name ends in ``.toml``.

    Raises
    ------
    ValueError, OSError
        As `production_settings` and `read_settings`.
    """
    if name_or_path.endswith(".toml"):
        return read_settings(name_or_path)
    if name_or_path in EXAMPLES:
        return _shipped("examples", name_or_path)
    if name_or_path not in PRODUCTION:
        there = ", ".join((*PRODUCTION, *EXAMPLES))
        raise ValueError(f"no settings {name_or_path!r}: there are {there}; a file's name ends in .toml")
    return production_settings(name_or_path)


def parse_settings(text: str, name: str) -> Settings:
    """Read settings from the text of a TOML file.

    Raises
    ------
    ValueError
        If it is not TOML, or a section is missing or wrong; the message names the key.
    """
    return _settings(parse_document(text, SettingsDocument), text, name)


def _settings(document: SettingsDocument, text: str, name: str) -> Settings:
    geolevels = document.geolevels
    if not geolevels or len(set(geolevels)) < len(geolevels):
        raise ValueError(f"geolevels must be a list of different names, from the root down: got {shown(geolevels)}")
    require_law(document.noise, "noise")
    schema = build_schema(document.variables, document.recodes)
    try:
        budget = _budget(document.budget, geolevels, schema)
    except TypeError as error:  # of a float, which is not exact
        raise ValueError(str(error)) from None
    selections = _selections(document.selections, schema)
    said, beside = document.constraints, tuple(document.beside)
    if len(said.facilities) == 1:
        raise ValueError("constraints.facilities must be two names, of lower and of upper bounds")
    shared = [variable for variable in beside if variable in schema.names]
    if shared:
        raise ValueError(f"beside: {shared[0]!r} is one of the variables: name those of other histograms")
    return Settings(
        name=name,
        schema=schema,
        geolevels=tuple(geolevels),
        budget=budget,
        noise=document.noise,
        selections=selections,
        untrue=tuple(said.untrue),
        true=tuple(said.true),
        facilities=tuple(said.facilities),
        beside=beside,
        written=text,
    )


def derived(settings: Settings, name: str, schema: Schema, losses: Mapping[str, Mapping[str, Fraction]]) -> Settings:
    """Settings of the same geolevels and law over another schema, without constraints.

    Parameters
    ----------
    settings : Settings
    name : str
    schema : Schema
    losses : mapping of table to mapping of geolevel to Fraction
        Where there are any.
    """
    levels, law = settings.geolevels, settings.budget
    by_level = {level: {table: own[level] for table, own in losses.items() if own.get(level)} for level in levels}
    budget = Budget(by_level, measure=law.measure, neighbours=law.neighbours)
    return Settings(name, schema, levels, budget, settings.noise)


def _selections(section: Mapping[str, Mapping[str, str | list]], schema: Schema) -> Selections:
    """Sets of levels, given by their labels or as ranges, as positions."""
    found: dict[str, Mapping[str, tuple[int, ...]]] = {}
    for variable, named in section.items():
        if variable not in schema.names:
            raise ValueError(f"selections.{variable}: there is no such variable: there are {', '.join(schema.names)}")
        found[variable] = MappingProxyType(
            {name: _selection(schema, variable, name, levels) for name, levels in named.items()}
        )
    return MappingProxyType(found)


def _selection(schema: Schema, variable: str, name: str, levels: str | list) -> tuple[int, ...]:
    if isinstance(levels, str):
        try:
            return tuple(sorted(set(levels_in("".join(levels.split()), schema.size_of(variable)))))
        except ValueError as error:
            raise ValueError(f"selections.{variable}.{name}: {error}") from None
    labels = schema.labels_of(variable)
    unknown = [level for level in levels if str(level) not in labels]
    if unknown or not levels:
        what = f"no level {unknown[0]!r}" if unknown else "an empty list"
        raise ValueError(f"selections.{variable}.{name}: {what}: give labels of levels of {variable!r}")
    return tuple(sorted(labels.index(str(level)) for level in levels))


def _budget(section: BudgetSection, geolevels: Sequence[str], schema: Schema) -> Budget:
    law: dict[str, Any] = {"measure": section.measure, "neighbours": section.neighbours}
    law = {key: said for key, said in law.items() if said is not None}
    has = [key for key in ("losses", "total", "geolevels", "tables") if getattr(section, key) is not None]
    if section.losses is not None and has == ["losses"]:
        rows = _by_geolevel(section.losses, geolevels, schema, "budget.losses")
        losses = {level: {table: loss for table, loss in row.items() if loss != 0} for level, row in rows.items()}
        return Budget(losses, **law)
    if section.losses is not None or section.total is None or section.geolevels is None or section.tables is None:
        raise ValueError(
            "[budget] must give either losses, or total, geolevels and tables: "
            f"it has {', '.join(has) or 'none of them'}"
        )
    unknown = [level for level in section.geolevels if level not in geolevels]
    if unknown:
        raise ValueError(f"budget.geolevels.{unknown[0]}: there is no such geolevel: there are {', '.join(geolevels)}")
    total: Any = section.total
    tables = _by_geolevel(section.tables, geolevels, schema, "budget.tables")
    spending: dict[str, Any] = {level: share for level, share in section.geolevels.items() if share != 0}
    return Budget.from_shares(
        total,
        {level: spending[level] for level in geolevels if level in spending},
        {level: tables[level] for level in spending},
        **law,
    )


def _by_geolevel(
    rows: Mapping[str, list], geolevels: Sequence[str], schema: Schema, key: str
) -> dict[str, dict[str, Any]]:
    """Turn {table: [a number for every geolevel]} into {geolevel: {table: number}}."""
    for table, numbers in rows.items():
        parse_table(schema, table)
        if len(numbers) != len(geolevels):
            needed = f"{len(geolevels)} numbers, one for each geolevel"
            raise ValueError(f"{key}.{table} must list {needed}: got {shown(numbers)}")
    return {level: {table: _number(row[i]) for table, row in rows.items()} for i, level in enumerate(geolevels)}


def _number(value: Any) -> Any:
    """What is not measured may be written as a number or as text."""
    return 0 if value == "0" else value
