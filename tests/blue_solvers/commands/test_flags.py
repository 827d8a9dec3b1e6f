"""A flag means the same in every command."""

import argparse

import pytest

from blue_solvers.cli import COMMANDS
from blue_solvers.commands import benchmark
from blue_solvers.commands.arguments import NAMED, whole_from
from blue_solvers.commands.common import CSV_DIGITS, LEVEL
from blue_solvers.commands.listed import table
from blue_solvers.nonnegative import METHODS
from constraint_builders.geography.spine_groups import FANOUT_CUTOFF, VARIANTS
from tests.helpers.every import cases
from tests.helpers.refused_commands import options_of

OUTPUTS = {"--out"}  # a file, a page or a folder, as the command writes


def test_a_flag_takes_the_same_in_every_command() -> None:
    taken: dict[str, set[tuple[object, ...]]] = {}
    for command in COMMANDS:
        for action in options_of(command):
            for flag in set(action.option_strings) - OUTPUTS:
                one = action.type.__qualname__ if isinstance(action.type, type) else action.type
                taken.setdefault(flag, set()).add((action.metavar, getattr(one, "__qualname__", one)))
    assert {"--level", "--columns", "--schema", "--settings", "--strict", "--digits"} <= set(taken)
    assert {flag: ways for flag, ways in taken.items() if len(ways) > 1} == {}


@cases(
    ("estimate.--nonnegative", "choices", METHODS),
    ("design.--variant", "choices", VARIANTS),
    ("benchmark.--problem", "choices", benchmark.PROBLEMS),
    ("design.--fanout-cutoff", "default", FANOUT_CUTOFF),
    ("query.--level", "default", LEVEL),
    ("report.--level", "default", LEVEL),
)
def test_what_the_data_say_of_an_option_is_what_the_library_has(option: str, field: str, known: object) -> None:
    called, flag = option.split(".")
    own = table("options")[called][flag]
    assert own[field] == (list(known) if field == "choices" else known)  # type: ignore[call-overload]


def test_help_says_the_levels_and_digits_that_are_taken() -> None:
    said = table("options")["estimate"]
    assert f"default: {LEVEL}" in said["--level"]["help"]
    assert f"default: {CSV_DIGITS} in .csv" in said["--digits"]["help"]
    assert (
        f"default, without --table: {', '.join(benchmark.BY_DEFAULT)}"
        in table("options")["benchmark"]["--problem"]["help"]
    )


def test_all_that_is_named_in_the_data_is_used_and_known() -> None:
    fields = [own for name, options in table("options").items() if name != "titles" for own in options.values()]
    for field in ("type", "action", "choices"):
        said = {own[field] for own in fields if isinstance(own.get(field), str)}
        assert set(NAMED[field]) <= said
        assert field == "action" or said == set(NAMED[field])


def test_the_least_whole_number_is_taken() -> None:
    assert [whole_from(1)(text) for text in ("1", "2")] == [1, 2]
    with pytest.raises(argparse.ArgumentTypeError, match="a whole number of 1 or more: got 0"):
        whole_from(1)("0")
