"""A flag means the same in every command."""

from __future__ import annotations

import argparse

from blue_solvers.cli import COMMANDS, _parser

OUTPUTS = {"--out"}  # a file, a page or a folder, as the command writes


def options_of(command: str) -> list[argparse.Action]:
    subparsers = _parser([command])._subparsers._group_actions[0].choices[command]  # type: ignore[union-attr, index]
    return list(subparsers._actions)


def test_a_flag_takes_the_same_in_every_command() -> None:
    taken: dict[str, set[tuple[object, ...]]] = {}
    for command in COMMANDS:
        for action in options_of(command):
            for flag in set(action.option_strings) - OUTPUTS:
                one = action.type.__qualname__ if isinstance(action.type, type) else action.type
                taken.setdefault(flag, set()).add((action.metavar, getattr(one, "__qualname__", one)))
    assert {"--level", "--columns", "--schema", "--settings", "--strict", "--digits"} <= set(taken)
    assert {flag: ways for flag, ways in taken.items() if len(ways) > 1} == {}
